// The shown time: a fixed one (`from`, `to`), or the last seconds up to now (`last`).

import { numberOf, type Query, type QueryChange } from '../../routes';

export const DEFAULT_SECONDS = 900;
export const LENGTHS: [number, string][] = [
  [300, '5 min'],
  [900, '15 min'],
  [3600, '1 h'],
  [21600, '6 h'],
  [86400, '24 h'],
];
const MIN_SECONDS = 5;

export interface Shown {
  from: number;
  to: number;
  /** The end moves with the time. */
  isFollowing: boolean;
}

/** The time of an address; `fallback` if it has none. */
export function shownTime(query: Query, now: number, fallback: [number, number] | null = null): Shown {
  const [from, to, last] = [numberOf(query, 'from'), numberOf(query, 'to'), numberOf(query, 'last')];
  if (from !== null && to !== null && from < to) return { from, to, isFollowing: false };
  if (last === null && fallback) return { from: fallback[0], to: fallback[1], isFollowing: false };
  const length = Math.max(MIN_SECONDS, last ?? DEFAULT_SECONDS);
  return { from: now - length, to: now, isFollowing: true };
}

export function fixed(from: number, to: number): QueryChange {
  const spread = Math.max(0, MIN_SECONDS - (to - from)) / 2;
  return { from: (from - spread).toFixed(1), to: (to + spread).toFixed(1), last: null };
}

export function following(seconds: number): QueryChange {
  return { from: null, to: null, last: seconds };
}

/** Moves a time by a part of its length. */
export function panned({ from, to }: Shown, part: number): QueryChange {
  const by = (to - from) * part;
  return fixed(from + by, to + by);
}

/** Shows `factor` times as much, around the same middle. */
export function zoomed({ from, to }: Shown, factor: number): QueryChange {
  const [middle, half] = [(from + to) / 2, ((to - from) / 2) * factor];
  return fixed(middle - half, middle + half);
}
