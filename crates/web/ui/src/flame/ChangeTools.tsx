// The tools that change call stacks, and what they left out.

import { For, Show } from "solid-js";
import { shareOf } from "../format";
import { cutMiddle, fold, visible } from "../names";
import { report } from "../net/client";
import type { FlameAnswer } from "../net/types";
import { nameOf } from "../state/selection";
import { CHANGE_LISTS, type ChangeList, go, noChanges, state } from "../state/url";
import { toggleChange } from "./changes";

const KINDS: Record<ChangeList, string> = { merge: "without function", merge_module: "without module", drop: "no samples in", drop_module: "no samples in module" };

/** Chooses how functions that call themselves are shown. A static report has no trees of changed call stacks. */
export function FoldTool() {
  return (
    <Show when={!report()}>
      <label class="fold-tool" title="Functions that call themselves">
        Recursion
        <select onChange={(event) => go({ fold: event.currentTarget.value as "" | "direct" | "all" })}>
          <option value="" selected={state.fold === ""}>kept</option>
          <option value="direct" selected={state.fold === "direct"}>direct folded</option>
          <option value="all" selected={state.fold === "all"}>all folded</option>
        </select>
      </label>
    </Show>
  );
}

/** The functions and modules that are left out, each of which can come back. */
export function ChangeChips(props: { answer?: FlameAnswer | null }) {
  const any = () => CHANGE_LISTS.some((list) => state[list].length > 0);
  const lost = () => {
    const changes = props.answer?.changes;
    const whole = props.answer?.events[0]?.weight ?? 0;
    if (!changes) return "";
    const parts = [];
    if ((changes.dropped_samples[0] ?? 0) > 0) parts.push(`${shareOf(changes.dropped_weight[0]!, whole)} of the selection dropped`);
    if ((changes.bare_samples[0] ?? 0) > 0) parts.push(`${shareOf(changes.bare_weight[0]!, whole)} has no function left`);
    return parts.join(" · ");
  };
  const name = (list: ChangeList, key: string) => nameOf(list.endsWith("module") ? "module" : "function", key);
  const shown = (list: ChangeList, key: string) => cutMiddle(list.endsWith("module") ? visible(name(list, key)) : fold(name(list, key)), 60);
  return (
    <Show when={any()}>
      <div class="chips" role="group" aria-label="Left out of call stacks">
        <span class="dim">Shown</span>
        <For each={CHANGE_LISTS}>
          {(list) => (
            <For each={state[list]}>
              {(key) => (
                <span class="chip" title={visible(name(list, key)).slice(0, 4000)}>
                  <span class="kind">{KINDS[list]}</span><span class="what">{shown(list, key)}</span>
                  <button aria-label={`Show ${shown(list, key)} again`} onClick={() => toggleChange(list, key)}>×</button>
                </span>
              )}
            </For>
          )}
        </For>
        <button onClick={() => go(noChanges())}>Show everything</button>
        <span class="dim" role="status">{lost()}</span>
      </div>
    </Show>
  );
}
