// What stands beside the bars: the time axis, and names of tasks or groups.

import { fitted, type Inks } from '../canvas';
import { ticks } from '../charts/scatter';
import { count, cut } from '../format';
import { type Plot, type View, xOf, yOf } from './geometry';
import type { Attempts, Rows } from './rows';

const TICK_SPACE = 96;

/** A time since the start of the run, with the units that are not zero. */
export function offsetLabel(seconds: number, step: number): string {
  const rest = step < 1 ? Number(seconds.toFixed(3)) : Math.round(seconds);
  const units: [number, string][] = [
    [Math.floor(rest / 86400), 'd'],
    [Math.floor((rest % 86400) / 3600), 'h'],
    [Math.floor((rest % 3600) / 60), 'min'],
    [Number((rest % 60).toFixed(3)), 's'],
  ];
  const text = units.filter(([value]) => value > 0).map(([value, unit]) => `${value} ${unit}`);
  return text.join(' ') || '0';
}

export interface Surroundings {
  attempts: Attempts;
  rows: Rows;
  view: View;
  plot: Plot;
  inks: Inks;
  /** The colour of grid lines. */
  line: string;
}

export function drawGrid(context: CanvasRenderingContext2D, { attempts, view, plot, inks, line }: Surroundings): void {
  const span = view.to - view.from;
  const least = span / Math.max(1, plot.width / TICK_SPACE);
  const times = ticks(view.from, view.to, plot.width / TICK_SPACE, least < 1 ? 'linear' : 'time');
  const step = times.length > 1 ? times[1] - times[0] : least;
  const bottom = plot.top + plot.height;
  context.font = inks.font;
  context.fillStyle = inks.minor;
  context.strokeStyle = line;
  context.lineWidth = 1;
  context.textBaseline = 'top';
  context.beginPath();
  let free = -Infinity;
  for (const time of times) {
    const x = Math.round(xOf(view, plot, time)) + 0.5;
    context.moveTo(x, plot.top);
    context.lineTo(x, bottom + 3);
    const label = offsetLabel(time, step);
    const half = context.measureText(label).width / 2;
    const left = Math.min(plot.left + plot.width - 2 * half, x - half);
    if (left < free) continue;
    free = left + 2 * half + 8;
    context.textAlign = 'left';
    context.fillText(label, left, bottom + 6);
  }
  context.moveTo(plot.left, bottom + 0.5);
  context.lineTo(plot.left + plot.width, bottom + 0.5);
  context.stroke();
  drawEnd(context, attempts.chart.seconds, view, plot, inks);
}

/** Where the run ends, if the axis is longer. */
function drawEnd(context: CanvasRenderingContext2D, seconds: number, view: View, plot: Plot, inks: Inks): void {
  const x = Math.round(xOf(view, plot, seconds)) + 0.5;
  if (x < plot.left || x > plot.left + plot.width - 2) return;
  context.strokeStyle = inks.ink;
  context.setLineDash([4, 3]);
  context.beginPath();
  context.moveTo(x, plot.top);
  context.lineTo(x, plot.top + plot.height);
  context.stroke();
  context.setLineDash([]);
  const isRight = x > plot.left + plot.width - 40;
  context.textAlign = isRight ? 'right' : 'left';
  context.fillStyle = inks.ink;
  context.fillText('end', x + (isRight ? -5 : 5), plot.top + 2);
}

/** Names are cut to the room that they have; measuring text is slow, so the result is kept. */
export class NameFitter {
  private readonly known = new Map<string, string>();
  private font = '';
  private room = 0;

  fit(context: CanvasRenderingContext2D, name: string, room: number): string {
    if (this.font !== context.font || this.room !== room || this.known.size > 5000) this.known.clear();
    this.font = context.font;
    this.room = room;
    let text = this.known.get(name);
    if (text === undefined) {
      text = fitted(context, cut(name, 60), room);
      this.known.set(name, text);
    }
    return text;
  }
}

/** Names of rows if there is room for them; otherwise names of groups, or the numbers of rows. */
export function drawNames(context: CanvasRenderingContext2D, what: Surroundings, fitter: NameFitter): void {
  const { rows, view, plot, inks } = what;
  context.font = inks.font;
  context.fillStyle = inks.minor;
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  if (plot.height / view.shown > parseFloat(inks.font)) drawTaskNames(context, what, fitter);
  else if (rows.groups.length > 0) drawGroupNames(context, what, fitter);
  else {
    for (const row of ticks(view.first + 1, view.first + view.shown, plot.height / 44, 'linear')) {
      if (row >= 1 && Number.isInteger(row)) context.fillText(count(row), plot.left - 8, yOf(view, plot, row - 0.5));
    }
  }
}

function drawTaskNames(context: CanvasRenderingContext2D, what: Surroundings, fitter: NameFitter): void {
  const { attempts, rows, view, plot, inks } = what;
  const { chart } = attempts;
  const last = Math.min(rows.n, Math.ceil(view.first + view.shown));
  for (let row = Math.max(0, Math.floor(view.first)); row < last; row += 1) {
    const y = yOf(view, plot, row + 0.5);
    if (y < plot.top || y > plot.top + plot.height) continue;
    const index = rows.attempt[row];
    const attempt = chart.attempt[index];
    context.fillStyle = chart.failed[index] ? inks.alarm : inks.minor;
    const name = `${chart.failed[index] ? '✕ ' : ''}${attempt > 1 ? `(${attempt}) ` : ''}${chart.task[index]}`;
    context.fillText(fitter.fit(context, name, plot.left - 14), plot.left - 8, y);
  }
}

function drawGroupNames(context: CanvasRenderingContext2D, what: Surroundings, fitter: NameFitter): void {
  const { rows, view, plot, line, inks } = what;
  const size = parseFloat(inks.font);
  let below = -Infinity;
  context.strokeStyle = line;
  context.lineWidth = 1;
  for (const group of rows.groups) {
    const top = Math.max(plot.top, yOf(view, plot, group.first));
    const bottom = Math.min(plot.top + plot.height, yOf(view, plot, group.first + group.n));
    if (bottom <= plot.top || top >= plot.top + plot.height) continue;
    const middle = (top + bottom) / 2;
    // Groups of few rows among others have no room for a name.
    if (middle - size / 2 < below || (bottom - top < size && rows.groups.length > plot.height / size)) continue;
    below = middle + size / 2;
    context.fillText(fitter.fit(context, group.name || 'main workflow', plot.left - 14), plot.left - 8, middle);
    context.beginPath();
    context.moveTo(plot.left - 4, Math.round(top) + 0.5);
    context.lineTo(plot.left - 4, Math.round(bottom) - 0.5);
    context.stroke();
  }
}
