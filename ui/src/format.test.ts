import { describe, expect, it } from 'vitest';

import * as format from './format';

const event = { subject: 'job', node: 'n1', nodes: ['n1'], jobs: ['47'] };

describe('formats', () => {
  it('show numbers with few digits', () => {
    const shown = [0, 0.00012, 0.0345, 0.5, 1, 2.345, 12.34, 123.4, 12345, 1e9, -2.5].map(format.number);
    expect(shown).toEqual(['0', '1.2e-4', '0.035', '0.5', '1', '2.35', '12.3', '123', '12\u202f345', '1.0e+9', '-2.5']);
    expect(format.number(null)).toBe('–');
    expect(format.number(NaN)).toBe('–');
  });

  it('keep whole numbers whole', () => {
    expect(format.number(100)).toBe('100');
    expect(format.percent(1)).toBe('100\u202f%');
    expect(format.percent(0.034)).toBe('3.4\u202f%');
  });

  it('show durations in two units', () => {
    const shown = [0, 59, 61, 600, 3600, 5400, 90000, 86400 * 3].map(format.duration);
    expect(shown).toEqual(['0 s', '59 s', '1 min 1 s', '10 min', '1 h', '1 h 30 min', '1 d 1 h', '3 d']);
  });

  it('tell the age of the past, and of a future that clocks apart produce', () => {
    expect(format.ago(100, 103)).toBe('just now');
    expect(format.ago(100, 95)).toBe('just now');
    expect(format.ago(0, 240)).toBe('4 min ago');
    expect(format.ago(7200, 0)).toBe('in 2 h');
  });

  it('cut long text between characters', () => {
    expect(format.cut('short')).toBe('short');
    expect(format.cut('🙂'.repeat(500), 3)).toBe('🙂🙂🙂…');
    expect(format.cut('x'.repeat(10_000), 10)).toBe('xxxxxxxxxx…');
  });

  it('say what an event is about', () => {
    expect(format.titleOf(event)).toBe('Job 47 on n1');
    expect(format.titleOf({ ...event, subject: 'node' })).toBe('Node n1');
    expect(format.titleOf({ ...event, subject: 'cluster', node: null, nodes: ['a', 'b'] })).toBe(
      'Whole cluster, 2 nodes',
    );
  });

  it('join consecutive threads', () => {
    expect(format.threadRanges([3, 1, 2, 7])).toBe('1–3, 7');
    expect(format.threadRanges([])).toBe('');
  });
});
