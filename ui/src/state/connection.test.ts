import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { type Page, Poll, waitSeconds } from './poll';
import { type Source, Stream } from './stream';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

class FakePage implements Page {
  visible = true;
  private listener = () => {};
  isVisible = () => this.visible;
  onVisible(listener: () => void) {
    this.listener = listener;
    return () => {
      this.listener = () => {};
    };
  }
  show() {
    this.visible = true;
    this.listener();
  }
}

describe('a poll', () => {
  it('repeats while the page is visible', async () => {
    const page = new FakePage();
    const work = vi.fn(async () => {});
    const poll = new Poll(work, 2, page);
    await vi.advanceTimersByTimeAsync(4100);
    expect(work).toHaveBeenCalledTimes(3);
    page.visible = false;
    await vi.advanceTimersByTimeAsync(60_000);
    expect(work).toHaveBeenCalledTimes(3);
    page.show();
    await vi.advanceTimersByTimeAsync(0);
    expect(work).toHaveBeenCalledTimes(4);
    poll.stop();
  });

  it('never has two requests under way', async () => {
    let running = 0;
    let most = 0;
    const work = async () => {
      running += 1;
      most = Math.max(most, running);
      await new Promise((resolve) => setTimeout(resolve, 9000));
      running -= 1;
    };
    const poll = new Poll(work, 2, new FakePage());
    for (let second = 0; second < 30; second += 1) {
      poll.now();
      await vi.advanceTimersByTimeAsync(1000);
    }
    expect(most).toBe(1);
    poll.stop();
  });

  it('can be paused and continued', async () => {
    const work = vi.fn(async () => {});
    const poll = new Poll(work, 2, new FakePage());
    await vi.advanceTimersByTimeAsync(100);
    poll.paused = true;
    await vi.advanceTimersByTimeAsync(20_000);
    expect(work).toHaveBeenCalledTimes(1);
    poll.paused = false;
    await vi.advanceTimersByTimeAsync(0);
    expect(work).toHaveBeenCalledTimes(2);
    poll.stop();
  });

  it('asks less often while the server fails', () => {
    expect([0, 1, 2, 3, 9].map((failures) => waitSeconds(2, failures))).toEqual([2, 4, 8, 16, 30]);
  });
});

class FakeSource implements Source {
  readyState = 0;
  isClosed = false;
  private readonly listeners = new Map<string, (event: MessageEvent) => void>();
  addEventListener(type: string, listener: (event: MessageEvent) => void) {
    this.listeners.set(type, listener);
  }
  close() {
    this.isClosed = true;
    this.readyState = 2;
  }
  fire(type: string, data = '') {
    this.listeners.get(type)?.({ data } as MessageEvent);
  }
}

function connected() {
  const sources: FakeSource[] = [];
  const seen: string[] = [];
  const connect = () => {
    sources.push(new FakeSource());
    return sources[sources.length - 1];
  };
  const stream = new Stream(connect, {
    opened: () => seen.push('opened'),
    changed: (name) => seen.push(name),
    state: (state) => seen.push(`is ${state}`),
  });
  return { stream, sources, seen };
}

describe('the stream', () => {
  it('leaves short interruptions to the browser', () => {
    const { sources, seen } = connected();
    sources[0].readyState = 1;
    sources[0].fire('open');
    sources[0].readyState = 0;
    sources[0].fire('error');
    sources[0].fire('open');
    sources[0].fire('closed');
    expect(sources).toHaveLength(1);
    expect(seen).toEqual(['is connecting', 'is open', 'opened', 'is lost', 'is open', 'opened', 'closed']);
  });

  it('is opened again after the browser gave up, as when a proxy answers for the server', async () => {
    const { sources, seen } = connected();
    sources[0].readyState = 2;
    sources[0].fire('error');
    await vi.advanceTimersByTimeAsync(4100);
    expect(sources).toHaveLength(2);
    sources[1].fire('open');
    expect(seen.slice(-2)).toEqual(['is open', 'opened']);
  });

  it('is closed while the page is hidden for long, and opened when it is back', async () => {
    const { stream, sources, seen } = connected();
    stream.visible(false);
    await vi.advanceTimersByTimeAsync(30_000);
    stream.visible(true);
    expect(sources[0].isClosed).toBe(false);
    stream.visible(false);
    await vi.advanceTimersByTimeAsync(61_000);
    expect(sources[0].isClosed).toBe(true);
    expect(seen).toContain('is asleep');
    stream.visible(true);
    expect(sources).toHaveLength(2);
  });
});
