// Small parts that several views use.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused } from "./api";
import type { Box } from "./fleet";
import type { Unfit } from "./types";

/** The picture of a state in lists, the same as on the map. */
export function StatePicture(
  { state, paint }: { state: string; paint: (context: CanvasRenderingContext2D, state: string, box: Box) => void },
) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const dark = useDark();
  useEffect(() => {
    const element = canvas.current!, context = element.getContext("2d")!;
    const style = getComputedStyle(element);
    context.setTransform(2.4, 0, 0, 2.4, 0, 0);
    context.fillStyle = style.getPropertyValue(`--state-${state}`).trim();
    context.fillRect(0, 0, 10, 10);
    context.strokeStyle = style.getPropertyValue(`--mark-${state}`).trim();
    context.lineWidth = 0.9;
    context.beginPath();
    paint(context, state, { x: 0, y: 0, w: 10, h: 10 });
    context.stroke();
  }, [state, dark]);
  return <canvas class="state" width={24} height={24} ref={canvas} aria-hidden="true" />;
}

export function useDark(): boolean {
  const query = matchMedia("(prefers-color-scheme: dark)");
  const [dark, setDark] = useState(query.matches);
  useEffect(() => {
    const changed = () => setDark(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return dark;
}

export type Answer<T> = { state: "asked" } | { state: "here"; value: T } | { state: "failed"; error: Refused };

/**
 * The answer to a question; it is forgotten where the question is empty. Of another version of the
 * cluster the same is asked anew, and the last answer stays until the next one is here.
 */
export function useAnswer<T>(question: string, version: string, asks: () => Promise<T>): Answer<T> | null {
  const [answer, setAnswer] = useState<{ question: string; answer: Answer<T> } | null>(null);
  useEffect(() => {
    if (!question) return;
    let wanted = true;
    const told = (found: Answer<T>) => wanted && setAnswer({ question, answer: found });
    asks().then(
      (value) => told({ state: "here", value }),
      (error: unknown) => told({ state: "failed", error: refusedOf(error) }),
    );
    return () => {
      wanted = false;
    };
  }, [question, version]);
  if (!question) return null;
  return answer?.question === question ? answer.answer : { state: "asked" };
}

export function refusedOf(error: unknown): Refused {
  return error instanceof Refused ? error : new Refused(0, String(error));
}

/** An answer that is here, or what keeps it away. */
export function Answered<T>(
  { answer, children, hint }: { answer: Answer<T> | null; children: (value: T) => ComponentChildren; hint?: string },
) {
  if (!answer) return null;
  if (answer.state === "asked") return <p class="busy" role="status">Computing …</p>;
  if (answer.state === "failed") return <Problem error={answer.error} hint={hint} />;
  return <>{children(answer.value)}</>;
}

/** What went wrong, and what to do about it. */
export function Problem({ error, hint }: { error: Refused; hint?: string | undefined }) {
  return (
    <div class="problem" role="alert">
      {error.status ? `${error.status}: ` : ""}<bdi>{error.message}</bdi>
      {hint && <p class="quiet">{hint}</p>}
    </div>
  );
}

export const GONE = "If it was there before, it has ended or was deleted since.";

export function number(value: number): string {
  return value.toLocaleString("en-US");
}

/** How long ago a time was, as kubectl prints it. */
export function age(since: string, now: number = Date.now()): string {
  const then = Date.parse(since);
  if (Number.isNaN(then)) return "";
  const seconds = Math.max(0, Math.floor((now - then) / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}

const MOST_NODES = 5;

/** How many nodes break a rule, and which. */
export function UnfitNodes({ unfit, onNode }: { unfit: Unfit; onNode: (name: string) => void }) {
  return (
    <>
      {number(unfit.nodes)} <bdi>{unfit.reason}</bdi>:
      {unfit.names.slice(0, MOST_NODES).map((name) => (
        <> <button type="button" class="link" onClick={() => onNode(name)}><bdi>{name}</bdi></button></>
      ))}
      {unfit.nodes > MOST_NODES && ` and ${number(unfit.nodes - MOST_NODES)} more`}
    </>
  );
}

export interface Row {
  cells: ComponentChildren[];
  key?: string;
  class?: string;
  current?: boolean;
}

/** A table; on a phone the cells of a row stand below each other, with the names of their columns. */
export function Sheet(
  { columns, rows, caption }: { columns: readonly string[]; rows: readonly Row[]; caption?: string },
) {
  return (
    <table class="rows">
      {caption && <caption>{caption}</caption>}
      <thead><tr>{columns.map((each) => <th key={each} scope="col">{each}</th>)}</tr></thead>
      <tbody>
        {rows.map((row, at) => (
          <tr key={row.key ?? at} class={row.class} aria-current={row.current ? "step" : undefined}>
            <th scope="row">{row.cells[0]}</th>
            {row.cells.slice(1).map((cell, column) => <td key={column} data-of={columns[column + 1]}>{cell && <div>{cell}</div>}</td>)}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** What is typed into a shell. */
export function Command({ text }: { text: string }) {
  return <div class="command"><code>{text}</code> <Copy text={text} /></div>;
}

export function Copy({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  const copy = () => {
    void navigator.clipboard?.writeText(text).then(() => {
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    });
  };
  return <button type="button" onClick={copy}>{done ? "Copied" : "Copy"}</button>;
}
