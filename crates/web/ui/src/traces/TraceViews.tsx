// The views of a trace.

import { createEffect, Match, Switch } from "solid-js";
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
    learnNames(trace.threads.map((thread) => ["thread", String(thread.tid), `${thread.name} (${thread.tid})`] as const));
    learnNames(trace.processes.map((process) => ["process", process.key, `${process.executable.split("/").pop() ?? ""} (${process.pid})`] as const));
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
