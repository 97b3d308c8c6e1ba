// The level of detail: what to draw of many rows on few pixels. Everything here is in device pixels of the drawing area.

import type { View } from './geometry';
import type { Rows } from './rows';

/** The number of the first row in a sorted list that is at least `least`. */
function lowerBound(sorted: Uint32Array, least: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < least) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The rows to draw and their places. Rows that share a line of pixels are represented by the most important one that is
 * in the shown time. Which rows share a line depends on the zoom alone, so nothing flickers while the chart is moved.
 */
export class Bands {
  n = 0;
  row = new Int32Array(0);
  top = new Int32Array(0);
  bottom = new Int32Array(0);

  pick(rows: Rows, ranks: Float64Array, view: View, height: number): void {
    const scale = height / view.shown;
    const base = Math.floor(view.first * scale);
    const first = Math.max(0, Math.floor(view.first));
    const last = Math.min(rows.n, Math.ceil(view.first + view.shown));
    this.reserve(Math.min(last - first, height + 2));
    const { row: chosen, top, bottom } = this;
    let [n, line] = [0, NaN];
    for (let row = first; row < last; row += 1) {
      if (rows.end[row] < view.from || rows.start[row] > view.to) continue;
      const y = Math.floor(row * scale);
      if (y === line) {
        if (ranks[row] > ranks[chosen[n - 1]]) chosen[n - 1] = row;
        continue;
      }
      line = y;
      chosen[n] = row;
      top[n] = y - base;
      bottom[n] = Math.max(y + 1, Math.floor((row + 1) * scale)) - base;
      n += 1;
    }
    this.n = n;
  }

  private reserve(n: number): void {
    if (n <= this.row.length) return;
    this.row = new Int32Array(n);
    this.top = new Int32Array(n);
    this.bottom = new Int32Array(n);
  }
}

/** Places as two columns. */
export interface Places {
  x: number[];
  y: number[];
}

/**
 * Where failed attempts are marked: at their ends, or at the edge if they end later. Every failed attempt in the view
 * has a mark at most `cell` pixels away.
 */
export function failedMarks(rows: Rows, view: View, width: number, height: number, cell: number): Places {
  const scale = height / view.shown;
  const base = Math.floor(view.first * scale);
  const columns = Math.floor(width / cell) + 1;
  const taken = new Uint8Array(columns * (Math.floor(height / cell) + 2));
  const marks: Places = { x: [], y: [] };
  const until = view.first + view.shown;
  for (let at = lowerBound(rows.failed, Math.floor(view.first)); at < rows.failed.length; at += 1) {
    const row = rows.failed[at];
    if (row >= until) break;
    if (rows.end[row] < view.from || rows.start[row] > view.to) continue;
    const x = Math.min(width, ((rows.end[row] - view.from) / (view.to - view.from)) * width);
    const y = Math.min(height, Math.max(0, Math.floor(row * scale) - base + Math.max(1, scale) / 2));
    const place = Math.floor(y / cell) * columns + Math.floor(x / cell);
    if (taken[place]) continue;
    taken[place] = 1;
    marks.x.push(x);
    marks.y.push(y);
  }
  return marks;
}

/** Boxes as columns. */
export interface Boxes {
  left: number[];
  right: number[];
  top: number[];
  bottom: number[];
}

/** The attempts on the critical path in the order of time. Neighbours that would share their pixels are one box. */
export function criticalBoxes(rows: Rows, view: View, width: number, height: number): Boxes {
  const scale = height / view.shown;
  const base = Math.floor(view.first * scale);
  const perSecond = width / (view.to - view.from);
  const boxes: Boxes = { left: [], right: [], top: [], bottom: [] };
  let last = -1;
  for (const row of rows.critical) {
    if (rows.end[row] < view.from || rows.start[row] > view.to) continue;
    const left = (rows.start[row] - view.from) * perSecond;
    const right = (rows.end[row] - view.from) * perSecond;
    const top = Math.floor(row * scale) - base;
    if (last >= 0 && boxes.top[last] === top && left - boxes.right[last] < 1) {
      boxes.left[last] = Math.min(boxes.left[last], left);
      boxes.right[last] = Math.max(boxes.right[last], right);
      continue;
    }
    last += 1;
    boxes.left.push(left);
    boxes.right.push(right);
    boxes.top.push(top);
    boxes.bottom.push(Math.max(top + 1, Math.floor((row + 1) * scale) - base));
  }
  return boxes;
}
