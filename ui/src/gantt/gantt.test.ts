import { describe, expect, it } from 'vitest';

import type { WorkflowChart } from '../api/workflows';
import { Bands, criticalBoxes, failedMarks } from './detail';
import { describe as described, spoken, tableOf } from './describe';
import {
  around,
  clamped,
  everything,
  fromText,
  hit,
  including,
  isEverything,
  type Limits,
  moved,
  toText,
  type View,
  xOf,
  yOf,
  zoomed,
} from './geometry';
import { offsetLabel } from './labels';
import { partColour, partName } from './palette';
import { attemptsAt, attemptsOf, EVERYTHING, ranksOf, rowsOf } from './rows';

/** The same numbers in every run. */
function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1664525 + 1013904223) % 4294967296;
    return state / 4294967296;
  };
}

function chartOf(n: number, seed = 1): WorkflowChart {
  const random = generator(seed);
  const parts = ['ready', 'queue', 'runtime', 'post_script'];
  const ends: number[][] = parts.map(() => []);
  const range = Array.from({ length: n }, (_, index) => index);
  for (const index of range) {
    let end = (index / n) * 900;
    ends[0].push(end);
    for (const column of ends.slice(1)) column.push((end += random() * 30));
  }
  return {
    start: 1_700_000_000,
    seconds: Math.max(1, ...ends[3]),
    parts,
    kinds: ['merge', 'split'],
    workflows: ['', 'inner'],
    task: range.map((index) => `task_${index}`),
    kind: range.map((index) => (index % 3 === 0 ? 0 : 1)),
    workflow: range.map((index) => (index % 10 === 0 ? 1 : 0)),
    role: range.map(() => 0),
    attempt: range.map(() => 1),
    failed: range.map(() => (random() < 0.02 ? 1 : 0)),
    critical: range.map((index) => (index % 97 === 0 ? 1 : 0)),
    ends,
  };
}

const chart = chartOf(5000);
const attempts = attemptsOf(chart);
const rows = rowsOf(attempts, EVERYTHING);
const ranks = ranksOf(attempts, rows, null);
const limits: Limits = { seconds: chart.seconds, rows: rows.n, minRows: 20 };
const [WIDTH, HEIGHT] = [800, 400];

/** Views from everything to a few rows and seconds. */
function someViews(n: number): View[] {
  const random = generator(7);
  return Array.from({ length: n }, () => {
    const by = { time: random() ** 3, rows: random() ** 3 };
    return zoomed(everything(limits), limits, by, { x: random(), y: random() });
  });
}

const isShown = (row: number, view: View) =>
  row >= view.first && row + 1 <= view.first + view.shown && rows.end[row] >= view.from && rows.start[row] <= view.to;

describe('rows', () => {
  it('are in the order of time', () => {
    for (let row = 1; row < rows.n; row += 1) expect(rows.start[row]).toBeGreaterThanOrEqual(rows.start[row - 1]);
    expect(rows.groups).toEqual([]);
    expect(rows.rowOf[rows.attempt[12]]).toBe(12);
  });

  it('of a kind are neighbours, and the kind that starts first is above', () => {
    const byKind = rowsOf(attempts, { ...EVERYTHING, order: 'kind' });
    expect(byKind.groups.map((group) => group.name)).toEqual(['merge', 'split']);
    expect(byKind.groups[0].n + byKind.groups[1].n).toBe(5000);
    expect(byKind.groups[1].first).toBe(byKind.groups[0].n);
  });

  it('can be chosen by kind, sub-workflow and text', () => {
    expect(rowsOf(attempts, { ...EVERYTHING, kind: 'merge' }).n).toBe(1667);
    expect(rowsOf(attempts, { ...EVERYTHING, workflow: 'inner' }).n).toBe(500);
    expect(rowsOf(attempts, { ...EVERYTHING, text: 'TASK_499' }).n).toBe(11);
    expect(rowsOf(attempts, { ...EVERYTHING, text: 'nothing' }).n).toBe(0);
  });

  it('know the longest part, and that failed is more important than critical', () => {
    const small = attemptsOf({
      ...chartOf(3),
      failed: [0, 0, 1],
      critical: [0, 1, 0],
      ends: [
        [0, 0, 0],
        [9, 1, 1],
        [10, 2, 2],
        [11, 5, 3],
      ],
    });
    expect([...small.longestPart]).toEqual([1, 3, 1]);
    expect(small.rank[2]).toBeGreaterThan(small.rank[1]);
    expect(small.rank[1]).toBeGreaterThan(small.rank[0]);
  });

  it('of a chart without attempts are none', () => {
    const empty = rowsOf(attemptsOf(chartOf(0)), EVERYTHING);
    expect(empty.n).toBe(0);
    const bands = new Bands();
    bands.pick(empty, new Float64Array(0), everything({ seconds: 1, rows: 0, minRows: 3 }), 100);
    expect(bands.n).toBe(0);
  });
});

describe('a view', () => {
  it('stays inside the chart', () => {
    for (const view of someViews(200)) {
      for (const next of [moved(view, limits, 3, -3), moved(view, limits, -0.1, 0.1)]) {
        expect(next.from).toBeGreaterThanOrEqual(0);
        expect(next.to).toBeLessThanOrEqual(limits.seconds + 1e-9);
        expect(next.first).toBeGreaterThanOrEqual(0);
        expect(next.first + next.shown).toBeLessThanOrEqual(rows.n + 1e-6);
        expect(next.to - next.from).toBeCloseTo(view.to - view.from, 6);
      }
    }
  });

  it('keeps what is under the pointer while it zooms', () => {
    const view = { from: 100, to: 300, first: 1000, shown: 500 };
    const next = zoomed(view, limits, { time: 0.5, rows: 0.5 }, { x: 0.25, y: 0.8 });
    expect(next.from + 0.25 * (next.to - next.from)).toBeCloseTo(150);
    expect(next.first + 0.8 * next.shown).toBeCloseTo(1400);
  });

  it('does not move at the limits of the zoom', () => {
    const view = { from: 100, to: 100.05, first: 1000, shown: 20 };
    expect(zoomed(view, limits, { time: 0.5, rows: 0.5 }, { x: 1, y: 1 })).toEqual(clamped(view, limits));
    expect(isEverything(zoomed(everything(limits), limits, { time: 2, rows: 2 }), limits)).toBe(true);
  });

  it('follows a row, and not more than needed', () => {
    const view = { from: 0, to: 10, first: 100, shown: 50 };
    expect(including(view, limits, 120, 5, 90)).toBe(view);
    expect(including(view, limits, 150, 5, 6)).toEqual({ ...view, first: 101 });
    expect(including(view, limits, 3, 5, 6).first).toBe(3);
    expect(including(view, limits, 120, 40, 42)).toEqual({ ...view, from: 36, to: 46 });
  });

  it('can be that of some tasks', () => {
    const chosen = attemptsAt(attempts, ['task_1000', 'task_1100', 'no such task']);
    const view = around(rows, chosen as Uint8Array, limits) as View;
    for (const task of [1000, 1100]) expect(isShown(rows.rowOf[task], view)).toBe(true);
    expect(view.shown).toBeLessThan(130);
    expect(attemptsAt(attempts, ['no such task'])).toBeNull();
    expect(around(rows, new Uint8Array(attempts.n), limits)).toBeNull();
  });

  it('fits into an address', () => {
    const view = { from: 1.5, to: 20, first: 100.25, shown: 50 };
    expect(fromText(toText(view))).toEqual(view);
    for (const text of [undefined, '', 'x', '1_2_3', '2_1_0_5', '0_1_0_5_6']) expect(fromText(text)).toBeNull();
  });
});

describe('the level of detail', () => {
  const bands = new Bands();

  it('draws each line of pixels once', () => {
    for (const view of someViews(200)) {
      bands.pick(rows, ranks, view, HEIGHT);
      expect(bands.n).toBeLessThanOrEqual(HEIGHT + 2);
      for (let band = 0; band < bands.n; band += 1) {
        expect(bands.bottom[band]).toBeGreaterThan(bands.top[band]);
        if (band > 0) expect(bands.top[band]).toBeGreaterThanOrEqual(bands.bottom[band - 1]);
      }
    }
  });

  it('draws every row if there is room', () => {
    const view = { from: 0, to: chart.seconds, first: 200, shown: 40 };
    bands.pick(rows, ranks, view, HEIGHT);
    expect([...bands.row.subarray(0, bands.n)]).toEqual(Array.from({ length: 40 }, (_, index) => 200 + index));
    expect(bands.bottom[0] - bands.top[0]).toBe(10);
  });

  it('shows the most important row of a line that is in the shown time', () => {
    for (const view of someViews(100)) {
      bands.pick(rows, ranks, view, HEIGHT);
      const scale = HEIGHT / view.shown;
      const base = Math.floor(view.first * scale);
      const best = new Map<number, number>();
      for (let row = 0; row < rows.n; row += 1) {
        if (isShown(row, view)) {
          const line = Math.floor(row * scale) - base;
          best.set(line, Math.max(best.get(line) ?? -1, ranks[row]));
        }
      }
      const drawn = new Map(Array.from({ length: bands.n }, (_, band) => [bands.top[band], ranks[bands.row[band]]]));
      for (const [line, rank] of best) expect(drawn.get(line)).toBeGreaterThanOrEqual(rank);
    }
  });

  it('chooses the same rows while the chart is moved', () => {
    const view = { from: 0, to: chart.seconds, first: 500, shown: 3000 };
    const picked = (one: View) => {
      bands.pick(rows, ranks, one, HEIGHT);
      return [...bands.row.subarray(2, bands.n - 2)];
    };
    const before = new Set(picked(view));
    const after = picked({ ...view, first: 510 });
    expect(after.filter((row) => !before.has(row)).length).toBeLessThan(5);
  });

  it('keeps every failed attempt visible at every zoom', () => {
    const cell = 3;
    let nChecked = 0;
    for (const view of [everything(limits), ...someViews(300)]) {
      const marks = failedMarks(rows, view, WIDTH, HEIGHT, cell);
      const scale = HEIGHT / view.shown;
      for (const row of rows.failed) {
        if (!isShown(row, view)) continue;
        nChecked += 1;
        const x = Math.min(WIDTH, ((rows.end[row] - view.from) / (view.to - view.from)) * WIDTH);
        const y = (row - view.first + 0.5) * scale;
        const isMarked = marks.x.some(
          (at, index) => Math.abs(at - x) <= cell && Math.abs(marks.y[index] - y) <= cell + Math.max(1, scale),
        );
        expect(isMarked).toBe(true);
      }
    }
    expect(nChecked).toBeGreaterThan(500);
  });

  it('has one mark where many failed attempts share a place', () => {
    const all = rowsOf(attemptsOf({ ...chart, failed: chart.failed.map(() => 1) }), EVERYTHING);
    const marks = failedMarks(all, everything(limits), WIDTH, HEIGHT, 3);
    expect(marks.x.length).toBeLessThan(5000);
    expect(marks.x.length).toBeGreaterThan(100);
  });

  it('prefers what stands out', () => {
    const chosen = attemptsAt(attempts, ['task_2222']) as Uint8Array;
    bands.pick(rows, ranksOf(attempts, rows, chosen), everything(limits), HEIGHT);
    expect([...bands.row.subarray(0, bands.n)]).toContain(rows.rowOf[2222]);
  });

  it('outlines the critical path in the order of time', () => {
    const boxes = criticalBoxes(rows, everything(limits), WIDTH, HEIGHT);
    expect(boxes.left.length).toBeGreaterThan(20);
    for (let at = 1; at < boxes.right.length; at += 1) expect(boxes.right[at]).toBeGreaterThanOrEqual(boxes.right[at - 1]);
  });

  it('takes less than a frame for 100,000 attempts', () => {
    const large = attemptsOf(chartOf(100_000));
    const all = rowsOf(large, EVERYTHING);
    const rank = ranksOf(large, all, null);
    const view = everything({ seconds: large.chart.seconds, rows: all.n, minRows: 20 });
    bands.pick(all, rank, view, 1000);
    const began = performance.now();
    for (let at = 0; at < 20; at += 1) bands.pick(all, rank, { ...view, first: at, shown: view.shown - 20 }, 1000);
    expect((performance.now() - began) / 20).toBeLessThan(16);
  });
});

describe('the pointer', () => {
  const plot = { left: 100, top: 10, width: 800, height: 400 };

  it('finds the task below it', () => {
    const view = { from: 0, to: chart.seconds, first: 300, shown: 40 };
    const row = 310;
    const x = xOf(view, plot, (rows.start[row] + rows.end[row]) / 2);
    expect(hit(rows, ranks, view, plot, x, yOf(view, plot, row + 0.5))).toBe(row);
    expect(hit(rows, ranks, view, plot, 895, yOf(view, plot, row + 0.5))).toBe(row);
    expect(hit(rows, ranks, view, plot, 50, 50)).toBe(-1);
  });

  it('finds the most important task where many share a pixel', () => {
    const view = everything(limits);
    const row = rows.failed[10];
    const x = xOf(view, plot, rows.end[row]);
    const found = hit(rows, ranks, view, plot, x, yOf(view, plot, row + 0.5));
    expect(chart.failed[rows.attempt[found]]).toBe(1);
    expect(hit(rows, ranks, view, plot, 890, 20)).toBe(-1);
  });
});

describe('words', () => {
  it('describe the delays of an attempt', () => {
    const one = described(attempts, 970);
    expect(one).toMatchObject({ task: 'task_970', about: 'kind split, sub-workflow inner', isCritical: true });
    expect(one.delays.map((delay) => delay.name)).toEqual(['waiting for other tasks', 'queue', 'runtime', 'post-script']);
    expect(spoken(one)).toContain('on the critical path');
  });

  it('are in the table for each row', () => {
    const { columns, rows: lines } = tableOf(attempts, rowsOf(attempts, { ...EVERYTHING, text: 'task_499' }));
    expect(lines).toHaveLength(11);
    expect(lines[0]).toHaveLength(columns.length);
  });

  it('tell times since the start', () => {
    expect(offsetLabel(0, 60)).toBe('0');
    expect(offsetLabel(3930, 30)).toBe('1 h 5 min 30 s');
    expect(offsetLabel(0.25, 0.05)).toBe('0.25 s');
    expect(offsetLabel(3661.5, 0.5)).toBe('1 h 1 min 1.5 s');
    expect(offsetLabel(90000, 3600)).toBe('1 d 1 h');
  });

  it('and colours exist for parts that nobody knows', () => {
    expect(partName('new_part')).toBe('new part');
    expect(partColour('new_part', 'dark')).toMatch(/^#/);
  });
});
