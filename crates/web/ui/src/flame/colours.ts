// The colours of a flame graph's nodes. A mode is a function from a node to a colour, and a legend. Modules have muted hues
// that keep text readable, the same in every view.

import { percent } from "../format";
import type { FlameAnswer } from "../net/types";
import { type FlameModel, inAnswer } from "./model";

/** A colour with what it stands for. */
export interface LegendEntry {
  colour: string;
  text: string;
}

export interface ColourMode {
  /** Its name in the page's address; empty for the default. */
  key: string;
  title: string;
  fill(model: FlameModel, node: number, dark: boolean): string;
  /** At most a few entries; empty where there would be too many. */
  legend(model: FlameModel, dark: boolean): LegendEntry[];
}

const HUES = [212, 28, 152, 268, 48, 188, 336, 96, 240, 8, 130, 300];

function hashOf(name: string): number {
  let hash = 2166136261;
  for (let at = 0; at < name.length && at < 200; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 16777619) >>> 0;
  return hash >>> 8;
}

/** The hue of a module's name: the same name has the same hue in every profile. */
export function hueOf(name: string): number | null {
  if (name.startsWith("[kernel") || name.endsWith(".ko") || name === "[unknown]") return null;
  return HUES[hashOf(name) % HUES.length]!;
}

function pastel(hue: number | null, dark: boolean, step: number): string {
  if (hue === null) return dark ? `hsl(215 6% ${25 + step}%)` : `hsl(215 8% ${80 + step}%)`;
  return dark ? `hsl(${hue} 30% ${27 + step}%)` : `hsl(${hue} 44% ${78 + step}%)`;
}

/** A module's fill colour; the kernel and unknown code are grey. `shade` from 0 to 1 tells neighbours apart. */
export function moduleColour(name: string, dark: boolean, shade: number): string {
  return pastel(hueOf(name), dark, Math.round(shade * 6));
}

/** The neighbouring shade of a function. */
function shadeOf(fn: number): number {
  return ((fn * 7) % 5) / 4;
}

function moduleNameOf(model: FlameModel, node: number): string {
  const each = model.answer.functions[model.fn[node]!];
  return each ? (model.answer.modules[each.module]?.name ?? "") : "";
}

/** The heaviest modules by what their functions executed themselves. */
function heaviestModules(model: FlameModel, most: number): string[] {
  const { answer } = model;
  const own = new Map<string, number>();
  answer.nodes.own[0]?.forEach((weight, at) => {
    const name = moduleNameOf(model, at + 1 + answer.above.length);
    own.set(name, (own.get(name) ?? 0) + weight);
  });
  return [...own].sort((a, b) => b[1] - a[1]).slice(0, most).map(([name]) => name);
}

const BY_MODULE: ColourMode = {
  key: "", title: "Module",
  fill: (model, node, dark) => moduleColour(moduleNameOf(model, node), dark, shadeOf(model.fn[node]!)),
  legend: (model, dark) => heaviestModules(model, 6).map((name) => ({ colour: moduleColour(name, dark, 0.5), text: name })),
};

const BY_FUNCTION: ColourMode = {
  key: "function", title: "Function",
  fill: (model, node, dark) => {
    const hash = hashOf(model.answer.functions[model.fn[node]!]?.name ?? "");
    return pastel(hash % 360, dark, (hash >>> 9) % 7);
  },
  legend: () => [],
};

// Hues and lightness differ, so that the kinds can be told apart without hues, too.
const KINDS = [
  { name: "user code", hue: 212, light: 80, dark: 34, saturation: 55 },
  { name: "inlined", hue: 300, light: 88, dark: 27, saturation: 40 },
  { name: "kernel", hue: 28, light: 72, dark: 37, saturation: 62 },
  { name: "JIT and other memory", hue: 165, light: 66, dark: 30, saturation: 40 },
  { name: "unknown", hue: 215, light: 91, dark: 22, saturation: 6 },
] as const;

function kindOf(model: FlameModel, node: number): (typeof KINDS)[number] {
  const each = model.answer.functions[model.fn[node]!];
  const module = model.answer.modules[each?.module ?? -1];
  if (module?.kind === "kernel") return KINDS[2];
  if (module?.kind === "jit") return KINDS[3];
  if (!module || module.kind === "unknown") return KINDS[4];
  return each?.inlined ? KINDS[1] : KINDS[0];
}

function kindColour(kind: (typeof KINDS)[number], dark: boolean): string {
  return `hsl(${kind.hue} ${dark ? kind.saturation * 0.8 : kind.saturation}% ${dark ? kind.dark : kind.light}%)`;
}

const BY_KIND: ColourMode = {
  key: "kind", title: "Kernel, user, JIT, inlined",
  fill: (model, node, dark) => kindColour(kindOf(model, node), dark),
  legend: (_, dark) => KINDS.map((kind) => ({ colour: kindColour(kind, dark), text: kind.name })),
};

/** Shares of less than this look like none. */
const LEAST_SHARE = 1e-4;

/** A colour for a strength from 0 to 1: one hue whose lightness falls (rises in the dark) steadily. */
export function heatColour(strength: number, dark: boolean): string {
  const part = Math.round(Math.max(0, Math.min(1, strength)) * 20) / 20;
  return dark ? `hsl(${30 - 12 * part} ${8 + 56 * part}% ${21 + 17 * part}%)` : `hsl(${44 - 22 * part} ${14 + 76 * part}% ${95 - 33 * part}%)`;
}

const mostOf = new WeakMap<FlameAnswer, number[]>();

/** By event: the largest share that a node executed itself. */
function largestOwn(answer: FlameAnswer): number[] {
  let known = mostOf.get(answer);
  if (!known) {
    known = answer.events.map((event, e) => (event.weight > 0 ? (answer.nodes.own[e] ?? []).reduce((most, own) => Math.max(most, own), 0) / event.weight : 0));
    mostOf.set(answer, known);
  }
  return known;
}

/** A share's place between the least and the largest one, on a logarithmic scale. */
function strengthOf(share: number, largest: number): number {
  if (share <= LEAST_SHARE) return share > 0 ? 0.05 : 0;
  return Math.max(0.05, Math.log(share / LEAST_SHARE) / Math.log(Math.max(largest, 2 * LEAST_SHARE) / LEAST_SHARE));
}

/** Colours by what nodes executed themselves of an event. The event is named by its key, since its place may change. */
function bySelf(key: string, name: string): ColourMode {
  const place = (answer: FlameAnswer) => answer.events.findIndex((event) => event.key === key);
  return {
    key: `self:${key}`, title: `Self, ${name}`,
    fill: (model, node, dark) => {
      const e = place(model.answer);
      const at = inAnswer(model, node);
      const whole = model.answer.events[e]?.weight ?? 0;
      if (at < 0 || whole <= 0) return heatColour(0, dark);
      return heatColour(strengthOf((model.answer.nodes.own[e]?.[at] ?? 0) / whole, largestOwn(model.answer)[e] ?? 0), dark);
    },
    legend: (model, dark) => {
      const largest = largestOwn(model.answer)[place(model.answer)] ?? 0;
      const shares = [0, 0.001, 0.01, 0.1].filter((share) => share < largest);
      return [...shares, largest].map((share) => ({ colour: heatColour(strengthOf(share, largest), dark), text: share === 0 ? "no self" : `${percent(100 * share)} %` }));
    },
  };
}

/** The modes for an answer: fixed ones, and one for each of its events. */
export function colourModes(answer: FlameAnswer | null): ColourMode[] {
  return [BY_MODULE, BY_FUNCTION, BY_KIND, ...(answer?.events ?? []).map((event) => bySelf(event.key, event.name))];
}

/** The mode with this key, or the default. */
export function colourMode(answer: FlameAnswer | null, key: string): ColourMode {
  return colourModes(answer).find((mode) => mode.key === key) ?? BY_MODULE;
}
