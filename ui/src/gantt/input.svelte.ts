// What wheel, pointer and keys do with a chart: zoom, move, select, and a cursor that visits the tasks.

import { describe, spoken } from './describe';
import type { Bands } from './detail';
import * as G from './geometry';
import type { Attempts, Rows } from './rows';

/** Of a step with the keyboard. */
const [STEP, ZOOM] = [0.1, 0.7];
/** A drag is not a click. */
const MIN_DRAG = 4;

/** What the chart shows now, and what it does. */
export interface Chart {
  readonly attempts: Attempts;
  readonly rows: Rows;
  readonly ranks: Float64Array;
  readonly bands: Bands;
  readonly view: G.View;
  readonly limits: G.Limits;
  readonly plot: G.Plot;
  /** The attempt that is selected. */
  readonly selected: number | null;
  change: (view: G.View) => void;
  /** Shows everything. */
  reset: () => void;
  /** Selects an attempt, or nothing. */
  select: (attempt: number | null) => void;
}

export class Input {
  isDragging = $state(false);
  /** What screen readers are told. */
  spoken = $state('');
  private hovered = $state(-1);
  private cursor = $state(-1);
  private drag: { x: number; y: number; view: G.View } | null = null;
  /** A page that scrolls under the pointer must not begin to zoom. */
  private isAimed = false;

  constructor(private readonly chart: Chart) {}

  /** The row under the pointer or the cursor; −1 if there is none. */
  get current(): number {
    return this.inside(this.hovered >= 0 ? this.hovered : this.cursor);
  }

  readonly handlers = {
    onwheel: (event: WheelEvent) => this.turn(event),
    onpointerdown: (event: PointerEvent) => this.press(event),
    onpointermove: (event: PointerEvent) => this.move(event),
    onpointerup: (event: PointerEvent) => this.release(event),
    onpointercancel: () => {
      this.drag = null;
      this.isDragging = false;
    },
    onpointerleave: () => {
      this.hovered = -1;
      this.isAimed = false;
    },
    onkeydown: (event: KeyboardEvent) => this.key(event),
    onblur: () => {
      this.cursor = -1;
    },
  };

  zoom(by: 'in' | 'out'): void {
    const factor = by === 'in' ? ZOOM : 1 / ZOOM;
    this.chart.change(this.zoomed(factor, factor));
  }

  private turn(event: WheelEvent): void {
    const { view, limits, plot, change } = this.chart;
    const isFocused = document.activeElement === event.currentTarget;
    if (!this.isAimed && !isFocused && !event.ctrlKey) return;
    const unit = event.deltaMode === 0 ? 1 : 16;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && !event.shiftKey) {
      change(G.moved(view, limits, (event.deltaX * unit) / plot.width, 0));
      event.preventDefault();
      return;
    }
    const by = Math.exp(Math.min(200, Math.max(-200, (event.deltaY || event.deltaX) * unit)) * 0.002);
    // Nothing is left to zoom out of, so the page scrolls.
    if (by > 1 && G.isEverything(view, limits) && !event.ctrlKey) return;
    event.preventDefault();
    const { x, y } = at(event);
    const anchor = { x: (x - plot.left) / plot.width, y: (y - plot.top) / plot.height };
    change(G.zoomed(view, limits, { time: event.altKey ? 1 : by, rows: event.shiftKey ? 1 : by }, anchor));
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0) return;
    (event.currentTarget as Element).setPointerCapture(event.pointerId);
    this.drag = { ...at(event), view: this.chart.view };
  }

  private move(event: PointerEvent): void {
    const { limits, plot, change } = this.chart;
    if (event.movementX !== 0 || event.movementY !== 0) this.isAimed = true;
    const [{ x, y }, drag] = [at(event), this.drag];
    if (drag && (this.isDragging || Math.hypot(x - drag.x, y - drag.y) >= MIN_DRAG)) {
      this.isDragging = true;
      this.hovered = -1;
      change(G.moved(drag.view, limits, (drag.x - x) / plot.width, (drag.y - y) / plot.height));
      return;
    }
    const found = this.hit(x, y);
    if (found !== this.hovered) this.hovered = found;
  }

  private release(event: PointerEvent): void {
    const [{ drag }, wasDragging] = [this, this.isDragging];
    this.isDragging = false;
    this.drag = null;
    if (drag === null || wasDragging) return;
    const { x, y } = at(event);
    this.select(this.hit(x, y));
  }

  private hit(x: number, y: number): number {
    const { rows, ranks, view, plot } = this.chart;
    return G.hit(rows, ranks, view, plot, x, y);
  }

  private select(row: number): void {
    this.chart.select(row < 0 ? null : this.chart.rows.attempt[row]);
  }

  private key(event: KeyboardEvent): void {
    const { rows, view, limits, change } = this.chart;
    if (event.ctrlKey || event.metaKey || event.altKey || rows.n === 0) return;
    const isShift = event.shiftKey;
    const page = Math.max(1, Math.floor(view.shown * 0.9));
    const actions: Record<string, () => void> = {
      ArrowLeft: () => change(isShift ? this.zoomed(ZOOM, 1) : G.moved(view, limits, -STEP, 0)),
      ArrowRight: () => change(isShift ? this.zoomed(1 / ZOOM, 1) : G.moved(view, limits, STEP, 0)),
      ArrowUp: () => (isShift ? change(this.zoomed(1, ZOOM)) : this.go(this.neighbour(-1))),
      ArrowDown: () => (isShift ? change(this.zoomed(1, 1 / ZOOM)) : this.go(this.neighbour(1))),
      PageUp: () => this.go(this.start() - page),
      PageDown: () => this.go(this.start() + page),
      Home: () => this.go(0),
      End: () => this.go(rows.n - 1),
      '+': () => this.zoom('in'),
      '=': () => this.zoom('in'),
      '-': () => this.zoom('out'),
      '−': () => this.zoom('out'),
      '0': () => this.chart.reset(),
      Enter: () => this.select(this.current),
    };
    if (event.key === 'Escape' && (this.cursor >= 0 || this.chart.selected !== null)) {
      this.cursor = -1;
      this.chart.select(null);
    } else if (actions[event.key]) actions[event.key]();
    else return;
    event.preventDefault();
  }

  /** Zooms around the cursor's task, or around the one in the middle. */
  private zoomed(time: number, byRows: number): G.View {
    const { rows, view, limits, selected } = this.chart;
    const middle = Math.min(rows.n - 1, Math.floor(view.first + view.shown / 2));
    const places = [this.inside(this.cursor), selected === null ? -1 : (rows.rowOf[selected] ?? -1)];
    const row = places.find((one) => one >= view.first && one < view.first + view.shown) ?? middle;
    if (row < 0) return view;
    const [from, to] = [Math.max(view.from, rows.start[row]), Math.min(view.to, rows.end[row])];
    const x = from > to ? 0.5 : ((from + to) / 2 - view.from) / (view.to - view.from);
    return G.zoomed(view, limits, { time, rows: byRows }, { x, y: (row + 0.5 - view.first) / view.shown });
  }

  /** Filters may have changed since the cursor was set. */
  private inside(row: number): number {
    return row < this.chart.rows.n ? row : -1;
  }

  /** Where the cursor is, or else the first row that is shown. */
  private start(): number {
    return this.inside(this.cursor) >= 0 ? this.cursor : (this.chart.bands.row[0] ?? 0);
  }

  /** The next row that is drawn: where many share a line of pixels, single rows could not be seen. */
  private neighbour(by: 1 | -1): number {
    const { cursor, chart } = this;
    if (this.inside(cursor) < 0) return this.start();
    if (chart.view.shown <= chart.plot.height) return cursor + by;
    for (let band = by > 0 ? 0 : chart.bands.n - 1; band >= 0 && band < chart.bands.n; band += by) {
      const row = chart.bands.row[band];
      if (by > 0 ? row > cursor : row < cursor) return row;
    }
    return cursor + by;
  }

  private go(to: number): void {
    const { attempts, rows, view, limits, change } = this.chart;
    const row = Math.min(rows.n - 1, Math.max(0, to));
    this.hovered = -1;
    this.cursor = row;
    const next = G.including(view, limits, row, rows.start[row], rows.end[row]);
    if (next !== view) change(next);
    this.spoken = spoken(describe(attempts, rows.attempt[row]));
  }
}

function at(event: MouseEvent): { x: number; y: number } {
  const box = (event.currentTarget as Element).getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}
