// Addresses of views. The part after `#` holds the whole state of a view, so that every view can be linked.

export type Route =
  | { view: 'cluster' }
  | { view: 'node'; node: string }
  | { view: 'job'; job: string }
  | { view: 'events'; id: string | null }
  | { view: 'models' }
  | { view: 'embeddings' }
  | { view: 'backtest' }
  | { view: 'sampling' }
  | StoredRoute
  | { view: 'login' }
  | { view: 'unknown'; path: string };

/** A list of stored files, one of them, or one compared with another. */
export interface StoredRoute {
  view: 'job-traces' | 'workflows';
  name: string | null;
  other: string | null;
}

/** Views without a name in their path. */
const PLAIN = ['models', 'embeddings', 'backtest', 'sampling', 'login'] as const;

export type Query = Record<string, string>;

export interface Place {
  route: Route;
  query: Query;
}

/** Changes of a query; null removes a parameter. */
export type QueryChange = Record<string, string | number | null | undefined>;

export function parse(hash: string): Place {
  const text = hash.replace(/^#/, '');
  const cut = text.indexOf('?');
  const path = cut < 0 ? text : text.slice(0, cut);
  const query = Object.fromEntries(new URLSearchParams(cut < 0 ? '' : text.slice(cut + 1)));
  return { route: routeOf(path), query };
}

function routeOf(path: string): Route {
  const parts = path.split('/').filter((part) => part !== '');
  const [view, name, ...rest] = parts;
  const unknown: Route = { view: 'unknown', path };
  if (view === 'job-traces' || view === 'workflows') return storedRoute(view, parts.slice(1)) ?? unknown;
  if (rest.length > 0) return unknown;
  if (view === undefined) return { view: 'cluster' };
  const decoded = name === undefined ? undefined : decode(name);
  if (decoded === null) return unknown;
  if (view === 'events') return { view: 'events', id: decoded ?? null };
  if (view === 'nodes' && decoded !== undefined) return { view: 'node', node: decoded };
  if (view === 'jobs' && decoded !== undefined) return { view: 'job', job: decoded };
  const plain = PLAIN.find((one) => one === view);
  return plain !== undefined && decoded === undefined ? { view: plain } : unknown;
}

function storedRoute(view: StoredRoute['view'], [name, verb, other, ...rest]: string[]): StoredRoute | null {
  const names = [name, other].map((one) => (one === undefined ? undefined : decode(one)));
  const isComparison = verb === 'compare' && other !== undefined;
  if (names.includes(null) || rest.length > 0 || (verb !== undefined && !isComparison)) return null;
  return { view, name: names[0] ?? null, other: names[1] ?? null };
}

function decode(text: string): string | null {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

export function href(route: Route, query: QueryChange = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== '') params.set(name, String(value));
  }
  const text = params.toString();
  return `#${pathOf(route)}${text === '' ? '' : `?${text}`}`;
}

function pathOf(route: Route): string {
  switch (route.view) {
    case 'cluster':
      return '/';
    case 'node':
      return `/nodes/${encodeURIComponent(route.node)}`;
    case 'job':
      return `/jobs/${encodeURIComponent(route.job)}`;
    case 'events':
      return route.id === null ? '/events' : `/events/${encodeURIComponent(route.id)}`;
    case 'job-traces':
    case 'workflows': {
      const parts = [route.name, ...(route.other === null ? [] : ['compare', route.other])];
      return ['', route.view, ...(route.name === null ? [] : parts)].map((one) => encodeURIComponent(one ?? '')).join('/');
    }
    case 'unknown':
      return route.path;
    default:
      return `/${route.view}`;
  }
}

/** A query after a change. */
export function changed(query: Query, change: QueryChange): Query {
  const next = { ...query };
  for (const [name, value] of Object.entries(change)) {
    if (value === null || value === undefined || value === '') delete next[name];
    else next[name] = String(value);
  }
  return next;
}

/** A number of a query; null if it is absent or no number. */
export function numberOf(query: Query, name: string): number | null {
  const value = query[name] === undefined ? NaN : Number(query[name]);
  return Number.isFinite(value) ? value : null;
}

export const nodeHref = (node: string, query?: QueryChange) => href({ view: 'node', node }, query);
export const jobHref = (job: string, query?: QueryChange) => href({ view: 'job', job }, query);
export const eventHref = (id: string, query?: QueryChange) => href({ view: 'events', id }, query);

export const jobTraceHref = (name: string | null, other: string | null = null, query?: QueryChange) =>
  href({ view: 'job-traces', name, other }, query);
export const workflowHref = (name: string | null, other: string | null = null, query?: QueryChange) =>
  href({ view: 'workflows', name, other }, query);
