import type { ComponentChildren } from "preact";
import { ask } from "./api";
import { age, Answered, GONE, number, Sheet, UnfitNodes, useAnswer } from "./parts";
import type { ClaimStory, ContainerDevices, EventList, Funnel, Named, Story } from "./types";

interface Props {
  named: Named;
  version: string;
  onWaiting: (named: Named) => void;
  onNode: (name: string) => void;
}

export function StoryView({ named, version, onWaiting, onNode }: Props) {
  const { kind, namespace, name } = named;
  const answer = useAnswer(`${kind} ${namespace}/${name}`, version, () =>
    ask<Story>("story", { kind, namespace, name }));
  return (
    <article class="page story" aria-label="Way to devices">
      <Answered answer={answer} hint={GONE}>
        {(story) => <Told story={story} onWaiting={onWaiting} onNode={onNode} />}
      </Answered>
      {answer?.state === "here" && <Events named={named} version={version} />}
    </article>
  );
}

function Told({ story, onWaiting, onNode }: { story: Story } & Pick<Props, "onWaiting" | "onNode">) {
  const waits = story.claims.some((claim) => !claim.allocated) || !!story.missing;
  return (
    <>
      <header>
        <h2><bdi>{story.kind} {story.namespace}/{story.name}</bdi></h2>
        {waits && <button type="button" onClick={() => onWaiting(story)}>Why it waits</button>}
      </header>
      <p>
        {[story.phase, age(story.since) && `${age(story.since)} old`, ...story.owners].filter(Boolean).join(" · ")}
        {story.node && <> on <button type="button" class="link" onClick={() => onNode(story.node)}><bdi>{story.node}</bdi></button></>}
      </p>
      {story.missing && <p class="problem"><bdi>{story.missing}</bdi></p>}
      {!story.claims.length && !story.missing && <p class="quiet">It has no claims.</p>}
      {story.claims.map((claim) => (
        <Claim key={claim.name} claim={claim} entry={entryOf(story, claim.name)}
          funnels={story.funnels.filter((each) => each.claim === claim.key)} />
      ))}
      <Containers containers={story.containers} />
      {story.candidates > 0 && (
        <p class="quiet">
          {story.candidates === 1 ? "1 node" : `${number(story.candidates)} nodes`} could run it, apart from its devices.
          {story.unfit.map((each) => <> <UnfitNodes unfit={each} onNode={onNode} /></>)}
        </p>
      )}
      {!!story.conditions.length && (
        <>
          <h3>Conditions</h3>
          <Sheet columns={["Type", "Status", "Reason", "Message"]} rows={story.conditions.map((each) => (
            { cells: [each["type"], each["status"], each["reason"], each["message"] && <bdi>{each["message"]}</bdi>] }
          ))} />
        </>
      )}
    </>
  );
}

function entryOf(story: Story, claim: string): string {
  return Object.keys(story.entries).find((entry) => story.entries[entry] === claim) ?? "";
}

function Claim({ claim, entry, funnels }: { claim: ClaimStory; entry: string; funnels: Funnel[] }) {
  return (
    <section class="claim" aria-label={`Claim ${claim.name}`}>
      <h3>Claim <bdi>{claim.name}</bdi>{entry && <span class="quiet"> (in the pod: <bdi>{entry}</bdi>)</span>}</h3>
      {!!claim.reservedFor.length && <p class="quiet">Reserved for <bdi>{claim.reservedFor.join(", ")}</bdi></p>}
      {!!funnels.length && claim.allocated && (
        <p class="quiet">What it could choose from, as the cluster is now and with its own devices free:</p>
      )}
      {funnels.map((each) => <Steps key={each.request} funnel={each} has={claim.devices.filter((device) => device.request === each.request).length} />)}
      {claim.allocated && !claim.devices.length && <p class="quiet">Allocated without devices.</p>}
      {!!claim.devices.length && (
        <Sheet caption="Its devices" columns={["Request", "Device", "Driver and pool", "Why this one"]}
          rows={claim.devices.map((each) => ({ key: `${each.request} ${each.driver} ${each.pool} ${each.device}`, cells: cellsOf(each) }))} />
      )}
    </section>
  );
}

function cellsOf(device: ClaimStory["devices"][number]): ComponentChildren[] {
  const consumed = Object.entries(device.consumed).map(([name, amount]) => `${name}: ${amount}`).join(", ");
  const { why } = device;
  return [
    <bdi>{device.request}</bdi>,
    <>
      <bdi>{device.device}</bdi>
      {device.admin && <span class="quiet"> admin access</span>}
      {consumed && <span class="quiet"> <bdi>{consumed}</bdi></span>}
      {device.status ? <details><summary>status</summary><pre>{JSON.stringify(device.status, null, 1)}</pre></details> : null}
    </>,
    <bdi>{device.driver}/{device.pool}</bdi>,
    <>
      {why ? why.among : <span class="quiet">it is not published any more, or its class is gone</span>}
      {why?.earlier && <>; {why.earlier}</>}
      {!!why?.passed.length && <ul class="passed">{why.passed.map((text) => <li key={text}>passed over: <bdi>{text}</bdi></li>)}</ul>}
      {!!why?.able.length && (
        <p class="quiet"><bdi>{why.able.slice(0, 8).join(", ")}</bdi>{why.able.length > 8 && " …"} would do as well now, but may have been in use when the claim was allocated.</p>
      )}
    </>,
  ];
}

/** What the kubelet reports: ids of CDI have an equals sign, others name driver, pool and device. */
function Containers({ containers }: { containers: ContainerDevices[] }) {
  if (!containers.length) return null;
  return (
    <Sheet
      caption="In its containers, as the kubelet reports" columns={["Container", "Claim and request", "CDI id", "Health"]}
      rows={containers.flatMap((each) => each.devices.map((device) => ({
        key: `${each.container} ${each.entry}/${each.request} ${device.id}`,
        cells: [
          <bdi>{each.container}</bdi>,
          <bdi>{each.entry}{each.request && `/${each.request}`}</bdi>,
          <><code>{device.id}</code>{!device.id.includes("=") && <span class="quiet"> (no CDI id)</span>}</>,
          <span class={device.health === "Unhealthy" ? "bad" : ""}>{device.health}{device.message && <> <bdi>{device.message}</bdi></>}</span>,
        ],
      })))}
    />
  );
}

function Events({ named, version }: { named: Named; version: string }) {
  const { kind, namespace, name } = named;
  const answer = useAnswer(`${kind} ${namespace}/${name}`, version, () =>
    ask<EventList>("events", { kind, namespace, name }));
  return (
    <section aria-label="Events">
      <h3>Events</h3>
      <Answered answer={answer}>{(found) => (
        <>
          {found.why && <p class="problem" role="alert"><bdi>{found.why}</bdi></p>}
          {!found.items.length && !found.why && <p class="quiet">There are none. Servers forget events after an hour; snapshots do not keep them.</p>}
          {!!found.items.length && (
            <Sheet columns={["Reason", "Last seen", "Type", "About", "Message"]} rows={found.items.map((event) => ({
              cells: [
                <bdi>{event.reason}</bdi>, `${age(event.last)}${event.count > 1 ? ` (×${number(event.count)})` : ""}`,
                <span class={event.type === "Warning" ? "bad" : ""}>{event.type}</span>, <bdi>{event.about}</bdi>,
                <><bdi>{event.message}</bdi>{event.from && <span class="quiet"> <bdi>{event.from}</bdi></span>}</>,
              ],
            }))} />
          )}
          {found.total > found.items.length && <p class="quiet">The last {found.items.length} of {number(found.total)}.</p>}
        </>
      )}</Answered>
    </section>
  );
}

function Steps({ funnel, has }: { funnel: Funnel; has: number }) {
  const most = Math.max(1, ...funnel.steps.map((each) => each.devices));
  const wanted = funnel.count === "All" ? "all devices" : `${funnel.count}`;
  return (
    <figure class="funnel">
      <figcaption>Request <bdi>{funnel.request}</bdi> wants {wanted} of class <bdi>{funnel.class}</bdi></figcaption>
      <ol>
        {funnel.steps.map((step, at) => (
          <li key={at}>
            <span class="track" aria-hidden="true"><span style={{ width: `${(100 * step.devices) / most}%` }} /></span>
            <span class="count">{number(step.devices)}</span>
            <span>{said(step.what)} {step.text && <code>{step.text}</code>}</span>
          </li>
        ))}
        {has > 0 && (
          <li>
            <span class="track" aria-hidden="true"><span class="has" style={{ width: `${(100 * has) / most}%` }} /></span>
            <span class="count">{number(has)}</span>
            <span>{has === 1 ? "was chosen" : "were chosen"}</span>
          </li>
        )}
      </ol>
      {!!Object.keys(funnel.blocked).length && (
        <p class="quiet">
          Not free: {Object.entries(funnel.blocked).map(([why, count]) => `${number(count)} ${BLOCKED[why] ?? why}`).join(", ")}.
        </p>
      )}
      {funnel.where && (
        <p class="quiet">At most {number(funnel.onOneNode)} free on one node, such as <bdi>{funnel.where}</bdi>.</p>
      )}
    </figure>
  );
}

const BLOCKED: Record<string, string> = {
  "in-use": "in use",
  taint: "tainted",
  counters: "blocked by counters",
  capacity: "without enough capacity left",
  groups: "blocked by their group",
};

function said(what: Funnel["steps"][number]["what"]): string {
  switch (what) {
    case "devices":
      return "devices on the nodes that may run it";
    case "class":
      return "of the class:";
    case "selector":
      return "selected by";
    case "free":
      return "could serve the request now";
  }
}
