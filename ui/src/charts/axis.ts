// Labels of time axes in 24-hour form, as fine as the distance of the ticks needs.

import { clock, date } from '../format';

/** Distances of ticks on a time axis, in seconds. */
export const TIME_STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000,
];

export function timeLabels(splits: number[], step: number): string[] {
  return splits.map((time, index) => {
    const text = clock(time);
    const day = date(time).slice(5);
    if (step >= 86400) return day;
    const isNewDay = index > 0 && date(splits[index - 1]) !== date(time);
    const short = step >= 60 ? text.slice(0, 5) : text;
    return isNewDay ? day : short;
  });
}

/** The value of a series at a moment, for steps between moments that are not the same in all series. */
export function indexAt(times: number[], time: number): number {
  let [low, high] = [0, times.length - 1];
  if (high < 0) return -1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (times[middle] <= time) low = middle;
    else high = middle - 1;
  }
  return low;
}
