// The answers that a static report stores. The page asks for them as it asks a server. Sorting, filters, ranges and subtrees
// are applied here, to the rows and nodes that are stored.

import { type Parameters, query, RequestError } from "./request";
import { cutTimeline, cutTree, tableFile, tablePart } from "./parts";
import { cutReplay, findCall } from "./storedReplay";
import type { ErrorBody, FlameAnswer, ReplayAnswer, StoredReport, TableAnswer, TimelineAnswer } from "./types";

/** The element with the stored answers. */
const BLOCK = "dioptra-report";

/** By endpoint: the parameters that are applied here, which are not part of a stored request. */
const APPLIED: Record<string, readonly string[]> = {
  table: ["generation", "from", "count", "sort", "filter", "regex", "below", "levels", "errors"],
  flame: ["generation", "path", "levels", "least", "count"],
  timeline: ["generation", "bins", "span", "from", "count"],
  function: ["generation", "syntax"],
  source: ["from", "count"],
  "trace/table": ["generation", "from", "count", "sort", "filter", "regex"],
  "trace/graph": ["generation", "root", "levels", "least", "count"],
  "trace/timeline": ["generation", "span", "pixels", "from", "count"],
  "trace/replay": ["generation", "from", "count", "at", "preview"],
  "trace/slowest": ["generation", "count"],
};

/** Conditions on samples. */
const CONDITIONS = ["time", "process", "thread", "program", "comm", "cpu", "module", "function", "through"];
const MOST_KEPT = 16;

export class StoredAnswers {
  readonly about: StoredReport;
  /** Answers that were unpacked, the newest last. */
  private readonly unpacked = new Map<string, Promise<unknown>>();

  constructor(about: StoredReport) {
    this.about = about;
  }

  /** The stored answers of a document; null where a server answers. */
  static find(document: Document): StoredAnswers | null {
    const text = document.getElementById(BLOCK)?.textContent;
    return text ? new StoredAnswers(JSON.parse(text) as StoredReport) : null;
  }

  /** The answer to a request, or an error that says that it is not stored. */
  async answer<T>(path: string, parameters: Parameters, signal?: AbortSignal): Promise<T> {
    // A report never changes.
    if (path === "status" && parameters.wait !== undefined) return new Promise<T>(() => undefined);
    // Searches look through the rows that are stored.
    if (path === "trace/find") {
      const { text, regex, from, ...calls } = parameters;
      return findCall((await this.whole("trace/replay", calls)) as ReplayAnswer, { text, regex, from }) as T;
    }
    const whole = await this.whole(path, parameters);
    signal?.throwIfAborted();
    if (path === "table" || path === "trace/table") return tablePart(whole as TableAnswer, parameters) as T;
    if (path === "flame" || path === "trace/graph") return cutTree(whole as FlameAnswer, parameters) as T;
    if (path === "timeline") return cutTimeline(whole as TimelineAnswer, parameters) as T;
    if (path === "trace/replay") return cutReplay(whole as ReplayAnswer, parameters) as T;
    return whole as T;
  }

  /** All stored rows of a table as a file to save. */
  async file(path: string, parameters: Parameters): Promise<Blob> {
    const { format, ...rest } = parameters;
    const whole = (await this.whole(path.startsWith("trace/") ? "trace/table" : "table", rest)) as TableAnswer;
    const asked = { sort: rest.sort, errors: rest.errors, count: whole.rows.length };
    return tableFile(tablePart(whole, asked), format === "csv" ? "csv" : "json");
  }

  private async whole(path: string, parameters: Parameters): Promise<unknown> {
    const asked = Object.entries(parameters).filter(([name]) => !(APPLIED[path] ?? []).includes(name));
    const key = `${path}?${query(Object.fromEntries(asked))}`;
    const known = this.unpacked.get(key);
    this.unpacked.delete(key);
    const text = Object.hasOwn(this.about.answers, key) ? this.about.answers[key] : undefined;
    if (text === undefined) throw new RequestError(this.missing(path, parameters));
    const answer = known ?? unpack(text);
    this.unpacked.set(key, answer);
    if (this.unpacked.size > MOST_KEPT) for (const oldest of this.unpacked.keys()) { this.unpacked.delete(oldest); break; }
    const body = await answer;
    if (isError(body)) throw new RequestError(body.error);
    return body;
  }

  private missing(path: string, parameters: Parameters): ErrorBody {
    const code = "not_stored";
    if (path === "source" && !this.about.has_source) return { code, text: "The report was written without source text.", remedy: "Open the recording with dioptra web to see it." };
    const own = path === "function" ? CONDITIONS.filter((name) => name !== "function") : CONDITIONS;
    const isSelective = own.some((name) => { const value = parameters[name]; return Array.isArray(value) ? value.length > 0 : Boolean(value); });
    const remedy = isSelective ? "It holds all samples and some selections: clear the selection, or open the recording with dioptra web." : "Open the recording with dioptra web to see it.";
    return { code, text: "This is not in the report.", remedy };
  }
}

function isError(body: unknown): body is { error: ErrorBody } {
  return typeof body === "object" && body !== null && "error" in body;
}

async function unpack(text: string): Promise<unknown> {
  const bytes = Uint8Array.from(atob(text), (each) => each.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
