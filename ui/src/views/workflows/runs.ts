// The list of runs: which ones, in which order, and the neighbours of one.

import type { WorkflowItem } from '../../api/workflows';
import type { Query } from '../../routes';
import { classOf } from './labels';

export const COLUMNS = ['name', 'uploaded', 'seconds', 'attempts', 'failed', 'class', 'label'] as const;
export type Column = (typeof COLUMNS)[number];

export const FILTERS = ['all', 'unlabelled', 'differing'] as const;
export type Filter = (typeof FILTERS)[number];

export interface Listing {
  column: Column;
  isUp: boolean;
  filter: Filter;
}

export function listingOf(query: Query): Listing {
  const column = COLUMNS.find((one) => one === query.sort) ?? 'uploaded';
  const isText = column === 'name' || column === 'class' || column === 'label';
  return {
    column,
    isUp: (query.order ?? (isText ? 'up' : 'down')) === 'up',
    filter: FILTERS.find((one) => one === query.show) ?? 'all',
  };
}

/** The parameters of the list, which a run keeps so that the next one is known. */
export const listQuery = ({ sort, order, show }: Query) => ({ sort, order, show });

/** Whether a person and the classifier disagree. */
export const isDiffering = ({ class: found, label }: WorkflowItem) =>
  found !== null && label !== null && classOf(label) !== classOf(found);

export function listed(items: WorkflowItem[], { column, isUp, filter }: Listing): WorkflowItem[] {
  const shown = items.filter(
    (item) =>
      filter === 'all' || (filter === 'unlabelled' ? item.label === null : isDiffering(item)),
  );
  const sign = isUp ? 1 : -1;
  return shown.sort((a, b) => sign * compared(a[column], b[column]) || (a.name < b.name ? -1 : 1));
}

function compared(a: string | number | null, b: string | number | null): number {
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a ?? '').localeCompare(String(b ?? ''), undefined, { numeric: true });
}

/** The run after or before one. A run that has left the list, such as by its label, is looked for among all. */
export function neighbour(shown: WorkflowItem[], all: WorkflowItem[], name: string, by: 1 | -1): string | null {
  const at = shown.findIndex((item) => item.name === name);
  if (at >= 0) return shown[at + by]?.name ?? null;
  const place = all.findIndex((item) => item.name === name);
  if (place < 0) return shown[0]?.name ?? null;
  const names = new Set(shown.map((item) => item.name));
  for (let next = place + by; next >= 0 && next < all.length; next += by) {
    if (names.has(all[next].name)) return all[next].name;
  }
  return null;
}
