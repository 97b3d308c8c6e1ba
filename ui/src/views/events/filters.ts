// Filters of the list of events, as they stand in the address.

import type { EventQuery } from '../../api/calls';
import { numberOf, type Query, type QueryChange } from '../../routes';

export const STANDINGS = ['unvetted', 'anomaly', 'normal', 'unsure', 'disputed'] as const;

/** Parameters of the list; others belong to the shown event. */
const LIST_PARAMETERS = ['open', 'standing', 'hidden', 'node', 'job', 'within'];

export interface Tab {
  name: string;
  change: QueryChange;
}

/** Without parameters, the list is the queue: events without a verdict that are not hidden. */
export const TABS: Tab[] = [
  { name: 'To vet', change: { open: null, standing: null, hidden: null } },
  { name: 'Open', change: { open: 'true', standing: 'any', hidden: null } },
  { name: 'All', change: { open: null, standing: 'any', hidden: 'any' } },
  { name: 'Hidden', change: { open: null, standing: 'any', hidden: 'true' } },
];

export const TIMES: [number, string][] = [
  [3600, 'last hour'],
  [86400, 'last 24 h'],
  [604800, 'last 7 days'],
  [2592000, 'last 30 days'],
];

export function isTab(tab: Tab, query: Query): boolean {
  return Object.entries(tab.change).every(([name, value]) => (query[name] ?? null) === value);
}

/** What to ask the server. Times are rounded, so that the request stays the same for a while. */
export function eventQuery(query: Query, now: number): EventQuery {
  const standing = query.standing ?? 'unvetted';
  const hidden = query.hidden ?? 'false';
  const within = numberOf(query, 'within');
  return {
    open: query.open === 'true' ? true : query.open === 'false' ? false : undefined,
    standing: STANDINGS.some((one) => one === standing) ? standing : undefined,
    hidden: hidden === 'true' ? true : hidden === 'any' ? undefined : false,
    node: query.node,
    job: query.job,
    from: within === null ? undefined : Math.floor((now - within) / 60) * 60,
  };
}

/** The parameters of the list, without those of the shown event. */
export function listQuery(query: Query): Query {
  return Object.fromEntries(Object.entries(query).filter(([name]) => LIST_PARAMETERS.includes(name)));
}
