// The flame graph: merged call stacks, from the outermost function or from the sampled ones.

import { createEffect, createMemo, createSignal, on, Show } from "solid-js";
import { count, plural, shareOf } from "../format";
import { fold } from "../names";
import { report } from "../net/client";
import type { FlameAnswer } from "../net/types";
import { savePng, saveText } from "../save";
import { ChangeLegend } from "../flame/ChangeLegend";
import { type FlameLook } from "../flame/draw";
import { FlameChart } from "../flame/FlameChart";
import { findNodes, inAnswer, layOut } from "../flame/model";
import { flameSvg } from "../flame/svg";
import { Wrong } from "../shell/Message";
import { createQuestion } from "../state/query";
import { learnNames, nameOf, selection, toggle } from "../state/selection";
import { go, state } from "../state/url";
import { Menu } from "../table/Tools";

export function FlameView() {
  // The node whose finer tree is asked for; node numbers hold for one question only.
  const [root, setRoot] = createSignal<number | null>(null);
  const base = createMemo(() => JSON.stringify([selection(), state.inverted, state.focus, state.with]));
  createEffect(on(base, () => setRoot(null), { defer: true }));
  const question = createQuestion<FlameAnswer>("flame", () => ({
    ...selection(), direction: state.inverted ? "callers" : "callees", focus: state.focus, root: root(), with: state.with,
  }));
  const model = createMemo(() => { const answer = question.answer(); return answer ? layOut(answer) : null; });
  const found = createMemo(() => { const now = model(); return now ? findNodes(now, state.find) : null; });
  let handle: { canvas: HTMLCanvasElement; look(): FlameLook } | null = null;

  const onZoom = (node: number) => {
    const now = model();
    if (!now) return;
    const above = now.answer.above.length;
    if (node <= above && above > 0) setRoot(node === 0 ? null : (now.answer.above[node - 1]?.id ?? null));
    else if (now.answer.left_out.nodes > 0 && !report() && node > above + 1) setRoot(now.answer.nodes.id[inAnswer(now, node)] ?? null);
  };
  const learn = (fn: number) => {
    const each = model()?.answer.functions[fn];
    if (each) learnNames([["function", each.key, each.name]]);
    return each?.key ?? "";
  };
  const note = () => {
    const answer = question.answer();
    if (!answer) return "";
    const hits = found();
    if (hits) return `${plural(hits.nodes, "node")} found: ${shareOf(hits.share, 1)} of what is drawn`;
    return answer.left_out.nodes > 0 ? `${count(answer.nodes.id.length)} of ${count(answer.total_nodes)} nodes${report() ? " are in this report" : "; zoom in for more"}` : plural(answer.nodes.id.length, "node");
  };
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Flame graph">
        <span class="toggles" role="group" aria-label="Direction">
          <button class="toggle" aria-pressed={!state.inverted} onClick={() => go({ inverted: false })} title="Outermost functions first">From the outside</button>
          <button class="toggle" aria-pressed={state.inverted} onClick={() => go({ inverted: true })} title="Sampled functions first, then their callers">Inverted</button>
        </span>
        <button class="toggle" aria-pressed={state.upwards} onClick={() => go({ upwards: !state.upwards })} title="Draw the root at the bottom">Root at bottom</button>
        <input
          type="search" class="filter" data-filter placeholder="Highlight functions  ( / )" aria-label="Highlight functions" spellcheck={false} value={state.find}
          onInput={(event) => go({ find: event.currentTarget.value }, true)}
        />
        <Show when={state.focus}>
          <span class="chip" title={nameOf("function", state.focus)}>
            <span class="kind">{state.inverted ? "who called" : "from"}</span><span class="what">{fold(nameOf("function", state.focus))}</span>
            <button onClick={() => toggle("through", state.focus)} title="Count only samples through it, in every view" aria-label="Select samples through it">select</button>
            <button aria-label="Remove the focus" onClick={() => go({ focus: "" })}>×</button>
          </span>
        </Show>
        <span class="note">{note()}</span>
        <span class="space" />
        <span class="note">Click: zoom · double click: open · right click: begin here</span>
        <Menu label="Save">
          <button onClick={() => { const now = model(); if (handle && now) saveText("dioptra-flame.svg", flameSvg(now, handle.look()), "image/svg+xml"); }}>SVG picture</button>
          <button onClick={() => handle && savePng("dioptra-flame.png", handle.canvas)}>PNG picture</button>
        </Menu>
      </div>
      <Show when={question.answer()}>{(answer) => <ChangeLegend answer={answer()} />}</Show>
      <div class="fill" aria-busy={question.busy()}>
        <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
        <Show when={model()}>
          {(now) => (
            <Show when={now().answer.nodes.id.length > 0} fallback={<div class="message">No samples with call chains pass the selection.</div>}>
              <FlameChart
                model={now()} upwards={state.upwards} found={found()?.functions ?? null} label={state.inverted ? "Inverted flame graph" : "Flame graph"} onZoom={onZoom}
                onOpen={(fn) => go({ view: "function", open: learn(fn) })} onFocus={(fn) => go({ focus: learn(fn) })} onReady={(ready) => { handle = ready; }}
              />
            </Show>
          )}
        </Show>
      </div>
    </>
  );
}
