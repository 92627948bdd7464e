// The choice of the profile with which tables and flame graphs are compared.

import { For, Show } from "solid-js";
import { visible } from "../names";
import { isTrace, status } from "../state/profile";
import { go, type PageState, state } from "../state/url";

/** The change that ends a comparison of a profile with itself. */
export function withoutItself(profile: number): Partial<PageState> {
  return state.with === String(profile) ? { with: "" } : {};
}

/** The profiles with which the shown one can be compared; none for a trace. */
export function otherProfiles() {
  const others = status()?.profiles.filter((profile) => profile.kind !== "trace" && profile.index !== state.profile);
  return isTrace() ? [] : others ?? [];
}

/**
 * The index of the profile with which views compare, once it is loaded; empty where nothing is compared. Reading it follows the
 * other profile's generation, which is no parameter, so that questions are asked anew when its file changes.
 */
export function comparedProfile(): string {
  const other = state.with === "" ? undefined : status()?.profiles[Number(state.with)];
  void other?.generation;
  return other?.state === "ready" && other.kind !== "trace" ? state.with : "";
}

export function CompareWith() {
  return (
    <Show when={otherProfiles().length > 0}><label class="compare" title="Changes are from the profile at the left to this one">
      →
      <select aria-label="Compare with" onChange={(event) => go({ with: event.currentTarget.value })}>
        <option value="" selected={state.with === ""}>compare with…</option>
        <For each={otherProfiles()}>{(profile) => <option value={String(profile.index)} selected={state.with === String(profile.index)}>{visible(profile.label)}</option>}</For>
      </select>
    </label></Show>
  );
}
