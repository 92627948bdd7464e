// A question to the server that follows the page's state: the newest one wins, and the answer before stays in sight until
// the next one is there.

import type { Accessor } from "solid-js";
import { createEffect, createSignal, on, onCleanup } from "solid-js";
import { ask, isCancelled, type Parameters, query, RequestError } from "../net/client";
import type { ErrorBody } from "../net/types";

export interface Question<T> {
  answer: Accessor<T | null>;
  error: Accessor<ErrorBody | null>;
  busy: Accessor<boolean>;
}

/** Asks anew whenever the parameters change. Null asks nothing. */
export function createQuestion<T>(path: string, parameters: Accessor<Parameters | null>): Question<T> {
  const [answer, setAnswer] = createSignal<T | null>(null);
  const [error, setError] = createSignal<ErrorBody | null>(null);
  const [busy, setBusy] = createSignal(false);
  let newest: AbortController | null = null;
  const address = () => {
    const now = parameters();
    return now === null ? null : query(now);
  };
  createEffect(on(address, async (now) => {
    newest?.abort();
    newest = null;
    if (now === null) { setAnswer(null); setBusy(false); return; }
    const mine = new AbortController();
    newest = mine;
    setBusy(true);
    try {
      const next = await ask<T>(path, parameters() ?? {}, mine.signal);
      if (newest !== mine) return;
      setAnswer(() => next);
      setError(null);
    } catch (problem) {
      if (newest !== mine || isCancelled(problem)) return;
      setAnswer(null);
      setError(toBody(problem));
    }
    setBusy(false);
  }));
  onCleanup(() => newest?.abort());
  return { answer, error, busy };
}

/** An error as the page shows it. */
export function toBody(problem: unknown): ErrorBody {
  if (problem instanceof RequestError) return { code: problem.code, text: problem.message, remedy: problem.remedy };
  return { code: "internal", text: String(problem), remedy: null };
}
