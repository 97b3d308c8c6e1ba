// Queries of traces take the server long, and it refuses more than a few at a time. So a page sends one after the other,
// and tries again if other pages keep the server busy.

import { ApiError } from './client';

const WAITS_MS = [300, 700, 1500, 3000, 5000];

export class Queue {
  private last: Promise<unknown> = Promise.resolve();

  constructor(private readonly waits: number[] = WAITS_MS) {}

  /** Runs the work when all before it is done. Work that is given up does not start. */
  run<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const mine = this.last.then(() => this.patiently(work, signal));
    this.last = mine.catch(() => {});
    return mine;
  }

  private async patiently<T>(work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    for (const wait of this.waits) {
      signal?.throwIfAborted();
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof ApiError && error.status === 503)) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
    signal?.throwIfAborted();
    return work();
  }
}
