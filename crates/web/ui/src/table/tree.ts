// The rows of a tree: the children of a row are fetched when it is opened.

import { type Accessor, createMemo, createSignal, untrack } from "solid-js";
import { ask, isCancelled, type Parameters } from "../net/client";
import type { TableAnswer } from "../net/types";
import { createNewest, toBody } from "../state/query";
import type { PagedRows } from "./paged";
import { showRow } from "./paged";
import type { RowSource, ShownRow } from "./model";

/** Most rows shown below one row, and at the top. */
const MOST = 2000;

interface Node extends ShownRow {
  number: number;
  children: Node[] | null;
}

/** Fetches the rows of `/api/table` as a tree. Opened rows stay open when the question changes. */
export function createTreeRows(parameters: Accessor<Parameters | null>): PagedRows {
  const [answer, setAnswer] = createSignal<TableAnswer | null>(null);
  const [tops, setTops] = createSignal<Node[]>([]);
  const [version, setVersion] = createSignal(0);
  const open = new Set<string>();

  const load = async (under: Node | null, mine: AbortController): Promise<Node[]> => {
    const question = { ...untrack(parameters), levels: 1, from: 0, count: MOST, below: under ? under.number : null };
    const next = await ask<TableAnswer>("table", question, mine.signal);
    if (current() === mine && under === null) setAnswer(next);
    const nodes = next.rows.map((row): Node => ({
      ...showRow(row, under ? under.depth + 1 : 0, JSON.stringify(row.key)), number: row.id, children: null,
    }));
    await Promise.all(nodes.filter((node) => open.has(node.id) && node.below > 0).map(async (node) => {
      node.children = await load(node, mine);
    }));
    return nodes;
  };

  const { error, setError, busy, current } = createNewest(parameters, (mine) => load(null, mine), (nodes) => {
    setTops(nodes ?? []);
    if (nodes === null) setAnswer(null);
  });

  const flat = createMemo(() => {
    version();
    const out: Node[] = [];
    const add = (nodes: readonly Node[]) => {
      for (const node of nodes) {
        out.push(node);
        if (open.has(node.id) && node.children) add(node.children);
      }
    };
    add(tops());
    return out;
  });

  const source: RowSource = {
    total: () => flat().length,
    row: (index) => flat()[index],
    want: () => undefined,
    isOpen: (row) => { version(); return open.has(row.id); },
    setOpen: (row, opens) => {
      const node = row as Node;
      if (!opens) open.delete(node.id);
      else open.add(node.id);
      setVersion((before) => before + 1);
      const mine = current();
      if (opens && node.children === null && mine)
        load(node, mine).then((children) => { node.children = children; setVersion((before) => before + 1); }, (problem: unknown) => {
          if (!isCancelled(problem)) setError(toBody(problem));
        });
    },
  };
  return { source, answer, error, busy };
}
