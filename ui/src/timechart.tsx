// Curves and lanes under one time axis: the window of time that is shown, and the time chosen in it.

import { useEffect, useRef, useState } from "preact/hooks";
import { number, useDark } from "./parts";
import { drawLanes, drawStrips, type Frame, heightOf, ROW, sized, timePalette, type Window } from "./timedraw";
import type { Timeline } from "./timeline";

const NARROW = 600;

export type LaneKind = "devices" | "nodes";

interface Props {
  timeline: Timeline;
  states: readonly string[];
  lanes: LaneKind;
  window: Window;
  now: number;
  label: (time: number) => string;
  onNow: (time: number) => void;
  onWindow: (window: Window) => void;
}

export function TimeChart({ timeline, states, lanes, window, now, label, onNow, onWindow }: Props) {
  const curves = useRef<HTMLCanvasElement>(null), rows = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [seen, setSeen] = useState({ top: 0, height: 0 });
  const [under, setUnder] = useState("");
  const dark = useDark();
  const left = width < NARROW ? 84 : 170;
  const frame: Frame = { ...window, left, width: Math.max(width - left, 1) };
  const steps = lanes === "nodes" ? timeline.byNode : null;
  const names = steps ? steps.names : timeline.lanes.names;
  const hasLanes = names.length > 0;

  useEffect(() => {
    const canvas = curves.current!, box = scroller.current;
    const look = () => {
      setWidth(box ? box.clientWidth : canvas.clientWidth);
      if (box) setSeen({ top: box.scrollTop, height: box.clientHeight });
    };
    const resized = new ResizeObserver(look);
    resized.observe(box ?? canvas);
    box?.addEventListener("scroll", look, { passive: true });
    return () => {
      resized.disconnect();
      box?.removeEventListener("scroll", look);
    };
  }, [hasLanes]);
  useEffect(() => {
    if (!width) return;
    const began = performance.now(), canvas = curves.current!;
    const palette = timePalette(canvas, states);
    drawStrips(sized(canvas, width, heightOf(timeline.strips)), timeline, frame, palette, label);
    if (rows.current) {
      const seenRows = { first: Math.floor(seen.top / ROW), offset: seen.top % ROW, height: seen.height };
      drawLanes(sized(rows.current, width, seen.height), timeline, steps, frame, seenRows, palette);
    }
    canvas.dataset["paint"] = (performance.now() - began).toFixed(1);
  }, [timeline, window, width, seen, dark, lanes]);

  const timeAt = (event: MouseEvent) => {
    const at = (event.offsetX - left) / frame.width;
    return window.from + Math.max(0, Math.min(1, at)) * (window.to - window.from);
  };
  const pointing = (event: PointerEvent) => {
    if (event.buttons === 1) onNow(timeAt(event));
    if (event.currentTarget !== rows.current) return;
    const row = Math.floor((seen.top + event.offsetY) / ROW);
    const name = names[row];
    if (name === undefined) return setUnder("");
    const span = steps || event.offsetX < left ? -1 : timeline.on(row, timeAt(event));
    setUnder(span < 0 ? name : `${name}: ${timeline.names[span]}, ${timeline.notes[span]}, ${label(timeline.starts[span]!)} to ${timeline.ends[span]! < Infinity ? label(timeline.ends[span]!) : "now"}`);
  };
  const wheel = useRef<(event: WheelEvent) => void>(() => {});
  wheel.current = (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const span = window.to - window.from;
    if (event.shiftKey) onWindow(moved(timeline, window, (span * (event.deltaX || event.deltaY)) / 800));
    else onWindow(zoomed(timeline, window, timeAt(event), Math.exp(event.deltaY * 0.003)));
  };
  useEffect(() => {
    const box = scroller.current?.parentElement ?? curves.current!.parentElement!;
    const turned = (event: WheelEvent) => wheel.current(event);
    box.addEventListener("wheel", turned, { passive: false });
    return () => box.removeEventListener("wheel", turned);
  }, [hasLanes]);

  const share = (now - window.from) / (window.to - window.from);
  const canvas = { onPointerDown: (event: PointerEvent) => onNow(timeAt(event)), onPointerMove: pointing };
  return (
    <div class="chart">
      <canvas
        ref={curves} class="curve" style={{ height: `${heightOf(timeline.strips)}px` }} role="img" {...canvas}
        aria-label={`Curves of ${timeline.strips.map((strip) => `${strip.title}: ${strip.lines.map((line) => line.title).join(", ")}`).join("; ")}, from ${label(window.from)} to ${label(window.to)}`}
      />
      {hasLanes && (
        <div
          class="lanes" ref={scroller} tabIndex={0} role="region"
          aria-label={`${number(names.length)} lanes of ${lanes}; the table below lists what runs at the chosen time`}
        >
          <div class="sheet" style={{ height: `${names.length * ROW}px` }}>
            <canvas ref={rows} class="curve" style={{ height: `${seen.height}px` }} aria-hidden="true" {...canvas} onPointerLeave={() => setUnder("")} />
          </div>
        </div>
      )}
      {share >= 0 && share <= 1 && width > 0 && <span class="now" style={{ left: `${left + share * frame.width}px` }} aria-hidden="true" />}
      <p class="under quiet" aria-hidden="true"><bdi>{under}</bdi></p>
    </div>
  );
}

const SHORTEST = 1;

/** A window around a time, longer by a factor, within the whole. */
export function zoomed(timeline: Timeline, window: Window, around: number, factor: number): Window {
  const whole = timeline.end - timeline.begin;
  const span = Math.max(Math.min((window.to - window.from) * factor, whole), Math.min(SHORTEST, whole));
  const share = (around - window.from) / (window.to - window.from);
  return moved(timeline, { from: around - share * span, to: around + (1 - share) * span }, 0);
}

export function moved(timeline: Timeline, window: Window, by: number): Window {
  const span = window.to - window.from;
  const from = Math.max(timeline.begin, Math.min(window.from + by, timeline.end - span));
  return { from, to: from + span };
}
