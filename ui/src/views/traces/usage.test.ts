import { expect, it } from 'vitest';

import type { JobUsage } from '../../api/types';
import { limitMark, MAX_LINES, memory, unitOf, usageLines } from './usage';

const GIB = 2 ** 30;

const usage = (job: string, time: number[], memory: (number | null)[], limit: number | null = null): JobUsage => ({
  job,
  memory_limit_bytes: limit,
  time,
  memory_bytes: memory,
  cpu_pressure: time.map(() => null),
  memory_pressure: time.map(() => null),
  io_pressure: time.map((_, index) => (index === 0 ? null : 0.25)),
});

it('puts jobs that were read at different times on one axis', () => {
  const found = usageLines([usage('a', [0, 10], [GIB, 2 * GIB]), usage('b', [5, 10], [null, 4 * GIB])], 'memory_bytes', GIB);
  expect(found?.times).toEqual([0, 5, 10]);
  // The job with the largest value comes first.
  expect(found?.lines.map((line) => [line.label, line.values])).toEqual([
    ['b', [null, null, 4]],
    ['a', [1, null, 2]],
  ]);
});

it('leaves out what nobody recorded, and says how many jobs have no line', () => {
  const jobs = Array.from({ length: MAX_LINES + 2 }, (_, index) => usage(`${index}`, [0, 1], [index, index]));
  expect(usageLines(jobs, 'memory_bytes')).toMatchObject({ nLeftOut: 2 });
  expect(usageLines(jobs, 'cpu_pressure')).toBeNull();
  expect(usageLines(jobs, 'io_pressure')?.lines[0].values).toEqual([null, 0.25]);
  expect(usageLines([], 'memory_bytes')).toBeNull();
});

it('shows the limit of a job that comes near it', () => {
  const unit = { name: 'GiB', bytes: GIB };
  expect(limitMark([usage('a', [0], [3 * GIB], 4 * GIB)], unit)).toEqual({ value: 4, label: 'limit' });
  expect(limitMark([usage('a', [0], [GIB], 400 * GIB)], unit)).toBeNull();
  expect(limitMark([usage('a', [0], [GIB]), usage('b', [0], [GIB])], unit)).toBeNull();
});

it('chooses a unit with few digits', () => {
  expect(unitOf([usage('a', [0], [GIB / 20]), usage('b', [0], [null])]).name).toBe('MiB');
  expect(unitOf([usage('a', [0], [GIB / 20]), usage('b', [0], [3 * GIB])]).name).toBe('GiB');
  expect([memory(GIB / 4), memory(4 * GIB)]).toEqual(['256\u202fMiB', '4\u202fGiB']);
});
