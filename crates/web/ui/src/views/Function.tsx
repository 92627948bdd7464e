// One function: source, assembly and control-flow graph, linked three ways.

import { createEffect, createMemo, createSignal, For, type JSX, on, Show } from "solid-js";
import { AssemblyPane } from "../function/AssemblyPane";
import type { Measure } from "../function/counts";
import { GraphPane } from "../function/GraphPane";
import { type FunctionModel, hottest, indexFunction, lineKey, NOTHING, ownFile, type Picked, pickBlock, pickInstruction, splitLineKey } from "../function/model";
import { saveFunction } from "../function/save";
import { SourcePane } from "../function/SourcePane";
import { count, inUnit, shareOf } from "../format";
import { baseName, fold, visible } from "../names";
import { report } from "../net/client";
import type { FunctionAnswer } from "../net/types";
import { copyText } from "../save";
import { comparedProfile } from "../shell/CompareWith";
import { FunctionPicker } from "../shell/FunctionPicker";
import { Wrong } from "../shell/Message";
import { Split } from "../shell/Split";
import { loaded } from "../state/profile";
import { createQuestion } from "../state/query";
import { learnNames, selection } from "../state/selection";
import { go, state } from "../state/url";
import { Menu } from "../table/Tools";

const SYNTAX = "dioptra-syntax";
const GRAPH = "dioptra-graph";

export function FunctionView() {
  const [syntax, setSyntax] = createSignal<"att" | "intel">(!report() && localStorage.getItem(SYNTAX) === "intel" ? "intel" : "att");
  const [measure, setMeasure] = createSignal<Measure>("percent");
  const [graph, setGraph] = createSignal(localStorage.getItem(GRAPH) !== "off");
  createEffect(on(syntax, (now) => localStorage.setItem(SYNTAX, now), { defer: true }));
  createEffect(on(graph, (now) => localStorage.setItem(GRAPH, now ? "on" : "off"), { defer: true }));
  const question = createQuestion<FunctionAnswer>("function", () => (state.open ? { ...selection(["function"]), function: state.open, syntax: syntax(), with: comparedProfile() } : null));
  const model = createMemo(() => { const answer = question.answer(); return answer ? indexFunction(answer) : null; });
  createEffect(() => { const answer = question.answer(); if (answer) learnNames([["function", answer.function.key, answer.function.name], ["module", answer.function.module.key, answer.function.module.name]]); });
  return (
    <>
      <div class="pane-title open function-title">
        <Show when={question.answer()} fallback={<span class="dim">{state.open ? "…" : "Choose a function"}</span>}>{(answer) => <Title answer={answer()} />}</Show>
        <span class="space" />
        <Show when={model()}>
          {(model) => (
            <>
              <span class="toggles" role="group" aria-label="Measure">
                <For each={["percent", "samples", "weight"] as const}>
                  {(each) => <button class="toggle" aria-pressed={measure() === each} onClick={() => setMeasure(each)}>{each === "percent" ? "%" : each}</button>}
                </For>
              </span>
              <button class="toggle" aria-pressed={graph() && model().answer.blocks.length > 0} disabled={model().answer.blocks.length === 0} onClick={() => setGraph(!graph())}>Graph</button>
              <Menu label="Save">
                <button onClick={() => saveFunction(model(), "lines", "csv")}>Lines, CSV</button>
                <button onClick={() => saveFunction(model(), "instructions", "csv")}>Instructions, CSV</button>
                <button onClick={() => saveFunction(model(), "all", "json")}>All, JSON</button>
              </Menu>
            </>
          )}
        </Show>
        <FunctionPicker />
      </div>
      <div class="fill" aria-busy={question.busy()}>
        <Show when={!state.open}><div class="message">Find a function by its name above, or open one from <a href="#/hotspots">Hotspots</a>.</div></Show>
        <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
        <Show when={model()}>{(model) => <Panes model={model()} measure={measure()} syntax={syntax()} setSyntax={setSyntax} graph={graph() && model().answer.blocks.length > 0} />}</Show>
      </div>
    </>
  );
}

function Title(props: { answer: FunctionAnswer }) {
  const fn = () => props.answer.function;
  const there = (e: number) => props.answer.other?.events[e] ?? null;
  return (
    <>
      <span class="mono function-name" title={`${visible(fn().name)}\n${visible(fn().raw_name)}`.slice(0, 6000)}>{fold(fn().name) || "[no name]"}</span>
      <span class="dim" title={visible(fn().module.path)}>{visible(baseName(fn().module.name))}</span>
      <span class="shares">
        <For each={props.answer.events}>
          {(event, e) => (
            <span title={`${visible(event.name)}: ${count(event.own.samples)} samples, ${inUnit(event.own.estimate, event.unit)} ± ${inUnit(event.own.error, event.unit)}${there(e()) ? `; there ${count(there(e())!.own.samples)} samples, ${inUnit(there(e())!.own.estimate, event.unit)} ± ${inUnit(there(e())!.own.error, event.unit)}` : ""}`}>
              <span class="dim">{visible(event.name)}</span> {shareOf(event.own.weight, event.total.weight)}<Show when={there(e())}>{(there) => <span class="dim"> → {shareOf(there().own.weight, there().total.weight)} there</span>}</Show>
            </span>
          )}
        </For>
      </span>
      <button title="Copy the whole name" onClick={() => void copyText(fn().name)}>Copy</button>
      <Show when={loaded()?.has.chains}><button onClick={() => go({ view: "butterfly" })}>Callers</button></Show>
    </>
  );
}

interface PanesProps {
  model: FunctionModel;
  measure: Measure;
  syntax: "att" | "intel";
  setSyntax(syntax: "att" | "intel"): void;
  graph: boolean;
}

function Panes(props: PanesProps) {
  const [file, setFile] = createSignal(-1);
  const [picked, setPicked] = createSignal<Picked>(NOTHING);
  // A newly opened function shows its hottest block; the same function with other counts keeps what is picked.
  createEffect(on(() => props.model.answer.function.key, () => {
    const { model } = props;
    const best = hottest(model.answer.instructions.weight[0] ?? []);
    const block = model.answer.instructions.block[best] ?? -1;
    const own = ownFile(model);
    const hot = model.linesOf[best] ?? [];
    // The function's own file, unless its hottest instruction was inlined from elsewhere and the file was not found.
    const shown = model.answer.files[own]?.found !== false || hot.length === 0 ? own : splitLineKey(hot.find((key) => model.answer.files[splitLineKey(key).file]?.found) ?? lineKey(own, 0)).file;
    setFile(shown);
    // A link names the instruction that its sender had picked.
    const linked = state.instruction ? model.answer.instructions.address.indexOf(state.instruction) : -1;
    if (linked >= 0) { const from = pickInstruction(model, linked, shown); setPicked({ ...from, origin: "none" }); if (from.line !== null) setFile(splitLineKey(from.line).file); return; }
    setPicked(block >= 0 ? { ...pickBlock(model, block, shown, "none"), instruction: best } : best >= 0 ? { ...pickInstruction(model, best, shown), origin: "none" } : NOTHING);
  }));
  const pick = (next: Picked) => {
    // Picked code that comes from another file shows that file.
    if (next.origin !== "source" && next.line !== null) {
      const of = splitLineKey(next.line).file;
      if (of !== file() && ![...next.lines].some((key) => splitLineKey(key).file === file())) setFile(of);
    }
    setPicked(next);
    go({ instruction: props.model.answer.instructions.address[next.instruction] ?? "" }, true);
  };
  const source = (): JSX.Element => <SourcePane model={props.model} file={file()} setFile={setFile} measure={props.measure} picked={picked()} onPick={pick} />;
  const assembly = (): JSX.Element => <AssemblyPane model={props.model} file={file()} measure={props.measure} syntax={props.syntax} setSyntax={props.setSyntax} picked={picked()} onPick={pick} />;
  const flow = (): JSX.Element => <GraphPane sideways={!isWide} model={props.model} file={file()} picked={picked()} onPick={pick} />;
  const isWide = innerWidth >= 1900;
  const code = (): JSX.Element => (props.model.answer.files.length === 0 ? <div class="split"><div class="pane">{assembly()}</div></div> : sourceAndAssembly());
  const sourceAndAssembly = (): JSX.Element => <Split name="function" share={0.46} label="Width of the source" first={source()} second={assembly()} />;
  return (
    <Show when={props.graph} fallback={code()}>
      <Show when={isWide} fallback={<Split name="function-graph" down share={0.64} label="Height of source and assembly" first={code()} second={flow()} />}>
        <Split name="function-wide" share={0.72} label="Width of source and assembly" first={code()} second={flow()} />
      </Show>
    </Show>
  );
}
