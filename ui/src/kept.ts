// A picture that is moved is drawn once, a little beyond its edges, and then shifted: that takes a
// fraction of the time.

import type { Box } from "./fleet";

// How much of a window is drawn beyond each of its edges.
const BEYOND = 0.25;
// Pixels around all there is, for what is drawn on its edge.
const EDGE = 40;

type Paint = (context: CanvasRenderingContext2D, part: Box) => void;

/** What was drawn: of what, and which part of it in pixels. */
interface Drawn {
  of: readonly unknown[];
  part: Box;
}

export class Kept {
  private last: Drawn | null = null;
  private readonly canvas = document.createElement("canvas");
  private keeps: Drawn | null = null;

  /** Shows a part of a picture: from what is kept if everything in `of` is as it was the last time. */
  show(context: CanvasRenderingContext2D, of: readonly unknown[], part: Box, all: Box, paint: Paint): void {
    const isMoved = this.last !== null && isAlike(this.last.of, of);
    this.last = { of, part };
    if (!isMoved) {
      this.keeps = null;
      paint(context, part);
      return;
    }
    const edges = { x: all.x - EDGE, y: all.y - EDGE, w: all.w + 2 * EDGE, h: all.h + 2 * EDGE };
    if (!this.keeps || !isInside(common(part, edges), this.keeps.part)) this.keep(of, part, edges, paint);
    const { x, y } = this.keeps!.part;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.canvas, Math.round(x - part.x), Math.round(y - part.y));
  }

  private keep(of: readonly unknown[], part: Box, edges: Box, paint: Paint): void {
    const { x, y, w, h } = part;
    const wide = { x: x - w * BEYOND, y: y - h * BEYOND, w: w * (1 + 2 * BEYOND), h: h * (1 + 2 * BEYOND) };
    const { x: left, y: top, w: width, h: height } = common(wide, edges);
    // Whole pixels from the part that is shown: then both are the same to the pixel.
    const kept = {
      x: x - Math.ceil(x - left), y: y - Math.ceil(y - top), w: Math.ceil(width) + 1, h: Math.ceil(height) + 1,
    };
    this.canvas.width = kept.w;
    this.canvas.height = kept.h;
    paint(this.canvas.getContext("2d", { alpha: false })!, kept);
    this.keeps = { of, part: kept };
  }
}

function isAlike(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.every((each, at) => each === other[at]);
}

function isInside(part: Box, of: Box): boolean {
  return part.x >= of.x && part.y >= of.y && part.x + part.w <= of.x + of.w && part.y + part.h <= of.y + of.h;
}

/** What two boxes have in common; if that is nothing, an empty box at the edge of the second. */
function common(box: Box, of: Box): Box {
  const right = of.x + of.w, bottom = of.y + of.h;
  const x = Math.min(Math.max(box.x, of.x), right), y = Math.min(Math.max(box.y, of.y), bottom);
  return { x, y, w: Math.max(Math.min(box.x + box.w, right) - x, 0), h: Math.max(Math.min(box.y + box.h, bottom) - y, 0) };
}
