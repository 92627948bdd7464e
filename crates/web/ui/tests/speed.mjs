// Measures the page in Chromium: node tests/speed.mjs [URL]. Without a URL the mock server answers, and the numbers are the
// page's own. Prints the median and the 95th percentile of each kind of action in milliseconds.

import { open, settle } from "./browser.mjs";

let address = process.argv[2];
let server = null;
if (!address) {
  const { mock, TOKEN } = await import("./mock.mjs");
  await new Promise((resolve) => mock.listen(0, "127.0.0.1", resolve));
  server = mock;
  address = `http://127.0.0.1:${mock.address().port}/?token=${TOKEN}`;
}
const origin = new URL(address).origin;
const { browser, page } = await open(address);
const times = new Map();
const note = (kind, ms) => times.set(kind, [...(times.get(kind) ?? []), ms]);

/** Does something in the page, and waits until nothing is busy and a frame was drawn. */
const timed = (kind, body, argument) => page.evaluate(async ([source, argument]) => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const act = new Function("argument", `return (${source})(argument)`);
  const began = performance.now();
  act(argument);
  await frame();
  while (document.querySelector("[aria-busy=true]")) await frame();
  await frame();
  return performance.now() - began;
}, [body.toString(), argument]).then((ms) => note(kind, ms));

const show = async (hash) => { await page.goto(`${origin}/#/${hash}`); await settle(page); };

// The page's policy forbids code from text, so the actions run in a page without it.
await page.context().newCDPSession(page).then((session) => session.send("Page.setBypassCSP", { enabled: true }));
await page.reload();
await settle(page);

await show("hotspots");
const frames = await page.evaluate(async () => {
  const table = document.querySelector('[aria-label="Functions"]');
  const deltas = [];
  let before = await new Promise(requestAnimationFrame);
  for (let step = 0; step < 150; step++) {
    table.scrollTop += 137;
    const now = await new Promise(requestAnimationFrame);
    deltas.push(now - before);
    before = now;
  }
  for (let step = 0; step < 30; step++) {
    table.scrollTop = (table.scrollHeight * step) / 30;
    const now = await new Promise(requestAnimationFrame);
    deltas.push(now - before);
    before = now;
  }
  return deltas;
});
for (const ms of frames) note("frame while scrolling", ms);
for (let round = 0; round < 6; round++) {
  for (let column = 0; column < 4; column++)
    await timed("sort", (at) => document.querySelectorAll('[aria-label="Functions"] .titles .label')[at].click(), 2 + column);
  for (const text of ["p", "pa", "par", ""])
    await timed("filter", (text) => { const field = document.querySelector("input.filter"); field.value = text; field.dispatchEvent(new Event("input", { bubbles: true })); }, text);
  await timed("select a process", (at) => document.querySelectorAll("[role=treegrid] .rows .row")[at]?.click(), round % 3);
  await timed("expand a row", () => document.querySelector("[role=treegrid] .rows .twisty").click());
}
for (const view of ["summary", "hotspots", "flame", "tree", "timeline", "hotspots", "flame", "timeline"])
  await timed(`show ${view}`, (view) => document.querySelector(`nav a[href^="#/${view}"]`).click(), view);
await show("flame");
if (await page.locator(".flame canvas").count()) {
  for (let at = 0; at < 10; at++) {
    const box = await page.locator(".flame canvas").boundingBox();
    await timed("zoom the flame graph", ([x, y]) => document.querySelector(".flame canvas").dispatchEvent(new MouseEvent("click", { clientX: x, clientY: y, bubbles: true })), [box.x + box.width * (0.05 + at / 12), box.y + 20 + (at % 4) * 18]);
  }
}
for (const [kind, list] of times) {
  list.sort((a, b) => a - b);
  const at = (part) => list[Math.min(list.length - 1, Math.floor(list.length * part))].toFixed(1);
  console.log(`${kind.padEnd(26)} ${String(list.length).padStart(4)} times   median ${at(0.5).padStart(7)} ms   95 % ${at(0.95).padStart(7)} ms`);
}
await browser.close();
server?.close();
server?.closeAllConnections();
process.exit(0);
