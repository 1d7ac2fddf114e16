import { useEffect, useRef, useState } from "preact/hooks";
import { ask } from "./api";
import { Answered, number, useAnswer, useDark } from "./parts";
import type { Run } from "./types";

const CURVES: [string, string][] = [["waiting", "waiting tasks"], ["running", "running tasks"], ["gpu", "GPUs in use"], ["cpu", "CPU or machines in use"], ["fragmented", "fragmented GPUs"]];
const COLOURS = ["--curve-0", "--curve-1", "--curve-2", "--curve-3", "--curve-4"];
const DASHES = [[], [6, 3], [2, 2], [8, 2, 2, 2], [1, 3]];
const SPEEDS = [1, 10, 100, 1_000, 10_000];
const CURVE_HEIGHT = 130;
const MOST_LISTED = 100;

export function TimeView() {
  const answer = useAnswer("run", () => ask<Run>("run"));
  return <Answered answer={answer}>{(run) => <Shown run={run} />}</Answered>;
}

function Shown({ run }: { run: Run }) {
  const end = Math.max(run.summary.simulated_until, 1);
  const [now, setNow] = useState(end / 2);
  const [speed, setSpeed] = useState(0);
  const [rate, setRate] = useState(1_000);
  useEffect(() => {
    if (!speed) return;
    let before = performance.now(), frame = 0;
    const step = (at: number) => {
      const passed = ((at - before) / 1000) * speed;
      before = at;
      setNow((time) => Math.min(end, time + passed));
      frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
  }, [speed]);
  const curves = CURVES.filter(([name]) => {
    const column = run.samples.columns.indexOf(name);
    return column >= 0 && run.samples.rows.some((row) => row[column]);
  });
  const { tasks } = run;
  const runs = tasks.id.map((_, at) => at).filter((at) => isAt(run, at, now));
  const sample = [...run.samples.rows].reverse().find((row) => row[0]! <= now);
  const value = (name: string) => sample?.[run.samples.columns.indexOf(name)];
  return (
    <section class="page time" aria-label="Time">
      <header>
        <h2><bdi>{run.summary.name} · {run.summary.scheduler} · seed {run.summary.seed}</bdi></h2>
        {!run.summary.complete && <span class="problem">The run was stopped before its end.</span>}
      </header>
      {run.problems.map((text) => <p class="problem" role="alert" key={text}><bdi>{text}</bdi></p>)}
      <div class="bar">
        <button type="button" class="main" onClick={() => {
          if (!speed && now >= end) setNow(0);
          setSpeed(speed ? 0 : rate);
        }}>{speed ? "Stop" : "Play"}</button>
        <label>
          Speed{" "}
          <select value={rate} onChange={(event) => {
            const chosen = Number(event.currentTarget.value);
            setRate(chosen);
            if (speed) setSpeed(chosen);
          }}>
            {SPEEDS.map((each) => <option key={each} value={each}>{number(each)}×</option>)}
          </select>
        </label>
        <label class="wide">
          Time <input type="range" min={0} max={end} step="any" value={now} aria-valuetext={clock(now)} onInput={(event) => setNow(Number(event.currentTarget.value))} />
        </label>
        <output>{clock(now)} of {clock(end)}</output>
      </div>
      <p role="status">
        {number(value("waiting") ?? 0)} waiting, {number(value("running") ?? 0)} running
        {value("gpu") ? `, ${number(value("gpu")! / 1000)} GPUs in use` : ""}
      </p>
      <ul class="legend">
        {curves.map(([name, title], at) => <li key={name}><Line at={at} /> {title}</li>)}
      </ul>
      <Chart run={run} curves={curves.map(([name]) => name)} end={end} now={now} onNow={setNow} />
      <h3>Running at {clock(now)}</h3>
      <table>
        <thead><tr><th scope="col">Task</th><th scope="col">Started</th><th scope="col">Ends</th><th scope="col">On</th></tr></thead>
        <tbody>
          {runs.slice(0, MOST_LISTED).map((at) => (
            <tr key={at}>
              <th scope="row"><bdi>{tasks.id[at]}</bdi></th>
              <td>{clock(tasks.started[at]!)}</td>
              <td>{tasks.ended[at] === null ? "" : clock(tasks.ended[at]!)} {tasks.state[at]}</td>
              <td><bdi>{tasks.places[at]!.slice(0, 8).map((lane) => run.lanes[lane] ?? "…").join(", ")}</bdi>{tasks.places[at]!.length > 8 && ` and ${tasks.places[at]!.length - 8} more`}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {runs.length > MOST_LISTED && <p class="quiet">The first {MOST_LISTED} of {number(runs.length)}.</p>}
      {tasks.of > tasks.id.length && <p class="quiet">Of {number(tasks.of)} tasks, the first {number(tasks.id.length)} are shown.</p>}
      <details>
        <summary>Numbers of the run</summary>
        <table>
          <tbody>
            {Object.entries(run.summary.metrics).map(([name, amount]) => (
              <tr key={name}><th scope="row">{name}</th><td>{typeof amount === "number" ? Number(amount.toPrecision(6)) : String(amount ?? "")}</td></tr>
            ))}
          </tbody>
        </table>
      </details>
    </section>
  );
}

function isAt(run: Run, task: number, now: number): boolean {
  const started = run.tasks.started[task], ended = run.tasks.ended[task];
  return started !== null && started !== undefined && started <= now && (ended === null || ended === undefined || ended > now);
}

/** A time of the simulation as days and hours. */
export function clock(seconds: number): string {
  const whole = Math.floor(seconds), two = (value: number) => String(value).padStart(2, "0");
  const days = Math.floor(whole / 86_400);
  return `${days ? `${days}d ` : ""}${two(Math.floor(whole / 3600) % 24)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}

function Line({ at }: { at: number }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const dark = useDark();
  useEffect(() => {
    const context = canvas.current!.getContext("2d")!;
    context.clearRect(0, 0, 48, 16);
    context.setLineDash(DASHES[at]!.map((each) => each * 1.5));
    context.strokeStyle = getComputedStyle(canvas.current!).getPropertyValue(COLOURS[at]!);
    context.lineWidth = 3;
    context.beginPath();
    context.moveTo(0, 8);
    context.lineTo(48, 8);
    context.stroke();
  }, [dark]);
  return <canvas ref={canvas} class="line" width={48} height={16} aria-hidden="true" />;
}

interface ChartProps {
  run: Run;
  curves: string[];
  end: number;
  now: number;
  onNow: (time: number) => void;
}

function Chart({ run, curves, end, now, onNow }: ChartProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const dark = useDark();
  const lanes = run.lanes.length;
  const row = lanes ? Math.max(2, Math.min(14, 420 / lanes)) : 0;
  const height = CURVE_HEIGHT + 10 + Math.min(lanes * row, 700);
  useEffect(() => {
    const resized = new ResizeObserver(() => setWidth(canvas.current!.clientWidth));
    resized.observe(canvas.current!);
    return () => resized.disconnect();
  }, []);
  useEffect(() => {
    const element = canvas.current!;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    element.width = width * ratio;
    element.height = height * ratio;
    const context = element.getContext("2d")!, style = getComputedStyle(element);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    context.scale(ratio, ratio);
    const x = (time: number) => (time / end) * width;
    curves.forEach((name, number) => {
      const column = run.samples.columns.indexOf(name);
      const most = Math.max(1e-9, ...run.samples.rows.map((each) => each[column]!));
      context.strokeStyle = colour(COLOURS[number]!);
      context.setLineDash(DASHES[number]!);
      context.lineWidth = 1.5;
      context.beginPath();
      let last = CURVE_HEIGHT;
      run.samples.rows.forEach((each, at) => {
        const y = CURVE_HEIGHT - 2 - (each[column]! / most) * (CURVE_HEIGHT - 8);
        if (at) context.lineTo(x(each[0]!), last);
        context[at ? "lineTo" : "moveTo"](x(each[0]!), y);
        last = y;
      });
      context.lineTo(width, last);
      context.stroke();
    });
    context.setLineDash([]);
    context.fillStyle = colour("--line");
    context.fillRect(0, CURVE_HEIGHT, width, 1);
    const { tasks } = run;
    tasks.id.forEach((_, at) => {
      const started = tasks.started[at];
      if (started === null || started === undefined) return;
      const from = x(started), to = x(tasks.ended[at] ?? end);
      context.fillStyle = colour(at % 2 ? "--curve-1" : "--curve-0");
      for (const lane of tasks.places[at]!) {
        const y = CURVE_HEIGHT + 8 + lane * row;
        if (y < height) context.fillRect(from, y, Math.max(to - from - 0.5, 0.5), Math.max(row - 1, 1));
      }
    });
    if (row >= 11) {
      context.font = "10px system-ui, sans-serif";
      run.lanes.forEach((name, lane) => {
        const y = CURVE_HEIGHT + 8 + lane * row + row - 3;
        context.fillStyle = colour("--paper");
        context.globalAlpha = 0.75;
        context.fillRect(0, y - 9, context.measureText(name).width + 4, 11);
        context.globalAlpha = 1;
        context.fillStyle = colour("--ink");
        context.fillText(name, 2, y);
      });
    }
  }, [run, width, dark, curves.join()]);
  const at = (event: PointerEvent) => onNow(Math.max(0, Math.min(end, (event.offsetX / width) * end)));
  return (
    <div class="chart">
      <canvas
        ref={canvas} class="curve" style={{ height: `${height}px` }} role="img"
        aria-label={`Curves of ${curves.join(", ")} and ${number(lanes)} lanes of tasks over ${clock(end)}; the table below lists what runs at the chosen time`}
        onPointerDown={at} onPointerMove={(event) => event.buttons === 1 && at(event)}
      />
      <span class="now" style={{ left: `${(100 * now) / end}%` }} aria-hidden="true" />
    </div>
  );
}
