// How counts of a function's parts are shown: a share of the function for each event, samples or weights on request.

import { count, inUnit, percent } from "../format";
import type { FunctionAnswer } from "../net/types";

export type Measure = "percent" | "samples" | "weight";

type Event = FunctionAnswer["events"][number];

export function countText(event: Event, measure: Measure, samples: number, weight: number): string {
  if (measure === "samples") return count(samples);
  if (measure === "weight") return inUnit(weight, event.unit);
  return event.own.weight > 0 ? percent((100 * weight) / event.own.weight) : "–";
}

/** The whole truth about a cell, for hovering. */
export function countHint(event: Event, samples: number, weight: number, error?: number): string {
  if (samples === 0) return "";
  const share = event.own.weight > 0 ? `${percent((100 * weight) / event.own.weight)}% of the function` : "";
  const plusMinus = error ? ` ± ${inUnit(error, event.unit)}` : "";
  return `${event.name}: ${count(samples)} samples, ${inUnit(weight, event.unit)}${plusMinus}${share ? `, ${share}` : ""}${samples < 10 ? " – rests on few samples" : ""}`;
}
