// Lines and instructions of a function as files.

import { address } from "../format";
import { csv, saveText } from "../save";
import type { FunctionModel } from "./model";

/** Saves what the panes show, in full precision. */
export function saveFunction(model: FunctionModel, what: "lines" | "instructions" | "all", format: "csv" | "json"): void {
  const { answer } = model;
  if (format === "json") { saveText("dioptra-function.json", JSON.stringify(answer), "application/json"); return; }
  const measures = answer.events.flatMap((event) => [`samples[${event.key}]`, `weight[${event.key}]`]);
  if (what === "lines") {
    const rows = answer.lines.map((line) => [
      answer.files[line.file]?.path ?? "", line.line, ...answer.events.flatMap((_, e) => [line.samples[e]!, line.weight[e]!]),
    ]);
    saveText("dioptra-lines.csv", csv([["file", "line", ...measures], ...rows]), "text/csv");
    return;
  }
  const { instructions } = answer;
  const rows = instructions.address.map((_, at) => [
    `0x${address(instructions.virtual_address[at] ?? 0)}`, instructions.text[at] ?? "", instructions.block[at] ?? -1,
    ...answer.events.flatMap((_, e) => [instructions.samples[e]![at]!, instructions.weight[e]![at]!]),
  ]);
  saveText("dioptra-instructions.csv", csv([["virtual_address", "instruction", "block", ...measures], ...rows]), "text/csv");
}
