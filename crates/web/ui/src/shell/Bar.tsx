// The bar at the top: which profile, which view, which event.

import { For, Show } from "solid-js";
import { visible } from "../names";
import { loaded, status } from "../state/profile";
import { shownEvents } from "../state/selection";
import { go, linkTo, noChanges, noConditions, state, type View } from "../state/url";
import { isDark, toggleTheme } from "./theme";

const TITLES: Record<View, string> = {
  summary: "Summary", hotspots: "Hotspots", function: "Function", flame: "Flame graph", tree: "Call tree", butterfly: "Callers", timeline: "Timeline",
};

/** Why a view has nothing to show for the loaded profile, or null. */
export function whyNot(view: View): string | null {
  const has = loaded()?.has;
  if (!has) return null;
  if ((view === "flame" || view === "tree" || view === "butterfly") && !has.chains) return "Needs call chains: record with -g";
  if (view === "timeline" && !has.times) return "Needs the times of samples";
  return null;
}

export function Bar(props: { onHelp(): void }) {
  const events = () => loaded()?.events.filter((event) => event.sampled) ?? [];
  return (
    <header class="bar">
      <h1 class="brand">dioptra</h1>
      <Show when={(status()?.profiles.length ?? 0) > 1} fallback={<span class="file" title={visible(loaded()?.path ?? "")}>{visible(loaded()?.label ?? "")}</span>}>
        <select
          aria-label="Profile" value={state.profile}
          onChange={(event) => go({ ...noConditions(), ...noChanges(), zoom: [], shown: null, profile: Number(event.currentTarget.value), open: "", focus: "" })}
        >
          <For each={status()?.profiles}>{(profile) => <option value={profile.index}>{visible(profile.label)}</option>}</For>
        </select>
      </Show>
      <nav aria-label="Views">
        <For each={Object.keys(TITLES) as View[]}>
          {(view) => (
            <a
              href={linkTo({ view })} aria-current={state.view === view ? "page" : undefined} title={whyNot(view) ?? ""} classList={{ off: whyNot(view) !== null }}
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
      <button class="toggle" aria-pressed={state.inlined} title="Show functions that the compiler inlined as functions of their own" onClick={() => go({ inlined: !state.inlined })}>Inlined</button>
      <button onClick={toggleTheme} title={isDark() ? "Light colours" : "Dark colours"} aria-label={isDark() ? "Light colours" : "Dark colours"}>{isDark() ? "☀" : "☾"}</button>
      <button onClick={() => props.onHelp()} title="Keys and help ( ? )" aria-label="Help">?</button>
    </header>
  );
}
