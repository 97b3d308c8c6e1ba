import { describe, expect, it } from 'vitest';

import { changed, href, numberOf, parse, type Route } from './routes';

describe('addresses', () => {
  it('names every view', () => {
    expect(parse('').route).toEqual({ view: 'cluster' });
    expect(parse('#/').route).toEqual({ view: 'cluster' });
    expect(parse('#/events').route).toEqual({ view: 'events', id: null });
    expect(parse('#/models?night=3')).toEqual({ route: { view: 'models' }, query: { night: '3' } });
    expect(parse('#/embeddings?projection=umap').route).toEqual({ view: 'embeddings' });
    expect(parse('#/backtest?operation=3')).toEqual({ route: { view: 'backtest' }, query: { operation: '3' } });
    expect(parse('#/sampling').route).toEqual({ view: 'sampling' });
    expect(parse('#/job-traces').route).toEqual({ view: 'job-traces', name: null, other: null });
    expect(parse('#/workflows/a.csv').route).toEqual({ view: 'workflows', name: 'a.csv', other: null });
    expect(parse('#/workflows/a/compare/b').route).toEqual({ view: 'workflows', name: 'a', other: 'b' });
    expect(parse('#/login?back=%23%2Fevents').query.back).toBe('#/events');
  });

  it('survives names with markup, slashes and emoji', () => {
    for (const name of ['a/b', '<b>', '100 %', 'a?b=c&d', '🙂', '#', '..', 'x'.repeat(10_000)]) {
      const routes: Route[] = [
        { view: 'node', node: name },
        { view: 'job', job: name },
        { view: 'events', id: name },
        { view: 'workflows', name, other: null },
        { view: 'job-traces', name, other: name },
      ];
      for (const route of routes) expect(parse(href(route, { from: 1.5 }))).toEqual({ route, query: { from: '1.5' } });
    }
  });

  it('that nobody knows are unknown', () => {
    const others = ['#/nonsense', '#/nodes', '#/nodes/a/b', '#/nodes/%E0%A4%A', '#/models/x', '#/backtest/7'];
    const stored = ['#/workflows/a/b', '#/workflows/a/compare', '#/job-traces/%E0%A4%A', '#/job-traces/a/compare/b/c'];
    for (const hash of [...others, ...stored]) {
      expect(parse(hash).route.view).toBe('unknown');
    }
  });

  it('lose parameters that are set to nothing', () => {
    expect(changed({ a: '1', b: '2' }, { a: null, c: 3, d: '' })).toEqual({ b: '2', c: '3' });
    expect(href({ view: 'models' }, { night: null })).toBe('#/models');
  });

  it('have numbers only where there are some', () => {
    expect(numberOf({ from: '12.5' }, 'from')).toBe(12.5);
    expect(numberOf({ from: 'x' }, 'from')).toBeNull();
    expect(numberOf({}, 'from')).toBeNull();
  });
});
