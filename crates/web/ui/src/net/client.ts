// Requests to the server: one place that knows the token, cancels what nobody waits for, and keeps recent answers.

import type { ErrorBody } from "./types";

/** A parameter's value; a list repeats the parameter, and null, false and "" leave it out. */
export type Value = string | number | boolean | null | undefined | readonly (string | number)[];
export type Parameters = Record<string, Value>;

/** An answer that is not 200, or a server that does not answer. */
export class RequestError extends Error {
  readonly code: string;
  readonly remedy: string | null;
  constructor(body: ErrorBody) {
    super(body.text);
    this.code = body.code;
    this.remedy = body.remedy;
  }
}

const TOKEN_KEY = "dioptra-token";
const MOST_KEPT = 48;

let token = "";
const kept = new Map<string, unknown>();

/** Takes the token out of the page's address, or else from where an earlier load of the page kept it. */
export function findToken(): void {
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

/** Writes parameters as a query, in a fixed order so that equal requests are equal texts. */
export function query(parameters: Parameters): string {
  const out = new URLSearchParams();
  for (const name of Object.keys(parameters).sort()) {
    const value = parameters[name];
    if (Array.isArray(value)) for (const each of value) out.append(name, String(each));
    else if (value === true) out.append(name, "1");
    else if (value !== null && value !== undefined && value !== false && value !== "") out.append(name, String(value));
  }
  return out.toString();
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
  const response = await send(path, parameters, signal);
  return (await response.json()) as T;
}

/** Asks for a file to save. */
export async function askFile(path: string, parameters: Parameters): Promise<Blob> {
  return (await send(path, parameters)).blob();
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
