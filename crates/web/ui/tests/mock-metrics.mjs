// Made-up metrics and changes in the shape of API.md: 300 rows with limits, an outlier, new and gone rows, hostile names.

const column = (id, name, unit, kind, more = {}) => ({ id, name, unit, kind, event: null, parent: null, for_programs: false, ...more });

/** What `/api/profile` adds. */
export const profileParts = {
  metrics: [
    { name: "generic:ipc", set: "generic", title: "IPC", description: "instructions per cycle", depth: 0 },
    { name: "generic:stalled", set: "generic", title: "<b>stalled</b>", description: "share of stalled cycles", depth: 1 },
  ],
  default_metrics: [],
};

function answer(columns, all, query, name) {
  const filter = (query.get("filter") ?? "").toLowerCase();
  const rows = all.filter((row) => String(row.cells[name]).toLowerCase().includes(filter));
  const sort = /^(.*):(asc|desc)$/.exec(query.get("sort") ?? "");
  const at = sort ? columns.findIndex((each) => each.id === sort[1]) : -1;
  if (at >= 0) rows.sort((a, b) => (sort[2] === "asc" ? 1 : -1) * ((a.cells[at] ?? -1) > (b.cells[at] ?? -1) ? 1 : -1));
  const from = Number(query.get("from") ?? 0);
  return {
    schema: 1, profile: Number(query.get("profile") ?? 0), generation: 1, columns, rows: rows.slice(from, from + Number(query.get("count") ?? 200)), from, total_rows: all.length,
    matching_rows: rows.length, totals: columns.map(() => null), sorted_by: sort ? { column: sort[1], direction: sort[2] } : null,
    facts: [{ id: "closure", severity: "info", text: "closure: shares × rates misses the count by 1.2%", value: null }, { id: "x", severity: "warning", text: "<i>drift</i>", value: null }],
  };
}

/** `of=metrics`. */
export function metricsTable(query, functions) {
  const details = (id, place) => ["low", "high"].map((end) => column(`${id}_${end}`, `${id}_${end}`, null, "ratio", { parent: place }));
  const columns = [
    column("share_percent", "time", "percent", "ratio"), column("ipc", "IPC", null, "ratio"), ...details("ipc", "ipc"), column("faults", "faults", "per ms", "ratio"), ...details("faults", "faults"),
    column("kept_windows", "kept", null, "count"), column("windows", "windows", null, "count"), column("discarded_percent", "discarded", "percent", "ratio"), column("trust", "trust", null, "name"), column("module", "module", null, "name"), column("function", "function", null, "name"),
  ];
  const rows = functions.slice(0, 300).map((each, at) => {
    const ipc = at === 3 ? 0.2 : 1.5 + 0.1 * Math.sin(at);
    const far = 0.02 + at / 2000;
    const faults = at % 5 === 0 ? null : at / 100;
    return {
      id: at, parent: null, depth: 0, below: 0, key: { function: each.key, module: each.module.key },
      cells: [20 / (at + 1), ipc, ipc - far, ipc + 2 * far, faults, faults === null ? null : faults * 0.8, faults === null ? null : faults * 1.3, 400 - at, 500, 20, ["high", "low", "unreliable"][at % 3 === 2 && at > 20 ? 2 : at % 2], each.module.name, each.name],
    };
  });
  return answer(columns, rows, query, columns.length - 1);
}

/** `of=diff`. */
export function diffTable(query, functions) {
  const of = { event: "cpu-clock" };
  const columns = [
    column("a_percent", "A", "percent", "ratio", of), column("b_percent", "B", "percent", "ratio", of), column("b_delta", "change", "ns", "weight", of), column("b_change", "change %", "percent", "ratio", of), column("b_significance", "sig.", null, "name", of),
    column("b_status", "status", null, "name"), column("module", "module", null, "name"), column("function", "function", null, "name"),
  ];
  const rows = functions.slice(0, 250).map((each, at) => ({
    id: at, parent: null, depth: 0, below: 0, key: at % 50 === 7 ? {} : { function: each.key, module: each.module.key },
    cells: [10 / (at + 1), 12 / (at + 1), (at % 2 ? 1 : -1) * 1e9 / (at + 1), at % 50 === 7 ? null : 20, at < 5 ? "***" : "", at % 50 === 7 ? "new" : at % 50 === 9 ? "gone" : "", each.module.name, each.name],
    standard_errors: { b_delta: 1e7 },
  }));
  return answer(columns, rows, query, columns.length - 1);
}

/** What `with` adds to a flame graph. */
export function flameOther(flame) {
  const scaled = (list) => list.map((values) => values.map((value, at) => (at % 11 === 10 ? 0 : Math.round(value * (0.7 + (at % 7) / 10)))));
  return {
    profile: 1, generation: 1, weight: flame.events.map((event) => event.weight), total: scaled(flame.nodes.total), total_samples: scaled(flame.nodes.total_samples),
    new: [{ parent: 0, name: "<script>alert(1)</script>", module: "lib<b>", weight: 5e8 }, { parent: -1, name: "fresh", module: "app", weight: 1e8 }], new_weight: 6e8,
  };
}
