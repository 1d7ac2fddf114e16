import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, post } from "./api";
import type { Fleet } from "./fleet";
import { Map } from "./map";
import { age, type Answer, Answered, Command, GONE, number, Problem, UnfitNodes, useAnswer } from "./parts";
import { PLAIN, type Scene, sceneOfChange, sceneOfUsable } from "./scene";
import type { Cause, Causes, Explanation, Named, Remedy, Usable, Waiting, WaitingItem, WhatIfAnswer } from "./types";

const MOST_SHOWN = 300;
const MOST_OPEN = 5;
const MOST_TEAMS = 4;

interface Props {
  waiting: Waiting;
  fleet: Fleet;
  onNode: (name: string) => void;
  chosen: Named | null;
  onChoose: (named: Named | null) => void;
  onStory: (named: Named) => void;
}

export function WaitingView({ waiting, fleet, chosen, onChoose, onStory, onNode }: Props) {
  const [search, setSearch] = useState("");
  const causes = useAnswer("causes", waiting.version, () => ask<Causes>("causes"));
  const groups = useMemo(
    () => grouped(waiting.items, causes?.state === "here" ? causes.value.causes : []), [waiting, causes]);
  // Of a pod that waited a moment ago one still reads what became of it.
  if (!waiting.total && !chosen) {
    const free = fleet.counts[fleet.data.states.indexOf("free")] ?? 0;
    return (
      <p class="empty">
        <strong>Nothing waits for devices.</strong> {number(free)} of {number(fleet.nodeOf.length)} devices are free.
      </p>
    );
  }
  const wanted = search.toLowerCase();
  const shown = groups
    .map((each) => ({ ...each, items: each.items.filter((item) => `${titleOf(item)} ${each.cause?.headline ?? ""}`.toLowerCase().includes(wanted)) }))
    .filter((each) => each.items.length);
  const count = shown.reduce((sum, each) => sum + each.items.length, 0);
  const isSearched = wanted !== "" || shown.length === 1;
  return (
    <section class={`split waiting ${chosen ? "chosen" : ""}`} aria-label="Waiting">
      <div class="list">
        <h2 class="unseen">What waits, by cause</h2>
        <div class="bar">
          <label>Search <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} /></label>
          <span class="quiet" role="status">
            {number(count)} of {number(waiting.total)}{causes?.state === "asked" && ": computing causes …"}
          </span>
        </div>
        {causes?.state === "failed" && <Problem error={causes.error} />}
        {shown.map((each, at) => (
          <Group
            key={`${each.cause?.code} ${each.cause?.headline}`} group={each} isFirst={at === 0} isOpen={isSearched}
            chosen={chosen} onChoose={onChoose}
          />
        ))}
      </div>
      {chosen
        ? <Explained named={chosen} version={waiting.version} fleet={fleet} onStory={onStory} onNode={onNode} onBack={() => onChoose(null)} />
        : <p class="empty">Choose a pod or claim to see why it waits.</p>}
    </section>
  );
}

interface Grouped {
  cause: Cause | null;
  items: WaitingItem[];
}

/** What waits, by cause; last what has none yet. */
function grouped(items: WaitingItem[], causes: Cause[]): Grouped[] {
  const left = new globalThis.Map(items.map((each) => [titleOf(each), each]));
  const found = causes.map((cause): Grouped => ({
    cause,
    items: cause.pods.flatMap((named) => {
      const item = left.get(titleOf(named));
      left.delete(titleOf(named));
      return item ? [item] : [];
    }),
  }));
  return [...found, { cause: null, items: [...left.values()] }].filter((each) => each.items.length);
}

interface GroupProps {
  group: Grouped;
  isFirst: boolean;
  isOpen: boolean;
  chosen: Named | null;
  onChoose: (named: Named) => void;
}

function Group({ group: { cause, items }, isFirst, isOpen, chosen, onChoose }: GroupProps) {
  const list = (
    <ul class="items">
      {items.slice(0, MOST_SHOWN).map((each) => (
        <li key={titleOf(each)}>
          <button type="button" class="item" aria-pressed={same(each, chosen)} onClick={() => onChoose(each)}>
            <span class="name"><bdi>{titleOf(each)}</bdi></span>
            <span class="quiet">
              {[age(each.since), each.priority ? `priority ${each.priority}` : "", asked(each)].filter(Boolean).join(" · ")}
            </span>
            {!cause && (each.missing || each.message) && <span class="quiet message"><bdi>{each.missing || each.message}</bdi></span>}
          </button>
        </li>
      ))}
      {items.length > MOST_SHOWN && <li class="quiet">The first {MOST_SHOWN} of {number(items.length)}: search to see others.</li>}
    </ul>
  );
  if (!cause) return list;
  const teams = Object.entries(cause.namespaces).sort(([, one], [, other]) => other - one);
  return (
    <section class="cause">
      <h3>{cause.code && <code>{cause.code}</code>} <bdi>{cause.headline}</bdi></h3>
      <p class="quiet">
        <strong>{number(cause.count)} {cause.count === 1 ? "waits" : "wait"}</strong>{cause.since && `, the longest ${age(cause.since)}`}
        {" · "}<bdi>{teams.slice(0, MOST_TEAMS).map(([space, count]) => `${space} ${number(count)}`).join(", ")}</bdi>
        {teams.length > MOST_TEAMS && ` and ${teams.length - MOST_TEAMS} other namespaces`}
      </p>
      {isFirst && cause.help && (
        <p>
          <bdi>{cause.help.text}</bdi>{" "}
          {cause.help.fitsNow && <span class="tag">confirmed for {cause.help.of.name}</span>}
        </p>
      )}
      {isFirst && cause.help?.command && <Command text={cause.help.command} />}
      <details open={isOpen || items.length <= MOST_OPEN || items.some((each) => same(each, chosen))}>
        <summary>{number(items.length)} {items.length === 1 ? "pod or claim" : "pods and claims"}</summary>
        {list}
      </details>
    </section>
  );
}

function titleOf(named: Named): string {
  return `${named.kind} ${named.namespace}/${named.name}`;
}

function same(one: Named, other: Named | null): boolean {
  return other !== null && titleOf(one) === titleOf(other);
}

function asked(item: WaitingItem): string {
  const requests = item.claims.reduce((sum, claim) => sum + claim.requests.length, 0);
  const claims = item.claims.length === 1 ? "1 claim" : `${item.claims.length} claims`;
  return item.claims.length ? `${claims}, ${requests === 1 ? "1 request" : `${requests} requests`}` : "";
}

interface ExplainedProps {
  named: Named;
  version: string;
  fleet: Fleet;
  onStory: (named: Named) => void;
  onNode: (name: string) => void;
  onBack: () => void;
}

function Explained({ named, version, fleet, onStory, onNode, onBack }: ExplainedProps) {
  const { kind, namespace, name } = named;
  const title = titleOf(named);
  const [tried, setTried] = useState<number | null>(null);
  useEffect(() => setTried(null), [title]);
  const map = useRef<HTMLElement>(null);
  useEffect(() => {
    if (tried !== null) map.current?.scrollIntoView({ block: "nearest" });
  }, [tried]);
  const answer = useAnswer(title, version, () =>
    ask<Explanation>("explain", { kind, namespace, name }));
  const usable = useAnswer(title, version, () =>
    ask<Usable>("usable", { kind, namespace, name }));
  const change = useAnswer(tried === null ? "" : `${tried} of ${title}`, version, () =>
    post<WhatIfAnswer>("what-if", { changes: [{ help: tried, of: { kind, namespace, name } }] }));
  const scene = useMemo(() => {
    if (tried !== null) return change?.state === "here" ? sceneOfChange(fleet, change.value) : PLAIN;
    return usable?.state === "here" ? sceneOfUsable(fleet, usable.value) : PLAIN;
  }, [fleet, tried, change, usable]);
  const helps = answer?.state === "here" ? answer.value.helps ?? [] : [];
  return (
    <div class="explained">
      <button type="button" class="back" onClick={onBack}>All that waits</button>
      {answer?.state !== "failed" && <section class="fleet above" aria-label="On the fleet" ref={map}>
        <div class="bar">
          {tried === null
            ? <UsableLegend answer={usable} scene={scene} />
            : (
              <>
                <span role="status">If you <bdi>{helps[tried]?.text}</bdi>: <Answered answer={change}>{(found) => <Outcome found={found} named={named} />}</Answered></span>
                <button type="button" onClick={() => setTried(null)}>What it could use</button>
              </>
            )}
        </div>
        <Map fleet={fleet} scene={scene} label={`What ${title} could use.`} onChoose={(node) => node >= 0 && onNode(fleet.nodeName(node))} />
      </section>}
      <article class="page" aria-label={`Why ${title} waits`}>
        <header>
          <h2><bdi>{title}</bdi></h2>
          <button type="button" onClick={() => onStory(named)}>Show its story</button>
        </header>
        <Answered answer={answer} hint={GONE}>{(found) => <Page found={found} tried={tried} onTry={setTried} onNode={onNode} />}</Answered>
      </article>
    </div>
  );
}

function UsableLegend({ answer, scene }: { answer: Answer<Usable> | null; scene: Scene }) {
  if (answer?.state !== "here") return <Answered answer={answer}>{() => null}</Answered>;
  return (
    <ul class="legend" aria-label="Devices that it could use">
      <li><span class="hue lit" aria-hidden="true" /> {number(scene.now.size)} could serve it now</li>
      <li><span class="hue later" aria-hidden="true" /> {number(scene.later.size)} suit, but are in use, tainted or blocked</li>
    </ul>
  );
}

/** One line of what becomes of this pod, and of how many others. */
function Outcome({ found, named }: { found: WhatIfAnswer; named: Named }) {
  const own = found.pods.find((pod) => pod.namespace === named.namespace && pod.name === named.name);
  const others = found.pods.filter((pod) => pod !== own && pod.before !== pod.after);
  const news = own?.after ? `it starts on ${own.after}` : own ? "it still waits" : "nothing changes for it";
  return (
    <strong class={own?.after ? "good" : "bad"}>
      <bdi>{news}{own?.devices.length === 1 ? ` with ${own.devices[0]}` : own?.devices.length ? ` with ${own.devices.length} devices` : ""}</bdi>
      {others.length > 0 && `; ${number(others.length)} other ${others.length === 1 ? "pod is" : "pods are"} somewhere else`}
    </strong>
  );
}

interface PageProps {
  found: Explanation;
  tried: number | null;
  onTry: (help: number) => void;
  onNode: (name: string) => void;
}

function Page({ found, tried, onTry, onNode }: PageProps) {
  if (found.fits) {
    return (
      <>
        <p class="good">{found.node ? `It fits on ${found.node} now.` : "It has its devices."}</p>
        <pre>{found.text}</pre>
      </>
    );
  }
  return (
    <>
      <p class="headline">{found.code && <code>{found.code}</code>} <bdi>{found.headline}</bdi></p>
      {!!found.asksFor?.length && (
        <>
          <h3>It asks for</h3>
          <ul>{found.asksFor.map((each) => <li key={each.claim + each.request}><bdi>{each.text}</bdi></li>)}</ul>
        </>
      )}
      {!!found.thereAre?.length && (
        <>
          <h3>There are</h3>
          <ul>{found.thereAre.map((text) => <li key={text}><bdi>{text}</bdi></li>)}</ul>
        </>
      )}
      {!!found.places?.length && (
        <>
          <h3>Where it says so</h3>
          <ul>{found.places.map((each) => <li key={each.at}><bdi>{each.at}</bdi>{each.text && <> <code>{each.text}</code></>}</li>)}</ul>
        </>
      )}
      {!!found.unfit?.length && (
        <>
          <h3>Other nodes</h3>
          <ul>{found.unfit.map((each) => <li key={each.reason}><UnfitNodes unfit={each} onNode={onNode} /></li>)}</ul>
        </>
      )}
      <h3>What would help</h3>
      {found.helps?.length
        ? (
          <ol>
            {found.helps.map((each, at) => (
              <Help key={each.text} help={each} tried={tried === at} onTry={found.whatIf?.includes(at) ? () => onTry(at) : null} />
            ))}
          </ol>
        )
        : <p>No single change was found that would help.</p>}
      <details>
        <summary>The page of <code>dralab explain</code></summary>
        <pre>{found.text}</pre>
      </details>
    </>
  );
}

function Help({ help, tried, onTry }: { help: Remedy; tried: boolean; onTry: (() => void) | null }) {
  return (
    <li>
      <bdi>{help.text}</bdi>{" "}
      {onTry && <button type="button" aria-pressed={tried} onClick={onTry}>Show on the map</button>}{" "}
      {help.fitsNow && <span class="tag">confirmed: then it fits</span>}
      {(help.parts ?? [help]).map(({ command }) => command && <Command key={command} text={command} />)}
    </li>
  );
}
