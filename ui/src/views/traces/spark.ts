// A small chart of one thread: observed and expected rate of one channel, and when its score was above the threshold.

import type { ThreadTrace } from '../../api/types';
import { gapSeconds } from '../../charts/traces';

export interface SparkInks {
  observed: string;
  expected: string;
  alarm: string;
  line: string;
}

export interface SparkBox {
  width: number;
  height: number;
  from: number;
  to: number;
  /** The largest rate that fits. */
  top: number;
}

export function drawSpark(
  context: CanvasRenderingContext2D,
  trace: ThreadTrace,
  channel: number,
  box: SparkBox,
  inks: SparkInks,
): void {
  const { width, height } = box;
  const x = (time: number) => ((time - box.from) / (box.to - box.from)) * width;
  const y = (value: number) => height - 2 - Math.min(1.05, value / box.top) * (height - 5);
  context.clearRect(0, 0, width, height);
  context.strokeStyle = inks.line;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, height - 1.5);
  context.lineTo(width, height - 1.5);
  context.stroke();
  drawAlarms(context, trace, x, height, inks.alarm);
  const gap = gapSeconds(trace.time);
  line(context, trace.time, trace.observed[channel], x, y, gap, inks.observed, 1.4, []);
  const expected = trace.expected?.[channel];
  if (expected) line(context, trace.time, expected, x, y, gap, inks.expected, 1.4, [4, 3]);
}

/** A bar along the upper edge for each stretch with a score above the threshold. */
function drawAlarms(
  context: CanvasRenderingContext2D,
  trace: ThreadTrace,
  x: (time: number) => number,
  height: number,
  ink: string,
): void {
  if (!trace.score) return;
  const { score, time } = trace;
  context.fillStyle = ink;
  for (let at = 0; at < score.length; at += 1) {
    if (score[at] <= 1) continue;
    const left = x(time[at]);
    while (at + 1 < score.length && score[at + 1] > 1) at += 1;
    const width = Math.max(1, x(time[at + 1] ?? time[at]) - left);
    context.fillRect(left, 0, width, 2.5);
    context.globalAlpha = 0.12;
    context.fillRect(left, 0, width, height);
    context.globalAlpha = 1;
  }
}

function line(
  context: CanvasRenderingContext2D,
  times: number[],
  values: number[],
  x: (time: number) => number,
  y: (value: number) => number,
  gap: number,
  ink: string,
  width: number,
  dash: number[],
): void {
  context.strokeStyle = ink;
  context.lineWidth = width;
  context.setLineDash(dash);
  context.beginPath();
  times.forEach((time, at) => {
    if (at === 0 || time - times[at - 1] > gap) context.moveTo(x(time), y(values[at]));
    else context.lineTo(x(time), y(values[at]));
  });
  context.stroke();
  context.setLineDash([]);
}
