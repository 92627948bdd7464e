// Screenshots of views for the eye: node tests/shots.mjs URL FOLDER [VIEW…]
// Sizes and themes: 1280x800 and 2560x1440, light and dark.

import { mkdirSync } from "node:fs";
import { open, settle } from "./browser.mjs";

const [address, folder, ...wanted] = process.argv.slice(2);
mkdirSync(folder, { recursive: true });
const SIZES = (process.env.SIZES ?? "1280x800,2560x1440").split(",").map((size) => size.split("x").map(Number));
const THEMES = (process.env.THEMES ?? "light,dark").split(",");
for (const [width, height] of SIZES) for (const theme of THEMES) {
  const { browser, page, problems } = await open(address, { width, height, theme });
  const token = new URL(address).origin;
  for (const each of wanted) {
    const [name, hash] = each.split("=#");
    await page.goto(`${token}/#${hash ?? `/${name}`}`);
    await settle(page);
    await page.screenshot({ path: `${folder}/${name.replace("/", "-")}-${width}-${theme}.png` });
  }
  for (const problem of problems) console.log(`${width} ${theme}: ${problem}`);
  await browser.close();
}
