// A long operation of the server, as a view shows it. Its number is in the address, so a reload finds it again.

import { untrack } from 'svelte';

import { api, ApiError, messageOf, serverClock } from '../api';
import type { Operation, OperationKind } from '../api/operations';
import { Poll } from './poll';
import { router } from './router.svelte';

const POLL_SECONDS = 1;
/** A result for the same parameters is used again for so long. */
const REUSE_SECONDS = 600;

/** Operations that this page started, by their kind and parameters. */
const recent = new Map<string, { number: number; time: number }>();

/** The numbers of all operations that this page started. */
const own = new Set<number>();

export class OperationRun<R> {
  item = $state.raw<Operation<R> | null>(null);
  /** Why it could not be started or asked for. */
  error = $state<string | null>(null);
  isStarting = $state(false);
  /** The server does not know the number: it was restarted, or the operation is too old. */
  isForgotten = $state(false);
  isCancelling = $state(false);

  /** `others` are kinds of operations with the same kind of result; `belongs` tells whether a result is one of this view. */
  constructor(
    readonly kind: OperationKind,
    private readonly others: OperationKind[] = [],
    private readonly belongs: (result: R) => boolean = () => true,
  ) {}

  get result(): R | null {
    return this.item?.state === 'done' ? (this.item.result ?? null) : null;
  }

  get isRunning(): boolean {
    return this.isStarting || this.item?.state === 'running';
  }

  /** Whether this page started it; others may wait for operations that they started. */
  get isOwn(): boolean {
    return this.item !== null && own.has(this.item.number);
  }

  /** Starts an operation. With a `key`, one with the same key that was started a short time ago is shown again. */
  async start(begin: () => Promise<Operation<R>>, key: string | null = null): Promise<void> {
    if (this.isStarting) return;
    const name = `${this.kind} ${key}`;
    const before = key === null ? undefined : recent.get(name);
    this.error = null;
    if (before && serverClock.now() - before.time < REUSE_SECONDS) {
      router.set({ operation: before.number });
      return;
    }
    this.isStarting = true;
    const view = router.place.route.view;
    try {
      const item = await begin();
      own.add(item.number);
      if (key !== null) recent.set(name, { number: item.number, time: serverClock.now() });
      if (router.place.route.view === view) {
        this.item = item;
        this.isForgotten = false;
        router.set({ operation: item.number });
      }
    } catch (error) {
      this.error = messageOf(error);
    } finally {
      this.isStarting = false;
    }
  }

  /** Forgets that this page has a result for these parameters. */
  renew(key: string): void {
    recent.delete(`${this.kind} ${key}`);
    this.error = null;
  }

  /** Asks for an operation until it ends. Returns what ends the asking. */
  follow(number: number | null): () => void {
    if (untrack(() => this.item?.number) !== number) this.item = null;
    this.isForgotten = false;
    this.isCancelling = false;
    if (number === null) return () => {};
    this.error = null;
    const poll: Poll = new Poll(async (signal) => {
      await this.ask(number, signal);
      if (this.isForgotten || (this.item !== null && this.item.state !== 'running')) poll.stop();
    }, POLL_SECONDS);
    return () => poll.stop();
  }

  private async ask(number: number, signal: AbortSignal): Promise<void> {
    try {
      const item = await api.operation<R>(number, signal);
      if (signal.aborted) return;
      this.error = null;
      // A number may belong to another operation after a restart of the server.
      if (this.isExpected(item)) this.item = item;
      else this.isForgotten = true;
    } catch (error) {
      if (signal.aborted) return;
      this.isForgotten = error instanceof ApiError && error.status === 404;
      if (this.isForgotten) return;
      this.error = messageOf(error);
      throw error;
    } finally {
      if (this.isForgotten) for (const [key, one] of recent) if (one.number === number) recent.delete(key);
    }
  }

  private isExpected({ kind, state, result }: Operation<R>): boolean {
    const isOfKind = kind === this.kind || this.others.includes(kind);
    return isOfKind && (state !== 'done' || !result || this.belongs(result));
  }

  async cancel(): Promise<void> {
    const number = this.item?.number;
    if (number === undefined || this.item?.state !== 'running') return;
    this.isCancelling = true;
    for (const [key, one] of recent) if (one.number === number) recent.delete(key);
    try {
      await api.cancelOperation(number);
    } catch (error) {
      this.isCancelling = false;
      this.error = messageOf(error);
    }
  }
}
