// The heat map as a thing to use: dragging from one place to another selects the time between, and so does the keyboard.

import { createEffect, createSignal, onCleanup, onMount } from "solid-js";
import { duration, plural } from "../format";
import type { HeatmapAnswer } from "../net/types";
import { colour, isDark } from "../shell/theme";
import { between, drawHeat, type HeatLook, type Place, timesOf } from "./heat";
import type { Stretch } from "./scale";

interface HeatProps {
  answer: HeatmapAnswer;
  /** Where the recording ends. */
  end: number;
  brush: Stretch | null;
  onBrush(stretch: Stretch | null): void;
  onHover(place: Place | null, x: number, y: number): void;
  onReady(canvas: HTMLCanvasElement): void;
}

export function HeatCanvas(props: HeatProps) {
  let canvas!: HTMLCanvasElement;
  let box!: HTMLDivElement;
  const [size, setSize] = createSignal({ width: 100, height: 100 });
  const [cursor, setCursor] = createSignal<Place | null>(null);
  const [drawn, setDrawn] = createSignal<Stretch | null>(null);
  let anchor: Place | null = null;
  let frame = 0;
  const look = (): HeatLook => ({
    ...size(), dark: isDark(), back: colour("back"), line: colour("line"), accent: isDark() ? "#ffb14d" : "#c2410c",
    veil: isDark() ? "rgb(21 24 28 / 66%)" : "rgb(255 255 255 / 70%)",
  });
  const draw = () => {
    frame = 0;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(size().width * ratio);
    canvas.height = Math.round(size().height * ratio);
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawHeat(context, props.answer, drawn() ?? props.brush, cursor(), look());
  };
  createEffect(() => {
    void [props.answer, props.brush, drawn(), cursor(), size(), isDark()];
    if (frame === 0) frame = requestAnimationFrame(draw);
  });
  // Another map has other places.
  createEffect(() => { void [props.answer.columns, props.answer.column_ns]; setCursor(null); });
  const placeAt = (event: MouseEvent): Place => {
    const bounds = canvas.getBoundingClientRect();
    const part = (at: number, from: number, length: number, count: number) => Math.max(0, Math.min(count - 1, Math.floor(((at - from) / length) * count)));
    return { column: part(event.clientX, bounds.left, bounds.width, props.answer.columns), row: part(event.clientY, bounds.top, bounds.height, props.answer.rows) };
  };
  const select = (one: Place, other: Place) => between(props.answer, one, other, props.end);
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { columns, rows } = props.answer;
    const now = cursor();
    const moves: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], PageUp: [0, -10], PageDown: [0, 10] };
    const move = moves[event.key];
    const to = (column: number, row: number): Place => ({ column: Math.max(0, Math.min(columns - 1, column)), row: Math.max(0, Math.min(rows - 1, row)) });
    if (move) {
      const next = now ? to(now.column + move[0], now.row + move[1]) : { column: 0, row: 0 };
      if (event.shiftKey) anchor ??= now ?? next;
      else anchor = null;
      setCursor(next);
      setDrawn(anchor ? select(anchor, next) : null);
    } else if (event.key === "Home") setCursor(to(0, now?.row ?? 0));
    else if (event.key === "End") setCursor(to(columns - 1, now?.row ?? 0));
    else if (event.key === "Enter" && now) { props.onBrush(drawn() ?? select(now, now)); setDrawn(null); anchor = null; }
    else if (event.key === "Escape") { setDrawn(null); anchor = null; props.onBrush(null); }
    else return;
    event.preventDefault();
  };
  onMount(() => {
    const observer = new ResizeObserver(() => setSize({ width: Math.max(20, box.clientWidth), height: Math.max(20, box.clientHeight) }));
    observer.observe(box);
    onCleanup(() => { observer.disconnect(); cancelAnimationFrame(frame); });
    props.onReady(canvas);
  });
  const said = () => {
    const now = cursor();
    if (!now) return "";
    const times = timesOf(props.answer, now);
    return `${duration(times.from)}: ${plural(props.answer.values[now.column * props.answer.rows + now.row] ?? 0, "sample")}`;
  };
  return (
    <div class="heat-box" ref={box}>
      <canvas
        ref={canvas} tabindex="0" role="application" style={{ width: `${size().width}px`, height: `${size().height}px` }} onKeyDown={onKey}
        aria-label="Heat map. Arrow keys move, with Shift they select, Enter selects everywhere, Escape clears the selection."
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          event.currentTarget.setPointerCapture(event.pointerId);
          anchor = placeAt(event);
          setCursor(null);
        }}
        onPointerMove={(event) => {
          const place = placeAt(event);
          if (anchor && event.buttons !== 0) setDrawn(select(anchor, place));
          props.onHover(place, event.clientX, event.clientY);
        }}
        onPointerUp={(event) => {
          const begun = anchor;
          anchor = null;
          setDrawn(null);
          if (begun) props.onBrush(select(begun, placeAt(event)));
        }}
        onPointerLeave={() => props.onHover(null, 0, 0)}
        onDblClick={() => props.onBrush(null)}
      />
      <div class="off-screen" role="status">{said()}</div>
    </div>
  );
}
