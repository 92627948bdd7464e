// The flame graph: merged call stacks, from the outermost function or from the sampled ones.

import { createEffect, createMemo, createSignal, For, on, Show, untrack } from "solid-js";
import { count, plural, shareOf } from "../format";
import { fold, visible } from "../names";
import { report } from "../net/client";
import type { FlameAnswer } from "../net/types";
import { savePng, saveText } from "../save";
import { ChangeLegend } from "../flame/ChangeLegend";
import { changeParameters, comparedWith, toggleChange } from "../flame/changes";
import { ChangeChips, FoldTool } from "../flame/ChangeTools";
import { colourModes } from "../flame/colours";
import { colouredMetric, metricModes } from "../flame/metricColours";
import { type FlameLook } from "../flame/draw";
import { FlameChart } from "../flame/FlameChart";
import { findNodes, layOut } from "../flame/model";
import type { NodeAction } from "../flame/NodeMenu";
import { flameSvg } from "../flame/svg";
import { Wrong } from "../shell/Message";
import { isDark } from "../shell/theme";
import { loaded } from "../state/profile";
import { createQuestion } from "../state/query";
import { learnNames, nameOf, selection, toggle } from "../state/selection";
import { go, state } from "../state/url";
import { Menu } from "../table/Tools";

export function FlameView() {
  // The node whose finer tree is asked for. The whole tree comes first, since it may hold everything.
  const [asked, setAsked] = createSignal<readonly string[]>([]);
  const base = createMemo(() => JSON.stringify([selection(), changeParameters(), state.inverted, state.focus, state.with]));
  createEffect(on(base, () => setAsked([]), { defer: true }));
  // A report has no server that computes metrics.
  const metric = () => (report() ? "" : colouredMetric(state.colours));
  const question = createQuestion<FlameAnswer>("flame", () => ({
    ...selection(), direction: state.inverted ? "callers" : "callees", focus: state.focus, ...changeParameters(), path: asked(), ...comparedWith(), metric: metric() === "" ? [] : [metric()],
  }));
  const modes = createMemo(() => [...colourModes(question.answer()), ...(report() || loaded()?.has.windows ? [] : metricModes(loaded()?.metrics ?? [], metric()))]);
  const model = createMemo(() => { const answer = question.answer(); return answer ? layOut(answer) : null; });
  const found = createMemo(() => { const now = model(); return now ? findNodes(now, state.find) : null; });
  let handle: { canvas: HTMLCanvasElement; look(): FlameLook } | null = null;

  // Copies, since the lists of the state are changed in place.
  createEffect(on(() => [question.answer(), [...state.zoom]] as const, ([answer, zoom]) => {
    const now = untrack(asked);
    const isSame = now.length === zoom.length && now.every((key, at) => key === zoom[at]);
    if (answer && !report() && !isSame && (now.length > 0 || answer.left_out.nodes > 0)) setAsked([...zoom]);
  }));
  const mode = createMemo(() => modes().find((each) => each.key === state.colours) ?? modes()[0]!);
  const modules = (fn: number) => {
    const answer = model()?.answer;
    const module = answer?.modules[answer.functions[fn]?.module ?? -1];
    if (module) learnNames([["module", module.key, module.name]]);
    return module?.key ?? "";
  };
  // Trees of changed call stacks need a server.
  const changes: NodeAction[] = [
    { key: "m", of: "function", title: "Leave out the function", about: "What it called takes its place; its own samples count for its callers", run: (fn) => toggleChange("merge", learn(fn)) },
    { key: "d", of: "function", title: "Drop samples with it", about: "Samples in it, or in what it called, do not count", run: (fn) => toggleChange("drop", learn(fn)) },
    { key: "M", of: "module", title: "Leave out the module", about: "The functions of the module are left out; what they called takes their place", run: (fn) => toggleChange("merge_module", modules(fn)) },
    { key: "D", of: "module", title: "Drop samples with it", about: "Samples in the module, or in what it called, do not count", run: (fn) => toggleChange("drop_module", modules(fn)) },
  ];
  const actions: NodeAction[] = [
    { key: "o", of: "function", title: "Source and assembly", about: "Open the function", run: (fn) => go({ view: "function", open: learn(fn) }) },
    { key: "f", of: "function", title: "Begin stacks here", about: "Show only what the function called, or who called it", run: (fn) => go({ focus: learn(fn) }) },
    { key: "t", of: "function", title: "Select its samples everywhere", about: "Count only samples through it, in every view", run: (fn) => toggle("through", learn(fn)) },
    ...(report() ? [] : changes),
  ];
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
        <FoldTool />
        <label class="fold-tool" title="How nodes are coloured">
          Colours
          <select onChange={(event) => go({ colours: event.currentTarget.value })}>
            <For each={modes()}>{(each) => <option value={each.key} selected={each.key === mode().key}>{visible(each.title)}</option>}</For>
          </select>
        </label>
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
        <span class="note hint">Right click: menu</span>
        <Menu label="Save">
          <button onClick={() => { const now = model(); if (handle && now) saveText("dioptra-flame.svg", flameSvg(now, handle.look()), "image/svg+xml"); }}>SVG picture</button>
          <button onClick={() => handle && savePng("dioptra-flame.png", handle.canvas)}>PNG picture</button>
        </Menu>
      </div>
      <ChangeChips answer={question.answer()} />
      <Show when={question.answer()}>{(answer) => <ChangeLegend answer={answer()} />}</Show>
      <div class="fill" aria-busy={question.busy()}>
        <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
        <Show when={model()}>
          {(now) => (
            <Show when={now().answer.nodes.id.length > 0} fallback={<div class="message">No samples with call chains pass the selection.</div>}>
              <FlameChart
                model={now()} upwards={state.upwards} found={found()?.functions ?? null} label={state.inverted ? "Inverted flame graph" : "Flame graph"} mode={mode()}
                zoom={[...state.zoom]} onZoom={(zoom) => go({ zoom })} actions={actions} onOpen={(fn) => go({ view: "function", open: learn(fn) })} onReady={(ready) => { handle = ready; }}
              />
            </Show>
          )}
        </Show>
      </div>
      <Show when={model() && mode().legend(model()!, isDark())}>
        {(entries) => (
          <Show when={entries().length > 0}>
            <div class="colour-legend" role="group" aria-label="Colours">
              <For each={entries()}>{(entry) => <span class="entry"><span class="swatch-box" style={{ "--swatch": entry.colour }} /><span>{visible(entry.text).slice(0, 200)}</span></span>}</For>
            </div>
          </Show>
        )}
      </Show>
    </>
  );
}
