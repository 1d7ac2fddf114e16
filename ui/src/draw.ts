// Draws the fleet. States differ by pattern as well as by colour; patterns appear once a cell is
// large enough to show them.

import { CELL, GAP, type Box, type Fleet, type NodeBox } from "./fleet";

// The first of the states.
const FREE = 0;

export interface View {
  x: number;
  y: number;
  scale: number;
}

export interface Marks {
  /** Devices that match the search; null: there is no search. */
  found: Set<number> | null;
  /** Nodes that match by themselves. */
  foundNodes: Set<number>;
  node: number;
  device: number;
}

export interface Palette {
  ink: string;
  faint: string;
  line: string;
  paper: string;
  accent: string;
  fill: Record<string, string>;
  mark: Record<string, string>;
}

export function paletteOf(element: Element, states: string[]): Palette {
  const style = getComputedStyle(element);
  const value = (name: string) => style.getPropertyValue(name).trim();
  const fill: Record<string, string> = {}, mark: Record<string, string> = {};
  for (const state of states) {
    fill[state] = value(`--state-${state}`) || "#888";
    mark[state] = value(`--mark-${state}`) || "#000";
  }
  return {
    ink: value("--ink"), faint: value("--faint"), line: value("--line"), paper: value("--paper"),
    accent: value("--accent"), fill, mark,
  };
}

export function draw(
  canvas: HTMLCanvasElement, fleet: Fleet, view: View, marks: Marks, palette: Palette,
): void {
  const context = canvas.getContext("2d", { alpha: false })!;
  const ratio = devicePixelRatio || 1;
  const width = canvas.width / ratio, height = canvas.height / ratio;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, width, height);
  const { scale } = view;
  context.setTransform(ratio * scale, 0, 0, ratio * scale, -view.x * scale * ratio, -view.y * scale * ratio);
  const right = view.x + width / scale, bottom = view.y + height / scale;
  const seen = fleet.nodes.filter(
    (box) => box.x < right && box.y < bottom && box.x + box.w > view.x && box.y + box.h > view.y,
  );
  context.lineWidth = Math.min(0.6, 1 / scale);
  context.strokeStyle = palette.line;
  if (scale > 0.35) {
    for (const box of seen) context.strokeRect(box.x, box.y, box.w, box.h);
  }
  if (CELL * scale >= 5) cells(context, fleet, seen, marks, palette, scale);
  else overview(context, fleet, marks, palette, { x: view.x, y: view.y, w: width / scale, h: height / scale }, scale);
  titles(context, fleet, seen, palette, scale);
  context.fillStyle = palette.ink;
  const size = Math.max(10, Math.min(14, 13 / scale));
  context.font = `600 ${size}px system-ui, sans-serif`;
  for (const group of fleet.groups) {
    if (group.name && size * scale > 5) {
      context.fillText(fitted(context, group.name, Math.max(group.w, 40)), group.x, group.y + 11);
    }
  }
  const chosen = marks.node >= 0 ? fleet.nodes[marks.node] : undefined;
  if (chosen) outline(context, chosen, palette.accent, scale);
}

/** All cells from afar, where patterns cannot be seen: 80,000 of them in one frame. */
function overview(
  context: CanvasRenderingContext2D, fleet: Fleet, marks: Marks, palette: Palette, shown: Box, scale: number,
): void {
  // Gaps narrower than a pixel would only make everything pale.
  const size = CELL + GAP, { cellX, cellY } = fleet;
  const left = shown.x - size, top = shown.y - size, right = shown.x + shown.w, bottom = shown.y + shown.h;
  const isDim = (device: number, node: number) => !marks.found!.has(device) && !marks.foundNodes.has(node);
  for (const dim of marks.found ? [true, false] : [false]) {
    context.globalAlpha = dim ? 0.18 : 1;
    fleet.byState.forEach((devices, state) => {
      context.fillStyle = palette.fill[fleet.data.states[state]!]!;
      for (const device of devices) {
        const x = cellX[device]!, y = cellY[device]!;
        if (x < left || y < top || x > right || y > bottom) continue;
        if (marks.found && isDim(device, fleet.nodeOf[device]!) !== dim) continue;
        context.fillRect(x, y, size, size);
      }
    });
    for (const [box, device, place] of fleet.cut) {
      for (const [part, cell] of partsOf(fleet, device, fleet.cellOf(box, place), scale)) {
        if (marks.found && isDim(part, box.index) !== dim) continue;
        const state = part === device ? FREE : fleet.data.devices.state[part]!;
        context.fillStyle = palette.fill[fleet.data.states[state]!]!;
        context.fillRect(cell.x, cell.y, cell.w, cell.h);
      }
    }
  }
  context.globalAlpha = 1;
  if (marks.device >= 0) {
    outline(context, { x: cellX[marks.device]!, y: cellY[marks.device]!, w: size, h: size }, palette.ink, scale);
  }
}

function cells(
  context: CanvasRenderingContext2D, fleet: Fleet, seen: NodeBox[], marks: Marks,
  palette: Palette, scale: number,
): void {
  const { states } = fleet.data;
  // Cards first, then what is cut from them.
  const drawn = [0, 1].map(() => states.map(() => [] as { box: Box; dim: boolean }[]));
  let chosen: Box | null = null;
  for (const node of seen) {
    node.cards.forEach((device, place) => {
      const cell = fleet.cellOf(node, place);
      const parts = partsOf(fleet, device, cell, scale);
      for (const [part, box] of parts) {
        const dim = marks.found !== null && !marks.found.has(part) && !marks.foundNodes.has(node.index);
        // A card that is cut is the frame of its partitions.
        const state = part === device && parts.length > 1 ? FREE : fleet.data.devices.state[part]!;
        drawn[part === device ? 0 : 1]![state]!.push({ box, dim });
        if (part === marks.device) chosen = box;
      }
    });
  }
  drawn.forEach((layer) => states.forEach((state, number) => {
    for (const dim of [true, false]) {
      const boxes = layer[number]!.filter((each) => each.dim === dim);
      if (!boxes.length) continue;
      context.globalAlpha = dim ? 0.18 : 1;
      context.fillStyle = palette.fill[state]!;
      for (const { box } of boxes) context.fillRect(box.x, box.y, box.w, box.h);
      context.strokeStyle = palette.mark[state]!;
      context.lineWidth = Math.min(0.7, 2.5 / scale);
      context.beginPath();
      for (const { box } of boxes) pattern(context, state, box);
      context.stroke();
    }
  }));
  context.globalAlpha = 1;
  if (chosen) outline(context, chosen, palette.ink, scale);
}

/** A card, and of the partitions cut from it those in use; all of them where there is room. */
export function partsOf(fleet: Fleet, device: number, cell: Box, scale: number): [number, Box][] {
  const parts = fleet.parts.get(device);
  const found: [number, Box][] = [[device, cell]];
  if (!parts || fleet.state(device) === "used") return found;
  if (CELL * scale >= 60) {
    const columns = Math.ceil(Math.sqrt(parts.length)), rows = Math.ceil(parts.length / columns);
    const top = cell.h * 0.2, w = (cell.w - 1) / columns, h = (cell.h - top - 0.5) / rows;
    parts.forEach((part, place) => found.push([part, {
      x: cell.x + 0.5 + (place % columns) * w, y: cell.y + top + Math.floor(place / columns) * h,
      w: w * 0.92, h: h * 0.92,
    }]));
    return found;
  }
  // Far away: what is in use, as wide as its share of the card.
  let x = cell.x + 0.5;
  const wide = cell.w - 1;
  for (const part of parts) {
    if (fleet.state(part) !== "used") continue;
    const w = Math.max(wide * fleet.data.devices.share[part]! / 100, wide / 40);
    if (x + w > cell.x + cell.w) break;
    found.push([part, { x, y: cell.y + 1, w: w * 0.88, h: cell.h - 2 }]);
    x += w;
  }
  return found;
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
  context.font = "3.6px system-ui, sans-serif";
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

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let length = text.length;
  while (length > 1 && context.measureText(`${text.slice(0, length)}…`).width > width) {
    length = Math.floor(length * 0.85);
  }
  return `${text.slice(0, length)}…`;
}

function outline(context: CanvasRenderingContext2D, box: Box, colour: string, scale: number): void {
  const wide = Math.max(2 / scale, 0.6);
  context.strokeStyle = colour;
  context.lineWidth = wide;
  context.strokeRect(box.x - wide, box.y - wide, box.w + 2 * wide, box.h + 2 * wide);
}
