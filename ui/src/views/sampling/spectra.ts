// Spectra and intervals of the sampling analysis as lines of charts and rows of tables.

import type { IntervalReport, KindSpectrum, SpectrumReport } from '../../api/operations';
import type { TableData } from '../../charts/export';
import { type Line, seriesColour, type Vertical } from '../../charts/types';
import { number } from '../../format';

/** Densities this much smaller than the largest are rounding errors, and would stretch the axis. */
const MIN_FRACTION = 1e-7;

export interface SpectrumChart {
  frequencies: number[];
  lines: Line[];
  verticals: Vertical[];
  constant: string[];
}

/** A period as people read it, as `32 s` or `0.4 s`. */
export const periodOf = (hz: number) => `${number(1 / hz)} s`;

/** The channels of a kind on logarithmic axes, which have no place for the frequency zero. */
export function spectrumChart({ channels }: KindSpectrum): SpectrumChart {
  const frequencies = (channels[0]?.frequencies_hz ?? []).filter((hz) => hz > 0);
  const skipped = (channels[0]?.frequencies_hz.length ?? 0) - frequencies.length;
  const varying = channels.filter((one) => !one.is_constant);
  const largest = Math.max(0, ...varying.flatMap((one) => one.density));
  const colourOf = (channel: string) => seriesColour(channels.findIndex((one) => one.channel === channel));
  return {
    frequencies,
    lines: varying.map((one) => ({
      label: one.channel,
      colour: colourOf(one.channel),
      values: one.density.slice(skipped).map((value) => (value > largest * MIN_FRACTION ? value : null)),
    })),
    verticals: varying.flatMap((one) =>
      one.dominant.map((peak, index) => ({
        value: peak.hz,
        colour: colourOf(one.channel),
        // One label for each channel: the lowest frequency decides about the window.
        label: index === 0 ? periodOf(peak.hz) : undefined,
      })),
    ),
    constant: channels.filter((one) => one.is_constant).map((one) => one.channel),
  };
}

/** The kind that decides first, then those with dominant frequencies, then the others by name. */
export function orderedKinds({ kinds, advice }: SpectrumReport): KindSpectrum[] {
  const rank = (kind: KindSpectrum) =>
    kind.kind === advice.kind ? 0 : kind.channels.some((one) => one.dominant.length > 0) ? 1 : 2;
  return [...kinds].sort((a, b) => rank(a) - rank(b) || a.kind.localeCompare(b.kind, undefined, { numeric: true }));
}

export function dominantTable({ kinds }: SpectrumReport): TableData {
  const rows = kinds.flatMap(({ kind, channels }) =>
    channels.flatMap(({ channel, dominant }) =>
      dominant.map((peak) => [kind, channel, peak.hz, peak.seconds, peak.times_noise]),
    ),
  );
  return { columns: ['kind', 'channel', 'frequency, Hz', 'period, s', 'times the noise'], rows };
}

/** All spectra, one row for each frequency. */
export function spectrumTable({ kinds }: SpectrumReport): TableData {
  const rows = kinds.flatMap(({ kind, channels }) =>
    channels.flatMap(({ channel, frequencies_hz, density }) =>
      frequencies_hz.map((hz, index) => [kind, channel, hz, density[index]]),
    ),
  );
  return { columns: ['kind', 'channel', 'frequency, Hz', 'density, 1/Hz'], rows };
}

export function silhouetteLines({ intervals }: IntervalReport): { x: number[]; lines: Line[] } {
  const line = (label: string, of: (index: number) => number, isMain: boolean): Line => ({
    label,
    colour: '--series-1',
    values: intervals.map((_, index) => of(index)),
    width: isMain ? 2 : 1,
    isDashed: !isMain,
  });
  return {
    x: intervals.map((one) => one.seconds),
    lines: [
      line('− deviation', (index) => intervals[index].silhouette - intervals[index].spread, false),
      line('mean', (index) => intervals[index].silhouette, true),
      line('+ deviation', (index) => intervals[index].silhouette + intervals[index].spread, false),
    ],
  };
}

/** Bytes in the unit that fits. */
export function bytes(value: number): string {
  const units = ['B', 'kB', 'MB', 'GB'];
  let [size, unit] = [value, 0];
  while (size >= 1000 && unit < units.length - 1) [size, unit] = [size / 1000, unit + 1];
  return `${number(size)} ${units[unit]}`;
}
