// The rows of a replay, fetched in blocks around what is in sight. A trace may have billions of rows, and browsers scroll
// no list that is higher than some ten million pixels: a window of rows is shown, which the reader moves.

import { type Accessor, createEffect, createSignal, on, onCleanup, untrack } from "solid-js";
import { ask, isCancelled, type Parameters, query } from "../net/client";
import type { StoredReplay } from "../net/storedReplay";
import type { Column, ErrorBody, Fact, ReplayAnswer } from "../net/types";
import { toBody } from "../state/query";
import type { RowSource, ShownRow } from "../table/model";
import type { CallPlace } from "./state";

const BLOCK = 200;
/** The blocks that are shown before all rows are counted. */
const PREVIEW_BLOCKS = 5;
const MOST_BLOCKS = 80;
const PATIENCE_MS = 40;
/** The rows of a window. */
export const WINDOW = 500_000;
/** Deeper calls are not indented further. */
const MOST_DEPTH = 60;

/** A row with the call that it is about. */
export interface CallRow extends ShownRow {
  index: number;
  name: string;
  call: CallPlace | null;
  ended: boolean;
}

export interface ReplayRows {
  source: RowSource;
  row(index: number): CallRow | undefined;
  /** All rows of the selection, and the first one of the window. */
  total: Accessor<number>;
  base: Accessor<number>;
  setBase(row: number): void;
  /** The rows of the trace: more than all where a report stores only the first ones. */
  whole: Accessor<number>;
  facts: Accessor<readonly Fact[]>;
  error: Accessor<ErrorBody | null>;
  /** No row is there yet. */
  busy: Accessor<boolean>;
  /** All rows are being counted; the first ones may be there. */
  counting: Accessor<boolean>;
}

export function replayColumns(ticks: boolean): Column[] {
  const unit = ticks ? "ticks" : "ns";
  const column = (id: string, name: string, kind: string, of: string | null): Column => ({ id, name, kind, unit: of, event: null, parent: null, for_programs: false });
  return [column("call", "call", "name", null), column("thread", "thread", "name", null), column("time", "time", "time", unit), column("duration", "duration", "time", unit)];
}

function text(row: ReplayAnswer["rows"][number], name: string): string {
  const note = row.note === undefined ? "" : `  /* ${row.note} */`;
  switch (row.kind) {
    case "call": return `${name}();${note}`;
    case "enter": return `${name}() {`;
    case "leave": return `} /* ${name}${row.note === undefined ? "" : `: ${row.note}`} */`;
    case "event": return `/* ${name}${row.note === undefined ? "" : ` ${row.note}`} */`;
    default: return `/* ${row.note ?? "records are missing"} */`;
  }
}

/** Fetches the rows of a replay whose parameters may change. */
export function createReplayRows(parameters: Accessor<Parameters>): ReplayRows {
  const [total, setTotal] = createSignal(0);
  const [whole, setWhole] = createSignal(0);
  const [facts, setFacts] = createSignal<readonly Fact[]>([]);
  const [base, setBase] = createSignal(0);
  const [error, setError] = createSignal<ErrorBody | null>(null);
  const [busy, setBusy] = createSignal(false);
  const [counting, setCounting] = createSignal(false);
  const [version, setVersion] = createSignal(0);
  let blocks = new Map<number, CallRow[]>();
  let asked = new Set<number>();
  let wanted: [number, number] = [0, 0];
  let current: AbortController | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const toRows = (answer: ReplayAnswer): CallRow[] => answer.rows.map((row, at) => {
    const fn = row.function === null ? undefined : answer.functions[row.function];
    const thread = answer.threads[row.thread];
    const name = fn?.name ?? "";
    const begin = row.kind === "leave" ? row.begin_ns : row.time_ns;
    const isCall = row.kind === "call" || row.kind === "enter" || row.kind === "leave";
    return {
      id: String(answer.from + at), index: answer.from + at, name, key: { ...(fn ? { function: fn.key } : {}), ...(thread?.key ?? {}) },
      cells: [text(row, name), thread ? `${thread.name} (${thread.tid})` : "", row.time_ns, row.duration_ns],
      depth: Math.min(row.depth, MOST_DEPTH), below: 0, ended: row.duration_ns !== null,
      call: isCall && thread && begin !== null ? { tid: thread.tid, begin, end: begin + (row.duration_ns ?? 0) } : null,
    };
  });
  /** Shows the first rows while the others are being counted. */
  const fetchPreview = async (mine: AbortController) => {
    try {
      const answer = await ask<ReplayAnswer>("trace/replay", { ...untrack(parameters), count: PREVIEW_BLOCKS * BLOCK, preview: true }, mine.signal);
      if (current !== mine || !untrack(counting) || answer.rows.length === 0) return;
      const rows = toRows(answer);
      for (let at = 0; at * BLOCK < rows.length; at++) {
        blocks.set(at, rows.slice(at * BLOCK, (at + 1) * BLOCK));
        // A block that is not full may be cut off.
        if ((at + 1) * BLOCK <= rows.length) asked.add(at);
      }
      setTotal(answer.total_rows);
      setVersion((before) => before + 1);
      setBusy(false);
      // The server had counted them before.
      if (answer.counted) { setWhole(answer.total_rows); setFacts(answer.facts); setCounting(false); fetchMissing(); }
    } catch {
      // The request that counts tells what is wrong.
    }
  };
  const fetchBlock = async (at: number, mine: AbortController, isFirst: boolean) => {
    if (isFirst) { setBusy(true); setCounting(true); }
    asked.add(at);
    try {
      const answer = await ask<ReplayAnswer & Partial<StoredReplay>>("trace/replay", { ...untrack(parameters), from: at * BLOCK, count: BLOCK }, mine.signal);
      if (current !== mine) return;
      if (isFirst) { setCounting(false); setTotal(answer.total_rows); setWhole(answer.whole_rows ?? answer.total_rows); setFacts(answer.facts); setError(null); }
      blocks.set(at, toRows(answer));
      while (blocks.size > MOST_BLOCKS) {
        let farthest = at;
        for (const each of blocks.keys()) if (Math.abs(each - at) > Math.abs(farthest - at)) farthest = each;
        blocks.delete(farthest);
        asked.delete(farthest);
      }
      setVersion((before) => before + 1);
      if (isFirst) fetchMissing();
    } catch (problem) {
      if (current !== mine || isCancelled(problem)) return;
      asked.delete(at);
      setError(toBody(problem));
    }
    if (isFirst && current === mine) { setBusy(false); setCounting(false); }
  };
  const fetchMissing = () => {
    const mine = current;
    // Rows behind the preview's would wait for the count anyway.
    if (!mine || untrack(counting)) return;
    const last = Math.ceil(untrack(total) / BLOCK) - 1;
    for (let at = Math.floor(wanted[0] / BLOCK); at <= Math.min(last, Math.floor(wanted[1] / BLOCK)); at++)
      if (!asked.has(at)) void fetchBlock(at, mine, false);
  };
  createEffect(on(() => query(parameters()), () => {
    current?.abort();
    clearTimeout(timer);
    blocks = new Map();
    asked = new Set();
    setBase(0);
    current = new AbortController();
    void fetchBlock(0, current, true);
    void fetchPreview(current);
  }));
  onCleanup(() => { current?.abort(); clearTimeout(timer); });

  const row = (index: number) => { version(); return blocks.get(Math.floor(index / BLOCK))?.[index % BLOCK]; };
  return {
    total, whole, base, facts, error, busy, counting, row,
    setBase: (first) => setBase(Math.max(0, Math.min(first, Math.max(0, total() - WINDOW)))),
    source: {
      total: () => Math.min(WINDOW, total() - base()),
      row: (index) => row(base() + index),
      want: (from, to) => {
        wanted = [untrack(base) + from, untrack(base) + to];
        clearTimeout(timer);
        timer = setTimeout(fetchMissing, PATIENCE_MS);
      },
      // Rows have depths, so that they are indented, and none can be opened.
      isOpen: () => true,
      setOpen: () => undefined,
    },
  };
}
