// How the mean rates of a job compare with those of others.

import type { JobProfile, SimilarJobs } from '../../api/operations';
import type { TableData } from '../../charts/export';
import { percent } from '../../format';

export interface RateComparison {
  channel: string;
  own: number;
  others: number[];
  /** How many of the others have a lower rate, and a higher one; small differences do not count. */
  nLower: number;
  nHigher: number;
}

/** Rates that differ by less are alike. */
const ALIKE = 0.005;

/** Jobs to compare with: those of the same kind if its kind is known and there are others, or else all that were found. */
export function peers({ job, others }: SimilarJobs): { jobs: JobProfile[]; isSameKind: boolean } {
  const same = job.kind === null ? [] : others.filter((one) => one.kind === job.kind);
  return same.length > 0 ? { jobs: same, isSameKind: true } : { jobs: others, isSameKind: false };
}

export function rateComparisons(found: SimilarJobs): RateComparison[] {
  const { jobs } = peers(found);
  return found.channels.map((channel, index) => {
    const own = found.job.rates[index];
    const others = jobs.map((one) => one.rates[index]);
    return {
      ...{ channel, own, others },
      nLower: others.filter((rate) => rate < own - ALIKE).length,
      nHigher: others.filter((rate) => rate > own + ALIKE).length,
    };
  });
}

/** Where the job stands among the others, in words. */
export function standing({ nLower, nHigher, others }: RateComparison): string {
  const n = others.length;
  if (n === 0) return '';
  if (nLower === 0 && nHigher === 0) return n === 1 ? 'like the other' : 'like the others';
  if (nLower === n) return n === 1 ? 'higher than the other' : 'highest of all';
  if (nHigher === n) return n === 1 ? 'lower than the other' : 'lowest of all';
  return nHigher > nLower ? `lower than ${percent(nHigher / n)}` : `higher than ${percent(nLower / n)}`;
}

export function profileTable({ channels, job, others }: SimilarJobs): TableData {
  const row = (one: JobProfile) => [
    one.job,
    one.kind,
    one.distance,
    one.mean_score,
    one.max_score,
    one.nodes.join(' '),
    one.n_windows,
    ...one.rates,
  ];
  return {
    columns: ['job', 'kind', 'distance', 'mean score', 'largest score', 'nodes', 'windows', ...channels],
    rows: [row(job), ...others.map(row)],
  };
}
