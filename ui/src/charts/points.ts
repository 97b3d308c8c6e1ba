// Points of a scatter plot on a canvas. Each group has a shape besides its colour.

export type Shape = 'circle' | 'square' | 'diamond' | 'cross' | 'triangle';

export interface Group {
  label: string;
  /** A CSS colour, or the name of a CSS property. */
  colour: string;
  shape: Shape;
}

export interface Points {
  /** In pixels. */
  x: Float32Array;
  y: Float32Array;
  /** The position of each point's group. */
  group: ArrayLike<number>;
  isPale: ArrayLike<boolean> | null;
  /** Pale points smaller than others by much are squares, which are quick to draw. */
  paleSize: number;
  isShown: (index: number) => boolean;
  /** Null if nothing is selected. */
  selected: Set<number> | null;
}

/** A colour for a style attribute. */
export const cssColour = (colour: string) => (colour.startsWith('--') ? `var(${colour})` : colour);

const SIZE = 3.4;
/** From this size on, shapes can be told apart. */
const MIN_SHAPE_SIZE = 2;

/** Draws pale points first, then group by group, so that each colour is set once. The first group is on top. */
export function drawPoints(context: CanvasRenderingContext2D, points: Points, groups: Group[]): void {
  const style = getComputedStyle(document.documentElement);
  const inks = groups.map(({ colour }) => (colour.startsWith('--') ? style.getPropertyValue(colour).trim() : colour));
  const surface = style.getPropertyValue('--surface').trim();
  const hasSelection = points.selected !== null;
  const passes: { isPale: boolean; isSelected: boolean; alpha: number }[] = hasSelection
    ? [
        { isPale: true, isSelected: false, alpha: 0.15 },
        { isPale: false, isSelected: false, alpha: 0.15 },
        { isPale: true, isSelected: true, alpha: 0.9 },
        { isPale: false, isSelected: true, alpha: 1 },
      ]
    : [
        { isPale: true, isSelected: false, alpha: 0.38 },
        { isPale: false, isSelected: false, alpha: 0.8 },
      ];
  for (const pass of passes) {
    context.globalAlpha = pass.alpha;
    for (let number = groups.length - 1; number >= 0; number -= 1) {
      const group = groups[number];
      context.beginPath();
      for (let index = 0; index < points.x.length; index += 1) {
        if (points.group[index] !== number || (points.isPale?.[index] ?? false) !== pass.isPale) continue;
        if (hasSelection && points.selected?.has(index) !== pass.isSelected) continue;
        if (!points.isShown(index)) continue;
        const [x, y] = [points.x[index], points.y[index]];
        const size = pass.isPale ? points.paleSize : SIZE;
        if (size < MIN_SHAPE_SIZE) context.rect(x - size, y - size, 2 * size, 2 * size);
        else trace(context, group.shape, x, y, size);
      }
      if (!pass.isPale) {
        // A halo separates groups that overlap.
        context.strokeStyle = surface;
        context.lineWidth = 1.5;
        context.stroke();
      }
      context.fillStyle = inks[number];
      context.fill();
    }
  }
  context.globalAlpha = 1;
}

function trace(context: CanvasRenderingContext2D, shape: Shape, x: number, y: number, size: number): void {
  switch (shape) {
    case 'circle':
      context.moveTo(x + size, y);
      context.arc(x, y, size, 0, 2 * Math.PI);
      break;
    case 'square':
      context.rect(x - size * 0.88, y - size * 0.88, size * 1.76, size * 1.76);
      break;
    case 'diamond':
      context.moveTo(x, y - size * 1.3);
      context.lineTo(x + size * 1.3, y);
      context.lineTo(x, y + size * 1.3);
      context.lineTo(x - size * 1.3, y);
      context.closePath();
      break;
    case 'cross':
      context.rect(x - size * 1.2, y - size * 0.4, size * 2.4, size * 0.8);
      context.rect(x - size * 0.4, y - size * 1.2, size * 0.8, size * 2.4);
      break;
    case 'triangle':
      context.moveTo(x, y - size * 1.4);
      context.lineTo(x + size * 1.3, y + size);
      context.lineTo(x - size * 1.3, y + size);
      context.closePath();
  }
}

/** The same shapes for legends, in a box of 12 by 12. */
export const SHAPE_PATHS: Record<Shape, string> = {
  circle: 'M2 6a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z',
  square: 'M2.5 2.5h7v7h-7Z',
  diamond: 'M6 1L11 6L6 11L1 6Z',
  cross: 'M4.5 1h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5Z',
  triangle: 'M6 1L11 10.5H1Z',
};
