// The one sentence that says whether the cluster is healthy.

import type { ClusterState, Event } from './api/types';
import { counted, duration } from './format';

export type Level = 'loading' | 'good' | 'problem' | 'unknown';

export interface Health {
  level: Level;
  text: string;
  /** What else should be known, in the order of importance. */
  notes: string[];
}

/** Scores older than this say nothing about now. The service scores every five seconds. */
const STALE_SECONDS = 60;

export function health(
  cluster: ClusterState | null,
  problems: Event[] | null,
  now: number,
  isReachable = true,
): Health {
  if (cluster === null || problems === null) {
    return isReachable
      ? { level: 'loading', text: 'Loading…', notes: [] }
      : { level: 'unknown', text: 'The server does not respond', notes: [] };
  }
  const notes = notesOf(cluster);
  if (!cluster.model) return { level: 'unknown', text: 'Not watching yet', notes };
  if (cluster.time === null || cluster.time === undefined) {
    return { level: 'unknown', text: 'Waiting for the first scores', notes };
  }
  if (problems.length > 0) {
    return { level: 'problem', text: `${counted(problems.length, 'problem')} on ${where(problems, cluster)}`, notes };
  }
  const age = now - cluster.time;
  if (age > STALE_SECONDS) return { level: 'unknown', text: `No new scores for ${duration(age)}`, notes };
  return { level: 'good', text: `All normal on ${counted(cluster.nodes, 'node')}`, notes };
}

function notesOf(cluster: ClusterState): string[] {
  const missing = cluster.missing.length;
  return missing === 0 ? [] : [`${counted(missing, 'node is', 'nodes are')} missing`];
}

function where(problems: Event[], cluster: ClusterState): string {
  if (problems.some((event) => event.subject === 'cluster')) return 'the whole cluster';
  const nodes = new Set(
    problems.flatMap((event) => (event.nodes.length > 0 ? event.nodes : event.node ? [event.node] : [])),
  );
  return `${nodes.size} of ${counted(Math.max(cluster.nodes, nodes.size), 'node')}`;
}

/** The state of a service that collects data, as a part of what it needs; null in other states. */
export function progressOf(state: string): { done: number; needed: number } | null {
  const found = /^collecting data: (\d+) of (\d+) min/.exec(state);
  return found ? { done: Number(found[1]), needed: Number(found[2]) } : null;
}
