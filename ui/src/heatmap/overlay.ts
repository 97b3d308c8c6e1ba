// What lies above the picture: names, outlines of jobs, marks of what is anomalous, and the cursor.

import { fitted, type Inks } from '../canvas';
import { type Cell, cellAt, type Geometry, MARK_WIDTH, NAMED_HEIGHT, type Row } from './geometry';
import { type Edge, edges, type Owners } from './jobs';
import { THRESHOLD } from './palette';

/** Cells smaller than this show no outlines of jobs, which would hide their colours. */
const OUTLINED_SIZE = 4;
/** Cells from this size on are marked one by one if they are above the threshold, smaller ones by row. */
const MARKED_SIZE = 8;
/** If more rows than this are above the threshold, frames would hide the picture. */
const MAX_RINGED_ROWS = 200;

export interface Overlay {
  bytes: Uint8Array;
  rows: Row[];
  rowsAbove: number[];
  missing: Set<string>;
  owners: Owners;
  /** Outlines of all jobs; computed once for each layout. */
  outlines: Edge[];
  /** Outlines of jobs with an open event, and the rows of such nodes. */
  problemEdges: Edge[];
  problemRows: Set<number>;
  /** The cell below the pointer or the keyboard's cursor. */
  cursor: Cell | null;
}

export function drawOverlay(context: CanvasRenderingContext2D, one: Geometry, what: Overlay, inks: Inks): void {
  context.clearRect(0, 0, one.width, one.height);
  drawNames(context, one, what, inks);
  const size = Math.min(one.cellWidth, one.cellHeight);
  if (size >= OUTLINED_SIZE) stroke(context, one, what.outlines, inks.surface, inks.ink, 1);
  stroke(context, one, what.problemEdges, inks.surface, inks.alarm, 2.5);
  if (size >= MARKED_SIZE) drawMarks(context, one, what, inks);
  else drawRings(context, one, what, inks);
  drawRowMarks(context, one, what, inks);
  drawCursor(context, one, what, inks);
}

function drawNames(context: CanvasRenderingContext2D, one: Geometry, { rows, missing }: Overlay, inks: Inks): void {
  context.font = inks.font;
  context.textBaseline = 'middle';
  context.textAlign = 'right';
  const size = parseFloat(inks.font);
  const every = one.cellHeight >= NAMED_HEIGHT ? 1 : roundStep((size * 2) / one.cellHeight);
  const room = one.gutter - MARK_WIDTH - 4;
  rows.forEach((row, index) => {
    const { x, y } = cellAt(one, { row: index, thread: 0 });
    if (missing.has(row.node)) hatch(context, x, y, row.threads * one.cellWidth, one.cellHeight, inks.minor);
    if ((index % one.rowsPerBlock) % every !== 0) return;
    context.fillStyle = inks.minor;
    const middle = Math.max(y + one.cellHeight / 2, size / 2);
    context.fillText(fitted(context, row.node, room), x - MARK_WIDTH - 3, middle);
  });
}

/** The next larger of 1, 2, 5, 10, 20, 50 …, as people count. */
function roundStep(least: number): number {
  for (let ten = 1; ; ten *= 10) {
    for (const factor of [1, 2, 5]) if (factor * ten >= least) return factor * ten;
  }
}

function hatch(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  width: number,
  height: number,
  ink: string,
): void {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = ink;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 6) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}

function stroke(
  context: CanvasRenderingContext2D,
  one: Geometry,
  lines: Edge[],
  halo: string,
  ink: string,
  width: number,
): void {
  context.beginPath();
  for (const { block, x1, y1, x2, y2 } of lines) {
    const left = block * one.blockStep + one.gutter;
    context.moveTo(left + x1 * one.cellWidth, one.top + y1 * one.cellHeight);
    context.lineTo(left + x2 * one.cellWidth, one.top + y2 * one.cellHeight);
  }
  context.lineCap = 'square';
  context.globalAlpha = 0.8;
  context.strokeStyle = halo;
  context.lineWidth = width + 2;
  context.stroke();
  context.globalAlpha = 0.75;
  context.strokeStyle = ink;
  context.lineWidth = width;
  context.stroke();
  context.globalAlpha = 1;
}

function drawMarks(
  context: CanvasRenderingContext2D,
  one: Geometry,
  { bytes, rows, rowsAbove }: Overlay,
  inks: Inks,
): void {
  const inset = Math.max(2, Math.round(Math.min(one.cellWidth, one.cellHeight) * 0.16));
  context.beginPath();
  for (const index of rowsAbove) {
    const row = rows[index];
    for (let thread = 0; thread < row.threads; thread += 1) {
      if (bytes[row.offset + thread] <= THRESHOLD) continue;
      const { x, y } = cellAt(one, { row: index, thread });
      context.rect(x + inset, y + inset, one.cellWidth - 2 * inset, one.cellHeight - 2 * inset);
    }
  }
  context.strokeStyle = inks.ink;
  context.lineWidth = 1.5;
  context.stroke();
}

/** Frames around neighbouring threads above the threshold, where cells are too small for a mark inside. */
function drawRings(
  context: CanvasRenderingContext2D,
  one: Geometry,
  { bytes, rows, rowsAbove }: Overlay,
  inks: Inks,
): void {
  if (rowsAbove.length > MAX_RINGED_ROWS) return;
  context.beginPath();
  for (const index of rowsAbove) {
    const row = rows[index];
    for (let thread = 0; thread < row.threads; thread += 1) {
      if (bytes[row.offset + thread] <= THRESHOLD) continue;
      const first = thread;
      while (thread + 1 < row.threads && bytes[row.offset + thread + 1] > THRESHOLD) thread += 1;
      const { x, y } = cellAt(one, { row: index, thread: first });
      context.rect(x - 3, y - 3, (thread - first + 1) * one.cellWidth + 6, one.cellHeight + 6);
    }
  }
  context.strokeStyle = inks.alarm;
  context.lineWidth = 1;
  context.stroke();
}

/** A triangle before each row with an open event or a thread above the threshold. */
function drawRowMarks(
  context: CanvasRenderingContext2D,
  one: Geometry,
  { rowsAbove, problemRows }: Overlay,
  inks: Inks,
): void {
  const height = Math.min(9, Math.max(4, one.cellHeight));
  context.fillStyle = inks.alarm;
  context.beginPath();
  for (const index of new Set([...rowsAbove, ...problemRows])) {
    const { x, y } = cellAt(one, { row: index, thread: 0 });
    const middle = y + one.cellHeight / 2;
    context.moveTo(x - MARK_WIDTH + 1, middle - height / 2);
    context.lineTo(x - 2, middle);
    context.lineTo(x - MARK_WIDTH + 1, middle + height / 2);
    context.closePath();
  }
  context.fill();
}

function drawCursor(
  context: CanvasRenderingContext2D,
  one: Geometry,
  { cursor, owners, rows }: Overlay,
  inks: Inks,
): void {
  if (!cursor) return;
  const job = owners.ofThread[rows[cursor.row].offset + cursor.thread];
  if (job >= 0) stroke(context, one, edges(owners, rows, one, job), inks.surface, inks.accent, 2);
  const { x, y } = cellAt(one, cursor);
  const grow = Math.max(1, (6 - Math.min(one.cellWidth, one.cellHeight)) / 2);
  context.lineWidth = 4;
  context.strokeStyle = inks.surface;
  context.strokeRect(x - grow, y - grow, one.cellWidth + 2 * grow, one.cellHeight + 2 * grow);
  context.lineWidth = 2;
  context.strokeStyle = inks.ink;
  context.strokeRect(x - grow, y - grow, one.cellWidth + 2 * grow, one.cellHeight + 2 * grow);
}
