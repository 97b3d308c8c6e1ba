import { describe, expect, it } from 'vitest';

import type { ThreadTrace } from '../api/types';
import { indexAt } from './axis';
import { fileName, toCsv, toJson } from './export';
import { championSegments, ownerSegments } from './segments';
import { channelErrors, ofJob, ranked, traceTable, withGaps, worstChannel } from './traces';

const trace = (cpu: number, error: number, job: (string | null)[] = ['a', 'a']): ThreadTrace => ({
  cpu,
  time: [10, 11],
  job,
  observed: [
    [1, 1],
    [0, 0],
  ],
  expected: [
    [1, 1],
    [error, error],
  ],
  error: [error, error],
  score: [error, 2 * error],
});

describe('files', () => {
  it('quote what has to be quoted', () => {
    const table = {
      columns: ['a', 'b,c'],
      rows: [
        ['x"y', 1],
        [null, true],
        ['line\nbreak', 0.5],
      ],
    };
    expect(toCsv(table)).toBe('a,"b,c"\r\n"x""y",1\r\n,true\r\n"line\nbreak",0.5\r\n');
    expect(JSON.parse(toJson(table))[0]).toEqual({ a: 'x"y', 'b,c': 1 });
  });

  it('do not run formulas that somebody put into the name of a job', () => {
    expect(toCsv({ columns: ['job'], rows: [['=HYPERLINK("x")'], ['@x'], [-1]] })).toBe(
      'job\r\n"\'=HYPERLINK(""x"")"\r\n\'@x\r\n-1\r\n',
    );
  });

  it('have names that every file system accepts', () => {
    expect(fileName('Threads of <n1>/..', 'csv')).toBe('threads-of-n1.csv');
    expect(fileName('🙂', 'png')).toBe('tracewise.png');
  });
});

describe('traces', () => {
  it('with the largest error come first', () => {
    expect(ranked([trace(0, 0.1), trace(1, 0.5), trace(2, 0.2)]).map((one) => one.trace.cpu)).toEqual([1, 2, 0]);
    expect(ranked([trace(0, 0.5)])[0]).toMatchObject({ error: 0.5, score: 1 });
  });

  it('without a model are in the order of threads', () => {
    const bare = (cpu: number) => ({ ...trace(cpu, 0), expected: null, error: null, score: null });
    expect(ranked([bare(3), bare(1)]).map((one) => one.trace.cpu)).toEqual([1, 3]);
    expect(channelErrors(bare(1))).toBeNull();
  });

  it('name the channel that deviates most', () => {
    expect(worstChannel({ channels: ['user', 'iowait'], threads: [trace(0, 0.5)] })).toBe(1);
    expect(worstChannel({ channels: ['user'], threads: [] })).toBe(0);
  });

  it('of a job are cut to the time in which it ran', () => {
    const kept = ofJob([trace(0, 0.1, ['a', 'b']), trace(1, 0.1, [null, null])], 'b');
    expect(kept).toHaveLength(1);
    expect(kept[0]).toMatchObject({ time: [11], job: ['b'], observed: [[1], [0]], score: [0.2] });
  });

  it('are interrupted where there are no readings', () => {
    const { times, spread } = withGaps([0, 1, 2, 60, 61]);
    expect(times).toEqual([0, 1, 2, 31, 60, 61]);
    expect(spread([5, 6, 7, 8, 9])).toEqual([5, 6, 7, null, 8, 9]);
  });

  it('are exported with every number', () => {
    const { columns, rows } = traceTable(['user', 'iowait'], [trace(4, 0.5)]);
    expect(columns).toHaveLength(rows[0].length);
    expect(rows[0]).toEqual([4, 10, 'a', 1, 1, 0, 0.5, 0.5, 0.5]);
  });
});

describe('pieces of time', () => {
  it('join moments with the same owner', () => {
    expect(ownerSegments([0, 1, 2, 3], ['a', 'a', null, 'b'], 4)).toEqual([
      { from: 0, to: 2, label: 'a', isNothing: false },
      { from: 2, to: 3, label: 'no job', isNothing: true },
      { from: 3, to: 4, label: 'b', isNothing: false },
    ]);
  });

  it('end where there are no readings', () => {
    expect(ownerSegments([0, 1, 2, 60], ['a', 'a', 'a', 'a'], 61, 4).map((one) => [one.from, one.to])).toEqual([
      [0, 2],
      [60, 61],
    ]);
  });

  it('of champions end with the next promotion', () => {
    const segments = championSegments(
      [
        { time: 20, version: 'b' },
        { time: 10, version: 'a' },
      ],
      30,
    );
    expect(segments).toEqual([
      { from: 10, to: 20, label: 'a' },
      { from: 20, to: 30, label: 'b' },
    ]);
  });
});

it('the moment at a time is the last one before it', () => {
  expect([0, 5, 7, 100].map((time) => indexAt([5, 6, 7], time))).toEqual([0, 0, 2, 2]);
  expect(indexAt([], 1)).toBe(-1);
});
