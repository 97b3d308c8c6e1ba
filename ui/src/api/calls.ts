// The calls of the API, one function each.

import { get, send, withQuery } from './client';
import type * as O from './operations';
import { Queue } from './queue';
import type * as T from './types';

export const BASE = 'api/v1';
const part = encodeURIComponent;

export const session = () => get<T.Session>(`${BASE}/session`);

export async function logIn(token: string): Promise<void> {
  await send(`${BASE}/session`, { method: 'POST', body: { token } });
}

export async function logOut(): Promise<void> {
  await send(`${BASE}/session`, { method: 'DELETE' });
}

export const PROVIDER_LOGIN = `${BASE}/login`;
export const STREAM = `${BASE}/stream`;

export const cluster = (signal?: AbortSignal) => get<T.ClusterState>(`${BASE}/cluster`, signal);

let layoutTag: string | null = null;
let lastLayout: T.Layout | null = null;

/** The rows of the plane. An unchanged layout is the same object. */
export async function layout(signal?: AbortSignal): Promise<T.Layout> {
  const headers: Record<string, string> = layoutTag && lastLayout ? { 'if-none-match': layoutTag } : {};
  const response = await send(`${BASE}/cluster/layout`, { signal, headers });
  if (response.status === 304 && lastLayout) return lastLayout;
  layoutTag = response.headers.get('etag');
  lastLayout = (await response.json()) as T.Layout;
  return lastLayout;
}

export interface Plane {
  /** `n1=32,n2=32`; null if the header is missing. */
  rows: string | null;
  bytes: Uint8Array;
}

export async function plane(signal?: AbortSignal): Promise<Plane> {
  const response = await send(`${BASE}/cluster?format=plane`, { signal });
  return { rows: response.headers.get('tracewise-rows'), bytes: new Uint8Array(await response.arrayBuffer()) };
}

export const nodes = (signal?: AbortSignal) => get<T.List<T.NodeItem>>(`${BASE}/nodes`, signal);
export const node = (name: string, signal?: AbortSignal) => get<T.NodeDetail>(`${BASE}/nodes/${part(name)}`, signal);
export const job = (name: string, signal?: AbortSignal) => get<T.JobDetail>(`${BASE}/jobs/${part(name)}`, signal);

export interface TraceQuery {
  from?: number | null;
  to?: number | null;
  cpu?: number | null;
  points?: number;
}

const traceQueries = new Queue();

export const threads = (name: string, query: TraceQuery, signal?: AbortSignal) =>
  traceQueries.run(
    () => get<T.ThreadTraces>(withQuery(`${BASE}/nodes/${part(name)}/threads`, { ...query }), signal),
    signal,
  );

export interface UsageQuery {
  from: number;
  to: number;
  job?: string;
  points?: number;
}

export const usage = (name: string, query: UsageQuery, signal?: AbortSignal) =>
  get<T.NodeUsage>(withQuery(`${BASE}/nodes/${part(name)}/usage`, { ...query }), signal);

export interface EventQuery {
  node?: string;
  job?: string;
  open?: boolean;
  standing?: string;
  hidden?: boolean;
  from?: number;
  to?: number;
  after?: string;
  limit?: number;
}

export const events = (query: EventQuery, signal?: AbortSignal) =>
  get<T.List<T.Event>>(withQuery(`${BASE}/events`, { ...query }), signal);

export const event = (id: string, signal?: AbortSignal) => get<T.EventDetail>(`${BASE}/events/${part(id)}`, signal);

export const verdicts = (id: string) =>
  get<{ standing: T.Standing; verdicts: T.Verdict[] }>(`${BASE}/events/${part(id)}/verdicts`);

export const preview = (id: string, scope: T.Scope, signal?: AbortSignal) =>
  get<T.Preview>(withQuery(`${BASE}/events/${part(id)}/preview`, { scope }), signal);

export async function give(id: string, body: T.VerdictRequest): Promise<T.Verdict> {
  const response = await send(`${BASE}/events/${part(id)}/verdicts`, { method: 'POST', body, seconds: 60 });
  return response.json() as Promise<T.Verdict>;
}

export async function undo(number: number): Promise<void> {
  await send(`${BASE}/verdicts/${number}`, { method: 'DELETE' });
}

export const vetting = (signal?: AbortSignal) => get<T.Vetting>(`${BASE}/vetting`, signal);
export const models = (signal?: AbortSignal) => get<T.List<T.Model>>(`${BASE}/models`, signal);
export const model = (version: string, signal?: AbortSignal) =>
  get<T.ModelDetail>(`${BASE}/models/${part(version)}`, signal);
export const promotions = (signal?: AbortSignal) => get<T.List<T.Promotion>>(`${BASE}/promotions`, signal);
export const nights = (signal?: AbortSignal) => get<T.List<T.Night>>(`${BASE}/competitions`, signal);
export const timings = (signal?: AbortSignal) => get<T.List<T.Timing>>(`${BASE}/timings`, signal);
export const exclusions = (signal?: AbortSignal) => get<T.List<T.Exclusion>>(`${BASE}/exclusions`, signal);

export async function exclude(body: { node?: string; from: number; to: number; reason: string }): Promise<void> {
  await send(`${BASE}/exclusions`, { method: 'POST', body });
}

export async function include(number: number): Promise<void> {
  await send(`${BASE}/exclusions/${number}`, { method: 'DELETE' });
}

export const diagnoses = (signal?: AbortSignal) => get<T.List<T.Diagnosis>>(`${BASE}/diagnoses`, signal);

export async function diagnose(body: T.DiagnosisRequest): Promise<T.Diagnosis> {
  const response = await send(`${BASE}/diagnoses`, { method: 'POST', body, seconds: 60 });
  return response.json() as Promise<T.Diagnosis>;
}

export async function removeDiagnosis(number: number): Promise<void> {
  await send(`${BASE}/diagnoses/${number}`, { method: 'DELETE' });
}

export async function promote(version: string, reason: string): Promise<void> {
  await send(`${BASE}/models/${part(version)}/promote`, { method: 'POST', body: { reason } });
}

export async function rollBack(reason: string): Promise<void> {
  await send(`${BASE}/rollback`, { method: 'POST', body: { reason } });
}

/** Operations run on the server for up to hours; this asks how far one is. Its result may be large. */
export const operation = <R>(number: number, signal?: AbortSignal) =>
  get<O.Operation<R>>(`${BASE}/operations/${number}`, signal);

export async function cancelOperation(number: number): Promise<void> {
  await send(`${BASE}/operations/${number}`, { method: 'DELETE' });
}

export async function started<R>(path: string, body?: unknown): Promise<O.Operation<R>> {
  return (await send(`${BASE}/${path}`, { method: 'POST', body })).json() as Promise<O.Operation<R>>;
}

export const startEmbeddings = (body: { projection: O.Projection; minutes: number }) =>
  started<O.Embeddings>('embeddings', body);

export interface BacktestRequest {
  model?: string;
  from?: number;
  to?: number;
  false_events_per_day?: number;
}

export const startBacktest = (body: BacktestRequest) =>
  started<O.Backtest>('backtests', body);

export const startSimilarJobs = (job: string, body: { from?: number; to?: number }) =>
  started<O.SimilarJobs>(`jobs/${part(job)}/similar`, body);

export const startSampling = () => started<O.Sampling>('sampling');
