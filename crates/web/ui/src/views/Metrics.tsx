// Metrics: a table of ratios with their intervals, and a scatter plot of share of time against a metric.

import { createEffect, createMemo, createSignal, For, on, Show } from "solid-js";
import { count, plural } from "../format";
import { MetricPicker, shownMetrics } from "../metrics/Picker";
import { metricColumns, withIntervals, withParts } from "../metrics/rows";
import { Scatter } from "../metrics/Scatter";
import { plotPoints } from "../metrics/points";
import { visible } from "../names";
import type { Parameters } from "../net/client";
import type { TableAnswer } from "../net/types";
import { FactsMenu } from "../shell/FactsMenu";
import { Wrong } from "../shell/Message";
import { Split } from "../shell/Split";
import { createQuestion } from "../state/query";
import { learnNames, rowName, selection } from "../state/selection";
import { go, type KeyList, METRIC_ROWS, state } from "../state/url";
import { DataTable } from "../table/DataTable";
import { nextSorting, readSorting, type ShownRow, writeSorting } from "../table/model";
import { createPagedRows } from "../table/paged";
import { TableTools } from "../table/Tools";
import { save } from "./Hotspots";

const ROW_TITLES: Record<string, string> = { function: "Functions", path: "Functions by callers", line: "Source lines", module: "Modules", thread: "Threads", process: "Processes" };

/** Most points of the plot; the rows with the largest share come first. */
const POINTS = 2000;

export function MetricsView() {
  const rowKind = () => state.metricRows || "function";
  const level = () => (rowKind() === "path" ? "function" : rowKind());
  const [chosen, setChosen] = createSignal("");
  createEffect(on(() => [rowKind(), state.profile], () => setChosen("")));
  const base = (): Parameters => ({ ...selection(), inlined: false, of: "metrics", by: rowKind(), metric: shownMetrics() });
  const parameters = (): Parameters => ({ ...base(), sort: state.metricSort, filter: state.filter, regex: state.regex && state.filter !== "" });
  const rows = createPagedRows(parameters);
  const columns = createMemo(() => withParts(rows.answer()?.columns ?? []));
  const source = withIntervals(rows.source, rows.answer);
  const drawn = createQuestion<TableAnswer>("table", () => ({ ...base(), sort: "share_percent:desc", count: POINTS, filter: state.filter, regex: state.regex && state.filter !== "" }));
  const metrics = createMemo(() => metricColumns(drawn.answer()?.columns ?? []));
  const metric = () => metrics().find((column) => column.id === state.plot) ?? metrics()[0];
  const points = createMemo(() => { const answer = drawn.answer(); const column = metric(); return answer && column ? plotPoints(answer, column.id, level()) : []; });
  const badPattern = () => (rows.error()?.code === "bad_pattern" ? rows.error()!.text : null);
  const pick = (id: string, key: ShownRow["key"], name: string) => {
    setChosen(id);
    const kind = level() as KeyList;
    const own = key[kind as "function"];
    if (own) learnNames([[kind, own, name]]);
    if (key.function) go({ open: key.function }, true);
  };
  const nameOfRow = (row: ShownRow) => rowName(rows.answer()?.columns ?? [], row.cells, level());
  const note = () => {
    const answer = rows.answer();
    if (!answer) return "";
    return answer.matching_rows === answer.total_rows ? plural(answer.total_rows, "row") : `${count(answer.matching_rows)} of ${plural(answer.total_rows, "row")}`;
  };
  const table = (
    <>
      <TableTools
        name="metrics" columns={columns()} main={level()} note={note()} onSave={(format) => save(parameters(), format, "metrics")} saves="these rows"
        filter={{ text: state.filter, regex: state.regex, label: "Filter rows", error: badPattern(), onChange: (filter, regex) => go({ filter, regex }, true) }}
        lead={
          <select aria-label="Rows of the metrics" onChange={(event) => go({ metricRows: event.currentTarget.value === "function" ? "" : event.currentTarget.value })}>
            <For each={METRIC_ROWS}>{(each) => <option value={each} selected={each === rowKind()}>{ROW_TITLES[each]}</option>}</For>
          </select>
        }
        more={<><FactsMenu facts={rows.answer()?.facts ?? []} /><MetricPicker always /></>}
      />
      <Show when={rows.error() && !badPattern()}><Wrong error={rows.error()!} /></Show>
      <Show when={!rows.error() || badPattern()}>
        <DataTable
          name="metrics" label="Metrics" columns={columns()} level={level()} rows={source} totals={null} totalsLabel=""
          sorting={readSorting(state.metricSort) ?? rows.answer()?.sorted_by ?? { column: "share_percent", direction: "desc" }}
          showErrors={(id) => id === "share_percent" || metrics().some((column) => column.id === id) || rows.answer()?.rows.some((row) => row.standard_errors?.[id] !== undefined) === true}
          onSort={(column) => go({ metricSort: writeSorting(nextSorting(readSorting(state.metricSort), column.id, column.kind !== "number")) })}
          isSelected={(row) => (level() === "function" && rowKind() !== "path" ? row.key.function !== undefined && row.key.function === state.open : row.id === chosen())}
          onSelect={(row) => pick(row.id, row.key, nameOfRow(row))}
          {...(level() === "function" ? { onOpen: (row: ShownRow) => { pick(row.id, row.key, nameOfRow(row)); if (row.key.function) go({ view: "function", open: row.key.function }); } } : {})}
          busy={rows.busy()} emptyText={state.filter ? "No row passes the filter." : "No samples pass the selection."}
        />
      </Show>
    </>
  );
  const plot = (
    <Show when={metric()} fallback={<div class="message">{drawn.error() ? "" : drawn.busy() ? "" : "There is no metric with intervals to draw."}</div>}>
      {(column) => (
        <Scatter
          points={points()} unit={column().unit} title={visible(column().name)} log={state.plotLog} current={rowKind() === "function" ? points().findIndex((point) => point.key.function === state.open && state.open !== "") : points().findIndex((point) => point.id === chosen())}
          onPick={(point) => pick(point.id, point.key, point.name)}
          lead={
            <>
              <select aria-label="The metric that is drawn" onChange={(event) => go({ plot: event.currentTarget.value }, true)}>
                <For each={metrics()}>{(each) => <option value={each.id} selected={each.id === column().id}>{visible(each.name)}</option>}</For>
              </select>
              <button class="toggle" aria-pressed={state.plotLog} title="Logarithmic axes" onClick={() => go({ plotLog: !state.plotLog }, true)}>log</button>
            </>
          }
        />
      )}
    </Show>
  );
  return <Split name="metrics" down share={0.55} label="Height of the metrics' table" first={table} second={plot} />;
}
