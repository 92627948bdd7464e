// Draws the scatter plot, on canvas and as SVG, from one layout.

import { inUnit } from "../format";
import { fold } from "../names";
import { xml } from "../save";
import { place, type Point, type Scale, scaleOf } from "./points";

export interface ScatterLook {
  width: number;
  height: number;
  log: boolean;
  title: string;
  unit: string | null;
  current: number;
  active: number;
  font: string;
  colours: { back: string; line: string; strong: string; text: string; dim: string; accent: string; warning: string; point: string };
}

export interface ScatterLayout {
  x: Scale;
  y: Scale;
  /** By point: pixels. */
  xs: number[];
  ys: number[];
  lows: number[];
  highs: number[];
  area: { left: number; top: number; right: number; bottom: number };
}

/** Names longer than this are cut. */
const LABEL = 36;
/** Most outliers that have names beside them: those with the largest share. */
const LABELS = 12;

export function layScatter(points: readonly Point[], width: number, height: number, log: boolean): ScatterLayout {
  const area = { left: 74, top: 24, right: Math.max(90, width - 16), bottom: Math.max(30, height - 36) };
  const x = scaleOf(points.map((point) => point.x), log);
  // Limits far beyond all values would press the points together, so values alone decide the scale.
  const y = scaleOf(points.map((point) => point.y), log);
  const px = (value: number) => area.left + place(x, value) * (area.right - area.left);
  const py = (value: number) => area.bottom - place(y, value) * (area.bottom - area.top);
  return { x, y, area, xs: points.map((point) => px(point.x)), ys: points.map((point) => py(point.y)), lows: points.map((point) => py(point.low)), highs: points.map((point) => py(point.high)) };
}

const shareMark = (value: number) => `${Number(value.toPrecision(3))}%`;

interface Brush {
  line(x1: number, y1: number, x2: number, y2: number, stroke: string): void;
  dot(x: number, y: number, radius: number, fill: string, ring: string | null, opacity: number, title: string): void;
  text(x: number, y: number, text: string, fill: string, anchor: "start" | "middle" | "end"): void;
}

function paint(points: readonly Point[], laid: ScatterLayout, look: ScatterLook, brush: Brush): void {
  const { area, x, y } = laid;
  const { colours } = look;
  for (const mark of x.marks) {
    const at = area.left + place(x, mark) * (area.right - area.left);
    brush.line(at, area.top, at, area.bottom, colours.line);
    brush.text(at, area.bottom + 13, shareMark(mark), colours.dim, "middle");
  }
  for (const mark of y.marks) {
    const at = area.bottom - place(y, mark) * (area.bottom - area.top);
    brush.line(area.left, at, area.right, at, colours.line);
    brush.text(area.left - 6, at, inUnit(Number(mark.toPrecision(6)), look.unit), colours.dim, "end");
  }
  brush.line(area.left, area.bottom, area.right, area.bottom, colours.strong);
  brush.line(area.left, area.top, area.left, area.bottom, colours.strong);
  brush.text((area.left + area.right) / 2, area.bottom + 27, "share of the time", colours.text, "middle");
  brush.text(area.left, area.top - 14, look.title, colours.text, "start");
  points.forEach((point, at) => {
    const isFaint = point.trust === "unreliable";
    const ink = isFaint ? colours.strong : point.isOutlier ? colours.warning : colours.point;
    if (laid.lows[at]! - laid.highs[at]! > 1) brush.line(laid.xs[at]!, laid.lows[at]!, laid.xs[at]!, laid.highs[at]!, isFaint ? colours.line : ink);
    const ring = at === look.current || at === look.active ? colours.accent : null;
    brush.dot(laid.xs[at]!, laid.ys[at]!, point.isOutlier ? 4 : 3, ink, ring, isFaint ? 0.6 : 0.85, point.name);
  });
  const named = points.map((point, at) => ({ point, at })).filter(({ point }) => point.isOutlier).sort((a, b) => b.point.x - a.point.x).slice(0, LABELS);
  const current = points[look.current];
  if (current && named.every(({ at }) => at !== look.current)) named.push({ point: current, at: look.current });
  for (const { point, at } of named) {
    const name = fold(point.name) || "[no name]";
    const isRight = laid.xs[at]! > (area.left + area.right) / 2;
    brush.text(laid.xs[at]! + (isRight ? -8 : 8), laid.ys[at]!, name.length > LABEL ? `${name.slice(0, LABEL - 1)}…` : name, colours.text, isRight ? "end" : "start");
  }
}

export function drawScatter(context: CanvasRenderingContext2D, points: readonly Point[], laid: ScatterLayout, look: ScatterLook): void {
  context.fillStyle = look.colours.back;
  context.fillRect(0, 0, look.width, look.height);
  context.font = look.font;
  context.textBaseline = "middle";
  paint(points, laid, look, {
    line(x1, y1, x2, y2, stroke) {
      context.strokeStyle = stroke;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(Math.round(x1) + 0.5, Math.round(y1) + 0.5);
      context.lineTo(Math.round(x2) + 0.5, Math.round(y2) + 0.5);
      context.stroke();
    },
    dot(x, y, radius, fill, ring, opacity) {
      context.globalAlpha = opacity;
      context.fillStyle = fill;
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.fill();
      context.globalAlpha = 1;
      if (ring === null) return;
      context.strokeStyle = ring;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, radius + 3, 0, 2 * Math.PI);
      context.stroke();
    },
    text(x, y, text, fill, anchor) {
      context.fillStyle = fill;
      context.textAlign = anchor === "middle" ? "center" : anchor === "end" ? "right" : "left";
      context.fillText(text, x, y);
    },
  });
  context.textAlign = "left";
}

export function scatterSvg(points: readonly Point[], look: ScatterLook): string {
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${look.width}" height="${look.height}" font-family="sans-serif" font-size="11">`,
    `<rect width="100%" height="100%" fill="${look.colours.back}"/>`,
  ];
  const at = (value: number) => value.toFixed(1);
  paint(points, layScatter(points, look.width, look.height, look.log), look, {
    line(x1, y1, x2, y2, stroke) { out.push(`<path d="M${at(x1)} ${at(y1)}L${at(x2)} ${at(y2)}" stroke="${stroke}"/>`); },
    dot(x, y, radius, fill, ring, opacity, title) {
      out.push(`<circle cx="${at(x)}" cy="${at(y)}" r="${radius}" fill="${fill}" fill-opacity="${opacity}"${ring ? ` stroke="${ring}" stroke-width="2"` : ""}><title>${xml(title.slice(0, 500))}</title></circle>`);
    },
    text(x, y, text, fill, anchor) { out.push(`<text x="${at(x)}" y="${at(y + 4)}" fill="${fill}" text-anchor="${anchor}">${xml(text)}</text>`); },
  });
  out.push("</svg>");
  return out.join("\n");
}
