// Geometry of scatter plots: scales, ticks, the nearest point, and points inside a lasso.

import { TIME_STEPS } from './axis';

export interface Place {
  x: number;
  y: number;
}

export type ScaleKind = 'linear' | 'log' | 'time';

/** Values to pixels, from 0 to `size`. */
export interface Scale {
  low: number;
  high: number;
  at: (value: number) => number;
}

export function scaleOf(values: ArrayLike<number>, size: number, kind: ScaleKind, fixed?: [number, number]): Scale {
  const [low, high] = fixed ?? padded(values, kind);
  if (kind === 'log') {
    const [from, to] = [Math.log(low), Math.log(high)];
    return { low, high, at: (value) => ((Math.log(Math.max(value, low)) - from) / (to - from)) * size };
  }
  return { low, high, at: (value) => ((value - low) / (high - low)) * size };
}

/** The range of values with some room around them. */
function padded(values: ArrayLike<number>, kind: ScaleKind): [number, number] {
  let [low, high] = [Infinity, -Infinity];
  for (let index = 0; index < values.length; index += 1) {
    const value = values[index];
    if (!Number.isFinite(value) || (kind === 'log' && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return kind === 'log' ? [1, 10] : [0, 1];
  if (kind === 'log') return [low / 1.15, Math.max(high, low * 1.5) * 1.15];
  const room = (high - low) * 0.04 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

/** Round values inside a range, about `count` of them. */
export function ticks(low: number, high: number, count: number, kind: ScaleKind): number[] {
  if (kind === 'log') return logTicks(low, high, count);
  const least = (high - low) / Math.max(1, count);
  const step = kind === 'time' ? (TIME_STEPS.find((one) => one >= least) ?? 864000) : roundStep(least);
  const found: number[] = [];
  for (let at = Math.ceil(low / step); at * step <= high && found.length < 100; at += 1) found.push(tidy(at * step));
  return found;
}

function roundStep(least: number): number {
  const ten = 10 ** Math.floor(Math.log10(least));
  return ten * ([1, 2, 5, 10].find((factor) => factor * ten >= least * (1 - 1e-9)) ?? 10);
}

/** Products of steps and tens have errors in their last digits. */
const tidy = (value: number) => Number(value.toPrecision(12));

function logTicks(low: number, high: number, count: number): number[] {
  for (const factors of [[1, 2, 3, 5, 7], [1, 2, 5], [1, 3], [1]]) {
    const found: number[] = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const factor of factors) {
        const value = tidy(factor * 10 ** power);
        if (value >= low && value <= high) found.push(value);
      }
    }
    if (found.length <= count || factors.length === 1) return found;
  }
  return [];
}

/** Whether a point is inside a polygon, by the number of edges that a ray to the right crosses. */
export function isInside(x: number, y: number, polygon: Place[]): boolean {
  let inside = false;
  for (let at = 0, before = polygon.length - 1; at < polygon.length; before = at, at += 1) {
    const [a, b] = [polygon[at], polygon[before]];
    if (a.y > y !== b.y > y && x < ((b.x - a.x) * (y - a.y)) / (b.y - a.y) + a.x) inside = !inside;
  }
  return inside;
}

/** The points inside a polygon; points outside its bounding box are not tested. */
export function within(polygon: Place[], xs: ArrayLike<number>, ys: ArrayLike<number>): number[] {
  const found: number[] = [];
  if (polygon.length < 3) return found;
  const [left, right] = [Math.min(...polygon.map((one) => one.x)), Math.max(...polygon.map((one) => one.x))];
  const [top, bottom] = [Math.min(...polygon.map((one) => one.y)), Math.max(...polygon.map((one) => one.y))];
  for (let index = 0; index < xs.length; index += 1) {
    const [x, y] = [xs[index], ys[index]];
    if (x >= left && x <= right && y >= top && y <= bottom && isInside(x, y, polygon)) found.push(index);
  }
  return found;
}

export function rectangle(a: Place, b: Place): Place[] {
  return [a, { x: b.x, y: a.y }, b, { x: a.x, y: b.y }];
}

/** The point next to a place, if it is within `reach` pixels; −1 if none is. Of equal ones, the last drawn. */
export function nearest(
  place: Place,
  xs: ArrayLike<number>,
  ys: ArrayLike<number>,
  reach: number,
  counts: (index: number) => boolean,
): number {
  let [found, least] = [-1, reach * reach];
  for (let index = 0; index < xs.length; index += 1) {
    const [dx, dy] = [xs[index] - place.x, ys[index] - place.y];
    const distance = dx * dx + dy * dy;
    if (distance <= least && counts(index)) [found, least] = [index, distance];
  }
  return found;
}

/** Lasso paths have a point for every few pixels; more would only slow down the test. */
export function extended(path: Place[], place: Place): Place[] {
  const last = path[path.length - 1];
  return last && Math.hypot(last.x - place.x, last.y - place.y) < 4 ? path : [...path, place];
}
