import { expect, it } from 'vitest';

import { Clock } from './clock';
import { sentence, withQuery } from './client';

it('a browser that is an hour behind shows the time of the server', () => {
  const clock = new Clock(() => 1000);
  clock.note(new Date(4600_000).toUTCString());
  expect(clock.now()).toBe(4600);
});

it('the whole seconds of a header do not make the clock jump', () => {
  let now = 1000.9;
  const clock = new Clock(() => now);
  clock.note(new Date(1000_000).toUTCString());
  expect(clock.offset).toBe(0);
  now = 1003;
  clock.note('no date');
  clock.note(null);
  expect(clock.now()).toBe(1003);
});

it('messages of the server become sentences', () => {
  expect(sentence('there is no event "x"')).toBe('There is no event "x".');
  expect(sentence('Wait!')).toBe('Wait!');
});

it('parameters without a value are left out', () => {
  expect(withQuery('a', { b: null, c: undefined, d: '', e: false, f: 0, g: 'x y' })).toBe('a?e=false&f=0&g=x+y');
});
