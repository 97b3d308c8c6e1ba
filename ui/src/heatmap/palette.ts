// Colours of scores. Lightness changes steadily with the score, from the colour of the page to its opposite, so the order
// is visible without colour vision. The hue goes from blue to orange at the threshold.

import type { Theme } from '../state/theme.svelte';

/** The byte of a score at the threshold; see `score_byte` of the server. */
export const THRESHOLD = 100;

interface Stop {
  byte: number;
  lightness: number;
  chroma: number;
  hue: number;
}

const STOPS: Record<Theme, Stop[]> = {
  light: [
    { byte: 0, lightness: 0.95, chroma: 0.012, hue: 250 },
    { byte: 50, lightness: 0.89, chroma: 0.035, hue: 250 },
    { byte: 100, lightness: 0.79, chroma: 0.075, hue: 250 },
    { byte: 101, lightness: 0.73, chroma: 0.15, hue: 62 },
    { byte: 170, lightness: 0.57, chroma: 0.17, hue: 48 },
    { byte: 255, lightness: 0.36, chroma: 0.13, hue: 32 },
  ],
  dark: [
    { byte: 0, lightness: 0.25, chroma: 0.015, hue: 250 },
    { byte: 50, lightness: 0.32, chroma: 0.045, hue: 250 },
    { byte: 100, lightness: 0.43, chroma: 0.08, hue: 250 },
    { byte: 101, lightness: 0.62, chroma: 0.14, hue: 50 },
    { byte: 170, lightness: 0.76, chroma: 0.15, hue: 65 },
    { byte: 255, lightness: 0.95, chroma: 0.11, hue: 98 },
  ],
};

export type Rgb = [number, number, number];

/** The colour of each byte as 32 bits in the order of canvas pixels. */
export function lookup(theme: Theme): Uint32Array {
  const table = new Uint32Array(256);
  for (let byte = 0; byte < 256; byte += 1) {
    const [red, green, blue] = colour(byte, theme);
    table[byte] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  return table;
}

export function colour(byte: number, theme: Theme): Rgb {
  const stops = STOPS[theme];
  const after = Math.max(
    1,
    stops.findIndex((stop) => stop.byte >= byte),
  );
  const [a, b] = [stops[after - 1], stops[after]];
  const part = (byte - a.byte) / (b.byte - a.byte);
  const mix = (x: number, y: number) => x + (y - x) * part;
  return fromOklch(mix(a.lightness, b.lightness), mix(a.chroma, b.chroma), mix(a.hue, b.hue));
}

export function css(byte: number, theme: Theme): string {
  return `rgb(${colour(byte, theme).join(' ')})`;
}

/** The score of a byte, as the server encodes it. */
export function scoreOf(byte: number): number {
  return byte <= THRESHOLD ? byte / THRESHOLD : Math.exp((byte - THRESHOLD) / 50);
}

/** Oklch to sRGB (Björn Ottosson, 2020). */
function fromOklch(lightness: number, chroma: number, hue: number): Rgb {
  const angle = (hue / 180) * Math.PI;
  const [a, b] = [chroma * Math.cos(angle), chroma * Math.sin(angle)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    gamma(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    gamma(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    gamma(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function gamma(linear: number): number {
  const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
  return Math.round(Math.min(1, Math.max(0, value)) * 255);
}
