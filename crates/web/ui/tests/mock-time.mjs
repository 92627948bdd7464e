// Made-up answers about heat maps.

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
