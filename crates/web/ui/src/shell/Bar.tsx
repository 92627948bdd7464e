// The bar at the top: which profile, which view, which event.

import { For, Show } from "solid-js";
import { visible } from "../names";
import { report } from "../net/client";
import { isTrace, loaded, shownState, status } from "../state/profile";
import { shownEvents } from "../state/selection";
import { go, linkTo, noChanges, noConditions, state, TRACE_VIEWS, type View, VIEWS } from "../state/url";
import { isTraceView, traceView } from "../traces/state";
import { CompareWith, otherProfiles, withoutItself } from "./CompareWith";
import { isDark, toggleTheme } from "./theme";

const TITLES: Record<View, string> = {
  summary: "Summary", hotspots: "Hotspots", function: "Function", flame: "Flame graph", tree: "Call tree", butterfly: "Callers", timeline: "Timeline",
  metrics: "Metrics", diff: "Changes",
  trace: "Summary", statistics: "Statistics", paths: "Call graph", calls: "Timeline", replay: "Replay",
};

/** Why a view has nothing to show for the loaded profile, or null. */
export function whyNot(view: View): string | null {
  const has = loaded()?.has;
  if (!has || isTrace()) return null;
  if ((view === "flame" || view === "tree" || view === "butterfly") && !has.chains) return "Needs call chains: record with -g";
  if (view === "timeline" && !has.times) return "Needs the times of samples";
  if (view === "diff" && otherProfiles().length === 0) return "Needs two profiles: dioptra web before.data after.data";
  return null;
}

export function Bar(props: { onHelp(): void }) {
  const events = () => (isTrace() ? [] : (loaded()?.events.filter((event) => event.sampled) ?? []));
  const views = (): readonly View[] => (isTrace() ? TRACE_VIEWS : VIEWS);
  const current = () => (isTrace() ? traceView() : isTraceView(state.view) ? "summary" : state.view);
  return (
    <header class="bar">
      <h1 class="brand">dioptra</h1>
      <Show when={report()}><span class="report-mark" title="A file with some answers of a recording. The summary says what it holds.">report</span></Show>
      <Show when={(status()?.profiles.length ?? 0) > 1} fallback={<span class="file" title={visible(shownState()?.path ?? "")}>{visible(shownState()?.label ?? "")}</span>}>
        <select
          aria-label="Profile" value={state.profile}
          onChange={(event) => go({ ...noConditions(), ...noChanges(), zoom: [], profile: Number(event.currentTarget.value), open: "", focus: "", shown: null, span: "", at: "", sort: "", filter: "", ...withoutItself(Number(event.currentTarget.value)) })}
        >
          <For each={status()?.profiles}>{(profile) => <option value={profile.index}>{visible(profile.label)}</option>}</For>
        </select>
        <CompareWith />
      </Show>
      <nav aria-label="Views">
        <For each={views()}>
          {(view) => (
            <a
              href={linkTo({ view })} aria-current={current() === view ? "page" : undefined} title={whyNot(view) ?? ""} classList={{ off: whyNot(view) !== null }}
              aria-disabled={whyNot(view) !== null} tabindex={whyNot(view) === null ? 0 : -1}
              onClick={(event) => { if (event.ctrlKey || event.metaKey || event.shiftKey) return; event.preventDefault(); go({ view }); }}
            >{TITLES[view]}</a>
          )}
        </For>
      </nav>
      <span class="space" />
      <Show when={events().length > 1}>
        <label title="The event that pictures show and whose columns come first">
          Event
          <select onChange={(event) => go({ event: [event.currentTarget.value] })}>
            <For each={events()}>{(event) => <option value={event.key} selected={event.key === shownEvents()[0]}>{visible(event.name)}</option>}</For>
          </select>
        </label>
      </Show>
      <Show when={!isTrace()}><button class="toggle" aria-pressed={state.inlined} title="Show functions that the compiler inlined as functions of their own" onClick={() => go({ inlined: !state.inlined })}>Inlined</button></Show>
      <button onClick={toggleTheme} title={isDark() ? "Light colours" : "Dark colours"} aria-label={isDark() ? "Light colours" : "Dark colours"}>{isDark() ? "☀" : "☾"}</button>
      <button onClick={() => props.onHelp()} title="Keys and help ( ? )" aria-label="Help">?</button>
    </header>
  );
}
