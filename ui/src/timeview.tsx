// Time: a slider, play, curves and lanes, for the results of a simulation or for what the window saw.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ask } from "./api";
import type { Fleet } from "./fleet";
import { History } from "./history";
import { Map } from "./map";
import { Answered, number, Sheet, useAnswer, useDark } from "./parts";
import { PLAIN, type Scene } from "./scene";
import { type LaneKind, moved, TimeChart, zoomed } from "./timechart";
import { curveOf, dashOf, timePalette, type Window } from "./timedraw";
import { clock, type Timeline, timelineOf } from "./timeline";
import type { Run } from "./types";

const SPEEDS = [1, 10, 100, 1_000, 10_000];
const MOST_LISTED = 100;
// At the speed that is offered first the whole takes at most about so many seconds.
const PLAYED = 120;
// While it plays, the table is written anew a few times a second.
const TABLE_EVERY = 250;
const LOOK_EVERY = 2_000;

export function RunView() {
  const answer = useAnswer("run", "", () => ask<Run>("run"));
  return <Answered answer={answer}>{(run) => <ShownRun run={run} />}</Answered>;
}

function ShownRun({ run }: { run: Run }) {
  const timeline = useMemo(() => timelineOf(run), [run]);
  const { tasks, samples, summary } = run;
  return (
    <section class="page time" aria-label="Time">
      <header>
        <h2><bdi>{summary.name} · {summary.scheduler} · seed {summary.seed}</bdi></h2>
        {!summary.complete && <span class="problem">The run was stopped before its end.</span>}
      </header>
      {run.problems.map((text) => <p class="problem" role="alert" key={text}><bdi>{text}</bdi></p>)}
      <Board timeline={timeline} states={[]} what="Task" label={clock} />
      {tasks.of > tasks.id.length && <p class="quiet">Of {number(tasks.of)} tasks, the first {number(tasks.id.length)} are shown.</p>}
      {samples.of > timeline.times.length && <p class="quiet">Of {number(samples.of)} samples, {number(timeline.times.length)} are shown.</p>}
      {summary.notes.map((text) => <p class="quiet" key={text}><bdi>{text}</bdi></p>)}
      <details>
        <summary>Numbers of the run</summary>
        <Sheet columns={["Number", "Value", "Meaning"]} rows={Object.entries(summary.metrics).map(([name, amount]) => (
          { cells: [name, typeof amount === "number" ? `${Number(amount.toPrecision(6))}` : String(amount ?? ""), run.meanings[name]] }
        ))} />
      </details>
    </section>
  );
}

/** What this window has seen of a cluster that changes. */
export function HistoryView({ history, fleet, version, onNode }: { history: History; fleet: Fleet; version: number; onNode: (name: string) => void }) {
  const [tick, setTick] = useState(0);
  const [at, setAt] = useState<number | null>(null);
  useEffect(() => {
    const timer = setInterval(() => setTick((before) => before + 1), LOOK_EVERY);
    return () => clearInterval(timer);
  }, []);
  const timeline = useMemo(() => history.timeline(), [version, tick]);
  const scene = useMemo<Scene>(
    () => (at === null ? PLAIN : { ...PLAIN, states: history.statesAt(at, fleet) }), [at, fleet, version],
  );
  return (
    <section class="what-if" aria-label="Time">
      {!!fleet.nodes.length && (
        <section class="fleet above" aria-label="The fleet at that time">
          <Map fleet={fleet} scene={scene} label="The fleet at the chosen time." onChoose={(node) => node >= 0 && onNode(fleet.nodeName(node))} />
        </section>
      )}
      <div class="page time">
        <h2 class="unseen">Time</h2>
        <p class="quiet">What this window has seen since {daytime(timeline.begin)}; nothing is kept when you close it.</p>
        <Board timeline={timeline} states={fleet.data.states} what="Held by" label={daytime} onTime={setAt} live />
      </div>
    </section>
  );
}

interface BoardProps {
  timeline: Timeline;
  states: readonly string[];
  /** What a span is, as the title of its column. */
  what: string;
  label: (time: number) => string;
  /** The timeline grows, and without a chosen time its end is shown. */
  live?: boolean;
  /** Told of the chosen time; null is the end of one that grows. */
  onTime?: (time: number | null) => void;
}

function Board({ timeline, states, what, label, live = false, onTime }: BoardProps) {
  const { begin, end } = timeline;
  const [chosen, setChosen] = useState<number | null>(live ? null : (begin + end) / 2);
  const [speed, setSpeed] = useState(0);
  const [rate, setRate] = useState(live ? 10 : SPEEDS.find((each) => (end - begin) / each <= PLAYED) ?? SPEEDS.at(-1)!);
  const [view, setView] = useState<Window | null>(null);
  const [kind, setKind] = useState<LaneKind>("devices");
  const now = Math.min(Math.max(chosen ?? end, begin), end);
  const hasNodes = timeline.byNode !== null;
  const shown = useCalm(now, speed > 0);
  const last = useRef(end);
  last.current = end;
  useEffect(() => onTime?.(chosen === null ? null : shown), [shown, chosen === null]);
  useEffect(() => {
    if (!speed) return;
    let before = performance.now(), frame = 0;
    const step = (at: number) => {
      const passed = ((at - before) / 1000) * speed;
      before = at;
      setChosen((time) => {
        const next = (time ?? last.current) + passed;
        if (next < last.current) return next;
        setSpeed(0);
        return live ? null : last.current;
      });
      frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [speed]);
  const window = view ?? { from: begin, to: end };
  // What plays stays in sight.
  useEffect(() => {
    if (view && speed && (now < view.from || now > view.to)) setView(moved(timeline, view, now - view.from));
  }, [now]);
  const choose = (time: number) => setChosen(Math.max(begin, Math.min(end, time)));
  const zoom = (factor: number) => setView(zoomed(timeline, window, Math.min(Math.max(now, window.from), window.to), factor));
  const at = timeline.sampleAt(shown);
  return (
    <>
      <div class="bar">
        <button type="button" class="main" onClick={() => {
          if (!speed && now >= end) setChosen(begin);
          setSpeed(speed ? 0 : rate);
        }}>{speed ? "Stop" : "Play"}</button>
        <label>
          Speed{" "}
          <select value={rate} onChange={(event) => {
            const wanted = Number(event.currentTarget.value);
            setRate(wanted);
            if (speed) setSpeed(wanted);
          }}>
            {SPEEDS.map((each) => <option key={each} value={each}>{number(each)}×</option>)}
          </select>
        </label>
        <label class="wide">
          Time <input type="range" min={begin} max={end} step="any" value={now} aria-valuetext={label(now)} onInput={(event) => choose(Number(event.currentTarget.value))} />
        </label>
        <output class="count">{label(now)} of {label(end)}</output>
        {live && <button type="button" aria-pressed={chosen === null} onClick={() => { setSpeed(0); setChosen(null); }}>Now</button>}
      </div>
      <div class="bar">
        <ul class="legend" aria-label={`Curves, with their values at ${label(shown)}`}>
          {timeline.strips.map((strip, row) => strip.lines.map((line, each) => (
            <li key={strip.title + line.title}>
              <LinePicture at={curveOf(timeline, row, each)} /> {line.title}{" "}
              <strong>{at < 0 ? "" : amount(line.values[at]!)}{strip.unit && " %"}</strong>
            </li>
          )))}
        </ul>
        {hasNodes && (
          <label>
            Lanes{" "}
            <select value={kind} onChange={(event) => setKind(event.currentTarget.value as LaneKind)}>
              <option value="devices">devices</option>
              <option value="nodes">nodes</option>
            </select>
          </label>
        )}
        <span class="group">
          <button type="button" aria-label="Zoom in on time" onClick={() => zoom(0.5)}>+</button>
          <button type="button" aria-label="Zoom out of time" onClick={() => zoom(2)}>−</button>
          <button type="button" aria-label="Show all of the time" onClick={() => setView(null)}>All</button>
        </span>
      </div>
      <TimeChart
        timeline={timeline} states={states} lanes={hasNodes ? kind : "devices"} window={window} now={now} label={label}
        onNow={choose} onWindow={setView}
      />
      <Running timeline={timeline} time={shown} what={what} label={label} />
    </>
  );
}

/** What runs at a time; it is written again only for another time. */
function Running({ timeline, time, what, label }: { timeline: Timeline; time: number; what: string; label: (time: number) => string }): ComponentChildren {
  return useMemo(() => {
    const { total, spans } = timeline.at(time, MOST_LISTED);
    const lanes = lanesOfSpans(timeline, new Set(spans));
    return (
      <>
        <h3>At {label(time)}: {number(total)}</h3>
        {total === 0 ? <p class="quiet">Nothing runs at this time.</p> : (
          <Sheet columns={[what, "Since", "Until", "State", "On"]} rows={spans.map((span) => {
            const on = lanes.get(span) ?? [];
            return {
              key: String(span),
              cells: [
                <bdi>{timeline.names[span]}</bdi>, label(timeline.starts[span]!),
                timeline.ends[span]! < Infinity ? label(timeline.ends[span]!) : "", timeline.notes[span],
                <><bdi>{on.slice(0, 8).join(", ")}</bdi>{on.length > 8 && ` and ${on.length - 8} more`}</>,
              ],
            };
          })} />
        )}
        {total > MOST_LISTED && <p class="quiet">The first {MOST_LISTED} of {number(total)}.</p>}
      </>
    );
  }, [timeline, time]);
}

function lanesOfSpans({ lanes }: Timeline, wanted: ReadonlySet<number>): ReadonlyMap<number, string[]> {
  const found = new globalThis.Map<number, string[]>();
  for (let lane = 0; wanted.size && lane < lanes.names.length; lane++) {
    for (let at = lanes.first[lane]!; at < lanes.first[lane + 1]!; at++) {
      const span = lanes.items[at]!;
      if (!wanted.has(span)) continue;
      const known = found.get(span);
      if (known) known.push(lanes.names[lane]!);
      else found.set(span, [lanes.names[lane]!]);
    }
  }
  return found;
}

/** A value that changes at most a few times a second while it moves. */
function useCalm(value: number, moves: boolean): number {
  const [calm, setCalm] = useState(value);
  const newest = useRef(value);
  newest.current = value;
  useEffect(() => {
    if (!moves) return;
    const timer = setInterval(() => setCalm(newest.current), TABLE_EVERY);
    return () => clearInterval(timer);
  }, [moves]);
  useEffect(() => {
    if (!moves) setCalm(value);
  }, [value, moves]);
  return moves ? calm : value;
}

function amount(value: number): string {
  return Number(value.toPrecision(3)).toLocaleString("en-US");
}

/** A time of a cluster, as the clock on the wall has it. */
function daytime(seconds: number): string {
  return new Date(seconds * 1000).toLocaleTimeString();
}

function LinePicture({ at }: { at: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const dark = useDark();
  useEffect(() => {
    const element = canvas.current!, context = element.getContext("2d")!;
    const { curves } = timePalette(element, []);
    context.clearRect(0, 0, 48, 16);
    context.setLineDash(dashOf(at).map((each) => each * 1.5));
    context.strokeStyle = curves[at % curves.length]!;
    context.lineWidth = 3;
    context.beginPath();
    context.moveTo(0, 8);
    context.lineTo(48, 8);
    context.stroke();
  }, [at, dark]);
  return <canvas ref={canvas} class="line" width={48} height={16} aria-hidden="true" />;
}
