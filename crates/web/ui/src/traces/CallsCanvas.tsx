// The bars of calls as a thing to use: drag to select time, wheel to scroll and zoom, keyboard from call to call.

import { createEffect, createSignal, on, onCleanup, onMount } from "solid-js";
import { duration } from "../format";
import { visible } from "../names";
import { colour, isDark } from "../shell/theme";
import { createRowHeight } from "../table/virtual";
import { drawAxis } from "../timeline/draw";
import { laneColours } from "../timeline/LaneCanvas";
import { type Stretch, zoomed } from "../timeline/scale";
import { barName, type CallsLook, drawCalls } from "./draw";
import { barAt, type CallsModel, neighbourBar, type Picked } from "./model";

interface CanvasProps {
  model: CallsModel;
  shown: Stretch;
  bounds: Stretch;
  brush: Stretch | null;
  picked: Picked | null;
  onZoom(stretch: Stretch): void;
  onBrush(stretch: Stretch | null): void;
  onPick(picked: Picked | null): void;
  /** Enter or a double click. */
  onOpen(picked: Picked): void;
  onHover(picked: Picked | null, time: number, x: number, y: number): void;
  onReady(handle: { canvas: HTMLCanvasElement; look(): CallsLook }): void;
}

/** Single calls may take nanoseconds. */
const SHORTEST = 20;

export function CallsCanvas(props: CanvasProps) {
  let canvas!: HTMLCanvasElement;
  let box!: HTMLDivElement;
  const rowHeight = createRowHeight(1.45);
  const [size, setSize] = createSignal({ width: 100, height: 100 });
  const [scroll, setScroll] = createSignal(0);
  const [dragged, setDragged] = createSignal<Stretch | null>(null);
  let anchor: number | null = null;
  let frame = 0;
  const axisHeight = () => Math.round(rowHeight() * 1.2);
  const contentHeight = () => props.model.rows * rowHeight();
  const clampScroll = (value: number) => Math.max(0, Math.min(contentHeight() - (size().height - axisHeight()), value));

  const look = (): CallsLook => {
    const font = `${Math.round(rowHeight() * 0.64)}px ${colour("mono")}`;
    const context = canvas.getContext("2d")!;
    context.font = font;
    return {
      width: size().width, height: size().height - axisHeight(), rowHeight: rowHeight(), shown: props.shown, scroll: scroll(), dark: isDark(), font,
      characterWidth: context.measureText("0").width, colours: { ...laneColours(), name: colour("text") }, picked: props.picked, brush: dragged() ?? props.brush,
    };
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
    context.setTransform(ratio, 0, 0, ratio, 0, axisHeight() * ratio);
    const now = look();
    drawCalls(context, props.model, now);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawAxis(context, width, axisHeight(), props.shown, now.font, now.colours);
  };
  createEffect(() => {
    void [size(), scroll(), dragged(), isDark(), rowHeight(), props.model, props.shown, props.brush, props.picked];
    if (frame === 0) frame = requestAnimationFrame(draw);
  });
  createEffect(on(() => [props.model.rows, size().height], () => setScroll(clampScroll(scroll()))));
  // What is picked by keyboard comes into sight.
  createEffect(on(() => props.picked, (picked) => {
    const lane = picked && props.model.lanes[picked.lane];
    if (!lane) return;
    const top = (lane.top + 1 + lane.lane.bars.depth[picked.bar]!) * rowHeight();
    const room = size().height - axisHeight();
    if (top < scroll() || top + 2 * rowHeight() > scroll() + room) setScroll(clampScroll(top - room / 3));
  }));

  const timeAt = (event: MouseEvent) => {
    const bounds = canvas.getBoundingClientRect();
    const part = Math.max(0, Math.min(1, (event.clientX - bounds.left) / bounds.width));
    return props.shown.from + part * (props.shown.to - props.shown.from);
  };
  const find = (event: MouseEvent): Picked | null => {
    const y = event.clientY - canvas.getBoundingClientRect().top - axisHeight();
    if (y < 0) return null;
    const pixel = (props.shown.to - props.shown.from) / Math.max(1, size().width);
    return barAt(props.model, (y + scroll()) / rowHeight(), timeAt(event), 1.5 * pixel);
  };
  const move = (by: number) => {
    const length = props.shown.to - props.shown.from;
    const from = Math.max(props.bounds.from, Math.min(props.bounds.to - length, props.shown.from + by));
    props.onZoom({ from, to: from + length });
  };
  const onWheel = (event: WheelEvent) => {
    event.preventDefault();
    if (event.ctrlKey || event.metaKey) props.onZoom(zoomed(props.shown, Math.exp(event.deltaY * 0.003), timeAt(event), props.bounds, SHORTEST));
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) move((((event.deltaX || event.deltaY) * (props.shown.to - props.shown.from)) / size().width));
    else setScroll(clampScroll(scroll() + event.deltaY));
  };
  const first = (): Picked | null => {
    const lane = props.model.lanes.findIndex((each) => each.levels > 0);
    return lane < 0 ? null : { lane, bar: props.model.lanes[lane]!.bars[0]![0] ?? 0 };
  };
  const step = (way: "up" | "down" | "left" | "right") => {
    const next = props.picked ? neighbourBar(props.model, props.picked, way) : first();
    if (!next) return;
    props.onPick(next);
    const bars = props.model.lanes[next.lane]!.lane.bars;
    const [start, end] = [bars.start[next.bar]!, bars.end[next.bar]!];
    const length = props.shown.to - props.shown.from;
    if (end < props.shown.from || start > props.shown.to) move((start + end) / 2 - (props.shown.from + length / 2));
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = (props.shown.from + props.shown.to) / 2;
    const length = props.shown.to - props.shown.from;
    const ways: Record<string, "up" | "down" | "left" | "right"> = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
    const way = ways[event.key];
    if (event.shiftKey && (way === "left" || way === "right")) move(way === "left" ? -length / 5 : length / 5);
    else if (way) step(way);
    else if (event.key === "+" || event.key === "=") props.onZoom(zoomed(props.shown, 0.5, middle, props.bounds, SHORTEST));
    else if (event.key === "-" || event.key === "−") props.onZoom(zoomed(props.shown, 2, middle, props.bounds, SHORTEST));
    else if (event.key === "0") props.onZoom(props.bounds);
    else if (event.key === "PageDown" || event.key === "PageUp") setScroll(clampScroll(scroll() + (event.key === "PageDown" ? 1 : -1) * (size().height - axisHeight()) * 0.8));
    else if (event.key === "Enter" && props.picked) props.onOpen(props.picked);
    else if (event.key === "Escape") { if (props.picked) props.onPick(null); else props.onBrush(null); }
    else return;
    event.preventDefault();
  };
  onMount(() => {
    const observer = new ResizeObserver(() => setSize({ width: Math.max(50, box.clientWidth), height: Math.max(50, box.clientHeight) }));
    observer.observe(box);
    canvas.addEventListener("wheel", onWheel, { passive: false });
    onCleanup(() => { observer.disconnect(); cancelAnimationFrame(frame); });
    props.onReady({ canvas, look });
  });
  const said = () => {
    const picked = props.picked;
    const lane = picked && props.model.lanes[picked.lane];
    if (!lane) return `${props.model.lanes.length} threads, ${duration(Math.round(props.shown.from))} to ${duration(Math.round(props.shown.to))}`;
    const bars = lane.lane.bars;
    return `${visible(barName(props.model, lane, picked.bar))}, level ${bars.depth[picked.bar]! + 1}, ${duration(bars.end[picked.bar]! - bars.start[picked.bar]!)} at ${duration(bars.start[picked.bar]!)}`;
  };
  return (
    <div class="calls-box" ref={box}>
      <canvas
        ref={canvas} tabindex="0" role="application" style={{ width: `${size().width}px`, height: `${size().height}px` }} onKeyDown={onKey}
        aria-label="Calls over time. Arrows go from call to call, Shift and arrows move in time, plus and minus zoom, 0 shows all, Enter zooms to a call."
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          anchor = timeAt(event);
        }}
        onPointerMove={(event) => {
          if (anchor !== null) {
            const now = timeAt(event);
            const drawn = { from: Math.min(anchor, now), to: Math.max(anchor, now) };
            const pixels = ((drawn.to - drawn.from) / (props.shown.to - props.shown.from)) * size().width;
            if (pixels >= 4 || dragged() !== null) setDragged(drawn);
          }
          props.onHover(anchor === null ? find(event) : null, timeAt(event), event.clientX, event.clientY);
        }}
        onPointerUp={(event) => {
          const begun = anchor;
          anchor = null;
          const drawn = dragged();
          setDragged(null);
          if (begun === null) return;
          if (drawn === null) props.onPick(find(event));
          else props.onBrush(drawn);
        }}
        onPointerLeave={() => props.onHover(null, 0, 0, 0)}
        onDblClick={(event) => { const picked = find(event); if (picked) props.onOpen(picked); else props.onBrush(null); }}
      />
      <div class="off-screen" role="status">{said()}</div>
    </div>
  );
}
