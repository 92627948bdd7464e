// Opens Chromium on the page and collects everything that the page complains about.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const CANDIDATES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export async function open(address, { width = 1280, height = 800, theme = "light" } = {}) {
  const browser = await chromium.launch({
    executablePath: CANDIDATES.find((path) => path && existsSync(path)), args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, acceptDownloads: true });
  const page = await context.newPage();
  const problems = [];
  page.on("console", (message) => { if (message.type() === "error" || message.type() === "warning") problems.push(message.text()); });
  page.on("pageerror", (error) => problems.push(String(error.stack ?? error)));
  page.on("dialog", (dialog) => { problems.push(`dialog: ${dialog.message()}`); void dialog.dismiss(); });
  await page.goto(address);
  await page.waitForFunction(() => !document.querySelector("main .message[role=status]"), null, { timeout: 60_000 });
  return { browser, page, problems };
}

/** Waits until no request is under way, apart from the one that waits for changes. */
export async function settle(page) {
  await page.waitForTimeout(120);
  await page.waitForFunction(() => !document.querySelector("[aria-busy=true]"), null, { timeout: 60_000 });
  await page.waitForTimeout(180);
}
