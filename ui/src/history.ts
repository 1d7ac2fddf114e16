// What this window has seen of a cluster: which device was in which state, held by whom, and when.

import { HUES, namespaceOf, type Fleet } from "./fleet";
import { hueOf, lanesOf, strips, Timeline } from "./timeline";

const MOST_SPANS = 200_000;
const MOST_SAMPLES = 20_000;
// The code of a span is its holder and state in one number.
const STATES = 16;

export class History {
  /** Counts what was recorded. */
  version = 0;
  private begin = NaN;
  /** How far the server's clock is ahead of the window's, in seconds. */
  private ahead = 0;
  private readonly lanes: string[] = [];
  private readonly lanesByKey = new Map<string, number>();
  private readonly holders: string[] = [""];
  private readonly holdersByName = new Map<string, number>([["", 0]]);
  private states: string[] = [];
  // What each lane is, since when; code 0 is free.
  private codes: number[] = [];
  private since: number[] = [];
  private spans = { lane: [] as number[], code: [] as number[], from: [] as number[], to: [] as number[] };
  private samples = { time: [] as number[], used: [] as number[], blocked: [] as number[], waiting: [] as number[] };
  private last: { fleet: Fleet; lanes: Uint32Array } | null = null;

  record(fleet: Fleet, waiting: number): void {
    const { data } = fleet, time = Date.parse(data.asOf) / 1000;
    if (Number.isNaN(this.begin)) this.begin = time;
    this.ahead = time - Date.now() / 1000;
    if (this.last?.fleet !== fleet) this.take(fleet, time);
    const count = (state: string) => fleet.counts[data.states.indexOf(state)] ?? 0;
    const all = Math.max(fleet.nodeOf.length, 1);
    const { samples } = this;
    if (samples.time.length >= MOST_SAMPLES) for (const each of Object.values(samples)) each.splice(0, MOST_SAMPLES / 4);
    samples.time.push(Math.max(time, samples.time.at(-1) ?? 0));
    samples.used.push((100 * count("used")) / all);
    samples.blocked.push((100 * count("blocked")) / all);
    samples.waiting.push(waiting);
    this.version += 1;
  }

  /** The time now, by the server's clock. */
  now(): number {
    return Math.max(Date.now() / 1000 + this.ahead, this.begin);
  }

  timeline(): Timeline {
    const { spans, samples } = this, end = this.now();
    const open = this.codes.map((code, lane) => (code ? lane : -1)).filter((lane) => lane >= 0);
    const lane = [...spans.lane, ...open], code = [...spans.code, ...open.map((each) => this.codes[each]!)];
    const starts = Float64Array.from([...spans.from, ...open.map((each) => this.since[each]!)]);
    const ends = Float64Array.from([...spans.to, ...open.map(() => Infinity)]);
    const hues = this.holders.map((holder) => hueOf(namespaceOf(holder)));
    const holderOf = (each: number) => Math.floor(each / STATES);
    const line = (title: string, values: number[]) => ({ title, values: Float64Array.from(values) });
    return new Timeline(
      this.begin, Math.max(end, this.begin + 1),
      code.map((each, at) => this.holders[holderOf(each)]! || this.lanes[lane[at]!]!),
      code.map((each) => this.states[each % STATES]!),
      starts, ends,
      Uint8Array.from(code, (each) => (holderOf(each) ? hues[holderOf(each)]! : HUES + (each % STATES))),
      lanesOf(this.lanes, lane.map((each) => [each]), starts),
      Float64Array.from(samples.time),
      strips([
        ["Devices", "%", [line("in use", samples.used), samples.blocked.some(Boolean) ? line("blocked", samples.blocked) : null]],
        ["Queue", "", [line("waiting", samples.waiting)]],
      ]),
    );
  }

  /** The states of devices at a time, where they are not those of now: by device of the fleet. */
  statesAt(time: number, fleet: Fleet): Map<number, number> {
    const found = new Map<number, number>();
    if (this.last?.fleet !== fleet) return found;
    const was = new Uint8Array(this.lanes.length), { spans } = this;
    for (let span = 0; span < spans.lane.length; span++) {
      if (spans.from[span]! <= time && spans.to[span]! > time) was[spans.lane[span]!] = spans.code[span]! % STATES;
    }
    this.codes.forEach((code, lane) => {
      if (code && this.since[lane]! <= time) was[lane] = code % STATES;
    });
    this.last.lanes.forEach((lane, device) => {
      if (was[lane] !== fleet.data.devices.state[device]) found.set(device, was[lane]!);
    });
    return found;
  }

  private take(fleet: Fleet, time: number): void {
    const { data } = fleet, { devices } = data;
    const lanes = this.last && sameDevices(this.last.fleet, fleet) ? this.last.lanes : this.lanesOfDevices(fleet);
    this.states = data.states;
    const holders = data.holders.map((holder) => {
      const known = this.holdersByName.get(holder);
      if (known !== undefined) return known;
      this.holdersByName.set(holder, this.holders.length);
      return this.holders.push(holder) - 1;
    });
    const gone = this.last && lanes !== this.last.lanes ? new Set(this.last.lanes) : null;
    lanes.forEach((lane, device) => {
      const holder = devices.holders[device]![0];
      this.change(lane, devices.state[device]! + STATES * (holder === undefined ? 0 : holders[holder]!), time);
      gone?.delete(lane);
    });
    for (const lane of gone ?? []) this.change(lane, 0, time);
    this.last = { fleet, lanes };
    const { spans } = this;
    if (spans.lane.length > MOST_SPANS) {
      // The oldest half goes, and the time that it tells of.
      this.begin = spans.to[MOST_SPANS / 2]!;
      for (const each of Object.values(spans)) each.splice(0, MOST_SPANS / 2);
    }
  }

  private change(lane: number, code: number, time: number): void {
    const before = this.codes[lane]!;
    if (before === code) return;
    if (before) {
      this.spans.lane.push(lane);
      this.spans.code.push(before);
      this.spans.from.push(this.since[lane]!);
      this.spans.to.push(time);
    }
    this.codes[lane] = code;
    this.since[lane] = time;
  }

  private lanesOfDevices(fleet: Fleet): Uint32Array {
    const { devices, drivers, pools } = fleet.data;
    return Uint32Array.from(devices.name, (_, device) => {
      const name = `${fleet.nodeName(fleet.nodeOf[device]!)}/${fleet.deviceName(device)}`;
      const key = `${drivers[devices.driver[device]!]}|${pools[devices.pool[device]!]}|${name}`;
      const known = this.lanesByKey.get(key);
      if (known !== undefined) return known;
      this.lanesByKey.set(key, this.lanes.length);
      this.codes.push(0);
      this.since.push(0);
      return this.lanes.push(name) - 1;
    });
  }
}

/** Whether two fleets have the same devices in the same places. */
function sameDevices(a: Fleet, b: Fleet): boolean {
  const [one, two] = [a.data, b.data];
  return (["names", "drivers", "pools"] as const).every((list) => equal(one[list], two[list]))
    && (["name", "driver", "pool"] as const).every((list) => equal(one.devices[list], two.devices[list]))
    && equal(one.nodes.name, two.nodes.name) && equal(one.nodes.devices, two.nodes.devices);
}

function equal<T>(a: readonly T[], b: readonly T[]): boolean {
  return a.length === b.length && a.every((each, at) => each === b[at]);
}
