// Made-up answers about a trace: deep calls, threads, hostile names, and more rows than a browser scrolls.

import { HOSTILE } from "./mock.mjs";

const DURATION = 2_000_000;
const ROWS = 1_200_000;
const names = () => ["main", "parse", "std::vector<int, std::allocator<int> >::push_back(int const&)", "malloc", "linux:schedule", ...HOSTILE];
const modules = [{ key: "m0", name: "app" }, { key: "m1", name: "<b>lib</b>.so" }, { key: "k", name: "[kernel]" }];
const functions = () => names().map((name, at) => ({ key: `m${at % 2}@${at.toString(16)}`, name, module: at === 4 ? 2 : at % 2, inlined: false }));
const threads = [7, 8, 9].map((tid, at) => ({ key: { process: "7", thread: String(tid) }, name: ["main", "<i>worker</i>", "worker"][at], tid, pid: 7, bytes: 1000, lost: 0 }));
const HEAD = { profile: 1, generation: 1 };
const FACTS = [{ id: "lost_records", severity: "loss", text: "3 records are missing <b>here</b>", value: 3 }];

/** The slot of the trace in the status, with this index. */
export const slotAt = (index) => ({ index: (HEAD.profile = index), label: "mock.trace", path: "/home/me/mock.trace", kind: "trace", generation: 1, state: "ready", reloading: false, progress: null, elapsed_ms: 3, error: null });

function overview() {
  return {
    ...HEAD, label: "mock.trace", path: "/home/me/<b>mock</b>.trace", size_bytes: 1e6, machine: { hostname: "host", os_release: "6.1", arch: null, cpu: "CPU", cpus_online: 8, memory_kib: 1e6 },
    command_line: ["app", "<x>"], options: ["-P", "."], recorder: "dioptra", duration_ns: DURATION, first_time_ns: 1e12 + 1e9, clock: "tsc", ticks: false, ending: "exit status 0", rules: ["-F main"],
    functions: 12, switches: 4, processes: [{ key: "7", pid: 7, parent: 1, cause: "exec", executable: "/bin/app", begin_ns: 0 }],
    // A process that executed another program has two streams of one thread.
    threads: [...threads, { ...threads[0], name: "before" }],
    modules: [{ path: "/bin/app", build_id: "00", functions: 12, methods: [{ name: "plain", count: 12 }], refused: [{ name: "too short", count: 2 }] }], sampled: 0, notes: ["a <b>note</b>"], facts: FACTS,
  };
}

const column = (id, kind, unit = null, forPrograms = false) => ({ id, name: id.replace("_", " "), unit, kind, event: null, parent: null, for_programs: forPrograms });

function table(query) {
  const from = Number(query.get("from") ?? 0), count = Number(query.get("count") ?? 200);
  if (query.get("by") === "thread") {
    const columns = [column("task", "name"), column("tid", "name"), column("pid", "name"), column("total", "time", "ns"), column("self", "time", "ns"), column("calls", "count")];
    const rows = threads.map((thread, at) => ({ id: at, parent: null, depth: 0, below: 0, key: thread.key, cells: [thread.name, thread.tid, 7, DURATION - at, DURATION - at, 100 - at] }));
    return { schema: 1, ...HEAD, columns, rows, from: 0, total_rows: 3, matching_rows: 3, totals: columns.map(() => null), sorted_by: null, facts: [] };
  }
  const columns = [column("function", "name"), column("function_id", "name", null, true), column("total", "time", "ns"), column("self", "time", "ns"), column("calls", "count"), column("total_stdv", "ratio", "percent"), column("module", "name")];
  const filter = query.get("filter")?.toLowerCase();
  let all = functions().map((fn, at) => ({ id: at, parent: null, depth: 0, below: 0, key: { function: fn.key }, cells: [fn.name, at, Math.round(DURATION / (at + 1)), Math.round(DURATION / (at + 2)), 1000 - at, 12.5, modules[fn.module].name] }));
  const total_rows = all.length;
  if (filter) all = all.filter((row) => row.cells[0].toLowerCase().includes(filter));
  const sort = /^(.*?)(?::(asc|desc))?$/.exec(query.get("sort") || "");
  const at = columns.findIndex((each) => each.id === sort[1]);
  if (at >= 0) all.sort((a, b) => (sort[2] === "asc" ? 1 : -1) * (a.cells[at] < b.cells[at] ? -1 : 1));
  return { schema: 1, ...HEAD, columns, rows: all.slice(from, from + count), from, total_rows, matching_rows: all.length, totals: columns.map((each) => (each.id === "calls" ? 9000 : null)), sorted_by: at >= 0 ? { column: sort[1], direction: sort[2] ?? "desc" } : null, facts: FACTS };
}

function graph(query) {
  const nodes = { id: [], parent: [], function: [], below: [], own: [[], []], total: [[], []], own_samples: [[], []], total_samples: [[], []] };
  const root = query.get("root"), levels = Number(query.get("levels") ?? 99);
  const depth = root === null ? 0 : Number(root);
  for (let at = 0; at < Math.min(12 - depth, levels + (root === null ? 0 : 1)); at++) {
    const weight = DURATION * 0.8 ** (at + depth);
    nodes.id.push(at + depth); nodes.parent.push(at - 1); nodes.function.push((at + depth) % 11); nodes.below.push(at + depth < 11 ? 1 : 0);
    for (const e of [0, 1]) { nodes.total[e].push(Math.round(weight)); nodes.own[e].push(Math.round(weight * 0.2)); nodes.own_samples[e].push(5); nodes.total_samples[e].push(5); }
  }
  const events = [{ key: "time", name: "time", unit: "ns", samples: 60, weight: DURATION }, { key: "calls", name: "calls", unit: null, samples: 60, weight: DURATION }];
  return { ...HEAD, direction: "callees", events: query.get("weight") === "calls" ? events.reverse() : events, functions: functions(), modules, above: [], nodes, left_out: { nodes: 0, weight: 0 }, total_nodes: 12, facts: FACTS };
}

function timeline(query) {
  const [from, to] = (query.get("span") || "..").split("..").map((each, side) => Number(each || (side ? DURATION + 1 : 0)));
  const pixel = (to - from) / Number(query.get("pixels") ?? 1000);
  const wanted = query.getAll("thread");
  const lanes = threads.filter((thread) => wanted.length === 0 || wanted.includes(String(thread.tid))).map((thread, number) => {
    const bars = { depth: [], start: [], end: [], function: [], count: [], state: [] };
    for (let depth = 0; depth < 14; depth++) {
      const length = DURATION / 2 ** depth;
      for (let start = Math.floor(from / length) * length; start < Math.min(to, DURATION); start += Math.max(length, pixel * 2)) {
        bars.depth.push(depth); bars.start.push(Math.round(start)); bars.end.push(Math.round(start + length * 0.9)); bars.function.push((depth + number) % 11);
        bars.count.push(length < pixel ? 7 : 1); bars.state.push(0);
      }
    }
    return { key: thread.key, name: thread.name, tid: thread.tid, pid: 7, calls: bars.depth.length, levels: 14, left_out: 0, bars };
  });
  return { ...HEAD, start_ns: from, end_ns: to, pixel_ns: pixel, functions: functions(), modules, lanes, total_lanes: lanes.length, facts: FACTS };
}

function replay(query) {
  const at = query.get("at");
  const at_row = at === null ? null : Math.min(ROWS, Math.round((Number(at) / DURATION) * ROWS));
  const from = Math.min(ROWS, Number(query.get("from") ?? at_row ?? 0));
  const rows = Array.from({ length: Math.min(Number(query.get("count") ?? 200), ROWS - from) }, (_, offset) => {
    const row = from + offset, time = Math.round((row / ROWS) * DURATION), way = row % 8;
    const kind = way < 3 ? "enter" : way === 3 || way === 4 ? "call" : "leave";
    return { kind, thread: row % 3, depth: way < 4 ? way : 7 - way, function: way % 11, time_ns: time, begin_ns: kind === "enter" ? null : time - 10 + way, duration_ns: kind === "enter" ? null : 10, ...(row % 100 === 50 ? { note: "left by an <b>exception</b>" } : {}) };
  });
  const counted = query.get("preview") !== "1";
  return { ...HEAD, rows, from, total_rows: counted ? ROWS : from + rows.length, counted, at_row, functions: functions(), modules, threads, facts: FACTS };
}

function slowest(query) {
  const fn = functions().find((each) => each.key === query.get("function"));
  if (!fn) return { status: 404, body: { error: { code: "no_such_function", text: "no such function", remedy: null } } };
  const calls = Array.from({ length: 40 }, (_, at) => ({ key: threads[at % 3].key, name: threads[at % 3].name, tid: threads[at % 3].tid, begin_ns: at * 1000, duration_ns: 90_000 - at * 100, self_ns: 100, depth: at % 5, ended: at !== 1 }));
  return { ...HEAD, function: fn, calls, total_calls: 1000 };
}

/** The answers below `/api/trace`. */
export const answers = {
  "trace": overview, "trace/table": table, "trace/export": table, "trace/graph": graph, "trace/timeline": timeline, "trace/replay": replay,
  "trace/find": (query) => ({ row: query.get("text") === "nothing" ? null : Number(query.get("from") ?? 0) + 7000 }), "trace/slowest": slowest,
};
