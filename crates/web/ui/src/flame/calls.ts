// A call tree as rows of a table. The children of a node are asked for when it is opened.

import { type Accessor, createMemo, createSignal, untrack } from "solid-js";
import { ask, isCancelled, type Parameters } from "../net/client";
import type { Column, ErrorBody, FlameAnswer } from "../net/types";
import { createNewest, toBody } from "../state/query";
import { learnNames } from "../state/selection";
import type { RowSource, ShownRow, Sorting } from "../table/model";

const MOST = 1000;
/** Fewer samples than this make a share doubtful, as in reports. */
const FEW = 10;

interface CallNode extends ShownRow {
  number: number;
  /** The functions from the top to it. */
  path: string[];
  children: CallNode[] | null;
}

export interface CallRows {
  source: RowSource;
  columns: Accessor<Column[]>;
  /** The share of the other profile's first event in paths that only it has; null where nothing is compared. */
  onlyThere: Accessor<number | null>;
  error: Accessor<ErrorBody | null>;
  busy: Accessor<boolean>;
  /** Opens the heaviest child of each row, from the top down. */
  openHottest(): Promise<void>;
  closeAll(): void;
}

/** The columns of a call tree: for each event total and self, as shares and as counts, and the change of the total to another profile. */
export function callColumns({ events, other }: FlameAnswer): Column[] {
  const columns = events.flatMap(({ key, name, unit }, e): Column[] => {
    const one = (id: string, title: string, of: string | null, kind: Column["kind"]): Column => ({ id: `${id}[${key}]`, name: title, unit: of, kind, event: name, parent: null, for_programs: false });
    return [
      one("total_percent", "total", "percent", "ratio"),
      ...(isCompared(other, e) ? [one("other_percent", "total there", "percent", "ratio"), one("total_change", "points", "points", "ratio")] : []),
      one("self_percent", "self", "percent", "ratio"),
      one("samples", "samples", "samples", "count"), one("weight", unit === "ns" ? "time" : "events", unit, "weight"),
    ];
  });
  const text = (id: string): Column => ({ id, name: id, unit: null, kind: "name", event: null, parent: null, for_programs: false });
  return [text("function"), text("module"), ...columns];
}

/** What a call tree asks for, and which columns its answers have. */
export interface CallShape {
  path: string;
  columns(answer: FlameAnswer): Column[];
  /** The numbers of the node at a place in the answer; `notes` says what to think of them, `errors` how sure they are, by column. */
  numbers(answer: FlameAnswer, at: number, notes: Record<string, string>, errors: Record<string, number>): number[];
}

/** The call tree of samples. */
export const SAMPLES: CallShape = {
  path: "flame",
  columns: callColumns,
  numbers: ({ nodes, events, other }, at, notes, errors) => events.flatMap((event, e) => {
    const total = nodes.total[e]![at]!;
    const own = nodes.own[e]![at]!;
    const samples = nodes.total_samples[e]![at]!;
    if (samples > 0 && samples < FEW) notes[`total_percent[${event.key}]`] = notes[`self_percent[${event.key}]`] = "few_samples";
    const shares = [share(total, event.weight)];
    if (isCompared(other, e)) {
      const there = share(other!.total[e]![at]!, other!.weight[e]!);
      const error = Math.hypot(errorOf(shares[0]!, samples), errorOf(there, other!.total_samples[e]![at]!));
      const column = `total_change[${event.key}]`;
      errors[column] = error;
      // Two profiles of the same program differ by less than this in 19 of 20 nodes.
      if (Math.abs(there - shares[0]!) <= 1.96 * error) notes[column] = "within_chance";
      shares.push(there, there - shares[0]!);
    }
    return [...shares, share(own, event.weight), samples, total];
  }),
};

/** Whether the other profile has the event with index `e`. */
function isCompared(other: FlameAnswer["other"], e: number): boolean {
  return (other?.weight[e] ?? 0) > 0;
}

/** The standard error of a share in percent that rests on so many samples: that of a binomial distribution. */
function errorOf(part: number, samples: number): number {
  return samples > 0 ? part * Math.sqrt(Math.max(0, 1 - part / 100) / samples) : 0;
}

/** Fetches a call tree; opened rows stay open when the question changes. */
export function createCallRows(parameters: Accessor<Parameters | null>, sorting: Accessor<Sorting | null>, shape: CallShape = SAMPLES): CallRows {
  const [tops, setTops] = createSignal<CallNode[]>([]);
  const [columns, setColumns] = createSignal<Column[]>([]);
  const [onlyThere, setOnlyThere] = createSignal<number | null>(null);
  const [version, setVersion] = createSignal(0);
  const open = new Set<string>();
  // Nodes of a trace have numbers only.
  const byPath = shape.path === SAMPLES.path;

  const toNodes = (answer: FlameAnswer, under: CallNode | null): CallNode[] => {
    const { nodes, functions, modules } = answer;
    const names: [("function" | "module"), string, string][] = [];
    const shown: CallNode[] = [];
    // Asked with a path, the answer's first node is the one to which it leads; asked with a number, that node is somewhere.
    const wanted = under === null ? -1 : byPath ? 0 : nodes.id.indexOf(under.number);
    for (let at = 0; at < nodes.id.length; at++) {
      if (nodes.parent[at] !== wanted) continue;
      const fn = functions[nodes.function[at]!];
      const module = modules[fn?.module ?? -1];
      if (fn) names.push(["function", fn.key, fn.name]);
      const notes: Record<string, string> = {};
      const errors: Record<string, number> = {};
      const cells = shape.numbers(answer, at, notes, errors);
      shown.push({
        id: `${under?.id ?? ""}/${fn?.key ?? ""}`, number: nodes.id[at]!, path: [...(under?.path ?? []), fn?.key ?? ""], key: { ...(fn ? { function: fn.key } : {}), ...(module ? { module: module.key } : {}) },
        cells: [fn?.name ?? "", module?.name ?? "", ...cells], depth: under ? under.depth + 1 : 0, below: nodes.below[at]!, notes, errors, children: null,
      });
    }
    learnNames(names);
    return shown;
  };
  const load = async (under: CallNode | null, mine: AbortController): Promise<CallNode[]> => {
    const place = byPath ? { path: under?.path ?? [] } : { root: under ? under.number : null };
    const answer = await ask<FlameAnswer>(shape.path, { ...untrack(parameters), levels: 1, count: MOST, least: 0, ...place }, mine.signal);
    if (current() === mine && under === null) {
      setColumns(shape.columns(answer));
      setOnlyThere(answer.other ? share(answer.other.new_weight, answer.other.weight[0] ?? 0) : null);
    }
    const nodes = toNodes(answer, under);
    await Promise.all(nodes.filter((node) => open.has(node.id) && node.below > 0).map(async (node) => { node.children = await load(node, mine); }));
    return nodes;
  };
  const { error, setError, busy, current } = createNewest(parameters, (mine) => load(null, mine), (nodes) => {
    setTops(nodes ?? []);
    // A tree with one root says nothing while it is closed.
    const only = nodes?.length === 1 ? nodes[0]! : null;
    if (only && only.below > 0 && !open.has(only.id)) void setOpen(only, true);
  });

  const setOpen = async (node: CallNode, opens: boolean): Promise<void> => {
    if (opens) open.add(node.id);
    else open.delete(node.id);
    setVersion((before) => before + 1);
    const mine = current();
    if (!opens || node.children !== null || !mine) return;
    try {
      node.children = await load(node, mine);
      setVersion((before) => before + 1);
    } catch (problem) {
      if (!isCancelled(problem)) setError(toBody(problem));
    }
  };
  const sorted = (nodes: readonly CallNode[]): readonly CallNode[] => {
    const by = sorting();
    const at = by ? untrack(columns).findIndex((column) => column.id === by.column) : -1;
    if (!by || at < 0) return nodes;
    const sign = by.direction === "asc" ? 1 : -1;
    return [...nodes].sort((a, b) => sign * compare(a.cells[at] ?? null, b.cells[at] ?? null));
  };
  const flat = createMemo(() => {
    version();
    const out: CallNode[] = [];
    const add = (nodes: readonly CallNode[]) => {
      for (const node of sorted(nodes)) {
        out.push(node);
        if (open.has(node.id) && node.children) add(node.children);
      }
    };
    add(tops());
    return out;
  });
  return {
    columns, onlyThere, error, busy,
    source: {
      total: () => flat().length,
      row: (index) => flat()[index],
      want: () => undefined,
      isOpen: (row) => { version(); return open.has(row.id); },
      setOpen: (row, opens) => void setOpen(row as CallNode, opens),
    },
    openHottest: async () => {
      let node = tops()[0];
      for (let depth = 0; node && node.below > 0 && depth < 500; depth++) {
        await setOpen(node, true);
        node = node.children?.[0];
      }
    },
    closeAll: () => { open.clear(); setVersion((before) => before + 1); },
  };
}

/** A share in percent. */
export function share(part: number, total: number): number {
  return total > 0 ? (100 * part) / total : 0;
}

function compare(a: string | number | null, b: string | number | null): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""));
}
