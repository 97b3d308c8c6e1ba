// Long operations of the server and their results. Times are seconds since 1970.

import type { Event, Standing } from './types';

export type Projection = 'pca' | 'umap';
export type OperationKind =
  | 'backtest'
  | 'embeddings'
  | 'similar-jobs'
  | 'sampling'
  | 'synthesis'
  | 'comparison'
  | 'training'
  | 'reclassification';

export interface Operation<R = unknown> {
  number: number;
  kind: OperationKind;
  actor: string;
  started: number;
  state: 'running' | 'done' | 'failed' | 'cancelled';
  /** The fraction that is done. */
  progress: number;
  error?: string | null;
  result?: R | null;
}

/** Windows in two dimensions, as columns. `node`, `job` and `kind` are positions in the lists of names. */
export interface Embeddings {
  axes: [string, string];
  window_seconds: number;
  x: number[];
  y: number[];
  time: number[];
  node: number[];
  cpu: number[];
  job: (number | null)[];
  kind: number[];
  /** Above 1 is anomalous. */
  score: number[];
  max_iowait: number[];
  is_training: boolean[];
  nodes: string[];
  jobs: string[];
  kinds: string[];
  /** For each known anomaly, the distance of every point to its centroid. */
  distances: Record<string, number[]>;
}

export interface TestedEvent extends Event {
  is_hidden: boolean;
  /** The id of the event that was recorded then. */
  recorded: string | null;
  standing?: Standing;
}

export interface MissedEvent {
  id: string;
  standing: Standing;
  opened: number;
  strength: number;
  why: string;
}

export interface Backtest {
  model: string;
  /** The budget; null for models without thresholds. */
  false_events_per_day: number | null;
  is_own_budget: boolean;
  from: number;
  to: number;
  /** How much time was observed. */
  hours: number;
  windows: number;
  events: TestedEvent[];
  omitted: number;
  missed: MissedEvent[];
}

/** A job in a few numbers. */
export interface JobProfile {
  job: string;
  kind: string | null;
  nodes: string[];
  n_windows: number;
  mean_score: number;
  max_score: number;
  /** The mean rate of each channel. */
  rates: number[];
  /** The distance of its mean embedding from that of the compared job. */
  distance: number;
}

export interface SimilarJobs {
  channels: string[];
  from: number;
  to: number;
  job: JobProfile;
  /** Those of the same kind first, then by distance. */
  others: JobProfile[];
  n_compared: number;
}

export interface Dominant {
  hz: number;
  seconds: number;
  times_noise: number;
}

export interface ChannelSpectrum {
  channel: string;
  is_constant: boolean;
  deviation: number;
  segments: number;
  dominant: Dominant[];
  corner_hz: number | null;
  frequencies_hz: number[];
  density: number[];
}

export interface KindSpectrum {
  kind: string;
  jobs: number;
  /** Thread-seconds. */
  seconds: number;
  channels: ChannelSpectrum[];
}

export interface SpectrumReport {
  period_seconds: number;
  segment_seconds: number;
  kinds: KindSpectrum[];
  too_short: string[];
  advice: { window_seconds: number; frequency_hz: number; kind: string; channel: string; reason: string };
}

export interface Interval {
  seconds: number;
  silhouette: number;
  spread: number;
  explained: number;
  samples_per_day: number;
  bytes_per_day: number;
}

export interface IntervalReport {
  period_seconds: number;
  window_seconds: number;
  repeats: number;
  subset: number;
  kinds: { kind: string; windows: number }[];
  too_short: string[];
  left_out: number;
  intervals: Interval[];
  advice: { interval_seconds: number; silhouette: number; reason: string };
}

/** A part of an analysis that the data does not allow. */
export interface Impossible {
  error: string;
}

export interface Sampling {
  spectra: SpectrumReport | Impossible;
  intervals: IntervalReport | Impossible;
}

export function isPossible<T extends object>(part: T | Impossible): part is T {
  return !('error' in part);
}
