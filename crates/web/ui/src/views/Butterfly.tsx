// Callers and callees of one function: who called it above, what it called below.

import { Show } from "solid-js";
import { CallTable } from "../flame/CallTable";
import { changeParameters, comparedWith } from "../flame/changes";
import { ChangeChips } from "../flame/ChangeTools";
import { fold, visible } from "../names";
import { FunctionPicker } from "../shell/FunctionPicker";
import { Split } from "../shell/Split";
import { nameOf, selection } from "../state/selection";
import { go, state } from "../state/url";

export function ButterflyView() {
  const parameters = (direction: "callers" | "callees") => () => (state.open ? { ...selection(), direction, focus: state.open, ...changeParameters(), ...comparedWith() } : null);
  return (
    <>
      <div class="pane-title open">
        <Show when={state.open} fallback={<span class="dim">Choose a function</span>}>
          <span class="mono" title={visible(nameOf("function", state.open)).slice(0, 4000)}>{fold(nameOf("function", state.open))}</span>
          <button onClick={() => go({ view: "function" })}>Source and assembly</button>
        </Show>
        <span class="space" />
        <FunctionPicker />
      </div>
      <ChangeChips />
      <Show when={state.open} fallback={<div class="message">Find a function by its name above, or choose one in <a href="#/hotspots">Hotspots</a>.</div>}>
        <Split
          name="butterfly" down share={0.5} label="Height of the callers"
          first={<CallTable name="callers" label="Callers" parameters={parameters("callers")} lead={<h2>Callers</h2>} emptyText="No samples with call chains contain the function." />}
          second={<CallTable name="callees" label="Callees" parameters={parameters("callees")} lead={<h2>Callees</h2>} emptyText="No samples with call chains contain the function." />}
        />
      </Show>
    </>
  );
}
