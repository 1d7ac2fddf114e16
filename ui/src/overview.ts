// The cells of a fleet from afar, set as pixels.

import { CELL, GAP, type Box, type Fleet } from "./fleet";
import type { Palette, View } from "./palette";
import { FREE, partsOf, stateOf, type Scene } from "./scene";

// Pixels of a cell below which its edges are soft.
const SOFT = 3;

/** All cells from afar, where patterns cannot be seen: 80,000 of them, set as pixels in a few milliseconds. */
export function overview(
  context: CanvasRenderingContext2D, fleet: Fleet, scene: Scene, palette: Palette, view: View, ratio: number,
): void {
  const { canvas } = context, { width, height } = canvas;
  const image = context.createImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const paper = pixelOf(palette.paper);
  pixels.fill(paper);
  const { cellX, cellY, data } = fleet, k = view.scale * ratio;
  // Gaps narrower than a pixel would only make everything pale.
  const size = CELL + GAP;
  const sharp = (x: number, y: number, w: number, h: number, colour: number) => {
    const left = Math.max(Math.round((x - view.x) * k), 0), top = Math.max(Math.round((y - view.y) * k), 0);
    // What is narrower than a pixel is still seen.
    const right = Math.min(Math.max(Math.round((x + w - view.x) * k), left + 1), width);
    const bottom = Math.min(Math.max(Math.round((y + h - view.y) * k), top + 1), height);
    for (let line = top; line < bottom; line++) {
      const begin = line * width;
      for (let at = left; at < right; at++) pixels[begin + at] = colour;
    }
  };
  // Of cells about as large as pixels, each pixel shows the mean.
  const soft = (x: number, y: number, w: number, h: number, colour: number) => {
    const left = Math.max((x - view.x) * k, 0), top = Math.max((y - view.y) * k, 0);
    const right = Math.min((x + w - view.x) * k, width), bottom = Math.min((y + h - view.y) * k, height);
    for (let line = Math.floor(top); line < bottom; line++) {
      const tall = Math.min(bottom, line + 1) - Math.max(top, line), begin = line * width;
      for (let at = Math.floor(left); at < right; at++) {
        const part = tall * (Math.min(right, at + 1) - Math.max(left, at));
        pixels[begin + at] = mixed(colour, pixels[begin + at]!, part);
      }
    }
  };
  const fill = size * k < SOFT ? soft : sharp;
  const fills = data.states.map((state) => pixelOf(palette.fill[state]!)), hues = palette.hues.map(pixelOf);
  const used = data.states.indexOf("used"), byHue = scene.colour === "namespace";
  const colour = (device: number, node: number, state: number) => {
    const hue = byHue && state === used ? fleet.hue(device) : -1;
    const found = hue >= 0 ? hues[hue]! : fills[state]!;
    const isDim = scene.found !== null && !scene.found.has(device) && !scene.foundNodes.has(node);
    return isDim ? mixed(found, paper, 0.18) : found;
  };
  const left = view.x - size, top = view.y - size, right = view.x + width / k, bottom = view.y + height / k;
  fleet.byState.forEach((devices, ofState) => {
    for (const device of devices) {
      const x = cellX[device]!, y = cellY[device]!;
      if (x < left || y < top || x > right || y > bottom) continue;
      const state = scene.states.size ? scene.states.get(device) ?? ofState : ofState;
      fill(x, y, size, size, colour(device, fleet.nodeOf[device]!, state));
    }
  });
  for (const [box, device, place] of fleet.cut) {
    const x = cellX[device]!, y = cellY[device]!;
    if (x < left || y < top || x > right || y > bottom) continue;
    for (const [part, cell] of partsOf(fleet, device, fleet.cellOf(box, place), view.scale, scene)) {
      fill(cell.x, cell.y, cell.w, cell.h, colour(part, box.index, part === device ? FREE : stateOf(fleet, scene, part)));
    }
  }
  context.putImageData(image, 0, 0);
  if (scene.device >= 0) {
    outline(context, { x: cellX[scene.device]!, y: cellY[scene.device]!, w: size, h: size }, palette.ink, view.scale);
  }
}

/** A colour such as #1b2530 as a pixel: bytes in the order of the machine, which is red first. */
function pixelOf(colour: string): number {
  const hex = /^#([0-9a-f]{6})$/i.exec(colour)?.[1] ?? "888888";
  const [red, green, blue] = [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return (0xff000000 | (blue! << 16) | (green! << 8) | red!) >>> 0;
}

function mixed(colour: number, other: number, part: number): number {
  // Red and blue at once, in 256 parts.
  const mine = Math.round(part * 256), rest = 256 - mine;
  const redBlue = (((colour & 0xff00ff) * mine + (other & 0xff00ff) * rest) >>> 8) & 0xff00ff;
  const green = (((colour & 0xff00) * mine + (other & 0xff00) * rest) >>> 8) & 0xff00;
  return (0xff000000 | redBlue | green) >>> 0;
}

/** A frame around a box, of the same width at every scale. */
export function outline(context: CanvasRenderingContext2D, box: Box, colour: string, scale: number): void {
  const wide = Math.max(2 / scale, 0.6);
  context.strokeStyle = colour;
  context.lineWidth = wide;
  context.strokeRect(box.x - wide, box.y - wide, box.w + 2 * wide, box.h + 2 * wide);
}
