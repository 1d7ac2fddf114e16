// The answers of the server, as `src/dralab/web` makes them.

export interface About {
  title: string;
  live: boolean;
  kind: "cluster" | "run";
  dralab: string;
}

export interface FleetData {
  version: string;
  same?: true;
  asOf: string;
  states: string[];
  names: string[];
  drivers: string[];
  pools: string[];
  holders: string[];
  zones: string[];
  racks: string[];
  nodes: { name: string[]; zone: number[]; rack: number[]; status: string[]; devices: number[] };
  devices: {
    name: number[]; driver: number[]; pool: number[]; state: number[]; holders: number[][];
    card: number[]; share: number[]; fill: number[]; flags: number[];
  };
}

export interface Waiting {
  version: string;
  same?: true;
  asOf: string;
  /** What the reading left out because it was forbidden. */
  notJudged: string[];
  total: number;
  items: WaitingItem[];
}

export interface Named {
  kind: string;
  namespace: string;
  name: string;
}

export interface WaitingItem extends Named {
  since: string;
  priority: number;
  claims: { name: string; requests: string[] }[];
  allocated: string[];
  missing: string;
  message: string;
}

/** Pods that wait for the same; `pods` names the first of them. */
export interface Cause {
  code: string;
  headline: string;
  count: number;
  namespaces: Record<string, number>;
  since: string;
  help: (Remedy & { of: Named }) | null;
  pods: Named[];
}

export interface Causes {
  causes: Cause[];
  unexplained: number;
}

export interface Remedy {
  kind: string;
  text: string;
  fitsNow: boolean;
  command?: string;
  patch?: unknown;
  number?: number;
  /** Changes that are enough together. */
  parts?: Remedy[];
}

/** A rule that keeps a pod from nodes; `names` are the first of them. */
export interface Unfit {
  reason: string;
  nodes: number;
  names: string[];
}

export interface Usable {
  now: { driver: string; pool: string; devices: string[] }[];
  later: Usable["now"];
}

export interface Explanation {
  /** The helps, by their numbers, of which a what-if can be asked. */
  whatIf?: number[];
  object: string;
  fits: boolean;
  text: string;
  code?: string;
  headline?: string;
  asksFor?: { claim: string; request: string; class: string; text: string; conditions: string[] }[];
  thereAre?: string[];
  helps?: Remedy[];
  places?: { object: string; field: string; at: string; text?: string }[];
  unfit?: Unfit[];
  node?: string;
  why?: string[];
}

export interface Funnel {
  claim: string;
  request: string;
  class: string;
  count: number | "All";
  steps: { what: "devices" | "class" | "selector" | "free"; text: string; devices: number }[];
  blocked: Record<string, number>;
  where: string;
  onOneNode: number;
}

export interface ClaimStory {
  name: string;
  key: string;
  uid: string;
  since: string;
  allocated: boolean;
  reservedFor: string[];
  devices: {
    request: string; driver: string; pool: string; device: string;
    consumed: Record<string, string>; admin: boolean; status: unknown;
    why: { among: string; earlier: string; passed: string[]; able: string[] } | null;
  }[];
}

export interface ContainerDevices {
  container: string;
  entry: string;
  request: string;
  devices: { id: string; health: string; message: string }[];
}

export interface EventList {
  total: number;
  why: string;
  items: { last: string; type: string; reason: string; message: string; count: number; from: string; about: string }[];
}

export interface Story extends Named {
  since: string;
  node: string;
  phase: string;
  missing: string;
  owners: string[];
  conditions: Record<string, string>[];
  entries: Record<string, string>;
  claims: ClaimStory[];
  candidates: number;
  unfit: Unfit[];
  funnels: Funnel[];
  containers: ContainerDevices[];
}

export interface WhatIfAnswer {
  nodes: { before: number; after: number; added: string[]; removed: string[] };
  unaffected: number;
  pods: {
    namespace: string; name: string; fate: string; before: string | null; after: string | null;
    interrupted: boolean; why: string | null; devices: string[];
  }[];
  fragmentation: { before: Fragmentation; after: Fragmentation };
}

export interface Fragmentation {
  stranded: number | null;
  kinds: { like: string; asks: string; pods: number; free: number; stranded: number; nodes: number; fitsOn: string[] }[];
}

export interface Moves {
  served: number;
  moves: number;
  atBest: number | null;
  fitting: { pod: string; node: string; devices: string[] }[];
  clearings: {
    pod: string; node: string; devices: string[]; proved: boolean; cost: number;
    moves: { pod: string; from: string; to: string; releases: string[]; devices: string[];
             makesRoomFor: string }[];
  }[];
  waiting: { pod: string; why: string; proved: boolean }[];
  commands: string[];
}

export interface Run {
  summary: { name: string; scheduler: string; seed: number; complete: boolean;
             simulated_until: number; metrics: Record<string, number | string | null>;
             notes: string[]; capacity?: Record<string, number> };
  samples: { columns: Record<string, number[]>; of: number };
  lanes: string[];
  states: string[];
  /** What the numbers of the summary mean. */
  meanings: Record<string, string>;
  tasks: { id: string[]; state: number[]; submitted: (number | null)[]; started: (number | null)[];
           ended: (number | null)[]; places: number[][]; of: number };
  problems: string[];
}
