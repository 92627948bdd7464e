// Finds a function by its name: for views of one function.

import { createSignal, For, Show } from "solid-js";
import { inUnit } from "../format";
import { fold, visible } from "../names";
import type { TableAnswer } from "../net/types";
import { createQuestion } from "../state/query";
import { learnNames, selection } from "../state/selection";
import { go } from "../state/url";

export function FunctionPicker() {
  const [text, setText] = createSignal("");
  const [isOpen, setOpen] = createSignal(false);
  const question = createQuestion<TableAnswer>("table", () => (isOpen() ? { ...selection(), by: "function", filter: text(), count: 12 } : null));
  const rows = () => {
    const answer = question.answer();
    if (!answer) return [];
    const at = (id: string) => answer.columns.findIndex((column) => column.id === id);
    const share = answer.columns.findIndex((column) => column.unit === "percent");
    return answer.rows.map((row) => ({
      key: row.key.function ?? "", name: String(row.cells[at("function")] ?? ""), module: String(row.cells[at("module")] ?? ""), share: row.cells[share],
    }));
  };
  const pick = (row: { key: string; name: string }) => {
    learnNames([["function", row.key, row.name]]);
    setOpen(false);
    setText("");
    go({ open: row.key });
  };
  return (
    <span
      class="picker"
      onFocusOut={(event) => { if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOpen(false); }}
      onKeyDown={(event) => {
        if (event.key === "Escape") setOpen(false);
        const first = rows()[0];
        if (event.key === "Enter" && isOpen() && first && (event.target as HTMLElement).matches("input")) pick(first);
      }}
    >
      <input
        type="search" data-filter placeholder="Another function  ( / )" aria-label="Find a function" spellcheck={false} value={text()}
        onFocus={() => setOpen(true)} onInput={(event) => { setText(event.currentTarget.value); setOpen(true); }}
      />
      <Show when={isOpen() && rows().length > 0}>
        <ul class="found">
          <For each={rows()}>
            {(row) => (
              <li><button title={visible(row.name).slice(0, 2000)} onClick={() => pick(row)}>
                <span class="share">{typeof row.share === "number" ? inUnit(row.share, "percent") : ""}</span><span class="name">{fold(row.name) || "[no name]"} <span class="dim">{visible(row.module).slice(0, 200)}</span></span>
              </button></li>
            )}
          </For>
        </ul>
      </Show>
    </span>
  );
}
