// From what jobs of a node used to what charts show.

import type { JobUsage } from '../../api/types';
import type { Line } from '../../charts/types';
import { seriesColour } from '../../charts/types';
import { cut, number } from '../../format';

/** A unit of memory, so that the largest value has few digits. */
export interface Unit {
  name: string;
  bytes: number;
}

const GIB: Unit = { name: 'GiB', bytes: 2 ** 30 };
const MIB: Unit = { name: 'MiB', bytes: 2 ** 20 };

/** Jobs with a line of their own. */
export const MAX_LINES = 6;
/** A limit far above everything else would flatten the lines. */
const NEAR_LIMIT = 0.3;

export type UsageColumn = 'memory_bytes' | 'cpu_pressure' | 'memory_pressure' | 'io_pressure';

export interface UsageLines {
  times: number[];
  lines: Line[];
  /** Jobs without a line. */
  nLeftOut: number;
}

const largest = (values: (number | null)[]) => values.reduce<number>((max, value) => Math.max(max, value ?? 0), 0);
const isKnown = (values: (number | null)[]) => values.some((value) => value !== null);

/** The unit for the memory of some jobs. */
export function unitOf(jobs: JobUsage[]): Unit {
  return Math.max(0, ...jobs.map((one) => largest(one.memory_bytes))) < GIB.bytes ? MIB : GIB;
}

/** An amount of memory with its unit. */
export function memory(bytes: number): string {
  const unit = bytes < GIB.bytes ? MIB : GIB;
  return `${number(bytes / unit.bytes)}\u202f${unit.name}`;
}

/** One line for each of the jobs with the largest values, divided by `scale`; null if nothing was recorded. */
export function usageLines(jobs: JobUsage[], column: UsageColumn, scale = 1): UsageLines | null {
  const known = jobs.filter((one) => isKnown(one[column]));
  if (known.length === 0) return null;
  const shown = [...known].sort((a, b) => largest(b[column]) - largest(a[column])).slice(0, MAX_LINES);
  const times = [...new Set(shown.flatMap((one) => one.time))].sort((a, b) => a - b);
  const lines = shown.map((one, index): Line => {
    const at = new Map(one.time.map((time, position) => [time, one[column][position]]));
    const values = times.map((time) => {
      const value = at.get(time) ?? null;
      return value === null ? null : value / scale;
    });
    return { label: cut(one.job, 40), values, colour: seriesColour(index), width: 1.5 };
  });
  return { times, lines, nLeftOut: known.length - shown.length };
}

/** The memory limit of the only job, if the job comes near it. */
export function limitMark(jobs: JobUsage[], unit: Unit): { value: number; label: string } | null {
  const limit = jobs.length === 1 ? jobs[0].memory_limit_bytes : null;
  if (limit === null || largest(jobs[0].memory_bytes) < NEAR_LIMIT * limit) return null;
  return { value: limit / unit.bytes, label: 'limit' };
}
