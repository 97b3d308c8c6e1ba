// What part of a chart is shown, and where a moment and a row are drawn.

import type { Rows } from './rows';

/** A range of time in seconds since the start of the run, and a range of rows. Both may begin between two rows. */
export interface View {
  from: number;
  to: number;
  first: number;
  shown: number;
}

/** What can be shown at most and at least. */
export interface Limits {
  seconds: number;
  rows: number;
  minRows: number;
}

/** A place in the drawing area, as fractions of its width and height. */
export interface Anchor {
  x: number;
  y: number;
}

export const MIDDLE: Anchor = { x: 0.5, y: 0.5 };

/** The highest row, in CSS pixels at the usual size of text. */
export const MAX_ROW = 24;
/** The shortest time that can be shown, in seconds. */
const MIN_SECONDS = 0.05;
/** Room around tasks that are zoomed to, as a fraction. */
const ROOM = 0.06;

export const everything = ({ seconds, rows, minRows }: Limits): View => ({
  from: 0,
  to: seconds,
  first: 0,
  shown: Math.max(rows, minRows),
});

export function isEverything(view: View, limits: Limits): boolean {
  const all = everything(limits);
  return view.to - view.from >= all.to * (1 - 1e-9) && view.shown >= all.shown * (1 - 1e-9);
}

/** The nearest view that is possible. */
export function clamped(view: View, limits: Limits): View {
  const all = everything(limits);
  const span = within(view.to - view.from, Math.min(MIN_SECONDS, limits.seconds), limits.seconds);
  const shown = within(view.shown, Math.min(limits.minRows, all.shown), all.shown);
  const from = within(view.from, 0, limits.seconds - span);
  return { from, to: from + span, first: within(view.first, 0, all.shown - shown), shown };
}

const within = (value: number, low: number, high: number) => Math.min(high, Math.max(low, value));

/** A view with more or less time and rows; what is at the anchor stays there. */
export function zoomed(view: View, limits: Limits, by: { time: number; rows: number }, at: Anchor = MIDDLE): View {
  const span = (view.to - view.from) * by.time;
  const shown = view.shown * by.rows;
  // What does not change must not move either, if a limit is reached.
  const possible = clamped({ from: 0, to: span, first: 0, shown }, limits);
  const from = view.from + (view.to - view.from - possible.to) * at.x;
  const first = view.first + (view.shown - possible.shown) * at.y;
  return clamped({ from, to: from + possible.to, first, shown: possible.shown }, limits);
}

/** A view that is moved by fractions of itself. */
export function moved(view: View, limits: Limits, time: number, rows: number): View {
  const from = view.from + (view.to - view.from) * time;
  return clamped({ from, to: from + view.to - view.from, first: view.first + view.shown * rows, shown: view.shown }, limits);
}

/** The view moved as little as possible so that it contains a row, and moved in time if nothing of it were visible. */
export function including(view: View, limits: Limits, row: number, start: number, end: number): View {
  const first = within(view.first, row + 1 - view.shown, row);
  const span = view.to - view.from;
  const from = end < view.from || start > view.to ? (start + Math.min(end, start + span)) / 2 - span / 2 : view.from;
  return first === view.first && from === view.from ? view : clamped({ ...view, first, from, to: from + span }, limits);
}

/** The view of some attempts; null if none of them is shown. */
export function around(rows: Rows, attempts: Uint8Array, limits: Limits): View | null {
  let [low, high, from, to] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let row = 0; row < rows.n; row += 1) {
    if (!attempts[rows.attempt[row]]) continue;
    low = Math.min(low, row);
    high = row;
    from = Math.min(from, rows.start[row]);
    to = Math.max(to, rows.end[row]);
  }
  if (low > high) return null;
  const [time, height] = [Math.max(to - from, limits.seconds / 1000), high + 1 - low];
  const shown = Math.max(height * (1 + 2 * ROOM), limits.minRows);
  return clamped(
    { from: from - time * ROOM, to: to + time * ROOM, first: low - (shown - height) / 2, shown },
    limits,
  );
}

/** The drawing area of a chart in CSS pixels. */
export interface Plot {
  left: number;
  top: number;
  width: number;
  height: number;
}

export const timeAt = (view: View, plot: Plot, x: number) =>
  view.from + ((x - plot.left) / plot.width) * (view.to - view.from);

export const xOf = (view: View, plot: Plot, time: number) =>
  plot.left + ((time - view.from) / (view.to - view.from)) * plot.width;

/** The upper edge of a row. */
export const yOf = (view: View, plot: Plot, row: number) =>
  plot.top + ((row - view.first) / view.shown) * plot.height;

/** From this height on a row is pointed at even where its task does not run, in CSS pixels. */
const WIDE_ROW = 6;
/** How far beside a task it is still pointed at, in CSS pixels. */
const REACH = 3;

/**
 * The row at a point; −1 if there is none. If several rows share the pixels there, it is the most important one that
 * runs then.
 */
export function hit(rows: Rows, ranks: Float64Array, view: View, plot: Plot, x: number, y: number): number {
  const height = plot.height / view.shown;
  const [dx, dy] = [x - plot.left, y - plot.top];
  if (dx < 0 || dx > plot.width || dy < 0 || dy > plot.height) return -1;
  const at = view.first + dy / height;
  const slack = (REACH / plot.width) * (view.to - view.from);
  const time = timeAt(view, plot, x);
  const half = height >= 1 ? 0 : 0.75 / height;
  const [first, last] = [Math.max(0, Math.floor(at - half)), Math.min(rows.n - 1, Math.floor(at + half))];
  let found = -1;
  for (let row = first; row <= last; row += 1) {
    const runs = rows.start[row] <= time + slack && rows.end[row] >= time - slack;
    if (runs && (found < 0 || ranks[row] > ranks[found])) found = row;
  }
  return found < 0 && height >= WIDE_ROW && first <= last ? first : found;
}

/** A view as a parameter of an address. */
export function toText({ from, to, first, shown }: View): string {
  return [from, to, first, shown].map((value) => Number(value.toFixed(3))).join('_');
}

export function fromText(text: string | undefined): View | null {
  const [from, to, first, shown, ...rest] = (text ?? '').split('_').map(Number);
  const isView = [from, to, first, shown].every(Number.isFinite) && rest.length === 0 && to > from && shown > 0;
  return isView ? { from, to, first, shown } : null;
}
