// The tools above a table: text filter, measures, standard errors, hidden columns, and files to save.

import { createSignal, For, type JSX, onCleanup, onMount, Show } from "solid-js";
import type { Column } from "../net/types";
import { offeredColumns } from "./columns";
import { report } from "../net/client";
import { hiddenAtFirst, isCompared, MEASURES, type Share, shownMeasures, tableSettings } from "./settings";

interface ToolsProps {
  name: string;
  columns: readonly Column[];
  main: string;
  /** The filter, where the table has one. */
  filter?: { text: string; regex: boolean; label: string; onChange(text: string, regex: boolean): void; error: string | null };
  onSave(format: "csv" | "json"): void;
  /** Which rows are saved; all, unless said otherwise. */
  saves?: string;
  note?: string;
  /** What stands at the left. */
  lead?: JSX.Element;
  /** The bases that shares can have beside the column's sum. */
  shares?: readonly Share[];
  /** What stands before the menus. */
  more?: JSX.Element;
}

const SHARE_TITLES: Record<Share, string> = { "": "of the column", total: "of the recording", parent: "of the row above", row: "of the first event" };

const TITLES = { percent: "%", samples: "samples", weight: "weight" };

export function TableTools(props: ToolsProps) {
  const { settings, change } = tableSettings(props.name);
  const events = () => new Set(props.columns.map((column) => column.event).filter((event) => event !== null)).size;
  const measures = () => shownMeasures(settings, events(), isCompared(props.columns));
  // Tables of calls have no events.
  const hasMeasures = () => events() > 0 || props.columns.length === 0;
  return (
    <div class="tools" role="toolbar" aria-label="Table">
      {props.lead}
      <Show when={props.filter}>
        {(filter) => (
          <span class="field" classList={{ wrong: filter().error !== null }}>
            <input
              type="search" class="filter" data-filter placeholder={`${filter().label}  ( / )`} aria-label={filter().label} spellcheck={false}
              title={filter().error ?? ""} aria-invalid={filter().error !== null} value={filter().text}
              onInput={(event) => filter().onChange(event.currentTarget.value, filter().regex)}
            />
            <button
              class="toggle" aria-pressed={filter().regex} title="Read the text as a regular expression"
              onClick={() => filter().onChange(filter().text, !filter().regex)}
            >.*</button>
          </span>
        )}
      </Show>
      <span class="note">{props.note}</span>
      <span class="space" />
      <span class="toggles" role="group" aria-label="Measures">
        <For each={hasMeasures() ? MEASURES : []}>
          {(measure) => (
            <button
              class="toggle" aria-pressed={measures()[measure]} title={`Columns with ${measure === "percent" ? "shares" : measure === "samples" ? "numbers of samples" : "time or events"}`}
              onClick={() => change({ measures: { ...measures(), [measure]: !measures()[measure] } })}
            >{TITLES[measure]}</button>
          )}
        </For>
        <button class="toggle" aria-pressed={settings.errors} title="Show standard errors" onClick={() => change({ errors: !settings.errors })}>±</button>
      </span>
      <Show when={measures().percent && (props.shares?.length ?? 0) > 0 && !report()}>
        <select
          aria-label="What shares are of" title="What shares are of: the sum of the column, the whole recording, the row above, or the first event in the row"
          onChange={(event) => change({ share: event.currentTarget.value as Share })}
        >
          <For each={["" as const, ...props.shares!]}>{(each) => <option value={each} selected={each === settings.share}>% {SHARE_TITLES[each]}</option>}</For>
        </select>
      </Show>
      {props.more}
      <Menu label="Columns">
        <For each={offeredColumns(props.columns, props.main).filter((column) => column.id !== props.main)}>
          {(column) => (
            <label>
              <input
                type="checkbox" checked={!settings.hidden[column.id]}
                onChange={(event) => change({ hidden: { ...settings.hidden, [column.id]: !event.currentTarget.checked } })}
              /> {column.name}<Show when={column.event}> <span class="dim">{column.event}</span></Show>
            </label>
          )}
        </For>
        <button onClick={() => change({ widths: {}, hidden: hiddenAtFirst(props.name), expanded: {}, measures: null, share: "", errors: false })}>As at first</button>
      </Menu>
      <Menu label="Save">
        <button onClick={() => props.onSave("csv")}>CSV, {props.saves ?? "all rows"}</button>
        <button onClick={() => props.onSave("json")}>JSON, {props.saves ?? "all rows"}</button>
      </Menu>
    </div>
  );
}

/** A button that shows a small panel. */
export function Menu(props: { label: string; children: JSX.Element; title?: string }) {
  const [isOpen, setOpen] = createSignal(false);
  let box!: HTMLSpanElement;
  const onAway = (event: Event) => { if (!box.contains(event.target as Node)) setOpen(false); };
  onMount(() => {
    addEventListener("pointerdown", onAway);
    onCleanup(() => removeEventListener("pointerdown", onAway));
  });
  return (
    <span
      class="menu" ref={box}
      onKeyDown={(event) => { if (event.key === "Escape" && isOpen()) { setOpen(false); event.stopPropagation(); box.querySelector("button")?.focus(); } }}
    >
      <button aria-expanded={isOpen()} aria-haspopup="true" title={props.title ?? ""} onClick={() => setOpen(!isOpen())}>{props.label} <span class="twisty" classList={{ open: isOpen() }} aria-hidden="true" /></button>
      <Show when={isOpen()}><div class="panel" role="group" aria-label={props.label}>{props.children}</div></Show>
    </span>
  );
}
