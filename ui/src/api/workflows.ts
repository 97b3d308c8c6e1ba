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
  labelled_by: string | null;
  labelled: number | null;
  comment: string | null;
}

/** All attempts of a run as columns. Times are seconds since its start. */
export interface WorkflowChart {
  start: number;
  seconds: number;
  parts: string[];
  kinds: string[];
  /** Sub-workflows; one empty name if there are none. */
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

export interface ClassifierState {
  classifier: {
    kind: string;
    classes: string[];
    n_runs: number;
    trained: number | null;
    from: 'settings' | 'labels';
  } | null;
  /** The number of runs with each label. */
  labels: Record<string, number>;
}

export interface Trained {
  kind: string;
  classes: string[];
  n_runs: number;
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

export async function removeLabel(name: string): Promise<void> {
  await send(`${files.at(name)}/label`, { method: 'DELETE' });
}

export const classifier = (signal?: AbortSignal) => get<ClassifierState>(`${BASE}/workflow-classifier`, signal);
export const train = (): Promise<Operation<Trained>> => started('workflow-classifier', {});
