// Draws a flame graph on canvas. Only nodes that are at least a fraction of a pixel wide are drawn, so a frame costs what
// is in sight, not what the tree holds.

import { fold } from "../names";
import { changeFill } from "./change";
import type { ColourMode } from "./colours";
import { firstBehind, type FlameModel } from "./model";

export interface FlameLook {
  width: number;
  height: number;
  rowHeight: number;
  /** The part of the whole that fills the width. */
  from: number;
  to: number;
  /** Pixels that are scrolled away at the top. */
  scroll: number;
  upwards: boolean;
  dark: boolean;
  font: string;
  characterWidth: number;
  colours: { text: string; dim: string; back: string; line: string; mark: string; accent: string };
  /** Marked functions; all others are drawn faintly. */
  found: Uint8Array | null;
  current: number;
  mode: ColourMode;
}

/** The top of a level in pixels, scrolled. */
export function levelTop(look: FlameLook, levels: number, depth: number): number {
  const place = look.upwards ? Math.max(levels * look.rowHeight, look.height) - (depth + 1) * look.rowHeight : depth * look.rowHeight;
  return place - look.scroll;
}

/** Draws everything that is in sight. */
export function drawFlame(context: CanvasRenderingContext2D, model: FlameModel, look: FlameLook): void {
  context.fillStyle = look.colours.back;
  context.fillRect(0, 0, look.width, look.height);
  context.font = look.font;
  context.textBaseline = "middle";
  const scale = look.width / (look.to - look.from);
  const gap = 0.5;
  for (let depth = 0; depth < model.levels.length; depth++) {
    const top = levelTop(look, model.levels.length, depth);
    if (top + look.rowHeight < 0 || top > look.height) continue;
    const level = model.levels[depth]!;
    let drawnTo = -1;
    for (let at = firstBehind(model, level, look.from); at < level.length; at++) {
      const node = level[at]!;
      if (model.left[node]! >= look.to) break;
      const left = Math.max(0, (model.left[node]! - look.from) * scale);
      const right = Math.min(look.width, (model.right[node]! - look.from) * scale);
      if (right - drawnTo < 0.35) continue;
      const wide = Math.max(right - left - gap, 0.4);
      drawnTo = left + wide;
      drawNode(context, model, look, node, left, top, wide);
    }
  }
}

function drawNode(context: CanvasRenderingContext2D, model: FlameModel, look: FlameLook, node: number, left: number, top: number, wide: number): void {
  const fn = model.fn[node]!;
  const isFound = look.found !== null && fn >= 0 && look.found[fn] === 1;
  const isFaint = look.found !== null && !isFound;
  context.globalAlpha = isFaint ? 0.4 : 1;
  context.fillStyle = fn < 0 ? look.colours.line : isFound ? look.colours.mark : changeFill(model, node, look.dark) ?? look.mode.fill(model, node, look.dark);
  context.fillRect(left, top, wide, look.rowHeight - 1);
  context.globalAlpha = 1;
  if (node === look.current && node !== 0) {
    context.strokeStyle = look.colours.accent;
    context.lineWidth = 2;
    context.strokeRect(left + 1, top + 1, Math.max(wide - 2, 1), look.rowHeight - 3);
  }
  const room = Math.floor((wide - 6) / look.characterWidth);
  if (room < 3) return;
  context.fillStyle = isFaint ? look.colours.dim : look.colours.text;
  context.fillText(clip(labelOf(model, node), room), left + 4, top + look.rowHeight / 2);
}

/** The name of a node as it is drawn. */
export function labelOf(model: FlameModel, node: number): string {
  const fn = model.fn[node]!;
  if (fn < 0) return "all";
  return fold(model.answer.functions[fn]?.name ?? "") || "[no name]";
}

function clip(text: string, room: number): string {
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}
