// The picture of the plane: one pixel per thread, or per group of threads where several share a pixel of the screen. A
// group shows its worst thread, so that one bad thread in 128,000 is visible.

import type { Geometry, Row } from './geometry';
import { THRESHOLD } from './palette';

/** How many threads and rows share a pixel. */
export interface Pooling {
  x: number;
  y: number;
}

export function pooling(one: Geometry, pixelRatio: number): Pooling {
  const share = (size: number) => Math.max(1, Math.ceil(1 / (size * pixelRatio) - 1e-6));
  return { x: share(one.cellWidth), y: share(one.cellHeight) };
}

export interface Picture {
  /** Columns and rows of pixels of one block. */
  blockWidth: number;
  width: number;
  height: number;
}

export function pictureOf(one: Geometry, pool: Pooling): Picture {
  const blockWidth = Math.ceil(one.columns / pool.x);
  return { blockWidth, width: blockWidth * one.nBlocks, height: Math.ceil(one.rowsPerBlock / pool.y) };
}

/** Writes the colours of all threads; blocks stand side by side without gaps. Cells without a thread stay transparent. */
export function paint(
  pixels: Uint32Array,
  bytes: Uint8Array,
  rows: Row[],
  one: Geometry,
  pool: Pooling,
  colours: Uint32Array,
): void {
  const picture = pictureOf(one, pool);
  pixels.fill(0);
  if (pool.x === 1 && pool.y === 1) {
    for (let index = 0; index < rows.length; index += 1) {
      const row = rows[index];
      const block = Math.floor(index / one.rowsPerBlock);
      const start = (index % one.rowsPerBlock) * picture.width + block * picture.blockWidth;
      for (let thread = 0; thread < row.threads; thread += 1) {
        pixels[start + thread] = colours[bytes[row.offset + thread]];
      }
    }
    return;
  }
  const worst = pooled(bytes, rows, one, pool);
  for (let at = 0; at < worst.length; at += 1) {
    if (worst[at] >= 0) pixels[at] = colours[worst[at]];
  }
}

/** The largest byte of each pixel; −1 where there is no thread. */
export function pooled(bytes: Uint8Array, rows: Row[], one: Geometry, pool: Pooling): Int16Array {
  const picture = pictureOf(one, pool);
  const worst = new Int16Array(picture.width * picture.height).fill(-1);
  for (let index = 0; index < rows.length; index += 1) {
    const row = rows[index];
    const block = Math.floor(index / one.rowsPerBlock);
    const line = Math.floor((index % one.rowsPerBlock) / pool.y);
    const start = line * picture.width + block * picture.blockWidth;
    for (let thread = 0; thread < row.threads; thread += 1) {
      const at = start + Math.floor(thread / pool.x);
      const byte = bytes[row.offset + thread];
      if (byte > worst[at]) worst[at] = byte;
    }
  }
  return worst;
}

export interface Summary {
  threads: number;
  above: number;
  /** Rows with threads above the threshold. */
  rowsAbove: number[];
  worst: { row: number; thread: number; byte: number } | null;
}

export function summary(bytes: Uint8Array, rows: Row[]): Summary {
  const result: Summary = { threads: 0, above: 0, rowsAbove: [], worst: null };
  rows.forEach((row, index) => {
    let above = 0;
    for (let thread = 0; thread < row.threads; thread += 1) {
      const byte = bytes[row.offset + thread];
      if (byte > THRESHOLD) above += 1;
      if (result.worst === null || byte > result.worst.byte) result.worst = { row: index, thread, byte };
    }
    result.threads += row.threads;
    result.above += above;
    if (above > 0) result.rowsAbove.push(index);
  });
  return result;
}
