// Widths of columns in pixels. Every row is a grid of its own, so the widths are computed once, here.

import { type Accessor, createMemo } from "solid-js";
import type { ShownColumn } from "./columns";
import type { TableSettings } from "./settings";

export interface Widths {
  /** A value for `grid-template-columns`. */
  template: Accessor<string>;
  total: Accessor<number>;
  set(column: string, width: number): void;
  get(column: string): number;
}

const NARROWEST = 36;
const NARROWEST_MAIN = 180;
/** On wide screens the main column leaves room free, so that numbers stay near their names; in units of the font's size. */
const WIDEST_MAIN = 90;

function natural(column: ShownColumn, errors: boolean, em: number): number {
  if (column.kind === "name") return /_percent_significance/.test(column.id) ? 3.4 * em : /_status$/.test(column.id) ? 5.2 * em : /^trust$|_significance/.test(column.id) ? 8 * em : column.id === "module" ? 15 * em : column.unit === null && /id$/.test(column.id) ? 6 * em : 12 * em;
  if (column.unit === "points") return (errors ? 9.6 : 5.2) * em;
  const number = column.unit === "percent" ? 5.6 * em : column.unit === "ns" ? 7.2 * em : 6.2 * em;
  return errors ? number + (column.unit === "ns" ? 7.5 : 5.5) * em : number;
}

/** Computes widths: the main column takes what the others leave. */
export function createWidths(
  columns: Accessor<ShownColumn[]>, settings: TableSettings, change: (part: Partial<TableSettings>) => void, room: Accessor<number>,
  errors: (column: string) => boolean = () => settings.errors,
): Widths {
  const all = createMemo(() => {
    room();
    const em = Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
    const out = columns().map((column) => settings.widths[column.id] ?? (column.kind === "main" ? 0 : natural(column, errors(column.id), em)));
    const main = columns().findIndex((column) => column.kind === "main");
    if (main >= 0) {
      const others = out.reduce((sum, width, at) => (at === main ? sum : sum + width), 0);
      const left = room() - others;
      out[main] = Math.max(NARROWEST_MAIN, settings.widths[columns()[main]!.id] ?? Math.min(left, WIDEST_MAIN * em));
    }
    return out.map(Math.round);
  });
  return {
    template: () => all().map((width) => `${width}px`).join(" "),
    total: () => all().reduce((sum, width) => sum + width, 0),
    set: (column, width) => change({ widths: { ...settings.widths, [column]: Math.max(NARROWEST, Math.round(width)) } }),
    get: (column) => all()[columns().findIndex((each) => each.id === column)] ?? 100,
  };
}
