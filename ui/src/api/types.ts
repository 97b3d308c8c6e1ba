// The data of the API. Times are seconds since 1970.

export type Role = 'viewer' | 'vetter' | 'admin';
export type Answer = 'anomaly' | 'normal' | 'unsure';
export type Standing = 'unvetted' | 'anomaly' | 'normal' | 'unsure' | 'disputed';
export type Scope = 'cluster' | 'node';

export interface User {
  actor: string;
  role: Role;
  /** There are no tokens: everyone on the machine is an administrator. */
  is_local: boolean;
}

export interface Session {
  user: User | null;
  logins: string[];
}

export interface List<T> {
  items: T[];
  next: string | null;
}

export interface ClusterState {
  cluster: string;
  time?: number | null;
  model?: string | null;
  state: string;
  nodes: number;
  threads: number;
  open_events: number;
  missing: string[];
}

/** `[first, count, job]`: consecutive threads of one job, by position in the row. */
export type Run = [number, number, string];

/** `[first, count]`: threads with consecutive CPU numbers. Positions in a row are in the same order. */
export type CpuRun = [number, number];

export interface LayoutRow {
  node: string;
  threads: number;
  cpus?: CpuRun[];
  runs: Run[];
}

export interface Layout {
  nodes: LayoutRow[];
}

export interface NodeItem {
  node: string;
  time: number;
  threads: number;
  jobs: number;
  max_score: number;
  p99_score: number;
  anomalous_threads: number;
}

export interface ThreadItem {
  cpu: number;
  score: number;
  job?: string | null;
}

export interface JobItem {
  job: string;
  node: string;
  score: number;
  error: number;
  threads: number;
}

export interface NodeDetail {
  summary: NodeItem;
  threads: ThreadItem[];
  jobs: JobItem[];
}

export interface JobDetail {
  nodes: JobItem[];
  events: Event[];
}

export interface ThreadTrace {
  cpu: number;
  time: number[];
  job: (string | null)[];
  /** One list for each channel. */
  observed: number[][];
  expected?: number[][] | null;
  error?: number[] | null;
  score?: number[] | null;
}

export interface ThreadTraces {
  node: string;
  from: number;
  to: number;
  channels: string[];
  window_seconds: number;
  threads: ThreadTrace[];
}

/** Lists of the same length; what was not recorded is null. Pressure is the fraction of time in which a task waited. */
export interface JobUsage {
  job: string;
  memory_limit_bytes: number | null;
  time: number[];
  memory_bytes: (number | null)[];
  cpu_pressure: (number | null)[];
  memory_pressure: (number | null)[];
  io_pressure: (number | null)[];
}

export interface NodeUsage {
  memory_bytes: number | null;
  jobs: JobUsage[];
}

export interface Kind {
  kind: string;
  confidence: number;
  distance: number;
  is_inside: boolean;
}

export interface Event {
  id: string;
  subject: string;
  node?: string | null;
  nodes: string[];
  jobs: string[];
  threads: number[];
  start: number;
  end?: number | null;
  opened: number;
  strength: number;
  level: string;
  channels: string[];
  kinds: Kind[];
  certainty: number;
  why: string;
  model?: string;
  hidden_by?: number | null;
  standing?: Standing;
}

export interface SimilarEvent {
  event: Event;
  distance: number;
  standing?: Standing;
}

export interface Verdict {
  number: number;
  event: string;
  answer: Answer;
  kind?: string | null;
  comment: string;
  actor: string;
  time: number;
  scope: Scope;
  expires: number;
  is_undone: boolean;
}

export interface VerdictRequest {
  answer: Answer;
  kind?: string;
  comment?: string;
  scope?: Scope;
  days?: number;
}

export interface EventDetail {
  event: Event;
  similar: SimilarEvent[];
  standing: Standing;
  verdicts: Verdict[];
  changes?: { number: number; what: string; time: number }[];
  told?: { receiver: string; is_told: boolean }[];
}

export interface Preview {
  hidden: Event[];
  not_compared: number;
}

export interface VettingFigures {
  events: number;
  anomalies: number;
  normal: number;
  unvetted: number;
  hidden: number;
  precision: number | null;
  seconds_to_verdict: number | null;
}

export interface Vetting {
  days7: VettingFigures;
  days30: VettingFigures;
}

export interface Model {
  version: string;
  detector: string;
  added: number;
  in_use: boolean;
  aliases: string[];
  parent?: string | null;
  data_from?: number | null;
  data_to?: number | null;
  weights_sha256: string;
  metrics: Record<string, number>;
  shadow?: Shadow | null;
}

export interface Calibration {
  /** The budget. */
  false_events_per_day: number;
  plausible_events_per_day: [number, number];
  days: number;
  jobs: number;
  is_uncertain: boolean;
  thresholds: { evidence: string; value: number; log_std_error: number; units: number }[];
  /** The budgets of `found`. */
  budgets: number[];
  found: { kind: string; is_injected: boolean; jobs: number; found: number[] }[];
  /** The smallest and the largest budget that a backtest may try. */
  backtest_budgets: [number, number] | null;
}

export interface ModelDetail {
  version: string;
  calibration: Calibration | null;
  mlflow: string | null;
}

/** What a version would have reported, next to the champion in the same time. */
export interface Shadow {
  from: number;
  to: number;
  hours: number;
  events: number;
  champion_events: number;
  common: number;
  confirmed: number;
  confirmed_found: number;
}

export interface Promotion {
  alias: string;
  version: string;
  is_rollback: boolean;
  time: number;
  actor: string;
  reason: string;
}

export interface Figures {
  reconstruction_error: number;
  n_false_events: number;
  hours: number;
  n_found: number;
  n_anomalies: number;
  injected_found: number;
}

export interface Candidate {
  name: string;
  figures: Figures | null;
  objection: string | null;
  epochs: { training: number; validation: number }[];
  training_seconds: number;
  judging_seconds: number;
}

export interface Drift {
  n_reference: number;
  n_jobs: number;
  distances: { name: string; distance: number; threshold: number }[];
  n_new: number;
  new_jobs: string[];
}

export interface Night {
  number: number;
  time: number;
  from: number;
  to: number;
  n_windows: number;
  n_excluded: number;
  champion_before: string | null;
  champion_figures: Figures | null;
  drift: Drift | null;
  candidates: Candidate[];
  winning_candidate: string | null;
  winner: string | null;
  needs_approval: boolean;
  reason: string;
  timings: { preparation: number; training: number; competition: number; deployment: number };
}

export interface Exclusion {
  number: number;
  node?: string | null;
  from: number;
  to: number;
  reason: string;
  actor: string;
}

/** Windows that somebody named. */
export interface Diagnosis {
  number: number;
  kind: string;
  is_anomalous: boolean;
  comment: string;
  actor: string;
  time: number;
  windows: number;
  jobs: string[];
}

export interface DiagnosisRequest {
  kind: string;
  is_anomalous: boolean;
  comment?: string;
  window_seconds: number;
  windows: { node: string; cpu: number; job: string; start: number }[];
}

export interface Timing {
  stage: string;
  seconds: number;
  count: number;
}
