// A timeline of calls as an SVG file: what the canvas shows, at its whole height.

import { axisTime } from "../format";
import { moduleColour } from "../flame/colours";
import { visible } from "../names";
import { xml } from "../save";
import { marks } from "../timeline/scale";
import { barName, type CallsLook, laneName } from "./draw";
import { type CallsModel, firstBehind, NAME_ROWS } from "./model";

export function callsSvg(model: CallsModel, look: CallsLook): string {
  const axis = look.rowHeight * 1.2;
  const height = axis + model.rows * look.rowHeight;
  const scale = look.width / (look.shown.to - look.shown.from);
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${look.width}" height="${height.toFixed(1)}" font-family="monospace" font-size="${Math.round(look.rowHeight * 0.6)}">`,
    `<rect width="100%" height="100%" fill="${look.colours.back}"/>`,
  ];
  const { step, times } = marks(look.shown, look.width / 110);
  for (const time of times) {
    const x = ((time - look.shown.from) * scale).toFixed(1);
    out.push(`<path d="M${x} 0V${height.toFixed(1)}" stroke="${look.colours.line}"/><text x="${x}" dx="4" y="${(axis * 0.7).toFixed(1)}" fill="${look.colours.text}">${axisTime(time, step)}</text>`);
  }
  for (const lane of model.lanes) {
    const top = axis + lane.top * look.rowHeight;
    out.push(`<text x="6" y="${(top + NAME_ROWS * look.rowHeight * 0.7).toFixed(1)}" fill="${look.colours.name}">${xml(visible(laneName(lane)))}</text>`);
    const bars = lane.lane.bars;
    for (let level = 0; level < lane.levels; level++) {
      const list = lane.bars[level]!;
      for (let place = firstBehind(lane, level, look.shown.from); place < list.length; place++) {
        const bar = list[place]!;
        if (bars.start[bar]! >= look.shown.to) break;
        const left = Math.max(0, (bars.start[bar]! - look.shown.from) * scale);
        const wide = Math.min(look.width, (bars.end[bar]! - look.shown.from) * scale) - left;
        if (wide < 0.3) continue;
        const fn = model.answer.functions[bars.function[bar]!];
        const name = visible(barName(model, lane, bar));
        const room = Math.floor((wide - 6) / look.characterWidth);
        const y = top + (NAME_ROWS + level) * look.rowHeight;
        const text = room < 3 ? "" : `<text x="${(left + 4).toFixed(1)}" y="${(y + look.rowHeight * 0.7).toFixed(1)}" fill="${look.colours.name}">${xml(name.length <= room ? name : `${name.slice(0, room - 1)}…`)}</text>`;
        out.push(`<g><title>${xml(name)}</title><rect x="${left.toFixed(2)}" y="${y.toFixed(1)}" width="${Math.max(0.4, wide - 0.5).toFixed(2)}" height="${(look.rowHeight - 1).toFixed(1)}" fill="${moduleColour(model.answer.modules[fn?.module ?? -1]?.name ?? "", look.dark, 0.5)}"/>${text}</g>`);
      }
    }
  }
  out.push("</svg>");
  return out.join("\n");
}
