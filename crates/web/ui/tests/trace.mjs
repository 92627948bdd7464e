// Tests of the views of a trace. They run where the server has one: on the mock server, and on `dioptra web perf.data dioptra.trace`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import axe from "axe-core";

const TRACE_VIEWS = ["trace", "statistics", "paths", "calls", "replay"];

export function traceTests(test, { settle, origin, hash, table }) {
  /** The index of the trace, or null; the page then shows it. */
  const open = async (page) => {
    const kinds = await page.evaluate(async () => (await (await fetch("/api/status", { headers: { "X-Dioptra-Token": localStorage.getItem("dioptra-token") } })).json()).profiles.map((each) => each.kind));
    const index = kinds.indexOf("trace");
    return index < 0 ? null : { index, hasProfile: kinds.includes("profile") };
  };
  const show = async (page, index, view, rest = "") => {
    await page.goto(`${origin}/#/${view}?profile=${index}${rest ? `&${rest}` : ""}`);
    await page.waitForFunction(() => !document.querySelector("main .message[role=status]"));
    await settle(page);
  };
  const longest = async (page, index) => {
    await show(page, index, "trace");
    await page.locator('[aria-label="Functions by total time"] li button').first().click();
    await page.waitForFunction(() => location.hash.includes("open="));
    await settle(page);
    return new URLSearchParams(hash(page).split("?")[1]).get("open");
  };
  const traceTest = (name, body) => test(`trace: ${name}`, async ({ page }) => { const trace = await open(page); if (trace) await body(page, trace); });

  traceTest("each view shows something, and axe finds no violation", async (page, { index }) => {
    const key = encodeURIComponent(await longest(page, index));
    const problems = [];
    for (const theme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: theme });
      for (const view of [...TRACE_VIEWS, "paths&form=tree"]) {
        const [name, rest = ""] = view.split("&");
        await show(page, index, name, `open=${key}${rest ? `&${rest}` : ""}`);
        assert.equal(await page.locator("[role=alert]").count(), 0, `${view}: ${await page.locator("[role=alert]").allTextContents()}`);
        assert.equal(await page.locator("nav a[aria-current=page]").count(), 1, view);
        const made = await page.evaluate(() => document.querySelectorAll("script:not([src]), #page img, #page b, #page i, #page iframe").length);
        assert.equal(made, 0, view);
        await page.evaluate(axe.source);
        const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
        for (const violation of result.violations) problems.push(`${theme} ${view}: ${violation.id}: ${violation.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.failureSummary.split("\n")[1] ?? ""}`).join(" | ")}`);
      }
    }
    assert.deepEqual(problems, []);
  });

  traceTest("statistics sort and filter, and lead to slow calls", async (page, { index, hasProfile }) => {
    await longest(page, index);
    const slowest = table(page, "Slowest calls");
    assert((await slowest.locator(".rows .row:not(.hidden)").count()) > 0);
    await page.locator(".actions button", { hasText: /^Timeline$/ }).click();
    await settle(page);
    assert.match(hash(page), /^#\/calls\?.*span=\d+\.\.\d+.*at=\d+/);
    assert.equal(await page.locator('.actions[aria-label="Call"]').count(), 1, "the call is picked");
    await page.locator(".actions button", { hasText: "Replay" }).click();
    await settle(page);
    assert.match(hash(page), /^#\/replay/);
    await page.waitForFunction(() => document.querySelector('.actions[aria-label="Call"]'));
    await page.locator(".actions button", { hasText: "Only its time" }).click();
    await settle(page);
    assert.match(hash(page), /time=\d+\.\.\d+/);
    if (hasProfile && (await page.locator(".actions button", { hasText: "Samples of this call" }).count()) > 0) {
      await page.locator(".actions button", { hasText: "Samples of this call" }).click();
      await page.waitForFunction(() => location.hash.startsWith("#/hotspots"));
      await settle(page);
      assert.match(hash(page), /time=\d+\.\.\d+/);
      await page.locator(".chips button", { hasText: "Calls of this time" }).click();
      await page.waitForFunction(() => location.hash.startsWith("#/calls"));
      await settle(page);
      assert.match(hash(page), new RegExp(`profile=${index}`));
    }
    await show(page, index, "statistics");
    await page.keyboard.press("/");
    await page.keyboard.type("zzz no such function zzz");
    await page.waitForFunction(() => document.body.innerText.includes("No function passes the filter"));
  });

  traceTest("timeline: keyboard, zoom, brush and files", async (page, { index }) => {
    await show(page, index, "calls");
    const canvas = page.locator(".calls-box canvas");
    await canvas.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    assert.match(await page.locator(".calls-box [role=status]").innerText(), /level 2/);
    await page.keyboard.press("Enter");
    await settle(page);
    assert.match(hash(page), /span=\d+\.\.\d+/);
    await page.keyboard.press("0");
    await settle(page);
    assert.doesNotMatch(hash(page), /span=/);
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.5, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await settle(page);
    assert.match(hash(page), /time=\d+\.\.\d+/);
    await page.locator(".menu > button", { hasText: "Save" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.locator(".panel button", { hasText: "SVG" }).click()]);
    const svg = readFileSync(await download.path(), "utf8");
    assert.equal(await page.evaluate((text) => new DOMParser().parseFromString(text, "image/svg+xml").querySelectorAll("parsererror").length, svg), 0);
  });

  traceTest("replay: a link opens at a time, and a search goes on from there", async (page, { index }) => {
    await show(page, index, "replay");
    const rows = table(page, "Calls in the order of time");
    const total = Number(await rows.getAttribute("aria-rowcount"));
    assert(total > 2);
    const cell = await rows.locator(".rows .row:not(.hidden) .cell.main .label").first().innerText();
    const name = cell.replace(/[(){};/*]/g, " ").trim().split(/\s+/)[0];
    await page.locator("[data-filter]").fill(name);
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => document.querySelector('[role=treegrid] .row.selected') !== null);
    await show(page, index, "replay", "at=1000");
    await page.waitForFunction(() => document.querySelector('[role=treegrid] .row.selected') !== null);
  });
}
