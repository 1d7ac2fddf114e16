import { render } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask, beginSession, Refused, useToken } from "./api";
import { usePlace } from "./address";
import { CapacityView } from "./capacityview";
import { type Change, changesOfFleet, changesOfWaiting } from "./changes";
import { Fleet } from "./fleet";
import { FleetView } from "./fleetview";
import { History } from "./history";
import { useCluster } from "./live";
import { Problem, refusedOf } from "./parts";
import { StoryView } from "./storyview";
import { HistoryView, RunView } from "./timeview";
import type { About, Named, Waiting } from "./types";
import { WaitingView } from "./waitingview";

const MOST_CHANGES = 200;
const TABS = ["Fleet", "Waiting", "Story", "What if", "Time"] as const;
type Tab = (typeof TABS)[number];

function nameOf(tab: Tab): string {
  return tab.toLowerCase().replace(" ", "-");
}

function App() {
  const [about, setAbout] = useState<About | null>(null);
  const [error, setError] = useState<Refused | null>(null);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    setError(null);
    ask<About>("about").then(setAbout, (failure: unknown) => setError(refusedOf(failure)));
  }, [tries]);
  if (error?.status === 401) return <TokenForm error={tries ? error : null} onToken={() => setTries(tries + 1)} />;
  if (error) {
    return (
      <main class="alone">
        <Problem error={error} />
        <button type="button" onClick={() => setTries(tries + 1)}>Try again</button>
      </main>
    );
  }
  if (about?.kind === "run") return <RunPage about={about} />;
  return about && <Cluster about={about} onRefused={setError} />;
}

function RunPage({ about }: { about: About }) {
  return (
    <>
      <header class="top"><h1>dralab</h1><span class="quiet"><bdi>{about.title}</bdi></span></header>
      <main><RunView /></main>
    </>
  );
}

function TokenForm({ error, onToken }: { error: Refused | null; onToken: () => void }) {
  const [token, setToken] = useState("");
  return (
    <main class="alone">
      <h1>dralab</h1>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          useToken(token);
          onToken();
        }}
      >
        <p>
          This server asks for a token. It is in the kubeconfig that <code>dralab up</code> wrote, at{" "}
          <code>users[0].user.token</code>. Without copying it: <code>dralab ui --kubeconfig FILE</code>
        </p>
        <label>Token <input type="password" autocomplete="off" value={token} onInput={(event) => setToken(event.currentTarget.value)} /></label>{" "}
        <button type="submit" class="main">Show the cluster</button>
        {error && <Problem error={error} />}
      </form>
    </main>
  );
}

function Cluster({ about, onRefused }: { about: About; onRefused: (error: Refused) => void }) {
  const [place, go] = usePlace();
  const tabs = about.live ? TABS : TABS.filter((each) => each !== "Time");
  const tab = tabs.find((each) => nameOf(each) === place.view) ?? "Fleet";
  const { chosen, query } = place;
  const { fleet: data, waiting, error, live } = useCluster(about, onRefused);
  const fleet = useMemo(() => data && new Fleet(data, aspect()), [data]);
  const history = useMemo(() => new History(), []);
  // While this renders, not after it: the views see what was recorded.
  useMemo(() => {
    if (about.live && fleet && waiting) history.record(fleet, waiting.total);
  }, [fleet, waiting]);
  const changes = useChanges(fleet, waiting);
  useEffect(() => {
    document.title = `${waiting?.total ? `(${waiting.total}) ` : ""}${about.title} · dralab`;
  }, [waiting]);

  const open = (to: Tab) => (named: Named | null) =>
    go({ view: nameOf(to), chosen: named && { kind: named.kind, namespace: named.namespace, name: named.name }, query: {} });
  const searchFor = (search: string) => go({ view: nameOf("Fleet"), chosen: null, query: { search } });
  return (
    <>
      <header class="top">
        <h1>dralab</h1>
        <span class="quiet"><bdi>{about.title}</bdi></span>
        <Tabs tabs={tabs} tab={tab} onTab={(to) => go({ view: nameOf(to), chosen, query: {} })} waiting={waiting?.total ?? 0} />
        <span class="quiet" role="status">
          {error && data ? "The state shown is old." : data && about.live ? `${live ? "live, " : ""}as of ${new Date(data.asOf).toLocaleTimeString()}` : ""}
        </span>
        {about.live && data && (
          <News
            changes={changes} onOpen={(what) => (typeof what === "string" ? searchFor(what) : open("Story")(what))}
          />
        )}
      </header>
      {error && <Problem error={error} hint={about.live ? "The page goes on asking by itself." : undefined} />}
      {waiting && waiting.notJudged.length > 0 && (
        <p class="notice" role="status">Not judged, because they may not be listed (403): {waiting.notJudged.join(", ")}.</p>
      )}
      <main>
        <div id="view" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {!fleet && !error && <p class="busy empty" role="status">Reading the cluster …</p>}
        {fleet && tab === "Fleet" && <FleetView fleet={fleet} search={query["search"] ?? ""} onSearch={searchFor} onOpen={open("Story")} />}
        {fleet && waiting && tab === "Waiting" && (
          <WaitingView waiting={waiting} fleet={fleet} onNode={searchFor} chosen={chosen} onChoose={open("Waiting")} onStory={open("Story")} />
        )}
        {tab === "Story" && (chosen
          ? <StoryView named={chosen} version={waiting?.version ?? ""} onWaiting={open("Waiting")} onNode={searchFor} />
          : <NoStory onOpen={open("Story")} waiting={waiting?.items ?? []} />)}
        {fleet && tab === "What if" && (
          <CapacityView
            fleet={fleet} waiting={waiting?.items ?? []} version={fleet.data.version}
            asked={query["changes"] ?? ""} onAsked={(changes) => go({ view: nameOf("What if"), chosen, query: { changes } })}
          />
        )}
        {fleet && tab === "Time" && <HistoryView history={history} fleet={fleet} version={history.version} onNode={searchFor} />}
        </div>
      </main>
    </>
  );
}

/** What became different between the looks of this window, the newest first. */
function useChanges(fleet: Fleet | null, waiting: Waiting | null): readonly Change[] {
  const known = useRef<{ fleet: Fleet | null; waiting: Waiting | null; found: Change[] }>({ fleet: null, waiting: null, found: [] });
  return useMemo(() => {
    const last = known.current;
    const news = [
      ...(fleet && waiting && last.waiting && waiting !== last.waiting ? changesOfWaiting(last.waiting, waiting, fleet) : []),
      ...(fleet && last.fleet && fleet !== last.fleet ? changesOfFleet(last.fleet, fleet) : []),
    ];
    known.current = { fleet, waiting, found: news.length ? [...news, ...last.found].slice(0, MOST_CHANGES) : last.found };
    return known.current.found;
  }, [fleet, waiting]);
}

function News({ changes, onOpen }: { changes: readonly Change[]; onOpen: (what: Change["about"]) => void }) {
  const [isOpen, setOpen] = useState(false);
  // The newest of those that were seen.
  const [seen, setSeen] = useState<Change | undefined>();
  const fresh = seen ? changes.indexOf(seen) : changes.length;
  useEffect(() => {
    if (isOpen) setSeen(changes[0]);
  }, [isOpen, changes]);
  return (
    <details
      class="news" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}
      onKeyDown={(event) => event.key === "Escape" && setOpen(false)}
    >
      <summary>Changes{fresh !== 0 && !isOpen && <span class="badge">{fresh < 0 || fresh >= MOST_CHANGES ? `${MOST_CHANGES}+` : fresh}</span>}</summary>
      <div tabIndex={0} role="region" aria-label="What changed since this page was opened">
        {changes.length
          ? (
            <ol>
              {changes.map((each) => (
                <li key={each.when + each.text}>
                  <span class="quiet">{new Date(each.when).toLocaleTimeString()}</span>{" "}
                  <button type="button" class="link" onClick={() => { setOpen(false); onOpen(each.about); }}><bdi>{each.text}</bdi></button>
                </li>
              ))}
            </ol>
          )
          : <p class="quiet">Nothing changed since this page was opened.</p>}
      </div>
    </details>
  );
}

function NoStory({ onOpen, waiting }: { onOpen: (named: Named) => void; waiting: Named[] }) {
  const [pod, setPod] = useState("");
  return (
    <form
      class="empty" onSubmit={(event) => {
        event.preventDefault();
        const [namespace, name] = pod.includes("/") ? pod.split("/", 2) : ["default", pod];
        if (name) onOpen({ kind: "pod", namespace: namespace!, name });
      }}
    >
      <p><strong>How a pod got its devices, or why it has none.</strong> Choose one that waits, one that holds a device of the fleet, or write its name.</p>
      <label>Pod <input value={pod} list="pods" placeholder="namespace/name" onInput={(event) => setPod(event.currentTarget.value)} /></label>{" "}
      <datalist id="pods">{waiting.slice(0, 200).map((each) => <option key={each.namespace + each.name} value={`${each.namespace}/${each.name}`} />)}</datalist>
      <button type="submit" class="main">Show its story</button>
    </form>
  );
}

/** How much wider than high the map is: windows of phones are high. */
function aspect(): number {
  return Math.min(2.2, Math.max(0.8, innerWidth / Math.max(innerHeight - 260, 240)));
}

function Tabs({ tabs, tab, onTab, waiting }: { tabs: readonly Tab[]; tab: Tab; onTab: (tab: Tab) => void; waiting: number }) {
  const key = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    const next = tabs[(tabs.indexOf(tab) + by + tabs.length) % tabs.length]!;
    onTab(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <div role="tablist" aria-label="Views" onKeyDown={key}>
      {tabs.map((name) => (
        <button
          key={name} type="button" role="tab" id={`tab-${name}`} aria-controls="view"
          aria-selected={name === tab} tabIndex={name === tab ? 0 : -1} onClick={() => onTab(name)}
        >
          {name}{name === "Waiting" && waiting > 0 && <span class="badge">{waiting}</span>}
        </button>
      ))}
    </div>
  );
}

const root = document.getElementById("app")!;
beginSession().then(
  () => render(<App />, root),
  (error: unknown) => render(<main class="alone"><Problem error={refusedOf(error)} /></main>, root),
);
