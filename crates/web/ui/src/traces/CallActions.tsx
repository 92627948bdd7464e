// What can be done with one call: the ways to other views of it.

import { type JSX, Show } from "solid-js";
import { duration } from "../format";
import { fold, visible } from "../names";
import { go } from "../state/url";
import { type CallPlace, profileBeside, selectTime, showInReplay, showInTimeline, showSamples } from "./state";

interface ActionsProps {
  /** The function's name and key. */
  name: string;
  key: string;
  call: CallPlace;
  /** Whether the call's end, and so its duration, is known. */
  ended: boolean;
  /** The view that shows the call already. */
  here: "calls" | "replay" | "statistics";
  children?: JSX.Element;
}

export function CallActions(props: ActionsProps) {
  return (
    <div class="actions" role="toolbar" aria-label="Call">
      <span class="mono name" title={visible(props.name).slice(0, 4000)}>{fold(props.name)}</span>
      <span class="note">{props.ended ? duration(props.call.end - props.call.begin) : `${duration(props.call.end - props.call.begin)} or longer`} at {duration(props.call.begin)}</span>
      <span class="space" />
      {props.children}
      <Show when={props.here !== "calls"}><button onClick={() => showInTimeline(props.call)}>Timeline</button></Show>
      <Show when={props.here !== "replay"}><button onClick={() => showInReplay(props.call)}>Replay</button></Show>
      <button onClick={() => selectTime(props.call)} title="Count only calls in its time and thread, in every view">Only its time</button>
      <Show when={props.here !== "statistics"}><button onClick={() => go({ view: "statistics", open: props.key })} title="The function's slowest calls">Slowest calls</button></Show>
      <Show when={profileBeside()}>
        {(other) => <button onClick={() => void showSamples(props.call)} title={`The samples of ${visible(other().label)} in its time and thread`}>Samples of this call</button>}
      </Show>
    </div>
  );
}
