// How the reader likes a table: which measures, which columns, how wide. Kept by the browser, not in the address.

import { createStore } from "solid-js/store";

export interface TableSettings {
  /** Which measures of an event have columns; null: a default that depends on the number of events. */
  measures: Record<Measure, boolean> | null;
  /** The base of shares: empty for the column's sum, or another of [`SHARES`]. */
  share: Share;
  /** Whether standard errors are shown. */
  errors: boolean;
  hidden: Record<string, boolean>;
  widths: Record<string, number>;
  /** Event groups and parent columns that are expanded in place. */
  expanded: Record<string, boolean>;
}

/** The bases of shares, as the server names them. */
export const SHARES = ["", "total", "parent", "row"] as const;
export type Share = (typeof SHARES)[number];

export const MEASURES = ["percent", "samples", "weight"] as const;
export type Measure = (typeof MEASURES)[number];

/** The columns that a table hides at first, by the table's name. */
const HIDDEN: Record<string, readonly string[]> = { statistics: ["total_stdv", "self_avg", "self_min", "self_max", "self_stdv", "total_p90", "self_p50", "self_p90", "self_p99", "size"] };

export function hiddenAtFirst(name: string): Record<string, boolean> {
  return Object.fromEntries((HIDDEN[name] ?? []).map((column) => [column, true]));
}

const stores = new Map<string, ReturnType<typeof createSettings>>();

function createSettings(name: string) {
  const initial: TableSettings = { measures: null, share: "", errors: false, hidden: hiddenAtFirst(name), widths: {}, expanded: {} };
  try {
    Object.assign(initial, JSON.parse(localStorage.getItem(`dioptra-table-${name}`) ?? "{}"));
  } catch {
    // What an older page kept is not needed.
  }
  const [settings, setSettings] = createStore<TableSettings>(initial);
  const change = (part: Partial<TableSettings>) => {
    setSettings(part);
    localStorage.setItem(`dioptra-table-${name}`, JSON.stringify(settings));
  };
  return { settings, change };
}

/** The settings of all tables of a name. */
export function tableSettings(name: string) {
  let found = stores.get(name);
  if (!found) stores.set(name, (found = createSettings(name)));
  return found;
}

/** The measures that have columns, given the number of events; a comparison has three columns for each share. */
export function shownMeasures(settings: TableSettings, events: number, isCompared: boolean): Record<Measure, boolean> {
  const more = events <= (isCompared ? 0 : 2);
  return settings.measures ?? { percent: true, samples: more, weight: more };
}

/** Whether a table has another profile's columns beside its own. */
export function isCompared(columns: readonly { id: string }[]): boolean {
  return columns.some((column) => /_percent_points\b/.test(column.id));
}
