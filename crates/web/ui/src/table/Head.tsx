// The head of a table: the events' groups, the columns' titles, and the totals.

import { For, Show } from "solid-js";
import { inFull, inUnit } from "../format";
import { fold, visible } from "../names";
import type { Cell } from "../net/types";
import type { Group, ShownColumn } from "./columns";
import type { Sorting } from "./model";
import type { TableSettings } from "./settings";
import type { Widths } from "./widths";

interface HeadProps {
  columns: ShownColumn[];
  groups: Group[];
  sorting: Sorting | null;
  onSort(column: ShownColumn): void;
  settings: TableSettings;
  change(part: Partial<TableSettings>): void;
  widths: Widths;
  totals: Cell[] | null;
  totalsLabel: string;
  width: number;
}

export function TableHead(props: HeadProps) {
  const expand = (id: string, open: boolean) => props.change({ expanded: { ...props.settings.expanded, [id]: open } });
  return (
    <div class="head" role="rowgroup" style={{ width: `${props.width}px` }}>
      <div class="row groups" role="row" aria-rowindex="1">
        <For each={props.groups}>
          {(group) => (
            <div class="cell group" classList={{ event: group.event !== null }} role="columnheader" aria-colspan={group.span} style={{ "grid-column": `span ${group.span}` }}>
              <Show when={group.event}>
                {(event) => (
                  <Show when={group.canOpen} fallback={<span class="label" title={visible(event())}>{fold(event())}</span>}>
                    <button
                      class="label" aria-expanded={group.isOpen} title={`${visible(event())}: ${group.isOpen ? "fewer" : "all"} columns`}
                      onClick={() => expand(`event ${event()}`, !group.isOpen)}
                    >{fold(event())} <span class="twisty" classList={{ open: group.isOpen }} aria-hidden="true" /></button>
                  </Show>
                )}
              </Show>
            </div>
          )}
        </For>
      </div>
      <div class="row titles" role="row" aria-rowindex="2">
        <For each={props.columns}>
          {(column) => {
            const direction = () => (props.sorting?.column === column.id ? props.sorting.direction : null);
            return (
              <div
                class="cell title" classList={{ main: column.kind === "main", number: column.kind === "number", sorted: direction() !== null }}
                role="columnheader" aria-sort={direction() === "asc" ? "ascending" : direction() === "desc" ? "descending" : "none"}
              >
                <button class="label" title={`${visible(column.hint)}. Click to sort.`} onClick={() => props.onSort(column)}>
                  {visible(column.title)}<span class="arrow" aria-hidden="true">{direction() === "asc" ? " ▲" : direction() === "desc" ? " ▼" : ""}</span>
                </button>
                <Show when={column.hasParts}>
                  <button
                    class="parts" aria-label={`Parts of ${column.title}`} aria-expanded={column.isOpen}
                    onClick={() => expand(column.id, !column.isOpen)}
                  ><span class="twisty" classList={{ open: column.isOpen }} aria-hidden="true" /></button>
                </Show>
                <Grip width={() => props.widths.get(column.id)} onChange={(width) => props.widths.set(column.id, width)} />
              </div>
            );
          }}
        </For>
      </div>
      <Show when={props.totals}>
        {(totals) => (
          <div class="row totals" role="row" aria-rowindex="3">
            <For each={props.columns}>
              {(column) => {
                const value = () => totals()[column.at] ?? null;
                return (
                  <div
                    class="cell" classList={{ main: column.kind === "main", number: column.kind === "number", name: column.kind === "name" }}
                    role={column.kind === "main" ? "rowheader" : "gridcell"} title={typeof value() === "number" ? inFull(value() as number, column.unit) : ""}
                  >
                    {column.kind === "main" ? <span class="label">{props.totalsLabel}</span>
                      : column.kind === "number" && typeof value() === "number" ? inUnit(value() as number, column.unit) : ""}
                  </div>
                );
              }}
            </For>
          </div>
        )}
      </Show>
    </div>
  );
}

function Grip(props: { width(): number; onChange(width: number): void }) {
  let from = 0;
  let width = 0;
  return (
    <span
      class="grip" aria-hidden="true"
      onPointerDown={(event) => {
        from = event.clientX;
        width = props.width();
        event.currentTarget.setPointerCapture(event.pointerId);
        event.preventDefault();
      }}
      onPointerMove={(event) => { if (event.currentTarget.hasPointerCapture(event.pointerId)) props.onChange(width + event.clientX - from); }}
    />
  );
}
