import { expect, it } from 'vitest';

import { ApiError } from './client';
import { Queue } from './queue';

const busy = () => new ApiError(503, 'unavailable', 'busy');

it('work is done one after the other', async () => {
  const queue = new Queue([]);
  const seen: string[] = [];
  const work = (name: string) => async () => {
    seen.push(`begin ${name}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
    seen.push(`end ${name}`);
  };
  await Promise.all([queue.run(work('a')), queue.run(work('b'))]);
  expect(seen).toEqual(['begin a', 'end a', 'begin b', 'end b']);
});

it('a busy server is asked again', async () => {
  let calls = 0;
  const answer = await new Queue([1, 1]).run(async () => {
    calls += 1;
    if (calls < 3) throw busy();
    return 'done';
  });
  expect([answer, calls]).toEqual(['done', 3]);
});

it('other errors are reported at once, and do not stop the queue', async () => {
  const queue = new Queue([1]);
  const wrong = queue.run(() => Promise.reject(new ApiError(400, 'bad_request', 'no')));
  const next = queue.run(async () => 'next');
  await expect(wrong).rejects.toThrow('no');
  expect(await next).toBe('next');
});

it('work that was given up does not start', async () => {
  const abort = new AbortController();
  abort.abort();
  let isStarted = false;
  const given = new Queue([]).run(async () => {
    isStarted = true;
  }, abort.signal);
  await expect(given).rejects.toThrow();
  expect(isStarted).toBe(false);
});
