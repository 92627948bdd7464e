// A list of rows of code with its own cursor: virtual rows, arrow keys, a current row that other panes bring into sight.

import { type Accessor, createEffect, createMemo, createSignal, createUniqueId, Index, type JSX, on, Show } from "solid-js";
import { createRowHeight, createVirtualRows } from "../table/virtual";

/** Classes that rows may have; one that a row has no more must be taken away. */
const NO_CLASSES = { picked: false, cold: false, "in-block": false, "block-row": false, "inlined-row": false };

interface RowsProps {
  label: string;
  count: number;
  head: JSX.Element;
  /** A row to bring into sight; -1 for none. Each new object scrolls once. */
  show: { row: number };
  /** Makes a row once; the accessor tells which row it shows now. */
  render(row: Accessor<number>): JSX.Element;
  classOf(row: number): Record<string, boolean>;
  onPick(row: number): void;
  onOpen?(row: number): void;
  onKey?(key: string, row: number): boolean;
}

export function CodeRows(props: RowsProps) {
  let scroll!: HTMLDivElement;
  const id = createUniqueId();
  const rowHeight = createRowHeight(1.55);
  const virtual = createVirtualRows(() => scroll, () => props.count, rowHeight, rowHeight);
  const [active, setActive] = createSignal(0);
  createEffect(on(() => [props.show, props.count] as const, ([show]) => {
    if (show.row < 0) return;
    setActive(show.row);
    queueMicrotask(() => virtual.scrollTo(show.row, "center"));
  }));
  const moveTo = (row: number) => {
    const next = Math.max(0, Math.min(props.count - 1, row));
    setActive(next);
    virtual.scrollTo(next);
    props.onPick(next);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(scroll.clientHeight / rowHeight()) - 2);
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step !== undefined) moveTo(active() + step);
    else if (event.key === " ") props.onPick(active());
    else if (event.key === "Enter") (props.onOpen ?? props.onPick)(active());
    else if (!props.onKey?.(event.key, active())) return;
    event.preventDefault();
  };
  return (
    <div
      class="code" ref={scroll} tabindex="0" role="grid" aria-label={props.label} aria-rowcount={props.count + 1} onKeyDown={onKey}
      aria-activedescendant={virtual.items().some((item) => item.index === active()) ? `${id}-${active()}` : undefined}
    >
      <div class="code-head" role="row" aria-rowindex="1">{props.head}</div>
      <div class="code-rows" role="rowgroup" style={{ height: `${virtual.height()}px` }}>
        <Index each={virtual.slots()}>
          {(slot) => {
            const index = createMemo(() => slot()?.index ?? -1);
            const classes = createMemo((): Record<string, boolean> => (index() < 0 || index() >= props.count ? {} : props.classOf(index())));
            return (
              <div
                class="code-row" role="row" id={index() < 0 ? undefined : `${id}-${index()}`} aria-rowindex={index() < 0 ? undefined : index() + 2}
                aria-selected={classes().picked === true} classList={{ active: index() === active(), hidden: index() < 0, ...NO_CLASSES, ...classes() }}
                style={{ transform: `translateY(${slot()?.start ?? 0}px)`, height: `${rowHeight()}px` }}
                onClick={() => { setActive(index()); props.onPick(index()); }} onDblClick={() => props.onOpen?.(index())}
              ><Show when={index() >= 0 && index() < props.count}>{props.render(index)}</Show></div>
            );
          }}
        </Index>
      </div>
    </div>
  );
}

/** A share of the function's samples, with a bar and the count on hover; empty where there is none. */
export function ShareCell(props: { samples: number; weight: number; total: number; text: string; hint: string }) {
  const part = () => (props.total > 0 ? props.weight / props.total : 0);
  return (
    <span class="code-cell number" role="gridcell" title={props.hint} classList={{ hot: part() >= 0.1, few: props.samples > 0 && props.samples < 10 }} style={{ "--bar": `${Math.min(100, part() * 100)}%` }}>
      {props.samples > 0 ? props.text : ""}
    </span>
  );
}
