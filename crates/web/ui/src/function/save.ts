// Lines and instructions of a function as files.

import { address } from "../format";
import { csv, saveText } from "../save";
import type { FunctionModel } from "./model";

/** Saves what the panes show, in full precision. */
export function saveFunction(model: FunctionModel, what: "lines" | "instructions" | "all", format: "csv" | "json"): void {
  const { answer } = model;
  if (format === "json") { saveText("dioptra-function.json", JSON.stringify(answer), "application/json"); return; }
  const { other } = answer;
  const own = answer.events.flatMap((event) => [`samples[${event.key}]`, `weight[${event.key}]`]);
  const there = (compared: boolean) => (compared ? answer.events.flatMap((event) => [`b_samples[${event.key}]`, `b_weight[${event.key}]`]) : []);
  const countsThere = (lists: { samples: number[][]; weight: number[][] } | null | undefined, at: number) => (lists ? answer.events.flatMap((_, e) => [lists.samples[e]?.[at] ?? 0, lists.weight[e]?.[at] ?? 0]) : []);
  if (what === "lines") {
    const rows = answer.lines.map((line, at) => [
      answer.files[line.file]?.path ?? "", line.line, ...answer.events.flatMap((_, e) => [line.samples[e]!, line.weight[e]!]), ...countsThere(other?.lines, at),
    ]);
    saveText("dioptra-lines.csv", csv([["file", "line", ...own, ...there(other !== undefined)], ...rows]), "text/csv");
    return;
  }
  const { instructions } = answer;
  const rows = instructions.address.map((_, at) => [
    `0x${address(instructions.virtual_address[at] ?? 0)}`, instructions.text[at] ?? "", instructions.block[at] ?? -1,
    ...answer.events.flatMap((_, e) => [instructions.samples[e]![at]!, instructions.weight[e]![at]!]), ...countsThere(other?.instructions, at),
  ]);
  saveText("dioptra-instructions.csv", csv([["virtual_address", "instruction", "block", ...own, ...there(Boolean(other?.instructions))], ...rows]), "text/csv");
}
