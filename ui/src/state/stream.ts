// The stream of changes. `EventSource` resumes by itself after a lost connection; after an HTTP error it gives up, and a
// new one is opened. Hidden tabs close theirs: browsers allow only six connections to a server.

import { waitSeconds } from './poll';

export const CHANGES = ['opened', 'reopened', 'closed', 'hidden', 'shown', 'vetted'] as const;
export type ChangeName = (typeof CHANGES)[number];

export type StreamState = 'connecting' | 'open' | 'lost' | 'asleep';

const HIDDEN_SECONDS = 60;
const RETRY_SECONDS = 2;

export interface StreamListeners {
  /** The connection is there, perhaps again: what was missed in between is not known. */
  opened(): void;
  changed(name: ChangeName, data: string): void;
  state(state: StreamState): void;
}

export interface Source {
  readonly readyState: number;
  addEventListener(type: string, listener: (event: MessageEvent) => void): void;
  close(): void;
}

export class Stream {
  private source: Source | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;

  constructor(
    private readonly connect: () => Source,
    private readonly listeners: StreamListeners,
  ) {
    this.open();
  }

  open(): void {
    clearTimeout(this.timer);
    if (this.source) return;
    this.listeners.state(this.failures === 0 ? 'connecting' : 'lost');
    const source = this.connect();
    this.source = source;
    source.addEventListener('open', () => {
      this.failures = 0;
      this.listeners.state('open');
      this.listeners.opened();
    });
    source.addEventListener('error', () => {
      if (this.source !== source) return;
      this.listeners.state('lost');
      if (source.readyState !== 2) return;
      this.failures += 1;
      this.close();
      this.timer = setTimeout(() => this.open(), waitSeconds(RETRY_SECONDS, this.failures) * 1000);
    });
    for (const name of CHANGES) {
      source.addEventListener(name, (event) => this.listeners.changed(name, String(event.data)));
    }
  }

  /** The page became visible or hidden. */
  visible(isVisible: boolean): void {
    clearTimeout(this.timer);
    if (isVisible) this.open();
    else
      this.timer = setTimeout(() => {
        this.close();
        this.listeners.state('asleep');
      }, HIDDEN_SECONDS * 1000);
  }

  close(): void {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }
}
