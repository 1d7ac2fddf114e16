// The fleet as the map needs it: where each node and device is drawn, in units of the map.

import type { FleetData } from "./types";

export const CELL = 10;
export const GAP = 1.5;
const MARGIN = 3;
const TITLE = 5;
const GROUP = 14;
const GROUP_TITLE = 16;
// Of some widths of the map the one is taken that fills its window best.
const WIDTHS = [0.8, 1, 1.2, 1.4, 1.7, 2, 2.5];

export const HUES = 8;
export const TAINTED = 1;
export const UNHEALTHY = 2;

export interface Box {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface NodeBox extends Box {
  index: number;
  cards: number[];
}

export interface Group extends Box {
  name: string;
  nodes: number[];
}

export class Fleet {
  readonly first: number[] = [];
  readonly nodeOf: Uint32Array;
  /** Devices that are cut from another one, by that one. */
  readonly parts = new Map<number, number[]>();
  readonly counts: number[];
  readonly shared: number;
  readonly unhealthy: number;
  /** Where each card is drawn, and the cards by state; those that are cut are apart. */
  readonly cellX: Float32Array;
  readonly cellY: Float32Array;
  readonly byState: number[][];
  readonly cut: [NodeBox, number, number][] = [];
  /** The colour of each holder where devices are coloured by namespace: 0 to HUES - 1. */
  readonly hues: number[];
  private byName: Map<string, number[]> | null = null;
  private byHolder: Map<string, number[]> | null = null;
  private nodesByName: Map<string, number> | null = null;
  nodes: NodeBox[] = [];
  groups: Group[] = [];
  width = 0;
  height = 0;

  /** `aspect` is how much wider than high the map should be. */
  constructor(readonly data: FleetData, private readonly aspect = 1.9) {
    const { nodes, devices } = data;
    this.nodeOf = new Uint32Array(devices.name.length);
    this.counts = data.states.map(() => 0);
    let at = 0;
    nodes.devices.forEach((count, node) => {
      this.first.push(at);
      this.nodeOf.fill(node, at, at + count);
      at += count;
    });
    devices.card.forEach((card, device) => {
      if (card < 0) return;
      const known = this.parts.get(card);
      if (known) known.push(device);
      else this.parts.set(card, [device]);
    });
    for (const state of devices.state) this.counts[state]! += 1;
    this.shared = devices.fill.filter((fill) => fill > 0 && fill < 100).length;
    this.unhealthy = devices.flags.filter((flags) => flags & UNHEALTHY).length;
    const spaces = new Map<string, number>();
    this.hues = data.holders.map((holder) => {
      const space = namespaceOf(holder);
      if (!spaces.has(space)) spaces.set(space, spaces.size % HUES);
      return spaces.get(space)!;
    });
    this.place();
    this.cellX = new Float32Array(devices.name.length);
    this.cellY = new Float32Array(devices.name.length);
    this.byState = data.states.map(() => []);
    for (const box of this.nodes) {
      box.cards.forEach((device, place) => {
        const cell = this.cellOf(box, place);
        this.cellX[device] = cell.x;
        this.cellY[device] = cell.y;
        if (this.parts.has(device) && this.state(device) !== "used") this.cut.push([box, device, place]);
        else this.byState[devices.state[device]!]!.push(device);
      });
    }
  }

  /** The devices of a node that are drawn as cells: all but those cut from another one. */
  cards(node: number): number[] {
    const found: number[] = [];
    const begin = this.first[node]!;
    for (let device = begin; device < begin + this.data.nodes.devices[node]!; device++) {
      if (this.data.devices.card[device]! < 0) found.push(device);
    }
    return found;
  }

  deviceName(device: number): string {
    return this.data.names[this.data.devices.name[device]!]!;
  }

  nodeName(node: number): string {
    return this.data.nodes.name[node]!;
  }

  state(device: number): string {
    return this.data.states[this.data.devices.state[device]!]!;
  }

  /** The hue of the first holder of a device; -1: nothing holds it. */
  hue(device: number): number {
    const holder = this.data.devices.holders[device]![0];
    return holder === undefined ? -1 : this.hues[holder]!;
  }

  /** A device by POOL/DEVICE, and its driver where pools of several have one name; -1: none. */
  deviceAt(name: string, driver = ""): number {
    if (!this.byName) {
      this.byName = new Map();
      const { devices, pools } = this.data;
      for (let device = 0; device < devices.name.length; device++) {
        const key = `${pools[devices.pool[device]!]}/${this.deviceName(device)}`;
        const known = this.byName.get(key);
        if (known) known.push(device);
        else this.byName.set(key, [device]);
      }
    }
    const found = this.byName.get(name) ?? [];
    const wanted = found.find((device) => this.data.drivers[this.data.devices.driver[device]!] === driver);
    return wanted ?? (driver ? -1 : found[0] ?? -1);
  }

  nodeAt(name: string | null): number {
    if (!this.nodesByName) this.nodesByName = new Map(this.data.nodes.name.map((each, at) => [each, at]));
    return name === null ? -1 : this.nodesByName.get(name) ?? -1;
  }

  /** The devices of each pod or claim. */
  get devicesByHolder(): Map<string, number[]> {
    if (!this.byHolder) {
      const found = this.byHolder = new Map<string, number[]>();
      this.data.devices.holders.forEach((holders, device) => {
        for (const holder of holders) {
          const name = this.data.holders[holder]!;
          const known = found.get(name);
          if (known) known.push(device);
          else found.set(name, [device]);
        }
      });
    }
    return this.byHolder;
  }

  /** The pods on a node that hold devices, each once. */
  podsOn(node: number): string[] {
    const found = new Set<string>(), first = this.first[node] ?? 0;
    for (let device = first; device < first + (this.data.nodes.devices[node] ?? 0); device++) {
      for (const holder of this.holders(device)) if (holder.startsWith("pod ")) found.add(holder.slice(4));
    }
    return [...found];
  }

  holders(device: number): string[] {
    return this.data.devices.holders[device]!.map((holder) => this.data.holders[holder]!);
  }

  cellOf(box: NodeBox, place: number): Box {
    const columns = columnsOf(box.cards.length);
    return {
      x: box.x + MARGIN + (place % columns) * (CELL + GAP),
      y: box.y + MARGIN + TITLE + Math.floor(place / columns) * (CELL + GAP),
      w: CELL,
      h: CELL,
    };
  }

  /** Where a device is drawn: its cell, or its part of the card that it is cut from. */
  boxOf(device: number, partsOf: (card: number, cell: Box) => [number, Box][]): Box | null {
    const card = this.data.devices.card[device]!, whole = card < 0 ? device : card;
    const cell = { x: this.cellX[whole]!, y: this.cellY[whole]!, w: CELL, h: CELL };
    if (card < 0) return cell;
    return partsOf(whole, cell).find(([part]) => part === device)?.[1] ?? null;
  }

  private place(): void {
    const byGroup = new Map<string, number[]>();
    this.data.nodes.name.forEach((_, node) => {
      const zone = this.data.zones[this.data.nodes.zone[node]!]!;
      const rack = this.data.racks[this.data.nodes.rack[node]!]!;
      const name = [zone, rack].filter(Boolean).join(" · ");
      const known = byGroup.get(name);
      if (known) known.push(node);
      else byGroup.set(name, [node]);
    });
    const boxes: NodeBox[] = this.data.nodes.name.map((_, index) => {
      const cards = this.cards(index);
      const columns = columnsOf(cards.length);
      const rows = Math.ceil(cards.length / columns) || 1;
      return {
        index, cards, x: 0, y: 0,
        w: columns * (CELL + GAP) - GAP + 2 * MARGIN,
        h: rows * (CELL + GAP) - GAP + 2 * MARGIN + TITLE,
      };
    });
    const groups = [...byGroup].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    const area = boxes.reduce((sum, box) => sum + (box.w + GAP) * (box.h + GAP), 0);
    let best = 0, smallest = Infinity;
    for (const factor of WIDTHS) {
      this.placeWithin(groups, boxes, Math.sqrt(area * this.aspect) * factor);
      const size = Math.max(this.width, this.height * this.aspect);
      if (size < smallest) [best, smallest] = [factor, size];
    }
    this.placeWithin(groups, boxes, Math.sqrt(area * this.aspect) * best);
    this.nodes = boxes;
  }

  private placeWithin(groups: [string, number[]][], boxes: NodeBox[], wide: number): void {
    this.groups = [];
    this.width = 0;
    let x = 0, y = 0, shelf = 0;
    for (const [name, nodes] of groups) {
      const own = nodes.reduce((sum, node) => sum + (boxes[node]!.w + 3) * (boxes[node]!.h + 3), 0);
      const most = Math.max(...nodes.map((node) => boxes[node]!.w));
      const width = Math.max(most, groups.length > 1 ? Math.min(Math.sqrt(own * 1.4), wide) : wide);
      const title = name ? GROUP_TITLE : 0;
      let dx = 0, dy = title, row = 0, right = 0;
      for (const node of nodes) {
        const box = boxes[node]!;
        if (dx > 0 && dx + box.w > width) {
          dx = 0;
          dy += row + 3;
          row = 0;
        }
        box.x = dx;
        box.y = dy;
        dx += box.w + 3;
        right = Math.max(right, dx - 3);
        row = Math.max(row, box.h);
      }
      const height = dy + row;
      if (x > 0 && x + right > wide) {
        x = 0;
        y += shelf + GROUP;
        shelf = 0;
      }
      for (const node of nodes) {
        boxes[node]!.x += x;
        boxes[node]!.y += y;
      }
      this.groups.push({ name, nodes, x, y, w: right, h: height });
      this.width = Math.max(this.width, x + right);
      shelf = Math.max(shelf, height);
      x += right + GROUP;
    }
    this.height = y + shelf;
  }
}

function columnsOf(cards: number): number {
  return cards <= 4 ? Math.max(cards, 1) : cards <= 8 ? 4 : Math.ceil(Math.sqrt(cards * 1.5));
}

/** The namespace of a holder such as "pod ml/train". */
export function namespaceOf(holder: string): string {
  return holder.slice(holder.indexOf(" ") + 1).split("/")[0]!;
}
