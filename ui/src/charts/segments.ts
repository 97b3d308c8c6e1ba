// Pieces of time with a label, from series of moments.

export interface Segment {
  from: number;
  to: number;
  label: string;
  /** Nothing held, such as a thread without a job. */
  isNothing?: boolean;
}

/** Consecutive moments with the same owner become one piece. A piece ends where the next one begins, or a gap. */
export function ownerSegments(times: number[], owners: (string | null)[], end: number, gap = Infinity): Segment[] {
  const segments: Segment[] = [];
  times.forEach((time, index) => {
    const owner = owners[index];
    const label = owner === null ? 'no job' : owner;
    const next = times[index + 1] ?? end;
    const to = next - time > gap ? time : next;
    const last = segments[segments.length - 1];
    if (last && last.to === time && last.label === label && last.isNothing === (owner === null)) last.to = to;
    else segments.push({ from: time, to, label, isNothing: owner === null });
  });
  return segments;
}

/** Who was champion when, from promotions in any order. */
export function championSegments(promotions: { time: number; version: string }[], now: number): Segment[] {
  const sorted = [...promotions].sort((a, b) => a.time - b.time);
  return sorted.map((one, index) => ({
    from: one.time,
    to: sorted[index + 1]?.time ?? Math.max(now, one.time),
    label: one.version,
  }));
}
