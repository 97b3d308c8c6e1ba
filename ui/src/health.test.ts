import { expect, it } from 'vitest';

import type { ClusterState, Event } from './api/types';
import { health, progressOf } from './health';

const cluster: ClusterState = {
  cluster: 'c',
  time: 100,
  model: 'v1',
  state: 'scoring',
  nodes: 5,
  threads: 160,
  open_events: 0,
  missing: [],
};
const event = { subject: 'job', nodes: ['n1', 'n2'], node: 'n1' } as Event;

it('a healthy cluster is said to be normal', () => {
  expect(health(cluster, [], 103)).toEqual({ level: 'good', text: 'All normal on 5 nodes', notes: [] });
});

it('problems are counted with the nodes that they reached', () => {
  expect(health(cluster, [event, event], 103).text).toBe('2 problems on 2 of 5 nodes');
  expect(health(cluster, [{ ...event, subject: 'cluster' }], 103).text).toBe('1 problem on the whole cluster');
});

it('old scores are not called normal', () => {
  expect(health(cluster, [], 400)).toMatchObject({ level: 'unknown', text: 'No new scores for 5 min' });
});

it('without a model nothing is called normal', () => {
  expect(health({ ...cluster, model: null, state: 'collecting data' }, [], 103)).toMatchObject({
    level: 'unknown',
    text: 'Not watching yet',
  });
});

it('a server that never responded is not called loading', () => {
  expect(health(null, null, 103).level).toBe('loading');
  expect(health(null, null, 103, false).text).toBe('The server does not respond');
});

it('missing nodes are mentioned', () => {
  expect(health({ ...cluster, missing: ['n9'] }, [], 103).notes).toEqual(['1 node is missing']);
});

it('the progress of collecting is read from the state', () => {
  expect(progressOf('collecting data: 12 of 180 min for the first model')).toEqual({ done: 12, needed: 180 });
  expect(progressOf('scoring with model v1')).toBeNull();
});
