// The timeline of a trace: the calls of each thread as nested bars, and the samples of a profile beside it below them.

import { createEffect, createMemo, createSignal, on, Show } from "solid-js";
import { count, duration } from "../format";
import { fold, visible } from "../names";
import type { CallTimelineAnswer, TimelineAnswer } from "../net/types";
import { savePng, saveText } from "../save";
import { Wrong } from "../shell/Message";
import { loadedTrace } from "../state/profile";
import { createQuestion } from "../state/query";
import { learnNames, nameOf } from "../state/selection";
import { go, readSpan, state } from "../state/url";
import { Menu } from "../table/Tools";
import type { Stretch } from "../timeline/scale";
import { CallActions } from "../traces/CallActions";
import { CallsCanvas } from "../traces/CallsCanvas";
import type { CallsLook } from "../traces/draw";
import { BEGAN_BEFORE, GOES_ON, layOutCalls, type Picked, tileAround } from "../traces/model";
import { calls, profileBeside, readTime } from "../traces/state";
import { callsSvg } from "../traces/svg";

/** Lanes that are asked for at first, and with each further request. */
const LANES = 16;
const PIXELS = 4096;
const BINS = 1000;
/** While the reader zooms, stretches that only flit by are not asked for. */
const PATIENCE_MS = 60;

interface Hover { picked: Picked; time: number; x: number; y: number }

export function CallsView() {
  const bounds = (): Stretch => ({ from: 0, to: loadedTrace()!.duration_ns + 1 });
  const shown = createMemo((): Stretch => {
    const span = readSpan(state.span);
    const { to } = bounds();
    const from = Math.max(0, Math.min(span?.[0] ?? 0, to - 1));
    return { from, to: Math.max(from + 1, Math.min(span?.[1] ?? to, to)) };
  });
  const [settled, setSettled] = createSignal(shown());
  let timer: ReturnType<typeof setTimeout> | undefined;
  createEffect(on(shown, (now) => { clearTimeout(timer); timer = setTimeout(() => setSettled(now), PATIENCE_MS); }));
  const [lanes, setLanes] = createSignal(LANES);
  const [picked, setPicked] = createSignal<Picked | null>(null);
  const [hover, setHover] = createSignal<Hover | null>(null);
  const text = (stretch: Stretch) => `${Math.floor(stretch.from)}..${Math.ceil(stretch.to)}`;
  const question = createQuestion<CallTimelineAnswer>("trace/timeline", () => ({
    ...calls(["time"]), span: text(tileAround(settled().from, settled().to, bounds().to)), pixels: PIXELS, depth: 100, count: lanes(),
  }));
  const samples = createQuestion<TimelineAnswer>("timeline", () => {
    const other = profileBeside();
    if (!other) return null;
    const from = Math.max(0, Math.floor(settled().from + other.offset));
    const to = Math.min(other.duration + 1, Math.ceil(settled().to + other.offset));
    return to > from ? { profile: other.profile, rows: "thread", bins: BINS, span: `${from}..${to}`, count: 400 } : null;
  });
  const model = createMemo(() => {
    const answer = question.answer();
    return answer ? layOutCalls(answer, samples.answer(), -(profileBeside()?.offset ?? 0)) : null;
  });
  // The address may name a call by the time at which it began; a new answer has other numbers for the same bars.
  createEffect(on(model, (now) => {
    const begin = readTime(state.at);
    setPicked(null);
    if (!now || begin === null) return;
    let best: Picked | null = null;
    let length = Infinity;
    now.lanes.forEach((lane, at) => {
      if (state.thread.length > 0 && !state.thread.includes(String(lane.lane.tid))) return;
      const bars = lane.lane.bars;
      bars.start.forEach((start, bar) => {
        const wide = bars.end[bar]! - start;
        if (start === begin && bars.count[bar] === 1 && (best === null || wide > length)) { best = { lane: at, bar }; length = wide; }
      });
    });
    setPicked(best);
  }));
  const barOf = (at: Picked | null) => {
    const now = model();
    const lane = at && now?.lanes[at.lane];
    if (!now || !lane || !at) return null;
    const bars = lane.lane.bars;
    const fn = now.answer.functions[bars.function[at.bar]!];
    if (!fn) return null;
    return {
      name: fn.name, key: fn.key, module: now.answer.modules[fn.module]?.name ?? "", tid: lane.lane.tid, thread: lane.lane.name, start: bars.start[at.bar]!, end: bars.end[at.bar]!,
      count: bars.count[at.bar]!, state: bars.state[at.bar]!, depth: bars.depth[at.bar]!,
    };
  };
  const show = (stretch: Stretch) => {
    const all = stretch.from <= bounds().from && stretch.to >= bounds().to;
    go({ span: all ? "" : text({ from: Math.max(0, stretch.from), to: Math.min(bounds().to, stretch.to) }) }, true);
  };
  const pick = (at: Picked | null) => {
    setPicked(at);
    const bar = barOf(at);
    if (bar) learnNames([["function", bar.key, bar.name]]);
    go({ at: bar && bar.count === 1 ? String(bar.start) : "" }, true);
  };
  const zoomTo = (at: Picked) => {
    const bar = barOf(at);
    if (!bar) return;
    const room = Math.max(20, (bar.end - bar.start) * 0.1);
    show({ from: bar.start - room, to: bar.end + room });
  };
  const brush = (): Stretch | null => (state.time ? { from: state.time[0] ?? 0, to: state.time[1] ?? bounds().to } : null);
  let handle: { canvas: HTMLCanvasElement; look(): CallsLook } | null = null;
  const threads = () => [...new Map(loadedTrace()!.threads.map((thread) => [thread.tid, thread])).values()];
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Timeline of calls">
        <Show when={threads().length > 1}>
          <select aria-label="Thread" onChange={(event) => go({ thread: event.currentTarget.value ? [event.currentTarget.value] : [] })}>
            <option value="" selected={state.thread.length === 0}>All {count(threads().length)} threads</option>
            {threads().slice(0, 500).map((thread) => <option value={thread.tid} selected={state.thread.length === 1 && state.thread[0] === String(thread.tid)}>{visible(nameOf("thread", String(thread.tid))).slice(0, 80)}</option>)}
          </select>
        </Show>
        <button disabled={!picked()} onClick={() => zoomTo(picked()!)}>Zoom to call</button>
        <button disabled={!brush()} onClick={() => show(brush()!)}>Zoom to selection</button>
        <button disabled={state.span === ""} onClick={() => show(bounds())}>Show all</button>
        <Show when={(question.answer()?.total_lanes ?? 0) > lanes()}><button onClick={() => setLanes(lanes() + 3 * LANES)}>More threads</button></Show>
        <span class="note">{duration(Math.round(shown().to - shown().from))}{(question.answer()?.total_lanes ?? 0) > lanes() ? ` · ${count(lanes())} of ${count(question.answer()!.total_lanes)} threads` : ""}{profileBeside() ? ` · samples of ${visible(profileBeside()!.label)} below` : ""}</span>
        <span class="space" />
        <span class="note">Drag: select · Ctrl+wheel: zoom · Shift+wheel: move</span>
        <Menu label="Save">
          <button onClick={() => { const now = model(); if (handle && now) saveText("dioptra-call-timeline.svg", callsSvg(now, handle.look()), "image/svg+xml"); }}>SVG picture</button>
          <button onClick={() => handle && savePng("dioptra-call-timeline.png", handle.canvas)}>PNG picture</button>
          <button onClick={() => saveText("dioptra-call-timeline.json", JSON.stringify(question.answer()), "application/json")}>JSON, shown bars</button>
        </Menu>
      </div>
      <div class="fill" aria-busy={question.busy() || samples.busy()}>
        <Show when={question.error()}>{(error) => <Wrong error={error()} />}</Show>
        <Show when={model()}>
          {(now) => (
            <Show when={now().lanes.length > 0} fallback={<div class="message">The selection has no calls.</div>}>
              <CallsCanvas
                model={now()} shown={shown()} bounds={bounds()} brush={brush()} picked={picked()} onZoom={show} onPick={pick} onOpen={zoomTo}
                onBrush={(stretch) => go({ time: stretch ? [Math.floor(stretch.from), Math.ceil(stretch.to)] : null })}
                onHover={(at, time, x, y) => setHover(at ? { picked: at, time, x, y } : null)} onReady={(ready) => { handle = ready; }}
              />
            </Show>
          )}
        </Show>
      </div>
      <Show when={barOf(picked())}>
        {(bar) => (
          <Show when={bar().count === 1} fallback={<div class="actions" role="toolbar" aria-label="Calls"><span class="mono name">{count(bar().count)} calls, the longest of {fold(bar().name)}</span><span class="space" /><button onClick={() => zoomTo(picked()!)}>Zoom to single calls</button></div>}>
            <CallActions name={bar().name} key={bar().key} call={{ tid: bar().tid, begin: bar().start, end: bar().end }} ended={(bar().state & GOES_ON) === 0} here="calls" />
          </Show>
        )}
      </Show>
      <Show when={hover() && barOf(hover()!.picked)}>
        {(bar) => (
          <div class="tooltip" style={{ left: `${Math.max(4, Math.min(hover()!.x + 12, innerWidth - 420))}px`, top: `${Math.min(hover()!.y + 16, innerHeight - 120)}px` }}>
            <div class="title">{bar().count > 1 ? `${count(bar().count)} calls, the longest: ` : ""}{visible(bar().name).slice(0, 1200)}</div>
            <div class="dim">{visible(bar().module)} · {visible(bar().thread)} ({bar().tid}) · level {bar().depth + 1}</div>
            <table><tbody>
              <tr><td>{bar().count > 1 ? "from first to last" : "duration"}</td><td class="value">{duration(bar().end - bar().start)}{(bar().state & GOES_ON) !== 0 ? " or longer" : ""}</td></tr>
              <tr><td>began</td><td class="value">{(bar().state & BEGAN_BEFORE) !== 0 ? "before the records" : duration(bar().start)}</td></tr>
            </tbody></table>
          </div>
        )}
      </Show>
    </>
  );
}
