import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { post } from "./api";
import type { Fleet } from "./fleet";
import { Map } from "./map";
import { Answered, Copy, number, type Row, Sheet, useAnswer } from "./parts";
import { PLAIN, type Scene, sceneOfChange, sceneOfStep, type Step } from "./scene";
import type { Moves, WaitingItem, WhatIfAnswer } from "./types";

const MOST_OFFERED = 200;
const MOST_LISTED = 200;
const MOST_NAMED = 5;

type Change = { add: string; count: number } | { remove: string } | { cordon: string } | { uncordon: string }
  | { move: string; to: string };

interface Props {
  fleet: Fleet;
  waiting: WaitingItem[];
  version: string;
  /** The changes whose outcome is shown, as JSON; the server checks them. */
  asked: string;
  onAsked: (changes: string) => void;
}

export function CapacityView({ fleet, waiting, version, asked: given, onAsked }: Props) {
  const asked = useMemo(() => changesOf(given), [given]);
  const [changes, setChanges] = useState<Change[]>(asked);
  const [room, setRoom] = useState<string | null>(null);
  const [at, setAt] = useState(0);
  const [plays, setPlays] = useState(false);
  const [shown, setShown] = useState<"change" | "plan">("change");
  const [node, setNode] = useState(-1);
  const [name, setName] = useState(fleet.nodes.length ? fleet.nodeName(0) : "");
  const map = useRef<HTMLElement>(null);
  const choose = (at: number) => {
    setNode(at);
    if (at >= 0) setName(fleet.nodeName(at));
  };
  const showNode = (wanted: string) => {
    choose(fleet.nodeAt(wanted));
    map.current?.scrollIntoView({ block: "nearest" });
  };
  const answer = useAnswer(asked.length ? JSON.stringify(asked) : "", version, () =>
    post<WhatIfAnswer>("what-if", { changes: asked }));
  const plan = useAnswer(room === null ? "" : `moves ${room}`, version, () =>
    post<Moves>("moves", room ? { pod: room } : {}));
  const steps = useMemo(() => (plan?.state === "here" ? stepsOf(plan.value) : []), [plan]);
  useEffect(() => {
    setAt(0);
    setPlays(false);
  }, [steps]);
  const moved = usePlaying(plays, at, steps.length, setAt, setPlays);
  const scene = useMemo<Scene>(() => {
    const found = shown === "plan" && steps.length ? sceneOfStep(fleet, steps, at)
      : shown === "change" && answer?.state === "here" ? sceneOfChange(fleet, answer.value)
      : PLAIN;
    return { ...withChanges(fleet, found, shown === "change" ? asked : []), node };
  }, [fleet, shown, steps, at, answer, asked, node]);
  const ask = (list: Change[]) => {
    setChanges(list);
    onAsked(list.length ? JSON.stringify(list) : "");
    setShown("change");
  };
  if (!fleet.nodes.length) return <p class="empty">There are no nodes of which one could ask.</p>;
  return (
    <section class="what-if" aria-label="What if">
      <section class="fleet above" aria-label="On the fleet" ref={map}>
        <Map
          fleet={fleet} scene={scene} moved={moved} label="What would change." onChoose={choose}
          onMove={(pod, to) => ask([...changes.filter((each) => !("move" in each && each.move === pod)), { move: pod, to: fleet.nodeName(to) }])}
        />
      </section>
      <div class="columns">
        <WhatIf
          fleet={fleet} changes={changes} name={name} onName={setName} onChanges={setChanges} onAsk={ask}
        >
          <Answered answer={answer}>{(found) => <Outcome found={found} asked={asked} fleet={fleet} onNode={showNode} />}</Answered>
        </WhatIf>
        <article class="page">
          <MakeRoom waiting={waiting} onAsk={(pod) => { setRoom(pod); setShown("plan"); }} />
          <Answered answer={plan}>{(found) => (
            <Plan
              fleet={fleet} found={found} steps={steps} at={at} plays={plays} onNode={showNode}
              onStep={(to) => { setAt(to); setPlays(false); setShown("plan"); }}
              onPlay={() => {
                setShown("plan");
                if (!plays && at === steps.length - 1) setAt(0);
                setPlays(!plays);
              }}
            />
          )}</Answered>
          <p class="quiet">Nothing is changed in the cluster. The answers are those of <code>dralab plan moves</code>.</p>
        </article>
      </div>
    </section>
  );
}

function changesOf(text: string): Change[] {
  try {
    const found: unknown = JSON.parse(text || "[]");
    return Array.isArray(found) && found.every((each) => typeof each === "object" && each) ? found as Change[] : [];
  } catch {
    return [];
  }
}

/** The changes themselves on the map: nodes that go or take no new pods. */
function withChanges(fleet: Fleet, scene: Scene, changes: Change[]): Scene {
  const nodes = new globalThis.Map(scene.nodes);
  for (const change of changes) {
    if ("remove" in change) nodes.set(fleet.nodeAt(change.remove), "goes");
    if ("cordon" in change) nodes.set(fleet.nodeAt(change.cordon), "cordoned");
  }
  return { ...scene, nodes };
}

function stepsOf(found: Moves): Step[] {
  return found.clearings.flatMap((clearing) => [
    ...clearing.moves.map((move): Step => ({
      what: "moves", pod: move.pod, from: move.from, to: move.to, devices: move.devices,
      releases: move.releases, why: `makes room for ${move.makesRoomFor}`,
    })),
    {
      what: "starts", pod: clearing.pod, from: null, to: clearing.node, devices: clearing.devices,
      releases: [], why: clearing.proved ? "no plan has fewer moves (proved)" : "",
    },
  ]);
}

const STEP_TIME = 1_600;

/** Go on through the steps while it plays; how far the pod of this step is on its way. */
function usePlaying(
  plays: boolean, at: number, most: number, onStep: (at: number) => void, onPlays: (plays: boolean) => void,
): number {
  const [moved, setMoved] = useState(1);
  useEffect(() => {
    if (!plays) {
      setMoved(1);
      return;
    }
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const began = performance.now();
    let frame = 0;
    const step = (now: number) => {
      const part = (now - began) / STEP_TIME;
      setMoved(isStill ? 1 : Math.min(1, part * 1.4));
      if (part < 1) {
        frame = requestAnimationFrame(step);
      } else if (at + 1 < most) {
        onStep(at + 1);
      } else {
        onPlays(false);
      }
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [plays, at, most]);
  return moved;
}

interface WhatIfProps {
  fleet: Fleet;
  changes: Change[];
  /** The node that is written or was clicked on the map. */
  name: string;
  onName: (name: string) => void;
  onChanges: (changes: Change[]) => void;
  onAsk: (changes: Change[]) => void;
  children: ComponentChildren;
}

const KINDS = { add: "add copies of", remove: "remove", cordon: "cordon", uncordon: "uncordon", move: "move a pod to" } as const;

function WhatIf({ fleet, changes, name, onName, onChanges, onAsk, children }: WhatIfProps) {
  const [kind, setKind] = useState<keyof typeof KINDS>("add");
  const [pod, setPod] = useState("");
  const [count, setCount] = useState(1);
  const add = (event: Event) => {
    event.preventDefault();
    if (!name || (kind === "move" && !pod)) return;
    const made: Record<keyof typeof KINDS, Change> = {
      add: { add: name, count }, remove: { remove: name }, cordon: { cordon: name },
      uncordon: { uncordon: name }, move: { move: pod, to: name },
    };
    onChanges([...changes, made[kind]]);
  };
  return (
    <article class="page">
      <h2>What if</h2>
      <form class="bar" onSubmit={add}>
        <label>
          Change{" "}
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value as keyof typeof KINDS)}>
            {Object.entries(KINDS).map(([each, text]) => <option key={each} value={each}>{text}</option>)}
          </select>
        </label>
        <label>
          Node{" "}
          <input
            value={name} list="nodes" onInput={(event) => onName(event.currentTarget.value)}
            onFocus={(event) => event.currentTarget.select()}
          />
        </label>
        <datalist id="nodes">
          {fleet.data.nodes.name.filter((each) => each.includes(name)).slice(0, MOST_OFFERED).map((each) => <option key={each} value={each} />)}
        </datalist>
        {kind === "add" && (
          <label>
            How many{" "}
            <input type="number" min={1} max={1000} value={count} onInput={(event) => setCount(Number(event.currentTarget.value) || 1)} />
          </label>
        )}
        {kind === "move" && (
          <label>
            Pod <input value={pod} placeholder="namespace/name" onInput={(event) => setPod(event.currentTarget.value)} />
          </label>
        )}
        <button type="submit">Add to the list</button>
      </form>
      {!changes.length && <p class="quiet">A click on the map fills in the node. Or drag a device: its pod moves to the node where you drop it. With keys: <kbd>m</kbd> on a node, then <kbd>Enter</kbd> on another.</p>}
      {!!changes.length && (
        <>
          <ul class="changes">
            {changes.map((change, at) => (
              <li key={at}>
                <bdi>{changeText(change)}</bdi>{" "}
                <button type="button" aria-label={`Remove: ${changeText(change)}`} onClick={() => onChanges(changes.filter((_, other) => other !== at))}>×</button>
              </li>
            ))}
          </ul>
          <button type="button" class="main" onClick={() => onAsk(changes)}>What happens?</button>
        </>
      )}
      {children}
      <p class="quiet">Nothing is changed in the cluster. The answers are those of <code>dralab what-if</code>.</p>
    </article>
  );
}

function changeText(change: Change): string {
  if ("add" in change) return `add ${change.count} like ${change.add}`;
  if ("remove" in change) return `remove ${change.remove}`;
  if ("move" in change) return `move ${change.move} to ${change.to}`;
  return "cordon" in change ? `cordon ${change.cordon}` : `uncordon ${change.uncordon}`;
}

interface OutcomeProps {
  found: WhatIfAnswer;
  asked: Change[];
  fleet: Fleet;
  onNode: (name: string) => void;
}

function Outcome({ found, asked, fleet, onNode }: OutcomeProps) {
  const waits = found.pods.filter((pod) => ["still waits", "no longer starts", "is displaced"].includes(pod.fate));
  const free = found.fragmentation;
  const place = (name: string | null) => <Place name={name} fleet={fleet} onNode={onNode} />;
  const rowOf = (pod: WhatIfAnswer["pods"][number]): Row => ({
    key: `${pod.namespace}/${pod.name}`,
    cells: [
      <bdi>{pod.namespace}/{pod.name}</bdi>,
      <>{pod.fate}{pod.interrupted && ", waits meanwhile"}{pod.why && <p class="quiet"><bdi>{pod.why}</bdi></p>}</>,
      place(pod.before), place(pod.after),
    ],
  });
  const columns = ["Pod", "What happens", "Before", "After"];
  const isNews = (pod: WhatIfAnswer["pods"][number]) => pod.fate !== "starts anyway" || pod.before !== pod.after;
  const news = found.pods.filter(isNews), anyway = found.pods.filter((pod) => !isNews(pod));
  const nodes = [...newsOfNodes(found, asked)];
  return (
    <>
      <p class={waits.length ? "headline" : "good"} role="status">
        {found.nodes.before} nodes before, {found.nodes.after} after.{" "}
        {waits.length ? `${number(waits.length)} pods wait.` : "Every pod has a node."}{" "}
        {number(found.unaffected)} stay where they are.
      </p>
      {!!nodes.length && (
        <>
          <h3>Nodes</h3>
          <ul class="places" aria-label="Nodes that change">
            {nodes.slice(0, MOST_LISTED).map(([name, what]) => <li key={name}>{place(name)} <bdi>{several(what)}</bdi></li>)}
          </ul>
          {nodes.length > MOST_LISTED && <p class="quiet">The first {MOST_LISTED} of {number(nodes.length)} nodes.</p>}
        </>
      )}
      {!!news.length && <Sheet columns={columns} rows={news.slice(0, MOST_LISTED).map(rowOf)} />}
      {news.length > MOST_LISTED && <p class="quiet">The first {MOST_LISTED} of {number(news.length)} pods.</p>}
      {!!anyway.length && (
        <details>
          <summary>{number(anyway.length)} {anyway.length === 1 ? "pod starts" : "pods start"} anyway</summary>
          <Sheet columns={columns} rows={anyway.slice(0, MOST_LISTED).map(rowOf)} />
        </details>
      )}
      {!!free.before.kinds.length && (
        <Sheet
          caption="Free devices, and those on nodes where such a pod does not fit"
          columns={["Pods like", "Free", "Stranded", "Nodes where it fits"]}
          rows={free.before.kinds.map((kind, at) => {
            const after = free.after.kinds[at]!;
            return {
              key: kind.like,
              cells: [
                <><bdi>{kind.like}</bdi> <span class="quiet"><bdi>{kind.asks}</bdi></span></>,
                `${kind.free} → ${after.free}`, `${kind.stranded} → ${after.stranded}`,
                <>
                  {kind.nodes} → {after.nodes}
                  {after.fitsOn.slice(0, MOST_NAMED).map((name) => <> {place(name)}</>)}
                  {after.nodes > MOST_NAMED && " …"}
                </>,
              ],
            };
          })}
        />
      )}
    </>
  );
}

/** What becomes of each node that changes: itself, and the pods that it gets and loses. */
function newsOfNodes(found: WhatIfAnswer, asked: Change[]): globalThis.Map<string, string[]> {
  const news = new globalThis.Map<string, string[]>();
  const add = (name: string, text: string) => news.set(name, [...news.get(name) ?? [], text]);
  for (const name of found.nodes.added) add(name, "new");
  for (const name of found.nodes.removed) add(name, "removed");
  for (const change of asked) {
    if ("cordon" in change) add(change.cordon, "cordoned");
    if ("uncordon" in change) add(change.uncordon, "uncordoned");
  }
  for (const pod of found.pods) {
    if (pod.before === pod.after) continue;
    if (pod.before) add(pod.before, `− ${pod.namespace}/${pod.name}`);
    if (pod.after) add(pod.after, `+ ${pod.namespace}/${pod.name}`);
  }
  return news;
}

function several(texts: string[]): string {
  const more = texts.length - MOST_NAMED;
  return texts.slice(0, MOST_NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** A node by its name: on the map where it is there. */
function Place({ name, fleet, onNode }: { name: string | null; fleet: Fleet; onNode: (name: string) => void }) {
  if (!name) return <span class="quiet">none</span>;
  return fleet.nodeAt(name) < 0
    ? <bdi>{name}</bdi>
    : <button type="button" class="link" onClick={() => onNode(name)}><bdi>{name}</bdi></button>;
}

function MakeRoom({ waiting, onAsk }: { waiting: WaitingItem[]; onAsk: (pod: string) => void }) {
  const pods = waiting.filter((each) => each.kind === "pod").map((each) => `${each.namespace}/${each.name}`);
  const [pod, setPod] = useState("");
  return (
    <>
      <h2>Make room</h2>
      <form class="bar" onSubmit={(event) => { event.preventDefault(); onAsk(pod); }}>
        <label>
          For{" "}
          <select value={pod} onChange={(event) => setPod(event.currentTarget.value)}>
            <option value="">every waiting pod</option>
            {pods.slice(0, 500).map((name) => <option key={name} value={name}>{name}</option>)}
          </select>
        </label>
        <button type="submit" class="main" disabled={!pods.length}>Which pods have to move?</button>
      </form>
      {!pods.length && <p class="quiet">No pod waits.</p>}
    </>
  );
}

interface PlanProps {
  fleet: Fleet;
  found: Moves;
  steps: Step[];
  at: number;
  plays: boolean;
  onStep: (at: number) => void;
  onPlay: () => void;
  onNode: (name: string) => void;
}

function Plan({ fleet, found, steps, at, plays, onStep, onPlay, onNode }: PlanProps) {
  return (
    <>
      <p class={found.waiting.length ? "headline" : "good"} role="status">
        {found.served} of {found.served + found.waiting.length} pods fit
        {found.fitting.length ? `, ${found.fitting.length} of them without moves` : ""}
        {found.moves ? `, after ${found.moves === 1 ? "1 move" : `${found.moves} moves`}` : ""}.
        {found.atBest !== null && found.atBest > found.served && ` No moves serve more than ${found.atBest} (proved).`}
      </p>
      {!!steps.length && (
        <div class="bar">
          <button type="button" class="main" onClick={onPlay}>{plays ? "Stop" : "Play"}</button>
          <button type="button" disabled={at === 0} onClick={() => onStep(at - 1)}>Back</button>
          <label>
            Step {at + 1} of {steps.length}{" "}
            <input type="range" min={0} max={steps.length - 1} value={at} onInput={(event) => onStep(Number(event.currentTarget.value))} />
          </label>
          <button type="button" disabled={at === steps.length - 1} onClick={() => onStep(at + 1)}>Next</button>
        </div>
      )}
      {!!steps.length && (
        <Sheet columns={["Step", "Pod", "From", "To", "Devices"]} rows={steps.map((step, place) => ({
          class: place === at ? "chosen" : place < at ? "past" : "",
          current: place === at,
          cells: [
            `${place + 1}.\u00a0${step.what}`,
            <><bdi>{step.pod}</bdi>{step.why && step.why !== steps[place - 1]?.why && <p class="quiet"><bdi>{step.why}</bdi></p>}</>,
            <Place name={step.from} fleet={fleet} onNode={onNode} />, <Place name={step.to} fleet={fleet} onNode={onNode} />,
            <bdi>{step.devices.join(", ")}</bdi>,
          ],
        }))} />
      )}
      {!!found.waiting.length && (
        <>
          <h3>Still waiting</h3>
          <ul>{found.waiting.slice(0, 100).map((each) => <li key={each.pod}><bdi>{each.pod}: {each.why}</bdi></li>)}</ul>
        </>
      )}
      {!!found.commands.length && (
        <details>
          <summary>As kubectl commands</summary>
          <Copy text={found.commands.join("\n")} />
          <pre>{found.commands.join("\n")}</pre>
        </details>
      )}
    </>
  );
}
