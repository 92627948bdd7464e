// Requests as values: parameters, how they are written, and errors.

import type { ErrorBody } from "./types";

/** A parameter's value; a list repeats the parameter, and null, false and "" leave it out. */
export type Value = string | number | boolean | null | undefined | readonly (string | number)[];
export type Parameters = Record<string, Value>;

/** An answer that is not 200, or a server that does not answer. */
export class RequestError extends Error {
  readonly code: string;
  readonly remedy: string | null;
  constructor(body: ErrorBody) {
    super(body.text);
    this.code = body.code;
    this.remedy = body.remedy;
  }
}

/** Writes parameters as a query, in a fixed order so that equal requests are equal texts. */
export function query(parameters: Parameters): string {
  const out = new URLSearchParams();
  for (const name of Object.keys(parameters).sort()) {
    const value = parameters[name];
    if (Array.isArray(value)) for (const each of value) out.append(name, String(each));
    else if (value === true) out.append(name, "1");
    else if (value !== null && value !== undefined && value !== false && value !== "") out.append(name, String(value));
  }
  return out.toString();
}
