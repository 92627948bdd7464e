// Requests for answers: one place that knows where answers come from, a server or the report itself. Requests to the server
// carry the token, are cancelled when nobody waits for them, and recent answers are kept.

import { type Parameters, query, RequestError } from "./request";
import { StoredAnswers } from "./stored";
import type { ErrorBody, StoredReport } from "./types";

export { type Parameters, query, RequestError } from "./request";
export type { Value } from "./request";

const TOKEN_KEY = "dioptra-token";
const MOST_KEPT = 48;

/** The answers of a static report; null where a server answers. */
let stored: StoredAnswers | null = null;
let token = "";
const kept = new Map<string, unknown>();

/** Finds out where answers come from. */
export function findAnswers(): void {
  stored = StoredAnswers.find(document);
  if (!stored) findToken();
}

/** The contents of a static report; null where a server answers. */
export function report(): StoredReport | null {
  return stored?.about ?? null;
}

/** Takes the token out of the page's address, or else from where an earlier load of the page kept it. */
function findToken(): void {
  const address = new URL(location.href);
  const given = address.searchParams.get("token");
  if (given) {
    localStorage.setItem(TOKEN_KEY, given);
    address.searchParams.delete("token");
    history.replaceState(history.state, "", address.pathname + address.search + address.hash);
  }
  token = given ?? localStorage.getItem(TOKEN_KEY) ?? "";
}

/** Forgets all answers, since a profile was loaded anew. */
export function forgetAnswers(): void {
  kept.clear();
}

/** Asks for an answer that does not change while a profile stays loaded. */
export async function ask<T>(path: string, parameters: Parameters, signal?: AbortSignal): Promise<T> {
  const address = `/api/${path}?${query(parameters)}`;
  const known = kept.get(address);
  if (known !== undefined) {
    kept.delete(address);
    kept.set(address, known);
    return known as T;
  }
  const answer = await askAnew<T>(path, parameters, signal);
  kept.set(address, answer);
  if (kept.size > MOST_KEPT) for (const oldest of kept.keys()) { kept.delete(oldest); break; }
  return answer;
}

/** Asks for an answer that may change at any time. */
export async function askAnew<T>(path: string, parameters: Parameters, signal?: AbortSignal): Promise<T> {
  if (stored) return stored.answer<T>(path, parameters, signal);
  const response = await send(path, parameters, signal);
  return (await response.json()) as T;
}

/** Asks for a file to save. */
export async function askFile(path: string, parameters: Parameters): Promise<Blob> {
  return stored ? stored.file(path, parameters) : (await send(path, parameters)).blob();
}

async function send(path: string, parameters: Parameters, signal?: AbortSignal): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(`/api/${path}?${query(parameters)}`, {
      headers: { "X-Dioptra-Token": token },
      signal: signal ?? null,
      cache: "no-store",
    });
  } catch (error) {
    if (isCancelled(error)) throw error;
    throw new RequestError({
      code: "no_server",
      text: "The server does not answer.",
      remedy: "It may have been ended. Start `dioptra web` again and open the address that it prints.",
    });
  }
  if (response.ok) return response;
  let body: ErrorBody = { code: "internal", text: `The server answered with status ${response.status}.`, remedy: null };
  try {
    body = ((await response.json()) as { error: ErrorBody }).error;
  } catch {
    // The answer has no body that we know; the status says enough.
  }
  throw new RequestError(body);
}

/** Whether an error only says that a request was cancelled. */
export function isCancelled(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
