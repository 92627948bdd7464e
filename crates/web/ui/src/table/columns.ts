// Which columns a table shows, from the columns that an answer has and the reader's settings.

import type { Column } from "../net/types";
import { isCompared, type Measure, shownMeasures, type TableSettings } from "./settings";

export interface ShownColumn {
  id: string;
  title: string;
  /** A sentence for hovering. */
  hint: string;
  unit: string | null;
  /** The position of its cell in each row. */
  at: number;
  /** The event whose group it belongs to. */
  group: string | null;
  kind: "main" | "name" | "number";
  measure: Measure | "other";
  /** Whether other columns break this one down, and whether they are shown. */
  hasParts: boolean;
  isOpen: boolean;
  /** How many columns stand above it. */
  depth: number;
}

export interface Group {
  event: string | null;
  /** How many shown columns it has. */
  span: number;
  /** Whether there are columns that the measures hide, and whether the reader expanded the group. */
  canOpen: boolean;
  isOpen: boolean;
}

const HINTS: Record<string, string> = {
  self: "At the row itself",
  total: "At the row or in anything it called",
  samples: "Number of samples",
};

/** The measure that a column shows. */
export function measureOf(column: Column): Measure | "other" {
  if (column.event === null || column.parent !== null) return "other";
  if (column.unit === "percent" || column.unit === "points" || /_percent_significance\b/.test(column.id)) return "percent";
  if (column.unit === "samples") return "samples";
  return column.kind === "weight" ? "weight" : "other";
}

/** The columns of an answer that people may see: those made for programs are left out. */
export function offeredColumns(columns: readonly Column[], main: string): Column[] {
  const forPeople = columns.filter((column) => !column.for_programs);
  const hasName = columns.some((column) => column.id === "name");
  // A tree has one column with the names of all its levels; the levels' own columns would say the same again.
  const isOfLevels = (column: Column) => column.kind === "name" && column.event === null && column.id !== main && !/_status$/.test(column.id);
  return hasName ? forPeople.filter((column) => !isOfLevels(column)) : forPeople;
}

/** The id of the column that names a row. */
export function mainColumn(columns: readonly Column[], level: string): string {
  return columns.some((column) => column.id === "name") ? "name" : level;
}

/** Chooses and orders the columns: the row's name, other names, then the events' groups. */
export function arrangeColumns(columns: readonly Column[], level: string, settings: TableSettings): { shown: ShownColumn[]; groups: Group[] } {
  const main = mainColumn(columns, level);
  const offered = offeredColumns(columns, main);
  const events = [...new Set(offered.map((column) => column.event).filter((event) => event !== null))];
  const measures = shownMeasures(settings, events.length, isCompared(columns));
  const parents = new Set(columns.map((column) => column.parent).filter((parent) => parent !== null));
  const isOpen = (id: string) => settings.expanded[id] === true;
  const depthOf = (column: Column): number => {
    const parent = columns.find((each) => each.id === column.parent);
    return parent ? depthOf(parent) + 1 : 0;
  };
  const isShown = (column: Column): boolean => {
    if (settings.hidden[column.id]) return false;
    if (column.parent !== null) {
      const parent = columns.find((each) => each.id === column.parent);
      return isOpen(column.parent) && (!parent || isShown(parent));
    }
    const measure = measureOf(column);
    return measure === "other" || measures[measure] || (column.event !== null && isOpen(`event ${column.event}`));
  };
  const show = (column: Column): ShownColumn => ({
    id: column.id,
    title: column.name,
    hint: HINTS[column.name] ?? column.name,
    unit: column.unit,
    at: columns.indexOf(column),
    group: column.event,
    kind: column.id === main ? "main" : column.kind === "name" ? "name" : "number",
    measure: measureOf(column),
    hasParts: parents.has(column.id),
    isOpen: isOpen(column.id),
    depth: depthOf(column),
  });
  const names = offered.filter((column) => column.event === null && column.kind === "name");
  const mains = names.filter((column) => column.id === main);
  const others = names.filter((column) => column.id !== main && isShown(column));
  const numbers = offered.filter((column) => column.event === null && column.kind !== "name" && isShown(column));
  const shown = [...mains, ...others].map(show);
  const groups: Group[] = [{ event: null, span: shown.length, canOpen: false, isOpen: false }];
  for (const event of events) {
    const all = offered.filter((column) => column.event === event);
    const some = all.filter(isShown);
    if (some.length === 0) continue;
    const open = isOpen(`event ${event}`);
    const hiddenByMeasure = all.some((column) => { const measure = measureOf(column); return measure !== "other" && !measures[measure]; });
    groups.push({ event, span: some.length, canOpen: hiddenByMeasure, isOpen: open });
    shown.push(...some.map(show));
  }
  if (numbers.length > 0) {
    groups.push({ event: null, span: numbers.length, canOpen: false, isOpen: false });
    shown.push(...numbers.map(show));
  }
  return { shown, groups };
}
