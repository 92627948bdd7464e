// The rows of a long table, fetched in blocks around what is in sight. 200,000 rows never are in the browser together.

import { type Accessor, createEffect, createSignal, on, onCleanup, untrack } from "solid-js";
import { ask, isCancelled, type Parameters, query } from "../net/client";
import type { ErrorBody, Row, TableAnswer } from "../net/types";
import { toBody } from "../state/query";
import type { RowSource, ShownRow } from "./model";

const BLOCK = 200;
const MOST_BLOCKS = 60;
/** While the reader scrolls, blocks that only flit by are not fetched. */
const PATIENCE_MS = 40;

export interface PagedRows {
  source: RowSource;
  /** The newest first block, for columns, totals and facts. */
  answer: Accessor<TableAnswer | null>;
  error: Accessor<ErrorBody | null>;
  busy: Accessor<boolean>;
}

/** Turns a row of an answer into one of a table. */
export function showRow(row: Row, depth: number, id: string): ShownRow {
  return { id, key: row.key, cells: row.cells, depth, below: row.below, errors: row.standard_errors, notes: row.notes };
}

/** Fetches the rows of a table whose parameters may change. Null fetches nothing. */
export function createPagedRows(parameters: Accessor<Parameters | null>, path = "table"): PagedRows {
  const [answer, setAnswer] = createSignal<TableAnswer | null>(null);
  const [error, setError] = createSignal<ErrorBody | null>(null);
  const [busy, setBusy] = createSignal(false);
  const [version, setVersion] = createSignal(0);
  let blocks = new Map<number, ShownRow[]>();
  let asked = new Set<number>();
  let wanted: [number, number] = [0, 0];
  let current: AbortController | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const fetchBlock = async (at: number, mine: AbortController, isFirst: boolean) => {
    const now = untrack(parameters);
    if (now === null) return;
    if (isFirst) setBusy(true);
    else asked.add(at);
    try {
      const next = await ask<TableAnswer>(path, { ...now, from: at * BLOCK, count: BLOCK }, mine.signal);
      if (current !== mine) return;
      if (isFirst) {
        // Only now the rows before give way, so that nothing flickers.
        blocks = new Map();
        asked = new Set();
        setAnswer(next);
        setError(null);
      }
      asked.add(at);
      blocks.set(at, next.rows.map((row) => showRow(row, 0, String(row.id))));
      forgetFar(blocks, asked, at);
      setVersion((before) => before + 1);
      if (isFirst) fetchMissing();
    } catch (problem) {
      if (current !== mine || isCancelled(problem)) return;
      asked.delete(at);
      setError(toBody(problem));
      if (isFirst) { blocks = new Map(); setAnswer(null); setVersion((before) => before + 1); }
    }
    if (isFirst) setBusy(false);
  };

  const fetchMissing = () => {
    const mine = current;
    if (!mine) return;
    const last = Math.ceil((untrack(answer)?.matching_rows ?? 0) / BLOCK) - 1;
    for (let at = Math.floor(wanted[0] / BLOCK); at <= Math.min(last, Math.floor(wanted[1] / BLOCK)); at++)
      if (!asked.has(at)) void fetchBlock(at, mine, false);
  };

  createEffect(on(() => { const now = parameters(); return now === null ? null : query(now); }, (now) => {
    current?.abort();
    current = null;
    clearTimeout(timer);
    if (now === null) return;
    current = new AbortController();
    void fetchBlock(0, current, true);
  }));
  onCleanup(() => { current?.abort(); clearTimeout(timer); });

  const source: RowSource = {
    total: () => answer()?.matching_rows ?? 0,
    row: (index) => { version(); return blocks.get(Math.floor(index / BLOCK))?.[index % BLOCK]; },
    want: (from, to) => {
      wanted = [from, to];
      clearTimeout(timer);
      timer = setTimeout(fetchMissing, PATIENCE_MS);
    },
  };
  return { source, answer, error, busy };
}

function forgetFar(blocks: Map<number, unknown>, asked: Set<number>, near: number): void {
  while (blocks.size > MOST_BLOCKS) {
    let farthest = near;
    for (const at of blocks.keys()) if (Math.abs(at - near) > Math.abs(farthest - near)) farthest = at;
    blocks.delete(farthest);
    asked.delete(farthest);
  }
}
