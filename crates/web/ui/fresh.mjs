// Keeps `dist` and its sources together: dist.sha256 lists the sums of all inputs and outputs of a build.
//
//   node fresh.mjs write    after a build (`npm run build` does it)
//   node fresh.mjs check    fails if a file was changed, added or removed since (`npm run fresh`)
//
// The file has the form of sha256sum, so that `sha256sum --check --quiet dist.sha256` needs no Node.

import { createHash } from "node:crypto";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const HOME = fileURLToPath(new URL(".", import.meta.url));
const LIST = `${HOME}dist.sha256`;
const FOLDERS = ["dist", "public", "src"];
const FILES = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.mjs"];

function filesBelow(folder) {
  return readdirSync(HOME + folder, { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

const paths = [...FOLDERS.flatMap(filesBelow), ...FILES].sort();
const list = paths.map((path) => `${createHash("sha256").update(readFileSync(HOME + path)).digest("hex")}  ${path}\n`).join("");
if (process.argv[2] === "write") {
  writeFileSync(LIST, list);
} else {
  const known = readFileSync(LIST, "utf8");
  if (known !== list) {
    const old = new Set(known.split("\n"));
    const now = new Set(list.split("\n"));
    for (const line of now) if (!old.has(line)) console.error(`changed or new: ${line.slice(66)}`);
    for (const line of old) if (!now.has(line) && !paths.includes(line.slice(66))) console.error(`removed: ${line.slice(66)}`);
    console.error("The page's bundle is older than its sources. Run `npm ci && npm run build` in crates/web/ui, and commit dist and dist.sha256.");
    process.exit(1);
  }
  console.log(`${paths.length} files are as they were when the bundle was built`);
}
