import { Show } from "solid-js";
import { errorInUnit, inFull, inUnit } from "../format";
import { visible } from "../names";
import type { ShownColumn } from "./columns";
import type { ShownRow } from "./model";

const NOTES: Record<string, string> = {
  few_samples: "rests on few samples",
  unreliable: "unreliable: the function runs shorter than windows, so that others' work is counted, too",
  within_chance: "no larger than chance makes it: below 1.96 standard errors",
  partial: "some of its inputs are missing",
  holds_interrupts: "includes the time of the profiler's interrupts",
};

/** Notes whose numbers are grey. */
const GREY = ["few_samples", "unreliable", "within_chance"];

/** A number in its unit, with a bar behind shares, its standard error on request, and grey if it rests on few samples. */
export function NumberCell(props: { column: ShownColumn; row: ShownRow; errors: boolean }) {
  const value = () => props.row.cells[props.column.at] ?? null;
  const error = () => props.row.errors?.[props.column.id];
  const note = () => props.row.notes?.[props.column.id];
  // The change of a sum is in percent and no share of anything.
  const isShare = () => props.column.measure === "percent" && props.column.unit === "percent" && !/_change\b/.test(props.column.id);
  const hint = () => {
    const now = value();
    if (now === null) return note() ?? "";
    const parts = [typeof now === "number" ? inFull(now, props.column.unit) : visible(now)];
    const plusMinus = error();
    if (plusMinus !== undefined) parts.push(`± ${inFull(Number(plusMinus.toPrecision(3)), props.column.unit)}`);
    const noted = note();
    if (noted !== undefined) parts.push(`– ${NOTES[noted] ?? noted}`);
    return parts.join(" ");
  };
  return (
    <div
      class="cell number" role="gridcell" title={hint()}
      classList={{ few: GREY.includes(note() ?? ""), share: isShare(), zero: value() === 0 }}
      style={{ "--bar": isShare() && typeof value() === "number" ? `${Math.max(0, Math.min(100, value() as number))}%` : "0%" }}
    >
      <Show when={value() !== null} fallback={<span class="missing">–</span>}>
        {typeof value() === "number" ? inUnit(value() as number, props.column.unit) : visible(String(value()))}
        <Show when={props.errors && error() !== undefined && value() !== 0}>
          <span class="error"> ±{errorInUnit(error()!, props.column.unit)}</span>
        </Show>
      </Show>
    </div>
  );
}
