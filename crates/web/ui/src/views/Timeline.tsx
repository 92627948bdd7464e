// The timeline: the samples of each thread, process or CPU over time. A brush selects a range for every view.

import { createMemo, createSignal, For, type JSX, Show } from "solid-js";
import { count, duration, inUnit, percent, plural } from "../format";
import { visible } from "../names";
import type { TimelineAnswer } from "../net/types";
import { csv, savePng, saveText } from "../save";
import { comparedProfile } from "../shell/CompareWith";
import { Wrong } from "../shell/Message";
import { loaded, status } from "../state/profile";
import { createQuestion } from "../state/query";
import { learnNames, selection, selectRow, shownEvents } from "../state/selection";
import { go, type KeyList, type PageState, state } from "../state/url";
import { Menu } from "../table/Tools";
import { createRowHeight } from "../table/virtual";
import { LaneCanvas } from "../timeline/LaneCanvas";
import type { Stretch } from "../timeline/scale";
import { timelineSvg } from "../timeline/svg";
import { HeatView } from "./Heat";

const MOST_LANES = 120;
const LANES: { key: PageState["lanes"]; title: string }[] = [{ key: "thread", title: "Threads" }, { key: "process", title: "Processes" }, { key: "cpu", title: "CPUs" }];

interface Hover { time: number; lane: number; x: number; y: number }

export function TimelineView() {
  const lead = () => (
    <span class="toggles" role="group" aria-label="Picture">
      <button class="toggle" aria-pressed={!state.heat} onClick={() => go({ heat: false })} title="Lanes over time">Lanes</button>
      <button class="toggle" aria-pressed={state.heat} onClick={() => go({ heat: true })} title="Each second as a column: what recurs within seconds shows as a pattern">Heat map</button>
    </span>
  );
  return <Show when={state.heat} fallback={<LanesView lead={lead()} />}><HeatView lead={lead()} /></Show>;
}

function LanesView(props: { lead: JSX.Element }) {
  const bounds = (): Stretch => ({ from: 0, to: Math.max(1, Math.ceil(loaded()!.duration_ns ?? 1)) });
  const zoom = (): Stretch | null => (state.shown ? { from: state.shown[0] ?? 0, to: Math.min(bounds().to, state.shown[1] ?? bounds().to) } : null);
  const [shared, setShared] = createSignal(true);
  const [hover, setHover] = createSignal<Hover | null>(null);
  const plainHeight = createRowHeight(2.1);
  // Two halves need room.
  const laneHeight = () => (comparedProfile() === "" ? plainHeight() : 1.5 * plainHeight());
  const shown = createMemo(() => { const now = zoom(); return now && now.from < now.to ? now : bounds(); });
  const bins = () => Math.max(100, Math.min(1200, Math.round((innerWidth - 260) / 2)));
  const span = (stretch: Stretch) => `${Math.floor(stretch.from)}..${Math.ceil(stretch.to)}`;
  const whole = createQuestion<TimelineAnswer>("timeline", () => ({ ...selection(["time"]), rows: "all", bins: bins(), span: span(bounds()), with: comparedProfile() }));
  const kind = () => (state.lanes === "cpu" && !loaded()!.has.cpus ? "thread" : state.lanes);
  // A lane that is selected stays beside the others, so that another can be chosen.
  const rows = createQuestion<TimelineAnswer>("timeline", () => ({
    ...selection(kind() === "cpu" ? ["time", "cpu"] : kind() === "process" ? ["time", "process"] : ["time", "thread"]), rows: kind(), bins: bins(), span: span(shown()), count: MOST_LANES, with: comparedProfile(),
  }));
  const other = () => rows.answer()?.other;
  const otherName = () => visible(status()?.profiles[other()?.profile ?? -1]?.label ?? "the other profile");
  // A longer recording is shown as far as this one goes.
  const otherNote = () => {
    const now = other();
    if (!now) return "";
    const parts = [`Below: ${otherName()}, from its first sample on`];
    if (now.end_ns > bounds().to + 1) parts.push(`${duration(now.end_ns - bounds().to)} of it go on behind this recording's end`);
    if (now.unmatched_rows > 0) parts.push(`${plural(now.unmatched_samples, "sample")} there in ${plural(now.unmatched_rows, "lane")} that are not here`);
    return parts.join(" · ");
  };
  const brush = (): Stretch | null => (state.time ? { from: state.time[0] ?? bounds().from, to: state.time[1] ?? bounds().to } : null);
  const setBrush = (stretch: Stretch | null) => go({ time: stretch ? [Math.round(stretch.from), Math.round(stretch.to)] : null });
  // Each step of a wheel would be a step of the back button; only buttons make one.
  const setShown = (stretch: Stretch, quiet = true) => go({
    shown: stretch.from <= bounds().from && stretch.to >= bounds().to ? null : [Math.round(Math.max(0, stretch.from)), Math.round(Math.min(bounds().to, stretch.to))],
  }, quiet);
  const covers = (answer: TimelineAnswer | null): Stretch => (answer ? { from: answer.start_ns, to: answer.end_ns } : shown());
  const lanes = createMemo(() => {
    const answer = rows.answer();
    if (!answer) return [];
    const most = (values: readonly number[] | undefined) => (values ?? []).reduce((most, value) => Math.max(most, value), 0);
    // Both halves of a lane have one scale.
    const peak = Math.max(answer.peak, answer.other?.peak ?? 0);
    return answer.rows.map((row) => ({ values: row.values, off: row.off, ...halfBelow(answer, row), peak: shared() ? peak : Math.max(most(row.values), most(row.other?.values)) }));
  });
  const overview = createMemo(() => (whole.answer()?.rows ?? []).slice(0, 1).map((row) => ({ values: row.values, ...halfBelow(whole.answer()!, row), peak: Math.max(whole.answer()!.peak, whole.answer()!.other?.peak ?? 0) })));
  const choose = (row: TimelineAnswer["rows"][number]) => {
    const change = selectRow(kind() === "cpu" ? { cpu: row.key.cpu! } : kind() === "process" ? { process: row.key.process! } : { thread: row.key.thread! });
    const list = Object.keys(change)[0] as KeyList;
    const key = (change[list] as string[])[0]!;
    learnNames([[list, key, nameWithNumber(row)]]);
    go({ [list]: state[list].length === 1 && state[list][0] === key ? [] : [key] });
  };
  const isChosen = (row: TimelineAnswer["rows"][number]) => { const list = kind() as "thread"; const key = row.key[list]; return key !== undefined && state[list].includes(key); };
  const nameWithNumber = (row: TimelineAnswer["rows"][number]) => (row.number === null || kind() === "cpu" ? row.name : `${row.name} (${row.number})`);
  let canvas: HTMLCanvasElement | null = null;
  const save = (what: "csv" | "json" | "svg" | "png") => {
    const answer = rows.answer();
    if (!answer) return;
    if (what === "csv") saveText("dioptra-timeline.csv", csv([
      ["lane", ...(answer.other ? ["profile"] : []), ...Array.from({ length: answer.bins }, (_, bin) => Math.round(answer.start_ns + bin * answer.bin_ns))],
      ...answer.rows.flatMap((row) => [[nameWithNumber(row), ...(answer.other ? [answer.profile] : []), ...row.values], ...(answer.other && row.other ? [[nameWithNumber(row), answer.other.profile, ...row.other.values]] : [])]),
    ]), "text/csv");
    else if (what === "json") saveText("dioptra-timeline.json", JSON.stringify(answer), "application/json");
    else if (what === "png") { if (canvas) savePng("dioptra-timeline.png", canvas); }
    else saveText("dioptra-timeline.svg", timelineSvg(answer, lanes(), nameWithNumber, laneHeight()), "image/svg+xml");
  };
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Timeline">
        {props.lead}
        <span class="toggles" role="group" aria-label="Lanes">
          <For each={LANES.filter((lane) => lane.key !== "cpu" || loaded()!.has.cpus)}>
            {(lane) => <button class="toggle" aria-pressed={kind() === lane.key} onClick={() => go({ lanes: lane.key })}>{lane.title}</button>}
          </For>
        </span>
        <button class="toggle" aria-pressed={shared()} onClick={() => setShared(!shared())} title="All lanes have the same height for the same number of samples">One scale</button>
        <button disabled={!brush()} onClick={() => { const now = brush(); if (now) setShown(now, false); }}>Zoom to selection</button>
        <button disabled={!zoom()} onClick={() => go({ shown: null })}>Show all</button>
        <span class="note">{rows.answer() ? `${duration(Math.round(rows.answer()!.bin_ns))} a bin` : ""}{rows.answer()?.untimed ? ` · ${plural(rows.answer()!.untimed, "sample")} without a time` : ""}{rows.answer()?.rows.some((row) => row.off) ? (kind() === "cpu" ? " · hatched: idle" : " · hatched: off the CPU") : ""}</span>
        <span class="space" />
        <span class="note">Drag: select time · Ctrl+wheel: zoom · double click: clear</span>
        <Menu label="Save">
          <button onClick={() => save("csv")}>CSV, shown lanes</button>
          <button onClick={() => save("json")}>JSON, shown lanes</button>
          <button onClick={() => save("svg")}>SVG picture</button>
          <button onClick={() => save("png")}>PNG picture</button>
        </Menu>
      </div>
      <Show when={otherNote()}><p class="pane-note other-samples">{otherNote()}</p></Show>
      <div class="timeline" aria-busy={rows.busy() || whole.busy()}>
        <div class="lane-row overview">
          <div class="lane-names"><div class="lane-name head">All, {visible(shownEvents()[0] ?? "")}</div></div>
          <LaneCanvas
            label="The whole recording" lanes={overview()} laneHeight={laneHeight() * 1.6} shown={bounds()} data={covers(whole.answer())} bounds={bounds()} brush={brush()} axis
            onBrush={setBrush} onZoom={(stretch) => setShown(stretch)} onHover={() => setHover(null)}
          />
        </div>
        <Show when={whole.error() ?? rows.error()}>{(error) => <Wrong error={error()} />}</Show>
        <div class="lane-scroll">
          <div class="lane-row">
            <ul class="lane-names" aria-label={LANES.find((lane) => lane.key === kind())!.title}>
              <li class="lane-axis" aria-hidden="true" style={{ height: `${Math.round(plainHeight() * 1.6 / 2.1)}px` }}>{zoom() ? "zoomed" : ""}</li>
              <For each={rows.answer()?.rows ?? []}>
                {(row) => (
                  <li style={{ height: `${laneHeight()}px` }}>
                    <button class="lane-name" aria-pressed={isChosen(row)} title={`${visible(row.process_name ?? row.name)} · ${visible(row.name)}: ${inUnit(row.samples, "samples")} samples.${row.other ? ` There ${visible(row.other.name)}${row.other.number !== null && kind() !== "cpu" ? ` (${row.other.number})` : ""}: ${count(row.other.samples)} samples.` : ""} Click to select.`} onClick={() => choose(row)}>
                      <span class="name">{visible(nameWithNumber(row)).slice(0, 200)}</span><span class="samples">{count(row.samples)}<Show when={other()}> <span class="other-samples">{row.other ? count(row.other.samples) : "–"}</span></Show></span>
                    </button>
                  </li>
                )}
              </For>
            </ul>
            <LaneCanvas
              label="Lanes" lanes={lanes()} laneHeight={laneHeight()} shown={shown()} data={covers(rows.answer())} bounds={bounds()} brush={brush()} axis
              onBrush={setBrush} onZoom={(stretch) => setShown(stretch)} onHover={(time, lane, x, y) => setHover(time === null ? null : { time, lane, x, y })} onReady={(ready) => { canvas = ready; }}
            />
          </div>
          <Show when={(rows.answer()?.total_rows ?? 0) > (rows.answer()?.rows.length ?? 0)}>
            <p class="dim more-lanes">{count(rows.answer()!.total_rows - rows.answer()!.rows.length)} lanes with fewer samples are not shown. Select a process or module to see them.</p>
          </Show>
        </div>
      </div>
      <Show when={hover()}>{(at) => <Bin answer={rows.answer()} hover={at()} />}</Show>
    </>
  );
}

/** The bars of the other profile in a row's lane; lanes have a lower half as soon as profiles are compared. */
function halfBelow(answer: TimelineAnswer, row: TimelineAnswer["rows"][number]): { other?: readonly number[] } {
  return answer.other ? { other: row.other?.values ?? [] } : {};
}

function Bin(props: { answer: TimelineAnswer | null; hover: Hover }) {
  const row = () => props.answer?.rows[props.hover.lane];
  const bin = () => (props.answer ? Math.min(props.answer.bins - 1, Math.floor((props.hover.time - props.answer.start_ns) / props.answer.bin_ns)) : 0);
  return (
    <Show when={row()}>
      {(row) => (
        <div class="tooltip" style={{ left: `${Math.min(props.hover.x + 12, innerWidth - 320)}px`, top: `${Math.min(props.hover.y + 16, innerHeight - 90)}px` }}>
          <div class="title">{visible(row().name).slice(0, 300)}</div>
          <div class="dim">{duration(props.hover.time)}: {plural(row().values[bin()] ?? 0, "sample")}<Show when={props.answer?.other}>, there {plural(row().other?.values[bin()] ?? 0, "sample")}</Show></div>
          <Show when={row().off?.[bin()] !== undefined}><div class="dim">{row().key.cpu === undefined ? "off the CPU" : "idle"}: {percent((row().off?.[bin()] ?? 0) / 10)} %</div></Show>
        </div>
      )}
    </Show>
  );
}
