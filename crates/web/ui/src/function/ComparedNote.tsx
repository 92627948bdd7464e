// What a pane of a function cannot compare with the other profile, and why.

import { Show } from "solid-js";
import { count, plural } from "../format";
import { visible } from "../names";
import type { FunctionAnswer } from "../net/types";
import { status } from "../state/profile";

export function ComparedNote(props: { answer: FunctionAnswer; instructions?: boolean }) {
  const label = () => visible(status()?.profiles[props.answer.other?.profile ?? -1]?.label ?? "the other profile");
  const text = () => {
    const other = props.answer.other;
    if (!other) return "";
    if (other.functions === 0) return props.instructions ? "" : `${label()} has no samples of this function.`;
    if (props.instructions) return other.instructions_why ? `Instructions are not compared with ${label()}: ${visible(other.instructions_why)}.` : "";
    const only = other.lines.only_there_samples;
    const parts = props.answer.events.flatMap((event, e) => ((only[e] ?? 0) > 0 ? [`${count(only[e]!)} of ${plural(other.events[e]?.own.samples ?? 0, "sample")} of ${visible(event.name)}`] : []));
    const build = props.answer.facts.some((fact) => fact.id === "lines_matched_by_number") ? ` ${label()} is of another build: lines are matched by file and number, so that lines of changed source are other lines.` : "";
    return `${parts.length > 0 ? `${parts.join(", ")} there are at lines that only ${label()} has.` : ""}${build}`.trim();
  };
  return <Show when={text()}><p class="pane-note">{text()}</p></Show>;
}
