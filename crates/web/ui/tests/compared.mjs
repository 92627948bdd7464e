// Tests of comparisons in tables, functions and timelines, and of the flame graph's colours by a metric.

import assert from "node:assert/strict";

export function comparedTests({ axe, test, table, show, hash, can, settle, hottest, isMock }) {
  const profiles = (page) => page.locator('select[aria-label="Compare with"]');
  const hasOther = async (page) => { await show(page, "summary"); return (await profiles(page).count()) > 0; };
  const noAlert = async (page) => assert.deepEqual(await page.locator("[role=alert]").allTextContents(), []);

  test("changes: hotspots have the other profile's share and the change, which sorts", async ({ page }) => {
    if (!(await hasOther(page))) return;
    await show(page, "hotspots");
    const functions = table(page, "Functions");
    const titles = async () => (await functions.locator(".titles .label").allInnerTexts()).map((title) => title.replace(/ [▲▼]$/, ""));
    assert(!(await titles()).includes("points"));
    await profiles(page).selectOption("1");
    await settle(page);
    await noAlert(page);
    const now = await titles();
    for (const title of ["self", "B self", "points", "sig", "status"]) assert(now.includes(title), `${title}: ${now.join()}`);
    // The change is the difference of the two shares.
    const at = now.indexOf("B self");
    const cells = await functions.locator(".rows .row:not(.hidden)").first().locator("[role=gridcell], [role=rowheader]").evaluateAll((all) => all.map((cell) => cell.title || cell.innerText));
    const number = (place) => Number.parseFloat(cells[place].replace("−", "-").replaceAll(",", ""));
    assert(Math.abs(number(at) - number(at - 1) - number(at + 1)) < 1e-6, cells.join(" | "));
    await functions.locator(".titles .number .label").filter({ hasText: "points" }).last().click();
    await settle(page);
    assert.match(hash(page), /sort=b_(self|total)_percent_points/);
    await noAlert(page);
    assert((await functions.locator(".rows .cell.number.few").count()) > 0, "some changes are no larger than chance makes them");
    // The process table has the change, too, and files carry it.
    assert((await table(page, "Processes and modules").locator(".titles .label").allInnerTexts()).includes("points"));
    await page.locator("button", { hasText: /^Save/ }).last().click();
    const [asked] = await Promise.all([page.waitForRequest((request) => request.url().includes("/api/export")), page.locator("button", { hasText: "CSV" }).last().click()]);
    assert.equal(new URL(asked.url()).searchParams.get("with"), "1");
    // Without the other profile its columns are gone, and an order by one of them with them.
    await profiles(page).selectOption("");
    await settle(page);
    await noAlert(page);
    assert(!(await titles()).includes("points"));
  });

  test("changes: a function's lines and instructions", async ({ page }) => {
    if (!(await hasOther(page))) return;
    const key = await hottest(page);
    await show(page, `function?with=1&open=${encodeURIComponent(key)}`);
    await noAlert(page);
    const heads = await page.locator('[aria-label="Assembly"] .code-head .code-cell').allInnerTexts();
    assert(heads.includes("there") && heads.includes("change"), heads.join());
    assert.match(await page.locator(".function-title").innerText(), /there/);
    const changes = page.locator('[aria-label="Assembly"] .code-row:not(.hidden) .code-cell.change');
    const notes = await page.locator(".pane-note").allInnerTexts();
    const texts = (await changes.allInnerTexts()).filter(Boolean);
    // In sight may be a part of a long function that no sample is in.
    assert(!isMock || texts.some((text) => /^[+−]/.test(text)), `${texts.slice(0, 9)} ${notes}`);
    // Each measure has its change.
    await page.locator('[aria-label="Measure"] button', { hasText: "samples" }).click();
    await noAlert(page);
    if (texts.length > 0) assert((await changes.allInnerTexts()).filter(Boolean).every((text) => /^[+−]?[\d,]+$/.test(text)));
  });

  test("changes: a function whose code is another one says why", async ({ page }) => {
    if (!isMock) return;
    await show(page, `function?with=1&open=${encodeURIComponent("m3@3")}`);
    await noAlert(page);
    const notes = await page.locator(".pane-note").allInnerTexts();
    assert(notes.some((note) => note.includes("Instructions are not compared with after.data: its code is another one there")), notes.join(" | "));
    assert(notes.some((note) => note.includes("17 of") && note.includes("only after.data has") && note.includes("another build")), notes.join(" | "));
  });

  test("changes: lanes have the other profile's samples below", async ({ page }) => {
    if (!(await hasOther(page)) || !(await can(page, "timeline"))) return;
    await show(page, "timeline");
    const height = async () => (await page.locator('[aria-label="Threads"] li button').first().boundingBox()).height;
    const before = await height();
    await show(page, "timeline?with=1");
    await noAlert(page);
    assert((await height()) > 1.2 * before, "two halves need room");
    assert.match(await page.locator(".pane-note").first().innerText(), /Below: .*first sample/);
    const titles = await page.locator('[aria-label="Threads"] li button').evaluateAll((all) => all.map((lane) => lane.title));
    // Recordings of different programs share no lane.
    if (!isMock && !titles.some((title) => title.includes("There "))) return;
    assert(titles.some((title) => /There .*samples/.test(title)), titles.join(" | "));
    const lanes = page.locator(".lane-scroll canvas");
    if (titles[0].includes("There ")) {
      const box = await lanes.boundingBox();
      await page.mouse.move(box.x + box.width / 2, box.y + 40);
      await page.waitForSelector(".tooltip");
      assert.match(await page.locator(".tooltip").innerText(), /there [\d,]+ sample/);
    }
    for (const name of ["Processes", "CPUs"]) {
      const button = page.locator('[aria-label="Lanes"] button', { hasText: name });
      if ((await button.count()) === 0) continue;
      await button.click();
      await settle(page);
      await noAlert(page);
    }
  });

  test("changes: axe finds no violation while profiles are compared", async ({ page }) => {
    if (!(await hasOther(page))) return;
    const key = encodeURIComponent(await hottest(page));
    const problems = [];
    for (const view of ["hotspots", "function", "timeline"]) {
      await show(page, `${view}?with=1&open=${key}`);
      await page.evaluate(axe.source);
      const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      for (const violation of result.violations) problems.push(`${view}: ${violation.id}: ${violation.nodes.slice(0, 3).map((node) => `${node.target.join(" ")} ${node.failureSummary.split("\n")[1] ?? ""}`).join(" | ")}`);
    }
    assert.deepEqual(problems, []);
  });

  test("flame graph: colours by a metric, with a legend", async ({ page }) => {
    await show(page, "summary");
    if (!(await can(page, "flame"))) return;
    await show(page, "flame");
    const choice = page.locator("select", { has: page.locator('option[value="kind"]') });
    const values = await choice.locator("option").evaluateAll((options) => options.map((option) => option.value));
    const metric = values.find((value) => value.startsWith("metric:"));
    if (!metric) return;
    const [asked] = await Promise.all([page.waitForRequest((request) => request.url().includes("/api/flame") && request.url().includes("metric=")), choice.selectOption(metric)]);
    assert.equal(new URL(asked.url()).searchParams.get("metric"), metric.slice("metric:".length));
    await settle(page);
    await noAlert(page);
    assert(hash(page).includes(`colours=${metric}`), hash(page));
    const legend = page.locator('[aria-label="Colours"]');
    assert.match(await legend.innerText(), /with callees.*too few samples, or no value/s);
    const canvas = page.locator(".flame canvas");
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + box.width / 4, box.y + 30);
    await page.waitForSelector(".tooltip");
    assert.match(await page.locator(".tooltip").innerText(), /with callees: /);
    await page.reload();
    await settle(page);
    assert.match(await legend.innerText(), /with callees/);
    await choice.selectOption("");
    await settle(page);
    assert.doesNotMatch(hash(page), /colours=/);
  });

  test("hotspots: rows by basic block lead to the place in the function", async ({ page }) => {
    await show(page, "hotspots");
    const choice = page.locator('select[aria-label="Rows of the lower table"]');
    if ((await choice.count()) === 0) return;
    const [asked] = await Promise.all([page.waitForRequest((request) => request.url().includes("/api/table") && request.url().includes("by=block")), choice.selectOption("block")]);
    assert.equal(new URL(asked.url()).searchParams.get("children"), null);
    await settle(page);
    await noAlert(page);
    assert.match(hash(page), /rows=block/);
    const blocks = table(page, "Basic blocks");
    assert((await blocks.locator(".titles .label").allInnerTexts()).includes("address"));
    await blocks.locator(".rows .row:not(.hidden) .cell.main .link").first().click();
    await settle(page);
    assert.match(hash(page), /#\/function.*instruction=0x/);
    await show(page, "hotspots?rows=line");
    await noAlert(page);
    assert.equal(await table(page, "Source lines").count(), 1);
  });
}
