// A call tree as a table, with its tools.

import { createSignal, type JSX, Show } from "solid-js";
import { percent } from "../format";
import type { Parameters } from "../net/client";
import { csv, saveText } from "../save";
import { Wrong } from "../shell/Message";
import { go } from "../state/url";
import { DataTable } from "../table/DataTable";
import { nextSorting, type ShownRow, type Sorting } from "../table/model";
import { TableTools } from "../table/Tools";
import { type CallShape, createCallRows } from "./calls";

interface CallTableProps {
  name: string;
  label: string;
  parameters: () => Parameters | null;
  lead: JSX.Element;
  emptyText: string;
  /** What is asked and shown; samples, unless said otherwise. */
  shape?: CallShape;
  onOpen?(key: string): void;
}

export function CallTable(props: CallTableProps) {
  const [sorting, setSorting] = createSignal<Sorting | null>(null);
  const [picked, setPicked] = createSignal("");
  const rows = createCallRows(() => props.parameters(), sorting, props.shape);
  const open = (row: ShownRow) => {
    if (!row.key.function) return;
    if (props.onOpen) props.onOpen(row.key.function);
    else go({ view: "function", open: row.key.function });
  };
  const note = () => { const part = rows.onlyThere(); return part === null ? "" : `${percent(part)} % of the other profile is in paths that only it has`; };
  const save = (format: "csv" | "json") => {
    const shown = Array.from({ length: rows.source.total() }, (_, at) => rows.source.row(at)!);
    const titles = ["depth", ...rows.columns().map((column) => column.id)];
    if (format === "csv") saveText(`dioptra-${props.name}.csv`, csv([titles, ...shown.map((row) => [row.depth, ...row.cells])]), "text/csv");
    else saveText(`dioptra-${props.name}.json`, JSON.stringify({ columns: rows.columns(), rows: shown.map(({ depth, cells }) => ({ depth, cells })) }), "application/json");
  };
  return (
    <>
      <TableTools
        name="calls" columns={rows.columns()} main="function" onSave={save} saves="shown rows" note={note()}
        lead={<>{props.lead}<button onClick={() => void rows.openHottest()} title="Open the heaviest child of each row">Hottest path</button><button onClick={() => rows.closeAll()}>Close all</button></>}
      />
      <Show when={rows.error()}>{(error) => <Wrong error={error()} />}</Show>
      <Show when={!rows.error()}>
        <DataTable
          name="calls" label={props.label} columns={rows.columns()} level="function" rows={rows.source} totals={null} totalsLabel="" sorting={sorting()}
          onSort={(column) => setSorting(nextSorting(sorting(), column.id, column.kind !== "number"))} isSelected={(row) => row.id === picked()}
          onSelect={(row) => setPicked(row.id)} onOpen={open} busy={rows.busy()} emptyText={props.emptyText}
        />
      </Show>
    </>
  );
}
