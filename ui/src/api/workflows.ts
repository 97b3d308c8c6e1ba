// Workflow runs: their data and calls. Times are seconds since 1970. Views load this file when they need it.

import { BASE, started } from './calls';
import { get, send, withQuery } from './client';
import type { Operation } from './operations';
import { stored } from './stored';

export interface WorkflowItem {
  name: string;
  bytes: number;
  uploaded: number;
  seconds: number;
  attempts: number;
  failed: number;
  /** What the classifier says. */
  class: string | null;
  /** What a person says. */
  label: string | null;
}

export interface Reason {
  kind: string;
  delay: string;
  tasks: string[];
  observed_seconds: number;
  baseline_seconds: number;
  ratio: number;
  start: number;
  end: number;
  /** Its fraction of all evidence. */
  weight: number;
  text: string;
}

export interface Overdue {
  kind: string;
  tasks: string[];
  running_seconds: number;
  baseline_seconds: number;
}

export interface RunVerdict {
  class: string;
  /** Whether the classifier can tell. If not, `class` is only the most likely class. */
  is_certain: boolean;
  confidence: number;
  min_confidence: number;
  probabilities: Record<string, number>;
  missing_inputs: string[];
  summary: string;
  reasons: Reason[];
  overdue: Overdue[];
}

export interface WorkflowDetail extends WorkflowItem {
  warnings: string[];
  verdict: RunVerdict | null;
  /** Why there is no verdict. */
  not_judged: string | null;
  /** What people said, the last at the end; it counts. */
  labels: GivenLabel[];
}

/** What somebody called a run. */
export interface GivenLabel {
  label: string;
  comment: string;
  actor: string;
  time: number;
}

/** All attempts of a run as columns. Times are seconds since its start. */
export interface WorkflowChart {
  start: number;
  seconds: number;
  parts: string[];
  kinds: string[];
  /** Sub-workflows; the workflow itself has an empty name. */
  workflows: string[];
  task: string[];
  kind: number[];
  workflow: number[];
  /** 0 compute, 1 transfer, 2 auxiliary. */
  role: number[];
  attempt: number[];
  failed: number[];
  critical: number[];
  /** For each part, its end in each attempt. A part begins where the one before it ends. */
  ends: number[][];
}

export interface TaskChange {
  task: string;
  kind: string;
  delay: string;
  before: number;
  after: number;
}

export interface RunComparison {
  makespan_before: number;
  makespan_after: number;
  /** The largest change first. */
  tasks: TaskChange[];
  only_before: string[];
  only_after: string[];
}

export interface Classifier {
  kind: string;
  classes: string[];
  n_runs: number;
  /** Null if it is not known. */
  trained: number | null;
  from: 'settings' | 'labels';
}

export interface ClassifierState {
  classifier: Classifier | null;
  /** Whether the settings of the service name one. */
  is_configured: boolean;
  /** The number of runs with each label. */
  labels: Record<string, number>;
}

/** What is in use after the classifier of the labels was removed. */
export interface WentBack {
  classifier: Classifier | null;
}

export const files = stored('workflows');

export const list = async (signal?: AbortSignal) => (await get<{ items: WorkflowItem[] }>(files.list, signal)).items;
export const detail = (name: string, signal?: AbortSignal) => get<WorkflowDetail>(files.at(name), signal);
export const chart = (name: string, signal?: AbortSignal) => get<WorkflowChart>(`${files.at(name)}/chart`, signal);
export const comparison = (name: string, other: string, signal?: AbortSignal) =>
  get<RunComparison>(withQuery(`${files.at(name)}/comparison`, { with: other }), signal);

export async function giveLabel(name: string, label: string, comment: string): Promise<void> {
  await send(`${files.at(name)}/label`, { method: 'PUT', body: { label, comment: comment || undefined } });
}

/** Withdraws the last label of this user; the answer tells which label counts now. */
export async function withdrawLabel(name: string): Promise<WorkflowItem> {
  return (await send(`${files.at(name)}/label`, { method: 'DELETE' })).json() as Promise<WorkflowItem>;
}

const CLASSIFIER = `${BASE}/workflow-classifier`;
export const classifier = (signal?: AbortSignal) => get<ClassifierState>(CLASSIFIER, signal);
export const train = (): Promise<Operation<Classifier>> => started('workflow-classifier', {});
export const goBack = async (): Promise<Operation<WentBack>> =>
  (await send(CLASSIFIER, { method: 'DELETE' })).json() as Promise<Operation<WentBack>>;
