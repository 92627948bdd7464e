// What the views of a trace share: the selected calls, the profile beside the trace, and ways from a call to other views.

import { createMemo, createRoot, createSignal } from "solid-js";
import { ask, type Parameters } from "../net/client";
import type { ProfileAnswer, TableAnswer, TraceAnswer } from "../net/types";
import { say } from "../shell/Foot";
import { isTrace, loadedTrace, shownState, status } from "../state/profile";
import { go, noConditions, type PageState, readSpan, state, TRACE_VIEWS, type View, writeSpan } from "../state/url";

type TraceView = (typeof TRACE_VIEWS)[number];

export function isTraceView(view: View): view is TraceView {
  return (TRACE_VIEWS as readonly string[]).includes(view);
}

/** The view of the trace that is shown; the summary where the address names a view of profiles. */
export function traceView(): TraceView {
  return isTraceView(state.view) ? state.view : "trace";
}

/** The parameters of a request about the selected calls. */
export function calls(without: readonly ("time" | "thread")[] = []): Parameters {
  return {
    profile: state.profile,
    generation: loadedTrace()?.generation,
    process: [...state.process],
    thread: without.includes("thread") ? [] : [...state.thread],
    time: state.time && !without.includes("time") ? writeSpan(state.time) : "",
  };
}

/** A call, as far as other views need it. Times are nanoseconds since the trace's first record. */
export interface CallPlace {
  tid: number;
  begin: number;
  end: number;
}

/** The stretch of time around a call that a timeline shows. */
function around(call: CallPlace): string {
  const room = Math.max(50, Math.round((call.end - call.begin) * 0.15));
  return `${Math.max(0, call.begin - room)}..${call.end + room}`;
}

/** The time of a call as a selection, which ends behind its last nanosecond. */
function timeOf(call: CallPlace): readonly [number, number] {
  return [call.begin, Math.max(call.end, call.begin + 1)];
}

/** Shows a call in the timeline. */
export function showInTimeline(call: CallPlace): void {
  go({ view: "calls", thread: [String(call.tid)], span: around(call), at: String(call.begin) });
}

/** Shows the calls of a thread from the beginning of a call on. */
export function showInReplay(call: CallPlace): void {
  go({ view: "replay", thread: [String(call.tid)], time: null, at: String(call.begin) });
}

/** Selects the time and the thread of a call for all views of the trace. */
export function selectTime(call: CallPlace): void {
  go({ time: timeOf(call), thread: [String(call.tid)] });
}

/** A profile that was recorded beside the trace: its times are the trace's plus `offset`. */
export interface Beside {
  profile: number;
  label: string;
  offset: number;
  duration: number;
}

const [beside, setBeside] = createSignal<Beside | null>(null);
let asked = "";

/** The profile beside the shown trace, if there is one whose time overlaps the trace's. */
export const profileBeside = createRoot(() => createMemo(() => {
  const trace = loadedTrace();
  if (!isTrace() || trace === null) return null;
  const ready = status()?.profiles.filter((each) => each.kind === "profile" && each.state === "ready") ?? [];
  const wanted = JSON.stringify([trace.profile, trace.generation, ready.map((each) => [each.index, each.generation])]);
  if (wanted !== asked) {
    asked = wanted;
    void findBeside(trace, ready.map((each) => each.index));
  }
  return beside();
}));

async function findBeside(trace: TraceAnswer, indexes: readonly number[]): Promise<void> {
  for (const profile of indexes) {
    try {
      const answer = await ask<ProfileAnswer>("profile", { profile });
      const offset = offsetOf(trace, answer);
      if (offset === null || answer.duration_ns === null) continue;
      setBeside({ profile, label: answer.label, offset, duration: answer.duration_ns });
      return;
    } catch {
      // A profile that cannot answer is not beside.
    }
  }
  setBeside(null);
}

/** What to add to a trace's time for the profile's; null if they do not overlap. */
export function offsetOf(trace: TraceAnswer, profile: ProfileAnswer): number | null {
  if (profile.first_time_ns === null || profile.duration_ns === null || trace.ticks) return null;
  const offset = trace.first_time_ns - profile.first_time_ns;
  return offset < profile.duration_ns && offset + trace.duration_ns > 0 ? offset : null;
}

/** Shows the samples of a call: its time and thread in the profile beside the trace. */
export async function showSamples(call: CallPlace): Promise<void> {
  const other = profileBeside();
  if (!other) return;
  const [begin, end] = timeOf(call);
  const from = Math.max(0, begin + other.offset);
  const to = end + other.offset;
  if (to <= from || from > other.duration) { say("The call lies outside of the profile's time."); return; }
  const threads = await threadsOf(other.profile);
  const thread = threads.has(String(call.tid)) ? [String(call.tid)] : [];
  if (thread.length === 0) say("The profile has no samples of the call's thread: all threads are shown.");
  go({ ...crossing(), profile: other.profile, view: "hotspots", time: [from, to], thread });
}

async function threadsOf(profile: number): Promise<Set<string>> {
  try {
    const answer = await ask<TableAnswer>("table", { profile, by: "thread", count: 2000 });
    return new Set(answer.rows.flatMap((row) => row.key.thread ?? []));
  } catch {
    return new Set();
  }
}

/** The trace beside the shown profile, by its index; null without one. */
export function traceBeside(): number | null {
  if (shownState()?.kind !== "profile") return null;
  return status()?.profiles.find((each) => each.kind === "trace" && each.state === "ready")?.index ?? null;
}

/** Shows the calls in the selected time and threads of a profile. */
export async function showCalls(profile: ProfileAnswer): Promise<void> {
  const index = traceBeside();
  if (index === null) return;
  const trace = await ask<TraceAnswer>("trace", { profile: index });
  const offset = offsetOf(trace, profile);
  if (offset === null) { say("The trace was recorded at another time than the profile, or by another clock."); return; }
  const shift = (time: number | null) => (time === null ? null : Math.max(0, time - offset));
  const time = state.time ? ([shift(state.time[0]), shift(state.time[1])] as const) : null;
  if (time && ((time[1] ?? 1) <= (time[0] ?? 0) || (time[0] ?? 0) > trace.duration_ns)) { say("The trace has no calls in this time."); return; }
  const known = new Set(trace.threads.map((each) => String(each.tid)));
  const change: Partial<PageState> = { ...crossing(), profile: index, view: "calls", thread: state.thread.filter((key) => known.has(key)), time };
  if (time) change.span = `${time[0] ?? 0}..${time[1] ?? trace.duration_ns + 1}`;
  go(change);
}

/** The change that leaves what holds for one file only. */
function crossing(): Partial<PageState> {
  return { ...noConditions(), open: "", focus: "", find: "", filter: "", sort: "", span: "", at: "" };
}

/** The number that a part of the address states, or null. */
export function readTime(text: string): number | null {
  return /^\d+$/.test(text) ? Number(text) : null;
}

export { readSpan };
