// The notes of an answer on its own numbers, behind a button.

import { For, Show } from "solid-js";
import { visible } from "../names";
import type { Fact } from "../net/types";
import { Menu } from "../table/Tools";

export function FactsMenu(props: { facts: readonly Fact[] }) {
  const serious = () => props.facts.filter((fact) => fact.severity !== "info").length;
  return (
    <Show when={props.facts.length > 0}>
      <Menu label={serious() > 0 ? `Notes (${serious()} to heed)` : "Notes"} title="How the numbers were made, and what they lack">
        <ul class="facts-list" tabindex="0" aria-label="Notes on the numbers">
          <For each={props.facts}>{(fact) => <li><span class={`severity ${fact.severity}`}>{fact.severity}</span><span>{visible(fact.text).slice(0, 3000)}</span></li>}</For>
        </ul>
      </Menu>
    </Show>
  );
}
