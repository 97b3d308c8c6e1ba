// The attempts of a run as rows of a chart: which ones, in which order, and what drawing needs of them in typed arrays.

import type { WorkflowChart } from '../api/workflows';

/** The columns of a chart in typed arrays, by the position of an attempt. */
export interface Attempts {
  chart: WorkflowChart;
  n: number;
  /** The first part that is drawn. Waiting for other tasks is left blank. */
  firstPart: number;
  start: Float64Array;
  end: Float64Array;
  /** For each part, the end of it in each attempt. */
  ends: Float64Array[];
  longestPart: Uint8Array;
  /** The larger, the more important: failed before critical before the longest part. */
  rank: Float64Array;
}

/** More than any part takes, so that the reasons to be important do not mix. */
const CRITICAL = 1e12;
const FAILED = 2e12;
const HIGHLIGHTED = 4e12;

export function attemptsOf(chart: WorkflowChart): Attempts {
  const n = chart.task.length;
  const firstPart = chart.parts.indexOf('ready') + 1;
  const ends = chart.ends.map((column) => Float64Array.from(column));
  const start = firstPart === 0 ? new Float64Array(n) : ends[firstPart - 1];
  const end = ends[ends.length - 1] ?? start;
  const longestPart = new Uint8Array(n);
  const rank = new Float64Array(n);
  for (let index = 0; index < n; index += 1) {
    let [longest, from] = [-1, start[index]];
    for (let part = firstPart; part < ends.length; part += 1) {
      const to = ends[part][index];
      if (to - from > longest) {
        longest = to - from;
        longestPart[index] = part;
      }
      from = to;
    }
    rank[index] = longest + (chart.critical[index] ? CRITICAL : 0) + (chart.failed[index] ? FAILED : 0);
  }
  return { chart, n, firstPart, start, end, ends, longestPart, rank };
}

export const ORDERS = ['start', 'kind', 'workflow'] as const;
export type Order = (typeof ORDERS)[number];

export interface Choice {
  order: Order;
  /** Names; null for all. */
  kind: string | null;
  workflow: string | null;
  /** A part of the name of a task. */
  text: string;
}

export const EVERYTHING: Choice = { order: 'start', kind: null, workflow: null, text: '' };

/** Neighbouring rows of the same kind or sub-workflow. */
export interface Group {
  name: string;
  first: number;
  n: number;
}

/** What is drawn, from top to bottom. */
export interface Rows {
  n: number;
  /** The attempt of each row. */
  attempt: Uint32Array;
  /** The row of each attempt; −1 if it is not shown. */
  rowOf: Int32Array;
  start: Float64Array;
  end: Float64Array;
  /** Rows that failed, from top to bottom. */
  failed: Uint32Array;
  /** Rows on the critical path, from the first to the last in time. */
  critical: Uint32Array;
  /** Empty if rows are in the order of time. */
  groups: Group[];
}

export function rowsOf(attempts: Attempts, choice: Choice): Rows {
  const { chart } = attempts;
  const attempt = Uint32Array.from(chosen(attempts, choice));
  const names = choice.order === 'kind' ? chart.kinds : chart.workflows;
  const group = choice.order === 'start' ? null : choice.order === 'kind' ? chart.kind : chart.workflow;
  const place = group ? placesOf(attempts, attempt, group, names.length) : null;
  const byTime = (a: number, b: number) => attempts.start[a] - attempts.start[b] || a - b;
  attempt.sort(
    place && group ? (a, b) => place[group[a]] - place[group[b]] || byTime(a, b) : byTime,
  );
  const n = attempt.length;
  const rowOf = new Int32Array(attempts.n).fill(-1);
  const start = new Float64Array(n);
  const end = new Float64Array(n);
  const [failed, critical]: number[][] = [[], []];
  const groups: Group[] = [];
  for (let row = 0; row < n; row += 1) {
    const index = attempt[row];
    rowOf[index] = row;
    start[row] = attempts.start[index];
    end[row] = attempts.end[index];
    if (chart.failed[index]) failed.push(row);
    if (chart.critical[index]) critical.push(row);
    if (group === null) continue;
    if (row > 0 && group[attempt[row - 1]] === group[index]) groups[groups.length - 1].n += 1;
    else groups.push({ name: names[group[index]], first: row, n: 1 });
  }
  critical.sort((a, b) => end[a] - end[b]);
  return {
    ...{ n, attempt, rowOf, start, end, groups },
    ...{ failed: Uint32Array.from(failed), critical: Uint32Array.from(critical) },
  };
}

function chosen({ chart, n }: Attempts, choice: Choice): number[] {
  const kind = choice.kind === null ? -1 : chart.kinds.indexOf(choice.kind);
  const workflow = choice.workflow === null ? -1 : chart.workflows.indexOf(choice.workflow);
  const text = choice.text.trim().toLowerCase();
  const found: number[] = [];
  for (let index = 0; index < n; index += 1) {
    if (kind >= 0 && chart.kind[index] !== kind) continue;
    if (workflow >= 0 && chart.workflow[index] !== workflow) continue;
    if (text !== '' && !chart.task[index].toLowerCase().includes(text)) continue;
    found.push(index);
  }
  return found;
}

/** The place of each group: those that start first are above the others. */
function placesOf(attempts: Attempts, shown: Uint32Array, group: number[], nGroups: number): Int32Array {
  const first = new Float64Array(nGroups).fill(Infinity);
  for (const index of shown) first[group[index]] = Math.min(first[group[index]], attempts.start[index]);
  const order = Array.from(first.keys()).sort((a, b) => (first[a] === first[b] ? a - b : first[a] - first[b]));
  const place = new Int32Array(nGroups);
  order.forEach((one, index) => (place[one] = index));
  return place;
}

/** How important each row is. Rows that stand out are more important than all others. */
export function ranksOf(attempts: Attempts, rows: Rows, highlighted: Uint8Array | null): Float64Array {
  const ranks = new Float64Array(rows.n);
  for (let row = 0; row < rows.n; row += 1) {
    const index = rows.attempt[row];
    ranks[row] = attempts.rank[index] + (highlighted?.[index] ? HIGHLIGHTED : 0);
  }
  return ranks;
}

/** 1 for each attempt at one of these tasks; null if there is none. */
export function attemptsAt(attempts: Attempts, tasks: Iterable<string>): Uint8Array | null {
  const names = new Set(tasks);
  const found = new Uint8Array(attempts.n);
  let isAny = false;
  attempts.chart.task.forEach((task, index) => {
    if (!names.has(task)) return;
    found[index] = 1;
    isAny = true;
  });
  return isAny ? found : null;
}
