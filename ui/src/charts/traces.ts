// From traces of threads to what charts show.

import type { ThreadTrace, ThreadTraces } from '../api/types';

export interface RankedThread {
  trace: ThreadTrace;
  /** The mean error over the shown time; null without a model. */
  error: number | null;
  /** The largest score. */
  score: number | null;
}

const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Threads with the largest error first; without a model by number. */
export function ranked(threads: ThreadTrace[]): RankedThread[] {
  const all = threads.map((trace) => ({
    trace,
    error: trace.error?.length ? mean(trace.error) : null,
    score: trace.score?.length ? trace.score.reduce((a, b) => Math.max(a, b), 0) : null,
  }));
  return all.sort((a, b) => (b.error ?? -1) - (a.error ?? -1) || a.trace.cpu - b.trace.cpu);
}

/** The squared difference of observed and expected rates, for each channel. */
export function channelErrors(trace: ThreadTrace): number[][] | null {
  const { expected } = trace;
  if (!expected) return null;
  return trace.observed.map((values, channel) => values.map((value, at) => (value - expected[channel][at]) ** 2));
}

/** The channel that contributes most to the error of these threads. */
export function worstChannel(traces: Pick<ThreadTraces, 'channels' | 'threads'>): number {
  const sums = traces.channels.map(() => 0);
  for (const trace of traces.threads) {
    channelErrors(trace)?.forEach((errors, channel) => {
      for (const error of errors) sums[channel] += error;
    });
  }
  return Math.max(0, sums.indexOf(Math.max(...sums)));
}

/** Keeps the moments that a thread worked for a job; threads that never did are left out. */
export function ofJob(threads: ThreadTrace[], job: string): ThreadTrace[] {
  const kept: ThreadTrace[] = [];
  for (const trace of threads) {
    const at = trace.job.flatMap((owner, index) => (owner === job ? [index] : []));
    if (at.length === 0) continue;
    const pick = <T>(values: T[]) => at.map((index) => values[index]);
    kept.push({
      cpu: trace.cpu,
      time: pick(trace.time),
      job: pick(trace.job),
      observed: trace.observed.map(pick),
      expected: trace.expected?.map(pick) ?? null,
      error: trace.error ? pick(trace.error) : null,
      score: trace.score ? pick(trace.score) : null,
    });
  }
  return kept;
}

/** Moments farther apart than this many usual steps are not connected. */
const GAP_STEPS = 4;

/** The time without readings from which on a line is interrupted. */
export function gapSeconds(times: number[]): number {
  if (times.length < 3) return Infinity;
  const steps = times.slice(1).map((time, at) => time - times[at]);
  return steps.sort((a, b) => a - b)[steps.length >> 1] * GAP_STEPS;
}

/** Times with one more moment in each gap, and what puts a null there into a series. */
export function withGaps(times: number[]): { times: number[]; spread: (values: number[]) => (number | null)[] } {
  const gap = gapSeconds(times);
  const before = times.map((time, at) => at > 0 && time - times[at - 1] > gap);
  return {
    times: times.flatMap((time, at) => (before[at] ? [(time + times[at - 1]) / 2, time] : [time])),
    spread: (values) => values.flatMap((value, at) => (before[at] ? [null, value] : [value])),
  };
}

/** Every number of some threads, as rows for files. */
export function traceTable(
  channels: string[],
  threads: ThreadTrace[],
): { columns: string[]; rows: (string | number | null)[][] } {
  const columns = [
    'cpu',
    'time',
    'job',
    ...channels.flatMap((name) => [`observed ${name}`, `expected ${name}`]),
    'error',
    'score',
  ];
  const rows = threads.flatMap((trace) =>
    trace.time.map((time, at) => [
      trace.cpu,
      time,
      trace.job[at],
      ...channels.flatMap((_, channel) => [trace.observed[channel][at], trace.expected?.[channel][at] ?? null]),
      trace.error?.[at] ?? null,
      trace.score?.[at] ?? null,
    ]),
  );
  return { columns, rows };
}
