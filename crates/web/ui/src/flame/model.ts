// A merged tree of call stacks as flat arrays: positions, depths, and per depth the nodes from left to right.

import type { FlameAnswer } from "../net/types";

export interface FlameModel {
  answer: FlameAnswer;
  count: number;
  /** By node: left and right edge as parts of the whole, depth, function. */
  left: Float64Array;
  right: Float64Array;
  depth: Uint32Array;
  fn: Int32Array;
  parent: Int32Array;
  /** By depth: the nodes from left to right. */
  levels: Uint32Array[];
  /** The weight of the whole. */
  total: number;
}

/** The number of the node that stands for everything. */
export const ALL = 0;

/** Lays out an answer. Node 0 is the whole; the nodes that stand above the answer's root follow, then the answer's own nodes. */
export function layOut(answer: FlameAnswer, event = 0): FlameModel {
  const nodes = answer.nodes;
  const above = answer.above.length;
  const count = 1 + above + nodes.id.length;
  const model: FlameModel = {
    answer, count, left: new Float64Array(count), right: new Float64Array(count), depth: new Uint32Array(count),
    fn: new Int32Array(count).fill(-1), parent: new Int32Array(count).fill(-1), levels: [], total: 0,
  };
  const weights = nodes.total[event] ?? [];
  for (let at = 0; at < nodes.id.length; at++) if (nodes.parent[at]! < 0) model.total += weights[at]!;
  const whole = Math.max(model.total, 1);
  model.right[ALL] = 1;
  for (let at = 0; at < above; at++) {
    const node = at + 1;
    model.right[node] = 1;
    model.depth[node] = node;
    model.parent[node] = at;
    model.fn[node] = answer.above[at]!.function;
  }
  const used = new Float64Array(count);
  for (let at = 0; at < nodes.id.length; at++) {
    const node = 1 + above + at;
    const parent = nodes.parent[at]! < 0 ? above : 1 + above + nodes.parent[at]!;
    const width = weights[at]! / whole;
    const left = model.left[parent]! + used[parent]!;
    used[parent] = used[parent]! + width;
    model.left[node] = left;
    model.right[node] = Math.min(model.right[parent]!, left + width);
    model.depth[node] = model.depth[parent]! + 1;
    model.parent[node] = parent;
    model.fn[node] = nodes.function[at]!;
  }
  const sizes: number[] = [];
  for (let node = 0; node < count; node++) sizes[model.depth[node]!] = (sizes[model.depth[node]!] ?? 0) + 1;
  model.levels = sizes.map((size) => new Uint32Array(size));
  const filled = sizes.map(() => 0);
  for (let node = 0; node < count; node++) {
    const depth = model.depth[node]!;
    model.levels[depth]![filled[depth]!++] = node;
  }
  return model;
}

/** The place of the first node of a level whose right edge lies behind `position`. */
export function firstBehind(model: FlameModel, level: Uint32Array, position: number): number {
  let low = 0;
  let high = level.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (model.right[level[middle]!]! <= position) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The node at a depth and a position, or -1. */
export function nodeAt(model: FlameModel, depth: number, position: number): number {
  const level = model.levels[depth];
  if (!level) return -1;
  const node = level[firstBehind(model, level, position)];
  return node !== undefined && model.left[node]! <= position ? node : -1;
}

/** The place of a node in the answer's arrays, or -1 for those above its root. */
export function inAnswer(model: FlameModel, node: number): number {
  const at = node - 1 - model.answer.above.length;
  return at >= 0 ? at : -1;
}

/** The keys of the functions from the top to a node. */
export function pathOf(model: FlameModel, node: number): string[] {
  const path: string[] = [];
  for (let at = node; at > ALL; at = model.parent[at]!) path.unshift(model.answer.functions[model.fn[at]!]?.key ?? "");
  return path;
}

/** The node to which a path leads, as far as it goes. */
export function nodeAtPath(model: FlameModel, path: readonly string[]): number {
  let node = ALL;
  for (const key of path) {
    const level = model.levels[model.depth[node]! + 1];
    const next = level?.find((each) => model.parent[each] === node && model.answer.functions[model.fn[each]!]?.key === key);
    if (next === undefined) return node;
    node = next;
  }
  return node;
}

/** Where a node can go from the keyboard. */
export function neighbour(model: FlameModel, node: number, way: "up" | "down" | "left" | "right"): number {
  const parent = model.parent[node]!;
  if (way === "up") return parent >= 0 ? parent : node;
  const level = model.levels[model.depth[node]! + (way === "down" ? 1 : 0)];
  if (!level) return node;
  if (way === "down") {
    const child = level[firstBehind(model, level, model.left[node]!)];
    return child !== undefined && model.parent[child] === node ? child : node;
  }
  const at = level.indexOf(node) + (way === "left" ? -1 : 1);
  return level[at] ?? node;
}

/** Marks the functions whose names contain a text, and returns the weight of the outermost nodes among them. */
export function findNodes(model: FlameModel, text: string): { functions: Uint8Array; share: number; nodes: number } | null {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return null;
  const functions = Uint8Array.from(model.answer.functions, (each) => (each.name.toLowerCase().includes(wanted) ? 1 : 0));
  let share = 0;
  let nodes = 0;
  const covered = new Uint8Array(model.count);
  for (let node = 1; node < model.count; node++) {
    const isFound = functions[model.fn[node]!] === 1;
    const isCovered = covered[model.parent[node]!] === 1;
    covered[node] = isFound || isCovered ? 1 : 0;
    if (isFound) nodes += 1;
    if (isFound && !isCovered) share += model.right[node]! - model.left[node]!;
  }
  return { functions, share, nodes };
}
