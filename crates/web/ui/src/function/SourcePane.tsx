// The source of a function: counts for each line and event, coloured text, linked with the other panes.

import { createEffect, createMemo, createSignal, For, on, Show } from "solid-js";
import { shareOf } from "../format";
import { baseName, visible } from "../names";
import type { SourceAnswer } from "../net/types";
import { loaded } from "../state/profile";
import { createQuestion } from "../state/query";
import { state } from "../state/url";
import { Wrong } from "../shell/Message";
import { ComparedNote } from "./ComparedNote";
import { eventsShown, type Measure } from "./counts";
import { type FunctionModel, lineKey, type Picked, pickLine, splitLineKey } from "./model";
import { CodeRows, EventCells, EventHeads } from "./Rows";
import { colourSource } from "./syntax";

interface SourceProps {
  model: FunctionModel;
  file: number;
  setFile(file: number): void;
  measure: Measure;
  picked: Picked;
  onPick(picked: Picked): void;
}

export function SourcePane(props: SourceProps) {
  const [outer, setOuter] = createSignal(false);
  const answer = () => props.model.answer;
  const file = () => answer().files[props.file];
  const question = createQuestion<SourceAnswer>("source", () => {
    const now = file();
    return now?.found ? { profile: state.profile, file: now.id } : null;
  });
  const text = createMemo(() => { const now = question.answer(); return now && now.file.id === file()?.id ? now : null; });
  const coloured = createMemo(() => { const now = text(); return now ? colourSource(now.file.path, loaded()?.machine.arch ?? "", now.lines) : null; });
  // Without the file its lines with samples are still worth showing.
  const lines = createMemo(() => {
    const now = text();
    if (now) return now.lines.map((_, at) => now.from + at);
    return answer().lines.filter((line) => line.file === props.file && line.line > 0).map((line) => line.line).sort((a, b) => a - b);
  });
  const entry = (row: number) => { const at = props.model.lineAt.get(lineKey(props.file, lines()[row] ?? 0)); return at === undefined ? null : answer().lines[at]!; };
  const samples = (row: number, e: number) => { const line = entry(row); return line ? (outer() ? line.outer_samples[e]! : line.samples[e]!) : 0; };
  const weight = (row: number, e: number) => { const line = entry(row); return line ? (outer() ? line.outer_weight[e]! : line.weight[e]!) : 0; };
  const here = (row: number) => answer().events.map((_, e) => ({ samples: samples(row, e), weight: weight(row, e) }));
  const there = (row: number, e: number) => {
    const lists = answer().other?.lines;
    const at = props.model.lineAt.get(lineKey(props.file, lines()[row] ?? 0));
    if (!lists) return null;
    return at === undefined ? { samples: 0, weight: 0 } : { samples: (outer() ? lists.outer_samples : lists.samples)[e]?.[at] ?? 0, weight: (outer() ? lists.outer_weight : lists.weight)[e]?.[at] ?? 0 };
  };
  const [show, setShow] = createSignal({ row: -1 });
  const bring = (line: number) => { const row = lines().indexOf(line); if (row >= 0) setShow({ row }); };
  createEffect(on(() => [props.picked, lines()] as const, ([picked]) => {
    if (picked.origin === "source" || picked.line === null) return;
    const { file, line } = splitLineKey(picked.line);
    if (file === props.file) bring(line);
  }));
  // A file that nothing is picked in shows its hottest line.
  createEffect(on(() => [text()?.file.id, props.file] as const, () => {
    const picked = props.picked.line === null ? null : splitLineKey(props.picked.line);
    if (picked?.file === props.file) { bring(picked.line); return; }
    let best: { line: number; weight: number } | null = null;
    for (const line of answer().lines) if (line.file === props.file && (best === null || line.weight[0]! > best.weight)) best = { line: line.line, weight: line.weight[0]! };
    if (best) bring(best.line);
  }));
  const weightOf = (index: number) => props.model.files.find((each) => each.file === index)?.weight ?? 0;
  const title = (index: number) => { const path = answer().files[index]?.path ?? ""; return `${shareOf(weightOf(index), answer().events[0]?.own.weight ?? 0)} ${visible(baseName(path))}`; };
  return (
    <>
      <div class="pane-title">
        <h2>Source</h2>
        <Show when={props.model.files.length > 1} fallback={<span class="mono" title={visible(file()?.path ?? "")}>{visible(file() ? baseName(file()!.path) : "")}</span>}>
          <select aria-label="Source file" title={visible(file()?.path ?? "")} onChange={(event) => props.setFile(Number(event.currentTarget.value))}>
            <For each={props.model.files}>{(each) => <option value={each.file} selected={each.file === props.file}>{title(each.file)}</option>}</For>
          </select>
        </Show>
        <Show when={file()?.newer}><span class="severity warning" title="The source file was changed after the program was built. Lines may be off.">newer than the program</span></Show>
        <span class="space" />
        <button
          class="toggle" aria-pressed={outer()} onClick={() => setOuter(!outer())}
          title="Count inlined code at the line of the call that it replaced, rather than at its own line"
        >Inlined at call</button>
      </div>
      <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
      <Show when={file() && !file()!.found}>
        <p class="pane-note">Not found: <span class="mono">{visible(file()!.why ?? file()!.path)}</span></p>
      </Show>
      <Show when={props.file >= 0 && lines().length > 0}>
        <ComparedNote answer={answer()} />
        <div class="code-pane" classList={{ "few-events": answer().events.length === 1, compared: answer().other !== undefined }} style={{ "--events": eventsShown(answer()).length }}>
          <CodeRows
            label={`Source ${visible(file()?.path ?? "")}`} count={lines().length} show={show()}
            head={<>
              <EventHeads answer={answer()} />
              <span class="code-cell line" role="columnheader">line</span><span class="code-cell text" role="columnheader">source</span>
            </>}
            classOf={(row) => ({ picked: props.picked.lines.has(lineKey(props.file, lines()[row]!)), cold: text() !== null && entry(row)?.has_code !== true })}
            onPick={(row) => props.onPick(pickLine(props.model, lineKey(props.file, lines()[row]!)))}
            render={(row) => (
              <>
                <EventCells answer={answer()} measure={props.measure} here={here(row())} there={(e) => there(row(), e)} />
                <span class="code-cell line" role="rowheader">{lines()[row()] ?? ""}</span>
                <span class="code-cell text" role="gridcell">
                  <For each={coloured()?.[row()] ?? []}>{(piece) => <span class={piece.kind && `syntax-${piece.kind}`}>{visible(piece.text.replaceAll("\t", "    "))}</span>}</For>
                </span>
              </>
            )}
          />
        </div>
      </Show>
    </>
  );
}
