// What a model would have reported, next to what was recorded.

import type { Backtest } from '../../api/operations';
import type { Standing } from '../../api/types';
import type { TableData } from '../../charts/export';
import { dateTime, titleOf } from '../../format';

/** Reported then and now; only now; only then. */
export type Finding = 'both' | 'new' | 'missed';
export const FINDINGS: Finding[] = ['both', 'new', 'missed'];

export interface Compared {
  finding: Finding;
  id: string;
  /** The id of the recorded event. */
  recorded: string | null;
  title: string;
  node: string | null;
  opened: number;
  start: number;
  /** Null if it had not ended. */
  end: number | null;
  strength: number;
  standing: Standing | null;
  /** Whether a verdict in force hides it. */
  isHidden: boolean;
  why: string;
}

/** All events of a backtest in order of their opening. */
export function compared({ events, missed }: Backtest): Compared[] {
  const rows: Compared[] = events.map((event) => ({
    finding: event.recorded === null ? 'new' : 'both',
    id: event.id,
    recorded: event.recorded,
    title: titleOf(event),
    node: event.node ?? event.nodes[0] ?? null,
    opened: event.opened,
    start: event.start,
    end: event.end ?? null,
    strength: event.strength,
    standing: event.standing ?? null,
    isHidden: event.is_hidden,
    why: event.why,
  }));
  for (const { id, standing, opened, strength, why } of missed) {
    const unknown = { node: null, start: opened, end: null, isHidden: false, title: `Event ${id}` };
    rows.push({ finding: 'missed', id, recorded: id, ...unknown, opened, strength, standing, why });
  }
  return rows.sort((a, b) => a.opened - b.opened);
}

export interface Counts {
  both: number;
  new: number;
  /** Recorded events that it would not report, or less strongly than asked for. */
  missed: number;
  hidden: number;
  /** What people would see: not hidden, and strong enough. */
  reported: number;
  /** Confirmed anomalies that it would report, and all of them. */
  confirmedFound: number;
  confirmed: number;
}

/** What remains if only events of at least this strength are reported. */
export function countsAt(rows: Compared[], least: number): Counts {
  const counts: Counts = { both: 0, new: 0, missed: 0, hidden: 0, reported: 0, confirmedFound: 0, confirmed: 0 };
  for (const row of rows) {
    const isConfirmed = row.standing === 'anomaly';
    if (isConfirmed) counts.confirmed += 1;
    if (row.finding === 'missed') counts.missed += 1;
    else if (row.isHidden) counts.hidden += 1;
    else if (row.strength < least) counts.missed += row.finding === 'both' ? 1 : 0;
    else {
      counts[row.finding] += 1;
      counts.reported += 1;
      if (isConfirmed) counts.confirmedFound += 1;
    }
  }
  return counts;
}

export const perDay = (n: number, hours: number) => (hours > 0 ? (n * 24) / hours : null);

/** Events per day that remain at each strength that changes their number; strengths begin at 1. */
export function remaining(rows: Compared[], hours: number): { strength: number[]; perDay: number[] } {
  const strengths = rows
    .filter((row) => row.finding !== 'missed' && !row.isHidden)
    .map((row) => row.strength)
    .sort((a, b) => a - b);
  const [strength, left]: [number[], number[]] = [[1], [strengths.length]];
  strengths.forEach((value, index) => {
    // Two points for each step: up to the event's strength it counts, and above it does not.
    strength.push(value, value * 1.0001);
    left.push(strengths.length - index, strengths.length - index - 1);
  });
  return { strength, perDay: left.map((n) => perDay(n, hours) ?? 0) };
}

/** The slider has steps from 0 to `STEPS`, and strengths grow by the same factor with each. */
export const STEPS = 200;

export function strengthAt(step: number, largest: number): number {
  return Math.max(1, largest) ** (step / STEPS);
}

export function stepOf(strength: number, largest: number): number {
  if (largest <= 1 || strength <= 1) return 0;
  return Math.min(STEPS, Math.round((Math.log(strength) / Math.log(largest)) * STEPS));
}

export function comparedTable(rows: Compared[]): TableData {
  return {
    columns: ['event', 'opened', 'strength', 'compared', 'standing', 'hidden by a verdict', 'recorded as', 'why'],
    rows: rows.map((row) => [
      row.title,
      dateTime(row.opened),
      row.strength,
      row.finding,
      row.standing,
      row.isHidden ? 'yes' : 'no',
      row.recorded,
      row.why,
    ]),
  };
}
