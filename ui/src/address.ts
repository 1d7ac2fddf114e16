// The address of a view, behind `#`, so that it reloads and can be sent: #/waiting/pod/ml/train,
// #/fleet?search=node-7, #/what-if?changes=[...].

import { useCallback, useEffect, useState } from "preact/hooks";
import type { Named } from "./types";

export interface Place {
  view: string;
  chosen: Named | null;
  query: Record<string, string>;
}

export function usePlace(): [Place, (place: Place) => void] {
  const [place, setPlace] = useState(() => read(location.hash));
  useEffect(() => {
    const moved = () => setPlace(read(location.hash));
    addEventListener("popstate", moved);
    moved(); // it may have changed since the first drawing
    return () => removeEventListener("popstate", moved);
  }, []);
  const go = useCallback((to: Place) => {
    const address = written(to);
    // Typing into a search is no step to go back to.
    const isStep = address.split("?")[0] !== location.hash.split("?")[0];
    if (address !== location.hash) history[isStep ? "pushState" : "replaceState"](null, "", address);
    setPlace(to);
  }, []);
  return [place, go];
}

function read(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [view = "", kind, namespace, name] = path.split("/").map(decoded);
  const chosen = kind && namespace !== undefined && name ? { kind, namespace, name } : null;
  return { view, chosen, query: Object.fromEntries(new URLSearchParams(query)) };
}

function written({ view, chosen, query }: Place): string {
  const parts = chosen ? [view, chosen.kind, chosen.namespace, chosen.name] : [view];
  const more = new URLSearchParams(Object.entries(query).filter(([, value]) => value)).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${more && `?${more}`}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
