// What a chart shows, as the address says it.

import { type Query } from '../routes';
import { router } from '../state/router.svelte';
import { fromText, toText, type View } from './geometry';
import { type Choice, ORDERS } from './rows';

/** Browsers refuse many changes of the address in a short time. */
const WRITE_MS = 400;

/** Order and filters of a query. */
export function choiceOf(query: Query): Choice {
  return {
    order: ORDERS.find((order) => order === query.by) ?? 'start',
    kind: query.kind ?? null,
    // The main workflow has no name, and a parameter without a value would be left out.
    workflow: query.within?.startsWith('-') ? query.within.slice(1) : null,
    text: query.text ?? '',
  };
}

/** The zoom of a chart, in a parameter of the address. */
export class Shown {
  view = $state.raw<View | null>(null);
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly parameter: string) {
    this.view = fromText(router.place.query[parameter]);
  }

  set = (view: View | null): void => {
    this.view = view;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => router.set({ [this.parameter]: view ? toText(view) : null }), WRITE_MS);
  };

  /** The chart is left; what has not been written belongs to no address. */
  stop(): void {
    clearTimeout(this.timer);
  }
}
