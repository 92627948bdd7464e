// Parts of stored answers, as the server cuts them from whole ones.

import { count } from "../format";
import { csv } from "../save";
import { type Parameters, RequestError } from "./request";
import type { Cell, Column, FlameAnswer, Row, TableAnswer, TimelineAnswer } from "./types";

/** A part of a table of which a report may store only the first rows. */
export interface StoredTable extends TableAnswer {
  /** The number of stored rows, of all levels. */
  stored_rows: number;
  /** The number of rows that the server's table has, of all levels. */
  whole_rows: number;
}

/** The columns that name rows, the first one that a table has. */
const NAMES = ["name", "function", "process", "thread", "program", "comm", "file", "module", "cpu"];

/** The rows that a request asks for, of a whole table. */
export function tablePart(whole: TableAnswer, parameters: Parameters): StoredTable {
  const children = new Map<number | null, Row[]>();
  const ids = new Set(whole.rows.map((row) => row.id));
  for (const row of whole.rows) {
    const parent = row.parent !== null && ids.has(row.parent) ? row.parent : null;
    const siblings = children.get(parent);
    if (siblings) siblings.push(row);
    else children.set(parent, [row]);
  }
  const sorting = readSort(whole.columns, String(parameters.sort ?? ""));
  const passes = readFilter(whole.columns, String(parameters.filter ?? ""), parameters.regex === true);
  const below = (id: number | null) => children.get(id) ?? [];
  const kept = new Set<number>();
  const keep = (row: Row, inherited: boolean): boolean => {
    const passing = inherited || passes === null || passes(row);
    let is = passing;
    for (const child of below(row.id)) if (keep(child, passing)) is = true;
    if (is) kept.add(row.id);
    return is;
  };
  for (const row of below(null)) keep(row, false);
  const from = Number(parameters.from ?? 0);
  const most = Number(parameters.count ?? 200);
  const start = typeof parameters.below === "number" ? parameters.below : null;
  const levels = start !== null ? 1 : Number(parameters.levels ?? Number.MAX_SAFE_INTEGER);
  const shown: Row[] = [];
  const add = (id: number | null, level: number) => {
    if (level >= levels) return;
    for (const row of sorted(below(id).filter((each) => kept.has(each.id)), sorting)) {
      shown.push(passes === null ? row : { ...row, below: below(row.id).filter((each) => kept.has(each.id)).length });
      add(row.id, level + 1);
    }
  };
  add(start, 0);
  const rows = shown.slice(from, from + most);
  return {
    ...whole, from, matching_rows: shown.length,
    total_rows: start === null && levels > 1 ? whole.total_rows : below(start).length,
    rows: parameters.errors === true ? rows : rows.map(({ standard_errors, ...row }) => row),
    totals: passes === null ? whole.totals : whole.columns.map((column, at) => total(column, below(null).filter((row) => kept.has(row.id)).map((row) => row.cells[at] ?? null))),
    sorted_by: sorting ? { column: sorting.column, direction: sorting.sign > 0 ? "asc" : "desc" } : whole.sorted_by,
    stored_rows: whole.rows.length, whole_rows: whole.total_rows,
  };
}

interface Sort { column: string; at: number; sign: number; isAddress: boolean }

function readSort(columns: readonly Column[], text: string): Sort | null {
  if (!text) return null;
  const match = /^(.*):(asc|desc)$/.exec(text);
  const column = match?.[1] ?? text;
  const at = columns.findIndex((each) => each.id === column);
  if (at < 0) throw new RequestError({ code: "no_such_column", text: `the profile has no column with the key \`${column}\``, remedy: null });
  const direction = match?.[2] ?? (columns[at]!.kind === "name" ? "asc" : "desc");
  return { column, at, sign: direction === "asc" ? 1 : -1, isAddress: columns[at]!.kind === "address" };
}

/** Rows in order. Cells without a value come last, and rows with equal cells keep their order. */
function sorted(rows: readonly Row[], by: Sort | null): readonly Row[] {
  if (!by) return rows;
  const compare = (a: Cell, b: Cell): number => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    const [one, other] = [String(a), String(b)];
    if (by.isAddress && one.length !== other.length) return one.length - other.length;
    return one < other ? -1 : one > other ? 1 : 0;
  };
  return [...rows].sort((a, b) => {
    const [one, other] = [a.cells[by.at] ?? null, b.cells[by.at] ?? null];
    if (one === null || other === null) return Number(one === null) - Number(other === null);
    return by.sign * compare(one, other);
  });
}

function readFilter(columns: readonly Column[], text: string, isRegex: boolean): ((row: Row) => boolean) | null {
  if (!text) return null;
  const name = NAMES.find((id) => columns.some((column) => column.id === id));
  const at = columns.findIndex((column) => column.id === name);
  const wanted = text.toLowerCase();
  let passes = (name: string) => name.toLowerCase().includes(wanted);
  if (isRegex) {
    try {
      const pattern = new RegExp(text, "i");
      passes = (name) => pattern.test(name);
    } catch (error) {
      throw new RequestError({ code: "bad_pattern", text: `the filter is no regular expression: ${error instanceof Error ? error.message : String(error)}`, remedy: null });
    }
  }
  return (row) => at < 0 || passes(String(row.cells[at] ?? ""));
}

/** A sentence about the rows that a report left out of a table; empty where there are none. */
export function cutNote(table: TableAnswer): string {
  if (!("stored_rows" in table)) return "";
  const { stored_rows, whole_rows } = table as StoredTable;
  return stored_rows < whole_rows ? `This report holds the first ${count(stored_rows)} of ${count(whole_rows)} rows.` : "";
}

/** The sum of cells; null where a sum means nothing. */
function total(column: Column, cells: readonly Cell[]): Cell {
  // Samples of a called function count in its callers, too.
  const isSum = column.kind === "count" || column.kind === "weight" || (column.unit === "percent" && !column.id.startsWith("total_"));
  const numbers = cells.filter((cell) => typeof cell === "number");
  return isSum && numbers.length > 0 ? numbers.reduce((sum, each) => sum + each, 0) : null;
}

/** A table as a file. */
export function tableFile(table: TableAnswer, format: "csv" | "json"): Blob {
  if (format === "csv") return new Blob([csv([table.columns.map((column) => column.id), ...table.rows.map((row) => row.cells)])], { type: "text/csv" });
  const { schema, facts, columns, rows } = table;
  return new Blob([JSON.stringify({ schema, facts, columns, rows })], { type: "application/json" });
}

/** The subtree that a request asks for, of a whole tree. Nodes stand behind their parents, subtrees together. */
export function cutTree(whole: FlameAnswer, parameters: Parameters): FlameAnswer {
  const { nodes } = whole;
  const path = Array.isArray(parameters.path) ? parameters.path.map(String) : [];
  // Call trees of traces are asked for by a node's number.
  const numbered = typeof parameters.root === "number" ? nodes.id.indexOf(parameters.root) : -1;
  const isRooted = path.length > 0 || numbered >= 0;
  let root = numbered;
  for (const key of path) {
    const next = nodes.id.findIndex((_, at) => nodes.parent[at] === root && whole.functions[nodes.function[at]!]?.key === key);
    // As the server does, a path leads as far as there are nodes for it.
    if (next < 0) break;
    root = next;
  }
  if (isRooted && root < 0) return cutTree(whole, { ...parameters, path: [] });
  const levels = Number(parameters.levels ?? Number.MAX_SAFE_INTEGER);
  if (!isRooted && levels === Number.MAX_SAFE_INTEGER) return whole;
  const depth: number[] = [];
  const taken: number[] = [];
  const place = new Map<number, number>();
  for (let at = Math.max(root, 0); at < nodes.id.length; at++) {
    const parent = nodes.parent[at]!;
    const isInside = isRooted ? at === root || (depth[parent] ?? -1) >= 0 && parent >= root : true;
    if (isRooted && at > root && !isInside) break;
    // The root itself is no level below itself.
    depth[at] = isRooted ? (at === root ? 0 : depth[parent]! + 1) : parent < 0 ? 1 : depth[parent]! + 1;
    if (depth[at]! > levels) continue;
    place.set(at, taken.length);
    taken.push(at);
  }
  const pick = <T>(list: readonly T[]): T[] => taken.map((at) => list[at]!);
  const above: FlameAnswer["above"] = [];
  for (let at = isRooted ? nodes.parent[root]! : -1; at >= 0; at = nodes.parent[at]!) above.unshift({ id: nodes.id[at]!, function: nodes.function[at]! });
  return {
    ...whole, above, left_out: { nodes: 0, weight: 0 },
    nodes: {
      id: pick(nodes.id), parent: taken.map((at) => (isRooted && at === root ? -1 : (place.get(nodes.parent[at]!) ?? -1))), function: pick(nodes.function), below: pick(nodes.below),
      own: nodes.own.map(pick), total: nodes.total.map(pick), own_samples: nodes.own_samples.map(pick), total_samples: nodes.total_samples.map(pick),
    },
  };
}

/** The bins of a timeline that a span touches. The bins keep their width, and the rows their samples in all bins. */
export function cutTimeline(whole: TimelineAnswer, parameters: Parameters): TimelineAnswer {
  const match = /^(\d*)\.\.(\d*)$/.exec(String(parameters.span ?? ".."));
  const from = match?.[1] ? Number(match[1]) : whole.start_ns;
  const to = match?.[2] ? Number(match[2]) : whole.end_ns;
  const rows = whole.rows.slice(0, Number(parameters.count ?? 100));
  const first = Math.max(0, Math.min(whole.bins - 1, Math.floor((from - whole.start_ns) / whole.bin_ns)));
  const end = Math.max(first + 1, Math.min(whole.bins, Math.ceil((to - whole.start_ns) / whole.bin_ns)));
  if (first === 0 && end === whole.bins) return { ...whole, rows };
  const cut = rows.map((row) => ({ ...row, values: row.values.slice(first, end) }));
  return {
    ...whole, start_ns: whole.start_ns + first * whole.bin_ns, end_ns: whole.start_ns + end * whole.bin_ns, bins: end - first,
    rows: cut, peak: cut.reduce((most, row) => row.values.reduce((a, b) => Math.max(a, b), most), 0),
  };
}
