import { ask } from "./api";
import { number } from "./fleetview";
import { age, Answered, useAnswer } from "./parts";
import type { ClaimStory, Funnel, Named, Story } from "./types";

interface Props {
  named: Named;
  version: string;
  onWaiting: (named: Named) => void;
  onNode: (name: string) => void;
}

export function StoryView({ named, version, onWaiting, onNode }: Props) {
  const { kind, namespace, name } = named;
  const answer = useAnswer(`${version} ${kind} ${namespace}/${name}`, () =>
    ask<Story>("story", { kind, namespace, name }));
  return (
    <article class="page story" aria-label="Way to devices">
      <Answered answer={answer}>
        {(story) => <Told story={story} onWaiting={onWaiting} onNode={onNode} />}
      </Answered>
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
      {story.claims.map((claim) => (
        <Claim key={claim.name} claim={claim} entry={entryOf(story, claim.name)}
          funnels={story.funnels.filter((each) => each.claim.endsWith(claim.name))} />
      ))}
      {story.candidates > 0 && (
        <p class="quiet">
          {number(story.candidates)} nodes may run it whatever their devices.
          {story.unfit.map((each) => ` ${number(each.nodes)} ${each.reason}.`)}
        </p>
      )}
      {!!story.conditions.length && (
        <>
          <h3>Conditions</h3>
          <table>
            <thead><tr><th scope="col">Type</th><th scope="col">Status</th><th scope="col">Reason</th><th scope="col">Message</th></tr></thead>
            <tbody>
              {story.conditions.map((each) => (
                <tr key={each["type"]}>
                  <th scope="row">{each["type"]}</th><td>{each["status"]}</td><td>{each["reason"]}</td><td><bdi>{each["message"]}</bdi></td>
                </tr>
              ))}
            </tbody>
          </table>
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
      {claim.allocated && (
        <table>
          <thead><tr><th scope="col">Request</th><th scope="col">Device</th><th scope="col">Pool</th><th scope="col">Driver</th><th scope="col">Details</th></tr></thead>
          <tbody>
            {claim.devices.map((each) => (
              <tr key={`${each.request} ${each.driver} ${each.pool} ${each.device}`}>
                <th scope="row"><bdi>{each.request}</bdi></th><td><bdi>{each.device}</bdi></td>
                <td><bdi>{each.pool}</bdi></td><td><bdi>{each.driver}</bdi></td>
                <td>
                  {each.admin && "admin access "}
                  {Object.entries(each.consumed).map(([name, amount]) => `${name}: ${amount}`).join(", ")}
                  {each.status ? <details><summary>status</summary><pre>{JSON.stringify(each.status, null, 1)}</pre></details> : null}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {claim.allocated && !claim.devices.length && <p class="quiet">Allocated without devices.</p>}
      {funnels.map((each) => <Steps key={each.request} funnel={each} />)}
    </section>
  );
}

function Steps({ funnel }: { funnel: Funnel }) {
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
