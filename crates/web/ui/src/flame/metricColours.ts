// Colours of a flame graph's nodes by a metric, such as instructions per cycle, of a node with everything below it.

import { inUnit } from "../format";
import { visible } from "../names";
import type { FlameAnswer, OfferedMetric } from "../net/types";
import { type ColourMode, heatColour } from "./colours";
import { type FlameModel, inAnswer } from "./model";

type Metric = NonNullable<FlameAnswer["metrics"]>[number];

/** How the address names such colours: the metric's name follows. */
const PREFIX = "metric:";
/** The largest number of metrics in the menu; makers publish hundreds. */
const MOST = 60;
/** Nodes with a smaller share of the first event do not stretch the scale. */
const LEAST_SHARE = 0.002;
/** The parts of nodes below and above the ends of the scale. */
const ENDS = 0.02;

/** The metric by which the address colours nodes; empty for none. */
export function colouredMetric(colours: string): string {
  return colours.startsWith(PREFIX) ? colours.slice(PREFIX.length) : "";
}

/** The metric of an answer; null where it was not asked for, or has no value anywhere. */
export function metricIn(answer: FlameAnswer): Metric | null {
  return answer.metrics?.at(-1) ?? null;
}

export interface MetricValue {
  title: string;
  unit: string | null;
  value: number | null;
  error: number | null;
  few: boolean;
}

/** The metric of a node; null where there is none. */
export function metricOf(model: FlameModel, node: number): MetricValue | null {
  const metric = metricIn(model.answer);
  const at = inAnswer(model, node);
  if (!metric) return null;
  const { title, unit } = metric;
  return at < 0 ? (node === 0 ? { title, unit, value: metric.whole, error: null, few: false } : null)
    : { title, unit, value: metric.values[at] ?? null, error: metric.errors[at] ?? null, few: metric.few[at] === 1 };
}

const scales = new WeakMap<FlameAnswer, { low: number; high: number }>();

/** The values at the ends of the scale: nearly the least and the largest among nodes with enough samples and weight. */
function scaleOf(answer: FlameAnswer): { low: number; high: number } {
  let known = scales.get(answer);
  if (!known) {
    const metric = metricIn(answer);
    const whole = answer.events[0]?.weight ?? 0;
    const values = (metric?.values ?? []).filter((value, at): value is number => value !== null && metric!.few[at] !== 1 && (answer.nodes.total[0]?.[at] ?? 0) >= LEAST_SHARE * whole);
    values.sort((a, b) => a - b);
    const at = (part: number) => values[Math.round(part * (values.length - 1))] ?? 0;
    known = { low: at(ENDS), high: at(1 - ENDS) };
    scales.set(answer, known);
  }
  return known;
}

function strengthOf(value: number, { low, high }: { low: number; high: number }): number {
  return high > low ? Math.max(0, Math.min(1, (value - low) / (high - low))) : 0.5;
}

function grey(dark: boolean): string {
  return dark ? "hsl(215 5% 24%)" : "hsl(215 7% 86%)";
}

/** The mode for a metric. Nodes without a value, or with too few samples for one, are grey. */
function byMetric(key: string, title: string): ColourMode {
  return {
    key: `${PREFIX}${key}`, title,
    fill: (model, node, dark) => {
      const metric = metricOf(model, node);
      return metric === null || metric.value === null || metric.few ? grey(dark) : heatColour(0.08 + 0.92 * strengthOf(metric.value, scaleOf(model.answer)), dark);
    },
    legend: (model, dark) => {
      const metric = metricIn(model.answer);
      if (!metric) return [];
      const scale = scaleOf(model.answer);
      const steps = scale.high > scale.low ? [0, 0.25, 0.5, 0.75, 1] : [0.5];
      const entries = steps.map((part) => {
        const value = scale.low + part * (scale.high - scale.low);
        const end = scale.high > scale.low && part === 0 ? " or less" : part === 1 ? " or more" : "";
        return { colour: heatColour(0.08 + 0.92 * strengthOf(value, scale), dark), text: `${part === steps[0] ? `${visible(metric.title)}, with callees: ` : ""}${inUnit(value, metric.unit)}${end}` };
      });
      const few = { colour: grey(dark), text: "too few samples, or no value" };
      const whole = metric.whole === null ? [] : [{ colour: heatColour(0.08 + 0.92 * strengthOf(metric.whole, scale), dark), text: `all samples: ${inUnit(metric.whole, metric.unit)}` }];
      return [...entries, few, ...whole];
    },
  };
}

/** The modes for the metrics that a profile's events make. */
export function metricModes(offered: readonly OfferedMetric[], chosen: string): ColourMode[] {
  const shown = offered.filter((metric, at) => at < MOST || metric.name === chosen);
  const modes = shown.map((metric) => byMetric(metric.name, `${visible(metric.title)} (${visible(metric.set)})`));
  return chosen === "" || shown.some((metric) => metric.name === chosen) ? modes : [...modes, byMetric(chosen, visible(chosen))];
}
