import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { draw, pattern, paletteOf, partsOf, type Marks, type View } from "./draw";
import { CELL, Fleet } from "./fleet";
import type { Named } from "./types";
import { StatePicture, useDark } from "./parts";

const TITLES: Record<string, string> = {
  free: "free",
  used: "used",
  blocked: "blocked: its counters are used by others",
  tainted: "tainted",
  cordoned: "its node is cordoned",
  unusable: "unusable: its pool is incomplete or contradicts itself",
};
const MOST_ROWS = 500;
const MOST_FOUND = 20;
const CLOSEST = 40;

interface Props {
  fleet: Fleet;
  search: string;
  onSearch: (text: string) => void;
  onOpen: (named: Named) => void;
}

export function FleetView({ fleet, search, onSearch, onOpen }: Props) {
  const [node, setNode] = useState(-1);
  const [device, setDevice] = useState(-1);
  const [table, setTable] = useState(false);
  const found = useMemo(() => searched(fleet, search), [fleet, search]);
  const chosen = node < fleet.nodes.length ? node : -1;
  const marks: Marks = {
    found: search ? found.devices : null, foundNodes: found.nodes, node: chosen,
    device: device < fleet.nodeOf.length ? device : -1,
  };
  // The name of one node, as other views give it, chooses that node.
  useEffect(() => {
    const at = fleet.data.nodes.name.indexOf(search);
    if (search && at >= 0) choose(at);
  }, [search]);
  const choose = (at: number, part = -1) => {
    setNode(at);
    setDevice(part);
  };
  return (
    <section class="fleet" aria-label="Fleet">
      <div class="bar">
        <label>
          Search{" "}
          <input
            type="search" value={search} placeholder="node, device, driver or pod"
            onInput={(event) => onSearch(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && found.first >= 0) choose(found.first);
            }}
          />
        </label>
        <span class="quiet" role="status">
          {search
            ? `${several(found.devices.size, "device")} on ${several(found.on, "node")}`
            : `${several(fleet.nodes.length, "node")}, ${several(fleet.nodeOf.length, "device")}`}
        </span>
        <Legend fleet={fleet} />
        <button type="button" aria-pressed={table} onClick={() => setTable(!table)}>Table</button>
      </div>
      <div class="split">
        {table
          ? <Table fleet={fleet} marks={marks} onChoose={choose} />
          : <Map fleet={fleet} marks={marks} onChoose={choose} />}
        {chosen >= 0 && (
          <Details fleet={fleet} node={chosen} device={marks.device} onChoose={choose} onOpen={onOpen} />
        )}
      </div>
    </section>
  );
}

function several(count: number, what: string): string {
  return `${number(count)} ${what}${count === 1 ? "" : "s"}`;
}

export function number(value: number): string {
  return value.toLocaleString("en-US");
}

/** Devices and nodes that match a text in any of their names. */
function searched(fleet: Fleet, text: string): { devices: Set<number>; nodes: Set<number>; on: number; first: number } {
  const devices = new Set<number>(), nodes = new Set<number>();
  const wanted = text.trim().toLowerCase();
  if (!wanted) return { devices, nodes, on: 0, first: -1 };
  const { data } = fleet;
  const hits = (texts: string[]) => texts.map((each) => each.toLowerCase().includes(wanted));
  const [names, drivers, pools, holders] = [data.names, data.drivers, data.pools, data.holders].map(hits);
  const places = data.nodes.name.map((name, at) =>
    [name, data.zones[data.nodes.zone[at]!]!, data.racks[data.nodes.rack[at]!]!]
      .some((each) => each.toLowerCase().includes(wanted)));
  const each = data.devices;
  for (let device = 0; device < each.name.length; device++) {
    if (places[fleet.nodeOf[device]!] || names![each.name[device]!] || drivers![each.driver[device]!]
        || pools![each.pool[device]!] || each.holders[device]!.some((holder) => holders![holder])) {
      devices.add(device);
    }
  }
  const touched = new Set<number>();
  for (const device of devices) touched.add(fleet.nodeOf[device]!);
  places.forEach((hit, at) => hit && nodes.add(at));
  const [first = -1] = nodes.size ? nodes : touched;
  for (const node of nodes) touched.add(node);
  return { devices, nodes, on: touched.size, first };
}

function Legend({ fleet }: { fleet: Fleet }) {
  return (
    <ul class="legend" aria-label="States of devices">
      {fleet.data.states.map((state, at) => fleet.counts[at]! > 0 && (
        <li key={state} title={TITLES[state]}>
          <StatePicture state={state} paint={pattern} /> {state} {number(fleet.counts[at]!)}
        </li>
      ))}
    </ul>
  );
}

interface Choosing {
  fleet: Fleet;
  marks: Marks;
  onChoose: (node: number, device?: number) => void;
}

function Map({ fleet, marks, onChoose }: Choosing) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const view = useRef<View | null>(null);
  const shown = useRef({ fleet, marks });
  const asked = useRef(0);
  const dark = useDark();
  shown.current = { fleet, marks };

  const paint = () => {
    if (asked.current) return;
    asked.current = requestAnimationFrame(() => {
      asked.current = 0;
      const element = canvas.current;
      if (!element) return;
      const began = performance.now();
      const { fleet, marks } = shown.current;
      view.current ??= whole(element, fleet);
      draw(element, fleet, view.current, marks, paletteOf(element, fleet.data.states));
      element.dataset["paint"] = (performance.now() - began).toFixed(1);
    });
  };
  useEffect(paint, [fleet, marks.found, marks.foundNodes, marks.node, marks.device, dark]);
  useEffect(() => {
    const element = canvas.current!;
    const resized = new ResizeObserver(() => {
      const ratio = devicePixelRatio || 1;
      const fresh = element.width === 300 && element.height === 150;
      element.width = Math.round(element.clientWidth * ratio);
      element.height = Math.round(element.clientHeight * ratio);
      if (fresh) view.current = null;
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
  // What was chosen elsewhere, in the table or by a search, comes into sight.
  useEffect(() => {
    const box = fleet.nodes[marks.node], element = canvas.current;
    if (!box || !element || !view.current) return;
    const { x, y, scale } = view.current;
    const w = element.clientWidth / scale, h = element.clientHeight / scale;
    if (scale < 1.2) view.current.scale = 3;
    else if (box.x > x && box.y > y && box.x + box.w < x + w && box.y + box.h < y + h) return;
    view.current.x = box.x + box.w / 2 - element.clientWidth / view.current.scale / 2;
    view.current.y = box.y + box.h / 2 - element.clientHeight / view.current.scale / 2;
    paint();
  }, [marks.node]);

  const zoom = (px: number, py: number, factor: number) => {
    const now = view.current, element = canvas.current;
    if (!now || !element) return;
    const least = whole(element, fleet).scale * 0.8;
    const scale = Math.min(CLOSEST, Math.max(least, now.scale * factor));
    view.current = { scale, x: now.x + px / now.scale - px / scale, y: now.y + py / now.scale - py / scale };
    paint();
  };
  const pan = (dx: number, dy: number) => {
    if (!view.current) return;
    view.current = { ...view.current, x: view.current.x - dx / view.current.scale, y: view.current.y - dy / view.current.scale };
    paint();
  };
  const middle = (factor: number) =>
    canvas.current && zoom(canvas.current.clientWidth / 2, canvas.current.clientHeight / 2, factor);
  const fit = () => {
    view.current = null;
    paint();
  };
  const key = (event: KeyboardEvent) => {
    const steps: Record<string, () => void> = {
      "+": () => middle(1.5), "=": () => middle(1.5), "-": () => middle(1 / 1.5), "0": fit,
      ArrowRight: () => event.shiftKey ? pan(-60, 0) : step(1),
      ArrowLeft: () => event.shiftKey ? pan(60, 0) : step(-1),
      ArrowDown: () => event.shiftKey ? pan(0, -60) : below(1),
      ArrowUp: () => event.shiftKey ? pan(0, 60) : below(-1),
      Escape: () => onChoose(-1),
    };
    const does = steps[event.key];
    if (!does) return;
    does();
    event.preventDefault();
  };
  const step = (by: number) => {
    const most = fleet.nodes.length;
    if (most && by) onChoose(marks.node < 0 ? 0 : (marks.node + by + most) % most);
  };
  const below = (by: number) => {
    const now = fleet.nodes[marks.node];
    if (!now) {
      step(1);
      return;
    }
    const inLine = fleet.nodes.filter((box) => (box.y - now.y) * by > 0 && Math.abs(box.x - now.x) < now.w / 2);
    inLine.sort((a, b) => Math.abs(a.y - now.y) - Math.abs(b.y - now.y));
    if (inLine[0]) onChoose(inLine[0].index);
  };

  const drag = useRef<{ x: number; y: number; moved: boolean } | null>(null);
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
      for (const [part, cell] of partsOf(fleet, card, fleet.cellOf(box, place), now.scale)) {
        if (inside(cell)) device = part;
      }
    });
    return [box.index, CELL * now.scale >= 7 ? device : -1];
  };
  return (
    <div class="map">
      <canvas
        ref={canvas} tabIndex={0} role="application"
        aria-label={`Map of ${number(fleet.nodes.length)} nodes. Arrow keys choose a node, plus and minus zoom, 0 shows all, shift and arrows move the map. The button Table shows the same as a table.`}
        onKeyDown={key}
        onPointerDown={(event) => {
          drag.current = { x: event.clientX, y: event.clientY, moved: false };
          event.currentTarget.setPointerCapture(event.pointerId);
        }}
        onPointerMove={(event) => {
          const from = drag.current;
          if (!from) return;
          const dx = event.clientX - from.x, dy = event.clientY - from.y;
          if (!from.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
          drag.current = { x: event.clientX, y: event.clientY, moved: true };
          pan(dx, dy);
        }}
        onPointerUp={(event) => {
          if (drag.current && !drag.current.moved) onChoose(...hit(event));
          drag.current = null;
        }}
      />
      <div class="zoom">
        <button type="button" aria-label="Zoom in" onClick={() => middle(1.5)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => middle(1 / 1.5)}>−</button>
        <button type="button" onClick={fit}>All</button>
      </div>
      <p class="unseen" role="status">
        {marks.node >= 0 ? `${fleet.nodeName(marks.node)}: ${summary(fleet, marks.node)}` : ""}
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

function summary(fleet: Fleet, node: number): string {
  const counts = new globalThis.Map<string, number>();
  const first = fleet.first[node]!;
  for (let device = first; device < first + fleet.data.nodes.devices[node]!; device++) {
    const state = fleet.state(device);
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return [...counts].map(([state, count]) => `${count} ${state}`).join(", ") || "no devices";
}

function Table({ fleet, marks, onChoose }: Choosing) {
  const nodes = fleet.nodes.map((box) => box.index).filter((node) => {
    if (!marks.found || marks.foundNodes.has(node)) return true;
    const first = fleet.first[node]!;
    for (let at = first; at < first + fleet.data.nodes.devices[node]!; at++) if (marks.found.has(at)) return true;
    return false;
  });
  const { data } = fleet;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Nodes">
      <table>
        <thead>
          <tr><th scope="col">Node</th><th scope="col">Zone</th><th scope="col">Rack</th><th scope="col">Node state</th><th scope="col">Devices</th></tr>
        </thead>
        <tbody>
          {nodes.slice(0, MOST_ROWS).map((node) => (
            <tr key={node} class={node === marks.node ? "chosen" : ""}>
              <th scope="row">
                <button type="button" class="link" onClick={() => onChoose(node)}><bdi>{fleet.nodeName(node)}</bdi></button>
              </th>
              <td><bdi>{data.zones[data.nodes.zone[node]!]}</bdi></td>
              <td><bdi>{data.racks[data.nodes.rack[node]!]}</bdi></td>
              <td>{data.nodes.status[node] || "schedulable"}</td>
              <td>{summary(fleet, node)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {nodes.length > MOST_ROWS && (
        <p class="quiet">The first {MOST_ROWS} of {number(nodes.length)} nodes: search to see others.</p>
      )}
    </div>
  );
}

interface DetailsProps {
  fleet: Fleet;
  node: number;
  device: number;
  onChoose: (node: number, device?: number) => void;
  onOpen: (named: Named) => void;
}

function Details({ fleet, node, device, onChoose, onOpen }: DetailsProps) {
  const { data } = fleet;
  const first = fleet.first[node]!;
  const all = Array.from({ length: data.nodes.devices[node]! }, (_, at) => first + at);
  const place = [data.zones[data.nodes.zone[node]!], data.racks[data.nodes.rack[node]!]].filter(Boolean).join(" · ");
  const row = useRef<HTMLTableRowElement>(null);
  useEffect(() => row.current?.scrollIntoView({ block: "nearest" }), [device]);
  return (
    <aside class="details" aria-label="Chosen node">
      <header>
        <h2><bdi>{fleet.nodeName(node)}</bdi></h2>
        <button type="button" aria-label="Close" onClick={() => onChoose(-1)}>×</button>
      </header>
      <p class="quiet">{[place, data.nodes.status[node], summary(fleet, node)].filter(Boolean).join(" · ")}</p>
      <table>
        <thead><tr><th scope="col">Device</th><th scope="col">State</th><th scope="col">Held by</th></tr></thead>
        <tbody>
          {all.slice(0, MOST_ROWS).map((each) => (
            <tr key={each} ref={each === device ? row : null} class={each === device ? "chosen" : ""}>
              <th scope="row" class={data.devices.card[each]! >= 0 ? "part" : ""}>
                <bdi title={`${data.drivers[data.devices.driver[each]!]}/${data.pools[data.devices.pool[each]!]}`}>
                  {fleet.deviceName(each)}
                </bdi>
              </th>
              <td title={TITLES[fleet.state(each)]}>
                <StatePicture state={fleet.state(each)} paint={pattern} /> {fleet.state(each)}
              </td>
              <td><Holders names={fleet.holders(each)} onOpen={onOpen} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </aside>
  );
}

function Holders({ names, onOpen }: { names: string[]; onOpen: (named: Named) => void }) {
  return (
    <>
      {names.slice(0, MOST_FOUND).map((holder) => {
        const [kind, path] = split(holder, " ");
        const [namespace, name] = split(path, "/");
        return kind === "pod" || kind === "claim"
          ? <button type="button" class="link" key={holder} onClick={() => onOpen({ kind, namespace, name })}><bdi>{holder}</bdi></button>
          : <bdi key={holder}>{holder}</bdi>;
      })}
      {names.length > MOST_FOUND && <span class="quiet">and {names.length - MOST_FOUND} more</span>}
    </>
  );
}

function split(text: string, at: string): [string, string] {
  const place = text.indexOf(at);
  return place < 0 ? [text, ""] : [text.slice(0, place), text.slice(place + 1)];
}
