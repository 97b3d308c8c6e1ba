// Charts as files: CSV, JSON and PNG.

export type CellValue = string | number | boolean | null | undefined;

export interface TableData {
  columns: string[];
  rows: CellValue[][];
}

export function toCsv({ columns, rows }: TableData): string {
  return [columns, ...rows].map((row) => row.map(csvCell).join(',')).join('\r\n') + '\r\n';
}

function csvCell(value: CellValue): string {
  if (value === null || value === undefined) return '';
  if (typeof value !== 'string') return String(value);
  // Spreadsheets run text that begins like this; names of jobs are not ours.
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** One object per row. */
export function toJson({ columns, rows }: TableData): string {
  const objects = rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index] ?? null])));
  return `${JSON.stringify(objects, null, 1)}\n`;
}

/** A name that every file system accepts. */
export function fileName(title: string, extension: string): string {
  const name = title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 60);
  return `${name || 'tracewise'}.${extension}`;
}

export function downloadText(name: string, text: string, type: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  download(name, url);
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function download(name: string, url: string): void {
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
}

/** A canvas with its place in the picture; canvases at the same place lie above each other. */
export interface Layer {
  canvas: HTMLCanvasElement;
  x: number;
  y: number;
  label?: string;
}

const MARGIN = 12;
const TITLE_HEIGHT = 28;

/** Saves canvases below a title, on the colour of the page. */
export function downloadPng(title: string, layers: Layer[]): void {
  const ratio = Math.max(1, devicePixelRatio);
  const width = Math.max(200, ...layers.map((layer) => layer.x + layer.canvas.width / ratio)) + 2 * MARGIN;
  const height =
    Math.max(0, ...layers.map((layer) => layer.y + layer.canvas.height / ratio)) + 2 * MARGIN + TITLE_HEIGHT;
  const target = document.createElement('canvas');
  target.width = Math.round(width * ratio);
  target.height = Math.round(height * ratio);
  const context = target.getContext('2d');
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  context.scale(ratio, ratio);
  context.fillStyle = style.getPropertyValue('--surface').trim();
  context.fillRect(0, 0, width, height);
  context.fillStyle = style.getPropertyValue('--ink').trim();
  const family = style.getPropertyValue('--font').trim();
  context.font = `600 15px ${family}`;
  context.textBaseline = 'top';
  context.fillText(title, MARGIN, MARGIN);
  context.font = `12px ${family}`;
  for (const { canvas, x, y, label } of layers) {
    const [left, top] = [MARGIN + x, MARGIN + TITLE_HEIGHT + y];
    if (label) context.fillText(label, left, top - 15);
    context.drawImage(canvas, left, top, canvas.width / ratio, canvas.height / ratio);
  }
  download(fileName(title, 'png'), target.toDataURL('image/png'));
}

/** Canvases one below the other. */
export function stacked(canvases: HTMLCanvasElement[]): Layer[] {
  const ratio = Math.max(1, devicePixelRatio);
  let y = 0;
  return canvases.map((canvas) => {
    const layer = { canvas, x: 0, y };
    y += canvas.height / ratio + 8;
    return layer;
  });
}
