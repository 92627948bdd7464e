// Measures the page on a large profile for `cargo xtask bench web`: node tests/bench.mjs URL ACTIONS [SPEEDSCOPE]
//
// URL is a server that has just been started; SPEEDSCOPE is the folder of speedscope's page. Prints JSON: times in
// milliseconds, of each kind of action and of all.

import { createServer } from "node:http";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { open, settle } from "./browser.mjs";

const [address, actions, speedscope] = process.argv.slice(2);
const ACTIONS = Number(actions);
const { origin, searchParams } = new URL(address);
const headers = { "X-Dioptra-Token": searchParams.get("token") };
const api = async (path) => (await fetch(`${origin}/api/${path}`, { headers })).json();
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// The page is there from the start; its first useful paint is the list of the hottest functions.
const opening = open(address);
let status = null;
let ready = 0;
while (!ready) {
  status = (await api("status")).profiles[0];
  if (status.state === "failed") throw new Error(JSON.stringify(status.error));
  if (status.state === "ready") ready = Date.now();
  else await pause(5);
}
const { browser, page, problems } = await opening;
await page.waitForSelector('[aria-label="Hottest: Functions"] li', { timeout: 120_000 });
// A small profile is loaded before the browser has opened the page.
const paint = Date.now() - Math.max(ready, await page.evaluate(() => performance.timeOrigin));
await settle(page);

// The page's policy forbids code from text, so the actions run in a page without it.
const session = await page.context().newCDPSession(page);
await session.send("Page.setBypassCSP", { enabled: true });
await page.reload();
await settle(page);

const times = new Map();
/** Control-flow graphs are placed by a worker behind source and assembly: the time until they stand is one of its own. */
const graphs = [];
/** Does something in the page, and waits until nothing but a graph is busy and a frame was drawn. */
async function timed(kind, body, argument) {
  const [ms, withGraph] = await page.evaluate(async ([source, argument]) => {
    const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
    const act = new Function("argument", `return (${source})(argument)`);
    const began = performance.now();
    act(argument);
    await frame();
    while (document.querySelector("[aria-busy=true]:not(.graph)")) await frame();
    await frame();
    const ms = performance.now() - began;
    while (document.querySelector("[aria-busy=true]")) await frame();
    return [ms, performance.now() - began];
  }, [body.toString(), argument]);
  if (kind === "open a function") graphs.push(withGraph);
  times.set(kind, [...(times.get(kind) ?? []), ms]);
}
const show = async (hash) => { await page.goto(`${origin}/#/${hash}`); await settle(page); };

const has = (await api("profile")).has;
const top = (await api("table?by=function&count=30")).rows.map((row) => row.key.function);
const ROUND = [
  ["sort", (at) => document.querySelectorAll('[aria-label="Functions"] .titles .label')[1 + (at % 4)]?.click()],
  ["filter", (at) => { const field = document.querySelector("input.filter"); field.value = ["a", "re", "std", "alloc", ""][at % 5]; field.dispatchEvent(new Event("input", { bubbles: true })); }],
  ["select a row", (at) => document.querySelectorAll("[role=treegrid] .rows .row .cell.number")[at % 3]?.click()],
  ["expand a row", (at) => { const all = document.querySelectorAll("[role=treegrid] .rows .twisty"); all[at % Math.max(1, Math.min(4, all.length))]?.click(); }],
];
// A fifth opens functions, a fifth zooms, the rest are in Hotspots.
const part = Math.floor(ACTIONS / 5);
await show("hotspots");
for (let at = 0; at < ACTIONS - 2 * part; at++) {
  const [kind, act] = ROUND[at % ROUND.length];
  await timed(kind, act, Math.floor(at / ROUND.length));
}
await show(`function?open=${encodeURIComponent(top[0])}`);
for (let at = 0; at < part; at++)
  await timed("open a function", (key) => { location.hash = `#/function?open=${encodeURIComponent(key)}`; }, top[(at + 1) % top.length]);
if (has.chains) {
  await show("flame");
  const box = await page.locator(".flame canvas").boundingBox();
  for (let at = 0; at < part; at++)
    await timed("zoom the flame graph", ([x, y]) => document.querySelector(".flame canvas").dispatchEvent(new MouseEvent("click", { clientX: x, clientY: y, bubbles: true })), [box.x + box.width * (0.03 + (at % 30) / 32), box.y + 20 + (at % 5) * 18]);
} else {
  await show("timeline");
  for (let at = 0; at < part; at++)
    await timed("zoom the timeline", (at) => document.querySelector(".lane-scroll canvas").dispatchEvent(new KeyboardEvent("keydown", { key: at % 7 === 6 ? "0" : "+", bubbles: true })), at);
}

/** The time until a new page shows the flame graph. */
async function flameTime() {
  const fresh = await page.context().newPage();
  const began = performance.now();
  await fresh.goto(`${origin}/#/flame`);
  await fresh.waitForFunction(() => document.querySelector(".flame canvas") && !document.querySelector("[aria-busy=true]"), null, { timeout: 120_000 });
  const ms = performance.now() - began;
  await fresh.close();
  return ms;
}

/** The call tree as collapsed stacks: a line for each path with samples of its own. */
async function collapsed() {
  const { nodes, functions, total_nodes } = await api("flame?least=0&count=200000");
  const clean = functions.map((each) => each.name.replace(/[;\n\r]/g, "_").slice(0, 500) || "unknown");
  const paths = [];
  const lines = [];
  for (let at = 0; at < nodes.id.length; at++) {
    const name = clean[nodes.function[at]];
    paths[at] = nodes.parent[at] < 0 ? name : `${paths[nodes.parent[at]]};${name}`;
    if (nodes.own_samples[0][at] > 0) lines.push(`${paths[at]} ${nodes.own_samples[0][at]}`);
  }
  return { text: lines.join("\n"), stacks: lines.length, nodes: nodes.id.length, total_nodes };
}

/** The time until speedscope, served from this machine, has drawn the stacks. */
async function speedscopeTime(folder) {
  const { text, ...size } = await collapsed();
  const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", wasm: "application/wasm" };
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://127.0.0.1").pathname;
    if (path === "/stacks.txt") { response.writeHead(200, { "content-type": "text/plain" }).end(text); return; }
    try {
      const name = path === "/" ? "index.html" : path.slice(1).replaceAll("..", "");
      response.writeHead(200, { "content-type": TYPES[name.split(".").pop()] ?? "application/octet-stream" }).end(readFileSync(join(folder, name)));
    } catch { response.writeHead(404).end(); }
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  const base = `http://127.0.0.1:${server.address().port}`;
  const fresh = await page.context().newPage();
  const began = performance.now();
  await fresh.goto(`${base}/#profileURL=${encodeURIComponent(`${base}/stacks.txt`)}&title=stacks`);
  // Its title names the profile once it is there; then a frame is drawn.
  await fresh.waitForFunction(() => document.title.includes("stacks") && document.querySelector("canvas"), null, { timeout: 120_000 });
  await fresh.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
  const ms = performance.now() - began;
  await fresh.close();
  server.close();
  server.closeAllConnections();
  return { ms, bytes: text.length, ...size };
}

const summed = (list) => {
  const sorted = [...list].sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
  return { count: sorted.length, median: at(0.5), p95: at(0.95) };
};
const dist = fileURLToPath(new URL("../dist/", import.meta.url));
const result = {
  load_ms: status.elapsed_ms,
  paint_ms: paint,
  actions: Object.fromEntries([...[...times].map(([kind, list]) => [kind, summed(list)]), ["all", summed([...times.values()].flat())], ["graph of a function", summed(graphs)]]),
  bundle_bytes: readdirSync(dist).reduce((sum, name) => sum + gzipSync(readFileSync(dist + name), { level: 9 }).length, 0),
  flame_ms: has.chains ? await flameTime() : null,
  speedscope: speedscope && has.chains ? await speedscopeTime(speedscope) : null,
  problems,
};
await browser.close();
console.log(JSON.stringify(result));
process.exit(0);
