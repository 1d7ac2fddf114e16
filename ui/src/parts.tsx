// Small parts that several views use.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { Refused } from "./api";
import type { Box } from "./fleet";

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

/** The answer to a question; it is asked anew when `key` changes, and forgotten where it is empty. */
export function useAnswer<T>(key: string, question: () => Promise<T>): Answer<T> | null {
  const [answer, setAnswer] = useState<{ key: string; answer: Answer<T> } | null>(null);
  useEffect(() => {
    if (!key) return;
    let wanted = true;
    const told = (found: Answer<T>) => wanted && setAnswer({ key, answer: found });
    question().then(
      (value) => told({ state: "here", value }),
      (error: unknown) => told({ state: "failed", error: refusedOf(error) }),
    );
    return () => {
      wanted = false;
    };
  }, [key]);
  if (!key) return null;
  return answer?.key === key ? answer.answer : { state: "asked" };
}

export function refusedOf(error: unknown): Refused {
  return error instanceof Refused ? error : new Refused(0, String(error));
}

/** An answer that is here, or what keeps it away. */
export function Answered<T>(
  { answer, children }: { answer: Answer<T> | null; children: (value: T) => ComponentChildren },
) {
  if (!answer) return null;
  if (answer.state === "asked") return <p class="quiet" role="status">Computing …</p>;
  if (answer.state === "failed") return <Problem error={answer.error} />;
  return <>{children(answer.value)}</>;
}

export function Problem({ error }: { error: Refused }) {
  return <p class="problem" role="alert">{error.status ? `${error.status}: ` : ""}<bdi>{error.message}</bdi></p>;
}

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
