// Places of blocks and edges of a control-flow graph, by dagre.

import { Graph, layout } from "@dagrejs/dagre";
import type { FunctionAnswer } from "../net/types";

/** What a graph is made of. */
export type GraphParts = Pick<FunctionAnswer, "blocks" | "edges" | "loops">;

export interface PlacedBlock {
  block: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface PlacedEdge {
  from: number;
  to: number;
  kind: string;
  executions: number | null;
  isBack: boolean;
  points: { x: number; y: number }[];
}

export interface PlacedGraph {
  blocks: PlacedBlock[];
  edges: PlacedEdge[];
  width: number;
  height: number;
  /** How many cold blocks have no place. */
  leftOut: number;
}

/** More blocks take long to place, and nobody can read them. */
const MOST_BLOCKS = 160;
/** Rows that all edges together may cross. An edge has a node in each of them, which takes time to place, and memory. */
const MOST_CROSSED = 4000;
export const BLOCK_WIDTH = 172;
const BLOCK_HEIGHT = 50;

/** Places the hottest blocks: from the top down, or in a pane that is wide and low from left to right. */
export function placeBlocks(parts: GraphParts, sideways: boolean): PlacedGraph {
  const { blocks, edges } = parts;
  const order = blocks.map((_, at) => at).sort((a, b) => (blocks[b]!.weight[0] ?? 0) - (blocks[a]!.weight[0] ?? 0));
  const kept = keptBlocks(parts, order);
  const graph = new Graph({ multigraph: true });
  graph.setGraph({ rankdir: sideways ? "LR" : "TB", nodesep: 26, ranksep: 30, edgesep: 12, marginx: 12, marginy: 12 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const block of [...kept].sort((a, b) => a - b)) graph.setNode(String(block), { width: BLOCK_WIDTH, height: BLOCK_HEIGHT });
  const shown = edges.filter((edge) => edge.to !== null && kept.has(edge.from) && kept.has(edge.to));
  // A block that leads to itself gets a loop at its side; dagre need not know.
  shown.forEach((edge, at) => edge.from !== edge.to && graph.setEdge(String(edge.from), String(edge.to), {}, String(at)));
  layout(graph);
  const size = graph.graph() as { width?: number; height?: number };
  return {
    blocks: [...kept].map((block) => {
      const node = graph.node(String(block)) as { x: number; y: number; width: number; height: number };
      return { block, x: node.x - node.width / 2, y: node.y - node.height / 2, width: node.width, height: node.height };
    }),
    edges: shown.map((edge, at) => {
      if (edge.from === edge.to) {
        const node = graph.node(String(edge.from)) as { x: number; y: number; width: number; height: number };
        const loop = [[0, 0.3], [22, 0.3], [22, 0], [22, -0.3], [0, -0.3]] as const;
        const points = loop.map(([out, along]) => (sideways
          ? { x: node.x + along * node.height, y: node.y + node.height / 2 + out }
          : { x: node.x + node.width / 2 + out, y: node.y + along * node.height }));
        return { from: edge.from, to: edge.from, kind: edge.kind, executions: edge.executions, isBack: true, points };
      }
      const placed = graph.edge({ v: String(edge.from), w: String(edge.to), name: String(at) }) as { points?: { x: number; y: number }[] };
      return { from: edge.from, to: edge.to!, kind: edge.kind, executions: edge.executions, isBack: loopsBack(parts, edge.from, edge.to!), points: placed.points ?? [] };
    }),
    width: size.width ?? 1, height: size.height ?? 1, leftOut: blocks.length - kept.size,
  };
}

/** The hottest blocks and the entry, which says where the reader is: as many as can be placed quickly. */
function keptBlocks({ blocks, edges }: GraphParts, order: readonly number[]): Set<number> {
  for (let most = MOST_BLOCKS; ; most = Math.floor(most / 2)) {
    const kept = new Set(order.slice(0, most));
    if (blocks.length > 0) kept.add(0);
    if (most < 10 || rowsCrossed(kept, edges) <= MOST_CROSSED) return kept;
  }
}

/** About how many rows all edges cross, where each block stands one row below the lowest of those that lead to it. */
export function rowsCrossed(kept: ReadonlySet<number>, edges: GraphParts["edges"]): number {
  const next = new Map<number, number[]>();
  const shown = edges.filter((edge) => edge.to !== null && edge.from !== edge.to && kept.has(edge.from) && kept.has(edge.to));
  for (const { from, to } of shown) next.set(from, [...(next.get(from) ?? []), to!]);
  // Callees first: an edge to a block that is being visited leads back.
  const done: number[] = [];
  const seen = new Set<number>();
  for (const start of [...kept].sort((a, b) => a - b)) {
    if (seen.has(start)) continue;
    seen.add(start);
    const path = [{ block: start, at: 0 }];
    while (path.length > 0) {
      const top = path[path.length - 1]!;
      const to = next.get(top.block)?.[top.at++];
      if (to === undefined) { done.push(top.block); path.pop(); }
      else if (!seen.has(to)) { seen.add(to); path.push({ block: to, at: 0 }); }
    }
  }
  const place = new Map(done.reverse().map((block, at) => [block, at]));
  const row = new Map<number, number>();
  for (const block of done) for (const to of next.get(block) ?? []) {
    if (place.get(to)! > place.get(block)!) row.set(to, Math.max(row.get(to) ?? 0, (row.get(block) ?? 0) + 1));
  }
  return shown.reduce((sum, { from, to }) => sum + Math.abs((row.get(from) ?? 0) - (row.get(to!) ?? 0)), 0);
}

/** Whether an edge leads back to the head of a loop that it is in. Compilers also put cold code behind the code that it leads to. */
function loopsBack(parts: GraphParts, from: number, to: number): boolean {
  return parts.loops.some((loop) => loop.header === to && loop.blocks.includes(from));
}

/** A smooth path through points. */
export function edgePath(points: readonly { x: number; y: number }[]): string {
  const first = points[0];
  if (!first) return "";
  let out = `M${first.x.toFixed(1)} ${first.y.toFixed(1)}`;
  for (let at = 1; at < points.length - 1; at++) {
    const now = points[at]!;
    const next = points[at + 1]!;
    const isLast = at === points.length - 2;
    const x = isLast ? next.x : (now.x + next.x) / 2;
    const y = isLast ? next.y : (now.y + next.y) / 2;
    out += `Q${now.x.toFixed(1)} ${now.y.toFixed(1)} ${x.toFixed(1)} ${y.toFixed(1)}`;
  }
  if (points.length === 2) out += `L${points[1]!.x.toFixed(1)} ${points[1]!.y.toFixed(1)}`;
  return out;
}
