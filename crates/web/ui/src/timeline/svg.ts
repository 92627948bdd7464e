// A timeline as an SVG file.

import { axisTime } from "../format";
import { visible } from "../names";
import type { TimelineAnswer } from "../net/types";
import { xml } from "../save";
import { colour } from "../shell/theme";
import { halves, type Lane } from "./draw";
import { laneColours } from "./LaneCanvas";
import { marks } from "./scale";

const NAMES = 240;
const LANES = 1200;
const AXIS = 24;

/** Writes the shown lanes with their names and an axis. */
export function timelineSvg(answer: TimelineAnswer, lanes: readonly Lane[], nameOf: (row: TimelineAnswer["rows"][number]) => string, laneHeight: number): string {
  const colours = laneColours();
  const height = AXIS + lanes.length * laneHeight;
  const out = [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${NAMES + LANES}" height="${height}" font-family="monospace" font-size="12">`,
    `<defs><pattern id="off" width="6" height="6" patternUnits="userSpaceOnUse"><path d="M0 6L6 0" stroke="${colours.text}" stroke-opacity="0.55"/></pattern></defs>`,
    `<rect width="100%" height="100%" fill="${colours.back}"/>`,
  ];
  const { step, times } = marks({ from: answer.start_ns, to: answer.end_ns }, 10);
  for (const time of times) {
    const x = NAMES + ((time - answer.start_ns) / (answer.end_ns - answer.start_ns)) * LANES;
    out.push(`<path d="M${x.toFixed(1)} 0V${height}" stroke="${colours.line}"/><text x="${(x + 4).toFixed(1)}" y="16" fill="${colours.text}">${axisTime(time, step)}</text>`);
  }
  lanes.forEach((lane, at) => {
    const bottom = AXIS + (at + 1) * laneHeight - 1;
    const width = LANES / Math.max(1, lane.values.length);
    const { base, room } = halves(lane, bottom + 1, laneHeight);
    const bars = (values: readonly number[], sign: number) => values.map((value, bin) => {
      const tall = Math.max(1, Math.min(room, (value / lane.peak) * room));
      return value > 0 ? `M${(NAMES + bin * width).toFixed(2)} ${base}v${(sign * tall).toFixed(1)}h${width.toFixed(2)}V${base}z` : "";
    }).join("");
    const path = bars(lane.values, -1);
    lane.off?.forEach((off, bin) => {
      if (off >= 50) out.push(`<rect x="${(NAMES + bin * width).toFixed(2)}" y="${bottom - laneHeight + 1}" width="${width.toFixed(2)}" height="${laneHeight - 1}" fill="url(#off)" fill-opacity="${(off / 1000).toFixed(1)}"/>`);
    });
    const name = visible(nameOf(answer.rows[at]!)).slice(0, 32);
    out.push(`<text x="8" y="${bottom - laneHeight / 3}" fill="${colour("text")}">${xml(name)}</text><path d="${path}" fill="${colours.bar}"/>${lane.other ? `<path d="${bars(lane.other, 1)}" fill="${colours.other}"/>` : ""}<path d="M0 ${bottom}H${NAMES + LANES}" stroke="${colours.line}"/>`);
  });
  out.push("</svg>");
  return out.join("\n");
}
