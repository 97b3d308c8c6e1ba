// Repeats a request while the page is visible, one at a time, more slowly after errors.

const MAX_WAIT_SECONDS = 30;

/** How long to wait after `failures` errors in a row. */
export function waitSeconds(every: number, failures: number): number {
  return failures === 0 ? every : Math.min(MAX_WAIT_SECONDS, every * 2 ** Math.min(failures, 10));
}

export interface Page {
  isVisible(): boolean;
  onVisible(listener: () => void): () => void;
}

const documentPage: Page = {
  isVisible: () => document.visibilityState === 'visible',
  onVisible(listener) {
    const changed = () => {
      if (document.visibilityState === 'visible') listener();
    };
    document.addEventListener('visibilitychange', changed);
    return () => document.removeEventListener('visibilitychange', changed);
  },
};

export class Poll {
  private timer: ReturnType<typeof setTimeout> | undefined;
  private abort: AbortController | null = null;
  private failures = 0;
  private isPaused = false;
  private isStopped = false;
  private readonly forget: () => void;

  constructor(
    private readonly work: (signal: AbortSignal) => Promise<void>,
    private readonly everySeconds: number,
    private readonly page: Page = documentPage,
  ) {
    this.forget = page.onVisible(() => this.now());
    this.now();
  }

  /** Asks at once, unless a request is under way or the poll is paused. */
  now(): void {
    if (this.isStopped || this.isPaused || this.abort || !this.page.isVisible()) return;
    clearTimeout(this.timer);
    void this.run();
  }

  set paused(paused: boolean) {
    if (this.isPaused === paused) return;
    this.isPaused = paused;
    if (paused) clearTimeout(this.timer);
    else this.now();
  }

  stop(): void {
    this.isStopped = true;
    clearTimeout(this.timer);
    this.abort?.abort();
    this.forget();
  }

  private async run(): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    // Effects create polls; what the work reads must not become a dependency of the effect.
    await Promise.resolve();
    try {
      await this.work(abort.signal);
      this.failures = 0;
    } catch {
      this.failures += 1;
    }
    this.abort = null;
    if (this.isStopped || this.isPaused) return;
    this.timer = setTimeout(() => this.now(), waitSeconds(this.everySeconds, this.failures) * 1000);
  }
}
