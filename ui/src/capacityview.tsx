import { useState } from "preact/hooks";
import { post } from "./api";
import type { Fleet } from "./fleet";
import { number } from "./fleetview";
import { Answered, Copy, useAnswer } from "./parts";
import type { Moves, WaitingItem, WhatIfAnswer } from "./types";

type Change = { add: string; count: number } | { remove: string } | { cordon: string };

interface Props {
  fleet: Fleet;
  waiting: WaitingItem[];
  version: string;
  onNode: (name: string) => void;
}

export function CapacityView({ fleet, waiting, version, onNode }: Props) {
  return (
    <section class="columns" aria-label="What if">
      <WhatIf fleet={fleet} version={version} onNode={onNode} />
      <MakeRoom waiting={waiting} version={version} onNode={onNode} />
    </section>
  );
}

function WhatIf({ fleet, version, onNode }: Omit<Props, "waiting">) {
  const [kind, setKind] = useState<"add" | "remove" | "cordon">("add");
  const [name, setName] = useState(fleet.nodes.length ? fleet.nodeName(0) : "");
  const [count, setCount] = useState(1);
  const [changes, setChanges] = useState<Change[]>([]);
  const [asked, setAsked] = useState<Change[]>([]);
  const answer = useAnswer(asked.length ? `${version} ${JSON.stringify(asked)}` : "", () =>
    post<WhatIfAnswer>("what-if", { changes: asked }));
  const add = (event: Event) => {
    event.preventDefault();
    if (!name) return;
    const change: Change = kind === "add" ? { add: name, count } : kind === "remove" ? { remove: name } : { cordon: name };
    setChanges([...changes, change]);
  };
  return (
    <article class="page">
      <h2>What if</h2>
      <form class="bar" onSubmit={add}>
        <label>
          Change{" "}
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value as typeof kind)}>
            <option value="add">add copies of</option>
            <option value="remove">remove</option>
            <option value="cordon">cordon</option>
          </select>
        </label>
        <label>
          Node <input value={name} list="nodes" onInput={(event) => setName(event.currentTarget.value)} />
        </label>
        <datalist id="nodes">{fleet.nodes.slice(0, 200).map((box) => <option key={box.index} value={fleet.nodeName(box.index)} />)}</datalist>
        {kind === "add" && (
          <label>
            How many{" "}
            <input type="number" min={1} max={1000} value={count} onInput={(event) => setCount(Number(event.currentTarget.value) || 1)} />
          </label>
        )}
        <button type="submit">Add to the list</button>
      </form>
      {!!changes.length && (
        <>
          <ul class="changes">
            {changes.map((change, at) => (
              <li key={at}>
                <bdi>{changeText(change)}</bdi>{" "}
                <button type="button" aria-label={`Remove: ${changeText(change)}`} onClick={() => setChanges(changes.filter((_, other) => other !== at))}>×</button>
              </li>
            ))}
          </ul>
          <button type="button" class="main" onClick={() => setAsked(changes)}>What happens?</button>
        </>
      )}
      <Answered answer={answer}>{(found) => <Outcome found={found} onNode={onNode} />}</Answered>
      <p class="quiet">Nothing is changed in the cluster. The answers are those of <code>dralab what-if</code>.</p>
    </article>
  );
}

function changeText(change: Change): string {
  if ("add" in change) return `add ${change.count} like ${change.add}`;
  return "remove" in change ? `remove ${change.remove}` : `cordon ${change.cordon}`;
}

function Outcome({ found, onNode }: { found: WhatIfAnswer; onNode: (name: string) => void }) {
  const waits = found.pods.filter((pod) => ["still waits", "no longer starts", "is displaced"].includes(pod.fate));
  const free = found.fragmentation;
  return (
    <>
      <p class={waits.length ? "headline" : "good"} role="status">
        {found.nodes.before} nodes before, {found.nodes.after} after.{" "}
        {waits.length ? `${number(waits.length)} pods wait.` : "Every pod has a node."}{" "}
        {number(found.unaffected)} stay where they are.
      </p>
      {!!found.pods.length && (
        <table>
          <thead><tr><th scope="col">Pod</th><th scope="col">What happens</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
          <tbody>
            {found.pods.slice(0, 200).map((pod) => (
              <tr key={`${pod.namespace}/${pod.name}`}>
                <th scope="row"><bdi>{pod.namespace}/{pod.name}</bdi></th>
                <td>{pod.fate}{pod.why && <p class="quiet"><bdi>{pod.why}</bdi></p>}</td>
                <td><Place name={pod.before} onNode={onNode} /></td><td><Place name={pod.after} onNode={onNode} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {found.pods.length > 200 && <p class="quiet">The first 200 of {number(found.pods.length)} pods.</p>}
      {!!free.before.kinds.length && (
        <table>
          <caption>Free devices, and those on nodes where such a pod does not fit</caption>
          <thead><tr><th scope="col">Pods like</th><th scope="col">Free</th><th scope="col">Stranded</th><th scope="col">Nodes where it fits</th></tr></thead>
          <tbody>
            {free.before.kinds.map((kind, at) => (
              <tr key={kind.like}>
                <th scope="row"><bdi>{kind.like}</bdi> <span class="quiet"><bdi>{kind.asks}</bdi></span></th>
                <td>{kind.free} → {free.after.kinds[at]?.free}</td>
                <td>{kind.stranded} → {free.after.kinds[at]?.stranded}</td>
                <td>{kind.nodes} → {free.after.kinds[at]?.nodes}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </>
  );
}

function Place({ name, onNode }: { name: string | null; onNode: (name: string) => void }) {
  return name
    ? <button type="button" class="link" onClick={() => onNode(name)}><bdi>{name}</bdi></button>
    : <span class="quiet">none</span>;
}

function MakeRoom({ waiting, version, onNode }: Omit<Props, "fleet">) {
  const pods = waiting.filter((each) => each.kind === "pod").map((each) => `${each.namespace}/${each.name}`);
  const [pod, setPod] = useState("");
  const [asked, setAsked] = useState<string | null>(null);
  const answer = useAnswer(asked === null ? "" : `${version} moves ${asked}`, () =>
    post<Moves>("moves", asked ? { pod: asked } : {}));
  return (
    <article class="page">
      <h2>Make room</h2>
      <form class="bar" onSubmit={(event) => { event.preventDefault(); setAsked(pod); }}>
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
      <Answered answer={answer}>{(found) => <Plan key={asked} found={found} onNode={onNode} />}</Answered>
      <p class="quiet">Nothing is changed in the cluster. The answers are those of <code>dralab defragment</code>.</p>
    </article>
  );
}

function Plan({ found, onNode }: { found: Moves; onNode: (name: string) => void }) {
  const steps = found.clearings.flatMap((clearing) => [
    ...clearing.moves.map((move) => ({
      what: "moves", pod: move.pod, from: move.from as string | null, to: move.to, devices: move.devices,
      why: `makes room for ${move.makesRoomFor}`,
    })),
    {
      what: "starts", pod: clearing.pod, from: null, to: clearing.node, devices: clearing.devices,
      why: clearing.proved ? "no plan has fewer moves (proved)" : "",
    },
  ]);
  const [at, setAt] = useState(0);
  const now = steps[Math.min(at, steps.length - 1)];
  return (
    <>
      <p class={found.waiting.length ? "headline" : "good"} role="status">
        {found.served} of {found.served + found.waiting.length} pods fit
        {found.fitting.length ? `, ${found.fitting.length} of them without moves` : ""}
        {found.moves ? `, after ${found.moves === 1 ? "1 move" : `${found.moves} moves`}` : ""}.
        {found.atBest !== null && found.atBest > found.served && ` No moves serve more than ${found.atBest} (proved).`}
      </p>
      {now && (
        <div class="bar">
          <button type="button" disabled={at === 0} onClick={() => setAt(at - 1)}>Back</button>
          <label>
            Step {at + 1} of {steps.length}{" "}
            <input type="range" min={0} max={steps.length - 1} value={at} onInput={(event) => setAt(Number(event.currentTarget.value))} />
          </label>
          <button type="button" disabled={at === steps.length - 1} onClick={() => setAt(at + 1)}>Next</button>
          <button type="button" onClick={() => onNode(now.to)}>Show on the map</button>
        </div>
      )}
      {!!steps.length && (
        <table>
          <thead><tr><th scope="col">Step</th><th scope="col">Pod</th><th scope="col">From</th><th scope="col">To</th><th scope="col">Devices</th></tr></thead>
          <tbody>
            {steps.map((step, place) => (
              <tr key={place} class={place === at ? "chosen" : place < at ? "past" : ""} aria-current={place === at ? "step" : undefined}>
                <th scope="row">{place + 1}. {step.what}</th>
                <td><bdi>{step.pod}</bdi>{step.why && <span class="quiet"> {step.why}</span>}</td>
                <td><Place name={step.from} onNode={onNode} /></td><td><Place name={step.to} onNode={onNode} /></td>
                <td><bdi>{step.devices.join(", ")}</bdi></td>
              </tr>
            ))}
          </tbody>
        </table>
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
