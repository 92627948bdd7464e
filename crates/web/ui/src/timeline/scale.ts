// Times to pixels, and where the marks of an axis stand.

export interface Stretch {
  from: number;
  to: number;
}

/** A step of 1, 2 or 5 times a power of ten, so that about `wanted` steps fit. */
export function niceStep(length: number, wanted: number): number {
  const rough = length / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(Math.max(rough, 1)));
  const part = rough / power;
  return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

/** The times of an axis' marks. */
export function marks(stretch: Stretch, wanted: number): { step: number; times: number[] } {
  const step = niceStep(stretch.to - stretch.from, wanted);
  const times: number[] = [];
  for (let time = Math.ceil(stretch.from / step) * step; time <= stretch.to; time += step) times.push(time);
  return { step, times };
}

/** A stretch zoomed by a factor around a time, within bounds. */
export function zoomed(stretch: Stretch, factor: number, around: number, bounds: Stretch, shortest: number): Stretch {
  const whole = bounds.to - bounds.from;
  const length = Math.min(whole, Math.max(shortest, (stretch.to - stretch.from) * factor));
  const part = (around - stretch.from) / (stretch.to - stretch.from);
  const from = Math.max(bounds.from, Math.min(bounds.to - length, around - part * length));
  return { from: Math.round(from), to: Math.round(from + length) };
}
