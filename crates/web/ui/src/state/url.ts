// The page's state: everything that a link to it must say. It lives behind `#` in the address, which the server never
// sees. A change of view, selection or opened function makes a step that the back button undoes; typing does not.

import { createStore, reconcile } from "solid-js/store";

export const VIEWS = ["summary", "hotspots", "function", "flame", "tree", "butterfly", "timeline", "metrics", "diff"] as const;
/** The views of a trace. */
export const TRACE_VIEWS = ["trace", "statistics", "paths", "calls", "replay"] as const;
export type View = (typeof VIEWS)[number] | (typeof TRACE_VIEWS)[number];

/** A range of time in nanoseconds since the first sample; null is open. */
export type Span = readonly [number | null, number | null];

/** The keys of the conditions that samples must meet, by the name of their parameter. */
export const KEY_LISTS = ["process", "thread", "program", "comm", "cpu", "module", "function", "through"] as const;
export type KeyList = (typeof KEY_LISTS)[number];

/** Keys of functions and modules that call stacks leave out, by the name of their parameter. */
export const CHANGE_LISTS = ["merge", "merge_module", "drop", "drop_module"] as const;
export type ChangeList = (typeof CHANGE_LISTS)[number];

/** What the upper table of Hotspots can show. */
export const LEVELS: readonly string[] = ["process,module", "program,module", "process,thread", "module", "thread", "comm", "cpu"];

/** What the rows of the lower table of Hotspots can be. */
export const LOWER_ROWS: readonly string[] = ["function", "block", "line"];

/** What the rows of the metrics' table can be. */
export const METRIC_ROWS: readonly string[] = ["function", "path", "line", "module", "thread", "process"];

/** What the rows of the table of changes can be. */
export const DIFF_ROWS: readonly string[] = ["function", "module", "process", "thread", "comm", "module,function", "process,module"];

/** Texts of the views of metrics and changes; empty at first. */
const METRIC_TEXTS = ["rows", "with", "normalize", "metricRows", "metricSort", "plot", "diffRows", "diffSort"] as const;

export interface PageState {
  view: View;
  profile: number;
  /** The events that come first; empty: the profile's default. The first one is drawn where only one can be. */
  event: string[];
  time: Span | null;
  process: string[];
  thread: string[];
  program: string[];
  comm: string[];
  cpu: string[];
  module: string[];
  function: string[];
  through: string[];
  inlined: boolean;
  /** Text that names of rows must contain. */
  filter: string;
  regex: boolean;
  /** `COLUMN:asc` or `COLUMN:desc` of the function table; empty: as the server sorts. */
  sort: string;
  /** The key of the function that is open in the function and butterfly views. */
  open: string;
  /** Flame graph and call tree: begin at the sampled functions. */
  inverted: boolean;
  /** Flame graph: draw the root at the bottom. */
  upwards: boolean;
  /** Flame graph and call tree: the function at which stacks begin. */
  focus: string;
  /** Flame graph: text to highlight. */
  find: string;
  /** Hotspots: the levels of the upper table. */
  levels: string;
  /** Timeline: what a lane is. */
  lanes: "thread" | "process" | "cpu";
  /** The names of the metrics that tables show; empty: the server's default; `none`: none. */
  metric: string[];
  /** Hotspots: what the rows of the lower table are; empty: functions. */
  rows: string;
  /** The index of the profile to compare with; empty: none. */
  with: string;
  /** Changes: what weights are divided by: empty, `time` or an event's key. */
  normalize: string;
  /** Metrics: rows, order, and the column that is drawn; empty: the first one. */
  metricRows: string;
  metricSort: string;
  plot: string;
  /** Metrics: whether the scatter plot's axes are logarithmic. */
  plotLog: boolean;
  /** Changes: rows and order. */
  diffRows: string;
  diffSort: string;
  /** Traces: the stretch of time that the timeline shows, the time where the replay opens, the weight of the graph, its form. */
  span: string;
  at: string;
  weight: string;
  form: string;
  /** Timeline: what fills the width; null: everything. */
  shown: Span | null;
  /** Timeline: show the heat map, with columns of so many nanoseconds; 0: as fits. */
  heat: boolean;
  column: number;
  /** Call stacks: what is left out of them, and how recursion is shown. */
  merge: string[];
  merge_module: string[];
  drop: string[];
  drop_module: string[];
  fold: "" | "direct" | "all";
  /** Flame graph: the keys of the functions from the top to the node that fills the width. */
  zoom: string[];
  /** Flame graph: how nodes are coloured; empty: by module. */
  colours: string;
  /** Function: the address of the picked instruction. */
  instruction: string;
}

const INITIAL: PageState = {
  view: "summary", profile: 0, event: [], time: null, process: [], thread: [], program: [], comm: [], cpu: [], module: [],
  function: [], through: [], inlined: false, filter: "", regex: false, sort: "", open: "", inverted: false, upwards: false,
  focus: "", find: "", levels: "process,module", lanes: "thread", span: "", at: "", weight: "", form: "", shown: null, heat: false, column: 0, metric: [], rows: "", with: "",
  normalize: "", metricRows: "", metricSort: "", plot: "", plotLog: false, diffRows: "", diffSort: "",
  merge: [], merge_module: [], drop: [], drop_module: [], fold: "", zoom: [], colours: "", instruction: "",
};

/** Writes a range of time as the server reads it. */
export function writeSpan(span: Span): string {
  return `${span[0] ?? ""}..${span[1] ?? ""}`;
}

/** Reads a range of time as the address has it. */
export function readSpan(text: string): Span | null {
  const match = /^(\d*)\.\.(\d*)$/.exec(text);
  if (!match) return null;
  const side = (digits: string | undefined) => (digits ? Number(digits) : null);
  return [side(match[1]), side(match[2])];
}

/** Writes a path of functions: a function of the same module as the one before it does not name the module again. */
function writePath(keys: readonly string[]): string[] {
  return keys.map((key, at) => {
    const end = placeIn(key);
    return at > 0 && end > 0 && key.slice(0, end) === keys[at - 1]!.slice(0, placeIn(keys[at - 1]!)) ? key.slice(end) : key;
  });
}

function readPath(written: readonly string[]): string[] {
  const keys: string[] = [];
  for (const each of written) {
    const before = keys.at(-1);
    keys.push(placeIn(each) === 0 && before !== undefined ? before.slice(0, placeIn(before)) + each : each);
  }
  return keys;
}

/** Where a function's key names its place in the module; -1 if nowhere. */
function placeIn(key: string): number {
  return Math.max(key.lastIndexOf("@"), key.lastIndexOf("~"), key.lastIndexOf("^"));
}

/** Reads a state from the part of an address behind `#`. Unknown and malformed parts are left at their initial values. */
export function readState(hash: string): PageState {
  const [path = "", rest = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const given = new URLSearchParams(rest);
  const state: PageState = { ...INITIAL };
  state.view = [...VIEWS, ...TRACE_VIEWS].find((view) => view === path) ?? "summary";
  state.profile = Math.max(0, Number.parseInt(given.get("profile") ?? "0", 10) || 0);
  state.event = given.getAll("event");
  state.metric = given.getAll("metric");
  for (const text of METRIC_TEXTS) state[text] = given.get(text) ?? "";
  if (!/^\d+$/.test(state.with) || Number(state.with) === state.profile) state.with = "";
  if (!LOWER_ROWS.includes(state.rows)) state.rows = "";
  if (!METRIC_ROWS.includes(state.metricRows)) state.metricRows = "";
  if (!DIFF_ROWS.includes(state.diffRows)) state.diffRows = "";
  state.time = readSpan(given.get("time") ?? "");
  for (const list of KEY_LISTS) state[list] = given.getAll(list);
  for (const flag of ["inlined", "regex", "inverted", "upwards", "plotLog"] as const) state[flag] = given.get(flag) === "1";
  for (const text of ["filter", "sort", "open", "focus", "find", "span", "at", "weight", "form"] as const) state[text] = given.get(text) ?? "";
  for (const list of CHANGE_LISTS) state[list] = given.getAll(list);
  state.zoom = readPath(given.getAll("zoom"));
  state.shown = readSpan(given.get("shown") ?? "");
  state.heat = given.get("heat") === "1";
  state.column = Math.max(0, Number.parseInt(given.get("column") ?? "0", 10) || 0);
  const fold = given.get("fold");
  state.fold = fold === "direct" || fold === "all" ? fold : "";
  for (const text of ["colours", "instruction"] as const) state[text] = given.get(text) ?? "";
  const levels = given.get("levels") ?? "";
  if (LEVELS.includes(levels)) state.levels = levels;
  const lanes = given.get("lanes");
  state.lanes = lanes === "process" || lanes === "cpu" ? lanes : "thread";
  return state;
}

/** Writes a state as the part of an address behind `#`. */
export function writeState(state: PageState): string {
  const out = new URLSearchParams();
  if (state.profile !== 0) out.set("profile", String(state.profile));
  for (const event of state.event) out.append("event", event);
  for (const metric of state.metric) out.append("metric", metric);
  for (const text of METRIC_TEXTS) if (state[text]) out.set(text, state[text]);
  if (state.time) out.set("time", writeSpan(state.time));
  for (const list of KEY_LISTS) for (const key of state[list]) out.append(list, key);
  for (const flag of ["inlined", "regex", "inverted", "upwards", "plotLog"] as const) if (state[flag]) out.set(flag, "1");
  for (const text of ["filter", "sort", "open", "focus", "find", "span", "at", "weight", "form"] as const) if (state[text]) out.set(text, state[text]);
  if (state.levels !== INITIAL.levels) out.set("levels", state.levels);
  if (state.lanes !== "thread") out.set("lanes", state.lanes);
  for (const list of CHANGE_LISTS) for (const key of state[list]) out.append(list, key);
  for (const key of writePath(state.zoom)) out.append("zoom", key);
  if (state.shown) out.set("shown", writeSpan(state.shown));
  if (state.heat) out.set("heat", "1");
  if (state.column > 0) out.set("column", String(state.column));
  for (const text of ["fold", "colours", "instruction"] as const) if (state[text]) out.set(text, state[text]);
  const rest = out.toString().replaceAll("%40", "@").replaceAll("%3A", ":");
  return `#/${state.view}${rest ? `?${rest}` : ""}`;
}

const [state, setState] = createStore<PageState>(readState(location.hash));

/** The state that all views show. */
export { state };

/** Changes the state. `quiet` changes replace the newest step instead of making one. */
export function go(change: Partial<PageState>, quiet = false): void {
  const next = { ...snapshot(), ...change };
  // These belong to what they were chosen in.
  if (next.open !== state.open && change.instruction === undefined) next.instruction = "";
  if ((next.inverted !== state.inverted || next.focus !== state.focus) && change.zoom === undefined) next.zoom = [];
  const hash = writeState(next);
  setState(reconcile(next));
  if (hash === location.hash) return;
  const address = location.pathname + location.search + hash;
  if (quiet) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
}

/** The address of the page after a change, for links. */
export function linkTo(change: Partial<PageState>): string {
  return writeState({ ...snapshot(), ...change });
}

/** A copy of the state that does not change. */
export function snapshot(): PageState {
  return { ...state };
}

/** Follows the back button and addresses that the reader edits. */
export function followAddress(): void {
  const read = () => setState(reconcile(readState(location.hash)));
  addEventListener("popstate", read);
  addEventListener("hashchange", read);
}

/** The change that brings back everything that call stacks leave out. */
export function noChanges(): Partial<PageState> {
  const out: Partial<PageState> = {};
  for (const list of CHANGE_LISTS) out[list] = [];
  return out;
}

/** The change that removes all conditions from the selection. */
export function noConditions(): Partial<PageState> {
  const out: Partial<PageState> = { time: null };
  for (const list of KEY_LISTS) out[list] = [];
  return out;
}
