// Tests the page in Chromium: node tests/page.mjs [URL] [PART…]
//
// URL is what `dioptra web FILE --no-open` prints; without one the tests start the mock server. PART runs only tests whose
// names contain the text. The tests use what the profile has, so they run on any profile with samples.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { traceTests } from "./trace.mjs";
import axe from "axe-core";
import { open, settle } from "./browser.mjs";
import { timeTests } from "./time.mjs";
import { metricsTests } from "./metrics.mjs";
import { comparedTests } from "./compared.mjs";
import { attack } from "./policy.mjs";

const given = process.argv.slice(2);
let address = given.find((each) => each.startsWith("http"));
const parts = given.filter((each) => !each.startsWith("http"));
let server = null;
if (!address) {
  const { mock, TOKEN } = await import("./mock.mjs");
  await new Promise((resolve) => mock.listen(0, "127.0.0.1", resolve));
  server = mock;
  address = `http://127.0.0.1:${mock.address().port}/?token=${TOKEN}`;
}
const origin = new URL(address).origin;

const tests = [];
const test = (name, body) => tests.push({ name, body });

const VIEWS = ["summary", "hotspots", "function", "flame", "tree", "butterfly", "timeline", "metrics", "diff"];
const table = (page, label) => page.locator(`[role=grid][aria-label="${label}"], [role=treegrid][aria-label="${label}"]`);
const show = async (page, hash) => { await page.goto(`${origin}/#/${hash}`); await settle(page); };
const hash = (page) => decodeURIComponent(new URL(page.url()).hash);
const can = async (page, view) => (await page.locator(`nav a[href^="#/${view}"]`).getAttribute("aria-disabled")) !== "true";

/** The key of the function with the most samples of its own, from the address after a click. */
async function hottest(page) {
  await show(page, "summary");
  await page.locator('[aria-label="Hottest: Functions"] li button').first().click();
  await page.waitForFunction(() => location.hash.includes("open="));
  return new URLSearchParams(hash(page).split("?")[1]).get("open");
}

test("the token leaves the address", async ({ page }) => {
  assert(!page.url().includes("token"), page.url());
  await page.reload();
  await settle(page);
  assert.equal(await page.locator("[role=alert]").count(), 0);
});

test("each view shows something and complains about nothing", async ({ page }) => {
  const key = await hottest(page);
  for (const view of VIEWS) {
    if (!(await can(page, view))) continue;
    await show(page, `${view}?open=${encodeURIComponent(key)}`);
    assert.equal(await page.locator("[role=alert]").count(), 0, `${view}: ${await page.locator("[role=alert]").allTextContents()}`);
    assert((await page.locator("main").innerText()).trim().length > 20 || view === "flame", view);
  }
});

test("accessibility: axe finds no violation", async ({ page }) => {
  const key = await hottest(page);
  // axe runs as the test's own code; the page's policy allows no script but its own.
  const problems = [];
  for (const theme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: theme });
    for (const view of VIEWS) {
      if (!(await can(page, view))) continue;
      await show(page, `${view}?open=${encodeURIComponent(key)}`);
      await page.evaluate(axe.source);
      const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      for (const violation of result.violations) problems.push(`${theme} ${view}: ${violation.id}: ${violation.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.failureSummary.split("\n")[1] ?? ""}`).join(" | ")}`);
    }
  }
  assert.deepEqual(problems, []);
});

test("hotspots: sorting, filter, and the totals row", async ({ page }) => {
  await show(page, "hotspots");
  const functions = table(page, "Functions");
  const name = await functions.locator(".rows .row .cell.main .label").first().innerText();
  await functions.locator(".titles .title.main button").first().click();
  await settle(page);
  assert.match(hash(page), /sort=function:asc/);
  const names = await functions.locator(".rows .row .cell.main .label").allTextContents();
  assert(names.length > 3);
  await page.goBack();
  await settle(page);
  assert.doesNotMatch(hash(page), /sort=/);
  assert.equal(await functions.locator(".rows .row .cell.main .label").first().innerText(), name);
  await page.keyboard.press("/");
  await page.keyboard.type("zzz no such function zzz");
  await page.waitForFunction(() => document.body.innerText.includes("No function passes the filter"));
  await page.locator("input.filter").first().fill(name.replace(/<….*/, "").slice(0, 30));
  await settle(page);
  assert((await functions.locator(".rows .row").count()) >= 1);
  assert.match(await functions.locator(".totals").innerText(), /Rows that pass the filter/);
  await page.locator("button:text-is('.*')").click();
  await page.locator("input.filter").first().fill("([");
  await page.waitForFunction(() => document.querySelector("input.filter").getAttribute("aria-invalid") === "true");
});

test("hotspots: keyboard, opening a function, and the back button", async ({ page }) => {
  await show(page, "hotspots");
  const functions = table(page, "Functions");
  await functions.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  assert.match(await functions.getAttribute("aria-activedescendant"), /-2$/);
  await page.keyboard.press("End");
  await settle(page);
  const total = Number(await functions.getAttribute("aria-rowcount"));
  await page.waitForFunction((last) => [...document.querySelectorAll('[aria-label="Functions"] .rows .row')].some((row) => Number(row.getAttribute("aria-rowindex")) === last && row.querySelector(".label")), total);
  await page.keyboard.press("Home");
  await page.keyboard.press("Enter");
  await settle(page);
  assert.match(hash(page), /^#\/function\?.*open=/);
  await page.goBack();
  assert.match(hash(page), /^#\/hotspots/);
});

test("a selection holds in every view and in the address", async ({ page }) => {
  await show(page, "hotspots");
  const upper = page.locator("[role=treegrid]").first();
  const all = await table(page, "Functions").locator(".totals").innerText();
  await upper.locator(".rows .row:not(.hidden)").nth((await upper.locator(".rows .row:not(.hidden)").count()) > 1 ? 1 : 0).locator(".cell.number").first().click();
  await settle(page);
  assert.match(hash(page), /process=/);
  assert.equal(await page.locator(".chips .chip").count(), 1);
  const chip = await page.locator(".chips .chip .what").innerText();
  await page.reload();
  await settle(page);
  assert.equal(await page.locator(".chips .chip .what").innerText(), chip, "the name of a selected process survives a reload");
  await page.keyboard.press("1");
  await settle(page);
  assert.match(hash(page), /^#\/summary\?.*process=/);
  await page.locator(".chips button", { hasText: "Clear all" }).click();
  await show(page, "hotspots");
  assert.equal(await table(page, "Functions").locator(".totals").innerText(), all);
});

test("trees open and close by mouse and keyboard", async ({ page }) => {
  await show(page, "hotspots");
  const upper = page.locator("[role=treegrid]").first();
  const before = Number(await upper.getAttribute("aria-rowcount"));
  await upper.locator(".rows .row .twisty").first().click();
  await page.waitForFunction((n) => Number(document.querySelector("[role=treegrid]").getAttribute("aria-rowcount")) > n, before);
  await upper.focus();
  await page.keyboard.press("Home");
  await page.keyboard.press("ArrowLeft");
  await page.waitForFunction((n) => Number(document.querySelector("[role=treegrid]").getAttribute("aria-rowcount")) === n, before);
});

test("columns: groups expand, measures and standard errors toggle", async ({ page }) => {
  await show(page, "hotspots");
  const functions = table(page, "Functions");
  const tools = page.locator(".tools").nth(1);
  const columns = Number(await functions.getAttribute("aria-colcount"));
  await tools.locator("button", { hasText: "weight" }).click();
  assert(Number(await functions.getAttribute("aria-colcount")) < columns);
  await functions.locator(".groups button").first().click();
  assert((await functions.locator(".groups button[aria-expanded=true]").count()) === 1);
  await tools.locator("button", { hasText: "±" }).click();
  await settle(page);
  assert((await functions.locator(".cell .error").count()) > 0);
  await tools.locator("button", { hasText: "Columns" }).click();
  await tools.locator(".panel button", { hasText: "As at first" }).click();
  assert.equal(Number(await functions.getAttribute("aria-colcount")), columns);
});

test("tables are saved as CSV and JSON", async ({ page }) => {
  await show(page, "hotspots");
  const tools = page.locator(".tools").nth(1);
  for (const format of ["CSV", "JSON"]) {
    await tools.locator(".menu > button", { hasText: "Save" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), tools.locator(".panel button", { hasText: format }).click()]);
    const content = readFileSync(await download.path(), "utf8");
    assert(content.length > 100 && download.suggestedFilename().endsWith(format.toLowerCase()));
    if (format === "JSON") assert(JSON.parse(content).columns.length > 0);
    await page.keyboard.press("Escape");
  }
});

test("function: lines, instructions and blocks are linked", async ({ page }) => {
  const key = await hottest(page);
  await show(page, `function?open=${encodeURIComponent(key)}`);
  const assembly = page.locator('[aria-label="Assembly"]');
  assert((await assembly.locator(".code-row").count()) > 0, "instructions");
  const blocks = await page.locator(".graph .node").count();
  if (blocks > 0) {
    assert.equal(await page.locator(".graph .node.picked").count(), 1, "the hottest block is picked on opening");
    await page.locator(".graph").focus();
    await page.keyboard.press("ArrowDown");
    assert.equal(await page.locator(".graph .node.picked").count(), 1);
  }
  await assembly.locator(".code-row:not(.hidden):not(.block-row):not(.inlined-row)").first().click();
  assert((await assembly.locator(".code-row.picked").count()) >= 1);
  const source = page.locator('[aria-label^="Source "]');
  if ((await source.count()) > 0) {
    await source.locator(".code-row:not(.hidden):not(.cold)").first().click();
    assert((await source.locator(".code-row.picked").count()) >= 1, "line");
    await page.waitForTimeout(100);
    assert((await assembly.locator(".code-row.picked").count()) >= 1, "its instructions");
  }
  await page.locator("button", { hasText: "Intel" }).click();
  await settle(page);
  assert.equal(await page.locator("[role=alert]").count(), 0);
});

test("flame graph: zoom, search, focus, files", async ({ page }) => {
  if (!(await can(page, "flame"))) return;
  await show(page, "flame");
  const canvas = page.locator(".flame canvas");
  await canvas.focus();
  await page.keyboard.press("ArrowDown");
  const said = await page.locator(".flame [role=status]").innerText();
  assert.match(said, /%/);
  await page.keyboard.press("Enter");
  await settle(page);
  await page.keyboard.press("Escape");
  await settle(page);
  await page.locator("[data-filter]").fill("a");
  await page.waitForFunction(() => document.body.innerText.includes("of what is drawn"));
  await page.locator(".menu > button", { hasText: "Save" }).click();
  const [download] = await Promise.all([page.waitForEvent("download"), page.locator(".panel button", { hasText: "SVG" }).click()]);
  const svg = readFileSync(await download.path(), "utf8");
  assert(svg.startsWith("<svg") && svg.trimEnd().endsWith("</svg>"));
  assert.equal(await page.evaluate((text) => new DOMParser().parseFromString(text, "image/svg+xml").querySelectorAll("parsererror").length, svg), 0);
  await page.locator("[data-filter]").fill("");
  await canvas.focus();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("f");
  await settle(page);
  assert.match(hash(page), /focus=/);
  await page.locator("button", { hasText: "Inverted" }).click();
  await settle(page);
  assert.match(hash(page), /inverted=1/);
  assert.equal(await page.locator("[role=alert]").count(), 0);
});

test("call tree and butterfly open rows", async ({ page }) => {
  if (!(await can(page, "tree"))) return;
  const key = await hottest(page);
  await show(page, "tree");
  const before = Number(await page.locator("[role=treegrid]").first().getAttribute("aria-rowcount"));
  await page.locator("button", { hasText: "Hottest path" }).first().click();
  await page.waitForFunction((n) => Number(document.querySelector("[role=treegrid]").getAttribute("aria-rowcount")) > n, before);
  await show(page, `butterfly?open=${encodeURIComponent(key)}`);
  assert.equal(await page.locator("[role=treegrid]").count(), 2);
  for (const label of ["Callers", "Callees"]) assert((await table(page, label).locator(".rows .row").count()) >= 1, label);
});

test("timeline: the brush selects time for every view", async ({ page }) => {
  if (!(await can(page, "timeline"))) return;
  await show(page, "timeline");
  const canvas = page.locator(".lanes canvas").first();
  const box = await canvas.boundingBox();
  await page.mouse.move(box.x + box.width * 0.3, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.y + box.height / 2, { steps: 4 });
  await page.mouse.up();
  await settle(page);
  assert.match(hash(page), /time=\d+\.\.\d+/);
  await page.keyboard.press("2");
  await settle(page);
  assert.match(hash(page), /^#\/hotspots\?time=/);
  assert.equal(await page.locator(".chips .chip").count(), 1);
});

test("help opens and closes by keyboard", async ({ page }) => {
  await show(page, "summary");
  await page.keyboard.press("?");
  assert.equal(await page.locator("[role=dialog]").count(), 1);
  await page.keyboard.press("Escape");
  assert.equal(await page.locator("[role=dialog]").count(), 0);
});

test("names never become markup", async ({ page }) => {
  for (const view of VIEWS) {
    if (!(await can(page, view))) continue;
    await show(page, view);
    const made = await page.evaluate(() => document.querySelectorAll("script:not([src]), #page img, #page b, #page i, #page iframe").length);
    assert.equal(made, 0, view);
  }
});

timeTests({ test, show, hash, can, settle, table, hottest });
comparedTests({ axe, test, table, show, hash, can, settle, hottest, isMock: server !== null });
metricsTests({ test, table, show, hash, can, settle, hottest });
test("the policy keeps scripts and requests out", async ({ page, problems }) => {
  await show(page, "summary");
  assert.deepEqual(problems, []);
  await attack(page, ["http://127.0.0.1:9/", "http://localhost:9/", "https://example.invalid/"]);
  assert(problems.some((problem) => problem.includes("Content Security Policy")), problems.join("\n"));
  problems.length = 0;
});

let failed = 0;
traceTests(test, { settle, origin, hash, table });
for (const { name, body } of tests) {
  if (parts.length > 0 && !parts.some((part) => name.includes(part))) continue;
  const began = Date.now();
  const { browser, page, problems } = await open(address);
  try {
    await body({ page, problems });
    // The browser itself reports a request that was answered with an error; the tests above ask for one on purpose.
    const real = problems.filter((problem) => !/Failed to load resource: .* 400/.test(problem));
    assert.deepEqual(real, [], "what the page complained about");
    console.log(`ok      ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${String(error.stack ?? error).split("\n").slice(0, 25).join("\n")}`);
    await page.screenshot({ path: `${process.env.SHOTS ?? "/tmp"}/failed-${failed}.png` }).catch(() => {});
  }
  await browser.close();
}
server?.close();
server?.closeAllConnections();
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
