// The rows of an assembly listing: blocks, runs of inlined code that fold, instructions, and the arrows of jumps.

import type { FunctionModel } from "./model";

export type ListingRow =
  | { kind: "block"; block: number }
  | { kind: "inlined"; first: number; count: number; names: string[]; isFolded: boolean }
  | { kind: "instruction"; at: number };

/** The names of the functions that are inlined at an instruction, outermost first, without the function itself. */
function inlinedNames(model: FunctionModel, at: number): string[] {
  const { answer } = model;
  const stack = answer.stacks[answer.instructions.stack[at] ?? -1] ?? [];
  return stack.slice(0, -1).map((frame) => answer.strings[answer.frames.function[frame]!] ?? "").reverse();
}

/** Makes the rows. `folded` has the first instructions of runs of inlined code that are folded. */
export function listRows(model: FunctionModel, folded: ReadonlySet<number>, showInlined: boolean): ListingRow[] {
  const { instructions, blocks } = model.answer;
  const rows: ListingRow[] = [];
  const starts = new Map(blocks.map((block, at) => [block.first, at]));
  const count = instructions.address.length;
  let at = 0;
  while (at < count) {
    const block = starts.get(at);
    if (block !== undefined) rows.push({ kind: "block", block });
    const names = showInlined ? inlinedNames(model, at) : [];
    if (names.length === 0) {
      rows.push({ kind: "instruction", at });
      at += 1;
      continue;
    }
    const joined = names.join("\n");
    let end = at + 1;
    while (end < count && !starts.has(end) && inlinedNames(model, end).join("\n") === joined) end += 1;
    const isFolded = folded.has(at);
    rows.push({ kind: "inlined", first: at, count: end - at, names, isFolded });
    if (!isFolded) for (let each = at; each < end; each++) rows.push({ kind: "instruction", at: each });
    at = end;
  }
  return rows;
}

/** A piece of a jump's arrow in one row. */
export interface ArrowPiece {
  lane: number;
  from: number;
  to: number;
  part: "start" | "end" | "through";
  /** Whether the vertical line goes on above and below the row's middle. */
  up: boolean;
  down: boolean;
}

export const MOST_LANES = 6;

/** Lays the arrows of jumps within the function into lanes, short ones innermost. Jumps that find no lane have no arrow. */
export function layArrows(model: FunctionModel, rows: readonly ListingRow[]): Map<number, ArrowPiece[]> {
  const rowOf = new Map<number, number>();
  rows.forEach((row, at) => { if (row.kind === "instruction") rowOf.set(row.at, at); });
  const jumps = model.answer.targets
    .map((target) => ({ from: rowOf.get(target.instruction), to: target.to === null ? undefined : rowOf.get(target.to) }))
    .filter((jump): jump is { from: number; to: number } => jump.from !== undefined && jump.to !== undefined && jump.from !== jump.to)
    .sort((a, b) => Math.abs(a.from - a.to) - Math.abs(b.from - b.to));
  const lanes: { top: number; bottom: number }[][] = Array.from({ length: MOST_LANES }, () => []);
  const pieces = new Map<number, ArrowPiece[]>();
  const add = (row: number, piece: ArrowPiece) => {
    const list = pieces.get(row);
    if (list) list.push(piece);
    else pieces.set(row, [piece]);
  };
  for (const jump of jumps) {
    const top = Math.min(jump.from, jump.to);
    const bottom = Math.max(jump.from, jump.to);
    if (bottom - top > 4000) continue;
    const lane = lanes.findIndex((taken) => taken.every((other) => other.bottom < top || other.top > bottom));
    if (lane < 0) continue;
    lanes[lane]!.push({ top, bottom });
    const down = jump.to > jump.from;
    add(jump.from, { lane, ...jump, part: "start", up: !down, down });
    add(jump.to, { lane, ...jump, part: "end", up: down, down: !down });
    for (let row = top + 1; row < bottom; row++) add(row, { lane, ...jump, part: "through", up: true, down: true });
  }
  return pieces;
}
