import { useState } from "preact/hooks";
import { ask } from "./api";
import { number } from "./fleetview";
import { age, Answered, Copy, useAnswer } from "./parts";
import type { Explanation, Named, Remedy, Waiting, WaitingItem } from "./types";

const MOST_SHOWN = 300;

interface Props {
  waiting: Waiting;
  chosen: Named | null;
  onChoose: (named: Named) => void;
  onStory: (named: Named) => void;
}

export function WaitingView({ waiting, chosen, onChoose, onStory }: Props) {
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
        ? <Explained named={chosen} version={waiting.version} onStory={onStory} />
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
  onStory: (named: Named) => void;
}

function Explained({ named, version, onStory }: ExplainedProps) {
  const { kind, namespace, name } = named;
  const answer = useAnswer(`${version} ${titleOf(named)}`, () =>
    ask<Explanation>("explain", { kind, namespace, name }));
  return (
    <article class="page" aria-label={`Why ${titleOf(named)} waits`}>
      <header>
        <h2><bdi>{titleOf(named)}</bdi></h2>
        <button type="button" onClick={() => onStory(named)}>Its way to devices</button>
      </header>
      <Answered answer={answer}>{(found) => <Page found={found} />}</Answered>
    </article>
  );
}

function Page({ found }: { found: Explanation }) {
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
        ? <ol>{found.helps.map((each) => <Help key={each.text} help={each} />)}</ol>
        : <p>No single change was found that would help.</p>}
      <details>
        <summary>The page of <code>dralab explain</code></summary>
        <pre>{found.text}</pre>
      </details>
    </>
  );
}

function Help({ help }: { help: Remedy }) {
  return (
    <li>
      <bdi>{help.text}</bdi>{" "}
      {help.fitsNow && <span class="tag">confirmed: then it fits</span>}
      {help.command && <div class="command"><code>{help.command}</code> <Copy text={help.command} /></div>}
    </li>
  );
}
