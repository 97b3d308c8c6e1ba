// Where each thread is drawn. Nodes are rows and threads are columns; if there are more nodes than fit, rows continue in
// further blocks to the right.

/** The threads of one node. */
export interface Row {
  node: string;
  threads: number;
  /** The position of its first thread in the plane. */
  offset: number;
}

export interface Geometry {
  nBlocks: number;
  /** Rows of a block; the last block may have fewer. */
  rowsPerBlock: number;
  /** Columns of a block: the threads of the largest node. */
  columns: number;
  /** The size of a cell in CSS pixels. */
  cellWidth: number;
  cellHeight: number;
  /** The space for names to the left of each block. */
  gutter: number;
  /** The distance from one block to the next. */
  blockStep: number;
  top: number;
  width: number;
  height: number;
}

export interface Space {
  width: number;
  /** The height that may be used without scrolling. */
  height: number;
  pixelRatio: number;
  /** The width of the longest name. */
  nameWidth: number;
  /** How much larger text is than usual, as on wall displays. */
  scale: number;
}

export interface Cell {
  row: number;
  thread: number;
}

/** The largest cell, at the usual size of text. */
const MAX_CELL_WIDTH = 72;
const MAX_CELL_HEIGHT = 52;
/** Rows lower than this have no room for a name each. */
export const NAMED_HEIGHT = 12;
const BLOCK_GAP = 12;
/** Marks of rows with threads above the threshold stand here. */
export const MARK_WIDTH = 10;
const MAX_BLOCKS = 64;

/** The rows of a plane from `[node, threads]` pairs. */
export function rowsOf(nodes: { node: string; threads: number }[]): Row[] {
  let offset = 0;
  return nodes.map(({ node, threads }) => {
    const row = { node, threads, offset };
    offset += threads;
    return row;
  });
}

/** The number of blocks that makes the cells largest. */
export function geometry(rows: Row[], space: Space): Geometry {
  const columns = Math.max(1, ...rows.map((row) => row.threads));
  let best: Geometry | null = null;
  for (let nBlocks = 1; nBlocks <= Math.min(MAX_BLOCKS, Math.max(1, rows.length)); nBlocks += 1) {
    const one = withBlocks(rows.length, columns, nBlocks, space);
    if (best && smallest(one) <= smallest(best)) {
      // Fewer blocks are easier to read, and more than this only makes cells narrower.
      if (one.cellWidth < best.cellWidth && one.cellWidth < 1) break;
      continue;
    }
    best = one;
  }
  return best as Geometry;
}

const smallest = (one: Geometry) => Math.min(one.cellWidth, one.cellHeight);

function withBlocks(nRows: number, columns: number, nBlocks: number, space: Space): Geometry {
  const rowsPerBlock = Math.max(1, Math.ceil(nRows / nBlocks));
  const rawHeight = Math.min(MAX_CELL_HEIGHT * space.scale, space.height / rowsPerBlock);
  const cellHeight = snapped(rawHeight, space.pixelRatio);
  const gutter = space.nameWidth + MARK_WIDTH + 4;
  const room = (space.width - nBlocks * gutter - (nBlocks - 1) * BLOCK_GAP) / nBlocks;
  const cellWidth = snapped(Math.min(MAX_CELL_WIDTH * space.scale, Math.max(0.01, room / columns)), space.pixelRatio);
  const blockStep = gutter + columns * cellWidth + BLOCK_GAP;
  return {
    nBlocks,
    rowsPerBlock,
    columns,
    cellWidth,
    cellHeight,
    gutter,
    blockStep,
    top: 0,
    width: nBlocks * blockStep - BLOCK_GAP,
    height: rowsPerBlock * cellHeight,
  };
}

/** Whole device pixels where there are several per cell, so that all cells look alike. */
function snapped(size: number, pixelRatio: number): number {
  const pixels = size * pixelRatio;
  return pixels >= 2 ? Math.floor(pixels) / pixelRatio : size;
}

/** The upper left corner of a cell. */
export function cellAt(one: Geometry, { row, thread }: Cell): { x: number; y: number } {
  const block = Math.floor(row / one.rowsPerBlock);
  return {
    x: block * one.blockStep + one.gutter + thread * one.cellWidth,
    y: one.top + (row % one.rowsPerBlock) * one.cellHeight,
  };
}

/** The cell below a point; null beside the cells. */
export function hit(one: Geometry, rows: Row[], x: number, y: number): Cell | null {
  const block = Math.floor(x / one.blockStep);
  const inBlock = x - block * one.blockStep - one.gutter;
  const line = Math.floor((y - one.top) / one.cellHeight);
  if (inBlock < 0 || line < 0 || line >= one.rowsPerBlock || block < 0 || block >= one.nBlocks) return null;
  const row = block * one.rowsPerBlock + line;
  const thread = Math.floor(inBlock / one.cellWidth);
  return row < rows.length && thread < rows[row].threads ? { row, thread } : null;
}

/** The row whose name is at a point; null if there is none. */
export function rowAt(one: Geometry, rows: Row[], x: number, y: number): number | null {
  const block = Math.floor(x / one.blockStep);
  const line = Math.floor((y - one.top) / one.cellHeight);
  const row = block * one.rowsPerBlock + line;
  return block >= 0 && block < one.nBlocks && line >= 0 && line < one.rowsPerBlock && row < rows.length ? row : null;
}

/** The cell after a key; null if the key does not move the cursor. */
export function moved(cell: Cell, key: string, rows: Row[], page: number): Cell | null {
  const row = (by: number) => {
    const next = Math.min(rows.length - 1, Math.max(0, cell.row + by));
    return { row: next, thread: Math.min(cell.thread, rows[next].threads - 1) };
  };
  const last = rows[cell.row].threads - 1;
  switch (key) {
    case 'ArrowUp':
      return row(-1);
    case 'ArrowDown':
      return row(1);
    case 'ArrowLeft':
      return { ...cell, thread: Math.max(0, cell.thread - 1) };
    case 'ArrowRight':
      return { ...cell, thread: Math.min(last, cell.thread + 1) };
    case 'Home':
      return { ...cell, thread: 0 };
    case 'End':
      return { ...cell, thread: last };
    case 'PageUp':
      return row(-page);
    case 'PageDown':
      return row(page);
    default:
      return null;
  }
}
