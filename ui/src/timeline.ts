// What happened over time, in columns: spans of tasks or holders on lanes, and curves of samples.

import { HUES } from "./fleet";
import type { Run } from "./types";

export interface Line {
  title: string;
  values: Float64Array;
}

/** Curves that share a scale, under one title. */
export interface Strip {
  title: string;
  unit: "%" | "";
  lines: Line[];
  most: number;
}

/** Which spans are on which lane: those of lane `l` are `items[first[l]] … items[first[l + 1] - 1]`, by start. */
export interface Lanes {
  names: string[];
  first: Uint32Array;
  items: Uint32Array;
}

/** How many spans a lane has at once: from `times[i]` on it is `counts[i]`. */
export interface Steps {
  names: string[];
  first: Uint32Array;
  times: Float64Array;
  counts: Float64Array;
  /** The devices of each lane. */
  most: Float64Array;
}

export class Timeline {
  private nodes: Steps | null = null;

  /** Times in seconds; a span that lasts ends at Infinity. `hue` of HUES and more are states. */
  constructor(
    readonly begin: number,
    readonly end: number,
    readonly names: readonly string[],
    readonly notes: readonly string[],
    readonly starts: Float64Array,
    readonly ends: Float64Array,
    readonly hue: Uint8Array,
    readonly lanes: Lanes,
    readonly times: Float64Array,
    readonly strips: Strip[],
  ) {}

  /** The spans at a time, the first `most` of them, and how many there are. */
  at(time: number, most: number): { total: number; spans: number[] } {
    const spans: number[] = [];
    let total = 0;
    const { starts, ends } = this;
    for (let span = 0; span < starts.length; span++) {
      if (starts[span]! <= time && ends[span]! > time) {
        total += 1;
        if (spans.length < most) spans.push(span);
      }
    }
    return { total, spans };
  }

  /** The place of the last sample up to a time; -1: there is none. */
  sampleAt(time: number): number {
    let low = 0, high = this.times.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle]! <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  /** The lanes by node; null where lanes have no device in their name. */
  get byNode(): Steps | null {
    if (!this.lanes.names.some((name) => name.includes("/"))) return null;
    return (this.nodes ??= stepsOf(this));
  }

  /** The span on a lane at a time; -1: none. */
  on(lane: number, time: number): number {
    const { first, items } = this.lanes;
    for (let at = first[lane]!; at < first[lane + 1]!; at++) {
      const span = items[at]!;
      if (this.starts[span]! <= time && this.ends[span]! > time) return span;
    }
    return -1;
  }
}

export function nodeOf(lane: string): string {
  const at = lane.lastIndexOf("/");
  return at < 0 ? lane : lane.slice(0, at);
}

function stepsOf({ lanes, starts, ends }: Timeline): Steps {
  const places = new Map<string, number>(), names: string[] = [];
  const of = lanes.names.map((lane) => {
    const name = nodeOf(lane);
    if (!places.has(name)) places.set(name, names.push(name) - 1);
    return places.get(name)!;
  });
  const most = new Float64Array(names.length);
  const changes: [number, number][][] = names.map(() => []);
  of.forEach((node, lane) => {
    most[node]! += 1;
    for (let at = lanes.first[lane]!; at < lanes.first[lane + 1]!; at++) {
      const span = lanes.items[at]!;
      changes[node]!.push([starts[span]!, 1]);
      if (ends[span]! < Infinity) changes[node]!.push([ends[span]!, -1]);
    }
  });
  const size = changes.reduce((sum, each) => sum + each.length, 0);
  const found: Steps = {
    names, most, first: new Uint32Array(names.length + 1), times: new Float64Array(size),
    counts: new Float64Array(size),
  };
  let at = 0;
  changes.forEach((each, node) => {
    each.sort(([a], [b]) => a - b);
    let count = 0;
    for (const [time, by] of each) {
      count += by;
      found.times[at] = time;
      found.counts[at++] = count;
    }
    found.first[node + 1] = at;
  });
  return found;
}

/** Lanes from the lanes of each span; spans come in the order of their starts. */
export function lanesOf(names: string[], places: readonly (readonly number[])[], starts: Float64Array): Lanes {
  const first = new Uint32Array(names.length + 1);
  for (const each of places) for (const lane of each) first[lane + 1]! += 1;
  for (let lane = 0; lane < names.length; lane++) first[lane + 1]! += first[lane]!;
  const items = new Uint32Array(first[names.length]!), next = first.slice();
  const order = Uint32Array.from(places, (_, at) => at).sort((a, b) => starts[a]! - starts[b]!);
  for (const span of order) for (const lane of places[span]!) items[next[lane]!++] = span;
  return { names, first, items };
}

/** A hue for a name, always the same. */
export function hueOf(name: string): number {
  let hash = 0;
  for (let at = 0; at < name.length; at++) hash = (hash * 31 + name.charCodeAt(at)) | 0;
  return (hash >>> 0) % HUES;
}

export function timelineOf(run: Run): Timeline {
  const { tasks } = run;
  const end = Math.max(run.summary.simulated_until, 1);
  const ran = tasks.id.map((_, at) => at).filter((at) => typeof tasks.started[at] === "number");
  const starts = Float64Array.from(ran, (at) => tasks.started[at]!);
  const ends = Float64Array.from(ran, (at) => tasks.ended[at] ?? Infinity);
  const names = ran.map((at) => tasks.id[at]!);
  const notes = ran.map((at) => run.states[tasks.state[at]!]!);
  const hue = Uint8Array.from(names, hueOf);
  const lanes = lanesOf(run.lanes, ran.map((at) => tasks.places[at]!), starts);
  const times = Float64Array.from(run.samples.columns["time"] ?? []);
  return new Timeline(0, end, names, notes, starts, ends, hue, lanes, times, stripsOf(run));
}

function stripsOf(run: Run): Strip[] {
  const { columns } = run.samples, capacity = run.summary.capacity ?? {};
  const share = (column: string, whole: string, unit: number, title: string): Line | null => {
    const values = columns[column], most = capacity[whole];
    if (!values?.some(Boolean)) return null;
    return { title, values: Float64Array.from(values, (each) => (most ? (100 * each) / most : each / unit)) };
  };
  const known = Object.keys(capacity).length > 0;
  const machines = "machines" in capacity;
  return strips([
    [known ? "Utilisation" : "In use", known ? "%" : "", [
      share("gpu", "gpu", 1000, "GPUs"),
      share("cpu", machines ? "machines" : "cpu", machines ? 1 : 1000, machines ? "machines" : known ? "CPU" : "CPU or machines"),
    ]],
    ["Fragmentation", known ? "%" : "", [share("fragmented", "gpu", 1000, "idle GPUs that typical pods cannot use")]],
    ["Queue", "", [share("waiting", "", 1, "waiting")]],
    ["Running", "", [share("running", "", 1, "running")]],
  ]);
}

export function strips(given: [string, Strip["unit"], (Line | null)[]][]): Strip[] {
  return given.flatMap(([title, unit, found]) => {
    const lines = found.filter((line) => line !== null);
    if (!lines.length) return [];
    let most = 0;
    for (const line of lines) for (const value of line.values) if (value > most) most = value;
    return [{ title, unit, lines, most: nice(most, unit) }];
  });
}

/** The top of a scale: a round number. */
function nice(most: number, unit: Strip["unit"]): number {
  if (most <= 0) return 1;
  if (unit === "%" && most > 50 && most <= 100) return 100;
  const power = 10 ** Math.floor(Math.log10(most));
  return power * [1, 2, 5, 10].find((each) => each * power >= most)!;
}

/** A time of a simulation as days and hours. */
export function clock(seconds: number): string {
  const whole = Math.floor(seconds), two = (value: number) => String(value).padStart(2, "0");
  const days = Math.floor(whole / 86_400);
  return `${days ? `${days}d ` : ""}${two(Math.floor(whole / 3600) % 24)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}
