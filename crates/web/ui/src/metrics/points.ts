// The points of the scatter plot, its scales, and which points stand out.

import type { RowKey, TableAnswer } from "../net/types";
import { rowName } from "../state/selection";
import { placesOf, valueOf } from "./rows";

export interface Point {
  id: string;
  key: RowKey;
  name: string;
  /** Share of the time in percent. */
  x: number;
  y: number;
  low: number;
  high: number;
  trust: string;
  /** Whether its whole interval lies far from the others' values. */
  isOutlier: boolean;
}

/** The points of an answer's rows that have a share and a value. */
export function plotPoints(answer: TableAnswer, metric: string, level: string): Point[] {
  const places = placesOf(answer.columns, metric);
  const share = answer.columns.findIndex((column) => column.id === "share_percent");
  const trust = answer.columns.findIndex((column) => column.id === "trust");
  const points: Point[] = [];
  for (const row of answer.rows) {
    const x = row.cells[share];
    const found = valueOf(row.cells, places);
    if (typeof x !== "number" || x <= 0 || !found) continue;
    const error = row.standard_errors?.[metric];
    const far = error === undefined ? 0 : 1.959964 * error;
    points.push({
      id: String(row.id), key: row.key, name: rowName(answer.columns, row.cells, level), x, y: found.value,
      low: found.low ?? found.value - far, high: found.high ?? found.value + far, trust: String(row.cells[trust] ?? ""), isOutlier: false,
    });
  }
  markOutliers(points);
  return points;
}

/**
 * Marks points whose interval is farther than 3.5 robust deviations from the median. The median and the deviations weigh each
 * point by its share, so that many small functions do not hide the usual value. Points that deserve no trust are not marked.
 */
export function markOutliers(points: Point[]): void {
  if (points.length < 4) return;
  const middle = weightedMedian(points.map((point) => [point.y, point.x]));
  const spread = 1.4826 * weightedMedian(points.map((point) => [Math.abs(point.y - middle), point.x]));
  // If most have one value, a tenth of it is far enough.
  const far = 3.5 * Math.max(spread, Math.abs(middle) / 35);
  if (far <= 0) return;
  for (const point of points)
    point.isOutlier = point.trust !== "unreliable" && (point.low > middle + far || point.high < middle - far);
}

export function weightedMedian(values: [number, number][]): number {
  const sorted = [...values].sort((a, b) => a[0] - b[0]);
  const half = sorted.reduce((sum, [, weight]) => sum + weight, 0) / 2;
  let seen = 0;
  for (const [value, weight] of sorted) {
    seen += weight;
    if (seen >= half) return value;
  }
  return 0;
}

/** A scale from values to positions from 0 to 1. */
export interface Scale {
  log: boolean;
  from: number;
  to: number;
  marks: number[];
}

/** Positions of a value on a scale; outside of it at its ends. */
export function place(scale: Scale, value: number): number {
  const turn = (each: number) => (scale.log ? Math.log10(Math.max(each, scale.from)) : each);
  const span = turn(scale.to) - turn(scale.from);
  return span > 0 ? Math.max(0, Math.min(1, (turn(value) - turn(scale.from)) / span)) : 0.5;
}

/** A scale that shows all values. A logarithmic one begins at the least value above 0. */
export function scaleOf(values: readonly number[], log: boolean): Scale {
  const known = values.filter((value) => Number.isFinite(value));
  const positive = known.filter((value) => value > 0);
  if (log && positive.length > 0) {
    const low = Math.floor(Math.log10(least(positive)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(most(positive))));
    return { log: true, from: 10 ** low, to: 10 ** high, marks: Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at)) };
  }
  const from = Math.min(0, known.length > 0 ? least(known) : 0);
  const to = known.length > 0 ? Math.max(most(known), from) : 1;
  const rough = Math.max((to - from) / 6, 1e-12);
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 5, 10].find((factor) => factor * unit >= rough) ?? 10);
  const first = Math.floor(from / step);
  const last = Math.max(first + 1, Math.ceil(to / step - 1e-9));
  return { log: false, from: first * step, to: last * step, marks: Array.from({ length: last - first + 1 }, (_, at) => (first + at) * step) };
}

const least = (values: readonly number[]) => values.reduce((a, b) => Math.min(a, b), Infinity);
const most = (values: readonly number[]) => values.reduce((a, b) => Math.max(a, b), -Infinity);
