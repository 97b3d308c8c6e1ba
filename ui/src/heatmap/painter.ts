// The picture of the plane on a canvas.

import { sized } from '../canvas';
import type { Geometry, Row } from './geometry';
import { paint, pictureOf, pooling } from './picture';

/** Keeps the memory of the picture between updates. */
export class PlanePainter {
  private readonly small = document.createElement('canvas');
  private data: ImageData | null = null;

  draw(
    canvas: HTMLCanvasElement,
    bytes: Uint8Array,
    rows: Row[],
    one: Geometry,
    ratio: number,
    colours: Uint32Array,
  ): void {
    const pool = pooling(one, ratio);
    const picture = pictureOf(one, pool);
    if (this.data?.width !== picture.width || this.data.height !== picture.height) {
      this.data = new ImageData(picture.width, picture.height);
      this.small.width = picture.width;
      this.small.height = picture.height;
    }
    paint(new Uint32Array(this.data.data.buffer), bytes, rows, one, pool, colours);
    this.small.getContext('2d')?.putImageData(this.data, 0, 0);
    const context = sized(canvas, one.width, one.height, ratio);
    if (!context) return;
    context.clearRect(0, 0, one.width, one.height);
    context.imageSmoothingEnabled = false;
    for (let block = 0; block < one.nBlocks; block += 1) {
      context.drawImage(
        this.small,
        block * picture.blockWidth,
        0,
        picture.blockWidth,
        picture.height,
        block * one.blockStep + one.gutter,
        one.top,
        picture.blockWidth * pool.x * one.cellWidth,
        picture.height * pool.y * one.cellHeight,
      );
    }
  }
}
