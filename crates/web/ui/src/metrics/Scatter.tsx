// A scatter plot on canvas: share of the time against a metric, with intervals. Hover, click and keys reach every point.

import { createEffect, createMemo, createSignal, type JSX, on, onCleanup, onMount, Show } from "solid-js";
import { inFull, inUnit, percent, plural } from "../format";
import { fold, visible } from "../names";
import { savePng, saveText } from "../save";
import { colour, isDark } from "../shell/theme";
import { Menu } from "../table/Tools";
import { drawScatter, layScatter, type ScatterLook, scatterSvg } from "./draw";
import type { Point } from "./points";

interface ScatterProps {
  points: readonly Point[];
  title: string;
  unit: string | null;
  log: boolean;
  /** The chosen point; -1: none. */
  current: number;
  lead: JSX.Element;
  onPick(point: Point): void;
}

/** The pointer finds points that are at most so many pixels away. */
const REACH = 14;

export function Scatter(props: ScatterProps) {
  let canvas!: HTMLCanvasElement;
  let box!: HTMLDivElement;
  const [size, setSize] = createSignal({ width: 300, height: 150 });
  const [hovered, setHovered] = createSignal<{ at: number; x: number; y: number } | null>(null);
  const [active, setActive] = createSignal(-1);
  let frame = 0;
  createEffect(on(() => props.points, () => { setHovered(null); setActive(-1); }));
  createEffect(() => { if (props.current >= 0) setActive(props.current); });

  const look = (): ScatterLook => ({
    ...size(), log: props.log, title: props.title, unit: props.unit, current: props.current, active: active(),
    font: "11px " + colour("sans"), colours: {
      back: colour("back"), line: colour("line"), strong: colour("strong-line"), text: colour("text"), dim: colour("dim"), accent: colour("accent"), warning: colour("warning"),
      point: isDark() ? "#6cb2f5" : "#0b62b5",
    },
  });
  const laid = createMemo(() => layScatter(props.points, size().width, size().height, props.log));
  const draw = () => {
    frame = 0;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(size().width * ratio);
    canvas.height = Math.round(size().height * ratio);
    const context = canvas.getContext("2d")!;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawScatter(context, props.points, laid(), look());
  };
  createEffect(() => { void [laid(), props.current, active(), isDark(), props.title, props.unit]; if (frame === 0) frame = requestAnimationFrame(draw); });
  onMount(() => {
    const observer = new ResizeObserver(() => setSize({ width: Math.max(120, box.clientWidth), height: Math.max(80, box.clientHeight) }));
    observer.observe(box);
    onCleanup(() => { observer.disconnect(); cancelAnimationFrame(frame); });
  });

  const nearest = (event: MouseEvent): number => {
    const bounds = canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    let best = -1;
    let least = REACH * REACH;
    laid().xs.forEach((px, at) => {
      const distance = (px - x) ** 2 + (laid().ys[at]! - y) ** 2;
      if (distance < least) { least = distance; best = at; }
    });
    return best;
  };
  /** The next point in the order of a value. */
  const step = (value: (point: Point) => number, by: number, among: (point: Point) => boolean = () => true) => {
    const order = props.points.map((_, at) => at).filter((at) => among(props.points[at]!)).sort((a, b) => value(props.points[a]!) - value(props.points[b]!) || a - b);
    if (order.length === 0) return;
    const now = order.indexOf(active());
    setActive(order[now < 0 ? (by > 0 ? 0 : order.length - 1) : (now + by + order.length) % order.length]!);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const point = props.points[active()];
    if (event.key === "ArrowRight") step((each) => each.x, 1);
    else if (event.key === "ArrowLeft") step((each) => each.x, -1);
    else if (event.key === "ArrowUp") step((each) => each.y, 1);
    else if (event.key === "ArrowDown") step((each) => each.y, -1);
    else if (event.key === "n") step((each) => -each.x, 1, (each) => each.isOutlier);
    else if ((event.key === "Enter" || event.key === " ") && point) props.onPick(point);
    else return;
    event.preventDefault();
  };
  const outliers = () => props.points.filter((point) => point.isOutlier).length;
  const interval = (point: Point) => `${inUnit(point.y, props.unit)} (${inUnit(point.low, props.unit)} … ${inUnit(point.high, props.unit)})`;
  const said = () => {
    const point = props.points[active()];
    return point ? `${fold(point.name) || "[no name]"}: ${percent(point.x)}% of the time, ${interval(point)}${point.trust ? `, trust ${point.trust}` : ""}${point.isOutlier ? ", an outlier" : ""}` : "";
  };
  const shown = () => {
    const over = hovered();
    if (over) return { point: props.points[over.at], x: over.x, y: over.y };
    return null;
  };
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Scatter plot">
        {props.lead}
        <span class="note" title="Points whose whole interval is far from the usual value are labelled">{plural(props.points.length, "point")}{outliers() > 0 ? `, ${plural(outliers(), "outlier")} ( n )` : ""}. {said()}</span>
        <span class="space" />
        <Menu label="Save">
          <button onClick={() => saveText("dioptra-metrics.svg", scatterSvg(props.points, { ...look(), active: -1 }), "image/svg+xml")}>SVG picture</button>
          <button onClick={() => savePng("dioptra-metrics.png", canvas)}>PNG picture</button>
        </Menu>
      </div>
      <div class="scatter" ref={box}>
        <canvas
          ref={canvas} tabindex="0" role="application" style={{ width: `${size().width}px`, height: `${size().height}px` }} onKeyDown={onKey}
          aria-label={`Share of the time against ${props.title}. Arrow keys go to the next point, n to the next outlier, Enter selects its row.`}
          onMouseMove={(event) => { const at = nearest(event); setHovered(at < 0 ? null : { at, x: event.clientX, y: event.clientY }); }}
          onMouseLeave={() => setHovered(null)} onClick={(event) => { const at = nearest(event); if (at >= 0) { setActive(at); props.onPick(props.points[at]!); } }}
        />
        <div class="off-screen" role="status">{said()}</div>
        <Show when={shown()?.point}>
          {(point) => (
            <div class="tooltip" style={{ left: `${Math.max(4, Math.min(shown()!.x + 12, innerWidth - 420))}px`, top: `${Math.min(shown()!.y + 16, innerHeight - 110)}px` }}>
              <div class="title">{visible(point().name).slice(0, 600) || "[no name]"}</div>
              <table><tbody>
                <tr><td>time</td><td class="value">{inFull(Number(point().x.toPrecision(4)), "percent")}</td></tr>
                <tr><td>{props.title}</td><td class="value">{interval(point())}</td></tr>
                <tr><td>trust</td><td class="value">{point().trust || "–"}</td></tr>
              </tbody></table>
            </div>
          )}
        </Show>
      </div>
    </>
  );
}

