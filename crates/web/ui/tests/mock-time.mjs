// Made-up answers about nodes by keys, changed call stacks and heat maps.

/** The kinds of the mock's modules. */
export const KINDS = ["file", "file", "file", "kernel", "file", "vdso", "jit"];

/** The number of the node to which a path leads, as far as it goes; null if nowhere. */
export function nodeAtPath(nodes, path, functions) {
  let found = null;
  for (const key of path) {
    const next = nodes.id.findIndex((_, at) => nodes.parent[at] === (found ?? -1) && functions[nodes.function[at]].key === key);
    if (next < 0) break;
    found = next;
  }
  return found;
}

/** The samples that dropped functions take out of a tree. */
export function lostSamples(query, events) {
  const dropped = query.getAll("drop").length + query.getAll("drop_module").length;
  if (dropped === 0) return {};
  const samples = events.map(() => 1000 * dropped);
  return { changes: { dropped_samples: samples, dropped_weight: samples.map((each, e) => each * events[e].period), bare_samples: events.map(() => 0), bare_weight: events.map(() => 0) } };
}

/** Every second looks like the one before, but for a pause. */
export function heatmapAnswer(query, events) {
  const column_ns = Number(query.get("column_ns") ?? 1e9);
  const rows = Number(query.get("rows") ?? 50);
  const [from, to] = query.get("span").split("..").map(Number);
  const first = Math.floor(from / column_ns);
  const columns = Math.floor((to - 1) / column_ns) - first + 1;
  const values = [];
  for (let column = 0; column < columns; column++) for (let row = 0; row < rows; row++) {
    const part = row / rows;
    values.push(column % 5 === 3 && part > 0.4 && part < 0.6 ? 0 : Math.max(0, Math.round(30 * Math.sin(6 * part + column / 9) ** 2 + (row % 10 === 0 ? 25 : 0) - 3)));
  }
  const samples = values.reduce((sum, each) => sum + each, 0);
  return { profile: 0, generation: 1, event: { key: events[0].key, name: events[0].name, unit: events[0].unit }, start_ns: first * column_ns, column_ns, columns, rows, values, peak: Math.max(...values), samples, weight: samples * events[0].period, untimed: 3 };
}

/** Lanes whose switches were recorded: off the CPU where there are no samples, and a little elsewhere. */
export function offCpu(at, one, values) {
  if (one || at % 3 === 2) return {};
  return { off: values.map((value, bin) => (value === 0 ? 1000 : bin % 7 === 0 ? 400 : 0)) };
}
