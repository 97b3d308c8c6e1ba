import { describe, expect, it } from 'vitest';

import type { Event } from '../api/types';
import { cellAt, geometry, hit, moved, rowsOf, type Space } from './geometry';
import { edges, ownersOf } from './jobs';
import { colour, lookup, scoreOf, THRESHOLD } from './palette';
import { paint, pictureOf, pooled, pooling, summary } from './picture';
import { placesOf } from './problems';
import { cpuAt, cpuNumbers, cpuRanges, isSame, parseRows } from './rows';

const space: Space = { width: 1100, height: 600, pixelRatio: 1, nameWidth: 40, scale: 1 };
const cluster = (nodes: number, threads: number) =>
  rowsOf(Array.from({ length: nodes }, (_, index) => ({ node: `n${index}`, threads })));

/** Relative luminance, which is what colour-blind people see of a difference. */
function luminance(byte: number, theme: 'light' | 'dark'): number {
  const linear = colour(byte, theme).map((value) =>
    value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

describe('colours', () => {
  it('become steadily lighter in the dark and darker in the light', () => {
    for (let byte = 1; byte < 256; byte += 1) {
      expect(luminance(byte, 'dark')).toBeGreaterThanOrEqual(luminance(byte - 1, 'dark') - 0.004);
      expect(luminance(byte, 'light')).toBeLessThanOrEqual(luminance(byte - 1, 'light') + 0.004);
    }
  });

  it('change visibly at the threshold', () => {
    const [before, after] = [colour(THRESHOLD, 'light'), colour(THRESHOLD + 1, 'light')];
    expect(before[2]).toBeGreaterThan(before[0]);
    expect(after[0]).toBeGreaterThan(after[2]);
  });

  it('are opaque pixels', () => {
    expect([...lookup('dark')].every((pixel) => pixel >>> 24 === 255)).toBe(true);
  });

  it('stand for the scores that the server encoded', () => {
    expect(scoreOf(0)).toBe(0);
    expect(scoreOf(100)).toBe(1);
    expect(scoreOf(155)).toBeCloseTo(3, 1);
  });
});

describe('geometry', () => {
  it('of few threads has large cells in one block', () => {
    for (const [nodes, threads] of [
      [1, 2],
      [5, 32],
    ]) {
      const one = geometry(cluster(nodes, threads), space);
      expect(one.nBlocks).toBe(1);
      expect(Math.min(one.cellWidth, one.cellHeight)).toBeGreaterThanOrEqual(24);
    }
  });

  it('of a thousand nodes fits the space in several blocks', () => {
    const one = geometry(cluster(1000, 128), space);
    expect(one.nBlocks).toBeGreaterThan(1);
    expect(one.width).toBeLessThanOrEqual(space.width);
    expect(one.height).toBeLessThanOrEqual(space.height);
    expect(one.nBlocks * one.rowsPerBlock).toBeGreaterThanOrEqual(1000);
  });

  it('finds every cell where it is drawn', () => {
    const rows = cluster(37, 16);
    const one = geometry(rows, { ...space, height: 120 });
    for (let row = 0; row < rows.length; row += 1) {
      for (const thread of [0, 7, 15]) {
        const { x, y } = cellAt(one, { row, thread });
        expect(hit(one, rows, x + one.cellWidth / 2, y + one.cellHeight / 2)).toEqual({ row, thread });
      }
    }
    expect(hit(one, rows, 1, 1)).toBeNull();
  });

  it('keeps the cursor inside rows of different lengths', () => {
    const rows = rowsOf([
      { node: 'a', threads: 8 },
      { node: 'b', threads: 2 },
    ]);
    expect(moved({ row: 0, thread: 7 }, 'ArrowDown', rows, 10)).toEqual({ row: 1, thread: 1 });
    expect(moved({ row: 1, thread: 1 }, 'ArrowRight', rows, 10)).toEqual({ row: 1, thread: 1 });
    expect(moved({ row: 1, thread: 1 }, 'PageUp', rows, 10)).toEqual({ row: 0, thread: 1 });
    expect(moved({ row: 0, thread: 0 }, 'x', rows, 10)).toBeNull();
  });
});

describe('picture', () => {
  it('shows the worst of the threads that share a pixel', () => {
    const rows = cluster(4, 4);
    const one = { ...geometry(rows, space), nBlocks: 1, rowsPerBlock: 4, columns: 4, cellWidth: 0.5, cellHeight: 0.5 };
    const bytes = new Uint8Array(16);
    bytes[5] = 200;
    bytes[15] = 50;
    const pool = pooling(one, 1);
    expect(pool).toEqual({ x: 2, y: 2 });
    expect([...pooled(bytes, rows, one, pool)]).toEqual([200, 0, 0, 50]);
  });

  it('of 128,000 threads loses no anomaly', () => {
    const rows = cluster(1000, 128);
    const one = geometry(rows, { ...space, width: 400, height: 200 });
    const bytes = new Uint8Array(128_000);
    bytes[77_777] = 255;
    const pool = pooling(one, 1);
    const picture = pictureOf(one, pool);
    const pixels = new Uint32Array(picture.width * picture.height);
    const colours = lookup('dark');
    paint(pixels, bytes, rows, one, pool, colours);
    expect(pixels.filter((pixel) => pixel === colours[255]).length).toBe(1);
  });

  it('leaves cells without a thread transparent', () => {
    const rows = rowsOf([
      { node: 'a', threads: 3 },
      { node: 'b', threads: 1 },
    ]);
    const one = geometry(rows, space);
    const pixels = new Uint32Array(6).fill(7);
    paint(pixels, new Uint8Array(4), rows, one, { x: 1, y: 1 }, lookup('light'));
    expect([...pixels].map((pixel) => pixel === 0)).toEqual([false, false, false, false, true, true]);
  });

  it('is summed up for people who do not see it', () => {
    const rows = cluster(3, 2);
    expect(summary(Uint8Array.of(0, 100, 101, 240, 3, 3), rows)).toEqual({
      threads: 6,
      above: 2,
      rowsAbove: [1],
      worst: { row: 1, thread: 1, byte: 240 },
    });
    expect(summary(new Uint8Array(), []).worst).toBeNull();
  });
});

describe('jobs', () => {
  const layout = [
    {
      node: 'a',
      threads: 4,
      runs: [
        [0, 2, 'x'],
        [2, 2, 'y'],
      ] as [number, number, string][],
    },
    { node: 'b', threads: 4, runs: [[0, 2, 'x']] as [number, number, string][] },
  ];
  const rows = rowsOf(layout);
  const owners = ownersOf(layout, rows);
  const one = geometry(rows, space);

  it('own the threads of their runs', () => {
    expect([...owners.ofThread]).toEqual([0, 0, 1, 1, 0, 0, -1, -1]);
    expect(owners.names).toEqual(['x', 'y']);
  });

  it('that reach over two nodes have one outline', () => {
    const around = edges(owners, rows, one, 0);
    const inside = around.some((edge) => edge.y1 === 1 && edge.y2 === 1 && edge.x1 < 2);
    expect(inside).toBe(false);
    const length = around.reduce((sum, edge) => sum + Math.abs(edge.x2 - edge.x1) + Math.abs(edge.y2 - edge.y1), 0);
    expect(length).toBe(8);
  });

  it('with runs beyond the row do no harm', () => {
    const wrong = [
      {
        node: 'a',
        threads: 2,
        runs: [
          [1, 99, 'x'],
          [50, 2, 'y'],
        ] as [number, number, string][],
      },
    ];
    expect([...ownersOf(wrong, rowsOf(wrong)).ofThread]).toEqual([-1, 0]);
  });
});

describe('problems', () => {
  const layout = [
    { node: 'a', threads: 2, runs: [[0, 2, 'x']] as [number, number, string][] },
    { node: 'b', threads: 2, runs: [[0, 2, 'y']] as [number, number, string][] },
  ];
  const rows = rowsOf(layout);
  const places = (event: object) => placesOf([event as Event], rows, ownersOf(layout, rows));

  it('mark their job and its nodes, even if no thread is above the threshold', () => {
    const { jobs, rows: marked } = places({ subject: 'job', jobs: ['y', 'x'], nodes: ['b'] });
    expect([[...jobs], [...marked]]).toEqual([[1], [1]]);
  });

  it('of nodes and of jobs that are over mark what is still there', () => {
    expect([...places({ subject: 'node', jobs: [], nodes: [], node: 'a' }).rows]).toEqual([0]);
    expect([...places({ subject: 'job', jobs: ['z'], nodes: ['gone'] }).jobs]).toEqual([]);
  });
});

describe('rows of the plane', () => {
  it('are compared with the layout', () => {
    const layout = {
      nodes: [
        { node: 'n=1', threads: 2, runs: [] },
        { node: 'n2', threads: 3, runs: [] },
      ],
    };
    expect(isSame(layout, 'n=1=2,n2=3')).toBe(true);
    expect(isSame(layout, 'n=1=2')).toBe(false);
    expect(parseRows('n=1=2,n2=3')).toEqual([
      { node: 'n=1', threads: 2 },
      { node: 'n2', threads: 3 },
    ]);
    expect(parseRows('')).toEqual([]);
  });
});

describe('CPU numbers of a row', () => {
  const row = { threads: 5, cpus: [[0, 2] as [number, number], [64, 2] as [number, number], [70, 1] as [number, number]] };

  it('follow from runs, in the order of positions', () => {
    expect(cpuNumbers(row)).toEqual([0, 1, 64, 65, 70]);
    expect([0, 2, 4].map((position) => cpuAt(row, position))).toEqual([0, 64, 70]);
    expect(cpuRanges(row)).toBe('0–1, 64–65, 70');
  });

  it('are positions until the layout arrives', () => {
    expect(cpuNumbers({ threads: 2 })).toEqual([0, 1]);
    expect(cpuNumbers({ threads: 3, cpus: [[8, 2]] })).toEqual([0, 1, 2]);
    expect(cpuAt({}, 3)).toBe(3);
    expect(cpuRanges({})).toBe('');
  });
});
