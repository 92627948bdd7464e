// Statistics of a trace: calls and times of each function, and the slowest calls of the chosen one.

import { createEffect, createSignal, Show } from "solid-js";
import { count, plural } from "../format";
import { fold } from "../names";
import { askFile, type Parameters } from "../net/client";
import type { Column, SlowCall, SlowestAnswer } from "../net/types";
import { csv, saveBlob, saveText } from "../save";
import { say } from "../shell/Foot";
import { Wrong } from "../shell/Message";
import { Split } from "../shell/Split";
import { loadedTrace } from "../state/profile";
import { createQuestion } from "../state/query";
import { learnNames, nameOf } from "../state/selection";
import { go, state } from "../state/url";
import { DataTable } from "../table/DataTable";
import { nextSorting, readSorting, type RowSource, type ShownRow, writeSorting } from "../table/model";
import { createPagedRows } from "../table/paged";
import { TableTools } from "../table/Tools";
import { CallActions } from "../traces/CallActions";
import { type CallPlace, calls, showInTimeline } from "../traces/state";

export function StatisticsView() {
  return (
    <Show when={state.open} fallback={<Functions />}>
      <Split name="statistics" down share={0.62} label="Height of the functions" first={<Functions />} second={<Slowest />} />
    </Show>
  );
}

function Functions() {
  const parameters = (): Parameters => ({ ...calls(), sort: state.sort, filter: state.filter, regex: state.regex && state.filter !== "" });
  const rows = createPagedRows(parameters, "trace/table");
  const badPattern = () => (rows.error()?.code === "bad_pattern" ? rows.error()!.text : null);
  const pick = (row: ShownRow) => {
    if (!row.key.function) return;
    learnNames([["function", row.key.function, String(row.cells[0] ?? "")]]);
    go({ open: row.key.function });
  };
  const note = () => {
    const answer = rows.answer();
    if (!answer) return "";
    return answer.matching_rows === answer.total_rows ? plural(answer.total_rows, "function") : `${count(answer.matching_rows)} of ${plural(answer.total_rows, "function")}`;
  };
  const save = (format: "csv" | "json") => {
    askFile("trace/export", { ...calls(), sort: state.sort, format }).then(
      (blob) => saveBlob(`dioptra-calls.${format}`, blob),
      (error: unknown) => say(error instanceof Error ? error.message : String(error)),
    );
  };
  return (
    <>
      <TableTools
        name="statistics" columns={rows.answer()?.columns ?? []} main="function" note={note()} onSave={save}
        filter={{ text: state.filter, regex: state.regex, label: "Filter functions", error: badPattern(), onChange: (filter, regex) => go({ filter, regex }, true) }}
      />
      <Show when={rows.error() && !badPattern()}><Wrong error={rows.error()!} /></Show>
      <Show when={!rows.error() || badPattern()}>
        <DataTable
          name="statistics" label="Functions" columns={rows.answer()?.columns ?? []} level="function" rows={rows.source} totals={rows.answer()?.totals ?? null}
          totalsLabel={state.filter ? "Rows that pass the filter" : "All rows"} sorting={readSorting(state.sort) ?? rows.answer()?.sorted_by ?? null}
          onSort={(column) => go({ sort: writeSorting(nextSorting(readSorting(state.sort), column.id, column.kind !== "number")) })}
          isSelected={(row) => row.key.function !== undefined && row.key.function === state.open} onSelect={pick} onOpen={pick}
          busy={rows.busy()} emptyText={state.filter ? "No function passes the filter." : "No calls pass the selection."}
        />
      </Show>
    </>
  );
}

/** The columns of slow calls. */
function slowColumns(unit: string): Column[] {
  const column = (id: string, name: string, kind: string, of: string | null): Column => ({ id, name, kind, unit: of, event: null, parent: null, for_programs: false });
  return [
    column("thread", "thread", "name", null), column("duration", "duration", "time", unit), column("self", "self", "time", unit), column("begin", "begin", "time", unit),
    column("depth", "depth", "count", null), column("ended", "", "name", null),
  ];
}

function Slowest() {
  const question = createQuestion<SlowestAnswer>("trace/slowest", () => (state.open ? { ...calls(), function: state.open, count: 200 } : null));
  const [picked, setPicked] = createSignal(0);
  createEffect(() => {
    const answer = question.answer();
    if (answer) learnNames([["function", answer.function.key, answer.function.name]]);
    setPicked(0);
  });
  const cells = (call: SlowCall) => [`${call.name} (${call.tid})`, call.duration_ns, call.self_ns, call.begin_ns, call.depth, call.ended ? "" : "had not ended"];
  const source: RowSource = {
    total: () => question.answer()?.calls.length ?? 0,
    row: (index) => { const call = question.answer()?.calls[index]; return call && { id: String(index), key: call.key, cells: cells(call), depth: 0, below: 0 }; },
    want: () => undefined,
  };
  const columns = () => slowColumns(loadedTrace()!.ticks ? "ticks" : "ns");
  const call = () => question.answer()?.calls[picked()];
  const place = (of: SlowCall): CallPlace => ({ tid: of.tid, begin: of.begin_ns, end: of.begin_ns + of.duration_ns });
  const save = (format: "csv" | "json") => {
    const all = question.answer()?.calls ?? [];
    if (format === "csv") saveText("dioptra-slowest.csv", csv([columns().map((column) => column.id), ...all.map(cells)]), "text/csv");
    else saveText("dioptra-slowest.json", JSON.stringify(question.answer()), "application/json");
  };
  const note = () => { const answer = question.answer(); return answer ? `The ${answer.calls.length < answer.total_calls ? `${answer.calls.length} slowest of ` : ""}${plural(answer.total_calls, "call")}` : ""; };
  return (
    <>
      <TableTools
        name="slowest" columns={columns()} main="thread" onSave={save} saves="these calls" note={note()}
        lead={<h2 class="mono lead-name" title={nameOf("function", state.open).slice(0, 4000)}>{fold(nameOf("function", state.open))}</h2>}
      />
      <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
      <Show when={!question.error()}>
        <DataTable
          name="slowest" label="Slowest calls" columns={columns()} level="thread" rows={source} totals={null} totalsLabel="" sorting={{ column: "duration", direction: "desc" }}
          onSort={() => say("The list holds the slowest calls only, so it has one order.")} isSelected={(row) => Number(row.id) === picked()} onSelect={(row) => setPicked(Number(row.id))}
          onOpen={(row) => { const of = question.answer()?.calls[Number(row.id)]; if (of) showInTimeline(place(of)); }}
          busy={question.busy()} emptyText="The selection has no calls of the function."
        />
      </Show>
      <Show when={call()}>
        {(call) => (
          <CallActions name={question.answer()!.function.name} key={state.open} call={place(call())} ended={call().ended} here="statistics">
            <button onClick={() => go({ view: "paths", focus: state.open })} title="What the function called">Call graph from here</button>
            <button onClick={() => go({ open: "" })}>Close</button>
          </CallActions>
        )}
      </Show>
    </>
  );
}
