import { describe, expect, it } from 'vitest';

import type { Event, Night, Verdict } from '../api/types';
import { eventQuery, isTab, listQuery, TABS } from './events/filters';
import { lastOwn, leftBehind, newest, openSimilar, suggestions } from './events/verdict';
import { curves, falsePerDay, found, outcome } from './models/night';
import { fixed, panned, shownTime, zoomed } from './traces/range';

const verdict = (number: number, changes: Partial<Verdict> = {}): Verdict => ({
  number,
  event: 'e',
  answer: 'anomaly',
  comment: '',
  actor: 'ada',
  time: 0,
  scope: 'cluster',
  expires: 0,
  is_undone: false,
  ...changes,
});

describe('a verdict without an answer from the server', () => {
  const request = { answer: 'anomaly', kind: ' bad-io ' } as const;

  it('is found if it was saved', () => {
    const verdicts = [verdict(4, { kind: 'bad-io' }), verdict(7, { kind: 'bad-io' })];
    expect(leftBehind(verdicts, 4, request, 'ada')?.number).toBe(7);
  });

  it('is not mistaken for an older one, one of somebody else, another answer or an undone one', () => {
    const others = [
      verdict(4, { kind: 'bad-io' }),
      verdict(5, { kind: 'bad-io', actor: 'bob' }),
      verdict(6, { answer: 'unsure' }),
      verdict(7, { kind: 'bad-io', is_undone: true }),
      verdict(8, { kind: 'other' }),
    ];
    expect(leftBehind(others, newest([verdict(4)]), request, 'ada')).toBeNull();
  });
});

describe('verdicts', () => {
  it("that are undone by a key are one's own and in force", () => {
    expect(lastOwn([verdict(1), verdict(2, { is_undone: true }), verdict(3, { actor: 'bob' })], 'ada')?.number).toBe(1);
    expect(lastOwn([], 'ada')).toBeNull();
  });

  it('are offered for similar events that are open and wait', () => {
    const event = (id: string, changes: Partial<Event> = {}) => ({
      event: { id, end: null, ...changes } as Event,
      distance: 1,
    });
    const similar = [
      event('a'),
      event('b', { end: 5 }),
      event('c', { hidden_by: 3 }),
      event('d', { standing: 'normal' }),
      event('e'),
    ];
    expect(openSimilar(similar, 'e').map((one) => one.id)).toEqual(['a']);
  });

  it('suggest what the event resembles first', () => {
    const kinds = [
      { kind: 'np', confidence: 0.1 },
      { kind: 'bad-io', confidence: 0.8 },
    ];
    expect(suggestions({ kinds } as Event, ['np', 'hang'])).toEqual(['bad-io', 'np', 'hang']);
  });
});

describe('filters', () => {
  it('are the queue without parameters', () => {
    expect(eventQuery({}, 0)).toMatchObject({ standing: 'unvetted', hidden: false, open: undefined });
    expect(isTab(TABS[0], {})).toBe(true);
    expect(isTab(TABS[1], {})).toBe(false);
  });

  it('can be taken off', () => {
    expect(eventQuery({ standing: 'any', hidden: 'any', open: 'false' }, 0)).toMatchObject({
      standing: undefined,
      hidden: undefined,
      open: false,
    });
  });

  it('do not change the request every second', () => {
    expect(eventQuery({ within: '3600' }, 7201)).toEqual(eventQuery({ within: '3600' }, 7203));
  });

  it('are kept from event to event, and the zoom is not', () => {
    expect(listQuery({ node: 'n1', from: '1', cpu: '3' })).toEqual({ node: 'n1' });
  });
});

describe('the shown time', () => {
  it('follows by default', () => {
    expect(shownTime({}, 1000)).toEqual({ from: 100, to: 1000, isFollowing: true });
    expect(shownTime({ last: '60' }, 1000)).toEqual({ from: 940, to: 1000, isFollowing: true });
  });

  it('is fixed by an address', () => {
    expect(shownTime({ from: '5', to: '50' }, 1000, [1, 2])).toEqual({ from: 5, to: 50, isFollowing: false });
    expect(shownTime({ from: '50', to: '5' }, 1000).isFollowing).toBe(true);
  });

  it('is that around an event if nothing else is asked for', () => {
    expect(shownTime({}, 1000, [1, 200])).toEqual({ from: 1, to: 200, isFollowing: false });
  });

  it('can be moved and zoomed', () => {
    const shown = { from: 100, to: 200, isFollowing: true };
    expect(panned(shown, -0.5)).toEqual({ from: '50.0', to: '150.0', last: null });
    expect(zoomed(shown, 2)).toEqual({ from: '50.0', to: '250.0', last: null });
    expect(fixed(10, 11)).toEqual({ from: '8.0', to: '13.0', last: null });
  });
});

describe('competitions', () => {
  const figures = {
    reconstruction_error: 0.1,
    n_false_events: 2,
    hours: 12,
    n_found: 3,
    n_anomalies: 4,
    injected_found: 0.9,
  };

  it('have figures per day and per anomaly', () => {
    expect(falsePerDay(figures)).toBe(4);
    expect(falsePerDay({ ...figures, hours: 0 })).toBe(0);
    expect(found(figures)).toBe(0.75);
    expect(found({ ...figures, n_anomalies: 0 })).toBe(0.9);
  });

  it('say who won', () => {
    const night = { winner: 'v2', winning_candidate: 'ae', needs_approval: true } as Night;
    expect(outcome(night)).toBe('ae won and waits for approval');
    expect(outcome({ ...night, winner: null })).toBe('The champion stayed');
  });

  it('have curves of different lengths', () => {
    const candidate = (name: string, n: number) => ({ name, epochs: Array(n).fill({ training: 1, validation: 2 }) });
    const night = { candidates: [candidate('a', 2), candidate('b', 1), candidate('pca', 0)] } as Night;
    const { epochs, lines } = curves(night);
    expect(epochs).toEqual([1, 2]);
    expect(lines.map((line) => line.validation)).toEqual([
      [2, 2],
      [2, null],
    ]);
  });
});
