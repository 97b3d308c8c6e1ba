// How windows are coloured: by the kind of their job, by score, or by node.

import type { Embeddings } from '../../api/operations';
import type { Group, Shape } from '../../charts/points';
import type { Theme } from '../../state/theme.svelte';

export const COLOURINGS = ['kind', 'score', 'node'] as const;
export type Colouring = (typeof COLOURINGS)[number];

export interface Grouping {
  groups: Group[];
  /** The position of each window's group. */
  group: Uint8Array;
}

/** Names of the server for windows without a known kind. */
const UNLABELLED = 'unlabelled';
const IDLE = 'idle';

/** Orange tones are for known anomalies, as in all views. */
const CALM = ['--series-1', '--series-3', '--series-4'];
const ALARMING = ['--series-2', '--series-6', '--series-5'];
const SHAPES: Shape[] = ['circle', 'square', 'diamond', 'cross'];
const MAX_NAMED = 8;

/** Scores above each of these share a colour, the highest first. The threshold is 1. */
const SCORES: [number, string][] = [
  [5, 'above 5'],
  [2, 'above 2'],
  [1, 'above 1, the threshold'],
  [0.5, 'up to 1'],
  [0.25, 'up to 0.5'],
  [0.1, 'up to 0.25'],
  [-Infinity, 'up to 0.1'],
];
/** Blue up to the threshold and orange above it; contrast to the page grows with the score. */
const SCORE_COLOURS: Record<Theme, string[]> = {
  light: ['#5c1a00', '#a83d05', '#e07b39', '#123f80', '#1f6fd6', '#5c9be8', '#9cc3f2'],
  dark: ['#fff0c2', '#ffc187', '#f08a3c', '#cfe2ff', '#86b6f7', '#5f8fcb', '#476d9e'],
};

export function groupingOf(data: Embeddings, by: Colouring, theme: Theme): Grouping {
  if (by === 'score') return byScore(data, theme);
  if (by === 'node') return byName(data.node, data.nodes, data.is_training, new Set(), 'other nodes');
  return byName(data.kind, data.kinds, data.is_training, new Set(Object.keys(data.distances)), 'other kinds');
}

function byScore({ score }: Embeddings, theme: Theme): Grouping {
  const groups = SCORES.map(([above, label], index): Group => {
    return { label, colour: SCORE_COLOURS[theme][index], shape: above >= 1 ? 'triangle' : 'circle' };
  });
  return { groups, group: Uint8Array.from(score, (one) => SCORES.findIndex(([above]) => one > above)) };
}

/** The names with the most recent windows get a colour and a shape each; the others share grey. */
function byName(
  of: number[],
  names: string[],
  isTraining: boolean[],
  anomalies: Set<string>,
  others: string,
): Grouping {
  const weights = new Array<number>(names.length).fill(0);
  of.forEach((name, index) => (weights[name] += isTraining[index] ? 0.001 : 1));
  const isPlain = (name: string) => name === IDLE || name === UNLABELLED;
  const order = names.map((_, index) => index).filter((index) => !isPlain(names[index]));
  order.sort((a, b) => Number(anomalies.has(names[b])) - Number(anomalies.has(names[a])) || weights[b] - weights[a]);
  const groups: Group[] = [];
  const groupOf = new Array<number>(names.length).fill(-1);
  let [nAnomalies, nCalm] = [0, 0];
  for (const name of order.slice(0, MAX_NAMED)) {
    groupOf[name] = groups.length;
    if (anomalies.has(names[name])) {
      const colour = ALARMING[nAnomalies++ % ALARMING.length];
      groups.push({ label: `${names[name]} (known anomaly)`, colour, shape: 'triangle' });
    } else {
      const place = nCalm++;
      const shape = SHAPES[Math.floor(place / CALM.length) % SHAPES.length];
      groups.push({ label: names[name], colour: CALM[place % CALM.length], shape });
    }
  }
  const rest = (label: string, colour: string, isIt: (name: number) => boolean) => {
    const members = groupOf.flatMap((place, name) => (place < 0 && isIt(name) ? [name] : []));
    if (members.length === 0) return;
    for (const name of members) groupOf[name] = groups.length;
    groups.push({ label, colour, shape: 'circle' });
  };
  rest(others, '--ink-2', (name) => !isPlain(names[name]));
  rest('job without a label', '--ink-2', (name) => names[name] === UNLABELLED);
  rest('no job, or several', '--line-strong', () => true);
  return { groups, group: Uint8Array.from(of, (name) => groupOf[name]) };
}
