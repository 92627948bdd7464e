// The loaded profile: follows the server's status and asks for the profile's description when it is ready.

import { createSignal } from "solid-js";
import { ask, askAnew, forgetAnswers, RequestError } from "../net/client";
import type { ErrorBody, ProfileAnswer, ProfileState, Status, TraceAnswer } from "../net/types";
import { state } from "./url";

const [status, setStatus] = createSignal<Status | null>(null);
const [loaded, setLoaded] = createSignal<ProfileAnswer | null>(null);
const [loadedTrace, setTrace] = createSignal<TraceAnswer | null>(null);
const [trouble, setTrouble] = createSignal<ErrorBody | null>(null);

export { loaded, loadedTrace, status, trouble };

/** Whether the page shows a trace. */
export function isTrace(): boolean {
  return shownState()?.kind === "trace";
}

/** What the page shows, once it is there: a profile or a trace. */
export function shownFile(): ProfileAnswer | TraceAnswer | null {
  const file = isTrace() ? loadedTrace() : loaded();
  return file !== null && file.profile === state.profile ? file : null;
}

/** The state of the profile that the page shows. */
export function shownState(): ProfileState | null {
  return status()?.profiles[state.profile] ?? null;
}

/** Follows the server's status for as long as the page is open. */
export async function followStatus(): Promise<void> {
  let revision: number | null = null;
  for (;;) {
    try {
      const next: Status = await askAnew("status", revision === null ? {} : { wait: revision });
      revision = next.revision;
      setStatus(next);
      setTrouble(null);
      await showReady();
    } catch (error) {
      setTrouble(error instanceof RequestError ? { code: error.code, text: error.message, remedy: error.remedy } : {
        code: "internal", text: String(error), remedy: null,
      });
      if (error instanceof RequestError && error.code === "no_token") return;
      revision = null;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

/** Asks for the description of the shown profile when there is a new one. */
export async function showReady(): Promise<void> {
  const ready = shownState();
  if (!ready || ready.state !== "ready") return;
  const shown = ready.kind === "trace" ? loadedTrace() : loaded();
  if (shown && shown.profile === ready.index && shown.generation === ready.generation) return;
  forgetAnswers();
  if (ready.kind === "trace") setTrace(await ask<TraceAnswer>("trace", { profile: ready.index }));
  else setLoaded(await ask<ProfileAnswer>("profile", { profile: ready.index }));
}
