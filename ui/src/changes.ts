// What is different between two looks at a cluster, in words.

import type { Fleet } from "./fleet";
import type { Named, Waiting } from "./types";

export interface Change {
  when: string;
  text: string;
  /** What it is about: a pod or claim, or a node by its name. */
  about: Named | string;
}

const NEWS = ["tainted", "unusable"];

export function changesOfFleet(before: Fleet, after: Fleet): Change[] {
  const { asOf: when, nodes } = after.data, found: Change[] = [];
  const add = (about: Change["about"], text: string) => found.push({ when, text, about });
  const [was, is] = [placesOf(before), placesOf(after)];
  for (const name of was.keys()) if (!is.has(name)) add(name, `node ${name} is gone`);
  for (const [name, node] of is) {
    const old = was.get(name);
    if (old === undefined) {
      add(name, `node ${name} is new`);
      continue;
    }
    const status = nodes.status[node]!;
    if (before.data.nodes.status[old] !== status) add(name, `node ${name} is ${status || "schedulable"}`);
    for (const state of NEWS) {
      const count = countOf(after, node, state);
      if (count > countOf(before, old, state)) add(name, `${count} ${state} on node ${name}`);
    }
  }
  const [held, holds] = [before.devicesByHolder, after.devicesByHolder];
  for (const [holder, devices] of holds) {
    if (held.has(holder)) continue;
    add(namedOf(holder), `${holder} has ${several(devices)} on ${after.nodeName(after.nodeOf[devices[0]!]!)}`);
  }
  for (const [holder, devices] of held) if (!holds.has(holder)) add(namedOf(holder), `${holder} released ${several(devices)}`);
  return found;
}

/** Who waits now, and who does not any more; those that hold devices by now are not repeated. */
export function changesOfWaiting(before: Waiting, after: Waiting, fleet: Fleet): Change[] {
  const title = (each: Named) => `${each.kind} ${each.namespace}/${each.name}`;
  const [was, is] = [before, after].map(({ items }) => new Map(items.map((each) => [title(each), each])));
  const when = after.asOf, found: Change[] = [];
  for (const [name, about] of is!) if (!was!.has(name)) found.push({ when, text: `${name} waits`, about });
  for (const [name, about] of was!) {
    if (!is!.has(name) && !fleet.devicesByHolder.has(name)) found.push({ when, text: `${name} does not wait any more`, about });
  }
  return found;
}

function placesOf(fleet: Fleet): Map<string, number> {
  return new Map(fleet.data.nodes.name.map((name, node) => [name, node]));
}

function countOf(fleet: Fleet, node: number, state: string): number {
  const first = fleet.first[node]!, wanted = fleet.data.states.indexOf(state);
  return fleet.data.devices.state.slice(first, first + fleet.data.nodes.devices[node]!).filter((each) => each === wanted).length;
}

function namedOf(holder: string): Named {
  const [, kind = "", namespace = "", name = ""] = /^(\S+) ([^/]*)\/(.*)$/.exec(holder) ?? [];
  return { kind, namespace, name };
}

function several(devices: number[]): string {
  return devices.length === 1 ? "1 device" : `${devices.length} devices`;
}
