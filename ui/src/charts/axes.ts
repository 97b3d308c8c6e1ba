// Axes of scatter plots, and what lies above their points.

import { fitted, type Inks, inksOf } from '../canvas';
import { number } from '../format';
import { timeLabels } from './axis';
import { type Place, type Scale, type ScaleKind, ticks } from './scatter';

/** Where points are drawn, and what the axes say. */
export interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
  /** The lower edge of the canvas. */
  bottom: number;
  x: { scale: Scale; kind: ScaleKind; name: string };
  y: { scale: Scale; kind: ScaleKind; name: string };
  mark: { value: number; label: string } | null;
}

export function drawAxes(context: CanvasRenderingContext2D, frame: Frame): void {
  const { left, top, width, height, x, y } = frame;
  const inks = inksOf(context.canvas);
  const xTicks = ticks(x.scale.low, x.scale.high, width / 70, x.kind);
  const yTicks = ticks(y.scale.low, y.scale.high, height / 44, y.kind);
  context.font = inks.font;
  context.lineWidth = 1;
  context.strokeStyle = getComputedStyle(context.canvas).getPropertyValue('--line').trim();
  context.beginPath();
  for (const value of xTicks) {
    const at = Math.round(left + x.scale.at(value)) + 0.5;
    context.moveTo(at, top);
    context.lineTo(at, top + height);
  }
  for (const value of yTicks) {
    const at = Math.round(top + height - y.scale.at(value)) + 0.5;
    context.moveTo(left, at);
    context.lineTo(left + width, at);
  }
  context.stroke();
  drawLabels(context, frame, xTicks, yTicks, inks);
  drawMark(context, frame, inks);
}

function drawLabels(
  context: CanvasRenderingContext2D,
  { left, top, width, height, bottom, x, y }: Frame,
  xTicks: number[],
  yTicks: number[],
  inks: Inks,
): void {
  const step = (xTicks[1] ?? 0) - (xTicks[0] ?? 0) || 60;
  const labels = x.kind === 'time' ? timeLabels(xTicks, step) : xTicks.map((value) => number(value));
  context.fillStyle = inks.minor;
  context.textAlign = 'center';
  context.textBaseline = 'top';
  labels.forEach((label, index) => context.fillText(label, left + x.scale.at(xTicks[index]), top + height + 5));
  context.fillText(fitted(context, x.name, width), left + width / 2, bottom - 15);
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const value of yTicks) context.fillText(number(value), left - 6, top + height - y.scale.at(value));
  context.save();
  context.translate(8, top + height / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = 'center';
  context.fillText(fitted(context, y.name, height), 0, 0);
  context.restore();
}

function drawMark(context: CanvasRenderingContext2D, frame: Frame, inks: Inks): void {
  const { left, top, width, height, y, mark } = frame;
  if (!mark) return;
  const at = top + height - y.scale.at(mark.value);
  context.strokeStyle = context.fillStyle = inks.alarm;
  context.setLineDash([2, 3]);
  context.beginPath();
  context.moveTo(left, at);
  context.lineTo(left + width, at);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = 'right';
  context.textBaseline = 'bottom';
  context.fillText(mark.label, left + width, at - 2);
}

/** The lasso or rectangle, the keyboard's cross, and a ring around the point that the tooltip is about. */
export function drawPointers(
  context: CanvasRenderingContext2D,
  polygon: Place[],
  cross: Place | null,
  point: Place | null,
): void {
  const inks = inksOf(context.canvas);
  if (polygon.length > 1) {
    context.beginPath();
    polygon.forEach((one, index) => (index === 0 ? context.moveTo(one.x, one.y) : context.lineTo(one.x, one.y)));
    context.closePath();
    context.fillStyle = `${inks.accent}22`;
    context.fill();
    context.strokeStyle = inks.accent;
    context.lineWidth = 1.5;
    context.stroke();
  }
  context.strokeStyle = inks.ink;
  if (cross) {
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(cross.x - 10, cross.y);
    context.lineTo(cross.x + 10, cross.y);
    context.moveTo(cross.x, cross.y - 10);
    context.lineTo(cross.x, cross.y + 10);
    context.stroke();
  }
  if (point) {
    context.lineWidth = 2;
    context.beginPath();
    context.arc(point.x, point.y, 7, 0, 2 * Math.PI);
    context.stroke();
  }
}
