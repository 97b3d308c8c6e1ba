// Which job owns which thread of the plane, and the outlines around jobs.

import type { LayoutRow } from '../api/types';
import type { Geometry, Row } from './geometry';

export interface Owners {
  /** The number of the job of each thread; −1 without a job. */
  ofThread: Int32Array;
  names: string[];
  /** The rows of each job, in order. */
  rows: number[][];
}

export function ownersOf(layout: LayoutRow[], rows: Row[]): Owners {
  const total = rows.length === 0 ? 0 : rows[rows.length - 1].offset + rows[rows.length - 1].threads;
  const ofThread = new Int32Array(total).fill(-1);
  const names: string[] = [];
  const rowsOfJobs: number[][] = [];
  const numbers = new Map<string, number>();
  layout.forEach((node, index) => {
    const row = rows[index];
    for (const [first, count, job] of node.runs) {
      let number = numbers.get(job);
      if (number === undefined) {
        number = names.length;
        numbers.set(job, number);
        names.push(job);
        rowsOfJobs.push([]);
      }
      const ofJob = rowsOfJobs[number];
      if (ofJob[ofJob.length - 1] !== index) ofJob.push(index);
      const end = Math.min(first + count, row.threads);
      ofThread.fill(number, row.offset + Math.min(first, end), row.offset + end);
    }
  });
  return { ofThread, names, rows: rowsOfJobs };
}

/** A line of an outline, in cells of its block. */
export interface Edge {
  block: number;
  x1: number;
  y1: number;
  x2: number;
  y2: number;
}

/** The edges between threads of different jobs; with `only`, those around one job. */
export function edges(owners: Owners, rows: Row[], one: Geometry, only: number | null = null): Edge[] {
  const found: Edge[] = [];
  const matters = (a: number, b: number) => a !== b && (only === null ? true : a === only || b === only);
  const ownerAt = (row: number, thread: number): number => {
    const line = rows[row];
    return line && thread >= 0 && thread < line.threads ? owners.ofThread[line.offset + thread] : -1;
  };
  for (const index of only === null ? rows.keys() : rowsAround(owners.rows[only], rows.length)) {
    const block = Math.floor(index / one.rowsPerBlock);
    const y = index % one.rowsPerBlock;
    const isFirst = y === 0;
    const isLast = y === one.rowsPerBlock - 1 || index === rows.length - 1;
    const { threads } = rows[index];
    for (let thread = 0; thread <= threads; thread += 1) {
      if (matters(ownerAt(index, thread - 1), ownerAt(index, thread))) {
        found.push({ block, x1: thread, y1: y, x2: thread, y2: y + 1 });
      }
    }
    const widest = isFirst ? threads : Math.max(threads, rows[index - 1].threads);
    horizontal(found, block, y, widest, (thread) =>
      matters(ownerAt(index, thread), isFirst ? -1 : ownerAt(index - 1, thread)),
    );
    if (isLast) horizontal(found, block, y + 1, threads, (thread) => matters(ownerAt(index, thread), -1));
  }
  return found;
}

/** The rows of a job, and those below them, which have its lower edges. */
function rowsAround(ofJob: number[], nRows: number): Set<number> {
  return new Set(ofJob.flatMap((row) => [row, row + 1]).filter((row) => row < nRows));
}

/** Adjacent pieces of a horizontal edge become one line. */
function horizontal(
  found: Edge[],
  block: number,
  y: number,
  threads: number,
  isEdge: (thread: number) => boolean,
): void {
  let start = -1;
  for (let thread = 0; thread <= threads; thread += 1) {
    const is = thread < threads && isEdge(thread);
    if (is && start < 0) start = thread;
    if (!is && start >= 0) {
      found.push({ block, x1: start, y1: y, x2: thread, y2: y });
      start = -1;
    }
  }
}
