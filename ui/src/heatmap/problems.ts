// Where open events are on the map. An event may have other evidence than the scores of single threads, so its job or
// node is marked as well.

import type { Event } from '../api/types';
import type { Row } from './geometry';
import type { Owners } from './jobs';

/** More outlines than this would hide the picture. */
const MAX_JOBS = 200;

export interface ProblemPlaces {
  /** Numbers of jobs, as in `Owners`. */
  jobs: Set<number>;
  rows: Set<number>;
}

export function placesOf(problems: Event[], rows: Row[], owners: Owners): ProblemPlaces {
  const places: ProblemPlaces = { jobs: new Set(), rows: new Set() };
  if (problems.length === 0) return places;
  const rowOf = new Map(rows.map((row, index) => [row.node, index]));
  const jobOf = new Map(owners.names.map((name, index) => [name, index]));
  for (const event of problems) {
    const job = event.subject === 'job' ? jobOf.get(event.jobs[0]) : undefined;
    if (job !== undefined && places.jobs.size < MAX_JOBS) places.jobs.add(job);
    for (const node of event.nodes.length > 0 ? event.nodes : [event.node ?? '']) {
      const row = rowOf.get(node);
      if (row !== undefined) places.rows.add(row);
    }
  }
  return places;
}
