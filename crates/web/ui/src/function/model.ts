// A function's answer with what the panes need to link source lines, instructions and blocks.

import type { FunctionAnswer } from "../net/types";

export type LineKey = string;

export interface FunctionModel {
  answer: FunctionAnswer;
  /** By instruction: the source lines of all its frames, innermost first. */
  linesOf: LineKey[][];
  /** By line: the instructions that were made from it or for a call that was inlined at it. */
  instructionsOf: Map<LineKey, number[]>;
  /** By line: its place in `answer.lines`. */
  lineAt: Map<LineKey, number>;
  /** By instruction: where it leads. */
  targetOf: Map<number, FunctionAnswer["targets"][number]>;
  /** Files in the order of their weight; -1 is not among them. */
  files: { file: number; weight: number }[];
}

export function lineKey(file: number, line: number): LineKey {
  return `${file}:${line}`;
}

export function splitLineKey(key: LineKey): { file: number; line: number } {
  const at = key.indexOf(":");
  return { file: Number(key.slice(0, at)), line: Number(key.slice(at + 1)) };
}

export function indexFunction(answer: FunctionAnswer): FunctionModel {
  const { frames, stacks, instructions } = answer;
  const ofStack = stacks.map((stack) => {
    const keys: LineKey[] = [];
    for (const frame of stack) {
      const file = frames.file[frame]!;
      const line = frames.line[frame]!;
      if (file >= 0 && line > 0) keys.push(lineKey(file, line));
    }
    return keys;
  });
  const linesOf = instructions.stack.map((stack) => (stack < 0 ? [] : (ofStack[stack] ?? [])));
  const instructionsOf = new Map<LineKey, number[]>();
  linesOf.forEach((keys, at) => {
    for (const key of new Set(keys)) {
      const list = instructionsOf.get(key);
      if (list) list.push(at);
      else instructionsOf.set(key, [at]);
    }
  });
  const lineAt = new Map(answer.lines.map((line, at) => [lineKey(line.file, line.line), at]));
  const weights = new Map<number, number>(answer.files.map((_, file) => [file, 0]));
  for (const line of answer.lines) if (line.file >= 0) weights.set(line.file, (weights.get(line.file) ?? 0) + (line.weight[0] ?? 0));
  const files = [...weights].map(([file, weight]) => ({ file, weight })).sort((a, b) => b.weight - a.weight);
  return { answer, linesOf, instructionsOf, lineAt, targetOf: new Map(answer.targets.map((target) => [target.instruction, target])), files };
}

/** The position of the largest value; -1 if all are 0. */
export function hottest(values: readonly number[]): number {
  let best = -1;
  for (let at = 0; at < values.length; at++) if (values[at]! > 0 && (best < 0 || values[at]! > values[best]!)) best = at;
  return best;
}

/** The file and line at which the outermost frame of most samples stands: where the function's own source is. */
export function ownFile(model: FunctionModel): number {
  const { answer } = model;
  const weights = new Map<number, number>();
  answer.instructions.stack.forEach((stack, at) => {
    const outermost = answer.stacks[stack]?.at(-1);
    const file = outermost === undefined ? -1 : answer.frames.file[outermost]!;
    if (file >= 0) weights.set(file, (weights.get(file) ?? 0) + (answer.instructions.weight[0]?.[at] ?? 0) + 1e-9);
  });
  return [...weights].sort((a, b) => b[1] - a[1])[0]?.[0] ?? model.files[0]?.file ?? -1;
}

/** What is picked in a function: lines, instructions and blocks that belong together. */
export interface Picked {
  lines: ReadonlySet<LineKey>;
  instructions: ReadonlySet<number>;
  blocks: ReadonlySet<number>;
  /** Where the reader picked: that pane does not scroll. */
  origin: "source" | "assembly" | "graph" | "none";
  /** What the other panes bring into sight. */
  line: LineKey | null;
  instruction: number;
  block: number;
}

export const NOTHING: Picked = { lines: new Set(), instructions: new Set(), blocks: new Set(), origin: "none", line: null, instruction: -1, block: -1 };

function hottestOf(model: FunctionModel, instructions: readonly number[]): number {
  const weights = model.answer.instructions.weight[0] ?? [];
  let best = instructions[0] ?? -1;
  for (const at of instructions) if ((weights[at] ?? 0) > (weights[best] ?? 0)) best = at;
  return best;
}

function blocksOf(model: FunctionModel, instructions: readonly number[]): Set<number> {
  return new Set(instructions.map((at) => model.answer.instructions.block[at]!).filter((block) => block >= 0));
}

/** Picks a source line with all its instructions and their blocks. */
export function pickLine(model: FunctionModel, key: LineKey): Picked {
  const instructions = model.instructionsOf.get(key) ?? [];
  const best = hottestOf(model, instructions);
  return {
    lines: new Set([key]), instructions: new Set(instructions), blocks: blocksOf(model, instructions), origin: "source", line: key, instruction: best,
    block: model.answer.instructions.block[best] ?? -1,
  };
}

/** Picks an instruction with the lines of its frames and its block. */
export function pickInstruction(model: FunctionModel, at: number, preferred: number): Picked {
  const keys = model.linesOf[at] ?? [];
  const block = model.answer.instructions.block[at] ?? -1;
  return {
    lines: new Set(keys), instructions: new Set([at]), blocks: new Set(block >= 0 ? [block] : []), origin: "assembly",
    line: keys.find((key) => splitLineKey(key).file === preferred) ?? keys[0] ?? null, instruction: at, block,
  };
}

/** Picks a block with its instructions and their lines. */
export function pickBlock(model: FunctionModel, block: number, preferred: number, origin: Picked["origin"]): Picked {
  const each = model.answer.blocks[block];
  if (!each) return NOTHING;
  const instructions = Array.from({ length: each.count }, (_, at) => each.first + at);
  const best = hottestOf(model, instructions);
  const keys = model.linesOf[best] ?? [];
  return {
    lines: new Set(instructions.flatMap((at) => model.linesOf[at] ?? [])), instructions: new Set(instructions), blocks: new Set([block]), origin,
    line: keys.find((key) => splitLineKey(key).file === preferred) ?? keys[0] ?? null, instruction: best, block,
  };
}
