// The heat map: columns of equal time, each divided into rows. What recurs within each second makes a pattern.

import { duration } from "../format";
import type { HeatmapAnswer } from "../net/types";
import type { Stretch } from "./scale";

/** The widths that a column may have, in nanoseconds. */
export const COLUMNS = [1e6, 1e7, 1e8, 1e9, 1e10, 6e10, 6e11] as const;
export const ROWS = 50;
/** Wider columns are taken where there would be more than this many. */
const MOST = 2000;

/** A place: column and row. */
export interface Place {
  column: number;
  row: number;
}

/** The widths that make sense for a stretch of time. */
export function columnWidths(length: number): number[] {
  const fit = COLUMNS.filter((width) => length / width <= MOST && width <= Math.max(length, COLUMNS[0]));
  return fit.length > 0 ? fit : [COLUMNS[COLUMNS.length - 1]!];
}

/** The width to begin with: a second, unless there would be hardly any or far too many columns. */
export function usualWidth(length: number): number {
  const fit = columnWidths(length);
  return fit.filter((width) => width <= 1e9 && length / width >= 4).at(-1) ?? fit.find((width) => width >= 1e9) ?? fit[0]!;
}

// Lightness changes steadily from few to many samples, so the scale needs no hues. It ends far from the background.
const LIGHT = [[222, 235, 247], [158, 202, 225], [86, 152, 205], [28, 97, 168], [8, 38, 92]] as const;
const DARK = [[28, 44, 64], [30, 78, 122], [43, 124, 178], [122, 187, 222], [236, 246, 252]] as const;

/** A colour for a part of the peak, from 0 to 1. The scale is a square root, so that few samples differ from none. */
export function heatFill(part: number, dark: boolean): string {
  const stops = dark ? DARK : LIGHT;
  const at = Math.sqrt(Math.max(0, Math.min(1, part))) * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(at));
  const mix = (channel: number) => Math.round(stops[low]![channel]! + (stops[low + 1]![channel]! - stops[low]![channel]!) * (at - low));
  return `rgb(${mix(0)} ${mix(1)} ${mix(2)})`;
}

/** When a place begins and ends. */
export function timesOf(answer: HeatmapAnswer, place: Place): Stretch {
  const start = answer.start_ns + place.column * answer.column_ns;
  return { from: Math.floor(start + (place.row * answer.column_ns) / answer.rows), to: Math.ceil(start + ((place.row + 1) * answer.column_ns) / answer.rows) };
}

/** The stretch from one place to another, whichever comes first, within the recording. */
export function between(answer: HeatmapAnswer, one: Place, other: Place, end: number): Stretch {
  const [a, b] = [timesOf(answer, one), timesOf(answer, other)];
  return { from: Math.min(a.from, b.from), to: Math.min(end, Math.max(a.to, b.to)) };
}

/** The number of the first place at or behind a time, counted through all columns. */
function placeNumber(answer: HeatmapAnswer, time: number): number {
  return Math.max(0, Math.min(answer.values.length, Math.round(((time - answer.start_ns) / answer.column_ns) * answer.rows)));
}

export interface HeatLook {
  width: number;
  height: number;
  dark: boolean;
  back: string;
  line: string;
  accent: string;
  veil: string;
}

/** Draws the map, veils what is not selected, and frames the place of the keyboard. */
export function drawHeat(context: CanvasRenderingContext2D, answer: HeatmapAnswer, selected: Stretch | null, cursor: Place | null, look: HeatLook): void {
  const { columns, rows, values, peak } = answer;
  const [wide, tall] = [look.width / columns, look.height / rows];
  // Cells touch each other where a gap would be most of them.
  const gap = wide > 5 && tall > 5 ? 1 : 0;
  context.fillStyle = look.back;
  context.fillRect(0, 0, look.width, look.height);
  const fills = Array.from({ length: 65 }, (_, step) => heatFill(step / 64, look.dark));
  for (let column = 0; column < columns; column++) {
    for (let row = 0; row < rows; row++) {
      const value = values[column * rows + row]!;
      if (value <= 0) continue;
      context.fillStyle = fills[Math.max(1, Math.round((64 * value) / peak))]!;
      context.fillRect(column * wide, row * tall, Math.max(0.6, wide - gap), Math.max(0.6, tall - gap));
    }
  }
  if (selected) {
    const [first, last] = [placeNumber(answer, selected.from), placeNumber(answer, selected.to)];
    context.fillStyle = look.veil;
    veil(context, 0, first, rows, wide, tall);
    veil(context, last, columns * rows, rows, wide, tall);
    context.strokeStyle = look.accent;
    context.lineWidth = 2;
    outline(context, first, last, rows, wide, tall);
  }
  if (cursor) {
    context.strokeStyle = look.accent;
    context.lineWidth = 2;
    context.strokeRect(cursor.column * wide + 1, cursor.row * tall + 1, Math.max(2, wide - 2), Math.max(2, tall - 2));
  }
}

/** Covers the places from one number up to another. */
function veil(context: CanvasRenderingContext2D, from: number, to: number, rows: number, wide: number, tall: number): void {
  for (let at = from; at < to;) {
    const column = Math.floor(at / rows);
    const end = Math.min(to, (column + 1) * rows);
    context.fillRect(column * wide, (at - column * rows) * tall, wide, (end - at) * tall);
    at = end;
  }
}

/** Draws the line around the places from one number up to another: they begin within a column and end within another. */
function outline(context: CanvasRenderingContext2D, from: number, to: number, rows: number, wide: number, tall: number): void {
  if (to <= from) return;
  const [first, last] = [Math.floor(from / rows), Math.floor((to - 1) / rows)];
  const [top, bottom] = [(from - first * rows) * tall, (to - last * rows) * tall];
  context.beginPath();
  if (first === last) context.rect(first * wide, top, wide, bottom - top);
  else {
    context.moveTo(first * wide, top);
    context.lineTo((first + 1) * wide, top);
    context.lineTo((first + 1) * wide, 0);
    context.lineTo((last + 1) * wide, 0);
    context.lineTo((last + 1) * wide, bottom);
    context.lineTo(last * wide, bottom);
    context.lineTo(last * wide, rows * tall);
    context.lineTo(first * wide, rows * tall);
    context.closePath();
  }
  context.stroke();
}

/** Writes the map as an SVG file. */
export function heatSvg(answer: HeatmapAnswer, dark: boolean, back: string, text: string): string {
  const [left, top, wide, tall] = [90, 10, Math.max(2, Math.min(20, 1100 / answer.columns)), 10];
  const width = left + wide * answer.columns + 20;
  const height = top + tall * answer.rows + 30;
  const out = [`<svg xmlns="http://www.w3.org/2000/svg" width="${width.toFixed(1)}" height="${height}" font-family="monospace" font-size="12">`, `<rect width="100%" height="100%" fill="${back}"/>`];
  answer.values.forEach((value, at) => {
    if (value <= 0) return;
    const [column, row] = [Math.floor(at / answer.rows), at % answer.rows];
    out.push(`<rect x="${(left + column * wide).toFixed(1)}" y="${top + row * tall}" width="${wide.toFixed(1)}" height="${tall}" fill="${heatFill(value / answer.peak, dark)}"><title>${duration(timesOf(answer, { column, row }).from)}: ${value}</title></rect>`);
  });
  const ends = [[0, 0], [0, answer.rows]] as const;
  for (const [, row] of ends) out.push(`<text x="${left - 6}" y="${top + row * tall + 4}" text-anchor="end" fill="${text}">${duration((row * answer.column_ns) / answer.rows)}</text>`);
  out.push(`<text x="${left}" y="${height - 8}" fill="${text}">${duration(answer.start_ns)}</text>`);
  out.push(`<text x="${width - 20}" y="${height - 8}" text-anchor="end" fill="${text}">${duration(answer.start_ns + answer.columns * answer.column_ns)}</text>`, "</svg>");
  return out.join("\n");
}
