// Draws lanes of a timeline: in each, a bar for every bin.

import { axisTime } from "../format";
import { marks, type Stretch } from "./scale";

export interface LaneColours {
  back: string;
  stripe: string;
  line: string;
  bar: string;
  other: string;
  text: string;
  veil: string;
  accent: string;
}

export interface Lane {
  values: readonly number[];
  /** The value that fills the lane's height. */
  peak: number;
  /** By bin: the thousandths of it without a CPU, or without a thread on the CPU. */
  off?: readonly number[] | undefined;
  /** By bin: the values of the profile that is compared, which hang from the lane's middle. Lanes then have two halves. */
  other?: readonly number[] | undefined;
}

/** Draws lanes of equal height below each other, and veils what the brush leaves out. */
export function drawLanes(
  context: CanvasRenderingContext2D, width: number, laneHeight: number, lanes: readonly Lane[], shown: Stretch, data: Stretch, brush: Stretch | null, colours: LaneColours,
): void {
  const height = laneHeight * lanes.length;
  context.fillStyle = colours.back;
  context.fillRect(0, 0, width, height);
  const scale = width / (shown.to - shown.from);
  lanes.forEach((lane, at) => {
    const bottom = (at + 1) * laneHeight;
    if (at % 2 === 1) { context.fillStyle = colours.stripe; context.fillRect(0, at * laneHeight, width, laneHeight); }
    const bins = lane.values.length;
    if (bins === 0) return;
    const binWidth = ((data.to - data.from) / bins) * scale;
    const left = (data.from - shown.from) * scale;
    if (lane.off) drawOff(context, lane.off, left, binWidth, at * laneHeight, laneHeight - 1, colours);
    if (lane.peak <= 0) return;
    const { base, room } = halves(lane, bottom, laneHeight);
    const bars = (values: readonly number[], fill: string, isBelow: boolean) => {
      context.fillStyle = fill;
      context.beginPath();
      for (let bin = 0; bin < values.length; bin++) {
        const value = values[bin]!;
        if (value <= 0) continue;
        const tall = Math.max(1, Math.min(room, (value / lane.peak) * room));
        context.rect(left + bin * binWidth, isBelow ? base : base - tall, Math.max(binWidth, 0.6), tall);
      }
      context.fill();
    };
    bars(lane.values, colours.bar, false);
    if (lane.other) {
      bars(lane.other, colours.other, true);
      context.fillStyle = colours.line;
      context.fillRect(0, base - 0.5, width, 1);
    }
  });
  context.fillStyle = colours.line;
  for (let at = 1; at <= lanes.length; at++) context.fillRect(0, at * laneHeight - 1, width, 1);
  if (brush) {
    const from = (brush.from - shown.from) * scale;
    const to = (brush.to - shown.from) * scale;
    context.fillStyle = colours.veil;
    if (from > 0) context.fillRect(0, 0, Math.min(from, width), height);
    if (to < width) context.fillRect(Math.max(0, to), 0, width - Math.max(0, to), height);
    context.fillStyle = colours.accent;
    for (const x of [from, to]) if (x >= 0 && x <= width) context.fillRect(Math.min(width - 1, Math.max(0, x - 0.5)), 0, 1, height);
  }
}

/** Where a lane's bars stand, and how tall the tallest is. */
export function halves(lane: Lane, bottom: number, laneHeight: number): { base: number; room: number } {
  return lane.other ? { base: bottom - laneHeight / 2, room: laneHeight / 2 - 2 } : { base: bottom - 1, room: laneHeight - 3 };
}

/** Bins that were off for less than this many thousandths look like none: a switch takes a moment. */
const LEAST_OFF = 20;

/** Hatches the bins without a CPU: the longer they were off it, the stronger. */
function drawOff(context: CanvasRenderingContext2D, off: readonly number[], left: number, binWidth: number, top: number, height: number, colours: LaneColours): void {
  const hatch = hatching(context, colours.text);
  if (!hatch) return;
  context.fillStyle = hatch;
  for (let bin = 0; bin < off.length;) {
    const strength = Math.round(off[bin]! / 100);
    let end = bin + 1;
    while (end < off.length && Math.round(off[end]! / 100) === strength) end += 1;
    if (off[bin]! >= LEAST_OFF && strength > 0) {
      context.globalAlpha = strength / 10;
      context.fillRect(left + bin * binWidth, top, Math.max((end - bin) * binWidth, 0.6), height);
    }
    bin = end;
  }
  context.globalAlpha = 1;
}

const hatches = new Map<string, HTMLCanvasElement>();

/** A pattern of slanted lines. */
function hatching(context: CanvasRenderingContext2D, colour: string): CanvasPattern | null {
  let tile = hatches.get(colour);
  if (!tile) {
    tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d")!;
    pen.strokeStyle = colour;
    pen.globalAlpha = 0.55;
    pen.lineWidth = 1;
    pen.beginPath();
    for (const x of [-6, 0, 6]) { pen.moveTo(x, 6); pen.lineTo(x + 6, 0); }
    pen.stroke();
    hatches.set(colour, tile);
  }
  return context.createPattern(tile, "repeat");
}

/** Draws an axis with times. */
export function drawAxis(context: CanvasRenderingContext2D, width: number, height: number, shown: Stretch, font: string, colours: LaneColours): void {
  context.fillStyle = colours.stripe;
  context.fillRect(0, 0, width, height);
  context.font = font;
  context.textBaseline = "middle";
  const { step, times } = marks(shown, width / 110);
  const scale = width / (shown.to - shown.from);
  for (const time of times) {
    const x = (time - shown.from) * scale;
    context.fillStyle = colours.line;
    context.fillRect(x, 0, 1, height);
    context.fillStyle = colours.text;
    const text = axisTime(time, step);
    if (x + context.measureText(text).width + 6 < width) context.fillText(text, x + 4, height / 2);
  }
}
