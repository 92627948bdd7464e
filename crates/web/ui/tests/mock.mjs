// A server with made-up answers in the shape of API.md: 200,000 functions, deep stacks, hostile names. It lets the page's
// tests run without a recording, and with sizes and names that few recordings have.
//
//   node tests/mock.mjs [PORT]     prints the address to open

import { answers as traceAnswers, slotAt as traceSlotAt } from "./mock-traces.mjs";
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { functionAnswer, sourceAnswer } from "./mock-function.mjs";
import { codeRows, flameMetrics, functionBeside, tableBeside, timelineBeside } from "./mock-compared.mjs";
import { heatmapAnswer, KINDS, offCpu, lostSamples, nodeAtPath } from "./mock-time.mjs";
import { diffTable, flameOther, metricsTable, profileParts } from "./mock-metrics.mjs";

const DIST = fileURLToPath(new URL("../dist/", import.meta.url));
export const TOKEN = "mock-token";
const FUNCTIONS = Number(process.env.FUNCTIONS ?? 200_000);
const EVENTS = [
  { key: "cpu-clock", name: "cpu-clock", unit: "ns", period: 250_000 },
  { key: "page-faults", name: "page-faults", unit: "events", period: 37 },
];
export const HOSTILE = [
  "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "a\u202egnitset\u0000\u001b[31m", `long_${"x".repeat(3900)}_end`, "\u{1F980}::名前<\u00e9>", "",
];

let seed = 1;
function random() {
  seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
  return seed / 2 ** 32;
}

const modules = ["app", "libstdc++.so.6", "libc.so.6", "[kernel.kallsyms]", "libpython3.11.so.1.0", "ld-linux-x86-64.so.2", "<b>lib</b>.so"].map((name, at) => ({ key: `m${at}`, name }));
const processes = ["server", "worker", "bash", "<i>proc</i>"].flatMap((name, at) => Array.from({ length: at === 1 ? 40 : 2 }, (_, n) => ({ key: String(1000 + at * 100 + n), name, share: 1 / (1 + at + n) })));
const TEMPLATES = ["std::vector<std::pair<int, std::string>, std::allocator<std::pair<int, std::string> > >::push_back", "core::iter::adapters::map::Map<I,F> as core::iter::Iterator>::next", "parse_line", "operator<<", "malloc", "json::Value::find<char const*>(char const* const&) const"];

const functions = Array.from({ length: FUNCTIONS }, (_, at) => {
  const hostile = at >= 5 && at < 5 + HOSTILE.length ? HOSTILE[at - 5] : null;
  const name = hostile ?? (at < 5 ? TEMPLATES[at] : `${TEMPLATES[at % TEMPLATES.length]}_${at}`);
  const samples = Math.max(at < 4000 ? 1 : 0, Math.floor(90_000 / (at + 3) ** 1.1));
  return { key: `m${at % 7}@${at.toString(16)}`, name, module: modules[at % 7], samples: [samples, at % 3 === 0 ? Math.floor(samples / 7) : 0] };
});
const totals = EVENTS.map((_, e) => functions.reduce((sum, each) => sum + each.samples[e], 0));

function measureColumns(withTotal) {
  return EVENTS.flatMap(({ key, unit }) => [
    ...(withTotal ? [{ id: `total_percent[${key}]`, name: "total", unit: "percent", kind: "ratio", event: key, parent: null, for_programs: false }] : []),
    { id: `self_percent[${key}]`, name: "self", unit: "percent", kind: "ratio", event: key, parent: null, for_programs: false },
    { id: `samples[${key}]`, name: "samples", unit: "samples", kind: "count", event: key, parent: null, for_programs: false },
    { id: `weight[${key}]`, name: unit === "ns" ? "time" : "events", unit, kind: "weight", event: key, parent: null, for_programs: false },
  ]);
}
const text = (id, forPrograms = false) => ({ id, name: id.replace("_", " "), unit: null, kind: "name", event: null, parent: null, for_programs: forPrograms });

function measureCells(samples, withTotal) {
  return EVENTS.flatMap(({ period }, e) => {
    const percent = (100 * samples[e]) / totals[e];
    return [...(withTotal ? [Math.min(100, percent * 1.4)] : []), percent, samples[e], samples[e] * period];
  });
}

function table(query) {
  if (query.get("of") === "metrics") return metricsTable(query, functions);
  if (query.get("of") === "diff") return diffTable(query, functions);
  const by = query.get("by").split(",");
  const children = query.get("children") === "1";
  const from = Number(query.get("from") ?? 0);
  const count = Number(query.get("count") ?? 200);
  const kinds = { module: modules.map((m, at) => ({ ...m, samples: totals.map((t) => Math.floor(t / (at + 2) ** 1.3)) })), function: functions };
  let columns, things, below = null;
  if (by.length === 1) {
    columns = [...measureColumns(children), ...(by[0] === "function" ? [text("module"), text("function"), text("module_id", true)] : [text(by[0])])];
    things = kinds[by[0]] ?? processes.map((p) => ({ ...p, samples: totals.map((t) => Math.floor((t * p.share) / 9)) }));
  } else {
    columns = [...measureColumns(false), text("pid", true), text("process"), text("module"), text("name")];
    below = query.get("below");
    const under = below === null ? null : processes[Math.floor(Number(below) / 10)];
    things = under ? modules.map((m, at) => ({ ...m, under, samples: totals.map((t) => Math.floor((t * under.share) / 9 / (at + 2))) }))
      : processes.map((p) => ({ ...p, samples: totals.map((t) => Math.floor((t * p.share) / 9)) }));
  }
  const isFunction = by[0] === "function" && by.length === 1;
  const total = things.length;
  for (const [parameter, keyOf] of [["module", (each) => each.module?.key], ["function", (each) => each.key]]) {
    const wanted = query.getAll(parameter);
    if (isFunction && wanted.length) things = things.filter((each) => wanted.includes(keyOf(each)));
  }
  const filter = query.get("filter");
  if (filter) {
    let test = (name) => name.toLowerCase().includes(filter.toLowerCase());
    if (query.get("regex") === "1") {
      try { const pattern = new RegExp(filter, "i"); test = (name) => pattern.test(name); } catch (error) { return { status: 400, body: { error: { code: "bad_pattern", text: String(error.message), remedy: null } } }; }
    }
    things = things.filter((each) => test(each.name));
  }
  const sort = /^(.*?)(?::(asc|desc))?$/.exec(query.get("sort") || "");
  const sorted_by = sort?.[1] ? { column: sort[1], direction: sort[2] ?? "desc" } : { column: columns[0].id, direction: "desc" };
  if (sort?.[1]) {
    const event = EVENTS.findIndex(({ key }) => sort[1].includes(`[${key}]`));
    const value = event < 0 ? (each) => (sort[1] === "module" ? each.module?.name : each.name) : (each) => each.samples[event];
    const sign = sort[2] === "asc" ? 1 : -1;
    things = [...things].sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
  }
  const sums = EVENTS.map((_, e) => things.reduce((sum, each) => sum + each.samples[e], 0));
  const withTotal = by.length === 1 && children;
  const sumCells = measureCells(sums, withTotal).map((cell, at) => (columns[at].name === "total" ? null : cell));
  const rows = things.slice(from, from + count).map((each, at) => {
    const { samples } = each;
    const key = isFunction ? { function: each.key, module: each.module.key } : each.under ? { [by[0]]: each.under.key, module: each.key } : { [by[0]]: each.key };
    const names = isFunction ? [each.module.name, each.name, "x"] : by.length === 1 ? [each.name] : each.under ? [1, null, null, each.name] : [1, each.name, null, `${each.name} (${each.key})`];
    const errors = EVENTS.flatMap(({ key, period }, e) => [[`self_percent[${key}]`, (100 * Math.sqrt(samples[e])) / totals[e]], [`samples[${key}]`, Math.sqrt(samples[e])], [`weight[${key}]`, Math.sqrt(samples[e]) * period]]);
    return {
      id: each.under ? Number(below) + at + 1 : by.length > 1 ? processes.findIndex((p) => p.key === each.key) * 10 : from + at, parent: each.under ? Number(below) : null, depth: each.under ? 1 : 0,
      below: by.length > 1 && !each.under ? modules.length : 0, key, cells: [...measureCells(samples, withTotal), ...names],
      notes: Object.fromEntries(EVENTS.filter((_, e) => samples[e] > 0 && samples[e] < 10).map(({ key }) => [`self_percent[${key}]`, "few_samples"])),
      ...(query.get("errors") === "1" ? { standard_errors: Object.fromEntries(errors) } : {}),
    };
  });
  return { schema: 1, profile: 0, generation: 1, columns, rows, from, total_rows: total, matching_rows: things.length, totals: [...sumCells, ...columns.slice(sumCells.length).map(() => null)], sorted_by, facts: [] };
}

function flame(query) {
  const inverted = query.get("direction") === "callers";
  const focus = query.get("focus");
  const most = Number(query.get("count") ?? 50_000);
  seed = inverted ? 7 : focus ? 11 : 5;
  const nodes = { id: [], parent: [], function: [], below: [], own: [[], []], total: [[], []], own_samples: [[], []], total_samples: [[], []] };
  const first = focus ? functions.findIndex((each) => each.key === focus) : -1;
  const grow = (parent, depth, weight, name) => {
    if (nodes.id.length >= most) return;
    const at = nodes.id.length;
    nodes.id.push(at); nodes.parent.push(parent); nodes.function.push(name); nodes.below.push(0);
    for (let e = 0; e < 2; e++) {
      nodes.total[e].push(Math.round(weight * (e ? 0.3 : 1)) * EVENTS[e].period); nodes.total_samples[e].push(Math.round(weight * (e ? 0.3 : 1)));
      nodes.own[e].push(0); nodes.own_samples[e].push(0);
    }
    const children = depth > 60 ? 0 : weight < 3 ? 0 : depth < 4 ? 1 + Math.floor(random() * 3) : Math.floor(random() * 4);
    let left = weight * (children === 0 ? 0 : 0.75 + 0.24 * random());
    for (let child = 0; child < children; child++) {
      const part = child === children - 1 ? left : left * (0.4 + 0.5 * random());
      if (part < 1) break;
      left -= part;
      nodes.below[at] += 1;
      grow(at, depth + 1, part, Math.floor(random() * 900));
    }
  };
  if (first >= 0) grow(-1, 0, 40_000, first);
  else for (let top = 0; top < 4; top++) grow(-1, 0, 40_000 / (top + 1), top);
  const sums = EVENTS.map((_, e) => nodes.total[e].reduce((sum, each, at) => sum + (nodes.parent[at] < 0 ? each : 0), 0));
  for (let at = nodes.id.length - 1; at >= 0; at--) for (let e = 0; e < 2; e++) {
    nodes.own[e][at] += nodes.total[e][at];
    if (nodes.parent[at] >= 0) nodes.own[e][nodes.parent[at]] -= nodes.total[e][at];
    nodes.own_samples[e][at] = Math.round(nodes.own[e][at] / EVENTS[e].period);
  }
  const root = query.get("root") ?? nodeAtPath(nodes, query.getAll("path"), functions);
  const levels = Number(query.get("levels") ?? 1e9);
  if (root !== null || levels < 1e9) {
    // Keeps the root with its levels, or the top levels; positions change, so indices are written anew.
    const depth = [], place = [];
    const kept = { id: [], parent: [], function: [], below: [], own: [[], []], total: [[], []], own_samples: [[], []], total_samples: [[], []] };
    for (let at = 0; at < nodes.id.length; at++) {
      const up = nodes.parent[at];
      const isTop = root === null ? up < 0 : at === Number(root);
      depth[at] = isTop ? (root === null ? 1 : 0) : up >= 0 && depth[up] >= 0 ? depth[up] + 1 : -1;
      if (depth[at] < 0 || depth[at] > levels) continue;
      place[at] = kept.id.length;
      kept.id.push(at); kept.parent.push(isTop ? -1 : place[up]); kept.function.push(nodes.function[at]); kept.below.push(nodes.below[at]);
      for (const list of ["own", "total", "own_samples", "total_samples"]) for (let e = 0; e < 2; e++) kept[list][e].push(nodes[list][e][at]);
    }
    Object.assign(nodes, kept);
  }
  return {
    profile: 0, generation: 1, direction: inverted ? "callers" : "callees",
    events: EVENTS.map(({ key, name, unit, period }, e) => ({ key, name, unit, samples: Math.round(sums[e] / period), weight: sums[e] })),
    functions: functions.slice(0, 900).map(({ key, name, module }, at) => ({ key, name, module: modules.indexOf(module), inlined: at % 9 === 0 })), modules: modules.map((module, at) => ({ ...module, kind: KINDS[at] })), ...lostSamples(query, EVENTS), above: [], nodes, left_out: { nodes: 0, weight: 0 }, total_nodes: nodes.id.length, facts: [],
  };
}

function timeline(query) {
  const bins = Number(query.get("bins") ?? 500);
  const [from, to] = (query.get("span") || query.get("time") || "..").split("..");
  const start = Number(from || 0), end = Number(to || 8e9);
  const one = query.get("rows") === "all";
  const rows = (one ? [{ key: "all", name: "all" }] : query.get("rows") === "cpu" ? Array.from({ length: 8 }, (_, at) => ({ key: String(at), name: `CPU ${at}` })) : processes).map((each, at) => {
    const values = Array.from({ length: bins }, (_, bin) => { const t = start + ((end - start) * bin) / bins; return Math.max(0, Math.round(20 * Math.sin(t / 4e8 + at) * Math.sin(t / 7e7) + (one ? 60 : 8 - at))); });
    return { key: one ? {} : { [query.get("rows") === "cpu" ? "cpu" : "thread"]: each.key }, name: each.name, number: one ? null : Number(each.key), process_name: each.name, samples: values.reduce((a, b) => a + b, 0), weight: 0, first_ns: 0, last_ns: 8e9, values, ...offCpu(at, one, values) };
  });
  return { profile: 0, generation: 1, event: EVENTS[0], start_ns: start, end_ns: end, bin_ns: (end - start) / bins, bins, rows, total_rows: rows.length, peak: Math.max(...rows.flatMap((row) => row.values)), untimed: 0, facts: [] };
}

const profile = {
  ...profileParts,
  profile: 0, generation: 1, label: "mock.data", path: "/home/me/<b>mock</b>.data", size_bytes: 123_456_789,
  machine: { hostname: "host", os_release: "6.1.0", arch: "x86_64", cpu: "Made-up CPU", cpus_online: 8, memory_kib: 16_000_000 },
  command_line: ["dioptra", "record", "-g", "--", "server"], recorder: "dioptra", duration_ns: 8e9, first_time_ns: 1e12,
  events: EVENTS.map(({ key, name, unit, period }, e) => ({ key, name, unit, samples: totals[e], weight: totals[e] * period, has_chains: true, is_scaled: false, sampled: true })),
  default_events: ["cpu-clock"], has: { chains: true, times: true, cpus: true, threads: true, branches: false, memory: false, windows: false },
  counts: { processes: processes.length, threads: processes.length, modules: modules.length, functions: FUNCTIONS, cpus: 8 },
  facts: [{ id: "lost", severity: "loss", text: "12 samples were lost. Record with a larger -m.", value: 12 }, { id: "x", severity: "info", text: "<b>bold</b> text from a file", value: null }],
};
const status = { version: "0.1.0", revision: 1, profiles: [{ index: 0, label: "mock.data", path: "/home/me/mock.data", generation: 1, state: "ready", progress: null, elapsed_ms: 3, error: null }] };
status.profiles.push({ ...status.profiles[0], index: 1, label: "after.data" });

const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
for (const each of status.profiles) each.kind = "profile";
status.profiles.push(traceSlotAt(status.profiles.length));
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };

/** What `with` adds to an answer that is no error. */
const beside = (query, answer, add) => (query.get("with") && !answer.body ? add(answer, query) : answer);
const tableOf = (query) => { const answer = codeRows(query, table); return query.get("of") ? answer : beside(query, answer, tableBeside); };
function flameOf(query) {
  const answer = beside(query, flame(query), (answer) => ({ ...answer, other: flameOther(answer) }));
  return query.has("metric") ? flameMetrics(answer, query.getAll("metric")) : answer;
}

export const mock = createServer(async (request, response) => {
  const address = new URL(request.url, "http://127.0.0.1");
  const query = address.searchParams;
  const send = (statusCode, type, body) => response.writeHead(statusCode, { "content-type": type, "content-security-policy": CSP }).end(body);
  if (!address.pathname.startsWith("/api/")) {
    const file = address.pathname === "/" ? "index.html" : address.pathname.slice(1);
    try { send(200, TYPES[file.split(".").pop()] ?? "text/plain", readFileSync(DIST + file.replaceAll("/", ""))); } catch { send(404, "text/plain", "not here"); }
    return;
  }
  if (request.headers["x-dioptra-token"] !== TOKEN) { send(401, TYPES.json, JSON.stringify({ error: { code: "no_token", text: "The token is missing or wrong.", remedy: "Open the printed address." } })); return; }
  const ofTrace = traceAnswers[address.pathname.slice(5)]?.(query);
  if (ofTrace) { send(ofTrace.status ?? 200, "application/json", JSON.stringify(ofTrace.body ?? ofTrace)); return; }
  if (address.pathname === "/api/status" && query.has("wait")) { setTimeout(() => send(200, "application/json", JSON.stringify(status)), 20_000).unref(); return; }
  const answers = { status: () => status, profile: () => ({ ...profile, profile: Number(query.get("profile") ?? 0) }), table: () => tableOf(query), flame: () => flameOf(query), timeline: () => beside(query, timeline(query), timelineBeside), heatmap: () => heatmapAnswer(query, EVENTS), function: () => beside(query, functionAnswer(query, functions, EVENTS), functionBeside), source: () => sourceAnswer(query), export: () => tableOf(query) };
  const answer = answers[address.pathname.slice(5)]?.() ?? { status: 404, body: { error: { code: "no_such_endpoint", text: "no such endpoint", remedy: null } } };
  send(answer.status ?? 200, "application/json", JSON.stringify(answer.body ?? answer));
});

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  mock.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => console.log(`http://127.0.0.1:${mock.address().port}/?token=${TOKEN}`));
}
