// What was recorded, on what, what is missing from it, and the hottest of each level as the way in.

import { createEffect, For, Show } from "solid-js";
import { bytes, count, duration, inUnit, plural } from "../format";
import { fold, visible } from "../names";
import { report } from "../net/client";
import type { Row, TableAnswer } from "../net/types";
import { ReportCard } from "../shell/ReportCard";
import { loaded } from "../state/profile";
import { createQuestion } from "../state/query";
import { learnNames, rowName, selection, selectRow, shownEvents } from "../state/selection";
import { go, type KeyList } from "../state/url";
import { Wrong } from "../shell/Message";

const LEVELS: { by: KeyList; title: string }[] = [
  { by: "process", title: "Processes" },
  { by: "thread", title: "Threads" },
  { by: "module", title: "Modules" },
  { by: "function", title: "Functions" },
];

export function SummaryView() {
  return (
    <div class="summary">
      <div class="summary-column">
        <Show when={report()}>{(about) => <ReportCard about={about()} />}</Show>
        <Recorded />
        <Events />
        <Facts />
      </div>
      <div class="summary-column">
        <For each={LEVELS}>{(level) => <Hottest by={level.by} title={level.title} />}</For>
      </div>
    </div>
  );
}

function Recorded() {
  const profile = () => loaded()!;
  const rows = (): [string, string | null][] => {
    const { machine, counts } = profile();
    return [
      ["File", `${profile().path} (${bytes(profile().size_bytes)})`],
      ["Command", profile().command_line.length > 0 ? profile().command_line.join(" ") : null],
      ["Recorded by", profile().recorder],
      ["Duration", profile().duration_ns === null ? null : duration(profile().duration_ns!)],
      ["Machine", [machine.hostname, machine.arch].filter(Boolean).join(", ") || null],
      ["Kernel", machine.os_release],
      ["Processors", [machine.cpus_online === null ? null : plural(machine.cpus_online, "CPU"), machine.cpu].filter(Boolean).join(", ") || null],
      ["Memory", machine.memory_kib === null ? null : bytes(machine.memory_kib * 1024)],
      ["Holds", [plural(counts.processes, "process", "processes"), plural(counts.threads, "thread"), plural(counts.modules, "module"),
        plural(counts.functions, "function")].join(", ")],
    ];
  };
  return (
    <section class="card" aria-label="Recording">
      <h2>Recording</h2>
      <dl class="facts">
        <For each={rows().filter(([, value]) => value !== null)}>
          {([title, value]) => <><dt>{title}</dt><dd title={visible(value ?? "")}>{visible(value ?? "").slice(0, 1500)}</dd></>}
        </For>
      </dl>
    </section>
  );
}

function Events() {
  return (
    <section class="card" aria-label="Events">
      <h2>Events</h2>
      <table class="plain">
        <thead><tr><th scope="col">event</th><th scope="col" class="number">samples</th><th scope="col" class="number">time or events</th><th scope="col">call chains</th></tr></thead>
        <tbody>
          <For each={loaded()!.events}>
            {(event) => (
              <tr>
                <td class="mono" title={visible(event.name)}>{fold(event.name)}</td>
                <td class="number">{event.sampled ? count(event.samples) : "–"}</td>
                <td class="number">{event.sampled ? inUnit(event.weight, event.unit) : "–"}{event.is_scaled ? " (scaled)" : ""}</td>
                <td>{event.sampled ? (event.has_chains ? "yes" : "no") : ""}</td>
              </tr>
            )}
          </For>
        </tbody>
      </table>
    </section>
  );
}

const SEVERITIES = ["loss", "warning", "fallback", "info"] as const;

function Facts() {
  const sorted = () => SEVERITIES.flatMap((severity) => loaded()!.facts.filter((fact) => fact.severity === severity));
  return (
    <section class="card" aria-label="What to know about the numbers">
      <h2>What to know about the numbers</h2>
      <Show when={sorted().length > 0} fallback={<p class="dim">Nothing was lost, and no name is missing.</p>}>
        <ul class="diagnostics">
          <For each={sorted()}>
            {(fact) => <li><span class={`severity ${fact.severity}`}>{fact.severity}</span><span>{visible(fact.text).slice(0, 3000)}</span></li>}
          </For>
        </ul>
      </Show>
    </section>
  );
}

function Hottest(props: { by: KeyList; title: string }) {
  const question = createQuestion<TableAnswer>("table", () => ({ ...selection(), by: props.by, count: 5 }));
  const column = (answer: TableAnswer, unit: string) => answer.columns.findIndex((column) => column.unit === unit && column.event !== null && column.name !== "total");
  const name = (answer: TableAnswer, row: Row) => rowName(answer.columns, row.cells, props.by);
  const moduleOf = (answer: TableAnswer, row: Row) => {
    const at = props.by === "function" ? answer.columns.findIndex((column) => column.id === "module") : -1;
    return at < 0 ? "" : String(row.cells[at] ?? "");
  };
  createEffect(() => {
    const answer = question.answer();
    if (answer) learnNames(answer.rows.flatMap((row) => { const key = row.key[props.by as keyof Row["key"]]; return typeof key === "string" ? [[props.by, key, name(answer, row)] as const] : []; }));
  });
  const open = (row: Row) => {
    if (props.by === "function" && row.key.function) go({ view: "function", open: row.key.function });
    else go({ ...selectRow(row.key), view: "hotspots" });
  };
  return (
    <section class="card" aria-label={`Hottest: ${props.title}`} aria-busy={question.busy()}>
      <h2>{props.title} <span class="dim">by {visible(shownEvents()[0] ?? "")}</span></h2>
      <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
      <Show when={question.answer()}>
        {(answer) => (
          <>
            <ul class="hottest">
              <For each={answer().rows}>
                {(row) => {
                  const share = () => row.cells[column(answer(), "percent")];
                  const samples = () => row.cells[column(answer(), "samples")];
                  return (
                    <li>
                      <button title={visible(name(answer(), row)).slice(0, 4000)} onClick={() => open(row)}>
                        <span class="share" style={{ "--bar": `${typeof share() === "number" ? share() : 0}%` }}>{typeof share() === "number" ? inUnit(share() as number, "percent") : "–"}</span>
                        <span class="samples">{typeof samples() === "number" ? count(samples() as number) : ""}</span>
                        <span class="name">{(props.by === "function" ? fold(name(answer(), row)) : visible(name(answer(), row)).slice(0, 300)) || "[no name]"} <span class="dim">{visible(moduleOf(answer(), row)).slice(0, 200)}</span></span>
                      </button>
                    </li>
                  );
                }}
              </For>
            </ul>
            <Show when={answer().matching_rows > answer().rows.length}>
              <a class="more" href="#/hotspots" onClick={(event) => { event.preventDefault(); go({ view: "hotspots", ...(props.by === "module" || props.by === "thread" ? { levels: props.by } : {}) }); }}>
                {count(answer().matching_rows - answer().rows.length)} more
              </a>
            </Show>
          </>
        )}
      </Show>
    </section>
  );
}
