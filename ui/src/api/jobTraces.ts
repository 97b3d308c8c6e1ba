// Job traces: their data and calls. Times are seconds since 1970. Views load this file when they need it.

import { BASE, started } from './calls';
import { get } from './client';
import type { Operation } from './operations';
import { stored } from './stored';

export interface JobTrace {
  name: string;
  bytes: number;
  uploaded: number;
  jobs: number;
  span_seconds: number;
  /** How it was made; null if it was recorded. */
  synthetic: { of: string; generator: string; seed: number; load: number } | null;
}

export interface Generator {
  name: string;
  description: string;
  is_recommended: boolean;
}

export type Point = [number, number];

export interface Curve {
  name: string;
  real: Point[];
  synthetic: Point[] | null;
}

export interface Curves {
  /** Cumulative distributions of numeric columns; values below 1 are at 1. */
  distributions: Curve[];
  autocorrelations: Curve[];
  day: Curve;
  week: Curve;
}

export interface Column {
  name: string;
  role: string | null;
  kind: string;
  summary: string;
}

export interface JobTraceDetail extends JobTrace {
  warnings: string[];
  columns: Column[];
  curves: Curves;
}

export interface Outcome {
  mean_wait_seconds: number;
  mean_bounded_slowdown: number;
  utilisation: number;
  makespan_seconds: number;
}

export interface Pair {
  names: [string, string];
  /** Rank correlations; null for categories. */
  real: number | null;
  synthetic: number | null;
  score: number;
}

export interface JobComparison {
  real: string;
  synthetic: string;
  summary: string;
  n_real: number;
  n_synthetic: number;
  table: { header: string[]; rows: string[][] };
  copies: {
    exact_fraction: number;
    near_fraction: number;
    triple_fraction: number;
    median_distance: number;
    median_distance_within_real: number;
  };
  scheduling: {
    n_nodes: number;
    has_same_ranking: boolean;
    policies: { policy: string; real: Outcome; synthetic: Outcome }[];
  } | null;
  pairs: Pair[];
  curves: Curves;
}

export interface SynthesisRequest {
  generator?: string;
  jobs?: number;
  load?: number;
  seed?: number;
}

export const files = stored('job-traces');

export const list = async (signal?: AbortSignal) => (await get<{ items: JobTrace[] }>(files.list, signal)).items;
export const generators = async (signal?: AbortSignal) =>
  (await get<{ items: Generator[] }>(`${BASE}/generators`, signal)).items;
export const detail = (name: string, signal?: AbortSignal) => get<JobTraceDetail>(files.at(name), signal);

export const synthesise = (name: string, body: SynthesisRequest): Promise<Operation<JobComparison>> =>
  started(`job-traces/${encodeURIComponent(name)}/synthesis`, body);

export const compare = (name: string, other: string): Promise<Operation<JobComparison>> =>
  started(`job-traces/${encodeURIComponent(name)}/comparison`, { with: other });
