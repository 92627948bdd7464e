// The choice of the profile with which tables and flame graphs are compared.

import { For } from "solid-js";
import { visible } from "../names";
import { status } from "../state/profile";
import { go, type PageState, state } from "../state/url";

/** The change that ends a comparison of a profile with itself. */
export function withoutItself(profile: number): Partial<PageState> {
  return state.with === String(profile) ? { with: "" } : {};
}

export function CompareWith() {
  const others = () => status()?.profiles.filter((profile) => profile.index !== state.profile) ?? [];
  return (
    <label class="compare" title="Changes are from the profile at the left to this one">
      →
      <select aria-label="Compare with" onChange={(event) => go({ with: event.currentTarget.value })}>
        <option value="" selected={state.with === ""}>compare with…</option>
        <For each={others()}>{(profile) => <option value={String(profile.index)} selected={state.with === String(profile.index)}>{visible(profile.label)}</option>}</For>
      </select>
    </label>
  );
}
