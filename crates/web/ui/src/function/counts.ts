// How counts of a function's parts are shown: a share of the function for each event, samples or weights on request.

import { count, inUnit, percent, signOf } from "../format";
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

/** Samples and the sum of their periods. */
export interface Counts { samples: number; weight: number }

/** Changes below this many standard errors are what two recordings of one program differ by in 19 of 20 lines. */
const CHANCE = 1.96;

/** The counts of a part of a function in the profile that is compared, as cells: the value there and the change. */
export interface Compared { there: string; change: string; within: boolean; hint: string }

/** Compares a part of a function with the same part in the other profile. Shares are of the function, there as here. */
export function compare(event: Event, other: { own: Counts } | null, measure: Measure, here: Counts, there: Counts | null): Compared | null {
  if (other === null || there === null) return null;
  if (here.samples === 0 && there.samples === 0) return { there: "", change: "", within: true, hint: "" };
  const share = (part: Counts, whole: Counts) => (whole.weight > 0 ? (100 * part.weight) / whole.weight : 0);
  const values: Record<Measure, [number, number]> = {
    percent: [share(here, event.own), share(there, other.own)], samples: [here.samples, there.samples], weight: [here.weight, there.weight],
  };
  const [before, after] = values[measure];
  // A share of a binomial distribution, or a count of a Poisson process; where there is no sample, one might have been.
  const errorOf = (part: Counts, whole: Counts, value: number) => {
    const one = measure === "samples" ? 1 : measure === "weight" ? whole.weight / Math.max(1, whole.samples) : 100 / Math.max(1, whole.samples);
    if (part.samples === 0) return whole.samples > 0 ? one : 0;
    return (value / Math.sqrt(part.samples)) * (measure === "percent" ? Math.sqrt(Math.max(0, 1 - value / 100)) : 1);
  };
  const error = Math.hypot(errorOf(here, event.own, before), errorOf(there, other.own, after));
  const change = after - before;
  const sign = signOf(change, measure === "percent" ? 0.005 : 1e-9);
  const within = Math.abs(change) <= CHANCE * error;
  const size = Math.abs(change);
  const text = measure === "percent" ? percent(size) : measure === "samples" ? count(size) : inUnit(size, event.unit);
  const errorText = measure === "percent" ? percent(error) : measure === "samples" ? error.toFixed(1) : inUnit(error, event.unit);
  return {
    there: there.samples === 0 ? "" : measure === "percent" ? percent(after) : measure === "samples" ? count(after) : inUnit(after, event.unit), change: `${sign}${text}`, within,
    hint: `${event.name}: ${count(here.samples)} samples here, ${count(there.samples)} there; change ${sign}${text} ± ${errorText}${measure === "percent" ? " percent points of the function" : ""}${within ? " – no larger than chance makes it: below 1.96 standard errors" : ""}`,
  };
}

/** The counts of instructions from `first` on in the other profile, summed, for an event; null where instructions are not compared. */
export function instructionsThere(answer: FunctionAnswer, e: number, first: number, number: number): Counts | null {
  const lists = answer.other?.instructions;
  if (!lists) return null;
  const sum = (list: readonly number[] | undefined) => { let total = 0; for (let at = first; at < first + number; at++) total += list?.[at] ?? 0; return total; };
  return { samples: sum(lists.samples[e]), weight: sum(lists.weight[e]) };
}

/** A screen at least this wide shows all events of a function while profiles are compared; a narrower one the first. */
const WIDE = 1900;

/** The events that have columns: three columns each leave little room for code. */
export function eventsShown(answer: FunctionAnswer): FunctionAnswer["events"] {
  return answer.other && innerWidth < WIDE ? answer.events.slice(0, 1) : answer.events;
}
