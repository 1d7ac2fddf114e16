// What is shown of a cluster, kept up to date by the server's stream; without one, by asking.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, follow, type Refused } from "./api";
import { refusedOf } from "./parts";
import type { About, FleetData, Waiting } from "./types";

const FIRST_PAUSE = 2_000;
const LONGEST_PAUSE = 60_000;
// A page takes at most a part of its time to read what is new, however fast a cluster changes.
const REST = 2;

export interface Shown {
  fleet: FleetData | null;
  waiting: Waiting | null;
  error: Refused | null;
  /** Whether the server tells of changes as they come. */
  live: boolean;
}

export function useCluster(about: About, onRefused: (error: Refused) => void): Shown {
  const [shown, setShown] = useState<Shown>({ fleet: null, waiting: null, error: null, live: false });
  const versions = useRef({ fleet: "", waiting: "" });

  useEffect(() => {
    const over = new AbortController();
    const change = (news: Partial<Shown>) => {
      if (!over.signal.aborted) setShown((before) => ({ ...before, ...news }));
    };
    let looking: Promise<void> | null = null, again = false;
    const look = async () => {
      const began = performance.now();
      try {
        const fleet = await ask<FleetData>("fleet", { have: versions.current.fleet });
        if (!fleet.same) {
          versions.current.fleet = fleet.version;
          change({ fleet });
        }
        const waiting = await ask<Waiting>("waiting", { have: versions.current.waiting });
        if (!waiting.same) {
          versions.current.waiting = waiting.version;
          change({ waiting });
        }
        change({ error: null });
      } catch (failure) {
        const error = refusedOf(failure);
        if (error.status === 401) onRefused(error);
        change({ error });
      }
      await pause(REST * (performance.now() - began), over.signal);
    };
    // Whatever comes while it looks is one more look.
    const lookSoon = () => {
      again = true;
      looking ??= (async () => {
        while (again && !over.signal.aborted) {
          again = false;
          await look();
        }
        looking = null;
      })();
    };
    const stay = async () => {
      for (let wait = FIRST_PAUSE; !over.signal.aborted;) {
        lookSoon();
        if (!about.live) return;
        await visible(over.signal);
        const hidden = whenHidden(over.signal);
        try {
          await follow(() => {
            wait = FIRST_PAUSE;
            change({ live: true });
            lookSoon();
          }, hidden.signal);
        } catch {
          lookSoon(); // which tells what is wrong, if anything is
        }
        hidden.done();
        change({ live: false });
        if (hidden.signal.aborted) continue;
        await pause(wait * (0.75 + Math.random() / 2), over.signal);
        wait = Math.min(wait * 2, LONGEST_PAUSE);
      }
    };
    void stay();
    return () => over.abort();
  }, []);
  return shown;
}

function pause(time: number, over: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, time);
    over.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    }, { once: true });
  });
}

/** Wait until the window is seen; one that is hidden asks for nothing. */
function visible(over: AbortSignal): Promise<void> {
  if (!document.hidden) return Promise.resolve();
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !over.aborted) return;
      document.removeEventListener("visibilitychange", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    over.addEventListener("abort", look, { once: true });
  });
}

function whenHidden(over: AbortSignal): { signal: AbortSignal; done: () => void } {
  const made = new AbortController();
  const stop = () => (document.hidden || over.aborted) && made.abort();
  document.addEventListener("visibilitychange", stop);
  over.addEventListener("abort", stop, { once: true });
  return { signal: made.signal, done: () => document.removeEventListener("visibilitychange", stop) };
}
