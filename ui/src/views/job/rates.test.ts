import { expect, it } from 'vitest';

import type { JobProfile, SimilarJobs } from '../../api/operations';
import { peers, profileTable, rateComparisons, standing } from './rates';

const profile = (job: string, kind: string | null, user: number): JobProfile => ({
  job,
  kind,
  nodes: ['n1'],
  n_windows: 3,
  mean_score: 0.2,
  max_score: 0.4,
  rates: [user, 0],
  distance: 1,
});

const found = (kind: string | null): SimilarJobs => ({
  channels: ['user', 'system'],
  from: 0,
  to: 10,
  job: profile('1', kind, 0.5),
  others: [profile('2', 'np', 0.4), profile('3', 'np', 0.9), profile('4', 'mpi', 0.1), profile('5', null, 0.2)],
  n_compared: 9,
});

it('compares a job with those of its kind, and with all if the kind is not known', () => {
  expect(peers(found('np'))).toMatchObject({ isSameKind: true, jobs: [{ job: '2' }, { job: '3' }] });
  expect(peers(found(null)).jobs).toHaveLength(4);
  expect(peers(found('other'))).toMatchObject({ isSameKind: false });
});

it('says where a rate stands among the others', () => {
  const [user, system] = rateComparisons(found('np'));
  expect(user).toMatchObject({ own: 0.5, others: [0.4, 0.9], nLower: 1, nHigher: 1 });
  expect(standing(user)).toMatch(/higher than 50.%/);
  expect(standing(system)).toBe('like the others');
  expect(standing({ ...user, nLower: 2, nHigher: 0 })).toBe('highest of all');
  expect(standing({ ...user, nLower: 0, nHigher: 2 })).toBe('lowest of all');
  expect(standing({ ...user, others: [] })).toBe('');
});

it('exports the job and all others with every rate', () => {
  const { columns, rows } = profileTable(found('np'));
  expect(columns.slice(-2)).toEqual(['user', 'system']);
  expect(rows.map((row) => row[0])).toEqual(['1', '2', '3', '4', '5']);
});
