// The flame graph as a thing to use: hover, zoom, keyboard. The view above it decides what is asked and shown.

import { createEffect, createSignal, on, onCleanup, onMount, Show } from "solid-js";
import { count, inUnit, shareOf } from "../format";
import { visible } from "../names";
import { colour, isDark } from "../shell/theme";
import { createRowHeight } from "../table/virtual";
import { changeOf } from "./change";
import type { ColourMode } from "./colours";
import { drawFlame, type FlameLook, labelOf, levelTop } from "./draw";
import { metricOf } from "./metricColours";
import { ALL, type FlameModel, inAnswer, neighbour, nodeAt, nodeAtPath, pathOf } from "./model";
import { type NodeAction, NodeMenu } from "./NodeMenu";

interface FlameProps {
  model: FlameModel;
  upwards: boolean;
  found: Uint8Array | null;
  label: string;
  /** What nodes count; samples, unless said otherwise. */
  things?: string;
  mode: ColourMode;
  /** The functions from the top to the node that fills the width. */
  zoom: readonly string[];
  /** The reader zoomed to a node: the view may ask for a finer tree below it. */
  onZoom(path: string[]): void;
  onOpen(fn: number): void;
  /** What can be done with a node's function, each with a key. */
  actions: readonly NodeAction[];
  /** Hands out what is drawn now, for saving. */
  onReady(handle: { canvas: HTMLCanvasElement; look(): FlameLook }): void;
}

const ZOOM_MS = 140;

export function FlameChart(props: FlameProps) {
  let canvas!: HTMLCanvasElement;
  let box!: HTMLDivElement;
  const rowHeight = createRowHeight(1.5);
  const [size, setSize] = createSignal({ width: 100, height: 100 });
  const [range, setRange] = createSignal({ from: 0, to: 1 });
  const [scroll, setScroll] = createSignal(0);
  const [hovered, setHovered] = createSignal<{ node: number; x: number; y: number } | null>(null);
  const [current, setCurrent] = createSignal(ALL);
  const [menu, setMenu] = createSignal<{ fn: number; x: number; y: number } | null>(null);
  let zoomed = ALL;
  let frame = 0;

  const contentHeight = () => Math.max(props.model.levels.length * rowHeight(), size().height);
  const look = (): FlameLook => ({
    width: size().width, height: size().height, rowHeight: rowHeight(), from: range().from, to: range().to, scroll: scroll(), upwards: props.upwards,
    dark: isDark(), font: `${Math.round(rowHeight() * 0.62)}px ${colour("mono")}`, characterWidth: characterWidth(),
    colours: { text: isDark() ? "#e8ebee" : "#1b1f24", dim: colour("dim"), back: colour("back"), line: colour("strong-line"), mark: colour("mark"), accent: colour("accent") },
    found: props.found, current: current(), mode: props.mode,
  });
  const characterWidth = () => {
    const context = canvas.getContext("2d")!;
    context.font = `${Math.round(rowHeight() * 0.62)}px ${colour("mono")}`;
    return context.measureText("0").width;
  };
  const draw = () => {
    frame = 0;
    const ratio = devicePixelRatio || 1;
    const { width, height } = size();
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawFlame(context, props.model, look());
  };
  const redraw = () => { if (frame === 0) frame = requestAnimationFrame(draw); };
  createEffect(() => { size(); range(); scroll(); current(); isDark(); rowHeight(); void [props.model, props.upwards, props.found, props.mode]; redraw(); });

  const clampScroll = (value: number) => Math.max(0, Math.min(contentHeight() - size().height, value));
  // A new tree is shown at once, the node that is zoomed to in sight; a zoom within it moves.
  createEffect(on(() => [props.model, props.zoom] as const, ([model, zoom], before) => {
    zoomed = nodeAtPath(model, zoom);
    const [from, to] = [model.left[zoomed]!, model.right[zoomed]!];
    setCurrent(zoomed);
    if (before?.[0] === model) { animate(from, to); return; }
    setRange({ from, to });
    setHovered(null);
    setMenu(null);
    setScroll(props.upwards ? clampScroll(contentHeight()) : 0);
  }));
  createEffect(on(() => [props.upwards, size().height], () => setScroll(props.upwards ? clampScroll(contentHeight()) : 0)));

  const animate = (from: number, to: number) => {
    const start = { ...range() };
    const began = performance.now();
    const step = (now: number) => {
      const part = Math.min(1, (now - began) / ZOOM_MS);
      const eased = 1 - (1 - part) ** 3;
      setRange({ from: start.from + (from - start.from) * eased, to: start.to + (to - start.to) * eased });
      if (part < 1) requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  };
  const zoom = (node: number) => {
    setCurrent(node);
    // A free zoom by the wheel ends here, also where the address stays the same.
    if (node === zoomed) animate(props.model.left[node]!, props.model.right[node]!);
    props.onZoom(pathOf(props.model, node));
  };
  const openMenu = (event: MouseEvent) => {
    const byMouse = event.clientX > 0 || event.clientY > 0;
    const pointed = byMouse && event.button === 2 ? find(event) : current();
    const fn = props.model.fn[pointed] ?? -1;
    if (fn < 0) return;
    event.preventDefault();
    setHovered(null);
    setCurrent(pointed);
    const bounds = canvas.getBoundingClientRect();
    setMenu({ fn, x: byMouse ? event.clientX : bounds.left + 40, y: byMouse ? event.clientY : bounds.top + 40 });
  };
  const show = (node: number) => {
    setCurrent(node);
    const top = levelTop({ ...look(), scroll: 0 }, props.model.levels.length, props.model.depth[node]!);
    if (top < scroll()) setScroll(clampScroll(top));
    else if (top + rowHeight() > scroll() + size().height) setScroll(clampScroll(top + rowHeight() - size().height));
    if (props.model.right[node]! <= range().from || props.model.left[node]! >= range().to) setRange({ from: 0, to: 1 });
  };
  const find = (event: MouseEvent): number => {
    const bounds = canvas.getBoundingClientRect();
    const y = event.clientY - bounds.top + scroll();
    const row = Math.floor((props.upwards ? contentHeight() - 1 - y : y) / rowHeight());
    const x = (event.clientX - bounds.left) / bounds.width;
    return nodeAt(props.model, row, range().from + x * (range().to - range().from));
  };
  const onWheel = (event: WheelEvent) => {
    event.preventDefault();
    if (!event.ctrlKey && !event.metaKey && !event.shiftKey) { setScroll(clampScroll(scroll() + event.deltaY)); return; }
    const bounds = canvas.getBoundingClientRect();
    const at = (event.clientX - bounds.left) / bounds.width;
    const { from, to } = range();
    const width = Math.min(1, (to - from) * Math.exp((event.deltaY || event.deltaX) * 0.002));
    const left = Math.max(0, Math.min(1 - width, from + at * (to - from) - at * width));
    setRange({ from: left, to: left + width });
  };
  const onKey = (event: KeyboardEvent) => {
    const ways: Record<string, "up" | "down" | "left" | "right"> = {
      ArrowUp: props.upwards ? "down" : "up", ArrowDown: props.upwards ? "up" : "down", ArrowLeft: "left", ArrowRight: "right",
    };
    const way = ways[event.key];
    const fn = props.model.fn[current()]!;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (way) show(neighbour(props.model, current(), way));
    else if (event.key === "Enter") zoom(current());
    else if (event.key === "Escape" || event.key === "Backspace") zoom(Math.max(0, props.model.parent[zoomed]!));
    else {
      const action = fn >= 0 ? props.actions.find((each) => each.key === event.key) : undefined;
      if (!action) return;
      action.run(fn);
    }
    event.preventDefault();
  };
  onMount(() => {
    const observer = new ResizeObserver(() => setSize({ width: box.clientWidth, height: box.clientHeight }));
    observer.observe(box);
    canvas.addEventListener("wheel", onWheel, { passive: false });
    onCleanup(() => { observer.disconnect(); cancelAnimationFrame(frame); });
    props.onReady({ canvas, look });
  });

  const said = () => {
    const node = current();
    return `${labelOf(props.model, node)}, ${shareOf(props.model.right[node]! - props.model.left[node]!, 1)}`;
  };
  return (
    <div class="flame" ref={box}>
      <canvas
        ref={canvas} tabindex="0" role="application" aria-label={`${props.label}. Arrow keys move, Enter zooms, Escape zooms out, o opens the function, Shift and F10 open its menu.`}
        style={{ width: `${size().width}px`, height: `${size().height}px` }} onKeyDown={onKey}
        onMouseMove={(event) => { const node = find(event); setHovered(node < 0 ? null : { node, x: event.clientX, y: event.clientY }); }}
        onMouseLeave={() => setHovered(null)} onClick={(event) => { const node = find(event); if (node >= 0) zoom(node); }}
        onDblClick={(event) => { const fn = props.model.fn[find(event)] ?? -1; if (fn >= 0) props.onOpen(fn); }}
        onContextMenu={openMenu}
      />
      <div class="off-screen" role="status">{said()}</div>
      <Show when={menu()}>
        {(at) => <NodeMenu answer={props.model.answer} fn={at().fn} x={at().x} y={at().y} actions={props.actions} onClose={() => { setMenu(null); canvas.focus(); }} />}
      </Show>
      <Show when={menu() === null && hovered()}>{(at) => <Details model={props.model} node={at().node} x={at().x} y={at().y} things={props.things} />}</Show>
    </div>
  );
}

/** What is known about a node, beside the pointer. */
function Details(props: { model: FlameModel; node: number; x: number; y: number; things?: string | undefined }) {
  const each = () => props.model.answer.functions[props.model.fn[props.node]!];
  const at = () => inAnswer(props.model, props.node);
  const nodes = () => props.model.answer.nodes;
  const rows = () => props.model.answer.events.map((event, e) => {
    const total = at() < 0 ? null : nodes().total[e]?.[at()] ?? 0;
    return total === null ? null : {
      name: event.name, total: inUnit(total, event.unit), share: shareOf(total, event.weight),
      own: shareOf(nodes().own[e]?.[at()] ?? 0, event.weight), samples: count(nodes().total_samples[e]?.[at()] ?? 0),
    };
  }).filter((row) => row !== null);
  return (
    <div class="tooltip" style={{ left: `${Math.max(4, Math.min(props.x + 12, innerWidth - 480))}px`, top: `${Math.min(props.y + 16, innerHeight - 150)}px` }}>
      <div class="title">{visible(each()?.name ?? "all").slice(0, 1200)}</div>
      <div class="dim">{visible(each() ? (props.model.answer.modules[each()!.module]?.name ?? "") : "")}{each()?.inlined ? " · inlined" : ""}</div>
      <table><tbody>
        <tr><td /><td class="value dim">total</td><td /><td class="value dim">self</td><td class="value dim">{props.things ?? "samples"}</td></tr>
        {rows().map((row) => <tr><td>{visible(row.name)}</td><td class="value">{row.share}</td><td class="value">{row.total}</td><td class="value">{row.own}</td><td class="value">{row.samples}</td></tr>)}
      </tbody></table>
      <Show when={metricOf(props.model, props.node)}>
        {(metric) => <div>{visible(metric().title)}, with callees: {metric().value === null ? "no value" : inUnit(metric().value!, metric().unit)}{metric().error !== null ? ` ± ${inUnit(metric().error!, metric().unit)}` : ""}{metric().few ? " – rests on few samples" : ""}</div>}
      </Show>
      <Show when={changeOf(props.model, props.node)}>
        {(change) => <div>{shareOf(change().before, 1)} → {change().isGone ? "gone" : shareOf(change().after, 1)}</div>}
      </Show>
    </div>
  );
}
