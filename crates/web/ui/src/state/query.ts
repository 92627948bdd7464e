// A question to the server that follows the page's state: the newest one wins, and the answer before stays in sight until
// the next one is there.

import type { Accessor } from "solid-js";
import { createEffect, createSignal, on, onCleanup, untrack } from "solid-js";
import { ask, isCancelled, type Parameters, query, RequestError } from "../net/client";
import type { ErrorBody } from "../net/types";

export interface Question<T> {
  answer: Accessor<T | null>;
  error: Accessor<ErrorBody | null>;
  busy: Accessor<boolean>;
}

export interface Newest {
  error: Accessor<ErrorBody | null>;
  setError: (error: ErrorBody) => void;
  busy: Accessor<boolean>;
  /** What cancels the newest run; null while nothing is asked. */
  current: () => AbortController | null;
}

/**
 * Runs `work` whenever the parameters change. The newest run wins: earlier ones are cancelled, and their results dropped. `show`
 * gets null where the parameters are null, and after an error.
 */
export function createNewest<T>(
  parameters: Accessor<Parameters | null>, work: (mine: AbortController) => Promise<T>, show: (result: T | null) => void,
): Newest {
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
    if (now === null) { show(null); setBusy(false); return; }
    const mine = new AbortController();
    newest = mine;
    setBusy(true);
    try {
      const result = await work(mine);
      if (newest !== mine) return;
      show(result);
      setError(null);
    } catch (problem) {
      if (newest !== mine || isCancelled(problem)) return;
      show(null);
      setError(toBody(problem));
    }
    setBusy(false);
  }));
  onCleanup(() => newest?.abort());
  return { error, setError, busy, current: () => newest };
}

/** Asks anew whenever the parameters change. Null asks nothing. */
export function createQuestion<T>(path: string, parameters: Accessor<Parameters | null>): Question<T> {
  const [answer, setAnswer] = createSignal<T | null>(null);
  const work = (mine: AbortController) => ask<T>(path, untrack(parameters) ?? {}, mine.signal);
  const { error, busy } = createNewest(parameters, work, (next) => setAnswer(() => next));
  return { answer, error, busy };
}

/** An error as the page shows it. */
export function toBody(problem: unknown): ErrorBody {
  if (problem instanceof RequestError) return { code: problem.code, text: problem.message, remedy: problem.remedy };
  return { code: "internal", text: String(problem), remedy: null };
}
