// What is different between two looks at a cluster, in words.

import type { Fleet } from "./fleet";
import type { Named, Waiting } from "./types";

export interface Change {
  when: string;
  text: string;
  /** What it is about: a pod or claim, or a node by its name. */
  about: Named | string;
}

const TROUBLES = ["tainted", "unusable"];

export function changesOfFleet(before: Fleet, after: Fleet): Change[] {
  const { asOf: when, nodes } = after.data, found: Change[] = [];
  const add = (about: Change["about"], text: string) => found.push({ when, text, about });
  for (const name of before.data.nodes.name) if (after.nodeAt(name) < 0) add(name, `node ${name} is gone`);
  const [was, is] = [troubles(before), troubles(after)];
  nodes.name.forEach((name, node) => {
    const old = before.nodeAt(name), status = nodes.status[node]!;
    if (old < 0) {
      add(name, `node ${name} is new`);
      return;
    }
    if (before.data.nodes.status[old] !== status) add(name, `node ${name} is ${status || "schedulable"}`);
    TROUBLES.forEach((state, at) => {
      const count = is[at]!.get(node) ?? 0;
      if (count > (was[at]!.get(old) ?? 0)) add(name, `${count} ${state} on node ${name}`);
    });
  });
  for (const [holder, { count, first }] of onlyIn(after, before)) {
    add(namedOf(holder), `${holder} has ${several(count)} on ${after.nodeName(after.nodeOf[first]!)}`);
  }
  for (const [holder, { count }] of onlyIn(before, after)) add(namedOf(holder), `${holder} released ${several(count)}`);
  return found;
}

/** Who waits now, and who does not any more; those that hold devices by now are not repeated. */
export function changesOfWaiting(before: Waiting, after: Waiting, fleet: Fleet): Change[] {
  const title = (each: Named) => `${each.kind} ${each.namespace}/${each.name}`;
  const [was, is] = [before, after].map(({ items }) => new Map(items.map((each) => [title(each), each])));
  const when = after.asOf, found: Change[] = [];
  for (const [name, about] of is!) if (!was!.has(name)) found.push({ when, text: `${name} waits`, about });
  const gone = [...was!].filter(([name]) => !is!.has(name));
  const holders = new Set(gone.length ? fleet.data.holders : []);
  for (const [name, about] of gone) {
    if (!holders.has(name)) found.push({ when, text: `${name} does not wait any more`, about });
  }
  return found;
}

/** For each state of trouble, how many devices of each node have it. */
function troubles(fleet: Fleet): Map<number, number>[] {
  return TROUBLES.map((state) => {
    const found = new Map<number, number>(), wanted = fleet.data.states.indexOf(state);
    fleet.data.devices.state.forEach((each, device) => {
      if (each !== wanted) return;
      const node = fleet.nodeOf[device]!;
      found.set(node, (found.get(node) ?? 0) + 1);
    });
    return found;
  });
}

/** Who holds devices in one fleet alone: how many, and the first of them. */
function onlyIn(fleet: Fleet, other: Fleet): Map<string, { count: number; first: number }> {
  const known = new Set(other.data.holders), { holders } = fleet.data;
  const found = new Map<string, { count: number; first: number }>();
  const own = new Set(holders.flatMap((name, at) => (known.has(name) ? [] : [at])));
  if (!own.size) return found;
  fleet.data.devices.holders.forEach((each, device) => each.forEach((at) => {
    if (!own.has(at)) return;
    const mine = found.get(holders[at]!);
    if (mine) mine.count += 1;
    else found.set(holders[at]!, { count: 1, first: device });
  }));
  return found;
}

function namedOf(holder: string): Named {
  const [, kind = "", namespace = "", name = ""] = /^(\S+) ([^/]*)\/(.*)$/.exec(holder) ?? [];
  return { kind, namespace, name };
}

function several(devices: number): string {
  return devices === 1 ? "1 device" : `${devices} devices`;
}
