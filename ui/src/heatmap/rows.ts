// The header `tracewise-rows` of the plane, and whether it describes the same rows as the layout.

import type { CpuRun, Layout } from '../api/types';

/** `n1=32,n2=32` as rows. Names may contain `=`; the last one counts. */
export function parseRows(header: string): { node: string; threads: number }[] {
  if (header === '') return [];
  return header.split(',').map((part) => {
    const cut = part.lastIndexOf('=');
    return { node: part.slice(0, cut), threads: Number(part.slice(cut + 1)) || 0 };
  });
}

export function isSame(layout: Layout, header: string): boolean {
  return layout.nodes.map((row) => `${row.node}=${row.threads}`).join(',') === header;
}

/** A layout without jobs, for the time until the server's layout arrives. */
export function withoutJobs(header: string): Layout {
  return { nodes: parseRows(header).map((row) => ({ ...row, runs: [] })) };
}

/** The CPU number of each position of a row; positions themselves if the layout has no numbers yet. */
export function cpuNumbers(row: { threads: number; cpus?: CpuRun[] }): number[] {
  const numbers: number[] = [];
  for (const [first, count] of row.cpus ?? []) {
    for (let cpu = first; cpu < first + count; cpu += 1) numbers.push(cpu);
  }
  return numbers.length === row.threads ? numbers : Array.from({ length: row.threads }, (_, position) => position);
}

/** The CPU number at one position of a row. */
export function cpuAt(row: { cpus?: CpuRun[] }, position: number): number {
  let before = 0;
  for (const [first, count] of row.cpus ?? []) {
    if (position < before + count) return first + position - before;
    before += count;
  }
  return position;
}

/** All CPU numbers of a row, as `0–31, 64–95`. */
export function cpuRanges(row: { cpus?: CpuRun[] }): string {
  return (row.cpus ?? []).map(([first, count]) => (count === 1 ? `${first}` : `${first}–${first + count - 1}`)).join(', ');
}
