// The heat map of the timeline: what happens within each second (flame scope). A brush selects the time for every view.

import { createSignal, For, type JSX, Show } from "solid-js";
import { axisTime, count, duration, inUnit, plural } from "../format";
import type { HeatmapAnswer } from "../net/types";
import { csv, savePng, saveText } from "../save";
import { Wrong } from "../shell/Message";
import { colour, isDark } from "../shell/theme";
import { loaded } from "../state/profile";
import { createQuestion } from "../state/query";
import { selection } from "../state/selection";
import { go, state } from "../state/url";
import { Menu } from "../table/Tools";
import { columnWidths, heatFill, heatSvg, type Place, ROWS, timesOf, usualWidth } from "../timeline/heat";
import { HeatCanvas } from "../timeline/HeatCanvas";
import { marks, type Stretch } from "../timeline/scale";

const STEPS = [0.01, 0.1, 0.25, 0.5, 0.75, 1];

export function HeatView(props: { lead: JSX.Element }) {
  const [hover, setHover] = createSignal<{ place: Place; x: number; y: number } | null>(null);
  const end = () => Math.max(1, Math.ceil(loaded()!.duration_ns ?? 1)) + 1;
  const width = () => (columnWidths(end()).includes(state.column) ? state.column : usualWidth(end()));
  const question = createQuestion<HeatmapAnswer>("heatmap", () => ({ ...selection(["time"]), span: `0..${end()}`, column_ns: width(), rows: ROWS }));
  const brush = (): Stretch | null => (state.time ? { from: state.time[0] ?? 0, to: state.time[1] ?? end() } : null);
  const setBrush = (stretch: Stretch | null) => go({ time: stretch ? [stretch.from, stretch.to] : null });
  let canvas: HTMLCanvasElement | null = null;
  const save = (what: "csv" | "json" | "svg" | "png") => {
    const answer = question.answer();
    if (!answer) return;
    if (what === "json") saveText("dioptra-heatmap.json", JSON.stringify(answer), "application/json");
    else if (what === "png") { if (canvas) savePng("dioptra-heatmap.png", canvas); }
    else if (what === "svg") saveText("dioptra-heatmap.svg", heatSvg(answer, isDark(), colour("back"), colour("text")), "image/svg+xml");
    else {
      const rows = answer.values.map((value, at) => [timesOf(answer, { column: Math.floor(at / answer.rows), row: at % answer.rows }).from, value]);
      saveText("dioptra-heatmap.csv", csv([["begin_ns", "samples"], ...rows]), "text/csv");
    }
  };
  const rowMarks = () => [0, 0.25, 0.5, 0.75, 1];
  const columnMarks = (answer: HeatmapAnswer) => {
    const whole = { from: answer.start_ns, to: answer.start_ns + answer.columns * answer.column_ns };
    const { step, times } = marks(whole, 9);
    return times.filter((time) => time < whole.to).map((time) => ({ left: (time - whole.from) / (whole.to - whole.from), text: axisTime(time, step) }));
  };
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Heat map">
        {props.lead}
        <label class="fold-tool" title="The time that a column stands for">
          Column
          <select onChange={(event) => go({ column: Number(event.currentTarget.value) })}>
            <For each={columnWidths(end())}>{(each) => <option value={each} selected={each === width()}>{duration(each)}</option>}</For>
          </select>
        </label>
        <span class="note">
          {question.answer() ? `${plural(question.answer()!.samples, "sample")}, ${duration(Math.round(question.answer()!.column_ns / question.answer()!.rows))} a row` : ""}
          {question.answer()?.untimed ? ` · ${plural(question.answer()!.untimed, "sample")} without a time` : ""}
        </span>
        <span class="space" />
        <span class="note">Drag: select time · double click: clear</span>
        <Menu label="Save">
          <button onClick={() => save("csv")}>CSV</button>
          <button onClick={() => save("json")}>JSON</button>
          <button onClick={() => save("svg")}>SVG picture</button>
          <button onClick={() => save("png")}>PNG picture</button>
        </Menu>
      </div>
      <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
      <div class="fill" aria-busy={question.busy()}>
        <Show when={question.answer()}>
          {(answer) => (
            <>
              <div class="heat">
                <ul class="heat-rows" aria-hidden="true"><For each={rowMarks()}>{(part) => <li style={{ top: `${100 * part}%` }}>{duration(Math.round(part * answer().column_ns))}</li>}</For></ul>
                <HeatCanvas
                  answer={answer()} end={end()} brush={brush()} onBrush={setBrush} onReady={(ready) => { canvas = ready; }}
                  onHover={(place, x, y) => setHover(place ? { place, x, y } : null)}
                />
                <div class="heat-columns" aria-hidden="true"><For each={columnMarks(answer())}>{(mark) => <span style={{ left: `${100 * mark.left}%` }}>{mark.text}</span>}</For></div>
              </div>
              <div class="heat-legend" role="group" aria-label="Colours">
                <span>Samples in a cell: 1</span>
                <span class="steps" aria-hidden="true"><For each={STEPS}>{(part) => <span class="swatch-box" style={{ "--swatch": heatFill(part, isDark()) }} />}</For></span>
                <span>{count(answer().peak)}</span>
                <span class="space" />
                <span>Left to right: {duration(answer().column_ns)} a column. From top to bottom: time within it.</span>
              </div>
            </>
          )}
        </Show>
      </div>
      <Show when={question.answer() && hover()}>{(at) => <Cell answer={question.answer()!} place={at().place} x={at().x} y={at().y} />}</Show>
    </>
  );
}

function Cell(props: { answer: HeatmapAnswer; place: Place; x: number; y: number }) {
  const times = () => timesOf(props.answer, props.place);
  const value = () => props.answer.values[props.place.column * props.answer.rows + props.place.row] ?? 0;
  return (
    <div class="tooltip" style={{ left: `${Math.min(props.x + 12, innerWidth - 320)}px`, top: `${Math.min(props.y + 16, innerHeight - 90)}px` }}>
      <div class="title">{inUnit(value(), "samples")} {value() === 1 ? "sample" : "samples"}</div>
      <div class="dim">{duration(times().from)} … {duration(times().to)}</div>
    </div>
  );
}
