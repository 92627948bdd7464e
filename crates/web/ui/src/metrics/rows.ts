// Rows of metrics: beside each value the farther limit of its 95 % interval, and a mark where it deserves no trust.

import type { Column, TableAnswer } from "../net/types";
import type { RowSource, ShownRow } from "../table/model";

/** The columns that are metrics: those that have limits. */
export function metricColumns(columns: readonly Column[]): Column[] {
  const ids = new Set(columns.map((column) => column.id));
  return columns.filter((column) => column.parent === null && ids.has(`${column.id}_low`) && ids.has(`${column.id}_high`));
}

/** Columns that say more about another one: they are shown when it is expanded. */
const PARTS: Record<string, string> = {
  share_low_percent: "share_percent", share_high_percent: "share_percent", samples: "share_percent", left_percent: "discarded_percent", mean_run: "discarded_percent",
};

export function withParts(columns: readonly Column[]): Column[] {
  return columns.map((column) => (column.parent === null && columns.some((each) => each.id === PARTS[column.id]) ? { ...column, parent: PARTS[column.id]! } : column));
}

const asNumber = (cell: unknown): number | null => (typeof cell === "number" && Number.isFinite(cell) ? cell : null);

/** Where an answer has a metric's value and limits. */
export interface Places { value: number; low: number; high: number }

export function placesOf(columns: readonly Column[], id: string): Places {
  const at = (wanted: string) => columns.findIndex((column) => column.id === wanted);
  return { value: at(id), low: at(`${id}_low`), high: at(`${id}_high`) };
}

/** The value, and its limits, where they are known. */
export function valueOf(cells: ShownRow["cells"], places: Places): { value: number; low: number | null; high: number | null } | null {
  const value = asNumber(cells[places.value]);
  return value === null ? null : { value, low: asNumber(cells[places.low]), high: asNumber(cells[places.high]) };
}

/** The rows with intervals in place of standard errors. */
export function withIntervals(source: RowSource, answer: () => TableAnswer | null): RowSource {
  const known = new WeakMap<ShownRow, ShownRow>();
  const show = (row: ShownRow, columns: readonly Column[]): ShownRow => {
    const trust = row.cells[columns.findIndex((column) => column.id === "trust")];
    const at = (id: string) => columns.findIndex((column) => column.id === id);
    const errors: Record<string, number> = {};
    const notes: Record<string, string> = { ...row.notes };
    for (const column of metricColumns(columns)) {
      const found = valueOf(row.cells, placesOf(columns, column.id));
      if (!found) continue;
      const far = Math.max(found.high === null ? 0 : found.high - found.value, found.low === null ? 0 : found.value - found.low);
      if (far > 0) errors[column.id] = far;
      if (trust === "unreliable") notes[column.id] ??= "unreliable";
    }
    const share = valueOf(row.cells, { value: at("share_percent"), low: at("share_low_percent"), high: at("share_high_percent") });
    if (share?.low != null && share.high != null) errors["share_percent"] = Math.max(share.high - share.value, share.value - share.low);
    // Sampled counts have standard errors, of which 1.96 make an interval.
    for (const [id, error] of Object.entries(row.errors ?? {})) errors[id] ??= 1.959964 * error;
    return { ...row, errors, notes };
  };
  return {
    ...source,
    row: (index) => {
      const row = source.row(index);
      const columns = answer()?.columns;
      if (!row || !columns) return row;
      let shown = known.get(row);
      if (!shown) known.set(row, (shown = show(row, columns)));
      return shown;
    },
  };
}
