import { describe, expect, it } from 'vitest';

import { extended, isInside, nearest, rectangle, scaleOf, ticks, within } from './scatter';

const square = rectangle({ x: 10, y: 10 }, { x: 0, y: 0 });

describe('a lasso', () => {
  it('contains the points inside, for any direction of drawing', () => {
    expect(isInside(5, 5, square)).toBe(true);
    expect(isInside(5, 5, [...square].reverse())).toBe(true);
    expect(isInside(11, 5, square)).toBe(false);
    expect(isInside(5, -1, square)).toBe(false);
  });

  it('may be concave', () => {
    const u = [
      [0, 0],
      [9, 0],
      [9, 9],
      [6, 9],
      [6, 3],
      [3, 3],
      [3, 9],
      [0, 9],
    ].map(([x, y]) => ({ x, y }));
    expect(isInside(4.5, 6, u)).toBe(false);
    expect(isInside(1.5, 6, u)).toBe(true);
    expect(isInside(7.5, 6, u)).toBe(true);
  });

  it('selects points by their positions, and none with less than three corners', () => {
    const [xs, ys] = [
      [1, 5, 20, 9],
      [1, 5, 5, 30],
    ];
    expect(within(square, xs, ys)).toEqual([0, 1]);
    expect(within(square.slice(0, 2), xs, ys)).toEqual([]);
  });

  it('tests 10,000 points against a long path in a few milliseconds', () => {
    const path = Array.from({ length: 400 }, (_, index) => ({
      x: 500 + 400 * Math.cos(index / 63.7),
      y: 500 + 400 * Math.sin(index / 63.7),
    }));
    const xs = Float32Array.from({ length: 10_000 }, (_, index) => (index * 7919) % 1000);
    const ys = Float32Array.from({ length: 10_000 }, (_, index) => (index * 104_729) % 1000);
    const began = performance.now();
    const found = within(path, xs, ys);
    expect(performance.now() - began).toBeLessThan(500);
    expect(found.length).toBeGreaterThan(4000);
    expect(found.every((index) => Math.hypot(xs[index] - 500, ys[index] - 500) < 402)).toBe(true);
  });

  it('grows only where the pointer has moved', () => {
    const path = extended([], { x: 0, y: 0 });
    expect(extended(path, { x: 1, y: 1 })).toBe(path);
    expect(extended(path, { x: 5, y: 0 })).toHaveLength(2);
  });
});

describe('the nearest point', () => {
  const [xs, ys] = [
    [0, 4, 100],
    [0, 0, 0],
  ];

  it('is within reach and shown', () => {
    expect(nearest({ x: 3, y: 0 }, xs, ys, 10, () => true)).toBe(1);
    expect(nearest({ x: 3, y: 0 }, xs, ys, 10, (index) => index !== 1)).toBe(0);
    expect(nearest({ x: 50, y: 0 }, xs, ys, 10, () => true)).toBe(-1);
  });
});

describe('scales', () => {
  it('have room around the values', () => {
    const scale = scaleOf([0, 10], 100, 'linear');
    expect(scale.at(0)).toBeGreaterThan(0);
    expect(scale.at(10)).toBeLessThan(100);
    expect(scaleOf([3, 3], 100, 'linear').at(3)).toBeCloseTo(50);
    expect(scaleOf([], 100, 'linear')).toMatchObject({ low: 0, high: 1 });
  });

  it('of logarithms keep values without one at the edge', () => {
    const scale = scaleOf([1, 100], 100, 'log');
    expect(scale.at(0)).toBe(0);
    expect(scale.at(10)).toBeCloseTo(50, 0);
  });

  it('have round ticks', () => {
    expect(ticks(0, 1, 5, 'linear')).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(ticks(-0.3, 0.35, 3, 'linear')).toEqual([0]);
    expect(ticks(0.9, 120, 3, 'log')).toEqual([1, 10, 100]);
    expect(ticks(0, 7200, 4, 'time')).toEqual([0, 1800, 3600, 5400, 7200]);
  });
});
