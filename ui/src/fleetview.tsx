import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { pattern } from "./draw";
import { Fleet, namespaceOf, TAINTED, UNHEALTHY } from "./fleet";
import { Map, summary } from "./map";
import { number, StatePicture } from "./parts";
import { PLAIN, type Scene } from "./scene";
import type { Named } from "./types";

const TITLES: Record<string, string> = {
  free: "free",
  used: "used",
  blocked: "blocked: its counters are used by others",
  tainted: "tainted",
  cordoned: "its node is cordoned",
  unusable: "unusable: its pool is incomplete or contradicts itself, or its node is lost",
};
const MOST_ROWS = 500;
const MOST_FOUND = 20;
const MOST_SPACES = 8;

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
  const [colour, setColour] = useState<Scene["colour"]>("state");
  const found = useMemo(() => searched(fleet, search), [fleet, search]);
  const chosen = node < fleet.nodes.length ? node : -1;
  const scene: Scene = useMemo(() => ({
    ...PLAIN, found: search ? found.devices : null, foundNodes: found.nodes, node: chosen,
    device: device < fleet.nodeOf.length ? device : -1, colour,
  }), [fleet, search, found, chosen, device, colour]);
  // The name of one node, as other views give it, chooses that node.
  useEffect(() => {
    const at = fleet.data.nodes.name.indexOf(search);
    if (search && at >= 0) choose(at);
  }, [search]);
  const choose = (at: number, part = -1) => {
    setNode(at);
    setDevice(part);
  };
  if (!fleet.nodes.length) {
    return (
      <p class="empty">
        <strong>This cluster has no nodes.</strong> They are shown as they come.{" "}
        <code>dralab up</code> starts a cluster with nodes and devices.
      </p>
    );
  }
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
        <label>
          Colour{" "}
          <select value={colour} onChange={(event) => setColour(event.currentTarget.value as Scene["colour"])}>
            <option value="state">state</option>
            <option value="namespace">namespace</option>
          </select>
        </label>
        <Legend fleet={fleet} colour={colour} />
        <button type="button" aria-pressed={table} onClick={() => setTable(!table)}>Table</button>
      </div>
      <div class="split">
        {table
          ? <Table fleet={fleet} scene={scene} onChoose={choose} />
          : <Map fleet={fleet} scene={scene} label="The button Table shows the same as a table." onChoose={choose} />}
        {chosen >= 0 && (
          <Details fleet={fleet} node={chosen} device={scene.device} onChoose={choose} onOpen={onOpen} />
        )}
      </div>
    </section>
  );
}

function several(count: number, what: string): string {
  return `${number(count)} ${what}${count === 1 ? "" : "s"}`;
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

function Legend({ fleet, colour }: { fleet: Fleet; colour: Scene["colour"] }) {
  const spaces = useMemo(() => {
    const found = new globalThis.Map<string, number>();
    fleet.data.holders.forEach((holder, at) => found.set(namespaceOf(holder), fleet.hues[at]!));
    return [...found];
  }, [fleet]);
  return (
    <ul class="legend" aria-label="States of devices">
      {colour === "namespace" && spaces.slice(0, MOST_SPACES).map(([space, hue]) => (
        <li key={space}><span class={`hue hue-${hue}`} aria-hidden="true" /> <bdi>{space}</bdi></li>
      ))}
      {fleet.data.states.map((state, at) => fleet.counts[at]! > 0 && (
        <li key={state} title={TITLES[state]}>
          <StatePicture state={state} paint={pattern} /> {state} {number(fleet.counts[at]!)}
        </li>
      ))}
      {fleet.shared > 0 && <li title="Held in part: the cell is filled as far as its fullest capacity">shared {number(fleet.shared)}</li>}
      {fleet.unhealthy > 0 && <li title="Unhealthy by the kubelet, in the status of its pod"><StatePicture state="unusable" paint={pattern} /> unhealthy {number(fleet.unhealthy)}</li>}
    </ul>
  );
}

interface TableProps {
  fleet: Fleet;
  scene: Scene;
  onChoose: (node: number) => void;
}

function Table({ fleet, scene, onChoose }: TableProps) {
  const nodes = fleet.nodes.map((box) => box.index).filter((node) => {
    if (!scene.found || scene.foundNodes.has(node)) return true;
    const first = fleet.first[node]!;
    for (let at = first; at < first + fleet.data.nodes.devices[node]!; at++) if (scene.found.has(at)) return true;
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
            <tr key={node} class={node === scene.node ? "chosen" : ""}>
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
                <StatePicture state={fleet.state(each)} paint={pattern} /> {fleet.state(each)}{details(fleet, each)}
              </td>
              <td><Holders names={fleet.holders(each)} onOpen={onOpen} /></td>
            </tr>
          ))}
        </tbody>
      </table>
    </aside>
  );
}

/** What the state of a device does not say: how full it is, and what is wrong with it. */
function details(fleet: Fleet, device: number): string {
  const fill = fleet.data.devices.fill[device]!, flags = fleet.data.devices.flags[device]!;
  const isUsed = fleet.state(device) === "used";
  return [
    isUsed && fill < 100 ? ` ${fill} %` : "",
    flags & UNHEALTHY ? ", unhealthy" : "",
    isUsed && flags & TAINTED ? ", tainted" : "",
  ].join("");
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
