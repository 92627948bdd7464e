// Lanes on canvas with a brush: dragging selects a time range, the wheel with Ctrl zooms, a double click clears.

import { createEffect, createSignal, onCleanup, onMount } from "solid-js";
import { colour, isDark } from "../shell/theme";
import { createRowHeight } from "../table/virtual";
import { drawAxis, drawLanes, type Lane, type LaneColours } from "./draw";
import { type Stretch, zoomed } from "./scale";

interface LaneProps {
  label: string;
  lanes: readonly Lane[];
  laneHeight: number;
  /** The stretch that fills the width, and the one that the lanes' values cover. */
  shown: Stretch;
  data: Stretch;
  bounds: Stretch;
  brush: Stretch | null;
  axis: boolean;
  onBrush(stretch: Stretch | null): void;
  onZoom(stretch: Stretch): void;
  onHover(time: number | null, lane: number, x: number, y: number): void;
  onReady?(canvas: HTMLCanvasElement): void;
}

export function laneColours(): LaneColours {
  return {
    back: colour("back"), stripe: colour("stripe"), line: colour("line"), bar: isDark() ? "#4f86b8" : "#5b93c9", other: isDark() ? "#c08a4a" : "#d39a55", text: colour("dim"),
    veil: isDark() ? "rgb(21 24 28 / 62%)" : "rgb(255 255 255 / 68%)", accent: colour("accent"),
  };
}

export function LaneCanvas(props: LaneProps) {
  let canvas!: HTMLCanvasElement;
  let box!: HTMLDivElement;
  const rowHeight = createRowHeight(1.6);
  const [width, setWidth] = createSignal(100);
  const [dragged, setDragged] = createSignal<Stretch | null>(null);
  let anchor: number | null = null;
  let frame = 0;
  const axisHeight = () => (props.axis ? rowHeight() : 0);
  const height = () => axisHeight() + props.lanes.length * props.laneHeight;

  const draw = () => {
    frame = 0;
    const ratio = Math.min(devicePixelRatio || 1, 16000 / Math.max(1, height()));
    canvas.width = Math.round(width() * ratio);
    canvas.height = Math.round(height() * ratio);
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const colours = laneColours();
    if (props.axis) drawAxis(context, width(), axisHeight(), props.shown, `${Math.round(rowHeight() * 0.58)}px ${colour("mono")}`, colours);
    context.translate(0, axisHeight());
    drawLanes(context, width(), props.laneHeight, props.lanes, props.shown, props.data, dragged() ?? props.brush, colours);
  };
  createEffect(() => {
    void [width(), height(), props.lanes, props.shown, props.data, props.brush, dragged(), isDark()];
    if (frame === 0) frame = requestAnimationFrame(draw);
  });

  const timeAt = (event: MouseEvent) => {
    const bounds = canvas.getBoundingClientRect();
    const part = Math.max(0, Math.min(1, (event.clientX - bounds.left) / bounds.width));
    return Math.round(props.shown.from + part * (props.shown.to - props.shown.from));
  };
  const laneAt = (event: MouseEvent) => Math.floor((event.clientY - canvas.getBoundingClientRect().top - axisHeight()) / props.laneHeight);
  const between = (a: number, b: number): Stretch => ({ from: Math.min(a, b), to: Math.max(a, b) });
  const onWheel = (event: WheelEvent) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    props.onZoom(zoomed(props.shown, Math.exp(event.deltaY * 0.002), timeAt(event), props.bounds, 10_000));
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const length = props.shown.to - props.shown.from;
    const middle = (props.shown.from + props.shown.to) / 2;
    const move = (by: number) => {
      const from = Math.max(props.bounds.from, Math.min(props.bounds.to - length, props.shown.from + by));
      props.onZoom({ from, to: from + length });
    };
    if (event.key === "+" || event.key === "=") props.onZoom(zoomed(props.shown, 0.5, middle, props.bounds, 10_000));
    else if (event.key === "-" || event.key === "−") props.onZoom(zoomed(props.shown, 2, middle, props.bounds, 10_000));
    else if (event.key === "0") props.onZoom(props.bounds);
    else if (event.key === "ArrowLeft") move(-length / 10);
    else if (event.key === "ArrowRight") move(length / 10);
    else if (event.key === "Enter") props.onBrush(props.shown);
    else if (event.key === "Escape") props.onBrush(null);
    else return;
    event.preventDefault();
  };
  onMount(() => {
    const observer = new ResizeObserver(() => setWidth(Math.max(50, box.clientWidth)));
    observer.observe(box);
    canvas.addEventListener("wheel", onWheel, { passive: false });
    onCleanup(() => { observer.disconnect(); cancelAnimationFrame(frame); });
    props.onReady?.(canvas);
  });
  return (
    <div class="lanes" ref={box} style={{ height: `${height()}px` }}>
      <canvas
        ref={canvas} tabindex="0" role="application" style={{ width: `${width()}px`, height: `${height()}px` }}
        aria-label={`${props.label}. Plus and minus zoom, arrows move, Enter selects the shown time, Escape clears it.`}
        onKeyDown={onKey}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          anchor = timeAt(event);
        }}
        onPointerMove={(event) => {
          if (anchor !== null) setDragged(between(anchor, timeAt(event)));
          props.onHover(timeAt(event), laneAt(event), event.clientX, event.clientY);
        }}
        onPointerUp={(event) => {
          const begun = anchor;
          anchor = null;
          const drawn = dragged();
          setDragged(null);
          if (begun === null || drawn === null) return;
          const pixels = ((drawn.to - drawn.from) / (props.shown.to - props.shown.from)) * event.currentTarget.clientWidth;
          if (pixels >= 3) props.onBrush(drawn);
        }}
        onPointerLeave={() => props.onHover(null, -1, 0, 0)}
        onDblClick={() => props.onBrush(null)}
      />
    </div>
  );
}
