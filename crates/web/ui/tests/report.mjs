// Tests a static report in Chromium: node tests/report.mjs FILE.html [URL]
//
// FILE.html is what `dioptra web --export FILE.html RECORDING` writes. URL is the address of `dioptra web RECORDING`: with it
// the numbers in both pages are compared.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import axe from "axe-core";
import { open, settle } from "./browser.mjs";
import { attack } from "./policy.mjs";

const [file, url] = process.argv.slice(2);
const address = pathToFileURL(resolve(file)).href;
const VIEWS = ["summary", "hotspots", "function", "flame", "tree", "butterfly", "timeline"];
const MOST_BYTES = 5_000_000;

const tests = [];
const test = (name, body) => tests.push({ name, body });
const show = async (page, hash, base = address) => { await page.goto(`${base}#/${hash}`); await settle(page); };
const can = async (page, view) => (await page.locator(`nav a[href^="#/${view}"]`).getAttribute("aria-disabled")) !== "true";
const alerts = (page) => page.locator("[role=alert]").allTextContents();
const functions = (page) => page.locator('[role=grid][aria-label="Functions"]');

/** The key of the function with the most samples of its own; empty where no function has any. */
async function hottest(page) {
  await show(page, "summary");
  const first = page.locator('[aria-label="Hottest: Functions"] li button').first();
  if ((await first.count()) === 0) return "";
  await first.click();
  await page.waitForFunction(() => location.hash.includes("open="));
  return new URLSearchParams(decodeURIComponent(new URL(page.url()).hash).split("?")[1]).get("open");
}

test("the report is small", async () => {
  const { size } = statSync(file);
  assert(size < MOST_BYTES, `${size} bytes`);
});

test("each view shows something, asks nobody, and axe finds no violation", async ({ page, requests }) => {
  const key = await hottest(page);
  for (const theme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: theme });
    for (const view of VIEWS) {
      if (!(await can(page, view))) continue;
      await show(page, `${view}?open=${encodeURIComponent(key)}`);
      assert.deepEqual(await alerts(page), [], view);
      assert((await page.locator("main").innerText()).trim().length > 20 || view === "flame", view);
      assert.equal(await page.locator(".report-mark").count(), 1);
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      assert.deepEqual(violations.map((each) => `${theme} ${view}: ${each.id}: ${each.nodes[0].target.join(" ")}`), []);
    }
  }
  assert.deepEqual(requests.filter((each) => !/^(file|data|blob):/.test(each)), []);
});

test("the summary says what the report holds and lacks", async ({ page }) => {
  await show(page, "summary");
  const card = await page.locator('[aria-label="This report"]').innerText();
  assert.match(card, /In it/);
  assert.match(card, /Not in it/);
  assert.match(card, /open the recording with dioptra web/);
});

test("tables are sorted, filtered and saved from the stored rows", async ({ page }) => {
  await show(page, "hotspots");
  const rows = functions(page).locator(".rows .row .cell.main .label");
  if ((await rows.count()) === 0) return;
  const name = await rows.first().innerText();
  await functions(page).locator(".titles .title.main button").first().click();
  await settle(page);
  const shares = async () => (await functions(page).locator(".rows .row .cell.number:first-child").allTextContents()).map((text) => Number.parseFloat(text)).filter((value) => !Number.isNaN(value));
  assert.deepEqual(await alerts(page), []);
  await page.goBack();
  await settle(page);
  const falling = await shares();
  assert.deepEqual(falling, [...falling].sort((a, b) => b - a));
  const wanted = name.replace(/<?….*/, "").slice(0, 20);
  await page.locator("input.filter").first().fill(wanted);
  await settle(page);
  const left = await rows.allTextContents();
  assert(left.length > 0 && left.every((each) => each.includes("…") || each.toLowerCase().includes(wanted.toLowerCase())), `${wanted}: ${left}`);
  assert.match(await functions(page).locator(".totals").innerText(), /Rows that pass the filter/);
  await page.locator("input.filter").first().fill("zzz no such function zzz");
  await page.waitForFunction(() => document.body.innerText.includes("No function passes the filter"));
  await page.locator("button:text-is('.*')").click();
  await page.locator("input.filter").first().fill("([");
  await page.waitForFunction(() => document.querySelector("input.filter").getAttribute("aria-invalid") === "true");
  await page.locator("input.filter").first().fill("");
  await settle(page);
  const tools = page.locator(".tools").nth(1);
  for (const format of ["CSV", "JSON"]) {
    await tools.locator(".menu > button", { hasText: "Save" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), tools.locator(".panel button", { hasText: format }).click()]);
    assert(statSync(await download.path()).size > 100);
    await page.keyboard.press("Escape");
  }
});

test("trees open, and a selection is stored or says kindly that it is not", async ({ page }) => {
  await show(page, "hotspots");
  const upper = page.locator("[role=treegrid]").first();
  if ((await upper.locator(".rows .row .twisty").count()) === 0) return;
  const before = Number(await upper.getAttribute("aria-rowcount"));
  await upper.locator(".rows .row .twisty").first().click();
  await page.waitForFunction((n) => Number(document.querySelector("[role=treegrid]").getAttribute("aria-rowcount")) > n, before);
  await upper.locator(".rows .row:not(.hidden) .cell.number").first().click();
  await settle(page);
  assert.match(page.url(), /process=/);
  assert.deepEqual(await alerts(page), [], "the heaviest process is stored");
  await show(page, "hotspots?time=1..2");
  assert.match((await alerts(page)).join(), /not in the report/);
  assert.match((await alerts(page)).join(), /dioptra web/);
  await page.locator(".chips button", { hasText: "Clear all" }).click();
  await settle(page);
  assert.deepEqual(await alerts(page), []);
});

test("call trees open and the timeline zooms", async ({ page }) => {
  if (await can(page, "tree")) {
    await show(page, "tree");
    const tree = page.locator("[role=treegrid]").first();
    const before = Number(await tree.getAttribute("aria-rowcount"));
    const closed = await tree.locator('.rows .row[aria-expanded="false"]').count();
    await page.locator("button", { hasText: "Hottest path" }).first().click();
    if (closed > 0) await page.waitForFunction((n) => Number(document.querySelector("[role=treegrid]").getAttribute("aria-rowcount")) > n, before);
    await settle(page);
    assert.deepEqual(await alerts(page), []);
  }
  if (await can(page, "timeline")) {
    await show(page, "timeline");
    const canvas = page.locator(".lanes canvas, canvas").last();
    if ((await canvas.count()) === 0) return;
    await canvas.focus();
    await page.keyboard.press("+");
    await settle(page);
    assert.deepEqual(await alerts(page), []);
  }
});

test("names are inert, and the policy keeps scripts and requests out", async ({ page, problems }) => {
  for (const view of VIEWS) {
    if (!(await can(page, view))) continue;
    await show(page, view);
    const made = await page.evaluate(() => document.querySelectorAll("#page script, #page img, #page b, #page i, #page iframe, body > :not(#page, script, noscript)").length);
    assert.equal(made, 0, view);
  }
  assert.deepEqual(problems, []);
  await attack(page, ["http://127.0.0.1:9/", address, ...(url ? [`${new URL(url).origin}/api/status`] : [])]);
  // The browser has reported each of these attempts.
  assert(problems.some((problem) => problem.includes("Content Security Policy")), problems.join("\n"));
  problems.length = 0;
});

test("the numbers are the server's", async ({ page }) => {
  if (!url) return;
  const served = await open(url);
  const origin = `${new URL(url).origin}/`;
  const texts = async (which, base, hash, selector) => { await show(which, hash, base); return which.locator(selector).allInnerTexts(); };
  const key = encodeURIComponent(await hottest(page));
  for (const [hash, selector] of [
    ["summary", '[aria-label^="Hottest: "] li button'], ["summary", '[aria-label="Recording"], [aria-label="Events"], [aria-label="What to know about the numbers"]'],
    ["hotspots", '[aria-label="Functions"] .rows .row:not(.hidden), [role=treegrid] .rows .row:not(.hidden)'],
    ["hotspots?sort=function:asc", '[aria-label="Functions"] .rows .row:not(.hidden)'], ["hotspots?sort=module:desc", '[aria-label="Functions"] .rows .row:not(.hidden)'],
    ["hotspots?filter=e", '[aria-label="Functions"] .rows .row:not(.hidden), [aria-label="Functions"] .totals'],
    ["tree", "[role=treegrid] .rows .row:not(.hidden)"], ["tree?inverted=1", "[role=treegrid] .rows .row:not(.hidden)"], ["timeline", ".lane-names li"],
    [`function?open=${key}`, ".code-row, .function-title .shares"], [`butterfly?open=${key}`, "[role=treegrid] .rows .row:not(.hidden)"],
  ]) {
    if (!(await can(page, hash.split("?")[0]))) continue;
    // Rows that a report left out cannot be compared.
    if (hash.startsWith("hotspots?") && (await page.evaluate(() => document.body.innerText.includes("This report holds the first")))) continue;
    assert.deepEqual(await texts(page, address, hash, selector), await texts(served.page, origin, hash, selector), hash);
  }
  assert.deepEqual(served.problems, []);
  await served.browser.close();
});

let failed = 0;
const { browser, page, problems } = await open(address);
const requests = [];
page.on("request", (request) => requests.push(request.url()));
for (const { name, body } of tests) {
  const began = Date.now();
  try {
    await page.goto("about:blank");
    await page.goto(address);
    await settle(page);
    await body({ page, problems, requests });
    assert.deepEqual(problems, [], "what the page complained about");
    console.log(`ok      report: ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  report: ${name}\n${String(error.stack ?? error).split("\n").slice(0, 25).join("\n")}`);
    await page.screenshot({ path: `${process.env.SHOTS ?? "/tmp"}/failed-report-${failed}.png` }).catch(() => {});
    problems.length = 0;
  }
}
await browser.close();
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
