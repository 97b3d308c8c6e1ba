// Drawing on canvases: colours of the theme, sizes, and text that fits.

export interface Inks {
  ink: string;
  minor: string;
  line: string;
  alarm: string;
  accent: string;
  surface: string;
  font: string;
}

export function inksOf(element: Element): Inks {
  const style = getComputedStyle(element);
  const value = (name: string) => style.getPropertyValue(name).trim();
  return {
    ink: value('--ink'),
    minor: value('--ink-2'),
    line: value('--line-strong'),
    alarm: value('--alarm'),
    accent: value('--accent'),
    surface: value('--surface'),
    font: `${parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.75}px ${style.fontFamily}`,
  };
}

/** Sets the size of a canvas in CSS pixels, and lets drawing use them. */
export function sized(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  ratio: number,
): CanvasRenderingContext2D | null {
  const [w, h] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d');
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** A name that fits, with an ellipsis if it has to be cut. */
export function fitted(context: CanvasRenderingContext2D, name: string, room: number): string {
  if (context.measureText(name).width <= room) return name;
  let length = Math.min(name.length, 40);
  while (length > 1 && context.measureText(`${name.slice(0, length)}…`).width > room) length -= 1;
  return `${name.slice(0, length)}…`;
}
