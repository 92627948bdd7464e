// Tests of the views of metrics and changes, of the choice of metrics, and of the flame graph's colours of changes.

import assert from "node:assert/strict";

export function metricsTests({ test, table, show, hash, can, settle, hottest }) {
  const profiles = (page) => page.locator('select[aria-label="Compare with"]');

  test("metrics: intervals, rows, and the plot by keyboard", async ({ page }) => {
    await show(page, "metrics");
    if ((await page.locator("[role=alert]").count()) > 0) return;
    const rows = table(page, "Metrics");
    assert.match(await rows.innerText(), /±/);
    const plot = page.locator(".scatter canvas");
    if ((await plot.count()) === 0) return;
    await plot.focus();
    await page.keyboard.press("ArrowLeft");
    const said = await page.locator(".scatter [role=status]").innerText();
    assert.match(said, /% of the time/);
    await page.keyboard.press("Enter");
    await settle(page);
    assert.match(hash(page), /open=/);
    assert.equal(await rows.locator(".row.selected").count(), 1, "the plot's point selects its row");
    await page.locator('button:text-is("log")').click();
    assert.match(hash(page), /plotLog=1/);
    await page.reload();
    await settle(page);
    assert.equal(await page.locator('button:text-is("log")').getAttribute("aria-pressed"), "true");
    await page.locator('select[aria-label="Rows of the metrics"]').selectOption("module");
    await settle(page);
    assert.match(hash(page), /metricRows=module/);
  });

  test("metrics: the plot is saved as a picture with names as text", async ({ page }) => {
    await show(page, "metrics");
    if ((await page.locator(".scatter canvas").count()) === 0) return;
    await page.locator('[aria-label="Scatter plot"] button', { hasText: "Save" }).click();
    const [file] = await Promise.all([page.waitForEvent("download"), page.locator("button", { hasText: "SVG picture" }).click()]);
    const chunks = [];
    for await (const chunk of await file.createReadStream()) chunks.push(chunk);
    const svg = Buffer.concat(chunks).toString();
    assert(svg.startsWith("<svg") && svg.includes("<circle") && !svg.includes("<script"), svg.slice(0, 200));
  });

  test("metrics: outliers are reached by n", async ({ page }) => {
    await show(page, "metrics");
    const note = await page.locator('[aria-label="Scatter plot"] .note').textContent().catch(() => "");
    if (!/outlier/.test(note ?? "")) return;
    await page.locator(".scatter canvas").focus();
    await page.keyboard.press("n");
    assert.match(await page.locator(".scatter [role=status]").innerText(), /an outlier/);
  });

  test("hotspots: shares are of what the reader chooses", async ({ page }) => {
    await show(page, "hotspots");
    const choice = page.locator('select[aria-label="What shares are of"]').last();
    const values = await choice.locator("option").evaluateAll((options) => options.map((option) => option.value));
    assert(values.includes("total"), values.join());
    for (const value of values.slice(1)) {
      const [asked] = await Promise.all([page.waitForRequest((request) => request.url().includes("/api/table") && request.url().includes("by=function")), choice.selectOption(value)]);
      assert.equal(new URL(asked.url()).searchParams.get("percent"), value);
      await settle(page);
      assert.equal(await page.locator("[role=alert]").count(), 0, value);
    }
    await choice.selectOption("");
    await settle(page);
  });

  test("changes: stars, normalization, and the other way round", async ({ page }) => {
    await show(page, "summary");
    if ((await profiles(page).count()) === 0 || !(await can(page, "diff"))) return;
    await show(page, "diff");
    // With two profiles there is nothing to choose. The first option is the invitation to choose.
    if ((await profiles(page).locator("option").count()) > 2) {
      await profiles(page).selectOption("1");
      await settle(page);
    }
    assert.match(hash(page), /with=1/);
    const rows = table(page, "Changes");
    assert((await rows.locator(".rows .row:not(.hidden)").count()) > 1);
    await page.locator('select[aria-label="Normalize by"]').selectOption("time");
    await settle(page);
    assert.match(hash(page), /normalize=time/);
    assert.equal(await page.locator("[role=alert]").count(), 0);
    await page.locator("button", { hasText: "⇄" }).click();
    await settle(page);
    assert.match(hash(page), /profile=1.*with=0/);
  });

  test("changes: the flame graph has a legend and lists what is new", async ({ page }) => {
    await show(page, "summary");
    if ((await profiles(page).count()) === 0 || !(await can(page, "flame"))) return;
    await show(page, "flame");
    assert.equal(await page.locator('[aria-label="Legend of changes"]').count(), 0);
    await profiles(page).selectOption("1");
    await settle(page);
    assert.match(hash(page), /with=1/);
    const legend = page.locator('[aria-label="Legend of changes"]');
    assert.match(await legend.innerText(), /gone/);
    const fresh = legend.locator("button", { hasText: "New there" });
    if ((await fresh.count()) > 0) {
      await fresh.click();
      assert((await page.locator(".new-frames li").count()) > 0);
    }
  });

  test("changes: call trees and callers have the change of each node", async ({ page }) => {
    await show(page, "summary");
    if ((await profiles(page).count()) === 0 || !(await can(page, "tree"))) return;
    for (const [view, label] of [["tree", "Call tree"], ["butterfly", "Callees"]]) {
      const open = view === "butterfly" ? `&open=${encodeURIComponent(await hottest(page))}` : "";
      await show(page, `${view}?with=1${open}`);
      const rows = page.locator(`[role=treegrid][aria-label="${label}"]`);
      const titles = await rows.locator(".titles .label").allInnerTexts();
      assert(titles.includes("total there") && titles.includes("points"), titles.join());
      // The change is the difference of the two shares.
      const at = (title) => titles.indexOf(title);
      const cells = await rows.locator(".rows .row:not(.hidden)").first().locator("[role=gridcell], [role=rowheader]").evaluateAll((all) => all.map((cell) => cell.title || cell.innerText));
      const number = (title) => Number.parseFloat(cells[at(title)].replace("−", "-").replaceAll(",", ""));
      assert(Math.abs(number("total there") - number("total") - number("points")) < 0.02, cells.join(" | "));
      assert.match(await page.locator(".tools .note", { hasText: "paths that only it has" }).first().innerText(), /% of the other profile/);
      assert.equal(await page.locator("[role=alert]").count(), 0);
    }
    // Changed call stacks are not compared.
    await show(page, "tree?with=1&fold=all");
    assert.equal(await page.locator("[role=alert]").count(), 0);
  });

  test("hotspots: metrics are chosen and stay in the address", async ({ page }) => {
    await show(page, "hotspots");
    await page.locator("button", { hasText: /^Metrics/ }).first().click();
    const boxes = page.locator(".picker-list input:enabled");
    if ((await boxes.count()) === 0) return;
    await boxes.first().check();
    await settle(page);
    assert.match(hash(page), /metric=/);
    assert.equal(await page.locator("[role=alert]").count(), 0);
    await boxes.first().uncheck();
    assert.doesNotMatch(hash(page), /metric=/);
  });
}
