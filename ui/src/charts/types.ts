/** A line of a chart. `colour` is the name of a CSS property. */
export interface Line {
  label: string;
  values: (number | null)[];
  colour: string;
  width?: number;
  isDashed?: boolean;
  isFilled?: boolean;
}

/** A vertical line of a chart, such as a recommendation. `colour` is the name of a CSS property. */
export interface Vertical {
  value: number;
  label?: string;
  colour: string;
}

/** Space beside the drawing area, the same in all charts so that times are aligned. */
export const AXIS_WIDTH = 52;
export const RIGHT_SPACE = 18;

const N_COLOURS = 6;

export const seriesColour = (index: number) => `--series-${(index % N_COLOURS) + 1}`;
