// Opens every view on each recording of a server: node tests/recordings.mjs URL
//
// URL is what `dioptra web FILE… --no-open` prints. A view that a recording has no data for must say so; no view may complain.

import assert from "node:assert/strict";
import axe from "axe-core";
import { open, settle } from "./browser.mjs";

const address = process.argv[2];
const origin = new URL(address).origin;
const VIEWS = ["summary", "hotspots", "function", "flame", "tree", "butterfly", "timeline"];

const { browser, page, problems } = await open(address);
const foreign = [];
page.on("request", (request) => { if (!request.url().startsWith(`${origin}/`) && !/^(data|blob):/.test(request.url())) foreign.push(request.url()); });

/** Waits until all recordings are loaded, and returns their labels. */
async function labels() {
  return page.evaluate(async () => {
    const headers = { "X-Dioptra-Token": localStorage.getItem("dioptra-token") };
    for (;;) {
      const { profiles } = await (await fetch("/api/status", { headers })).json();
      if (profiles.every((each) => each.state === "ready" || each.state === "failed")) return profiles.map((each) => ({ label: each.label, state: each.state }));
      await new Promise((done) => setTimeout(done, 200));
    }
  });
}

const show = async (hash) => {
  await page.goto(`${origin}/#/${hash}`);
  await page.waitForFunction(() => !document.querySelector("main .message[role=status]"), null, { timeout: 60_000 });
  await settle(page);
};
const alerts = () => page.locator("[role=alert]").allTextContents();

/** The key of the function with the most samples of its own; empty where there are no samples. */
async function hottest(profile) {
  await show(`summary?profile=${profile}`);
  const first = page.locator('[aria-label="Hottest: Functions"] li button').first();
  if ((await first.count()) === 0) return "";
  await first.click();
  await page.waitForFunction(() => location.hash.includes("open="));
  return new URLSearchParams(decodeURIComponent(new URL(page.url()).hash).split("?")[1]).get("open");
}

async function check(profile) {
  const key = await hottest(profile);
  const lacking = [];
  for (const view of VIEWS) {
    await show(`${view}?profile=${profile}${key ? `&open=${encodeURIComponent(key)}` : ""}`);
    const link = page.locator(`nav a[href^="#/${view}"]`);
    const text = (await page.locator("main").innerText()).trim();
    if ((await link.getAttribute("aria-disabled")) === "true") {
      // Opened by its address all the same, the view says what is missing.
      assert.match(await link.getAttribute("title"), /^Needs /, view);
      assert.match((await alerts()).join(" "), /^Needs /, view);
      lacking.push(view);
    } else {
      assert.deepEqual(await alerts(), [], view);
      assert(text.length > 10 || ["flame", "timeline"].includes(view), `${view}: ${text}`);
    }
    const made = await page.evaluate(() => document.querySelectorAll("script:not([src]), #page img, #page b, #page i, #page iframe").length);
    assert.equal(made, 0, `${view}: a name became markup`);
    await page.evaluate(axe.source);
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(violations.map((each) => `${view}: ${each.id}: ${each.nodes[0].target.join(" ")}`), []);
  }
  if (!key) {
    await show(`hotspots?profile=${profile}`);
    assert.match(await page.locator("main").innerText(), /No samples/);
  }
  assert.deepEqual(problems, [], "what the page complained about");
  assert.deepEqual(foreign, [], "requests to others");
  return lacking;
}

let failed = 0;
for (const [profile, { label, state }] of (await labels()).entries()) {
  const began = Date.now();
  try {
    assert.equal(state, "ready");
    const lacking = await check(profile);
    console.log(`ok      ${label}${lacking.length > 0 ? `, without ${lacking.join(", ")}` : ""} (${Date.now() - began} ms)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${label}\n${String(error.stack ?? error).split("\n").slice(0, 25).join("\n")}`);
    await page.screenshot({ path: `${process.env.SHOTS ?? "/tmp"}/failed-recording-${profile}.png` }).catch(() => {});
    problems.length = 0;
  }
}
await browser.close();
console.log(failed === 0 ? "all passed" : `${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
