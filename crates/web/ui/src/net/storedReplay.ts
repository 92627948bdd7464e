// Parts of a stored replay, as the server cuts them from the whole one.

import { type Parameters, RequestError } from "./request";
import type { ReplayAnswer, ReplayFindAnswer } from "./types";

/** A part of a replay of which a report may store only the first rows. */
export interface StoredReplay extends ReplayAnswer {
  /** The number of rows that the trace has. */
  whole_rows: number;
}

/** The rows that a request asks for, of the stored ones. */
export function cutReplay(whole: ReplayAnswer, parameters: Parameters): StoredReplay {
  const { rows } = whole;
  const at = parameters.at === undefined || parameters.at === null ? null : Number(parameters.at);
  const found = at === null ? -1 : rows.findIndex((row) => row.time_ns >= at);
  const at_row = at === null ? null : found < 0 ? rows.length : found;
  const from = Math.min(rows.length, Number(parameters.from ?? at_row ?? 0));
  return { ...whole, rows: rows.slice(from, from + Number(parameters.count ?? 200)), from, at_row, total_rows: rows.length, counted: true, whole_rows: whole.total_rows };
}

/** The first stored row from `from` on at which a call begins whose name matches. */
export function findCall(whole: ReplayAnswer, { text, regex, from }: Parameters): ReplayFindAnswer {
  const wanted = String(text ?? "");
  let matches = (name: string) => name.toLowerCase().includes(wanted.toLowerCase());
  if (regex === true) {
    try {
      const pattern = new RegExp(wanted, "u");
      matches = (name) => pattern.test(name);
    } catch (problem) {
      throw new RequestError({ code: "bad_pattern", text: problem instanceof Error ? problem.message : String(problem), remedy: null });
    }
  }
  const row = whole.rows.findIndex((each, at) => at >= Number(from ?? 0) && (each.kind === "call" || each.kind === "enter") && each.function !== null && matches(whole.functions[each.function]?.name ?? ""));
  return { row: row < 0 ? null : row };
}
