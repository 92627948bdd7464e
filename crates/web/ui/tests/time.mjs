// Tests of the timeline's zoom and of the heat map.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import axe from "axe-core";

export function timeTests({ test, show, hash, can, settle }) {
  test("timeline: the zoom is in the address", async ({ page }) => {
    if (!(await can(page, "timeline"))) return;
    await show(page, "timeline");
    await page.locator(".lanes canvas").last().focus();
    await page.keyboard.press("+");
    await settle(page);
    const address = page.url();
    assert.match(hash(page), /shown=\d+\.\.\d+/);
    await page.goto("about:blank");
    await page.goto(address);
    await settle(page);
    assert.equal(page.url(), address);
    assert.equal(await page.locator("button", { hasText: "Show all" }).isDisabled(), false);
    await page.locator("button", { hasText: "Show all" }).click();
    assert.doesNotMatch(hash(page), /shown=/);
  });

  test("heat map: a brush selects time, also from the keyboard", async ({ page }) => {
    if (!(await can(page, "timeline"))) return;
    await show(page, "timeline?heat=1");
    const canvas = page.locator(".heat canvas");
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + box.height * 0.2);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.6, box.y + box.height * 0.7, { steps: 3 });
    await page.mouse.up();
    await settle(page);
    assert.match(hash(page), /time=\d+\.\.\d+/);
    await page.keyboard.press("2");
    await settle(page);
    assert.match(hash(page), /^#\/hotspots\?.*time=/);
    await show(page, "timeline?heat=1");
    await canvas.focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("ArrowDown");
    assert.match(await page.locator(".heat [role=status]").innerText(), /samples?$/);
    await page.keyboard.press("Shift+ArrowDown");
    await page.keyboard.press("Enter");
    await settle(page);
    const [, from, to] = /time=(\d+)\.\.(\d+)/.exec(hash(page));
    assert(Number(to) > Number(from) && Number(from) > 0, hash(page));
    await canvas.focus();
    await page.keyboard.press("Escape");
    await settle(page);
    assert.doesNotMatch(hash(page), /time=/);
    for (const theme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme: theme });
      await page.evaluate(axe.source);
      const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
      assert.deepEqual(result.violations.map((each) => `${theme} ${each.id}`), []);
    }
    await page.locator(".menu > button", { hasText: "Save" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.locator(".panel button", { hasText: "CSV" }).click()]);
    const lines = readFileSync(await download.path(), "utf8").trim().split("\r\n");
    const shown = Number(/([\d,]+) samples?,/.exec(await page.locator(".tools .note").first().innerText())[1].replaceAll(",", ""));
    assert.equal(lines.slice(1).reduce((sum, line) => sum + Number(line.split(",")[1]), 0), shown);
  });
}
