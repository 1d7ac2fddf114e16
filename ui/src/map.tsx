// The map of a fleet: nodes and devices on a canvas, by mouse, touch and keyboard.

import { useEffect, useRef, useState } from "preact/hooks";
import { draw } from "./draw";
import { CELL, Fleet } from "./fleet";
import { paletteOf, type View } from "./palette";
import { number, useDark } from "./parts";
import { partsOf, type Scene } from "./scene";

const CLOSEST = 40;

/** A pod on its way to another node; without a place on the map it is carried by keys. */
interface Carried {
  pod: string;
  node: number;
  x: number;
  y: number;
}

export interface MapProps {
  fleet: Fleet;
  scene: Scene;
  label: string;
  onChoose: (node: number, device?: number) => void;
  /** Pods can be dragged to another node, or carried there by keys. */
  onMove?: (pod: string, node: number) => void;
  /** How far the pods of arrows are on their way, from 0 to 1. */
  moved?: number;
}

export function Map({ fleet, scene, label, onChoose, onMove, moved = 1 }: MapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef<View | null>(null);
  const shown = useRef({ fleet, scene, moved });
  const [carried, setCarried] = useState<Carried | null>(null);
  // Whether someone zoomed or moved: until then the map shows everything, whatever its size.
  const touched = useRef(false);
  const asked = useRef(0);
  const dark = useDark();
  shown.current = { fleet, scene, moved };

  const paint = () => {
    if (asked.current) return;
    asked.current = requestAnimationFrame(() => {
      asked.current = 0;
      const element = canvas.current;
      if (!element) return;
      const began = performance.now();
      const { fleet, scene, moved } = shown.current;
      view.current ??= whole(element, fleet);
      draw(element, fleet, view.current, scene, paletteOf(element, fleet.data.states), moved);
      element.dataset["paint"] = (performance.now() - began).toFixed(1);
    });
  };
  useEffect(paint, [fleet, scene, moved, dark]);
  useEffect(() => {
    const element = canvas.current!;
    const resized = new ResizeObserver(() => {
      const ratio = devicePixelRatio || 1;
      element.width = Math.round(element.clientWidth * ratio);
      element.height = Math.round(element.clientHeight * ratio);
      if (!touched.current) view.current = null;
      paint();
    });
    resized.observe(element);
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      zoom(event.offsetX, event.offsetY, Math.exp(-event.deltaY * 0.0015));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      resized.disconnect();
      element.removeEventListener("wheel", wheel);
      cancelAnimationFrame(asked.current);
      asked.current = 0;
    };
  }, []);
  // What was chosen elsewhere, in the table or by a search, comes into sight, and where pods go.
  const goal = scene.node >= 0 ? scene.node : scene.arrows[0]?.to ?? -1;
  useEffect(() => {
    const box = fleet.nodes[goal], element = canvas.current;
    if (!box || !element || !view.current) return;
    const { x, y, scale } = view.current;
    const w = element.clientWidth / scale, h = element.clientHeight / scale;
    if (scale < (scene.node >= 0 ? 1.2 : 0.4)) view.current.scale = 3;
    else if (box.x > x && box.y > y && box.x + box.w < x + w && box.y + box.h < y + h) return;
    touched.current = true;
    view.current.x = box.x + box.w / 2 - element.clientWidth / view.current.scale / 2;
    view.current.y = box.y + box.h / 2 - element.clientHeight / view.current.scale / 2;
    paint();
  }, [goal]);

  const zoom = (px: number, py: number, factor: number) => {
    const now = view.current, element = canvas.current;
    if (!now || !element) return;
    const least = whole(element, fleet).scale * 0.8;
    const scale = Math.min(CLOSEST, Math.max(least, now.scale * factor));
    touched.current = true;
    view.current = { scale, x: now.x + px / now.scale - px / scale, y: now.y + py / now.scale - py / scale };
    paint();
  };
  const pan = (dx: number, dy: number) => {
    if (!view.current) return;
    touched.current = true;
    view.current = { ...view.current, x: view.current.x - dx / view.current.scale, y: view.current.y - dy / view.current.scale };
    paint();
  };
  const middle = (factor: number) =>
    canvas.current && zoom(canvas.current.clientWidth / 2, canvas.current.clientHeight / 2, factor);
  const fit = () => {
    view.current = null;
    touched.current = false;
    paint();
  };
  const key = (event: KeyboardEvent) => {
    if (carried && event.key === "Enter") {
      drop(carried, scene.node);
      event.preventDefault();
      return;
    }
    if (carried && event.key === "Escape") {
      setCarried(null);
      event.preventDefault();
      return;
    }
    const steps: Record<string, () => void> = {
      "+": () => middle(1.5), "=": () => middle(1.5), "-": () => middle(1 / 1.5), "0": fit,
      ArrowRight: () => event.shiftKey ? pan(-60, 0) : step(1),
      ArrowLeft: () => event.shiftKey ? pan(60, 0) : step(-1),
      ArrowDown: () => event.shiftKey ? pan(0, -60) : below(1),
      ArrowUp: () => event.shiftKey ? pan(0, 60) : below(-1),
      Escape: () => onChoose(-1),
      ...(onMove ? { m: pickUp } : {}),
    };
    const does = steps[event.key];
    if (!does) return;
    does();
    event.preventDefault();
  };
  // The key m takes the next of the pods on the chosen node.
  const pickUp = () => {
    const pods = scene.node >= 0 ? fleet.podsOn(scene.node) : [];
    const device = scene.device >= 0 ? fleet.holders(scene.device).find((each) => each.startsWith("pod "))?.slice(4) : undefined;
    const before = carried && carried.node === scene.node ? pods.indexOf(carried.pod) : -1;
    const pod = before < 0 && device ? device : pods[(before + 1) % Math.max(pods.length, 1)];
    setCarried(pod ? { pod, node: scene.node, x: -1, y: -1 } : null);
  };
  const drop = (what: Carried, node: number) => {
    setCarried(null);
    if (node >= 0 && node !== what.node) onMove?.(what.pod, node);
  };
  const step = (by: number) => {
    const most = fleet.nodes.length;
    if (most && by) onChoose(scene.node < 0 ? 0 : (scene.node + by + most) % most);
  };
  const below = (by: number) => {
    const now = fleet.nodes[scene.node];
    if (!now) {
      step(1);
      return;
    }
    const inLine = fleet.nodes.filter((box) => (box.y - now.y) * by > 0 && Math.abs(box.x - now.x) < now.w / 2);
    inLine.sort((a, b) => Math.abs(a.y - now.y) - Math.abs(b.y - now.y));
    if (inLine[0]) onChoose(inLine[0].index);
  };

  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
  const grabbed = useRef<Carried | null>(null);
  const hit = (event: PointerEvent): [number, number] => {
    const now = view.current;
    if (!now) return [-1, -1];
    const x = now.x + event.offsetX / now.scale, y = now.y + event.offsetY / now.scale;
    const inside = (box: { x: number; y: number; w: number; h: number }) =>
      x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h;
    const box = fleet.nodes.find(inside);
    if (!box) return [-1, -1];
    let device = -1;
    box.cards.forEach((card, place) => {
      for (const [part, cell] of partsOf(fleet, card, fleet.cellOf(box, place), now.scale, scene)) {
        if (inside(cell)) device = part;
      }
    });
    return [box.index, CELL * now.scale >= 7 ? device : -1];
  };
  return (
    <div class="map">
      <canvas
        ref={canvas} tabIndex={0} role="application"
        aria-label={`${label} Map of ${number(fleet.nodes.length)} nodes. Arrow keys choose a node, plus and minus zoom, 0 shows all, shift and arrows move the map.${onMove ? " M picks up a pod of the chosen node; choose another node and press Enter to move it there." : ""}`}
        onKeyDown={key}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, moved: false };
          event.currentTarget.setPointerCapture(event.pointerId);
          const [node, device] = hit(event);
          const pod = onMove && device >= 0 ? fleet.holders(device).find((each) => each.startsWith("pod ")) : undefined;
          grabbed.current = pod ? { pod: pod.slice(4), node, x: event.offsetX, y: event.offsetY } : null;
        }}
        onPointerMove={(event) => {
          const from = drag.current;
          if (!from) return;
          const dx = event.clientX - from.x, dy = event.clientY - from.y;
          if (!from.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
          drag.current = { x: event.clientX, y: event.clientY, moved: true };
          if (grabbed.current) setCarried({ ...grabbed.current, x: event.offsetX, y: event.offsetY });
          else pan(dx, dy);
        }}
        onPointerUp={(event) => {
          const [node, device] = hit(event);
          if (drag.current && !drag.current.moved) onChoose(node, device);
          else if (grabbed.current) drop(grabbed.current, node);
          drag.current = grabbed.current = null;
        }}
        onPointerCancel={() => {
          drag.current = grabbed.current = null;
          setCarried(null);
        }}
      />
      <div class="zoom">
        <button type="button" aria-label="Zoom in" onClick={() => middle(1.5)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => middle(1 / 1.5)}>−</button>
        <button type="button" onClick={fit}>All</button>
      </div>
      {carried && carried.x >= 0 && (
        <span class="carried" style={{ left: `${carried.x + 12}px`, top: `${carried.y - 10}px` }} aria-hidden="true"><bdi>{carried.pod}</bdi></span>
      )}
      {carried && carried.x < 0 && (
        <p class="carrying">Moving <bdi>{carried.pod}</bdi>: arrows choose a node, Enter puts it there, Escape leaves it where it is.</p>
      )}
      <p class="unseen" role="status">
        {carried ? `Moving ${carried.pod}. ` : ""}
        {scene.node >= 0 ? `${fleet.nodeName(scene.node)}: ${summary(fleet, scene.node)}` : ""}
      </p>
    </div>
  );
}

function whole(element: HTMLCanvasElement, fleet: Fleet): View {
  const width = element.clientWidth || 800, height = element.clientHeight || 500;
  const scale = Math.min(5, (width - 24) / (fleet.width || 1), (height - 24) / (fleet.height || 1));
  return {
    scale,
    x: fleet.width / 2 - width / scale / 2,
    y: fleet.height * scale > height - 30 ? fleet.height / 2 - height / scale / 2 : -12 / scale,
  };
}

/** The devices of a node by state, in words. */
export function summary(fleet: Fleet, node: number): string {
  const counts = new globalThis.Map<string, number>();
  const first = fleet.first[node]!;
  for (let device = first; device < first + fleet.data.nodes.devices[node]!; device++) {
    const state = fleet.state(device);
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ") || "no devices";
}
