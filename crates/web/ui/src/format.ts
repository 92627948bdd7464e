// Numbers as text. Tables align numbers on the right, so each kind has a fixed number of decimals.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A count in full, with separators: 1,234,567. */
export function count(value: number): string {
  return whole.format(value);
}

/** A share in percent: 12.34. */
export function percent(value: number): string {
  return value.toFixed(2);
}

const TIME_UNITS: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/** A stretch of time with three significant decimals: 46.750 ms. */
export function duration(ns: number): string {
  if (ns === 0) return "0";
  const size = Math.abs(ns);
  const [scale, unit] = TIME_UNITS.find(([scale]) => size >= scale) ?? [1, "ns"];
  return `${(ns / scale).toFixed(scale === 1 ? 0 : 3)} ${unit}`;
}

/** A time of an axis whose steps are `step` long. */
export function axisTime(ns: number, step: number): string {
  const scale = step >= 1e9 || ns >= 1e10 ? 1e9 : step >= 1e6 || ns >= 1e8 ? (step >= 1e7 ? 1e9 : 1e6) : step >= 1e3 ? 1e6 : 1e3;
  const unit = scale === 1e9 ? "s" : scale === 1e6 ? "ms" : "µs";
  const decimals = Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / scale) - 1e-9)));
  return `${(ns / scale).toFixed(decimals)} ${unit}`;
}

/** A large number with a prefix: 1.23 G. */
export function prefixed(value: number): string {
  const size = Math.abs(value);
  for (const [scale, prefix] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"]] as const)
    if (size >= scale) return `${(value / scale).toFixed(2)} ${prefix}`;
  return Number.isInteger(value) ? whole.format(value) : value.toFixed(2);
}

/** Bytes: 12.3 MiB. */
export function bytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
  return `${at === 0 ? value : value.toFixed(1)} ${units[at]}`;
}

/** A value of a column or an event in its unit. */
export function inUnit(value: number, unit: string | null): string {
  switch (unit) {
    case "ns": return duration(value);
    case "percent": return `${percent(value)}%`;
    case "points": return `${signOf(value, 0.005)}${percent(Math.abs(value))}`;
    case "per_thousand": return `${value.toFixed(2)}‰`;
    case "bytes": return bytes(value);
    case "samples": return count(value);
    default: return prefixed(value);
  }
}

/** The sign of a difference; none where all digits that are shown are 0. */
export function signOf(value: number, least: number): string {
  return Math.abs(value) < least ? "" : value > 0 ? "+" : "−";
}

/** A standard error in the unit of its value: without a sign. */
export function errorInUnit(error: number, unit: string | null): string {
  return unit === "points" ? percent(error) : inUnit(error, unit);
}

/** The same in full, for hovering. */
export function inFull(value: number, unit: string | null): string {
  const number = Number.isInteger(value) ? count(value) : String(value);
  return unit === "percent" ? `${number}%` : unit ? `${number} ${unit}` : number;
}

/** A share of a whole as text; nothing is 0 %. */
export function shareOf(part: number, total: number): string {
  return total > 0 ? `${percent((100 * part) / total)}%` : "–";
}

/** An address as objdump shows it. The server writes addresses as texts (`0x…`) where numbers would be rounded. */
export function address(value: number | string): string {
  return typeof value === "string" ? value.replace(/^0x/, "") : value.toString(16);
}

/** A word for one and for several things. */
export function plural(value: number, one: string, several = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : several}`;
}
