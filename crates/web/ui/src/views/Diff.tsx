// Changes from the shown profile to another one: the table of `dioptra diff`.

import { createEffect, createMemo, For, Show } from "solid-js";
import { count, plural } from "../format";
import { MetricPicker, metricsBeside } from "../metrics/Picker";
import { visible } from "../names";
import type { Parameters } from "../net/client";
import { otherProfiles } from "../shell/CompareWith";
import { FactsMenu } from "../shell/FactsMenu";
import { Wrong } from "../shell/Message";
import { loaded, status } from "../state/profile";
import { learnNames, rowName, selection } from "../state/selection";
import { DIFF_ROWS, go, type KeyList, state } from "../state/url";
import { mainColumn } from "../table/columns";
import { DataTable } from "../table/DataTable";
import { nextSorting, readSorting, type ShownRow, writeSorting } from "../table/model";
import { createPagedRows } from "../table/paged";
import { TableTools } from "../table/Tools";
import { createTreeRows } from "../table/tree";
import { save } from "./Hotspots";

const ROW_TITLES: Record<string, string> = {
  function: "Functions", module: "Modules", process: "Processes", thread: "Threads", comm: "Thread names", "module,function": "Modules and functions", "process,module": "Processes and modules",
};

export function DiffView() {
  // With two profiles there is nothing to choose.
  const other = () => state.with || (otherProfiles().length === 1 ? String(otherProfiles()[0]!.index) : "");
  createEffect(() => { if (state.with === "" && other() !== "") go({ with: other() }, true); });
  return (
    <Show when={other() !== ""} fallback={<div class="message">Choose the profile to compare with in the bar at the top.</div>}>
      <Changes with={other()} />
    </Show>
  );
}

function Changes(props: { with: string }) {
  const by = () => state.diffRows || "function";
  const levels = () => by().split(",");
  const isTree = () => levels().length > 1;
  const level = () => levels()[0]!;
  const inner = () => levels()[levels().length - 1]!;
  const isReady = () => status()?.profiles[Number(props.with)]?.state === "ready";
  const generation = () => status()?.profiles[Number(props.with)]?.generation;
  const parameters = (): Parameters => ({
    ...selection(), of: "diff", with: props.with, by: by(), normalize: state.normalize, metric: metricsBeside(by(), false), sort: state.diffSort,
    filter: state.filter, regex: state.regex && state.filter !== "",
  });
  // The other profile's generation is no parameter; a change of it asks anew.
  const flatParameters = () => { void generation(); return isReady() && !isTree() ? parameters() : null; };
  const flat = createPagedRows(flatParameters);
  const tree = createTreeRows(() => (isReady() && isTree() ? parameters() : null));
  const rows = () => (isTree() ? tree : flat);
  const answer = () => rows().answer();
  const source = createMemo(() => rows().source);
  const badPattern = () => (rows().error()?.code === "bad_pattern" ? rows().error()!.text : null);
  const learn = (row: ShownRow) => {
    const kind = levels()[row.depth] ?? inner();
    const key = row.key[kind as "function"];
    const columns = answer()?.columns;
    if (key && columns) learnNames([[kind as KeyList, key, rowName(columns, row.cells, kind)]]);
  };
  const pick = (row: ShownRow) => { learn(row); if (row.key.function) go({ open: row.key.function }, true); };
  const open = (row: ShownRow) => { learn(row); if (row.key.function) go({ view: "function", open: row.key.function }); };
  const note = () => {
    const now = answer();
    if (!now) return isReady() ? "" : "The other profile is being loaded.";
    return now.matching_rows === now.total_rows ? plural(now.total_rows, "row") : `${count(now.matching_rows)} of ${plural(now.total_rows, "row")}`;
  };
  return (
    <>
      <TableTools
        name="diff" columns={answer()?.columns ?? []} main={mainColumn(answer()?.columns ?? [], level())} note={note()} onSave={(format) => save(parameters(), format, "changes")} saves="these rows"
        filter={{ text: state.filter, regex: state.regex, label: "Filter rows", error: badPattern(), onChange: (filter, regex) => go({ filter, regex }, true) }}
        lead={
          <>
            <select aria-label="Rows of the changes" onChange={(event) => go({ diffRows: event.currentTarget.value === "function" ? "" : event.currentTarget.value, diffSort: "" })}>
              <For each={DIFF_ROWS}>{(each) => <option value={each} selected={each === by()}>{ROW_TITLES[each]}</option>}</For>
            </select>
            <label title="What makes the two recordings comparable">
              per
              <select aria-label="Normalize by" onChange={(event) => go({ normalize: event.currentTarget.value, diffSort: "" })}>
                <option value="" selected={state.normalize === ""}>recording</option>
                <option value="time" selected={state.normalize === "time"}>second</option>
                <For each={loaded()!.events.filter((event) => event.sampled)}>{(event) => <option value={event.key} selected={state.normalize === event.key}>{visible(event.name)}</option>}</For>
              </select>
            </label>
            <button title="Compare the other way round" onClick={() => go({ profile: Number(props.with), with: String(state.profile), open: "", focus: "" })}>⇄<span class="off-screen">Compare the other way round</span></button>
          </>
        }
        more={<><FactsMenu facts={answer()?.facts ?? []} /><MetricPicker always={false} /></>}
      />
      <Show when={rows().error() && !badPattern()}><Wrong error={rows().error()!} /></Show>
      <Show when={!rows().error() || badPattern()}>
        <DataTable
          name="diff" label="Changes" columns={answer()?.columns ?? []} level={level()} rows={source()} totals={answer()?.totals ?? null}
          totalsLabel={state.filter ? "Rows that pass the filter" : "All rows"} sorting={readSorting(state.diffSort) ?? answer()?.sorted_by ?? null} showErrors={(id) => /_delta\b/.test(id) || /^b_(?!percent|weight|value|change|samples)/.test(id)}
          onSort={(column) => go({ diffSort: writeSorting(nextSorting(readSorting(state.diffSort), column.id, column.kind !== "number")) })}
          isSelected={(row) => row.key.function !== undefined && row.key.function === state.open} onSelect={pick} {...(inner() === "function" ? { onOpen: open } : {})}
          busy={rows().busy()} emptyText={state.filter ? "No row passes the filter." : "No samples pass the selection."}
        />
      </Show>
    </>
  );
}
