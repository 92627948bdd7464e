// The call tree: the same stacks as the flame graph, as a table.

import { Show } from "solid-js";
import { CallTable } from "../flame/CallTable";
import { changeParameters, comparedWith } from "../flame/changes";
import { ChangeChips, FoldTool } from "../flame/ChangeTools";
import { fold } from "../names";
import { nameOf, selection } from "../state/selection";
import { go, state } from "../state/url";

export function TreeView() {
  return (
    <>
    <ChangeChips />
    <CallTable
      name="calls" label={state.inverted ? "Callers below each sampled function" : "Call tree"}
      parameters={() => ({ ...selection(), direction: state.inverted ? "callers" : "callees", focus: state.focus, ...changeParameters(), ...comparedWith() })}
      emptyText="No samples with call chains pass the selection."
      lead={
        <>
          <span class="toggles" role="group" aria-label="Direction">
            <button class="toggle" aria-pressed={!state.inverted} onClick={() => go({ inverted: false })} title="Outermost functions first">From the outside</button>
            <button class="toggle" aria-pressed={state.inverted} onClick={() => go({ inverted: true })} title="Sampled functions first, then their callers">Inverted</button>
          </span>
          <FoldTool />
          <Show when={state.focus}>
            <span class="chip" title={nameOf("function", state.focus)}>
              <span class="kind">{state.inverted ? "who called" : "from"}</span><span class="what">{fold(nameOf("function", state.focus))}</span>
              <button aria-label="Remove the focus" onClick={() => go({ focus: "" })}>×</button>
            </span>
          </Show>
        </>
      }
    />
    </>
  );
}
