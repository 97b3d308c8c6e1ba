// The bars of a chart on a canvas, the critical path and the marks of failed attempts. Coordinates are device pixels of
// the drawing area, so that edges are sharp.

import type { Inks } from '../canvas';
import { type Bands, criticalBoxes, failedMarks, type Places } from './detail';
import type { View } from './geometry';
import type { Attempts, Rows } from './rows';

/** Rows from this height on have a gap between them, in CSS pixels. */
const GAP_HEIGHT = 4;
/** Rows from this height on have an outline if they are critical, lower ones a line. */
const OUTLINED_HEIGHT = 7;
/** The distance of marks of failed attempts that are told apart, in CSS pixels. */
const MARK_CELL = 3;
/** More marks than this would hide the bars, so they are ticks and not crosses; even more are thin ones. */
const MAX_CROSSES = 120;
const MAX_THICK = 400;
/** How visible tasks are beside those that stand out. */
const PALE = 0.22;

export interface Picture {
  attempts: Attempts;
  rows: Rows;
  view: View;
  /** The size of the drawing area. */
  width: number;
  height: number;
  /** Device pixels per CSS pixel. */
  ratio: number;
  /** The colour of each part. */
  colours: string[];
  /** 1 for each attempt that stands out; null if none does. */
  highlighted: Uint8Array | null;
}

export function drawBars(context: CanvasRenderingContext2D, bands: Bands, picture: Picture): void {
  const { highlighted } = picture;
  if (highlighted === null) {
    drawPass(context, bands, picture, () => true);
    return;
  }
  context.globalAlpha = PALE;
  drawPass(context, bands, picture, (attempt) => !highlighted[attempt]);
  context.globalAlpha = 1;
  drawPass(context, bands, picture, (attempt) => highlighted[attempt] === 1);
}

/** Draws part by part, so that each colour is set once. */
function drawPass(
  context: CanvasRenderingContext2D,
  bands: Bands,
  { attempts, rows, view, width, height, ratio, colours }: Picture,
  isShown: (attempt: number) => boolean,
): void {
  const perSecond = width / (view.to - view.from);
  const rowHeight = height / view.shown / ratio;
  const gap = rowHeight >= GAP_HEIGHT ? Math.max(1, Math.round(rowHeight * 0.12 * ratio)) : 0;
  const least = Math.max(1, Math.round(ratio));
  const toPixel = (time: number) => Math.min(width, Math.max(0, Math.round((time - view.from) * perSecond)));
  for (let part = attempts.firstPart; part < attempts.ends.length; part += 1) {
    const ends = attempts.ends[part];
    const starts = part === 0 ? null : attempts.ends[part - 1];
    context.fillStyle = colours[part];
    for (let band = 0; band < bands.n; band += 1) {
      const index = rows.attempt[bands.row[band]];
      if (!isShown(index)) continue;
      let left = toPixel(starts === null ? 0 : starts[index]);
      let right = toPixel(ends[index]);
      if (attempts.longestPart[index] === part) {
        // An attempt that is too short for its parts has the colour of the longest one.
        const [first, last] = [toPixel(attempts.start[index]), toPixel(attempts.end[index])];
        if (last - first < least) [left, right] = [Math.min(first, width - least), Math.min(first, width - least) + least];
      }
      if (right > left) context.fillRect(left, bands.top[band] + gap, right - left, bands.bottom[band] - bands.top[band] - gap);
    }
  }
}

/** Outlines of the tasks that determined the end of the run, connected in the order of time. */
export function drawCritical(context: CanvasRenderingContext2D, picture: Picture, inks: Inks): void {
  const { rows, view, width, height, ratio } = picture;
  const boxes = criticalBoxes(rows, view, width, height);
  const isOutlined = height / view.shown / ratio >= OUTLINED_HEIGHT;
  context.beginPath();
  for (let at = 0; at < boxes.left.length; at += 1) {
    const [left, right] = [Math.max(-9, boxes.left[at]), Math.min(width + 9, boxes.right[at])];
    const [top, bottom] = [boxes.top[at], boxes.bottom[at]];
    const middle = (top + bottom) / 2;
    if (isOutlined) context.rect(left, top + ratio, Math.max(ratio, right - left), bottom - top - ratio);
    else {
      context.moveTo(left, middle);
      context.lineTo(Math.max(right, left + 2 * ratio), middle);
    }
    if (at === 0) continue;
    const before = (boxes.top[at - 1] + boxes.bottom[at - 1]) / 2;
    context.moveTo(Math.max(-9, boxes.right[at - 1]), before);
    context.lineTo(left, before);
    context.lineTo(left, isOutlined ? (middle >= before ? top + ratio : bottom) : middle);
  }
  context.lineJoin = 'miter';
  context.globalAlpha = 0.75;
  context.strokeStyle = inks.surface;
  context.lineWidth = 4 * ratio;
  context.stroke();
  context.globalAlpha = 1;
  context.strokeStyle = inks.ink;
  context.lineWidth = 1.75 * ratio;
  context.stroke();
}

/** A cross at the end of every failed attempt, or a tick if there are many. */
export function drawFailed(context: CanvasRenderingContext2D, picture: Picture, inks: Inks): void {
  const { rows, view, width, height, ratio } = picture;
  const marks = failedMarks(rows, view, width, height, MARK_CELL * ratio);
  if (marks.x.length > MAX_CROSSES || height < MAX_CROSSES * ratio) {
    drawTicks(context, marks, picture, inks);
    return;
  }
  const size = Math.min(5, Math.max(2.5, height / view.shown / ratio / 3)) * ratio;
  context.beginPath();
  marks.x.forEach((at, index) => {
    const x = Math.min(width - size, Math.max(size, at));
    const y = Math.min(height - size, Math.max(size, marks.y[index]));
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x - size, y + size);
    context.lineTo(x + size, y - size);
  });
  context.strokeStyle = inks.surface;
  context.lineWidth = 4 * ratio;
  context.stroke();
  context.strokeStyle = inks.alarm;
  context.lineWidth = 2 * ratio;
  context.stroke();
}

function drawTicks(context: CanvasRenderingContext2D, marks: Places, { width, height, ratio }: Picture, inks: Inks): void {
  const thick = Math.round((marks.x.length > MAX_THICK ? 1 : 1.5) * ratio);
  const tall = Math.round(5 * ratio);
  context.fillStyle = inks.alarm;
  marks.x.forEach((at, index) => {
    const x = Math.min(width - thick, Math.max(0, at));
    context.fillRect(x, Math.min(height - tall, Math.max(0, marks.y[index] - tall / 2)), thick, tall);
  });
}
