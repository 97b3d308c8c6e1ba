// What every view shows of the cluster: its state, the current problems, and whether the server is reachable.

import { api, serverClock, type ClusterState, type Event } from '../api';
import { listeners } from '../api/client';
import { Poll } from './poll';
import { Stream, type StreamState } from './stream';

const STATE_SECONDS = 3;
const MAX_LAG_SECONDS = 5;
/** Many changes within this time cause one request. */
const GATHER_MS = 400;
const MAX_PROBLEMS = 1000;

class Live {
  cluster = $state.raw<ClusterState | null>(null);
  /** Open events that are not hidden, the strongest first. */
  problems = $state.raw<Event[] | null>(null);
  /** Grows with every change of an event, so that views load again. */
  changes = $state(0);
  stream = $state<StreamState>('connecting');
  isReachable = $state(true);
  lostSince = $state<number | null>(null);
  /** The server's time, once a second. */
  now = $state(serverClock.now());
  /** What screen readers are told. */
  announcement = $state('');

  private connection: Stream | null = null;
  private poll: Poll | null = null;
  private gathering: ReturnType<typeof setTimeout> | undefined;
  private tick: ReturnType<typeof setInterval> | undefined;

  start(): void {
    if (this.connection) return;
    this.tick = setInterval(() => {
      if (document.visibilityState === 'visible') this.now = serverClock.now();
    }, 1000);
    this.refresh();
    this.poll = new Poll(async (signal) => {
      const before = this.cluster?.open_events;
      this.cluster = await api.cluster(signal);
      // Proxies may hold back the stream; then this tells that something has changed.
      if (before !== undefined && before !== this.cluster.open_events) this.refresh();
    }, STATE_SECONDS);
    this.connection = new Stream(() => new EventSource(api.STREAM), {
      opened: () => this.refresh(),
      changed: () => this.refresh(),
      state: (state) => {
        this.stream = state;
      },
    });
    document.addEventListener('visibilitychange', this.onVisibility);
  }

  /** Nobody is logged in. */
  stop(): void {
    this.connection?.close();
    this.connection = null;
    this.poll?.stop();
    this.poll = null;
    clearInterval(this.tick);
    document.removeEventListener('visibilitychange', this.onVisibility);
    this.cluster = null;
    this.problems = null;
  }

  /** Loads the problems again, and tells views to do the same. */
  refresh(): void {
    if (this.gathering !== undefined) return;
    this.gathering = setTimeout(async () => {
      this.gathering = undefined;
      this.changes += 1;
      try {
        const { items } = await api.events({ open: true, hidden: false, limit: MAX_PROBLEMS });
        this.take(items.filter((one) => !one.hidden_by && !one.end));
      } catch {
        // The connection display says so, and the stream calls again when it is back.
      }
    }, GATHER_MS);
  }

  private take(open: Event[]): void {
    const before = this.problems?.length;
    this.problems = open.sort((a, b) => b.strength - a.strength);
    if (before !== undefined && before !== open.length) {
      this.announcement = open.length === 0 ? 'All problems are over.' : `${open.length} open problems.`;
    }
  }

  private onVisibility = () => {
    const isVisible = document.visibilityState === 'visible';
    this.connection?.visible(isVisible);
    if (isVisible) this.now = serverClock.now();
  };

  noteAnswer(): void {
    // The first answer tells how far the clock of the browser is off; views must not ask for a time that is to come.
    if (Math.abs(serverClock.now() - this.now) > MAX_LAG_SECONDS) this.now = serverClock.now();
    if (this.isReachable) return;
    this.isReachable = true;
    this.lostSince = null;
    this.announcement = 'The server responds again.';
    this.refresh();
  }

  noteUnreachable(): void {
    if (!this.isReachable) return;
    this.isReachable = false;
    this.lostSince = serverClock.now();
    this.announcement = 'The server does not respond.';
  }
}

export const live = new Live();
listeners.answered = () => live.noteAnswer();
listeners.unreachable = () => live.noteUnreachable();
