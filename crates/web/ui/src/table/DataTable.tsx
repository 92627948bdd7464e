// A table for any number of rows: virtual rows, groups of columns that expand in place, trees, a totals row, and the
// keyboard. Only the rows in sight exist as elements.

import { createEffect, createMemo, createSignal, createUniqueId, For, Index, on, onCleanup, onMount, Show } from "solid-js";
import { cutMiddle, fold, visible } from "../names";
import type { Cell, Column } from "../net/types";
import { copyText } from "../save";
import { arrangeColumns, type ShownColumn } from "./columns";
import { TableHead } from "./Head";
import { type RowSource, type ShownRow, type Sorting } from "./model";
import { NumberCell } from "./NumberCell";
import { tableSettings } from "./settings";
import { createRowHeight, createVirtualRows } from "./virtual";
import { createWidths } from "./widths";

export interface TableProps {
  /** The name of its settings. */
  name: string;
  /** Its label for screen readers. */
  label: string;
  columns: readonly Column[];
  /** The level whose column names a row, such as `function`. */
  level: string;
  rows: RowSource;
  totals: Cell[] | null;
  totalsLabel: string;
  sorting: Sorting | null;
  onSort(column: ShownColumn): void;
  isSelected?(row: ShownRow): boolean;
  /** Space or a click. */
  onSelect?(row: ShownRow): void;
  /** Enter or a double click. */
  onOpen?(row: ShownRow): void;
  busy: boolean;
  emptyText: string;
  /** The columns whose errors are shown whatever the reader's setting, since their values mean nothing without them. */
  showErrors?(column: string): boolean;
  /** A row to bring into sight, whenever it changes. */
  reveal?: number;
}

export function DataTable(props: TableProps) {
  let scroll!: HTMLDivElement;
  const id = createUniqueId();
  const { settings, change } = tableSettings(props.name);
  const rowHeight = createRowHeight();
  const arranged = createMemo(() => arrangeColumns(props.columns, props.level, settings));
  const headRows = () => 2 + (props.totals ? 1 : 0);
  const headHeight = () => headRows() * rowHeight();
  const virtual = createVirtualRows(() => scroll, () => props.rows.total(), rowHeight, headHeight);
  const [active, setActive] = createSignal(0);
  const [room, setRoom] = createSignal(800);
  const widths = createWidths(() => arranged().shown, settings, change, room, (column) => settings.errors || props.showErrors?.(column) === true);

  onMount(() => {
    const observer = new ResizeObserver(() => setRoom(scroll.clientWidth));
    observer.observe(scroll);
    onCleanup(() => observer.disconnect());
  });
  createEffect(() => {
    const items = virtual.items();
    const first = items[0];
    const last = items[items.length - 1];
    if (first && last) props.rows.want(first.index, last.index);
  });
  createEffect(() => scroll.style.setProperty("--columns", widths.template()));
  createEffect(on(() => props.rows.total(), (total) => setActive((now) => Math.max(0, Math.min(now, total - 1)))));

  const main = () => arranged().shown.find((column) => column.kind === "main");
  const wholeName = (row: ShownRow) => { const column = main(); return column ? String(row.cells[column.at] ?? "") : ""; };
  const moveTo = (index: number) => {
    const next = Math.max(0, Math.min(props.rows.total() - 1, index));
    setActive(next);
    virtual.scrollTo(next);
  };
  createEffect(on(() => [props.reveal, props.rows.total() > 0], () => {
    if (props.reveal === undefined || props.reveal < 0 || props.reveal >= props.rows.total()) return;
    setActive(props.reveal);
    virtual.scrollTo(props.reveal, "center");
  }));
  const onKey = (event: KeyboardEvent) => {
    if (event.target !== scroll) return;
    const row = props.rows.row(active());
    const page = Math.max(1, Math.floor((scroll.clientHeight - headHeight()) / rowHeight()) - 1);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step !== undefined && !event.ctrlKey && !event.metaKey && !event.altKey) moveTo(active() + step);
    else if (event.key === "ArrowRight" && row && row.below > 0) props.rows.setOpen?.(row, true);
    else if (event.key === "ArrowLeft" && row) closeOrLeave(row);
    else if (event.key === "Enter" && row) (props.onOpen ?? props.onSelect)?.(row);
    else if (event.key === " " && row) props.onSelect?.(row);
    else if (event.key === "c" && row && !getSelection()?.toString()) void copyText(wholeName(row));
    else return;
    event.preventDefault();
  };
  const closeOrLeave = (row: ShownRow) => {
    if (props.rows.isOpen?.(row)) { props.rows.setOpen?.(row, false); return; }
    for (let at = active() - 1; at >= 0; at--) if ((props.rows.row(at)?.depth ?? 0) < row.depth) { moveTo(at); return; }
  };

  return (
    <div
      ref={scroll} class="table" classList={{ busy: props.busy }} tabindex="0" onKeyDown={onKey}
      role={props.rows.setOpen ? "treegrid" : "grid"} aria-label={props.label} aria-busy={props.busy}
      aria-rowcount={props.rows.total() + headRows()} aria-colcount={arranged().shown.length}
      aria-activedescendant={virtual.items().some((item) => item.index === active()) ? `${id}-${active()}` : undefined}
    >
      <TableHead
        columns={arranged().shown} groups={arranged().groups} sorting={props.sorting} onSort={props.onSort} settings={settings}
        change={change} widths={widths} totals={props.totals} totalsLabel={props.totalsLabel} width={widths.total()}
      />
      <div class="rows" role="rowgroup" style={{ height: `${virtual.height()}px`, width: `${widths.total()}px` }}>
        <Index each={virtual.slots()}>
          {(slot) => {
            const index = createMemo(() => slot()?.index ?? -1);
            const row = createMemo(() => (index() < 0 ? undefined : props.rows.row(index())));
            const isSelected = createMemo(() => { const now = row(); return now !== undefined && props.isSelected?.(now) === true; });
            return (
              <div
                class="row" role="row" id={index() < 0 ? undefined : `${id}-${index()}`} aria-rowindex={index() < 0 ? undefined : index() + headRows() + 1}
                aria-level={props.rows.setOpen && row() ? row()!.depth + 1 : undefined}
                aria-expanded={row() && row()!.below > 0 && props.rows.isOpen ? props.rows.isOpen(row()!) : undefined}
                aria-selected={row() && props.isSelected ? isSelected() : undefined}
                classList={{ active: index() === active(), odd: index() % 2 === 1, selected: isSelected(), hidden: index() < 0 }}
                style={{ transform: `translateY(${slot()?.start ?? 0}px)` }}
                onClick={() => { setActive(index()); const now = row(); if (now) props.onSelect?.(now); }}
                onDblClick={() => { const now = row(); if (now) props.onOpen?.(now); }}
              >
                <Show when={row()} fallback={<div role="gridcell" class="cell main waiting">{index() < 0 ? "" : "…"}</div>}>
                  {(row) => (
                    <For each={arranged().shown}>
                      {(column) => column.kind === "number"
                        ? <NumberCell column={column} row={row()} errors={settings.errors || props.showErrors?.(column.id) === true} />
                        : <NameCell column={column} row={row()} rows={props.rows} {...(props.onOpen ? { onOpen: props.onOpen } : {})} />}
                    </For>
                  )}
                </Show>
              </div>
            );
          }}
        </Index>
      </div>
      <Show when={props.rows.total() === 0 && !props.busy}>
        <div class="empty">{props.emptyText}</div>
      </Show>
    </div>
  );
}

function NameCell(props: { column: ShownColumn; row: ShownRow; rows: RowSource; onOpen?(row: ShownRow): void }) {
  const text = () => { const cell = props.row.cells[props.column.at]; return cell === null || cell === undefined ? "" : String(cell); };
  const isMain = () => props.column.kind === "main";
  // Modules and threads have no type arguments: what looks like them is a part of their names.
  const isFunction = () => props.column.id === "function";
  const shown = () => (isFunction() ? fold(text()) : visible(cutMiddle(text(), 300))) || (isMain() ? "[no name]" : "");
  const isTree = () => isMain() && props.rows.setOpen !== undefined;
  const isOpen = () => props.rows.isOpen?.(props.row) ?? false;
  return (
    <div
      class="cell" classList={{ main: isMain(), name: !isMain() }} role={isMain() ? "rowheader" : "gridcell"} title={visible(text()).slice(0, 4000)}
      onCopy={(event) => { event.clipboardData?.setData("text/plain", text()); event.preventDefault(); }}
    >
      <Show when={isTree()}>
        <span class="indent" style={{ width: `${props.row.depth * 1.1}rem` }} />
        <span
          class="twisty" classList={{ open: isOpen(), leaf: props.row.below === 0 }} aria-hidden="true"
          onClick={(event) => { event.stopPropagation(); props.rows.setOpen?.(props.row, !isOpen()); }}
        />
      </Show>
      <Show when={isMain() && props.onOpen} fallback={<span class="label">{shown()}</span>}>
        <span class="label link" onClick={(event) => { event.stopPropagation(); props.onOpen?.(props.row); }}>{shown()}</span>
      </Show>
    </div>
  );
}
