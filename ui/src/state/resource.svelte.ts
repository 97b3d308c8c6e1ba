// Data of one request that a view shows. The last answer stays while a new one is on its way or fails.

import { ApiError, messageOf, Unreachable } from '../api';

export class Resource<T> {
  value = $state.raw<T | null>(null);
  error = $state<string | null>(null);
  isLoading = $state(false);
  isNotFound = $state(false);
  private abort: AbortController | null = null;

  /** Replaces the request that is under way. Errors are kept and also thrown, so that polls slow down. */
  async load(work: (signal: AbortSignal) => Promise<T>): Promise<void> {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    this.isLoading = true;
    try {
      const value = await work(abort.signal);
      if (abort.signal.aborted) return;
      this.value = value;
      this.error = null;
      this.isNotFound = false;
    } catch (error) {
      if (abort.signal.aborted) return;
      this.isNotFound = error instanceof ApiError && error.status === 404;
      // That the server is away is shown once, at the top of the page.
      this.error = error instanceof Unreachable && this.value !== null ? null : messageOf(error);
      throw error;
    } finally {
      if (this.abort === abort) this.isLoading = false;
    }
  }

  /** For loads that nobody waits for. */
  start(work: (signal: AbortSignal) => Promise<T>): void {
    this.load(work).catch(() => {});
  }

  clear(): void {
    this.abort?.abort();
    this.value = null;
    this.error = null;
    this.isNotFound = false;
  }
}
