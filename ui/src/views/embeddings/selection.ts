// The windows that somebody selected, job by job.

import type { Embeddings } from '../../api/operations';
import type { DiagnosisRequest } from '../../api/types';
import type { TableData } from '../../charts/export';
import { dateTime } from '../../format';

export interface SelectedJob {
  /** Null for threads without a job, or with several. */
  job: string | null;
  kinds: string[];
  nodes: string[];
  windows: number;
  training: number;
  /** Windows with a score above the threshold. */
  anomalous: number;
  maxScore: number;
  from: number;
  to: number;
}

export function selectedJobs(data: Embeddings, indices: Iterable<number>): SelectedJob[] {
  const jobs = new Map<number | null, SelectedJob & { kindSet: Set<string>; nodeSet: Set<string> }>();
  for (const index of indices) {
    const number = data.job[index];
    let one = jobs.get(number);
    if (!one) {
      const job = number === null ? null : data.jobs[number];
      const time = data.time[index];
      one = {
        ...{ job, kinds: [], nodes: [], windows: 0, training: 0, anomalous: 0, maxScore: 0, from: time, to: time },
        kindSet: new Set(),
        nodeSet: new Set(),
      };
      jobs.set(number, one);
    }
    one.windows += 1;
    if (data.is_training[index]) one.training += 1;
    if (data.score[index] > 1) one.anomalous += 1;
    one.maxScore = Math.max(one.maxScore, data.score[index]);
    one.from = Math.min(one.from, data.time[index]);
    one.to = Math.max(one.to, data.time[index]);
    one.kindSet.add(data.kinds[data.kind[index]]);
    one.nodeSet.add(data.nodes[data.node[index]]);
  }
  const natural = (a: string, b: string) => a.localeCompare(b, undefined, { numeric: true });
  return [...jobs.values()]
    .map(({ kindSet, nodeSet, ...one }) => ({
      ...one,
      kinds: [...kindSet].sort(natural),
      nodes: [...nodeSet].sort(natural),
    }))
    .sort((a, b) => b.anomalous - a.anomalous || b.windows - b.training - (a.windows - a.training));
}

/** Windows as rows, with the coordinates of the plane and the distances to known anomalies. */
export function windowTable(data: Embeddings, indices: Iterable<number>): TableData {
  const anomalies = Object.keys(data.distances);
  const rows: TableData['rows'] = [];
  for (const index of indices) {
    const job = data.job[index];
    rows.push([
      dateTime(data.time[index]),
      data.nodes[data.node[index]],
      data.cpu[index],
      job === null ? null : data.jobs[job],
      data.kinds[data.kind[index]],
      data.score[index],
      data.max_iowait[index],
      data.is_training[index] ? 'training' : 'recent',
      data.x[index],
      data.y[index],
      ...anomalies.map((kind) => data.distances[kind][index]),
    ]);
  }
  const names = ['time', 'node', 'cpu', 'job', 'kind', 'score', 'max iowait', 'set', ...data.axes];
  return { columns: [...names, ...anomalies.map((kind) => `distance to ${kind}`)], rows };
}

export function describeWindow(data: Embeddings, index: number): string[] {
  const job = data.job[index];
  const score = data.score[index];
  return [
    `${data.nodes[data.node[index]]}, CPU ${data.cpu[index]}`,
    `${job === null ? 'no job' : `job ${data.jobs[job]}`} (${data.kinds[data.kind[index]]})`,
    `${dateTime(data.time[index])}${data.is_training[index] ? ', training' : ''}`,
    `score ${score.toFixed(2)}${score > 1 ? ' ▲ above threshold' : ''}`,
    `max iowait ${data.max_iowait[index].toFixed(2)}`,
  ];
}

/** The server reads windows that overlap with these, and needs a few to begin with. */
export const MIN_DIAGNOSED = 3;
/** More windows say nothing new. */
const MAX_DIAGNOSED = 500;

/** The selected windows that a diagnosis may be about: those of jobs, evenly thinned out if they are many. */
export function diagnosable(data: Embeddings, indices: Iterable<number>): DiagnosisRequest['windows'] {
  const windows: DiagnosisRequest['windows'] = [];
  for (const index of indices) {
    const job = data.job[index];
    if (job === null) continue;
    windows.push({
      node: data.nodes[data.node[index]],
      cpu: data.cpu[index],
      job: data.jobs[job],
      start: data.time[index],
    });
  }
  const every = Math.ceil(windows.length / MAX_DIAGNOSED);
  return every <= 1 ? windows : windows.filter((_, index) => index % every === 0);
}
