// Draws the bars of calls on canvas. Only bars in sight and at least a fraction of a pixel wide are drawn, so a frame
// costs what is in sight.

import { moduleColour } from "../flame/colours";
import { fold, visible } from "../names";
import type { LaneColours } from "../timeline/draw";
import type { Stretch } from "../timeline/scale";
import { type CallsModel, firstBehind, type LaneModel, NAME_ROWS, type Picked, SAMPLE_ROWS } from "./model";

export interface CallsLook {
  width: number;
  height: number;
  rowHeight: number;
  shown: Stretch;
  /** Pixels that are scrolled away at the top. */
  scroll: number;
  dark: boolean;
  font: string;
  characterWidth: number;
  colours: LaneColours & { name: string };
  picked: Picked | null;
  brush: Stretch | null;
}

const fills = new Map<string, string>();

function fillOf(model: CallsModel, fn: number, dark: boolean): string {
  const each = model.answer.functions[fn];
  const module = each ? (model.answer.modules[each.module]?.name ?? "") : "";
  const shade = hashOf(each?.key ?? "") / 4;
  const key = `${dark} ${shade} ${module}`;
  let fill = fills.get(key);
  if (fill === undefined) fills.set(key, (fill = moduleColour(module, dark, shade)));
  return fill;
}

/** A function has one shade in every answer. */
function hashOf(key: string): number {
  let hash = 0;
  for (let at = Math.max(0, key.length - 12); at < key.length; at++) hash = (hash * 31 + key.charCodeAt(at)) >>> 0;
  return hash % 5;
}

/** Draws everything that is in sight, below the axis. */
export function drawCalls(context: CanvasRenderingContext2D, model: CallsModel, look: CallsLook): void {
  context.fillStyle = look.colours.back;
  context.fillRect(0, 0, look.width, look.height);
  context.font = look.font;
  context.textBaseline = "middle";
  for (const [at, lane] of model.lanes.entries()) {
    const top = lane.top * look.rowHeight - look.scroll;
    if (lane.bottom * look.rowHeight - look.scroll < 0) continue;
    if (top > look.height) break;
    drawLane(context, model, look, lane, at, top);
  }
  if (look.brush) {
    const scale = look.width / (look.shown.to - look.shown.from);
    const from = (look.brush.from - look.shown.from) * scale;
    const to = (look.brush.to - look.shown.from) * scale;
    context.fillStyle = look.colours.veil;
    if (from > 0) context.fillRect(0, 0, Math.min(from, look.width), look.height);
    if (to < look.width) context.fillRect(Math.max(0, to), 0, look.width - Math.max(0, to), look.height);
    context.fillStyle = look.colours.accent;
    for (const x of [from, to]) if (x >= 0 && x <= look.width) context.fillRect(Math.min(look.width - 1, Math.max(0, x - 0.5)), 0, 1, look.height);
  }
}

function drawLane(context: CanvasRenderingContext2D, model: CallsModel, look: CallsLook, lane: LaneModel, at: number, top: number): void {
  const scale = look.width / (look.shown.to - look.shown.from);
  context.fillStyle = look.colours.stripe;
  context.fillRect(0, top, look.width, NAME_ROWS * look.rowHeight - 1);
  context.fillStyle = look.colours.name;
  context.fillText(visible(laneName(lane)).slice(0, 200), 6, top + (NAME_ROWS * look.rowHeight) / 2);
  const bars = lane.lane.bars;
  for (let level = 0; level < lane.levels; level++) {
    const y = top + (NAME_ROWS + level) * look.rowHeight;
    if (y + look.rowHeight < 0) continue;
    if (y > look.height) break;
    const list = lane.bars[level]!;
    let drawnTo = -1;
    for (let place = firstBehind(lane, level, look.shown.from); place < list.length; place++) {
      const bar = list[place]!;
      if (bars.start[bar]! >= look.shown.to) break;
      const left = Math.max(0, (bars.start[bar]! - look.shown.from) * scale);
      const right = Math.min(look.width, (bars.end[bar]! - look.shown.from) * scale);
      if (right - drawnTo < 0.3) continue;
      const wide = Math.max(right - left - 0.5, 0.7);
      drawnTo = left + wide;
      context.globalAlpha = bars.count[bar]! > 1 ? 0.65 : 1;
      context.fillStyle = fillOf(model, bars.function[bar]!, look.dark);
      context.fillRect(left, y, wide, look.rowHeight - 1);
      context.globalAlpha = 1;
      const room = Math.floor((wide - 6) / look.characterWidth);
      if (room < 3) continue;
      context.fillStyle = look.dark ? "#e8ebee" : "#1b1f24";
      const name = barName(model, lane, bar);
      context.fillText(name.length <= room ? name : `${name.slice(0, room - 1)}…`, left + 4, y + look.rowHeight / 2);
    }
  }
  if (look.picked?.lane === at) {
    const bar = look.picked.bar;
    const left = Math.max(-2, (bars.start[bar]! - look.shown.from) * scale);
    const right = Math.min(look.width + 2, (bars.end[bar]! - look.shown.from) * scale);
    if (right >= 0 && left <= look.width) {
      context.strokeStyle = look.colours.accent;
      context.lineWidth = 2;
      context.strokeRect(left, top + (NAME_ROWS + bars.depth[bar]!) * look.rowHeight, Math.max(3, right - left), look.rowHeight - 1);
    }
  }
  if (model.samples) drawSamples(context, model, look, lane, top, scale);
  context.fillStyle = look.colours.line;
  context.fillRect(0, lane.bottom * look.rowHeight - look.scroll - 1, look.width, 1);
}

function drawSamples(context: CanvasRenderingContext2D, model: CallsModel, look: CallsLook, lane: LaneModel, top: number, scale: number): void {
  const samples = model.samples!;
  const bottom = top + (NAME_ROWS + Math.max(1, lane.levels) + SAMPLE_ROWS) * look.rowHeight;
  const high = SAMPLE_ROWS * look.rowHeight - 3;
  context.fillStyle = look.colours.line;
  context.fillRect(0, bottom, look.width, 1);
  if (!lane.samples || samples.peak === 0) return;
  context.fillStyle = look.colours.bar;
  context.beginPath();
  lane.samples.values.forEach((value, bin) => {
    if (value <= 0) return;
    const left = (samples.start_ns + bin * samples.bin_ns + model.shift - look.shown.from) * scale;
    const wide = Math.max(samples.bin_ns * scale, 0.8);
    if (left + wide < 0 || left > look.width) return;
    const tall = Math.max(1, (value / samples.peak) * high);
    context.rect(left, bottom - tall, wide, tall);
  });
  context.fill();
}

/** The name of a lane as it is drawn. */
export function laneName(lane: LaneModel): string {
  const { name, tid, calls, left_out } = lane.lane;
  const some = left_out > 0 ? `, ${left_out} bars left out` : "";
  return `${name || "thread"} (${tid}) · ${calls === 1 ? "1 call" : `${calls.toLocaleString("en-US")} calls`} here${some}`;
}

/** The text of a bar. */
export function barName(model: CallsModel, lane: LaneModel, bar: number): string {
  const name = fold(model.answer.functions[lane.lane.bars.function[bar]!]?.name ?? "") || "[no name]";
  const calls = lane.lane.bars.count[bar]!;
  return calls > 1 ? `${calls} calls, longest: ${name}` : name;
}
