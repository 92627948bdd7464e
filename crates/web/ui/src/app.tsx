// The page: bar, selection, the view, and what to show while there is no profile.

import { createEffect, createSignal, Match, on, onCleanup, onMount, Show, Switch } from "solid-js";
import { visible } from "./names";
import { Bar, whyNot } from "./shell/Bar";
import { Chips } from "./shell/Chips";
import { Foot } from "./shell/Foot";
import { Help } from "./shell/Help";
import { Wrong } from "./shell/Message";
import { isTrace, showReady, shownFile, shownState, trouble } from "./state/profile";
import { go, state, TRACE_VIEWS, VIEWS } from "./state/url";
import { TraceViews } from "./traces/TraceViews";
import { ButterflyView } from "./views/Butterfly";
import { DiffView } from "./views/Diff";
import { FlameView } from "./views/Flame";
import { FunctionView } from "./views/Function";
import { HotspotsView } from "./views/Hotspots";
import { MetricsView } from "./views/Metrics";
import { SummaryView } from "./views/Summary";
import { TimelineView } from "./views/Timeline";
import { TreeView } from "./views/Tree";

export function App() {
  const [help, setHelp] = createSignal(false);
  const onKey = (event: KeyboardEvent) => {
    const target = event.target as HTMLElement;
    const isTyping = target.matches("input, textarea, select");
    if (event.key === "Escape" && isTyping) { target.blur(); return; }
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const view = (isTrace() ? TRACE_VIEWS : VIEWS)[Number(event.key) - 1];
    if (event.key === "?") setHelp(true);
    else if (event.key === "Escape" && help()) setHelp(false);
    else if (event.key === "/") { const field = document.querySelector<HTMLInputElement>("[data-filter]"); field?.focus(); field?.select(); }
    else if (view && whyNot(view) === null) go({ view });
    else return;
    event.preventDefault();
  };
  onMount(() => {
    addEventListener("keydown", onKey);
    onCleanup(() => removeEventListener("keydown", onKey));
  });
  createEffect(on(() => state.profile, () => void showReady(), { defer: true }));
  createEffect(() => { document.title = shownFile() ? `${visible(shownFile()!.label)} – dioptra` : "dioptra"; });
  const isReady = () => shownFile() !== null;
  return (
    <>
      <Bar onHelp={() => setHelp(true)} />
      <Show when={isReady()}><Chips /></Show>
      <main aria-label="View">
        <Show when={isReady()} fallback={<Waiting />}>
          <Switch fallback={<SummaryView />}>
            <Match when={isTrace()}><TraceViews /></Match>
            <Match when={whyNot(state.view)}>{(why) => <Wrong error={{ code: "", text: why(), remedy: null }} />}</Match>
            <Match when={state.view === "summary"}><SummaryView /></Match>
            <Match when={state.view === "hotspots"}><HotspotsView /></Match>
            <Match when={state.view === "function"}><FunctionView /></Match>
            <Match when={state.view === "flame"}><FlameView /></Match>
            <Match when={state.view === "tree"}><TreeView /></Match>
            <Match when={state.view === "butterfly"}><ButterflyView /></Match>
            <Match when={state.view === "timeline"}><TimelineView /></Match>
            <Match when={state.view === "metrics"}><MetricsView /></Match>
            <Match when={state.view === "diff"}><DiffView /></Match>
          </Switch>
        </Show>
      </main>
      <Foot />
      <Show when={help()}><Help onClose={() => setHelp(false)} /></Show>
    </>
  );
}

const STEPS: Record<string, string> = { waiting: "Waiting for the file", reading: "Reading the file", naming: "Naming addresses" };

function Waiting() {
  const error = () => trouble() ?? shownState()?.error ?? null;
  const progress = () => shownState()?.progress ?? null;
  return (
    <Show when={error()} fallback={
      <div class="message" role="status">
        <h2>{STEPS[shownState()?.state ?? ""] ?? "Waiting for the server"}</h2>
        <p class="dim">{visible(shownState()?.path ?? "")}</p>
        <Show when={progress()}>
          {(progress) => <progress aria-label="Progress" max={progress().total} value={progress().done} />}
        </Show>
      </div>
    }>
      {(error) => <Wrong error={error()} />}
    </Show>
  );
}
