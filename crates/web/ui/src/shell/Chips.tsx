// The selection as a line of conditions, each of which can be removed.

import { For, Show } from "solid-js";
import { duration } from "../format";
import { cutMiddle, fold, visible } from "../names";
import { isSelective, nameOf, toggle } from "../state/selection";
import { OtherSide } from "../traces/OtherSide";
import { go, KEY_LISTS, type KeyList, noConditions, state } from "../state/url";

const KINDS: Record<KeyList, string> = {
  process: "process", thread: "thread", program: "program", comm: "thread name", cpu: "CPU", module: "module", function: "in", through: "through",
};

export function Chips() {
  const time = () => {
    const [from, to] = state.time ?? [null, null];
    return `${from === null ? "start" : duration(from)} … ${to === null ? "end" : duration(to)}`;
  };
  return (
    <Show when={isSelective()}>
      <div class="chips" role="group" aria-label="Selection">
        <span class="dim">Only</span>
        <Show when={state.time}><Chip kind="time" text={time()} whole={time()} onRemove={() => go({ time: null })} /></Show>
        <For each={KEY_LISTS}>
          {(list) => (
            <For each={state[list]}>
              {(key) => <Chip kind={KINDS[list]} text={cutMiddle(list === "function" || list === "through" ? fold(nameOf(list, key)) : visible(nameOf(list, key)), 80)} whole={nameOf(list, key)} onRemove={() => toggle(list, key)} />}
            </For>
          )}
        </For>
        <button onClick={() => go(noConditions())}>Clear all</button>
        <OtherSide />
      </div>
    </Show>
  );
}

function Chip(props: { kind: string; text: string; whole: string; onRemove(): void }) {
  return (
    <span class="chip" title={props.whole.slice(0, 4000)}>
      <span class="kind">{props.kind}</span><span class="what">{props.text}</span>
      <button aria-label={`Remove ${props.kind} ${props.text}`} onClick={() => props.onRemove()}>×</button>
    </span>
  );
}
