// Opens every view of a trace: node tests/traces.mjs URL
//
// URL is what `dioptra web PROFILE TRACE --no-open` prints, or the file that `--export` writes of both. The trace is of a program that calls `descend` 1000 times and `bottom`
// 100 times.

import assert from "node:assert/strict";
import axe from "axe-core";
import { open, settle } from "./browser.mjs";

const address = process.argv[2];
const isReport = address.startsWith("file:");
const base = isReport ? address : `${new URL(address).origin}/`;
const TRACE = 1;
const { browser, page, problems } = await open(address);

const show = async (hash) => {
  await page.goto(`${base}#/${hash}`);
  await page.waitForFunction(() => !document.querySelector("main .message[role=status]"), null, { timeout: 60_000 });
  await settle(page);
};
const hash = () => decodeURIComponent(new URL(page.url()).hash);

const tests = {
  async "each view shows something, without violations"() {
    for (const view of ["trace", "statistics", "paths", "calls", "replay"]) {
      await show(`${view}?profile=${TRACE}`);
      assert.deepEqual(await page.locator("[role=alert]").allTextContents(), [], view);
      assert.equal(await page.locator("nav a[aria-current=page]").count(), 1, view);
      await page.evaluate(axe.source);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      assert.deepEqual(violations.map((each) => `${view}: ${each.id}: ${each.nodes[0].target.join(" ")}`), []);
    }
  },
  async "statistics: calls are counted, and a function's slowest calls lead on"() {
    await show(`statistics?profile=${TRACE}`);
    const row = (name) => page.locator('[role=row]', { has: page.locator(`text="${name}"`) }).first();
    assert.match(await row("descend").innerText(), /1,000/);
    assert.match(await row("bottom").innerText(), /(^|\s)100(\s|$)/);
    await row("descend").click();
    await settle(page);
    assert.match(hash(), /open=/);
    const link = page.url();
    await page.goto("about:blank");
    await page.goto(link);
    await settle(page);
    assert((await page.locator("main [role=row]").count()) > 4, "the slowest calls are there after a deep link");
  },
  async "replay: calls stand in the order of time, and a search finds one"() {
    await show(`replay?profile=${TRACE}`);
    assert.match(await page.locator("main").innerText(), /main\(\) \{/);
    const find = page.locator("main input[type=search], main input").first();
    await find.fill("bottom");
    await find.press("Enter");
    await settle(page);
    await page.waitForFunction(() => /bottom\(\)/.test(document.querySelector("main").innerText));
  },
  async "replay: the first rows are there before all are counted"() {
    // A report holds the rows, and has nothing to count.
    if (isReport) return;
    let count;
    const counted = new Promise((resolve) => { count = resolve; });
    const slow = async (route) => {
      if (!route.request().url().includes("preview=1")) await counted;
      await route.continue();
    };
    await page.route("**/api/trace/replay*", slow);
    await page.goto("about:blank");
    // An earlier test has counted the rows without a selection of time.
    await page.goto(`${base}#/replay?profile=${TRACE}&time=0..999999999999`);
    await page.waitForFunction(() => /main\(\) \{/.test(document.querySelector("main")?.innerText ?? ""));
    assert.match(await page.locator("main").innerText(), /the first 1,000 rows; counting the others/);
    count();
    await page.waitForFunction(() => !/counting the others/.test(document.querySelector("main").innerText));
    assert.doesNotMatch(await page.locator("main").innerText(), /the first 1,000 rows/);
    await page.unroute("**/api/trace/replay*", slow);
  },
  async "graph: calls and time, as graph and as tree"() {
    await show(`paths?profile=${TRACE}&form=tree&weight=calls`);
    assert.match(await page.locator("main").innerText(), /main/);
  },
  async "a trace is not offered for comparison"() {
    await show("hotspots?profile=0");
    assert.equal(await page.locator('select[aria-label="Compare with"]').count(), 0);
    await show(`trace?profile=${TRACE}`);
    assert.equal(await page.locator('select[aria-label="Compare with"]').count(), 0);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  const began = Date.now();
  try {
    await test();
    assert.deepEqual(problems, [], "what the page complained about");
    console.log(`ok      ${name} (${Date.now() - began} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${String(error.stack ?? error).split("\n").slice(0, 20).join("\n")}`);
    await page.screenshot({ path: `${process.env.SHOTS ?? "/tmp"}/failed-trace.png` }).catch(() => {});
    problems.length = 0;
  }
}
await browser.close();
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
