// A list of rows of code with its own cursor: virtual rows, arrow keys, a current row that other panes bring into sight.

import { type Accessor, createEffect, createMemo, createSignal, createUniqueId, For, Index, type JSX, on, Show } from "solid-js";
import { visible } from "../names";
import type { FunctionAnswer } from "../net/types";
import { type Compared, compare, type Counts, countHint, countText, eventsShown, type Measure } from "./counts";
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

/** The heads of the events' columns. */
export function EventHeads(props: { answer: FunctionAnswer }) {
  return (
    <For each={eventsShown(props.answer)}>
      {(event) => (
        <>
          <span class="code-cell number" role="columnheader" title={visible(event.name)}>{visible(event.name)}</span>
          <Show when={props.answer.other}><span class="code-cell number" role="columnheader" title={`${visible(event.name)} in the profile that is compared`}>there</span><span class="code-cell change" role="columnheader" title={`The change of ${visible(event.name)} from here to there; grey where it is no larger than chance makes it`}>change</span></Show>
        </>
      )}
    </For>
  );
}

interface EventCellsProps {
  answer: FunctionAnswer;
  measure: Measure;
  /** By event. */
  here: readonly Counts[];
  errors?: readonly number[];
  /** The same in the other profile; null where nothing can be compared. */
  there(event: number): Counts | null;
}

/** The cells of all events in a row: the count here, and where profiles are compared the count there and the change. */
export function EventCells(props: EventCellsProps) {
  return (
    <For each={eventsShown(props.answer)}>
      {(event, e) => {
        const here = () => props.here[e()] ?? { samples: 0, weight: 0 };
        const compared = (): Compared | null => compare(event, props.answer.other?.events[e()] ?? null, props.measure, here(), props.there(e()));
        return (
          <>
            <ShareCell
              samples={here().samples} weight={here().weight} total={event.own.weight} text={countText(event, props.measure, here().samples, here().weight)}
              hint={countHint(event, here().samples, here().weight, props.errors?.[e()])}
            />
            <Show when={props.answer.other}>
              <ShareCell samples={props.there(e())?.samples ?? 0} weight={props.there(e())?.weight ?? 0} total={props.answer.other?.events[e()]?.own.weight ?? 0} text={compared()?.there ?? ""} hint={compared()?.hint ?? ""} />
              <span class="code-cell change" role="gridcell" title={compared()?.hint ?? ""} classList={{ few: compared()?.within === true }}>{compared()?.change ?? ""}</span>
            </Show>
          </>
        );
      }}
    </For>
  );
}
