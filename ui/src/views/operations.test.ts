import { describe, expect, it } from 'vitest';

import type { Backtest, Embeddings, KindSpectrum, SpectrumReport, TestedEvent } from '../api/operations';
import { compared, countsAt, perDay, remaining, stepOf, STEPS, strengthAt } from './backtest/compare';
import { groupingOf } from './embeddings/groups';
import { diagnosable, selectedJobs, windowTable } from './embeddings/selection';
import { bytes, orderedKinds, spectrumChart } from './sampling/spectra';

const event = (id: string, changes: Partial<TestedEvent>): TestedEvent => ({
  id,
  subject: 'job',
  node: 'n1',
  nodes: ['n1'],
  jobs: ['7'],
  threads: [],
  start: 0,
  opened: 0,
  strength: 2,
  level: 'thread',
  channels: [],
  kinds: [],
  certainty: 1,
  why: '',
  is_hidden: false,
  recorded: null,
  ...changes,
});

describe('a backtest', () => {
  const result: Backtest = {
    model: 'v2',
    false_events_per_day: 1,
    is_own_budget: true,
    from: 0,
    to: 43200,
    hours: 12,
    windows: 10,
    omitted: 0,
    events: [
      event('a', { opened: 30, strength: 4, recorded: 'x', standing: 'anomaly' }),
      event('b', { opened: 10, strength: 1.5 }),
      event('c', { opened: 40, strength: 8, is_hidden: true }),
    ],
    missed: [{ id: 'm', standing: 'anomaly', opened: 20, strength: 3, why: 'then' }],
  };
  const rows = compared(result);

  it('puts what it found, what is new and what it missed in order of time', () => {
    expect(rows.map((row) => [row.id, row.finding])).toEqual([
      ['b', 'new'],
      ['m', 'missed'],
      ['a', 'both'],
      ['c', 'new'],
    ]);
    expect(rows[2].recorded).toBe('x');
    expect(rows[0].title).toBe('Job 7 on n1');
  });

  it('counts what remains at a strength, without what verdicts hide', () => {
    const all = { both: 1, new: 1, missed: 1, hidden: 1, reported: 2, confirmedFound: 1, confirmed: 2 };
    expect(countsAt(rows, 1)).toEqual(all);
    expect(countsAt(rows, 2)).toEqual({ ...all, new: 0, reported: 1 });
    // An event that was recorded and is now too weak is missed.
    expect(countsAt(rows, 5)).toMatchObject({ both: 0, missed: 2, reported: 0, confirmedFound: 0 });
  });

  it('falls step by step to nothing', () => {
    const { strength, perDay: left } = remaining(rows, result.hours);
    expect(strength[0]).toBe(1);
    expect(left).toEqual([4, 4, 2, 2, 0]);
    expect([...strength].sort((a, b) => a - b)).toEqual(strength);
    expect(perDay(3, 0)).toBeNull();
  });

  it('has a slider with equal factors', () => {
    expect(strengthAt(0, 16)).toBe(1);
    expect(strengthAt(STEPS / 2, 16)).toBeCloseTo(4);
    expect(stepOf(4, 16)).toBe(STEPS / 2);
    expect(stepOf(99, 16)).toBe(STEPS);
    expect(stepOf(5, 1)).toBe(0);
  });
});

describe('embeddings', () => {
  const data: Embeddings = {
    axes: ['PC 1', 'PC 2'],
    window_seconds: 60,
    x: [0, 1, 2, 3],
    y: [0, 1, 2, 3],
    time: [100, 110, 120, 130],
    node: [0, 1, 1, 0],
    cpu: [0, 1, 2, 3],
    job: [0, 0, null, 1],
    kind: [0, 0, 1, 2],
    score: [0.2, 3, 0.1, 1],
    max_iowait: [0, 0.5, 0, 0],
    is_training: [true, false, false, false],
    nodes: ['n2', 'n10'],
    jobs: ['7', '8'],
    kinds: ['np', 'idle', 'bad-io'],
    distances: { 'bad-io': [1, 2, 3, 0] },
  };

  it('are grouped by kind, with known anomalies first and threads without a job last', () => {
    const { groups, group } = groupingOf(data, 'kind', 'light');
    expect(groups.map((one) => [one.label, one.shape])).toEqual([
      ['bad-io (known anomaly)', 'triangle'],
      ['np', 'circle'],
      ['no job, or several', 'circle'],
    ]);
    expect([...group]).toEqual([1, 1, 2, 0]);
  });

  it('are grouped by score, with another shape above the threshold', () => {
    const { groups, group } = groupingOf(data, 'score', 'dark');
    expect([...group].map((one) => groups[one].shape)).toEqual(['circle', 'triangle', 'circle', 'circle']);
  });

  it('share one group from the ninth node on', () => {
    const nodes = Array.from({ length: 12 }, (_, index) => `n${index}`);
    const { groups } = groupingOf({ ...data, nodes }, 'node', 'light');
    expect(groups).toHaveLength(9);
    expect(groups[8].label).toBe('other nodes');
    expect(new Set(groups.map((one) => `${one.colour} ${one.shape}`)).size).toBe(9);
  });

  it('are listed by job, those with anomalous scores first', () => {
    const jobs = selectedJobs(data, [0, 1, 2]);
    expect(jobs.map((one) => [one.job, one.windows, one.training, one.anomalous])).toEqual([
      ['7', 2, 1, 1],
      [null, 1, 0, 0],
    ]);
    expect(jobs[0]).toMatchObject({ nodes: ['n2', 'n10'], kinds: ['np'], maxScore: 3, from: 100, to: 110 });
  });

  it('can be named if they are windows of jobs', () => {
    expect(diagnosable(data, [0, 1, 2, 3])).toEqual([
      { node: 'n2', cpu: 0, job: '7', start: 100 },
      { node: 'n10', cpu: 1, job: '7', start: 110 },
      { node: 'n2', cpu: 3, job: '8', start: 130 },
    ]);
    const many = diagnosable(data, Array<number>(1200).fill(0));
    expect(many.length).toBeGreaterThan(300);
    expect(many.length).toBeLessThanOrEqual(500);
  });

  it('are exported with their distances', () => {
    const { columns, rows } = windowTable(data, [3]);
    expect(columns).toContain('distance to bad-io');
    expect(rows).toHaveLength(1);
    expect(rows[0].slice(1, 6)).toEqual(['n2', 3, '8', 'bad-io', 1]);
  });
});

describe('spectra', () => {
  const channel = (name: string, changes: object = {}) => ({
    channel: name,
    is_constant: false,
    deviation: 1,
    segments: 1,
    dominant: [],
    corner_hz: null,
    frequencies_hz: [0, 0.1, 0.2],
    density: [5, 2, 1e-12],
    ...changes,
  });
  const kind = (name: string, channels: KindSpectrum['channels']): KindSpectrum => ({
    kind: name,
    jobs: 1,
    seconds: 1,
    channels,
  });

  it('have no zero on logarithmic axes, and no constant channels', () => {
    const chart = spectrumChart(kind('a', [channel('user'), channel('iowait', { is_constant: true })]));
    expect(chart.frequencies).toEqual([0.1, 0.2]);
    expect(chart.lines.map((line) => line.values)).toEqual([[2, null]]);
    expect(chart.constant).toEqual(['iowait']);
  });

  it('mark dominant frequencies in the colour of their channel, the lowest with its period', () => {
    const peaks = [0.1, 0.2].map((hz) => ({ hz, seconds: 1 / hz, times_noise: 3 }));
    const { lines, verticals } = spectrumChart(kind('a', [channel('user'), channel('system', { dominant: peaks })]));
    expect(verticals.map((one) => one.label)).toEqual(['10 s', undefined]);
    expect(verticals[0].colour).toBe(lines[1].colour);
  });

  it('begin with the kind that decides', () => {
    const peak = [{ hz: 0.1, seconds: 10, times_noise: 3 }];
    const kinds = [kind('a', []), kind('b', [channel('user', { dominant: peak })]), kind('c', [])];
    const report = { kinds, advice: { kind: 'c' } } as SpectrumReport;
    expect(orderedKinds(report).map((one) => one.kind)).toEqual(['c', 'b', 'a']);
  });
});

describe('bytes', () => {
  it('have a unit that fits', () => {
    expect(bytes(200)).toBe('200 B');
    expect(bytes(199_723)).toBe('200 kB');
    expect(bytes(4_000_000)).toBe('4 MB');
  });
});
