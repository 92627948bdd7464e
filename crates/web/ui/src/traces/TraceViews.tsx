// The views of a trace.

import { createEffect, Match, Switch, untrack } from "solid-js";
import { loadedTrace } from "../state/profile";
import { learnNames } from "../state/selection";
import { CallsView } from "../views/Calls";
import { PathsView } from "../views/Paths";
import { ReplayView } from "../views/Replay";
import { StatisticsView } from "../views/Statistics";
import { TraceView } from "../views/Trace";
import { traceView } from "./state";

export function TraceViews() {
  createEffect(() => {
    const trace = loadedTrace();
    if (!trace) return;
    // A process that executes another program is there again, under the same number: the last name counts.
    const threads = new Map(trace.threads.map((thread) => [String(thread.tid), `${thread.name} (${thread.tid})`]));
    const processes = new Map(trace.processes.map((process) => [process.key, `${process.executable.split("/").pop() ?? ""} (${process.pid})`]));
    untrack(() => {
      learnNames([...threads].map(([key, name]) => ["thread", key, name] as const));
      learnNames([...processes].map(([key, name]) => ["process", key, name] as const));
    });
  });
  return (
    <Switch>
      <Match when={traceView() === "trace"}><TraceView /></Match>
      <Match when={traceView() === "statistics"}><StatisticsView /></Match>
      <Match when={traceView() === "paths"}><PathsView /></Match>
      <Match when={traceView() === "calls"}><CallsView /></Match>
      <Match when={traceView() === "replay"}><ReplayView /></Match>
    </Switch>
  );
}
