import { describe, expect, it } from 'vitest';

import type { JobComparison, JobTrace, Pair } from '../../api/jobTraces';
import { distributionChart, largestDistance, medianOf, peakOf, pointChart, SYNTHETIC_LABELS } from './curves';
import {
  change,
  commandsOf,
  correlationMatrix,
  counterparts,
  fidelityTable,
  isWeak,
  labelsOf,
  orderedGenerators,
  orderedPairs,
  recipeOf,
  requestOf,
} from './traces';

const trace = (name: string, of: string | null = null): JobTrace => ({
  name,
  bytes: 1,
  uploaded: 0,
  jobs: 100,
  span_seconds: 10,
  synthetic: of === null ? null : { of, generator: 'sessions', seed: 0, load: 1 },
});

describe('curves', () => {
  it('of distributions hold their value until the next point', () => {
    const { x, lines } = distributionChart(
      { name: 'run', real: [[1, 0.25], [5, 0.5], [5, 1]], synthetic: [[2, 0.5], [8, 1]] },
      SYNTHETIC_LABELS,
    );
    expect(x).toEqual([1, 2, 5, 8]);
    expect(lines.map((line) => line.values)).toEqual([
      [0.25, 0.25, 1, 1],
      [0, 0.5, 0.5, 1],
    ]);
    expect(lines.map((line) => line.label)).toEqual(['real', 'synthetic']);
    expect(largestDistance({ x, lines })).toEqual({ x: 5, distance: 0.5 });
  });

  it('of a column that is missing in one trace are empty there', () => {
    const chart = distributionChart({ name: 'run', real: [[1, 1]], synthetic: [] }, SYNTHETIC_LABELS);
    expect(chart.lines[1].values).toEqual([null]);
    expect(largestDistance(chart)).toBeNull();
  });

  it('of one trace have one line', () => {
    const chart = distributionChart({ name: 'run', real: [[1, 1]], synthetic: null }, SYNTHETIC_LABELS);
    expect(chart.lines.map((line) => line.label)).toEqual(['fraction of jobs']);
    expect(largestDistance(chart)).toBeNull();
  });

  it('that reach differently far end where they end', () => {
    const { x, lines } = pointChart({ name: 'a', real: [[1, 0.5], [2, 0.4]], synthetic: [[1, 0.1]] }, SYNTHETIC_LABELS);
    expect(x).toEqual([1, 2]);
    expect(lines[1].values).toEqual([0.1, null]);
  });

  it('are summed up by their median and their peak', () => {
    expect(medianOf([[1, 0.4], [3, 0.5], [9, 1]])).toBe(3);
    expect(peakOf([[0, 0.1], [1, 0.7], [2, 0.2]])).toBe(1);
    expect([medianOf([]), peakOf([])]).toEqual([null, null]);
  });
});

describe('traces', () => {
  it('tell how they were made', () => {
    const made = { of: 'theta.csv', generator: 'sessions', seed: 0, load: 1 };
    expect(recipeOf(made)).toBe('sessions, seed 0');
    expect(recipeOf({ ...made, load: 2.5 })).toBe('sessions, seed 0, load 2.5×');
  });

  it('are called real and synthetic only if one imitates the other', () => {
    expect(labelsOf(trace('a'), trace('b', 'a'))).toEqual(['real', 'synthetic']);
    expect(labelsOf(trace('a'), trace('b'))).toEqual(['A', 'B']);
    expect(labelsOf(trace('a', 'x'), trace('b', 'x'))).toEqual(['A', 'B']);
    expect(labelsOf(undefined, undefined)).toEqual(['A', 'B']);
  });

  it('are compared with those that were made of them first', () => {
    const all = [trace('x'), trace('real'), trace('own'), trace('copy', 'own')];
    expect(counterparts(trace('own', 'real'), all).map((one) => one.name)).toEqual(['copy', 'real', 'x']);
  });
});

describe('a synthesis', () => {
  it('leaves empty fields to the server', () => {
    expect(requestOf({ generator: '', jobs: '', load: '2', seed: 'x' })).toEqual({ load: 2 });
    expect(requestOf({ generator: 'ctgan', jobs: '10', seed: '0' })).toEqual({ generator: 'ctgan', jobs: 10, seed: 0 });
  });

  it('has commands with the same effect', () => {
    const text = commandsOf('theta.csv', { jobs: 500, load: 2, seed: 3 });
    expect(text).toContain('train --generator best --input theta.csv --out model --seed 3\n');
    expect(text).toContain('sample --model model --jobs 500 --scale 2x --seed 3 --out synthetic.csv\n');
    expect(commandsOf('theta.csv', {})).not.toMatch(/--jobs|--scale/);
  });

  it('offers the recommended generator first', () => {
    const generator = (name: string, is_recommended: boolean) => ({ name, description: '', is_recommended });
    const all = [generator('ctgan', false), generator('tvae', false), generator('sessions', true)];
    expect(orderedGenerators(all).map((one) => one.name)).toEqual(['sessions', 'ctgan', 'tvae']);
  });
});

describe('a comparison', () => {
  it('marks scores that are clearly worse than those of two halves', () => {
    expect(isWeak(['run (KS complement)', '0.850', '0.990', '0.940'])).toBe(true);
    expect(isWeak(['run (KS complement)', '0.900', '0.990', '0.940'])).toBe(false);
    expect(isWeak(['classifier on single jobs (AUC)', '0.900', '0.500', '0.700'])).toBe(true);
    expect(isWeak(['classifier on windows of 20 jobs (AUC)', '0.900', '–', '–'])).toBe(false);
    expect(isWeak(['hourly dispersion', '9.100 (4.000)', '1.000 (4.000)', '2.000 (4.000)'])).toBe(false);
  });

  it('has headers without the marks of the server', () => {
    const table = { header: ['', '>SYNTHETIC', '>RANDOM HALVES'], rows: [['a', '1', '1']] };
    const result = { table } as JobComparison;
    expect(fidelityTable(result, ['A', 'B']).columns).toEqual(['figure', 'B', 'random halves']);
    expect(fidelityTable(result, SYNTHETIC_LABELS).columns[1]).toBe('synthetic');
  });

  const pair = (a: string, b: string, real: number | null, synthetic: number | null, score: number): Pair => ({
    names: [a, b],
    real,
    synthetic,
    score,
  });

  it('has symmetric correlations of numeric columns', () => {
    const pairs = [pair('a', 'b', 0.5, 0.25, 0.9), pair('a', 'user', null, null, 0.5), pair('c', 'a', -1, null, 1)];
    expect(correlationMatrix(pairs, 'real', 10)).toEqual({
      names: ['a', 'b', 'c'],
      cells: [
        [1, 0.5, -1],
        [0.5, 1, null],
        [-1, null, 1],
      ],
    });
    expect(correlationMatrix(pairs, 'synthetic', 2).cells).toEqual([
      [1, 0.25],
      [0.25, 1],
    ]);
    expect(orderedPairs(pairs)[0].score).toBe(0.5);
  });

  it('tells by how much outcomes differ', () => {
    expect([change(10, 12), change(10, 9), change(10, 10), change(0, 1)]).toEqual([
      '+20\u202f%',
      '−10\u202f%',
      '±0\u202f%',
      '–',
    ]);
  });
});
