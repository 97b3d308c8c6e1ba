// The header `tracewise-rows` of the plane, and whether it describes the same rows as the layout.

import type { Layout } from '../api/types';

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
