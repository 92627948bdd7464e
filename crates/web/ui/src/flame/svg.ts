// A flame graph as an SVG file: what the canvas shows, with the whole names as titles.

import { shareOf } from "../format";
import { visible } from "../names";
import { xml } from "../save";
import { changeFill } from "./change";
import { labelOf, levelTop, type FlameLook } from "./draw";
import { firstBehind, type FlameModel } from "./model";

/** Writes the part of the graph that is zoomed to, at its whole height. */
export function flameSvg(model: FlameModel, look: FlameLook): string {
  const height = model.levels.length * look.rowHeight;
  const whole: FlameLook = { ...look, height, scroll: 0 };
  const scale = look.width / (look.to - look.from);
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${look.width}" height="${height}" viewBox="0 0 ${look.width} ${height}" font-family="monospace" font-size="${Math.round(look.rowHeight * 0.62)}">`,
    `<rect width="${look.width}" height="${height}" fill="${look.colours.back}"/>`,
  ];
  for (let depth = 0; depth < model.levels.length; depth++) {
    const top = levelTop(whole, model.levels.length, depth);
    const level = model.levels[depth]!;
    for (let at = firstBehind(model, level, look.from); at < level.length; at++) {
      const node = level[at]!;
      if (model.left[node]! >= look.to) break;
      const left = Math.max(0, (model.left[node]! - look.from) * scale);
      const wide = Math.min(look.width, (model.right[node]! - look.from) * scale) - left;
      if (wide < 0.3) continue;
      const fn = model.fn[node]!;
      const each = model.answer.functions[fn];
      const module = each ? (model.answer.modules[each.module]?.name ?? "") : "";
      const fill = fn < 0 ? look.colours.line : look.found?.[fn] === 1 ? look.colours.mark : changeFill(model, node, look.dark) ?? look.mode.fill(model, node, look.dark);
      const share = shareOf(model.right[node]! - model.left[node]!, 1);
      const label = labelOf(model, node);
      const room = Math.floor((wide - 6) / look.characterWidth);
      const shown = room < 3 ? "" : `<text x="${(left + 4).toFixed(1)}" y="${(top + look.rowHeight * 0.7).toFixed(1)}" fill="${look.colours.text}">${xml(label.length <= room ? label : `${label.slice(0, room - 1)}…`)}</text>`;
      out.push(`<g><title>${xml(visible((each?.name ?? "all").slice(0, 2000)))} ${xml(visible(module))} ${share}</title><rect x="${left.toFixed(2)}" y="${top}" width="${Math.max(wide - 0.5, 0.3).toFixed(2)}" height="${look.rowHeight - 1}" fill="${fill}"/>${shown}</g>`);
    }
  }
  out.push("</svg>");
  return out.join("\n");
}
