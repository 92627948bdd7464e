// A colour for each module: muted hues that keep text readable, the same in every view.

const HUES = [212, 28, 152, 268, 48, 188, 336, 96, 240, 8, 130, 300];

/** The hue of a module's name: the same name has the same hue in every profile. */
export function hueOf(name: string): number | null {
  if (name.startsWith("[kernel") || name.endsWith(".ko") || name === "[unknown]") return null;
  let hash = 2166136261;
  for (let at = 0; at < name.length && at < 200; at++) hash = Math.imul(hash ^ name.charCodeAt(at), 16777619) >>> 0;
  return HUES[(hash >>> 8) % HUES.length]!;
}

/** A module's fill colour; the kernel and unknown code are grey. `shade` from 0 to 1 tells neighbours apart. */
export function moduleColour(name: string, dark: boolean, shade: number): string {
  const hue = hueOf(name);
  const step = Math.round(shade * 6);
  if (hue === null) return dark ? `hsl(215 6% ${25 + step}%)` : `hsl(215 8% ${80 + step}%)`;
  return dark ? `hsl(${hue} 30% ${27 + step}%)` : `hsl(${hue} 44% ${78 + step}%)`;
}
