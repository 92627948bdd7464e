// The replay of a trace: its calls in the order of time.

import { createEffect, createSignal, on, Show, untrack } from "solid-js";
import { count, duration, plural } from "../format";
import { ask } from "../net/client";
import type { ReplayAnswer, ReplayFindAnswer } from "../net/types";
import { csv, saveText } from "../save";
import { say } from "../shell/Foot";
import { Wrong } from "../shell/Message";
import { loadedTrace } from "../state/profile";
import { learnNames } from "../state/selection";
import { go, state } from "../state/url";
import { DataTable } from "../table/DataTable";
import { Menu } from "../table/Tools";
import { CallActions } from "../traces/CallActions";
import { createReplayRows, replayColumns, WINDOW } from "../traces/replayRows";
import { calls, readTime } from "../traces/state";

export function ReplayView() {
  const rows = createReplayRows(calls);
  const [picked, setPicked] = createSignal(-1);
  const [searching, setSearching] = createSignal(false);
  const [reveal, setReveal] = createSignal(-1);
  const columns = () => replayColumns(loadedTrace()!.ticks);
  const show = (row: number) => {
    if (row < rows.base() || row >= rows.base() + WINDOW) rows.setBase(row - WINDOW / 2);
    setPicked(row);
    setReveal(-1);
    setReveal(row - rows.base());
  };
  // The address may name the time where the replay opens.
  createEffect(on(() => [state.at, rows.total(), rows.counting()] as const, async ([at, total, counting]) => {
    const time = readTime(at);
    if (time === null || total === 0 || counting) return;
    try {
      const answer = await ask<ReplayAnswer>("trace/replay", { ...untrack(calls), at: time, count: 1 });
      if (answer.at_row !== null && state.at === at) show(Math.min(answer.at_row, total - 1));
    } catch {
      // The rows themselves tell what is wrong.
    }
  }));
  const find = async () => {
    if (state.find.trim() === "") return;
    setSearching(true);
    try {
      const from = picked() + 1;
      const ahead = await ask<ReplayFindAnswer>("trace/find", { ...calls(), text: state.find, regex: state.regex, from });
      const found = ahead.row ?? (from > 0 ? (await ask<ReplayFindAnswer>("trace/find", { ...calls(), text: state.find, regex: state.regex })).row : null);
      if (found === null) say("No call's name contains the text.");
      else {
        if (ahead.row === null) say("The search went on at the beginning.");
        show(found);
      }
    } catch (problem) {
      say(problem instanceof Error ? problem.message : String(problem));
    }
    setSearching(false);
  };
  const chosen = () => (picked() < 0 ? undefined : rows.row(picked()));
  const note = () => {
    const first = rows.base();
    const shown = rows.total() > WINDOW ? `rows ${count(first + 1)} to ${count(Math.min(rows.total(), first + WINDOW))} of ` : "";
    if (rows.counting()) return rows.busy() ? "Counting rows…" : `the first ${plural(rows.total(), "row")}; counting the others…`;
    const all = plural(rows.total(), "row");
    return rows.whole() > rows.total() ? `the first ${all} of ${count(rows.whole())} are in the report` : `${shown}${all}`;
  };
  const save = (format: "csv" | "json") => {
    const at = Math.max(0, picked());
    const shown = Array.from({ length: 1000 }, (_, offset) => rows.row(at + offset)).filter((row) => row !== undefined);
    if (format === "csv") saveText("dioptra-replay.csv", csv([["depth", ...columns().map((column) => column.id)], ...shown.map((row) => [row.depth, ...row.cells])]), "text/csv");
    else saveText("dioptra-replay.json", JSON.stringify(shown.map(({ depth, cells }) => ({ depth, call: cells[0], thread: cells[1], time: cells[2], duration: cells[3] }))), "application/json");
  };
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Replay">
        <span class="field">
          <input
            type="search" class="filter" data-filter placeholder="Find a call, Enter: next  ( / )" aria-label="Find a call" spellcheck={false} value={state.find}
            onInput={(event) => go({ find: event.currentTarget.value }, true)} onKeyDown={(event) => { if (event.key === "Enter") void find(); }}
          />
          <button class="toggle" aria-pressed={state.regex} title="Read the text as a regular expression" onClick={() => go({ regex: !state.regex })}>.*</button>
        </span>
        <button disabled={state.find.trim() === "" || searching()} onClick={() => void find()}>Next</button>
        <span class="note">{searching() ? "Searching…" : note()}</span>
        <Show when={rows.total() > WINDOW}>
          <button disabled={rows.base() === 0} onClick={() => rows.setBase(rows.base() - WINDOW)}>Earlier</button>
          <button disabled={rows.base() + WINDOW >= rows.total()} onClick={() => rows.setBase(rows.base() + WINDOW)}>Later</button>
        </Show>
        <span class="space" />
        <Show when={chosen()}>{(row) => <span class="note">{duration(Number(row().cells[2] ?? 0))} since the start</span>}</Show>
        <Menu label="Save">
          <button onClick={() => save("csv")}>CSV, rows from here on</button>
          <button onClick={() => save("json")}>JSON, rows from here on</button>
        </Menu>
      </div>
      <Show when={rows.error()}>{(error) => <Wrong error={error()} />}</Show>
      <Show when={!rows.error()}>
        <DataTable
          name="replay" label="Calls in the order of time" columns={columns()} level="call" rows={rows.source} totals={null} totalsLabel="" sorting={{ column: "time", direction: "asc" }}
          onSort={() => say("A replay is in the order of time.")} isSelected={(row) => row.id === String(picked())} reveal={reveal()}
          onSelect={(row) => {
            setPicked(Number(row.id));
            const of = rows.row(Number(row.id));
            if (of?.key.function) learnNames([["function", of.key.function, of.name]]);
          }}
          busy={rows.busy()} emptyText="The selection has no calls."
        />
      </Show>
      <Show when={chosen()?.call}>
        {(call) => <CallActions name={chosen()!.name} key={chosen()!.key.function ?? ""} call={call()} ended={chosen()!.ended} here="replay" />}
      </Show>
    </>
  );
}
