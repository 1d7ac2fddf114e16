import { useEffect, useMemo, useState } from "preact/hooks";
import { ask, post } from "./api";
import type { Fleet } from "./fleet";
import { Map } from "./map";
import { age, type Answer, Answered, Copy, number, useAnswer } from "./parts";
import { PLAIN, type Scene, sceneOfChange, sceneOfUsable } from "./scene";
import type { Explanation, Named, Remedy, Usable, Waiting, WaitingItem, WhatIfAnswer } from "./types";

const MOST_SHOWN = 300;

interface Props {
  waiting: Waiting;
  fleet: Fleet;
  onNode: (name: string) => void;
  chosen: Named | null;
  onChoose: (named: Named) => void;
  onStory: (named: Named) => void;
}

export function WaitingView({ waiting, fleet, chosen, onChoose, onStory, onNode }: Props) {
  const [search, setSearch] = useState("");
  const wanted = search.toLowerCase();
  const items = waiting.items.filter((each) => titleOf(each).toLowerCase().includes(wanted));
  if (!waiting.total) return <p class="empty">Nothing waits for devices.</p>;
  return (
    <section class="split waiting" aria-label="Waiting">
      <div class="list">
        <div class="bar">
          <label>Search <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} /></label>
          <span class="quiet" role="status">{number(items.length)} of {number(waiting.total)}</span>
        </div>
        <ul class="items">
          {items.slice(0, MOST_SHOWN).map((each) => (
            <li key={titleOf(each)}>
              <button
                type="button" class="item" aria-pressed={same(each, chosen)} onClick={() => onChoose(each)}
              >
                <span class="name"><bdi>{titleOf(each)}</bdi></span>
                <span class="quiet">
                  {[age(each.since), each.priority ? `priority ${each.priority}` : "", asked(each)].filter(Boolean).join(" · ")}
                </span>
                {(each.missing || each.message) && <span class="quiet message"><bdi>{each.missing || each.message}</bdi></span>}
              </button>
            </li>
          ))}
        </ul>
        {items.length > MOST_SHOWN && <p class="quiet">The first {MOST_SHOWN}: search to see others.</p>}
      </div>
      {chosen
        ? <Explained named={chosen} version={waiting.version} fleet={fleet} onStory={onStory} onNode={onNode} />
        : <p class="empty">Choose a pod or claim to see why it waits.</p>}
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
}

function Explained({ named, version, fleet, onStory, onNode }: ExplainedProps) {
  const { kind, namespace, name } = named;
  const title = titleOf(named);
  const [tried, setTried] = useState<number | null>(null);
  useEffect(() => setTried(null), [title]);
  const answer = useAnswer(`${version} ${title}`, () =>
    ask<Explanation>("explain", { kind, namespace, name }));
  const usable = useAnswer(`usable ${version} ${title}`, () =>
    ask<Usable>("usable", { kind, namespace, name }));
  const change = useAnswer(tried === null ? "" : `try ${version} ${title} ${tried}`, () =>
    post<WhatIfAnswer>("what-if", { changes: [{ help: tried, of: { kind, namespace, name } }] }));
  const scene = useMemo(() => {
    if (tried !== null) return change?.state === "here" ? sceneOfChange(fleet, change.value) : PLAIN;
    return usable?.state === "here" ? sceneOfUsable(fleet, usable.value) : PLAIN;
  }, [fleet, tried, change, usable]);
  const helps = answer?.state === "here" ? answer.value.helps ?? [] : [];
  return (
    <div class="explained">
      <section class="fleet above" aria-label="On the fleet">
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
      </section>
      <article class="page" aria-label={`Why ${title} waits`}>
        <header>
          <h2><bdi>{title}</bdi></h2>
          <button type="button" onClick={() => onStory(named)}>Show its story</button>
        </header>
        <Answered answer={answer}>{(found) => <Page found={found} tried={tried} onTry={setTried} />}</Answered>
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
}

function Page({ found, tried, onTry }: PageProps) {
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
          <ul>{found.unfit.map((each) => <li key={each.reason}>{each.nodes}: <bdi>{each.reason}</bdi></li>)}</ul>
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
      {help.command && <div class="command"><code>{help.command}</code> <Copy text={help.command} /></div>}
    </li>
  );
}
