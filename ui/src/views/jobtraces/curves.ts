// Curves of one trace or two as lines of charts.

import type { Curve, Point } from '../../api/jobTraces';
import type { Line } from '../../charts/types';
import { cut } from '../../format';

/** What the two traces are called in charts and tables. */
export type Labels = [string, string];

export const SYNTHETIC_LABELS: Labels = ['real', 'synthetic'];

/** Two traces of which it is not known that one imitates the other. */
export const PLAIN_LABELS: Labels = ['A', 'B'];

/** What a trace is called in sentences. */
export const traceName = (label: string) => (PLAIN_LABELS.includes(label) ? `trace ${label}` : `the ${label} trace`);

/** Colours of the two traces, as of what is observed and what a model expects. */
export const COLOURS: [string, string] = ['--observed', '--expected'];

export interface LineChart {
  x: number[];
  lines: Line[];
}

/** Distribution functions, which are steps: their value holds until the next point. */
export const distributionChart = (curve: Curve, labels: Labels) => chartOf(curve, labels, heldAt);

/** Curves with the same positions, as far as both reach. */
export const pointChart = (curve: Curve, labels: Labels, name?: string) => chartOf(curve, labels, exactlyAt, name);

/** `name` is what is drawn, for charts of one trace. */
function chartOf(
  curve: Curve,
  labels: Labels,
  valuesAt: (points: Point[], x: number[]) => (number | null)[],
  name = 'fraction of jobs',
): LineChart {
  const both = [curve.real, curve.synthetic];
  const x = [...new Set(both.flatMap((points) => (points ?? []).map((point) => point[0])))].sort((a, b) => a - b);
  const lines = both.flatMap((points, index): Line[] =>
    points === null
      ? []
      : [
          {
            label: curve.synthetic === null ? name : labels[index],
            values: valuesAt(points, x),
            colour: COLOURS[index],
            width: 2,
            isDashed: index === 1,
          },
        ],
  );
  return { x, lines };
}

function heldAt(points: Point[], x: number[]): (number | null)[] {
  if (points.length === 0) return x.map(() => null);
  let next = 0;
  let value = 0;
  return x.map((at) => {
    while (next < points.length && points[next][0] <= at) value = points[next++][1];
    return value;
  });
}

function exactlyAt(points: Point[], x: number[]): (number | null)[] {
  const values = new Map(points);
  return x.map((at) => values.get(at) ?? null);
}

/** The largest vertical distance of two lines: the Kolmogorov-Smirnov statistic of distributions. */
export function largestDistance({ x, lines }: LineChart): { x: number; distance: number } | null {
  if (lines.length < 2) return null;
  let found: { x: number; distance: number } | null = null;
  x.forEach((at, index) => {
    const [a, b] = lines.map((line) => line.values[index]);
    if (a === null || b === null) return;
    if (found === null || Math.abs(a - b) > found.distance) found = { x: at, distance: Math.abs(a - b) };
  });
  return found;
}

/** The value up to which half of the jobs are. */
export const medianOf = (points: Point[]): number | null => points.find((point) => point[1] >= 0.5)?.[0] ?? null;

/** The position of the largest value. */
export const peakOf = (points: Point[]): number | null =>
  points.length === 0 ? null : points.reduce((best, point) => (point[1] > best[1] ? point : best))[0];

/** The name of a column, which may be long. */
export const columnName = (name: string) => cut(name, 40);
