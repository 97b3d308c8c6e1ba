// What is said about an attempt in tooltips, for screen readers and in tables.

import type { TableData } from '../charts/export';
import { cut, dateTime, duration, number } from '../format';
import { partName } from './palette';
import type { Attempts, Rows } from './rows';

export interface Delay {
  part: string;
  name: string;
  seconds: number;
}

export interface Description {
  task: string;
  /** Kind, sub-workflow and attempt. */
  about: string;
  hasFailed: boolean;
  isCritical: boolean;
  start: string;
  seconds: number;
  /** Those that take time. */
  delays: Delay[];
}

/** Seconds with as many digits as are needed. */
export const exact = (seconds: number) => (seconds < 60 ? `${number(seconds)} s` : duration(seconds));

export function describe(attempts: Attempts, index: number): Description {
  const { chart, start, end } = attempts;
  const workflow = chart.workflows[chart.workflow[index]];
  const about = [`kind ${cut(chart.kinds[chart.kind[index]] ?? '?', 60)}`];
  if (workflow) about.push(`sub-workflow ${cut(workflow, 60)}`);
  if (chart.attempt[index] > 1) about.push(`attempt ${chart.attempt[index]}`);
  return {
    task: chart.task[index],
    about: about.join(', '),
    hasFailed: chart.failed[index] === 1,
    isCritical: chart.critical[index] === 1,
    start: dateTime(chart.start + start[index]),
    seconds: end[index] - start[index],
    delays: delaysOf(attempts, index).filter((one) => one.seconds > 0),
  };
}

function delaysOf({ chart, ends }: Attempts, index: number): Delay[] {
  return chart.parts.map((part, at) => ({
    part,
    name: partName(part),
    seconds: ends[at][index] - (at === 0 ? 0 : ends[at - 1][index]),
  }));
}

export function spoken(one: Description): string {
  const marks = `${one.hasFailed ? ', failed' : ''}${one.isCritical ? ', on the critical path' : ''}`;
  const delays = one.delays.map((delay) => `${delay.name} ${exact(delay.seconds)}`).join(', ');
  return `${cut(one.task, 80)}, ${one.about}${marks}. ${delays}.`;
}

const ROLES = ['compute', 'transfer', 'auxiliary'];

/** All rows with their delays in seconds. */
export function tableOf(attempts: Attempts, rows: Rows): TableData {
  const { chart } = attempts;
  return {
    columns: [
      ...['task', 'attempt', 'kind', 'sub-workflow', 'role', 'failed', 'critical', 'start', 'end'],
      ...chart.parts,
    ],
    rows: Array.from(rows.attempt, (index) => [
      chart.task[index],
      chart.attempt[index],
      chart.kinds[chart.kind[index]],
      chart.workflows[chart.workflow[index]],
      ROLES[chart.role[index]] ?? null,
      chart.failed[index] ? 'failed' : '',
      chart.critical[index] ? 'critical' : '',
      rounded(attempts.start[index]),
      rounded(attempts.end[index]),
      ...delaysOf(attempts, index).map((delay) => rounded(delay.seconds)),
    ]),
  };
}

const rounded = (seconds: number) => Math.round(seconds * 1000) / 1000;
