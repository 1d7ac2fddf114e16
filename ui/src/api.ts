// Questions to the server. The token stays in this window's session storage and in the header
// Authorization: never in an address, never in a cookie.

const KEY = "dralab.token";
const PATIENCE = 120_000;

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

async function sent(path: string, body?: unknown): Promise<unknown> {
  const headers: Record<string, string> = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers["Authorization"] = `Bearer ${token}`;
  const how: RequestInit = {
    headers, credentials: "omit", cache: "no-store", redirect: "error",
    signal: AbortSignal.timeout(PATIENCE),
  };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    how.method = "POST";
    how.body = JSON.stringify(body);
  }
  let answer: Response;
  try {
    answer = await fetch(`${location.pathname.replace(/\/+$/, "")}/${path}`, how);
  } catch (error) {
    const slow = error instanceof DOMException && error.name === "TimeoutError";
    throw new Refused(0, slow ? "The server did not answer in time." : "The server does not answer.");
  }
  const text = await answer.text();
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Refused(answer.status, "The server's answer is not JSON.");
  }
  if (!answer.ok) {
    const message = (value as { message?: unknown }).message;
    throw new Refused(answer.status, typeof message === "string" ? message : `HTTP ${answer.status}`);
  }
  return value;
}
