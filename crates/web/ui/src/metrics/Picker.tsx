// Choosing metrics: those that the recorded events make.

import { For, Show } from "solid-js";
import { visible } from "../names";
import { loaded } from "../state/profile";
import { go, state } from "../state/url";
import { Menu } from "../table/Tools";

/** The metrics that requests name: those of the address, or else the server's default. */
export function shownMetrics(): string[] {
  if (state.metric.includes("none")) return [];
  return state.metric.length > 0 ? [...state.metric] : [...(loaded()?.default_metrics ?? [])];
}

/** Rows that metrics of windows are of: a window belongs to one function, and so to one of each of these. */
const WINDOW_ROWS = ["function", "line", "module", "thread", "process"];

/** The metrics beside the samples of rows. Those of windows are of whole functions, and of one recording where rows show two. */
export function metricsBeside(rows: string, isCompared: boolean): string[] {
  const hasWindows = loaded()?.has.windows === true;
  return hasWindows && (!WINDOW_ROWS.includes(rows) || state.inlined || isCompared) ? [] : shownMetrics();
}

/** A menu of metrics. `always` says that the table shows metrics even if none is chosen. */
export function MetricPicker(props: { always: boolean }) {
  const offered = () => loaded()?.metrics ?? [];
  const chosen = () => shownMetrics();
  const toggle = (name: string) => {
    const next = chosen().includes(name) ? chosen().filter((each) => each !== name) : [...chosen(), name];
    const isDefault = JSON.stringify(next) === JSON.stringify(loaded()?.default_metrics ?? []);
    go({ metric: isDefault ? [] : next.length === 0 ? (props.always ? [] : ["none"]) : next });
  };
  const others = () => chosen().filter((name) => offered().every((metric) => metric.name !== name));
  return (
    <Menu label="Metrics" title="Columns that are computed from the events">
      <div class="picker-list">
        <Show when={offered().length === 0 && others().length === 0}><p class="note">The recorded events make no metric. Record with dioptra record --metrics generic.</p></Show>
        <Show when={!props.always && loaded()?.has.windows}><p class="note">This recording has windows. Their metrics are of rows of one kind; the Metrics view shows their intervals.</p></Show>
        <Show when={props.always && chosen().length === 0}><p class="note">All of the generic set are shown.</p></Show>
        <For each={others()}>{(name) => <label><input type="checkbox" checked onChange={() => toggle(name)} /> {visible(name)}</label>}</For>
        <For each={offered()}>
          {(metric) => (
            <label class={`deep-${Math.min(2, metric.depth)}`} title={visible(metric.description)}>
              <input type="checkbox" checked={chosen().includes(metric.name)} onChange={() => toggle(metric.name)} /> {visible(metric.title)} <span class="dim">{visible(metric.set)}</span>
            </label>
          )}
        </For>
      </div>
    </Menu>
  );
}
