// The instructions of a function: counts, arrows of jumps, where each leads, and which source line it was made from.

import { createEffect, createMemo, createSignal, For, type JSX, Match, on, Show, Switch } from "solid-js";
import { address, plural, shareOf } from "../format";
import { baseName, fold, visible } from "../names";
import { report } from "../net/client";
import { go } from "../state/url";
import { learnNames } from "../state/selection";
import { eventsShown, instructionsThere, type Measure } from "./counts";
import { type ArrowPiece, layArrows, type ListingRow, listRows, MOST_LANES } from "./listing";
import { type FunctionModel, type Picked, pickBlock, pickInstruction } from "./model";
import { CodeRows, EventCells, EventHeads } from "./Rows";
import { ComparedNote } from "./ComparedNote";
import { colourInstruction } from "./syntax";

interface AssemblyProps {
  model: FunctionModel;
  /** The file that the source pane shows. */
  file: number;
  measure: Measure;
  syntax: "att" | "intel";
  setSyntax(syntax: "att" | "intel"): void;
  picked: Picked;
  onPick(picked: Picked): void;
}

export function AssemblyPane(props: AssemblyProps) {
  const [folded, setFolded] = createSignal<ReadonlySet<number>>(new Set());
  const [inlined, setInlined] = createSignal(true);
  const answer = () => props.model.answer;
  const rows = createMemo(() => listRows(props.model, folded(), inlined()));
  const arrows = createMemo(() => layArrows(props.model, rows()));
  const rowOf = createMemo(() => {
    const map = new Map<number, number>();
    rows().forEach((row, at) => {
      if (row.kind === "instruction") map.set(row.at, at);
      else if (row.kind === "inlined" && row.isFolded) for (let each = 0; each < row.count; each++) map.set(row.first + each, at);
    });
    return map;
  });
  createEffect(on(() => props.model, () => setFolded(new Set<number>()), { defer: true }));
  const [show, setShow] = createSignal({ row: -1 });
  createEffect(on(() => props.picked, (picked) => {
    if (picked.origin !== "assembly" && picked.instruction >= 0) setShow({ row: rowOf().get(picked.instruction) ?? -1 });
  }));
  const toggleFold = (first: number) => setFolded((before) => { const next = new Set(before); if (!next.delete(first)) next.add(first); return next; });
  const pick = (at: number) => {
    const row = rows()[at];
    if (row?.kind === "instruction") props.onPick(pickInstruction(props.model, row.at, props.file));
    else if (row?.kind === "block") props.onPick(pickBlock(props.model, row.block, props.file, "assembly"));
  };
  const openRow = (at: number) => {
    const row = rows()[at];
    if (row?.kind === "inlined") toggleFold(row.first);
    else if (row?.kind === "instruction") follow(row.at);
  };
  const follow = (at: number) => {
    const target = props.model.targetOf.get(at);
    if (!target) return;
    if (target.to !== null) {
      setShow({ row: rowOf().get(target.to) ?? -1 });
      props.onPick({ ...pickInstruction(props.model, target.to, props.file) });
    } else if (target.key) {
      learnNames([["function", target.key, target.function ?? ""]]);
      go({ open: target.key });
    }
  };
  const classOf = (at: number): Record<string, boolean> => {
    const row = rows()[at];
    if (!row) return {};
    if (row.kind === "block") return { "block-row": true, picked: props.picked.blocks.has(row.block) };
    if (row.kind === "inlined") return { "inlined-row": true };
    return { picked: props.picked.instructions.has(row.at), "in-block": props.picked.blocks.has(answer().instructions.block[row.at] ?? -1) };
  };
  const hasBlocks = () => answer().blocks.length > 0;
  return (
    <>
      <div class="pane-title">
        <h2>Assembly</h2>
        <span class="dim">{plural(answer().instructions.address.length, answer().has_code ? "instruction" : "address", answer().has_code ? "instructions" : "addresses")}{hasBlocks() ? `, ${plural(answer().blocks.length, "block")}` : ""}</span>
        <Show when={answer().unresolved_jumps > 0}><span class="severity warning" title="Indirect jumps whose targets are not known">{plural(answer().unresolved_jumps, "unknown jump")}</span></Show>
        <span class="space" />
        <button class="toggle" aria-pressed={inlined()} title="Show where inlined functions begin" onClick={() => setInlined(!inlined())}>Inlined</button>
        <Show when={!report()}>
          <span class="toggles" role="group" aria-label="Syntax">
            <For each={["att", "intel"] as const}>{(each) => <button class="toggle" aria-pressed={props.syntax === each} onClick={() => props.setSyntax(each)}>{each === "att" ? "AT&T" : "Intel"}</button>}</For>
          </span>
        </Show>
      </div>
      <Show when={!answer().has_code}><p class="pane-note">The module's file was not found, so there are no instructions: these are the addresses that have samples.</p></Show>
      <Show when={answer().has_code && answer().files.length === 0}><p class="pane-note">No debug information says which source lines the function was made from. Build the program with -g, or install its debug package.</p></Show>
      <ComparedNote answer={answer()} instructions />
      <div class="code-pane assembly" classList={{ compared: answer().other !== undefined }} style={{ "--events": eventsShown(answer()).length }}>
        <CodeRows
          label="Assembly" count={rows().length} show={show()} classOf={classOf} onPick={pick} onOpen={openRow}
          head={<>
            <EventHeads answer={answer()} />
            <span class="code-cell arrows" role="columnheader">jumps</span><span class="code-cell address" role="columnheader">address</span>
            <span class="code-cell text" role="columnheader">instruction</span><span class="code-cell from" role="columnheader">line</span>
          </>}
          render={(at) => (
            <Switch>
              <Match when={rows()[at()]?.kind === "block"}><BlockRow model={props.model} row={rows()[at()] as ListingRow & { kind: "block" }} measure={props.measure} /></Match>
              <Match when={rows()[at()]?.kind === "inlined"}>
                <InlinedRow model={props.model} row={rows()[at()] as ListingRow & { kind: "inlined" }} measure={props.measure} onToggle={toggleFold} pieces={arrows().get(at()) ?? []} />
              </Match>
              <Match when={rows()[at()]?.kind === "instruction"}>
                <InstructionRow
                  model={props.model} at={(rows()[at()] as ListingRow & { kind: "instruction" }).at} row={at()} measure={props.measure} pieces={arrows().get(at()) ?? []}
                  picked={rowOf().get(props.picked.instruction) ?? -1} onFollow={follow}
                />
              </Match>
            </Switch>
          )}
        />
      </div>
    </>
  );
}

function BlockRow(props: { model: FunctionModel; row: ListingRow & { kind: "block" }; measure: Measure }) {
  const block = () => props.model.answer.blocks[props.row.block]!;
  const loop = () => { const at = block().loop; return at === null ? null : props.model.answer.loops[at] ?? null; };
  const isHeader = () => loop()?.header === props.row.block;
  return (
    <>
      <Counts model={props.model} measure={props.measure} samples={block().samples} weights={block().weight} first={block().first} number={block().count} />
      <span class="code-cell block-title" role="gridcell">
        <span class="twisty open" aria-hidden="true" /> block {props.row.block}
        <Show when={loop()}>{(loop) => <span class="dim"> · {isHeader() ? "head of a loop" : "in a loop"}, depth {block().depth}{isHeader() && loop().trips !== null ? `, about ${loop().trips!.toFixed(1)} trips` : ""}</span>}</Show>
      </span>
    </>
  );
}

function InlinedRow(props: { model: FunctionModel; row: ListingRow & { kind: "inlined" }; measure: Measure; onToggle(first: number): void; pieces: ArrowPiece[] }) {
  const sum = (lists: number[][]) => lists.map((list) => { let total = 0; for (let at = props.row.first; at < props.row.first + props.row.count; at++) total += list[at] ?? 0; return total; });
  return (
    <>
      <Counts
        model={props.model} measure={props.measure} samples={props.row.isFolded ? sum(props.model.answer.instructions.samples) : []}
        weights={props.row.isFolded ? sum(props.model.answer.instructions.weight) : []} first={props.row.first} number={props.row.isFolded ? props.row.count : 0}
      />
      <Arrows pieces={props.pieces} picked={-1} />
      <span class="code-cell inlined-title" role="gridcell">
        <button aria-expanded={!props.row.isFolded} title={visible(props.row.names.join(" → ")).slice(0, 3000)} onClick={(event) => { event.stopPropagation(); props.onToggle(props.row.first); }}>
          <span class="twisty" classList={{ open: !props.row.isFolded }} aria-hidden="true" /> {props.row.names.map((name) => fold(name)).join(" → ")}
          <span class="dim"> · {plural(props.row.count, "instruction")} inlined</span>
        </button>
      </span>
    </>
  );
}

function InstructionRow(props: { model: FunctionModel; at: number; row: number; measure: Measure; pieces: ArrowPiece[]; picked: number; onFollow(at: number): void }) {
  const instructions = () => props.model.answer.instructions;
  const target = () => props.model.targetOf.get(props.at) ?? null;
  const virtual = () => instructions().virtual_address[props.at] ?? instructions().address[props.at] ?? 0;
  const where = () => {
    const { frames, files, strings } = props.model.answer;
    const stack = props.model.answer.stacks[instructions().stack[props.at] ?? -1] ?? [];
    const text = (frame: number) => (frames.line[frame]! > 0 ? `${baseName(files[frames.file[frame]!]?.path ?? "?")}:${frames.line[frame]}` : "");
    return { short: stack.length > 0 ? text(stack[0]!) : "", whole: stack.map((frame) => `${strings[frames.function[frame]!] ?? ""} ${text(frame)}`).join("\n") };
  };
  const led = (): JSX.Element => {
    const now = target();
    if (!now || now.to !== null || !now.function) return null;
    return (
      <button class="leads" disabled={!now.key} title={visible(now.function).slice(0, 3000)} onClick={(event) => { event.stopPropagation(); props.onFollow(props.at); }}>
        {fold(now.function)}{now.offset ? `+0x${now.offset.toString(16)}` : ""}
      </button>
    );
  };
  const list = (values: number[][]) => values.map((each) => each[props.at] ?? 0);
  return (
    <>
      <Counts model={props.model} measure={props.measure} samples={list(instructions().samples)} weights={list(instructions().weight)} errors={list(instructions().error)} first={props.at} number={1} />
      <Arrows pieces={props.pieces} picked={props.picked} />
      <span class="code-cell address" role="rowheader" title={instructions().bytes[props.at] ?? ""}>{address(virtual())}</span>
      <span class="code-cell text" role="gridcell">
        <For each={colourInstruction(instructions().text[props.at] ?? "")}>{(piece) => <span class={piece.kind && `syntax-${piece.kind}`}>{visible(piece.text)}</span>}</For>
        {led()}
      </span>
      <span class="code-cell from" role="gridcell" title={visible(where().whole).slice(0, 3000)}>{visible(where().short)}</span>
    </>
  );
}

function Counts(props: { model: FunctionModel; measure: Measure; samples: readonly number[]; weights: readonly number[]; errors?: readonly number[]; first: number; number: number }) {
  const here = () => props.model.answer.events.map((_, e) => ({ samples: props.samples[e] ?? 0, weight: props.weights[e] ?? 0 }));
  return <EventCells answer={props.model.answer} measure={props.measure} here={here()} {...(props.errors ? { errors: props.errors } : {})} there={(e) => instructionsThere(props.model.answer, e, props.first, props.number)} />;
}

const LANE = 7;

/** The pieces of arrows in a row: the innermost lane is the rightmost. */
function Arrows(props: { pieces: ArrowPiece[]; picked: number }) {
  const right = MOST_LANES * LANE + 6;
  const path = (piece: ArrowPiece) => {
    const x = right - 8 - piece.lane * LANE;
    if (piece.part === "through") return `M${x} 0V100`;
    return `M${right - 2} 50H${x}${piece.up ? "V0" : "V100"}`;
  };
  return (
    <span class="code-cell arrows" role="gridcell">
      <Show when={props.pieces.length > 0}>
        <svg viewBox={`0 0 ${right} 100`} preserveAspectRatio="none" aria-hidden="true">
          <For each={props.pieces}>
            {(piece) => (
              <>
                <path class="arrow-line" classList={{ chosen: piece.from === props.picked || piece.to === props.picked, back: piece.to < piece.from }} d={path(piece)} vector-effect="non-scaling-stroke" />
                <Show when={piece.part === "end"}><path class="arrow-tip" classList={{ chosen: piece.from === props.picked || piece.to === props.picked }} d={`M${right - 6} 28L${right} 50L${right - 6} 72z`} /></Show>
              </>
            )}
          </For>
        </svg>
      </Show>
    </span>
  );
}

/** The share of a function that its hottest block has, for titles. */
export function blockShare(model: FunctionModel, block: number): string {
  return shareOf(model.answer.blocks[block]?.weight[0] ?? 0, model.answer.events[0]?.own.weight ?? 0);
}
