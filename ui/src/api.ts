// Questions to the server. The token stays in this window's session storage and in the header
// Authorization: never in an address, never in a cookie.

const KEY = "dralab.token";
const PATIENCE = 120_000;
// A stream without a word for so long is broken: the server sends one every 15 seconds.
const SILENCE = 45_000;

export class Refused extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

/** Exchange the code after `#` for a token, and remove it from the address. */
export async function beginSession(): Promise<void> {
  const code = location.hash.slice(1);
  if (!/^[\w-]{20,}$/.test(code)) return;
  history.replaceState(null, "", location.pathname);
  const answer = await sent("session", { code });
  sessionStorage.setItem(KEY, String((answer as { token?: unknown }).token ?? ""));
}

export function useToken(token: string): void {
  sessionStorage.setItem(KEY, token.trim());
}

export function ask<T>(path: string, query: Record<string, string> = {}): Promise<T> {
  const text = new URLSearchParams(query).toString();
  return sent(`data/${path}${text && `?${text}`}`) as Promise<T>;
}

export function post<T>(path: string, body: unknown): Promise<T> {
  return sent(`data/${path}`, body) as Promise<T>;
}

/**
 * Follow the server: `onLook` is called whenever something may have changed. Ends when the stream
 * does, which the server sees to after some minutes; Refused where there is none.
 * A stream of EventSource could not carry the token in a header.
 */
export async function follow(onLook: () => void, over: AbortSignal): Promise<void> {
  const watchdog = new AbortController();
  const stop = () => watchdog.abort();
  over.addEventListener("abort", stop);
  let silence = setTimeout(stop, SILENCE);
  try {
    const answer = await asked("data/changes", watchdog.signal);
    if (!answer.ok || !answer.body) throw await refusal(answer);
    const reader = answer.body.getReader();
    const decoder = new TextDecoder();
    for (let rest = "";;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(stop, SILENCE);
      const events = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = events.pop()!;
      if (events.some((event) => event.startsWith("event: look"))) onLook();
    }
  } catch (error) {
    throw error instanceof Refused ? error : new Refused(0, "The server does not answer.");
  } finally {
    clearTimeout(silence);
    over.removeEventListener("abort", stop);
    stop();
  }
}

async function sent(path: string, body?: unknown): Promise<unknown> {
  const answer = await asked(path, AbortSignal.timeout(PATIENCE), body);
  if (!answer.ok) throw await refusal(answer);
  return content(answer);
}

async function asked(path: string, signal: AbortSignal, body?: unknown): Promise<Response> {
  const headers: Record<string, string> = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const how: RequestInit = { headers, credentials: "omit", cache: "no-store", redirect: "error", signal };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    how.method = "POST";
    how.body = JSON.stringify(body);
  }
  try {
    return await fetch(`${location.pathname.replace(/\/+$/, "")}/${path}`, how);
  } catch (error) {
    const slow = error instanceof DOMException && error.name === "TimeoutError";
    throw new Refused(0, slow ? "The server did not answer in time." : "The server does not answer.");
  }
}

async function content(answer: Response): Promise<unknown> {
  let text: string;
  try {
    text = await answer.text();
  } catch {
    throw new Refused(0, "The server's answer was cut off.");
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new Refused(answer.status, "The server's answer is not JSON.");
  }
}

async function refusal(answer: Response): Promise<Refused> {
  const found = await content(answer) as { message?: unknown } | null;
  return new Refused(answer.status, typeof found?.message === "string" ? found.message : `HTTP ${answer.status}`);
}
