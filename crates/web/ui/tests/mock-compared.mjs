// What the parameter `with` adds to the mock's tables, functions and timelines, and the metrics of its flame graph.

/** A part of what is here, the same each time: between 70 and 130 percent, and sometimes nothing. */
function there(samples, at) {
  return at % 13 === 12 ? 0 : Math.round(samples * (0.7 + (at % 7) / 10));
}

/** A table with the other profile's numbers behind each column of an event, and the change of each share. */
export function tableBeside(answer, query) {
  const number = (place) => answer.columns[place].event !== null;
  const columns = answer.columns.flatMap((column, at) => {
    if (!number(at)) return [column];
    const [id, rest] = [column.id.split("[")[0], column.id.slice(column.id.indexOf("["))];
    const more = (name, title, unit, kind, forPrograms = false) => ({ ...column, id: `b_${id}${name}${rest}`, name: title, unit, kind, for_programs: forPrograms });
    const beside = more("", `B ${column.name}`, column.unit, column.kind);
    return column.unit === "percent" ? [column, beside, more("_points", "points", "points", "ratio"), more("_z", "z", null, "ratio", true), more("_significance", "sig", null, "name")] : [column, beside];
  });
  columns.splice(columns.findIndex((column) => column.event === null), 0, { id: "b_status", name: "status", unit: null, kind: "name", event: null, parent: null, for_programs: false });
  const widen = (cells, row, notes, errors) => {
    const out = [];
    cells.forEach((cell, at) => {
      if (!number(at)) { if (out.length === columns.findIndex((column) => column.id === "b_status")) out.push(row % 13 === 12 ? "gone" : null); out.push(cell); return; }
      const value = cell === null ? null : answer.columns[at].unit === "percent" ? there(cell * 1000, row) / 1000 : there(cell, row);
      out.push(cell, value);
      if (answer.columns[at].unit !== "percent") return;
      const id = columns[out.length].id;
      const points = cell === null ? null : value - cell;
      const error = Math.sqrt(Math.abs(cell ?? 0)) / 40;
      if (errors && points !== null) errors[id] = error;
      if (notes && points !== null && Math.abs(points) < 1.96 * error) notes[id] = "within_chance";
      out.push(points, points === null ? null : points / error, points !== null && Math.abs(points) > 4 * error ? "***" : null);
    });
    return out;
  };
  const rows = answer.rows.map((row) => {
    const notes = { ...row.notes }, standard_errors = { ...row.standard_errors };
    return { ...row, cells: widen(row.cells, row.id, notes, standard_errors), notes, standard_errors };
  });
  const sort = /^(b_.*_points.*):(asc|desc)$/.exec(query.get("sort") ?? "");
  if (sort) {
    const at = columns.findIndex((column) => column.id === sort[1]);
    rows.sort((a, b) => (sort[2] === "asc" ? 1 : -1) * (a.cells[at] - b.cells[at]));
  }
  return { ...answer, columns, rows, totals: widen(answer.totals, 0) };
}

/** A function with the other profile's counts. With `with=1` and a function whose key ends in 3 its code is another one there. */
export function functionBeside(answer) {
  const lists = (values, weights) => ({ samples: values.map((list) => list.map(there)), weight: weights.map((list, e) => list.map((weight, at) => there(values[e][at], at) * (weight && values[e][at] ? weight / values[e][at] : 0))) });
  const code = lists(answer.instructions.samples, answer.instructions.weight);
  const byLine = (name) => answer.events.map((_, e) => answer.lines.map((line) => line[name][e]));
  const inner = lists(byLine("samples"), byLine("weight"));
  const outer = lists(byLine("outer_samples"), byLine("outer_weight"));
  const isOther = answer.function.key.endsWith("3");
  const own = answer.events.map((event, e) => { const samples = code.samples[e].reduce((sum, each) => sum + each, 0); const weight = code.weight[e].reduce((sum, each) => sum + each, 0); return { samples, weight, estimate: weight, error: weight / Math.sqrt(samples || 1) }; });
  const other = {
    profile: 1, generation: 1, functions: 1, events: answer.events.map((event, e) => ({ total: event.total, own: own[e] })),
    lines: { ...inner, outer_samples: outer.samples, outer_weight: outer.weight, only_there_samples: [isOther ? 17 : 0, 0], only_there_weight: [0, 0] },
    instructions: isOther ? null : code, instructions_why: isOther ? "its code is another one there: 31 instructions instead of 28" : null,
  };
  const facts = isOther ? [...answer.facts, { id: "lines_matched_by_number", severity: "warning", text: "other builds", value: 1 }] : answer.facts;
  return { ...answer, facts, other };
}

/** A timeline with the other profile's samples: later and fewer, and some lanes without any. */
export function timelineBeside(answer) {
  const rows = answer.rows.map((row, at) => {
    if (at % 5 === 4) return row;
    const values = row.values.map((_, bin) => Math.round((row.values[Math.max(0, bin - 9)] ?? 0) * 0.8));
    return { ...row, other: { name: row.name, number: row.number === null ? null : row.number + 7, samples: values.reduce((sum, each) => sum + each, 0), weight: 0, values } };
  });
  const lists = rows.flatMap((row) => (row.other ? [row.other] : []));
  return { ...answer, rows, other: { profile: 1, generation: 1, end_ns: 9.5e9, samples: lists.reduce((sum, row) => sum + row.samples, 0), unmatched_rows: 3, unmatched_samples: 41, peak: Math.max(...lists.flatMap((row) => row.values)) } };
}

/** A flame graph with the metric that was asked for. */
export function flameMetrics(answer, names) {
  const title = (name) => (name.endsWith("ipc") ? "IPC" : "<b>stalled</b>");
  return { ...answer, metrics: names.map((name) => ({
    name: name.replace("generic:", ""), title: title(name), unit: null, whole: 1.4, values: answer.nodes.function.map((fn) => (fn % 17 === 16 ? null : 0.3 + ((fn * (name.endsWith("ipc") ? 37 : 41)) % 100) / 40)),
    errors: answer.nodes.function.map(() => 0.05), few: answer.nodes.total_samples[0].map((samples) => (samples < 10 ? 1 : 0)),
  })) };
}

/** Tables of blocks and lines: those of functions with a place. */
export function codeRows(query, table) {
  const by = query.get("by");
  if (by !== "block" && by !== "line") return table(query);
  query.set("by", "function");
  const answer = table(query);
  const named = (id, kind) => ({ id, name: id, unit: null, kind, event: null, parent: null, for_programs: false });
  const at = answer.columns.findIndex((column) => column.id === "module");
  const columns = [...answer.columns.slice(0, at + 1), ...(by === "block" ? [named("address", "address"), named("end_address", "address"), named("function", "name")] : []), named("file", "name"), named("line", "count")];
  const rows = answer.rows.map((row, place) => ({
    ...row, key: by === "line" ? { module: row.key.module } : row.key,
    cells: [...row.cells.slice(0, at + 1), ...(by === "block" ? [`0x${(4096 + 16 * place).toString(16)}`, `0x${(4108 + 16 * place).toString(16)}`, row.cells[at + 1]] : []), `/src/<b>${place % 7}</b>.c`, place],
  }));
  return { ...answer, columns, rows, totals: columns.map((_, place) => (place < at ? answer.totals[place] : null)) };
}
