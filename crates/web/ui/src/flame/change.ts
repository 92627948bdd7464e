// Colours of a flame graph by the change of each node's share towards another profile.

import type { FlameModel } from "./model";
import { inAnswer } from "./model";

export interface Change {
  /** The node's share of all weight here and in the other profile, from 0 to 1. */
  before: number;
  after: number;
  /** Whether only this profile has the node. */
  isGone: boolean;
}

/** A change of share of so many percent points has the strongest colour. */
export const STRONGEST = 10;

/** How a node's share of the first event changes, or null where nothing is compared. */
export function changeOf(model: FlameModel, node: number): Change | null {
  const other = model.answer.other;
  const at = inAnswer(model, node);
  if (!other || at < 0) return null;
  const whole = model.answer.events[0]?.weight ?? 0;
  const otherWhole = other.weight[0] ?? 0;
  if (whole <= 0 || otherWhole <= 0) return null;
  const after = (other.total[0]?.[at] ?? 0) / otherWhole;
  return { before: (model.answer.nodes.total[0]?.[at] ?? 0) / whole, after, isGone: after === 0 };
}

/** A colour for a difference in percent points: red for more, blue for less; a difference of 1 is half as strong as one of 10. */
export function differenceColour(points: number, dark: boolean): string {
  const strength = Math.min(1, Math.log1p(9 * Math.min(1, Math.abs(points) / STRONGEST)) / Math.log(10));
  const hue = points > 0 ? 8 : 212;
  if (Math.abs(points) < 0.005) return dark ? "hsl(215 4% 26%)" : "hsl(215 6% 88%)";
  return dark ? `hsl(${hue} ${8 + Math.round(52 * strength)}% ${26 + Math.round(10 * strength)}%)` : `hsl(${hue} ${20 + Math.round(70 * strength)}% ${90 - Math.round(24 * strength)}%)`;
}

/** The colour of nodes that only this profile has. */
export function goneColour(dark: boolean): string {
  return dark ? "hsl(268 34% 36%)" : "hsl(268 60% 82%)";
}

/** The fill of a node while profiles are compared; null otherwise. */
export function changeFill(model: FlameModel, node: number, dark: boolean): string | null {
  const change = changeOf(model, node);
  if (!change) return null;
  return change.isGone ? goneColour(dark) : differenceColour(100 * (change.after - change.before), dark);
}
