// Draws the fleet. States differ by pattern as well as by colour; patterns appear once a cell is
// large enough to show them.

import { CELL, GAP, TAINTED, UNHEALTHY, type Box, type Fleet, type NodeBox } from "./fleet";
import { Kept } from "./kept";
import { outline, overview } from "./overview";
import type { Palette, View } from "./palette";
import { FREE, partsOf, stateOf, type Scene } from "./scene";

// Pixels of a cell from which on patterns can be seen.
const NEAR = 6;

// What each map has drawn last.
const kept = new WeakMap<HTMLCanvasElement, Kept>();

/** Draws a view of the fleet, with what the scene adds to it. */
export function draw(
  canvas: HTMLCanvasElement, fleet: Fleet, view: View, scene: Scene, palette: Palette, moved = 1,
): void {
  const context = canvas.getContext("2d", { alpha: false })!;
  const ratio = devicePixelRatio || 1, { scale } = view, k = scale * ratio;
  const picture = kept.get(canvas) ?? new Kept();
  kept.set(canvas, picture);
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  const part = { x: view.x * k, y: view.y * k, w: canvas.width, h: canvas.height };
  const all = { x: 0, y: 0, w: fleet.width * k, h: fleet.height * k };
  picture.show(context, [fleet, scene, palette.paper, palette.ink, k, part.w, part.h], part, all, (on, { x, y, w, h }) => {
    still(on, fleet, { x: x / k, y: y / k, w: w / k, h: h / k }, scale, ratio, scene, palette);
  });
  context.setTransform(k, 0, 0, k, -part.x, -part.y);
  for (const arrow of scene.arrows) drawArrow(context, fleet, arrow, palette, scale, moved);
}

/** Draws all that stays where it is on the map, in a part of it. */
function still(
  context: CanvasRenderingContext2D, fleet: Fleet, shown: Box, scale: number, ratio: number, scene: Scene,
  palette: Palette,
): void {
  const k = scale * ratio;
  context.setTransform(k, 0, 0, k, -shown.x * k, -shown.y * k);
  context.fillStyle = palette.paper;
  context.fillRect(shown.x, shown.y, shown.w, shown.h);
  const right = shown.x + shown.w, bottom = shown.y + shown.h;
  const seen = fleet.nodes.filter(
    (box) => box.x < right && box.y < bottom && box.x + box.w > shown.x && box.y + box.h > shown.y,
  );
  const isNear = CELL * scale >= NEAR;
  if (!isNear) overview(context, fleet, scene, palette, { x: shown.x, y: shown.y, scale }, ratio);
  context.lineWidth = Math.min(0.6, 1 / scale);
  context.strokeStyle = palette.line;
  if (scale > 0.35) {
    context.beginPath();
    for (const box of seen) context.rect(box.x, box.y, box.w, box.h);
    context.stroke();
  }
  if (isNear) cells(context, fleet, seen, scene, palette, scale);
  lights(context, fleet, scene, palette, shown, scale);
  titles(context, fleet, seen, palette, scale);
  context.fillStyle = palette.ink;
  const size = Math.min(14, 15 / scale);
  context.font = `600 ${size}px system-ui, sans-serif`;
  for (const group of fleet.groups) {
    if (group.name && size * scale > 5) {
      context.fillText(groupName(context, group.name, Math.max(group.w, 40)), group.x, group.y + 11);
    }
  }
  for (const [node, change] of scene.nodes) {
    const box = fleet.nodes[node];
    if (!box) continue;
    context.setLineDash(change === "loses" || change === "goes" ? [3 / scale, 3 / scale] : []);
    outline(context, box, change === "gains" ? palette.good : palette.bad, scale);
    context.setLineDash([]);
  }
  const chosen = scene.node >= 0 ? fleet.nodes[scene.node] : undefined;
  if (chosen) outline(context, chosen, palette.accent, scale);
}

/** An arrow from node to node with the name of the pod, and the pod on its way. */
function drawArrow(
  context: CanvasRenderingContext2D, fleet: Fleet, arrow: Scene["arrows"][number], palette: Palette,
  scale: number, moved: number,
): void {
  const from = fleet.nodes[arrow.from], to = fleet.nodes[arrow.to];
  const end = to ?? from;
  if (!end) return;
  const size = 1 / scale, x2 = end.x + end.w / 2, y2 = end.y + end.h / 2;
  context.lineWidth = 2 * size;
  context.strokeStyle = context.fillStyle = to ? palette.good : palette.bad;
  let x = x2, y = y2;
  if (from && to && from !== to) {
    const x1 = from.x + from.w / 2, y1 = from.y + from.h / 2;
    const angle = Math.atan2(y2 - y1, x2 - x1), head = 9 * size;
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x2, y2);
    for (const turn of [-0.45, 0.45]) {
      context.moveTo(x2, y2);
      context.lineTo(x2 - head * Math.cos(angle + turn), y2 - head * Math.sin(angle + turn));
    }
    context.stroke();
    x = x1 + (x2 - x1) * moved;
    y = y1 + (y2 - y1) * moved;
    context.fillRect(x - 4 * size, y - 4 * size, 8 * size, 8 * size);
  }
  const text = arrow.label;
  context.font = `600 ${12 * size}px system-ui, sans-serif`;
  const wide = context.measureText(text).width;
  const left = x - wide / 2, top = y - 20 * size;
  context.fillStyle = palette.paper;
  context.fillRect(left - 4 * size, top, wide + 8 * size, 15 * size);
  context.fillStyle = palette.ink;
  context.fillText(text, left, top + 12 * size);
}

/** Frames around the devices that a claim could use: whole for those free now, dashed for others. */
function lights(
  context: CanvasRenderingContext2D, fleet: Fleet, scene: Scene, palette: Palette, shown: Box, scale: number,
): void {
  if (!scene.now.size && !scene.later.size) return;
  const small = CELL * scale < NEAR, wide = Math.max(1.6 / scale, 0.5);
  for (const [devices, solid] of [[scene.later, false], [scene.now, true]] as const) {
    context.strokeStyle = context.fillStyle = solid ? palette.lit : palette.ink;
    context.lineWidth = solid ? wide * 1.5 : wide;
    context.setLineDash(solid ? [] : [1.5, 1.2]);
    if (small && !solid) continue;
    for (const device of devices) {
      const box = fleet.boxOf(device, (card, cell) => partsOf(fleet, card, cell, scale, scene));
      if (!box || box.x > shown.x + shown.w || box.y > shown.y + shown.h || box.x + box.w < shown.x || box.y + box.h < shown.y) continue;
      if (small) context.fillRect(box.x, box.y, CELL + GAP, CELL + GAP);
      else context.strokeRect(box.x - wide / 2, box.y - wide / 2, box.w + wide, box.h + wide);
    }
  }
  context.setLineDash([]);
}

/** The colour of a cell: by its state, or by who holds it. */
function colourOf(fleet: Fleet, scene: Scene, palette: Palette, device: number, state: number): string {
  if (scene.colour === "namespace" && fleet.data.states[state] === "used") {
    const hue = fleet.hue(device);
    if (hue >= 0) return palette.hues[hue]!;
  }
  return palette.fill[fleet.data.states[state]!]!;
}

interface Drawn {
  box: Box;
  dim: boolean;
  colour: string;
  /** How much of it is held, in percent; what is not a share of a device is whole. */
  fill: number;
  flags: number;
}

function cells(
  context: CanvasRenderingContext2D, fleet: Fleet, seen: NodeBox[], scene: Scene,
  palette: Palette, scale: number,
): void {
  const { states, devices } = fleet.data;
  // Cards first, then what is cut from them.
  const drawn = [0, 1].map(() => states.map(() => [] as Drawn[]));
  let chosen: Box | null = null;
  for (const node of seen) {
    node.cards.forEach((device, place) => {
      const cell = fleet.cellOf(node, place);
      const parts = partsOf(fleet, device, cell, scale, scene);
      for (const [part, box] of parts) {
        const dim = scene.found !== null && !scene.found.has(part) && !scene.foundNodes.has(node.index);
        // A card that is cut is the frame of its partitions.
        const state = part === device && parts.length > 1 ? FREE : stateOf(fleet, scene, part);
        const isShare = !scene.states.has(part) && devices.fill[part]! > 0;
        drawn[part === device ? 0 : 1]![state]!.push({
          box, dim, colour: colourOf(fleet, scene, palette, part, state),
          fill: isShare ? devices.fill[part]! : 100, flags: devices.flags[part]!,
        });
        if (part === scene.device) chosen = box;
      }
    });
  }
  drawn.forEach((layer) => states.forEach((state, number) => {
    for (const dim of [true, false]) {
      const cellsOf = layer[number]!.filter((each) => each.dim === dim);
      if (!cellsOf.length) continue;
      context.globalAlpha = dim ? 0.18 : 1;
      for (const { box, colour, fill } of cellsOf) {
        context.fillStyle = fill < 100 ? palette.fill["free"]! : colour;
        context.fillRect(box.x, box.y, box.w, box.h);
        if (fill >= 100) continue;
        context.fillStyle = colour;
        const h = box.h * fill / 100;
        context.fillRect(box.x, box.y + box.h - h, box.w, h);
      }
      context.strokeStyle = palette.mark[state]!;
      context.lineWidth = Math.min(0.7, 2.5 / scale);
      context.beginPath();
      for (const { box, fill } of cellsOf) pattern(context, fill < 100 ? "free" : state, box);
      context.stroke();
      if (state === "used") flagged(context, cellsOf, palette, scale);
    }
  }));
  context.globalAlpha = 1;
  if (chosen) outline(context, chosen, palette.ink, scale);
}

/** Devices in use that are tainted or unhealthy: a corner with the mark of either. */
function flagged(context: CanvasRenderingContext2D, cellsOf: Drawn[], palette: Palette, scale: number): void {
  for (const { box, flags } of cellsOf) {
    if (!flags) continue;
    const state = flags & UNHEALTHY ? "unusable" : flags & TAINTED ? "tainted" : "";
    const size = Math.min(box.w, box.h) * 0.5;
    const corner = { x: box.x + box.w - size, y: box.y, w: size, h: size };
    context.fillStyle = palette.fill[state]!;
    context.fillRect(corner.x, corner.y, size, size);
    context.strokeStyle = palette.mark[state]!;
    context.lineWidth = Math.min(0.7, 2 / scale);
    context.beginPath();
    pattern(context, state, corner);
    context.stroke();
  }
}

/** The pattern of a state: it tells states apart without colour. */
export function pattern(context: CanvasRenderingContext2D, state: string, box: Box): void {
  const { x, y, w, h } = box;
  const line = (x1: number, y1: number, x2: number, y2: number) => {
    context.moveTo(x + x1 * w, y + y1 * h);
    context.lineTo(x + x2 * w, y + y2 * h);
  };
  switch (state) {
    case "free":
      context.rect(x + 0.2, y + 0.2, w - 0.4, h - 0.4);
      break;
    case "blocked":
      line(0, 0.5, 0.5, 0);
      line(0, 1, 1, 0);
      line(0.5, 1, 1, 0.5);
      break;
    case "tainted":
      line(0.5, 0.2, 0.5, 0.6);
      line(0.5, 0.72, 0.5, 0.8);
      break;
    case "cordoned":
      line(0.15, 0.35, 0.85, 0.35);
      line(0.15, 0.65, 0.85, 0.65);
      break;
    case "unusable":
      line(0.2, 0.2, 0.8, 0.8);
      line(0.2, 0.8, 0.8, 0.2);
      break;
  }
}

function titles(
  context: CanvasRenderingContext2D, fleet: Fleet, seen: NodeBox[], palette: Palette, scale: number,
): void {
  if (scale < 1.6) return;
  // As large as there is room for, up to nine pixels; then the size of the cells.
  context.font = `${Math.min(4.8, Math.max(3.6, 9 / scale))}px system-ui, sans-serif`;
  context.fillStyle = palette.ink;
  for (const box of seen) {
    const status = fleet.data.nodes.status[box.index]!;
    const text = status ? `${fleet.nodeName(box.index)} (${status})` : fleet.nodeName(box.index);
    context.fillText(fitted(context, text, box.w - 4), box.x + 2, box.y + 5);
  }
  if (scale < 5) return;
  context.font = "1.5px system-ui, sans-serif";
  for (const box of seen) {
    box.cards.forEach((device, place) => {
      const cell = fleet.cellOf(box, place);
      context.fillStyle = palette.mark[fleet.state(device)]!;
      context.fillText(fitted(context, fleet.deviceName(device), cell.w - 1), cell.x + 0.6, cell.y + 1.6);
      const [holder] = fleet.holders(device);
      if (holder) context.fillText(fitted(context, holder, cell.w - 1), cell.x + 0.6, cell.y + cell.h - 0.8);
    });
  }
}

/** The name of a group; where it is too wide, the rack alone: its zone is the same for many. */
function groupName(context: CanvasRenderingContext2D, name: string, width: number): string {
  const rack = name.split(" · ").at(-1)!;
  return fitted(context, context.measureText(name).width <= width ? name : rack, width);
}

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) {
    length = Math.floor(length * 0.85);
  }
  return `${text.slice(0, length)}…`;
}
