// What a map shows beside the fleet itself: what was searched and chosen, what a claim could use,
// and what a supposed change would make different.

import { CELL, type Box, type Fleet } from "./fleet";
import type { Usable, WhatIfAnswer } from "./types";

export type NodeChange = "goes" | "cordoned" | "gains" | "loses";

export interface Arrow {
  from: number;
  to: number;
  label: string;
}

export interface Scene {
  /** Devices that match the search; null: there is no search. */
  found: ReadonlySet<number> | null;
  /** Nodes that match by themselves. */
  foundNodes: ReadonlySet<number>;
  node: number;
  device: number;
  /** Devices that a claim could use now, and those it could once they are released. */
  now: ReadonlySet<number>;
  later: ReadonlySet<number>;
  /** Devices whose state would be another one: the state's place in the list of states. */
  states: ReadonlyMap<number, number>;
  nodes: ReadonlyMap<number, NodeChange>;
  arrows: readonly Arrow[];
  colour: "state" | "namespace";
}

/** The first of the states. */
export const FREE = 0;

const NONE: ReadonlySet<number> = new Set();

export const PLAIN: Scene = {
  found: null, foundNodes: NONE, node: -1, device: -1, now: NONE, later: NONE,
  states: new Map(), nodes: new Map(), arrows: [], colour: "state",
};

/** The devices that a claim could use light up, the others are dimmed. */
export function sceneOfUsable(fleet: Fleet, usable: Usable): Scene {
  const places = (pools: Usable["now"]) => {
    const found = new Set<number>();
    for (const pool of pools) {
      for (const name of pool.devices) {
        const device = fleet.deviceAt(`${pool.pool}/${name}`, pool.driver);
        if (device >= 0) found.add(device);
      }
    }
    return found;
  };
  const now = places(usable.now), later = places(usable.later);
  return { ...PLAIN, now, later, found: new Set([...now, ...later]) };
}

/** What a supposed change does: devices that are taken and released, pods that move. */
export function sceneOfChange(fleet: Fleet, answer: WhatIfAnswer): Scene {
  const used = fleet.data.states.indexOf("used"), free = fleet.data.states.indexOf("free");
  const states = new Map<number, number>(), nodes = new Map<number, NodeChange>();
  const arrows: Arrow[] = [];
  const holders = fleet.devicesByHolder;
  for (const pod of answer.pods) {
    if (pod.before === pod.after) continue;
    const from = fleet.nodeAt(pod.before), to = fleet.nodeAt(pod.after);
    if (from >= 0) {
      for (const device of holders.get(`pod ${pod.namespace}/${pod.name}`) ?? []) states.set(device, free);
      if (!nodes.has(from)) nodes.set(from, "loses");
    }
    if (to >= 0) nodes.set(to, "gains");
    if (from >= 0 || to >= 0) arrows.push({ from, to, label: to < 0 ? `${pod.name} → ${pod.after ?? "nowhere"}` : pod.name });
  }
  // What is taken comes last: a device may be released by one pod and taken by another.
  for (const pod of answer.pods) {
    if (pod.before === pod.after) continue;
    for (const name of pod.devices) {
      const device = fleet.deviceAt(name);
      if (device >= 0) states.set(device, used);
    }
  }
  return { ...PLAIN, states, nodes, arrows, found: states.size ? new Set(states.keys()) : null };
}

export interface Step {
  what: "moves" | "starts";
  pod: string;
  from: string | null;
  to: string;
  devices: string[];
  releases: string[];
  why: string;
}

/** The map after some steps of a plan, with an arrow for the one that is done now. */
export function sceneOfStep(fleet: Fleet, steps: readonly Step[], at: number): Scene {
  const used = fleet.data.states.indexOf("used"), free = fleet.data.states.indexOf("free");
  const states = new Map<number, number>();
  for (const step of steps.slice(0, at + 1)) {
    for (const [names, state] of [[step.releases, free], [step.devices, used]] as const) {
      for (const name of names) {
        const device = fleet.deviceAt(name);
        if (device >= 0) states.set(device, state);
      }
    }
  }
  const step = steps[at];
  if (!step) return { ...PLAIN, states };
  const from = fleet.nodeAt(step.from), to = fleet.nodeAt(step.to);
  const nodes = new Map<number, NodeChange>();
  if (from >= 0) nodes.set(from, "loses");
  if (to >= 0) nodes.set(to, "gains");
  const touched = [...step.releases, ...step.devices].map((name) => fleet.deviceAt(name));
  return {
    ...PLAIN, states, nodes, arrows: [{ from, to, label: step.pod }],
    found: new Set(touched.filter((device) => device >= 0)),
  };
}

/** The state of a device as the scene has it. */
export function stateOf(fleet: Fleet, scene: Scene, device: number): number {
  return scene.states.get(device) ?? fleet.data.devices.state[device]!;
}

/** A card, and of the partitions cut from it those in use; all of them where there is room. */
export function partsOf(
  fleet: Fleet, device: number, cell: Box, scale: number, scene: Pick<Scene, "states" | "now" | "later">,
): [number, Box][] {
  const parts = fleet.parts.get(device);
  const found: [number, Box][] = [[device, cell]];
  if (!parts || fleet.data.states[scene.states.get(device) ?? fleet.data.devices.state[device]!] === "used") return found;
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
    const state = scene.states.get(part) ?? fleet.data.devices.state[part]!;
    if (fleet.data.states[state] !== "used" && !scene.now.has(part) && !scene.later.has(part)) continue;
    const w = Math.max(wide * fleet.data.devices.share[part]! / 100, wide / 40);
    if (x + w > cell.x + cell.w) break;
    found.push([part, { x, y: cell.y + 1, w: w * 0.88, h: cell.h - 2 }]);
    x += w;
  }
  return found;
}
