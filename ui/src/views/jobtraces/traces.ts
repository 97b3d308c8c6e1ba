// What is said about traces: their origin, commands with the same effect, and tables of comparisons.

import type { Generator, JobComparison, JobTrace, Pair, SynthesisRequest } from '../../api/jobTraces';
import type { TableData } from '../../charts/export';
import { number } from '../../format';
import { type Query } from '../../routes';
import { type Labels, PLAIN_LABELS, SYNTHETIC_LABELS } from './curves';

/** How a synthetic trace was made, without the name of the real one. */
export function recipeOf({ generator, seed, load }: NonNullable<JobTrace['synthetic']>): string {
  return [generator, `seed ${seed}`, ...(load === 1 ? [] : [`load ${number(load)}×`])].join(', ');
}

/** The recommended generators first. */
export const orderedGenerators = (all: Generator[]) =>
  [...all].sort((a, b) => Number(b.is_recommended) - Number(a.is_recommended));

/** What a form says; fields that are empty or no numbers are left to the server. */
export function requestOf(query: Query): SynthesisRequest {
  const value = (name: string) => {
    const found = query[name] === undefined || query[name] === '' ? NaN : Number(query[name]);
    return Number.isFinite(found) ? found : undefined;
  };
  return { generator: query.generator || undefined, jobs: value('jobs'), load: value('load'), seed: value('seed') };
}

/** Commands that do the same. */
export function commandsOf(name: string, { generator = 'best', jobs, load = 1, seed = 0 }: SynthesisRequest): string {
  const sample = [
    'tracewise jobs sample --model model',
    ...(jobs === undefined ? [] : [`--jobs ${jobs}`]),
    ...(load === 1 ? [] : [`--scale ${load}x`]),
    `--seed ${seed} --out synthetic.csv`,
  ];
  return [
    `tracewise jobs train --generator ${generator} --input ${name} --out model --seed ${seed}`,
    sample.join(' '),
    `tracewise jobs compare --real ${name} --synthetic synthetic.csv --out report`,
  ].join('\n');
}

/** What two traces are called: one of them imitates the other only if it was made of a recorded one. */
export function labelsOf(first: JobTrace | undefined, second: JobTrace | undefined): Labels {
  const isImitation = first?.synthetic === null && second !== undefined && second.synthetic !== null;
  return isImitation ? SYNTHETIC_LABELS : PLAIN_LABELS;
}

/** Other traces to compare with: those made of this one, then what it was made of, then the others. */
export function counterparts(of: JobTrace, all: JobTrace[]): JobTrace[] {
  const rank = (one: JobTrace) => (one.synthetic?.of === of.name ? 0 : one.name === of.synthetic?.of ? 1 : 2);
  return all.filter((one) => one.name !== of.name).sort((a, b) => rank(a) - rank(b));
}

/** A score may be worse than that of two halves of the real trace by so much. */
export const TOLERANCE = 0.05;

/** Whether a score of the fidelity table is clearly worse than those of two halves of the real trace. */
export function isWeak([name, own, ...halves]: string[]): boolean {
  const isScore = (text: string) => /^\d+\.\d+$/.test(text);
  const references = halves.filter(isScore).map(Number);
  if (own === undefined || !isScore(own) || references.length === 0) return false;
  return name.endsWith('(AUC)')
    ? Number(own) > Math.max(...references) + TOLERANCE
    : Number(own) < Math.min(...references) - TOLERANCE;
}

/** The fidelity table with headers as the page writes them. The server marks columns of figures with `>`. */
export function fidelityTable({ table }: JobComparison, labels: Labels): TableData {
  const columns = table.header.map((text, index) => {
    const name = text.replace(/^>/, '').toLowerCase();
    return index === 0 ? name || 'figure' : name === 'synthetic' ? labels[1] : name;
  });
  return { columns, rows: table.rows };
}

/** Pairs of columns, the least similar first. */
export const orderedPairs = (pairs: Pair[]) => [...pairs].sort((a, b) => a.score - b.score);

export function pairTable(pairs: Pair[], labels: Labels): TableData {
  return {
    columns: ['column', 'other column', ...labels.map((label) => `correlation, ${label}`), 'score'],
    rows: pairs.map(({ names, real, synthetic, score }) => [...names, real, synthetic, score]),
  };
}

export interface Matrix {
  names: string[];
  /** A row for each name; null where there is no figure. */
  cells: (number | null)[][];
}

/** Rank correlations of the first few numeric columns. */
export function correlationMatrix(pairs: Pair[], which: 'real' | 'synthetic', maxNames: number): Matrix {
  const numeric = pairs.filter((pair) => pair.real !== null);
  const names = [...new Set(numeric.flatMap((pair) => pair.names))].slice(0, maxNames);
  const key = (a: string, b: string) => JSON.stringify([a, b]);
  const found = new Map<string, number | null>();
  for (const { names: [a, b], [which]: value } of numeric) {
    found.set(key(a, b), value);
    found.set(key(b, a), value);
  }
  return { names, cells: names.map((a) => names.map((b) => (a === b ? 1 : (found.get(key(a, b)) ?? null)))) };
}

/** Outcomes of scheduling policies, one row for each policy and trace. */
export function schedulingTable({ policies }: NonNullable<JobComparison['scheduling']>, labels: Labels): TableData {
  return {
    columns: ['policy', 'trace', 'mean wait, s', 'mean bounded slowdown', 'utilisation', 'makespan, s'],
    rows: policies.flatMap(({ policy, real, synthetic }) =>
      [real, synthetic].map((one, index) => [
        policy,
        labels[index],
        one.mean_wait_seconds,
        one.mean_bounded_slowdown,
        one.utilisation,
        one.makespan_seconds,
      ]),
    ),
  };
}

/** How much a figure of the second trace differs, as `+12 %`. */
export function change(before: number, after: number): string {
  if (!(before > 0) || !Number.isFinite(after)) return '–';
  const percentage = Math.round((after / before - 1) * 100);
  return `${percentage > 0 ? '+' : percentage < 0 ? '−' : '±'}${Math.abs(percentage)}\u202f%`;
}
