// Serves the bundle in `dist` and asks a running `dioptra web` for the rest, so that a change of the page can be seen without
// building dioptra again: node tests/proxy.mjs URL [PORT]

import { createServer, request as ask } from "node:http";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const target = new URL(process.argv[2]);
const DIST = fileURLToPath(new URL("../dist/", import.meta.url));
const TYPES = { html: "text/html; charset=utf-8", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };
let policy = "";
ask(target, (answer) => { policy = answer.headers["content-security-policy"] ?? ""; answer.resume(); }).end();

const proxy = createServer((request, response) => {
  const path = new URL(request.url, "http://127.0.0.1").pathname;
  if (path.startsWith("/api/")) {
    const headers = { ...request.headers, host: target.host };
    delete headers.origin;
    delete headers.referer;
    const forward = ask({ host: target.hostname, port: target.port, path: request.url, method: request.method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    forward.on("error", () => response.writeHead(502).end());
    response.on("close", () => forward.destroy());
    forward.end();
    return;
  }
  try {
    const name = path === "/" ? "index.html" : path.slice(1).replaceAll("/", "");
    response.writeHead(200, { "content-type": TYPES[name.split(".").pop()] ?? "text/plain", "content-security-policy": policy }).end(readFileSync(DIST + name));
  } catch {
    response.writeHead(404).end();
  }
});
proxy.listen(Number(process.argv[3] ?? 0), "127.0.0.1", () => console.log(`http://127.0.0.1:${proxy.address().port}/${target.search}`));
