// Tests of the flame graph's colours, changes of call stacks, links to what is shown, and the heat map.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import axe from "axe-core";

export function timeTests({ test, show, hash, can, settle, table, hottest }) {
  const said = (page) => page.locator(".flame [role=status]").first().innerText();
  const toNode = async (page, downs) => {
    await page.locator(".flame canvas").focus();
    for (let at = 0; at < downs; at++) await page.keyboard.press("ArrowDown");
  };

  test("flame graph: a link leads to the node that was zoomed to, and back undoes", async ({ page }) => {
    if (!(await can(page, "flame"))) return;
    await show(page, "flame");
    await toNode(page, 3);
    const node = await said(page);
    await page.keyboard.press("Enter");
    await settle(page);
    const address = page.url();
    assert.match(hash(page), /zoom=/);
    await page.goto("about:blank");
    await page.goto(address);
    await settle(page);
    assert.equal((await said(page)).split(",")[0], node.split(",")[0]);
    await page.keyboard.press("Tab");
    await page.locator(".flame canvas").focus();
    await page.keyboard.press("Escape");
    await settle(page);
    const outer = (hash(page).match(/zoom=/g) ?? []).length;
    assert(outer < (decodeURIComponent(address).match(/zoom=/g) ?? []).length, "Escape zooms out by one");
    await page.goBack();
    await settle(page);
    assert.equal(page.url(), address);
    assert.equal((await said(page)).split(",")[0], node.split(",")[0]);
  });

  test("flame graph: colours, each with a legend", async ({ page }) => {
    if (!(await can(page, "flame"))) return;
    await show(page, "flame");
    const picture = () => page.locator(".flame canvas").evaluate((canvas) => canvas.toDataURL().length + canvas.toDataURL().slice(-4000));
    const seen = new Set([await picture()]);
    const select = page.locator("label", { hasText: "Colours" }).locator("select");
    const modes = await select.locator("option").evaluateAll((options) => options.map((option) => option.value));
    assert(modes.length >= 4 && modes.some((mode) => mode.startsWith("self:")), modes.join());
    for (const mode of modes.slice(1)) {
      await select.selectOption(mode);
      await page.waitForTimeout(150);
      assert(hash(page).includes(`colours=${mode}`), hash(page));
      seen.add(await picture());
      if (mode !== "function") assert((await page.locator(".colour-legend .entry").count()) >= 2, mode);
    }
    assert.equal(seen.size, modes.length, "each mode has colours of its own");
    await page.goBack();
    await settle(page);
    assert(hash(page).includes(`colours=${modes.at(-2)}`), hash(page));
  });

  test("flame graph: functions and modules are left out and come back", async ({ page }) => {
    if (!(await can(page, "flame"))) return;
    await show(page, "flame");
    await toNode(page, 2);
    await page.keyboard.press("m");
    await settle(page);
    assert.match(hash(page), /merge=/);
    const chips = page.locator('[aria-label="Left out of call stacks"] .chip');
    assert.equal(await chips.count(), 1);
    await toNode(page, 1);
    await page.keyboard.press("D");
    await settle(page);
    assert.match(hash(page), /drop_module=/);
    assert.equal(await chips.count(), 2);
    assert.match(await page.locator('[aria-label="Left out of call stacks"] [role=status]').innerText(), /dropped/);
    await page.keyboard.press("5");
    await settle(page);
    assert.equal(await chips.count(), 2, "the call tree leaves out the same");
    await page.keyboard.press("4");
    await settle(page);
    await page.locator("button", { hasText: "Show everything" }).click();
    await settle(page);
    assert.doesNotMatch(hash(page), /merge|drop/);
    await page.goBack();
    await settle(page);
    assert.equal(await chips.count(), 2, "back brings it back");
    await page.locator("label", { hasText: "Recursion" }).locator("select").selectOption("all");
    await settle(page);
    assert.match(hash(page), /fold=all/);
    assert.equal(await page.locator("[role=alert]").count(), 0);
  });

  test("flame graph: a node's menu by mouse and keyboard", async ({ page }) => {
    if (!(await can(page, "flame"))) return;
    await show(page, "flame");
    const canvas = page.locator(".flame canvas");
    const box = await canvas.boundingBox();
    await canvas.click({ button: "right", position: { x: 12, y: 28 } });
    const menu = page.locator("[role=menu]");
    assert.equal(await menu.count(), 1);
    assert((await menu.locator("[role=menuitem]").count()) >= 6);
    await page.evaluate(axe.source);
    const result = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
    assert.deepEqual(result.violations.map((each) => each.id), []);
    await page.keyboard.press("Escape");
    assert.equal(await menu.count(), 0);
    assert(box !== null && (await canvas.evaluate((each) => document.activeElement === each)));
    await page.keyboard.press("Shift+F10");
    if ((await menu.count()) === 0) await canvas.dispatchEvent("contextmenu", { button: 0, clientX: 0, clientY: 0, bubbles: true, cancelable: true });
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await settle(page);
    assert.match(hash(page), /focus=/);
  });

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

  test("timeline: time off the CPU is hatched and told", async ({ page }) => {
    if (!(await can(page, "timeline"))) return;
    await show(page, "timeline");
    const note = await page.locator(".tools .note").first().innerText();
    await page.locator(".menu > button", { hasText: "Save" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), page.locator(".panel button", { hasText: "SVG" }).click()]);
    const svg = readFileSync(await download.path(), "utf8");
    assert.equal(await page.evaluate((text) => new DOMParser().parseFromString(text, "image/svg+xml").querySelectorAll("parsererror").length, svg), 0);
    // Recordings without switches show none.
    assert.equal(svg.includes("url(#off)"), note.includes("off the CPU"));
    if (!note.includes("off the CPU")) return;
    const canvas = page.locator(".lanes canvas").last();
    const box = await canvas.boundingBox();
    await page.mouse.move(box.x + box.width / 2, box.y + 40);
    await page.waitForFunction(() => /off the CPU: [\d.]+ %/.test(document.querySelector(".tooltip")?.innerText ?? ""));
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

  test("function: the picked instruction is in the address; the graph is saved as PNG", async ({ page }) => {
    const key = await hottest(page);
    await show(page, `function?open=${encodeURIComponent(key)}`);
    const assembly = page.locator('[aria-label="Assembly"]');
    const row = assembly.locator(".code-row:not(.hidden):not(.block-row):not(.inlined-row)").nth(1);
    if ((await row.count()) === 0) return;
    await row.click();
    await page.waitForFunction(() => location.hash.includes("instruction="));
    const address = page.url();
    await page.goto("about:blank");
    await page.goto(address);
    await settle(page);
    assert((await assembly.locator(".code-row.picked").count()) >= 1);
    assert.equal(page.url(), address);
    if ((await page.locator(".graph .node").count()) === 0) return;
    const pane = page.locator(".pane-title", { hasText: "Control flow" });
    await pane.locator(".menu > button", { hasText: "Save" }).click();
    const [download] = await Promise.all([page.waitForEvent("download"), pane.locator(".panel button", { hasText: "PNG" }).click()]);
    const png = readFileSync(await download.path());
    assert.equal(png.subarray(1, 4).toString(), "PNG");
    assert(png.readUInt32BE(16) > 100 && png.length > 2000, "a picture with something in it");
  });
}
