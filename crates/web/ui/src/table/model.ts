// What a table shows, apart from how it is drawn.

import type { Accessor } from "solid-js";
import type { Cell, RowKey } from "../net/types";

/** A row as the table draws it. */
export interface ShownRow {
  /** Unique among the rows that are there now. */
  id: string;
  key: RowKey;
  cells: readonly Cell[];
  depth: number;
  /** How many rows stand directly below it in a tree. */
  below: number;
  errors?: Record<string, number> | undefined;
  notes?: Record<string, string> | undefined;
}

/** Rows by position. Reading `row` and `total` in an effect follows later changes. */
export interface RowSource {
  total: Accessor<number>;
  row(index: number): ShownRow | undefined;
  /** Says which rows are in sight, so that they can be fetched. */
  want(from: number, to: number): void;
  /** Trees: whether a row is open, and how to open or close it. */
  isOpen?(row: ShownRow): boolean;
  setOpen?(row: ShownRow, open: boolean): void;
}

export interface Sorting {
  column: string;
  direction: "asc" | "desc";
}

/** The next step of sorting by a column: numbers begin with the largest, names with the first; the third click ends it. */
export function nextSorting(now: Sorting | null, column: string, isName: boolean): Sorting | null {
  const first = isName ? "asc" : "desc";
  if (!now || now.column !== column) return { column, direction: first };
  if (now.direction === first) return { column, direction: first === "asc" ? "desc" : "asc" };
  return null;
}

export function writeSorting(sorting: Sorting | null): string {
  return sorting ? `${sorting.column}:${sorting.direction}` : "";
}

export function readSorting(text: string): Sorting | null {
  const at = text.lastIndexOf(":");
  const direction = text.slice(at + 1);
  return at > 0 && (direction === "asc" || direction === "desc") ? { column: text.slice(0, at), direction } : null;
}
