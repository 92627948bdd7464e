// The control-flow graph of a function: blocks by heat, loops marked, linked with source and assembly.

import { createEffect, createSignal, For, on, onCleanup, onMount } from "solid-js";
import { plural, shareOf } from "../format";
import { saveSvgAsPng, saveText } from "../save";
import { colour } from "../shell/theme";
import { Menu } from "../table/Tools";
import { edgePath, type PlacedBlock } from "./layout";
import { type FunctionModel, type Picked, pickBlock, splitLineKey } from "./model";
import { createPlaced } from "./placing";

interface GraphProps {
  /** The pane is wide and low. */
  sideways: boolean;
  model: FunctionModel;
  file: number;
  picked: Picked;
  onPick(picked: Picked): void;
}

export function GraphPane(props: GraphProps) {
  let svg!: SVGSVGElement;
  const { placed, isBusy } = createPlaced(() => props.model, () => props.sideways);
  const [view, setView] = createSignal({ x: 0, y: 0, scale: 1 });
  let dragged: { x: number; y: number; moved: boolean } | null = null;
  const size = () => ({ width: svg.clientWidth || 1, height: svg.clientHeight || 1 });
  const all = () => {
    const { width, height } = size();
    const scale = Math.min(1.15, width / placed().width, height / placed().height);
    setView({ x: (placed().width - width / scale) / 2, y: (placed().height - height / scale) / 2, scale });
  };
  const fit = () => {
    const { width, height } = size();
    const scale = Math.min(width / placed().width, height / placed().height);
    // A graph that would be too small to read is shown at a readable size around its hottest block instead.
    if (scale < 0.72) { setView({ x: 0, y: 0, scale: 0.85 }); centre(props.picked.block); return; }
    all();
  };
  const centre = (block: number) => {
    const found = placed().blocks.find((each) => each.block === block) ?? placed().blocks[0];
    if (!found) return;
    const { width, height } = size();
    const { scale } = view();
    // The part in sight stays within the graph where the graph is larger.
    const along = (middle: number, room: number, whole: number) => (room >= whole ? (whole - room) / 2 : Math.max(0, Math.min(whole - room, middle - room / 2)));
    setView({ scale, x: along(found.x + found.width / 2, width / scale, placed().width), y: along(found.y + found.height / 2, height / scale, placed().height) });
  };
  const bring = (block: number) => {
    const found = placed().blocks.find((each) => each.block === block);
    if (!found) return;
    const { width, height } = size();
    const { x, y, scale } = view();
    const isIn = found.x >= x && found.y >= y && found.x + found.width <= x + width / scale && found.y + found.height <= y + height / scale;
    if (!isIn) centre(block);
  };
  const zoom = (factor: number, atX = size().width / 2, atY = size().height / 2) => {
    const { x, y, scale } = view();
    const next = Math.max(0.08, Math.min(3, scale * factor));
    setView({ scale: next, x: x + atX / scale - atX / next, y: y + atY / scale - atY / next });
  };
  onMount(() => {
    const observer = new ResizeObserver(() => fit());
    observer.observe(svg);
    const onWheel = (event: WheelEvent) => {
      event.preventDefault();
      const bounds = svg.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - bounds.left, event.clientY - bounds.top);
    };
    svg.addEventListener("wheel", onWheel, { passive: false });
    onCleanup(() => observer.disconnect());
  });
  createEffect(on(placed, () => queueMicrotask(fit)));
  createEffect(on(() => props.picked, (picked) => { if (picked.origin !== "graph" && picked.block >= 0) queueMicrotask(() => bring(picked.block)); }));
  const pick = (block: number) => props.onPick(pickBlock(props.model, block, props.file, "graph"));
  const onKey = (event: KeyboardEvent) => {
    const now = props.picked.block;
    const next = (list: number[]) => { const to = list[0]; if (to !== undefined) { pick(to); bring(to); } };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") zoom(1.25);
    else if (event.key === "-" || event.key === "−") zoom(0.8);
    else if (event.key === "0") all();
    else if (event.key === (props.sideways ? "ArrowRight" : "ArrowDown")) next(placed().edges.filter((edge) => edge.from === now && !edge.isBack).map((edge) => edge.to));
    else if (event.key === (props.sideways ? "ArrowLeft" : "ArrowUp")) next(placed().edges.filter((edge) => edge.to === now && !edge.isBack).map((edge) => edge.from));
    else if (event.key === (props.sideways ? "ArrowDown" : "ArrowRight")) next(placed().blocks.map((each) => each.block).sort((a, b) => a - b).filter((block) => block > now));
    else if (event.key === (props.sideways ? "ArrowUp" : "ArrowLeft")) next(placed().blocks.map((each) => each.block).sort((a, b) => b - a).filter((block) => block < now));
    else return;
    event.preventDefault();
  };
  const picture = (): string => {
    const copy = svg.cloneNode(true) as SVGSVGElement;
    const { width, height } = placed();
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("viewBox", `0 0 ${width} ${height}`);
    copy.setAttribute("width", String(width));
    copy.setAttribute("height", String(height));
    const rules = document.createElementNS("http://www.w3.org/2000/svg", "style");
    rules.textContent = `text{font:12px monospace;fill:${colour("text")}}.dim{fill:${colour("dim")}}.node rect{fill:${colour("back")};stroke:${colour("strong-line")}}.node .heat{fill:${colour("accent")};stroke:none}.edge{fill:none;stroke:${colour("dim")}}.edge.taken,.edge.jump{stroke:${colour("accent")}}.edge.back{stroke-dasharray:5 3}`;
    copy.prepend(rules);
    return new XMLSerializer().serializeToString(copy);
  };
  return (
    <>
      <div class="pane-title open">
        <h2>Control flow</h2>
        <span class="dim">{isBusy() ? "placing blocks" : plural(placed().blocks.length, "block")}{placed().leftOut > 0 ? `, ${plural(placed().leftOut, "cold block")} left out` : ""}, {plural(props.model.answer.loops.length, "loop")}</span>
        <span class="space" />
        <button onClick={() => zoom(1.25)} aria-label="Zoom in">+</button>
        <button onClick={() => zoom(0.8)} aria-label="Zoom out">−</button>
        <button onClick={all}>All</button>
        <Menu label="Save">
          <button onClick={() => saveText("dioptra-graph.svg", picture(), "image/svg+xml")}>SVG picture</button>
          <button onClick={() => void saveSvgAsPng("dioptra-graph.png", picture(), placed().width, placed().height, colour("back"))}>PNG picture</button>
        </Menu>
      </div>
      <svg
        ref={svg} class="graph" tabindex="0" role="application" aria-label="Control-flow graph. Arrow keys follow edges, plus and minus zoom." aria-busy={isBusy()} onKeyDown={onKey}
        viewBox={`${view().x} ${view().y} ${size0(svg).width / view().scale} ${size0(svg).height / view().scale}`}
        onPointerDown={(event) => { dragged = { x: event.clientX, y: event.clientY, moved: false }; }}
        onPointerMove={(event) => {
          if (!dragged || event.buttons === 0) { dragged = null; return; }
          const dx = event.clientX - dragged.x;
          const dy = event.clientY - dragged.y;
          if (!dragged.moved && Math.abs(dx) + Math.abs(dy) < 4) return;
          const { x, y, scale } = view();
          setView({ scale, x: x - dx / scale, y: y - dy / scale });
          dragged = { x: event.clientX, y: event.clientY, moved: true };
        }}
      >
        <defs>
          <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path class="tip" d="M0 0L8 4L0 8z" /></marker>
        </defs>
        <For each={placed().edges}>
          {(edge) => (
            <path
              class={`edge ${edge.kind}`} classList={{ back: edge.isBack, chosen: props.picked.blocks.has(edge.from) || props.picked.blocks.has(edge.to) }}
              d={edgePath(edge.points)} marker-end="url(#tip)"
            ><title>{`block ${edge.from} to ${edge.to}: ${edge.kind.replace("_", " ")}${edge.executions === null ? "" : `, ${Math.round(edge.executions)} times`}`}</title></path>
          )}
        </For>
        <For each={placed().blocks}>
          {(each) => <Block model={props.model} place={each} isPicked={props.picked.blocks.has(each.block)} onPick={() => pick(each.block)} />}
        </For>
      </svg>
    </>
  );
}

/** The size of an element that may not be there yet. */
function size0(svg: SVGSVGElement | undefined): { width: number; height: number } {
  return { width: svg?.clientWidth || 400, height: svg?.clientHeight || 300 };
}

function Block(props: { model: FunctionModel; place: PlacedBlock; isPicked: boolean; onPick(): void }) {
  const block = () => props.model.answer.blocks[props.place.block]!;
  const loop = () => { const at = block().loop; return at === null ? null : props.model.answer.loops[at] ?? null; };
  const own = () => props.model.answer.events[0]?.own.weight ?? 0;
  const part = () => (own() > 0 ? (block().weight[0] ?? 0) / own() : 0);
  const lines = () => {
    const numbers: number[] = [];
    for (let at = block().first; at < block().first + block().count; at++) {
      const key = props.model.linesOf[at]?.at(-1);
      if (key) numbers.push(splitLineKey(key).line);
    }
    if (numbers.length === 0) return "";
    const least = Math.min(...numbers);
    const most = Math.max(...numbers);
    return least === most ? `line ${least}` : `lines ${least}–${most}`;
  };
  const trips = () => { const now = loop(); return now && now.header === props.place.block && now.trips !== null ? `×${now.trips.toFixed(1)}` : ""; };
  return (
    <g class="node" classList={{ picked: props.isPicked, loop: block().depth > 0 }} transform={`translate(${props.place.x} ${props.place.y})`} onClick={() => props.onPick()}>
      <title>{`Block ${props.place.block}: ${plural(block().count, "instruction")}, ${plural(block().samples[0] ?? 0, "sample")}${loop() ? `, loop depth ${block().depth}` : ""}`}</title>
      <rect width={props.place.width} height={props.place.height} rx="2" />
      <rect class="heat" width={Math.max(0, (props.place.width - 2) * part())} height="4" x="1" y={props.place.height - 5} />
      <text x="8" y="19">{props.place.block}</text>
      <text x={props.place.width - 8} y="19" text-anchor="end">{part() > 0 ? shareOf(part(), 1) : ""}</text>
      <text x="8" y="37" class="dim">{lines() || plural(block().count, "instruction")}</text>
      <text x={props.place.width - 8} y="37" text-anchor="end" class="dim">{block().depth > 0 ? `${"↻".repeat(Math.min(4, block().depth))} ${trips()}` : ""}</text>
    </g>
  );
}
