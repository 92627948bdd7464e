// What a trace holds, what is missing from it, and the functions that took longest as the way in.

import { For, Show } from "solid-js";
import { bytes, count, duration, inUnit, plural } from "../format";
import { baseName, fold, visible } from "../names";
import type { Row, TableAnswer } from "../net/types";
import { report } from "../net/client";
import { Wrong } from "../shell/Message";
import { ReportCard } from "../shell/ReportCard";
import { loadedTrace } from "../state/profile";
import { createQuestion } from "../state/query";
import { go } from "../state/url";
import { calls, profileBeside } from "../traces/state";

export function TraceView() {
  return (
    <div class="summary">
      <div class="summary-column">
        <Show when={report()}>{(about) => <ReportCard about={about()} />}</Show>
        <Recorded />
        <Facts />
        <Modules />
      </div>
      <div class="summary-column">
        <Longest sort="total" title="Functions by total time" />
        <Longest sort="self" title="Functions by self time" />
        <Threads />
      </div>
    </div>
  );
}

function Recorded() {
  const trace = () => loadedTrace()!;
  const rows = (): [string, string | null][] => {
    const { machine } = trace();
    return [
      ["Trace", `${trace().path} (${bytes(trace().size_bytes)} of records)`],
      ["Command", trace().command_line.join(" ") || null],
      ["Ended", trace().ending],
      ["Options", trace().options.join(" ") || null],
      ["Rules", trace().rules.join(", ") || null],
      ["Recorded by", trace().recorder || null],
      ["Duration", trace().ticks ? `${count(trace().duration_ns)} ticks` : duration(trace().duration_ns)],
      ["Clock", trace().clock],
      ["Machine", machine.hostname],
      ["Kernel", machine.os_release],
      ["Processors", [machine.cpus_online === null ? null : plural(machine.cpus_online, "CPU"), machine.cpu].filter(Boolean).join(", ") || null],
      ["Holds", [plural(trace().processes.length, "process image"), plural(new Set(trace().threads.map((thread) => thread.tid)).size, "thread"), plural(trace().functions, "traceable function"), plural(trace().switches, "context switch", "context switches")].join(", ")],
      ["Sampled", trace().sampled > 0 ? `only chosen executions of ${plural(trace().sampled, "function")} were recorded` : null],
      ["Profile", profileBeside() ? `${profileBeside()!.label} was recorded at the same time` : null],
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

const SEVERITIES = ["loss", "warning", "fallback", "info"] as const;

function Facts() {
  const sorted = () => SEVERITIES.flatMap((severity) => loadedTrace()!.facts.filter((fact) => fact.severity === severity));
  // Notes about missing calls are losses already.
  const notes = () => { const told = new Set(loadedTrace()!.facts.map((fact) => fact.text)); return loadedTrace()!.notes.filter((note) => !told.has(note)); };
  return (
    <section class="card" aria-label="What to know about the numbers">
      <h2>What to know about the numbers</h2>
      <Show when={sorted().length + notes().length > 0} fallback={<p class="dim">Nothing was lost.</p>}>
        <ul class="diagnostics">
          <For each={sorted()}>
            {(fact) => <li><span class={`severity ${fact.severity}`}>{fact.severity}</span><span>{visible(fact.text).slice(0, 3000)}</span></li>}
          </For>
          <For each={notes()}>{(note) => <li><span class="severity">note</span><span>{visible(note).slice(0, 3000)}</span></li>}</For>
        </ul>
      </Show>
    </section>
  );
}

function Modules() {
  return (
    <section class="card" aria-label="Modules">
      <h2>Modules</h2>
      <table class="plain">
        <thead><tr><th scope="col">module</th><th scope="col" class="number">functions</th><th scope="col">how calls are found</th><th scope="col" class="number">refused</th></tr></thead>
        <tbody>
          <For each={loadedTrace()!.modules.slice(0, 40)}>
            {(module) => (
              <tr>
                <td class="mono" title={visible(module.path)}>{visible(baseName(module.path)).slice(0, 60)}</td>
                <td class="number">{count(module.functions)}</td>
                <td>{module.methods.map((each) => `${each.name} ${count(each.count)}`).join(", ")}</td>
                <td class="number" title={visible(module.refused.map((each) => `${each.count}: ${each.name}`).join("\n"))}>{count(module.refused.reduce((sum, each) => sum + each.count, 0))}</td>
              </tr>
            )}
          </For>
        </tbody>
      </table>
    </section>
  );
}

/** The length of a bar beside a row: its share of the largest value. */
function barOf(answer: TableAnswer, row: Row, id: string): string {
  const at = answer.columns.findIndex((column) => column.id === id);
  const most = answer.rows.reduce((most, each) => Math.max(most, Number(each.cells[at] ?? 0)), 0);
  return `${most > 0 ? (100 * Number(row.cells[at] ?? 0)) / most : 0}%`;
}

function Threads() {
  const question = createQuestion<TableAnswer>("trace/table", () => ({ ...calls(), by: "thread", count: 8 }));
  const at = (answer: TableAnswer, id: string) => answer.columns.findIndex((column) => column.id === id);
  return (
    <section class="card" aria-label="Threads" aria-busy={question.busy()}>
      <h2>Threads <span class="dim">by time within calls</span></h2>
      <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
      <Show when={question.answer()}>
        {(answer) => (
          <ul class="hottest">
            <For each={answer().rows}>
              {(row) => (
                <li><button onClick={() => { if (row.key.thread) go({ view: "calls", thread: [row.key.thread] }); }}>
                  <span class="share" style={{ "--bar": barOf(answer(), row, "total") }}>{inUnit(Number(row.cells[at(answer(), "total")] ?? 0), answer().columns[at(answer(), "total")]?.unit ?? null)}</span>
                  <span class="samples">{count(Number(row.cells[at(answer(), "calls")] ?? 0))}</span>
                  <span class="name">{visible(String(row.cells[at(answer(), "task")] ?? "")).slice(0, 200)} ({String(row.cells[at(answer(), "tid")] ?? "")})</span>
                </button></li>
              )}
            </For>
          </ul>
        )}
      </Show>
    </section>
  );
}

function Longest(props: { sort: "total" | "self"; title: string }) {
  const question = createQuestion<TableAnswer>("trace/table", () => ({ ...calls(), sort: `${props.sort}:desc`, count: 6 }));
  const at = (answer: TableAnswer, id: string) => answer.columns.findIndex((column) => column.id === id);
  return (
    <section class="card" aria-label={props.title} aria-busy={question.busy()}>
      <h2>{props.title}</h2>
      <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
      <Show when={question.answer()}>
        {(answer) => (
          <Show when={answer().rows.length > 0} fallback={<p class="dim">The trace has no calls.</p>}>
            <ul class="hottest">
              <For each={answer().rows}>
                {(row) => {
                  const name = () => String(row.cells[at(answer(), "function")] ?? "");
                  const column = () => at(answer(), props.sort);
                  return (
                    <li><button title={visible(name()).slice(0, 4000)} onClick={() => { if (row.key.function) go({ view: "statistics", open: row.key.function }); }}>
                      <span class="share" style={{ "--bar": barOf(answer(), row, props.sort) }}>{inUnit(Number(row.cells[column()] ?? 0), answer().columns[column()]?.unit ?? null)}</span>
                      <span class="samples">{count(Number(row.cells[at(answer(), "calls")] ?? 0))}</span>
                      <span class="name">{fold(name()) || "[no name]"}</span>
                    </button></li>
                  );
                }}
              </For>
            </ul>
          </Show>
        )}
      </Show>
    </section>
  );
}
