// The selection: which samples every view counts. Its conditions are parameters of most requests.

import { createSignal } from "solid-js";
import type { Parameters } from "../net/client";
import { ask } from "../net/client";
import type { Cell, RowKey, TableAnswer } from "../net/types";
import { isTrace, loaded } from "./profile";
import type { KeyList, PageState } from "./url";
import { go, KEY_LISTS, state, writeSpan } from "./url";

/** The events that get columns, the first one first. */
export function shownEvents(): string[] {
  const profile = loaded();
  if (!profile) return [];
  const sampled = profile.events.filter((event) => event.sampled).map((event) => event.key);
  const chosen = state.event.filter((key) => sampled.includes(key));
  const first = chosen.length > 0 ? chosen : profile.default_events.filter((key) => sampled.includes(key));
  return [...first, ...sampled.filter((key) => !first.includes(key))];
}

/** The parameters of a request about the selected samples. */
export function selection(without: readonly (KeyList | "time")[] = []): Parameters {
  const out: Parameters = {
    profile: state.profile,
    generation: loaded()?.generation,
    event: shownEvents(),
    inlined: state.inlined,
  };
  for (const list of KEY_LISTS) {
    if (without.includes(list)) continue;
    out[list] = list === "cpu" ? state.cpu.join(",") : [...state[list]];
  }
  if (state.time && !without.includes("time")) out.time = writeSpan(state.time);
  return out;
}

/** Whether the selection has any condition. */
export function isSelective(): boolean {
  return state.time !== null || KEY_LISTS.some((list) => state[list].length > 0);
}

/** Adds a condition, or removes it where it holds already. */
export function toggle(list: KeyList, key: string): void {
  const keys = state[list];
  go({ [list]: keys.includes(key) ? keys.filter((each) => each !== key) : [...keys, key] });
}

/** The change that selects a row's keys and nothing else of the same kinds. */
export function selectRow(key: RowKey): Partial<PageState> {
  const out: Partial<PageState> = {};
  for (const list of KEY_LISTS) {
    if (list === "through") continue;
    const value = key[list];
    if (value !== undefined) out[list] = [value];
  }
  if (key.time) out.time = key.time;
  return out;
}

const [names, setNames] = createSignal<ReadonlyMap<string, string>>(new Map());
const asked = new Set<string>();

/** Keeps the names of keys, so that the selection can show names instead of keys. */
export function learnNames(entries: readonly (readonly [KeyList, string, string])[]): void {
  const unknown = entries.filter(([list, key, name]) => names().get(`${list} ${key}`) !== name);
  if (unknown.length === 0) return;
  const next = new Map(names());
  for (const [list, key, name] of unknown) next.set(`${list} ${key}`, name);
  setNames(next);
}

/** The name of a key; the server is asked where no table has told it yet. */
export function nameOf(list: KeyList, key: string): string {
  if (list === "comm" || list === "cpu") return key;
  const kind = list === "through" ? "function" : list;
  const known = names().get(`${kind} ${key}`);
  if (known !== undefined) return known;
  const profile = loaded();
  if (profile && !isTrace() && !asked.has(`${kind} ${key}`)) {
    asked.add(`${kind} ${key}`);
    void askName(kind, key);
  }
  return key;
}

async function askName(kind: Exclude<KeyList, "through">, key: string): Promise<void> {
  try {
    const answer = await ask<TableAnswer>("table", { profile: state.profile, by: kind, [kind]: key, count: 1 });
    const row = answer.rows[0];
    if (row) learnNames([[kind, key, rowName(answer.columns, row.cells, kind)]]);
  } catch {
    // The key stands in for the name.
  }
}

/** A row's name: the cell of its level's column. */
export function rowName(columns: TableAnswer["columns"], cells: readonly Cell[], kind: string): string {
  const cell = (id: string) => {
    const at = columns.findIndex((column) => column.id === id);
    return at < 0 ? null : (cells[at] ?? null);
  };
  const name = cell("name") ?? cell(kind) ?? "";
  const number = cell("name") === null ? (kind === "process" ? cell("pid") : kind === "thread" ? cell("tid") : null) : null;
  return number === null ? String(name) : `${name} (${number})`;
}
