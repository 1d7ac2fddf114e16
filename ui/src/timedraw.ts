// Draws curves and lanes of a time window. Work is bounded by the pixels that are seen, however
// many samples and spans there are.

import { HUES } from "./fleet";
import type { Steps, Strip, Timeline } from "./timeline";

export const AXIS = 22;
export const STRIP = 50;
export const STRIP_GAP = 18;
export const ROW = 15;
// Names of curves stand beside them where there is room, and above them elsewhere.
const WIDE = 120;
const CURVES = 5;
const DASHES = [[], [6, 3], [2, 2], [8, 2, 2, 2], [1, 3]];
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
  172_800, 432_000, 864_000, 2_592_000,
];

export interface Window {
  from: number;
  to: number;
}

/** Where times are on the screen, in CSS pixels. */
export interface Frame extends Window {
  left: number;
  width: number;
}

export interface TimePalette {
  ink: string;
  faint: string;
  line: string;
  paper: string;
  panel: string;
  curves: string[];
  /** Hues, then the colours of states. */
  spans: string[];
}

export function timePalette(element: Element, states: readonly string[]): TimePalette {
  const style = getComputedStyle(element);
  const value = (name: string) => style.getPropertyValue(name).trim();
  return {
    ink: value("--ink"), faint: value("--faint"), line: value("--line"), paper: value("--paper"), panel: value("--panel"),
    curves: Array.from({ length: CURVES }, (_, at) => value(`--curve-${at}`)),
    spans: [
      ...Array.from({ length: HUES }, (_, at) => value(`--hue-${at}`)),
      ...states.map((state) => value(`--state-${state}`) || value("--faint")),
    ],
  };
}

export function sized(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = devicePixelRatio || 1;
  const wide = Math.round(width * ratio), high = Math.round(height * ratio);
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const context = canvas.getContext("2d", { alpha: false })!;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

export function ticks({ from, to, width }: Frame): number[] {
  const wanted = (to - from) / Math.max(width / 110, 1);
  const step = STEPS.find((each) => each >= wanted) ?? Math.ceil(wanted / 2_592_000) * 2_592_000;
  const found: number[] = [];
  for (let time = Math.ceil(from / step) * step; time <= to; time += step) found.push(time);
  return found;
}

export function dashOf(line: number): number[] {
  return DASHES[line % DASHES.length]!;
}

export function heightOf(strips: readonly Strip[]): number {
  return AXIS + strips.length * (STRIP + STRIP_GAP) + 4;
}

export function drawStrips(
  context: CanvasRenderingContext2D, timeline: Timeline, frame: Frame, palette: TimePalette,
  label: (time: number) => string,
): void {
  const { left, width } = frame, height = heightOf(timeline.strips);
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, left + width, height);
  const x = scale(frame);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = palette.faint;
  context.textAlign = "center";
  context.strokeStyle = palette.line;
  context.lineWidth = 1;
  context.beginPath();
  for (const time of ticks(frame)) {
    const at = Math.round(x(time)) + 0.5, text = label(time), half = context.measureText(text).width / 2;
    context.moveTo(at, AXIS - 5);
    context.lineTo(at, height);
    context.fillText(text, Math.min(Math.max(at, half), left + width - half), 12);
  }
  context.stroke();
  timeline.strips.forEach((strip, number) => {
    const top = AXIS + number * (STRIP + STRIP_GAP) + STRIP_GAP - 4, bottom = top + STRIP;
    context.fillStyle = palette.line;
    context.fillRect(left, bottom, width, 1);
    context.textAlign = "right";
    context.fillStyle = palette.faint;
    context.fillText(`${amount(strip.most)}${strip.unit && " %"}`, left - 6, top + 9);
    context.fillText("0", left - 6, bottom);
    context.textAlign = "left";
    context.fillStyle = palette.ink;
    context.font = "600 11px system-ui, sans-serif";
    if (left < WIDE) context.fillText(strip.title, left + 3, top - 3);
    else context.fillText(strip.title, 0, top + STRIP / 2 + 4);
    context.font = "11px system-ui, sans-serif";
    strip.lines.forEach((line, at) => {
      const curve = curveOf(timeline, number, at);
      context.strokeStyle = palette.curves[curve % CURVES]!;
      context.setLineDash(dashOf(curve));
      context.lineWidth = 1.5;
      drawLine(context, timeline.times, line.values, frame, strip.most, top, bottom);
    });
    context.setLineDash([]);
  });
  context.textAlign = "left";
}

/** The number of a line among those of all strips: it tells colour and dash. */
export function curveOf(timeline: Timeline, strip: number, line: number): number {
  return timeline.strips.slice(0, strip).reduce((sum, each) => sum + each.lines.length, line);
}

/** A curve of steps; of many samples in one column of pixels the lowest and the highest are seen. */
function drawLine(
  context: CanvasRenderingContext2D, times: Float64Array, values: Float64Array, frame: Frame, most: number, top: number, bottom: number,
): void {
  const x = scale(frame), y = (value: number) => bottom - (value / most) * (bottom - top);
  const right = frame.left + frame.width;
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle]! <= frame.from) low = middle + 1;
    else high = middle;
  }
  const begin = Math.max(low - 1, 0);
  if (!times.length || times[begin]! > frame.to) return;
  context.beginPath();
  let column = Math.max(x(times[begin]!), frame.left), last = y(values[begin]!);
  context.moveTo(column, last);
  let least = last, greatest = last;
  const flush = () => {
    if (least === greatest) return;
    context.lineTo(column, greatest);
    context.lineTo(column, least);
    context.lineTo(column, last);
  };
  for (let at = begin + 1; at < times.length; at++) {
    const next = x(times[at]!);
    if (next > right) break;
    const value = y(values[at]!);
    if (next - column >= 1) {
      flush();
      context.lineTo(next, last);
      column = next;
      least = greatest = last;
    }
    least = Math.min(least, value);
    greatest = Math.max(greatest, value);
    last = value;
  }
  flush();
  context.lineTo(column, last);
  context.lineTo(right, last);
  context.stroke();
}

export interface Rows {
  /** The first row that is seen, and how far it is scrolled out, in pixels. */
  first: number;
  offset: number;
  height: number;
}

export function drawLanes(
  context: CanvasRenderingContext2D, timeline: Timeline, nodes: Steps | null, frame: Frame, rows: Rows, palette: TimePalette,
): void {
  const { left, width } = frame, right = left + width;
  context.fillStyle = palette.paper;
  context.fillRect(0, 0, right, rows.height);
  const names = nodes ? nodes.names : timeline.lanes.names;
  const x = scale(frame);
  context.font = "11px system-ui, sans-serif";
  for (let row = rows.first, y = -rows.offset; row < names.length && y < rows.height; row++, y += ROW) {
    context.fillStyle = palette.ink;
    context.fillText(shortened(context, names[row]!, left - 8), 0, y + ROW - 4);
    context.fillStyle = palette.panel;
    context.fillRect(left, y + 1, width, ROW - 2);
    if (nodes) drawSteps(context, nodes, row, frame, x, y, palette);
    else drawSpans(context, timeline, row, frame, x, y, palette);
  }
}

function drawSpans(
  context: CanvasRenderingContext2D, timeline: Timeline, lane: number, frame: Frame, x: (time: number) => number, y: number,
  palette: TimePalette,
): void {
  const { starts, ends, hue, lanes } = timeline, right = frame.left + frame.width;
  let drawn = frame.left;
  for (let at = lanes.first[lane]!; at < lanes.first[lane + 1]!; at++) {
    const span = lanes.items[at]!;
    if (starts[span]! > frame.to) break;
    if (ends[span]! < frame.from) continue;
    const from = Math.max(x(starts[span]!), frame.left), to = Math.min(x(ends[span]!), right);
    if (to <= drawn && to - from < 1) continue; // its pixels are drawn already
    context.fillStyle = palette.spans[hue[span]!]!;
    // A gap of half a pixel tells neighbours apart.
    context.fillRect(from, y + 1, Math.max(to - from - 0.5, 1), ROW - 2);
    drawn = Math.max(drawn, from + 1, to);
  }
}

/** How many devices of a node are in use, as the height of its lane. */
function drawSteps(
  context: CanvasRenderingContext2D, nodes: Steps, node: number, frame: Frame, x: (time: number) => number, y: number, palette: TimePalette,
): void {
  const right = frame.left + frame.width, bottom = y + ROW - 1, most = nodes.most[node]!;
  context.fillStyle = palette.curves[0]!;
  let column = frame.left, count = 0, highest = 0;
  const fill = (to: number) => {
    const h = (Math.min(highest, most) / most) * (ROW - 2);
    if (h > 0 && to > column) context.fillRect(column, bottom - h, to - column, h);
  };
  for (let at = nodes.first[node]!; at < nodes.first[node + 1]!; at++) {
    const next = Math.max(x(nodes.times[at]!), frame.left);
    if (next > right) break;
    if (next - column >= 1) {
      fill(next);
      column = next;
      highest = count;
    }
    count = nodes.counts[at]!;
    highest = column === next && next === frame.left ? count : Math.max(highest, count);
  }
  fill(right);
}

function scale({ from, to, left, width }: Frame): (time: number) => number {
  const factor = width / (to - from);
  return (time) => left + (time - from) * factor;
}

function amount(value: number): string {
  return value >= 10_000 ? `${(value / 1000).toLocaleString("en-US")}k` : Number(value.toPrecision(3)).toLocaleString("en-US");
}

/** A name that fits: the end of it is what tells devices apart. */
function shortened(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let from = Math.floor(text.length * (1 - width / context.measureText(text).width));
  while (from < text.length && context.measureText(`…${text.slice(from)}`).width > width) from++;
  return `…${text.slice(from)}`;
}
