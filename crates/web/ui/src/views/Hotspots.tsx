// Hotspots: processes and modules above, functions below. A click above selects for every view.

import { createEffect, createMemo, createSignal, For, Show } from "solid-js";
import { count, plural } from "../format";
import { MetricPicker, metricsBeside } from "../metrics/Picker";
import { fold } from "../names";
import { askFile, type Parameters, report } from "../net/client";
import { cutNote } from "../net/parts";
import type { RowKey } from "../net/types";
import { copyText, saveBlob } from "../save";
import { say } from "../shell/Foot";
import { comparedProfile } from "../shell/CompareWith";
import { Wrong } from "../shell/Message";
import { Split } from "../shell/Split";
import { loaded } from "../state/profile";
import { learnNames, nameOf, rowName, selection, selectRow, toggle } from "../state/selection";
import { go, type KeyList, LEVELS, LOWER_ROWS, state } from "../state/url";
import { mainColumn } from "../table/columns";
import { DataTable } from "../table/DataTable";
import { nextSorting, readSorting, type ShownRow, type Sorting, writeSorting } from "../table/model";
import { createPagedRows } from "../table/paged";
import { type Share, tableSettings } from "../table/settings";
import { TableTools } from "../table/Tools";
import { createTreeRows } from "../table/tree";

export function HotspotsView() {
  return <Split name="hotspots" down share={0.34} label="Height of the process table" first={<Upper />} second={<Functions />} />;
}

const LEVEL_TITLES: Record<string, string> = {
  "process,module": "Processes and modules", "program,module": "Programs and modules", "process,thread": "Processes and threads",
  module: "Modules", thread: "Threads", comm: "Thread names", cpu: "CPUs",
};

/** Whether every condition that a click on the row sets holds already, and only those. */
function isChosen(key: RowKey): boolean {
  const change = selectRow(key);
  const lists = Object.keys(change) as KeyList[];
  return lists.length > 0 && lists.every((list) => state[list].length === 1 && state[list][0] === (change[list] as string[])[0]);
}

/** Shares of the row's first event compare events. */
function manyEvents(): Share[] {
  return (loaded()?.events.length ?? 0) > 1 ? ["row"] : [];
}

/** The order that is asked for; columns of the other profile are there only while it is compared. */
function sortOf(sort: string): string {
  return comparedProfile() === "" && sort.startsWith("b_") ? "" : sort;
}

/** Changes mean nothing without their errors. */
const LOWER_TITLES: Record<string, { title: string; one: string; filter: string }> = {
  function: { title: "Functions", one: "function", filter: "Filter functions" }, block: { title: "Basic blocks", one: "basic block", filter: "Filter functions" },
  line: { title: "Source lines", one: "source line", filter: "Filter files" },
};

const isChange = (column: string) => /_points\b/.test(column);

function Upper() {
  const { settings } = tableSettings("upper");
  const [sorting, setSorting] = createSignal<Sorting | null>(null);
  const levels = () => state.levels.split(",");
  const parameters = (): Parameters => ({
    ...selection(["process", "program", "thread", "comm", "module", "function", ...(state.levels === "cpu" ? ["cpu" as const] : [])]),
    by: state.levels, errors: settings.errors, percent: shares().includes(settings.share) ? settings.share : "", sort: sortOf(writeSorting(sorting())), metric: metricsBeside(state.levels, state.with !== ""), with: comparedProfile(),
  });
  // Shares of the row above need rows of two levels.
  const shares = (): Share[] => ["total", ...(levels().length > 1 ? ["parent" as const] : []), ...manyEvents()];
  const rows = createTreeRows(parameters);
  const isTree = () => levels().length > 1;
  const level = () => levels()[0]!;
  createEffect(() => {
    const answer = rows.answer();
    if (answer) learnNames(answer.rows.flatMap((row) => { const key = row.key[level() as "process"]; return key ? [[level() as KeyList, key, rowName(answer.columns, row.cells, level())] as const] : []; }));
  });
  const select = (row: ShownRow) => {
    const answer = rows.answer();
    const inner = levels()[row.depth] as "module";
    if (answer && row.key[inner]) learnNames([[inner as KeyList, row.key[inner]!, rowName(answer.columns, row.cells, inner)]]);
    const none = { process: [], program: [], thread: [], module: [], comm: [], ...(state.levels === "cpu" ? { cpu: [] } : {}) };
    go(isChosen(row.key) && covers(row.key) ? none : { ...none, ...selectRow(row.key) });
  };
  const covers = (key: RowKey) => (["process", "program", "thread", "module", "comm"] as const).every((list) => key[list] !== undefined || state[list].length === 0);
  const source = createMemo(() => (isTree() ? rows.source : { total: rows.source.total, row: rows.source.row, want: rows.source.want }));
  return (
    <>
      <TableTools
        name="upper" columns={rows.answer()?.columns ?? []} main={mainColumn(rows.answer()?.columns ?? [], level())} shares={shares()} onSave={(format) => save(parameters(), format, state.levels)}
        lead={
          <select aria-label="Rows of the upper table" onChange={(event) => go({ levels: event.currentTarget.value })}>
            <For each={LEVELS}>{(each) => <option value={each} selected={each === state.levels}>{LEVEL_TITLES[each]}</option>}</For>
          </select>
        }
        note={rows.answer() ? `${plural(rows.answer()!.matching_rows, "row")}. ${cutNote(rows.answer()!)} A click selects for all views.` : ""}
      />
      <Show when={rows.error()}>{(error) => <Wrong error={error()} />}</Show>
      <Show when={!rows.error()}>
        <DataTable
          name="upper" label={LEVEL_TITLES[state.levels]!} columns={rows.answer()?.columns ?? []} level={level()} rows={source()} totals={rows.answer()?.totals ?? null}
          totalsLabel="All" sorting={rows.answer()?.sorted_by ?? sorting()} onSort={(column) => setSorting(nextSorting(sorting(), column.id, column.kind !== "number"))}
          showErrors={isChange} isSelected={(row) => isChosen(row.key) && covers(row.key)} onSelect={select} busy={rows.busy()} emptyText="No samples pass the selection."
        />
      </Show>
    </>
  );
}

function Functions() {
  const by = () => (report() || state.rows === "" ? "function" : state.rows);
  // Columns that a reader hides or sizes for functions are others than those for blocks.
  const name = () => (by() === "function" ? "functions" : by());
  const things = () => LOWER_TITLES[by()]!;
  const { settings } = tableSettings("functions");
  const parameters = (): Parameters => ({
    ...selection(), by: by(), children: loaded()!.has.chains && by() === "function", errors: settings.errors, percent: shares().includes(settings.share) ? settings.share : "", sort: sortOf(state.sort), metric: metricsBeside(by(), state.with !== ""), with: comparedProfile(),
    filter: state.filter, regex: state.regex && state.filter !== "",
  });
  const shares = (): Share[] => ["total", ...manyEvents()];
  const main = () => (by() === "line" ? "file" : "function");
  const rows = createPagedRows(parameters);
  const badPattern = () => (rows.error()?.code === "bad_pattern" ? rows.error()!.text : null);
  const learn = (row: ShownRow) => {
    const answer = rows.answer();
    if (!answer || !row.key.function) return;
    const moduleAt = answer.columns.findIndex((column) => column.id === "module");
    learnNames([["function", row.key.function, rowName(answer.columns, row.cells, "function")]]);
    if (row.key.module && moduleAt >= 0) learnNames([["module", row.key.module, String(row.cells[moduleAt] ?? "")]]);
  };
  // A block is a place in its function: its first instruction.
  const instruction = (row: ShownRow) => {
    const at = by() === "block" ? (rows.answer()?.columns.findIndex((column) => column.id === "address") ?? -1) : -1;
    return String(row.cells[at] ?? "");
  };
  const open = (row: ShownRow) => { learn(row); if (row.key.function) go({ view: "function", open: row.key.function, instruction: instruction(row) }); };
  const pick = (row: ShownRow) => { learn(row); if (row.key.function) go({ open: row.key.function, instruction: instruction(row) }, true); };
  const note = () => {
    const answer = rows.answer();
    if (!answer) return "";
    const shown = answer.matching_rows === answer.total_rows ? plural(answer.total_rows, things().one) : `${count(answer.matching_rows)} of ${plural(answer.total_rows, things().one)}`;
    return [shown, cutNote(answer)].filter(Boolean).join(". ");
  };
  return (
    <>
      <TableTools
        lead={
          <Show when={!report()}>
            <select aria-label="Rows of the lower table" onChange={(event) => go({ rows: event.currentTarget.value === "function" ? "" : event.currentTarget.value, sort: "" })}>
              <For each={LOWER_ROWS}>{(each) => <option value={each} selected={each === by()}>{LOWER_TITLES[each]!.title}</option>}</For>
            </select>
          </Show>
        }
        name={name()} columns={rows.answer()?.columns ?? []} main={main()} shares={shares()} note={note()} onSave={(format) => save(parameters(), format, name())}
        more={<MetricPicker always={false} />} saves={state.filter ? "rows that pass" : "all rows"}
        filter={{ text: state.filter, regex: state.regex, label: things().filter, error: badPattern(), onChange: (filter, regex) => go({ filter, regex }, true) }}
      />
      <Show when={rows.error() && !badPattern()}><Wrong error={rows.error()!} /></Show>
      <Show when={!rows.error() || badPattern()}>
        <DataTable
          name={name()} label={things().title} columns={rows.answer()?.columns ?? []} level={main()} rows={rows.source} totals={rows.answer()?.totals ?? null}
          totalsLabel={state.filter ? "Rows that pass the filter" : "All rows"} sorting={readSorting(sortOf(state.sort)) ?? rows.answer()?.sorted_by ?? null}
          onSort={(column) => go({ sort: writeSorting(nextSorting(readSorting(state.sort), column.id, column.kind !== "number")) })}
          showErrors={isChange} isSelected={(row) => row.key.function !== undefined && row.key.function === state.open && (by() === "function" || instruction(row) === state.instruction)} onSelect={pick} onOpen={open}
          busy={rows.busy()} emptyText={state.filter ? "No function passes the filter." : "No samples pass the selection."}
        />
      </Show>
      <Show when={state.open}><Actions function={state.open} /></Show>
    </>
  );
}

/** What can be done with the function of the chosen row. */
function Actions(props: { function: string }) {
  const chains = () => loaded()!.has.chains;
  const name = () => nameOf("function", props.function);
  return (
    <div class="actions" role="toolbar" aria-label="Function">
      <span class="mono name" title={name().slice(0, 4000)}>{fold(name())}</span>
      <span class="space" />
      <button onClick={() => go({ view: "function" })}>Source and assembly</button>
      <Show when={chains()}>
        <button onClick={() => go({ view: "butterfly" })}>Callers and callees</button>
        <button onClick={() => go({ view: "flame", focus: props.function })}>Flame graph from here</button>
        <button onClick={() => toggle("through", props.function)} title="Count only samples whose call stack contains the function">Only through it</button>
      </Show>
      <button onClick={() => toggle("function", props.function)} title="Count only samples in the function itself">Only in it</button>
      <button onClick={() => void copyText(name())}>Copy name</button>
    </div>
  );
}

/** Saves all rows of a table, as the server writes them. */
export function save(parameters: Parameters, format: "csv" | "json", what: string): void {
  askFile("export", { ...parameters, format }).then(
    (blob) => saveBlob(`dioptra-${what.replaceAll(",", "-")}.${format}`, blob),
    (error: unknown) => say(error instanceof Error ? error.message : String(error)),
  );
}
