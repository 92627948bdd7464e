// The call graph of a trace: merged calls, as a flame graph or as a tree.

import { createEffect, createMemo, createSignal, type JSX, on, Show } from "solid-js";
import { type CallShape, share } from "../flame/calls";
import { CallTable } from "../flame/CallTable";
import { colourMode } from "../flame/colours";
import type { FlameLook } from "../flame/draw";
import { FlameChart } from "../flame/FlameChart";
import { findNodes, inAnswer, layOut, nodeAtPath } from "../flame/model";
import type { NodeAction } from "../flame/NodeMenu";
import { flameSvg } from "../flame/svg";
import { count, plural, shareOf } from "../format";
import { fold } from "../names";
import type { Parameters } from "../net/client";
import type { Column, FlameAnswer } from "../net/types";
import { savePng, saveText } from "../save";
import { Wrong } from "../shell/Message";
import { createQuestion } from "../state/query";
import { learnNames, nameOf } from "../state/selection";
import { go, state } from "../state/url";
import { Menu } from "../table/Tools";
import { calls } from "../traces/state";

/** The time comes first or second, as the weight is. */
const eventOf = (events: FlameAnswer["events"], key: string) => Math.max(0, events.findIndex((event) => event.key === key));

const PATHS: CallShape = {
  path: "trace/graph",
  columns: ({ events }) => {
    const unit = events[eventOf(events, "time")]?.unit ?? null;
    const column = (id: string, name: string, kind: string, of: string | null): Column => ({ id, name, kind, unit: of, event: null, parent: null, for_programs: false });
    return [
      column("function", "function", "name", null), column("module", "module", "name", null), column("total_percent", "total", "ratio", "percent"), column("total", "total time", "time", unit),
      column("self", "self time", "time", unit), column("calls", "calls", "count", null), column("average", "average", "time", unit),
    ];
  },
  numbers: ({ nodes, events }, at) => {
    const e = eventOf(events, "time");
    const total = nodes.total[e]![at]!;
    const number = nodes.own_samples[e]![at]!;
    return [share(total, events[e]!.weight), total, nodes.own[e]![at]!, number, number > 0 ? Math.round(total / number) : 0];
  },
};

export function PathsView() {
  const parameters = (): Parameters => ({ ...calls(), weight: state.weight, focus: state.focus });
  const tools = () => (
    <>
      <span class="toggles" role="group" aria-label="Form">
        <button class="toggle" aria-pressed={state.form !== "tree"} onClick={() => go({ form: "" })}>Flame graph</button>
        <button class="toggle" aria-pressed={state.form === "tree"} onClick={() => go({ form: "tree" })}>Tree</button>
      </span>
      <span class="toggles" role="group" aria-label="Weight">
        <button class="toggle" aria-pressed={state.weight !== "calls"} onClick={() => go({ weight: "" })}>Time</button>
        <button class="toggle" aria-pressed={state.weight === "calls"} onClick={() => go({ weight: "calls" })}>Calls</button>
      </span>
      <Show when={state.focus}>
        <span class="chip" title={nameOf("function", state.focus).slice(0, 4000)}>
          <span class="kind">from</span><span class="what">{fold(nameOf("function", state.focus))}</span>
          <button aria-label="Remove the focus" onClick={() => go({ focus: "" })}>×</button>
        </span>
      </Show>
    </>
  );
  return (
    <Show when={state.form === "tree"} fallback={<Graph parameters={parameters} tools={tools} />}>
      <CallTable
        name="paths" label="Call tree" parameters={parameters} lead={tools()} shape={PATHS} emptyText="No calls pass the selection."
        onOpen={(key) => go({ view: "statistics", open: key })}
      />
    </Show>
  );
}

function Graph(props: { parameters(): Parameters; tools(): JSX.Element }) {
  // The node whose finer tree is asked for, by its number in the answer; numbers hold for one question only.
  const [root, setRoot] = createSignal<number | null>(null);
  createEffect(on(() => JSON.stringify(props.parameters()), () => setRoot(null), { defer: true }));
  const question = createQuestion<FlameAnswer>("trace/graph", () => ({ ...props.parameters(), root: root() }));
  const model = createMemo(() => { const answer = question.answer(); return answer ? layOut(answer) : null; });
  const found = createMemo(() => { const now = model(); return now ? findNodes(now, state.find) : null; });
  let handle: { canvas: HTMLCanvasElement; look(): FlameLook } | null = null;
  const mode = createMemo(() => colourMode(question.answer(), ""));
  // Asks for a finer tree below the node that the reader zoomed to, or for the whole tree again. An address that leads to a
  // node outside the answer needs several steps: each goes as far as the answer's nodes lead.
  createEffect(on(() => [model(), [...state.zoom]] as const, ([now, zoom]) => {
    if (!now) return;
    const above = now.answer.above.length;
    const node = nodeAtPath(now, zoom);
    if (above > 0 && node <= above) setRoot(node === 0 ? null : (now.answer.above[node - 1]?.id ?? null));
    else if (node > above + 1 && now.answer.left_out.nodes > 0) setRoot(now.answer.nodes.id[inAnswer(now, node)] ?? null);
  }));
  const learn = (fn: number) => {
    const each = model()?.answer.functions[fn];
    if (each) learnNames([["function", each.key, each.name]]);
    return each?.key ?? "";
  };
  const actions: NodeAction[] = [
    { key: "o", of: "function", title: "Calls of the function", about: "Its statistics and slowest calls", run: (fn) => go({ view: "statistics", open: learn(fn) }) },
    { key: "f", of: "function", title: "Begin stacks here", about: "Show only the calls that the function made", run: (fn) => go({ focus: learn(fn) }) },
  ];
  const note = () => {
    const answer = question.answer();
    if (!answer) return "";
    const hits = found();
    if (hits) return `${plural(hits.nodes, "node")} found: ${shareOf(hits.share, 1)} of what is drawn`;
    return answer.left_out.nodes > 0 ? `${count(answer.nodes.id.length)} of ${count(answer.total_nodes)} nodes; zoom in for more` : plural(answer.nodes.id.length, "node");
  };
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Call graph">
        {props.tools()}
        <button class="toggle" aria-pressed={state.upwards} onClick={() => go({ upwards: !state.upwards })} title="Draw the root at the bottom">Root at bottom</button>
        <input
          type="search" class="filter" data-filter placeholder="Highlight functions  ( / )" aria-label="Highlight functions" spellcheck={false} value={state.find}
          onInput={(event) => go({ find: event.currentTarget.value }, true)}
        />
        <span class="note">{note()}</span>
        <span class="space" />
        <span class="note hint">Click: zoom · double click: calls · right click: menu</span>
        <Menu label="Save">
          <button onClick={() => { const now = model(); if (handle && now) saveText("dioptra-calls.svg", flameSvg(now, handle.look()), "image/svg+xml"); }}>SVG picture</button>
          <button onClick={() => handle && savePng("dioptra-calls.png", handle.canvas)}>PNG picture</button>
        </Menu>
      </div>
      <div class="fill" aria-busy={question.busy()}>
        <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
        <Show when={model()}>
          {(now) => (
            <Show when={now().answer.nodes.id.length > 0} fallback={<div class="message">No calls pass the selection.</div>}>
              <FlameChart
                model={now()} upwards={state.upwards} found={found()?.functions ?? null} label="Call graph" things="calls" mode={mode()} zoom={[...state.zoom]} onZoom={(zoom) => go({ zoom })} actions={actions}
                onOpen={(fn) => go({ view: "statistics", open: learn(fn) })} onReady={(ready) => { handle = ready; }}
              />
            </Show>
          )}
        </Show>
      </div>
    </>
  );
}
