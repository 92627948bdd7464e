// The bars of a timeline of calls, laid out: lanes below each other, in each the levels of calls and maybe samples.

import type { CallLane, CallTimelineAnswer, TimelineAnswer } from "../net/types";

export interface LaneModel {
  lane: CallLane;
  /** The number of levels that are drawn. */
  levels: number;
  /** By level: the bars from left to right. */
  bars: Uint32Array[];
  /** The samples of the thread, if a profile is beside. */
  samples: TimelineAnswer["rows"][number] | null;
  /** In rows of text: where the lane begins, and where the next one does. */
  top: number;
  bottom: number;
}

export interface CallsModel {
  answer: CallTimelineAnswer;
  lanes: LaneModel[];
  /** The height of everything, in rows of text. */
  rows: number;
  /** The answer with the samples, and what to add to its times for the trace's. */
  samples: TimelineAnswer | null;
  shift: number;
}

/** Rows of text that a lane's name takes, and the samples below its bars. */
export const NAME_ROWS = 1.3;
export const SAMPLE_ROWS = 1.8;
const GAP_ROWS = 0.5;

export function layOutCalls(answer: CallTimelineAnswer, samples: TimelineAnswer | null, shift: number): CallsModel {
  const byTid = new Map(samples?.rows.map((row) => [row.number, row]) ?? []);
  let top = 0;
  const lanes = answer.lanes.map((lane): LaneModel => {
    const levels = lane.bars.depth.reduce((most, depth) => Math.max(most, depth + 1), 0);
    const sizes = new Array<number>(levels).fill(0);
    for (const depth of lane.bars.depth) sizes[depth]! += 1;
    const bars = sizes.map((size) => new Uint32Array(size));
    const filled = new Array<number>(levels).fill(0);
    lane.bars.depth.forEach((depth, bar) => { bars[depth]![filled[depth]!++] = bar; });
    const of = byTid.get(lane.tid) ?? null;
    const bottom = top + NAME_ROWS + Math.max(1, levels) + (samples ? SAMPLE_ROWS : 0) + GAP_ROWS;
    const made = { lane, levels, bars, samples: of, top, bottom };
    top = bottom;
    return made;
  });
  return { answer, lanes, rows: top, samples, shift };
}

/** The place of the first bar of a level that ends behind a time. */
export function firstBehind(lane: LaneModel, level: number, time: number): number {
  const list = lane.bars[level]!;
  const end = lane.lane.bars.end;
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (end[list[middle]!]! < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** A bar: its lane and its place in the lane's lists. */
export interface Picked {
  lane: number;
  bar: number;
}

/** The bar at a time and a row of text, or null. `slack` is how far beside a bar still counts, in nanoseconds. */
export function barAt(model: CallsModel, row: number, time: number, slack: number): Picked | null {
  const at = model.lanes.findIndex((lane) => row >= lane.top && row < lane.bottom);
  const lane = model.lanes[at];
  if (!lane) return null;
  const level = Math.floor(row - lane.top - NAME_ROWS);
  if (level < 0 || level >= lane.levels) return null;
  const list = lane.bars[level]!;
  const bars = lane.lane.bars;
  for (let place = firstBehind(lane, level, time - slack); place < list.length; place++) {
    const bar = list[place]!;
    if (bars.start[bar]! > time + slack) break;
    if (bars.end[bar]! >= time - slack) return { lane: at, bar };
  }
  return null;
}

/** Where a bar leads to from the keyboard; the bar itself where there is nothing. */
export function neighbourBar(model: CallsModel, from: Picked, way: "up" | "down" | "left" | "right"): Picked {
  const lane = model.lanes[from.lane]!;
  const bars = lane.lane.bars;
  const level = bars.depth[from.bar]!;
  const list = lane.bars[level]!;
  const place = list.indexOf(from.bar);
  const inLevel = (of: LaneModel, at: number, to: number): Picked | null => {
    const within = of.bars[to];
    if (!within || within.length === 0) return null;
    const found = within[Math.min(within.length - 1, firstBehind(of, to, bars.start[from.bar]!))]!;
    return { lane: at, bar: found };
  };
  if (way === "left") return place > 0 ? { lane: from.lane, bar: list[place - 1]! } : from;
  if (way === "right") return place + 1 < list.length ? { lane: from.lane, bar: list[place + 1]! } : from;
  if (way === "down") {
    const below = inLevel(lane, from.lane, level + 1);
    if (below) return below;
    for (let at = from.lane + 1; at < model.lanes.length; at++) { const next = inLevel(model.lanes[at]!, at, 0); if (next) return next; }
    return from;
  }
  if (level > 0) return inLevel(lane, from.lane, level - 1) ?? from;
  for (let at = from.lane - 1; at >= 0; at--) { const next = inLevel(model.lanes[at]!, at, Math.max(0, model.lanes[at]!.levels - 1)); if (next) return next; }
  return from;
}

/** The flags of a bar's state, as API.md has them. */
export const GOES_ON = 1;
export const BEGAN_BEFORE = 2;

/** The part of the time that is asked for around a shown stretch: stretches that differ a little ask for the same. */
export function tileAround(from: number, to: number, duration: number): { from: number; to: number } {
  let size = 2;
  while (size < to - from) size *= 2;
  const start = Math.max(0, Math.floor(from / (size / 2)) * (size / 2));
  return { from: start, to: Math.min(Math.max(duration, 1), start + 2 * size) };
}
