// Attacks the policy of a page from inside, as a name that became markup would.

import assert from "node:assert/strict";

/** Fails if the page runs foreign script, takes foreign style, or may ask `foreign`. */
export async function attack(page, foreign) {
  const outcome = await page.evaluate(async (foreign) => {
    globalThis.ran = [];
    const script = document.createElement("script");
    script.textContent = "globalThis.ran.push('inline')";
    document.body.append(script);
    const remote = document.createElement("script");
    remote.src = "data:text/javascript,globalThis.ran.push('data')";
    document.body.append(remote);
    const box = document.createElement("div");
    box.innerHTML = "<img src=x onerror=\"globalThis.ran.push('handler')\"><a href=\"javascript:globalThis.ran.push('link')\">a</a><iframe srcdoc=\"<script>parent.ran.push('frame')</script>\"></iframe>";
    document.body.append(box);
    box.querySelector("a").click();
    const style = document.createElement("style");
    style.textContent = "body { outline: 7px solid red }";
    document.head.append(style);
    const fetched = await Promise.all(foreign.map((address) => fetch(address).then(() => "fetched", () => "refused")));
    await new Promise((done) => setTimeout(done, 300));
    const outline = getComputedStyle(document.body).outlineWidth;
    for (const each of [script, remote, box, style]) each.remove();
    return { ran: globalThis.ran, fetched, outline };
  }, foreign);
  assert.deepEqual(outcome.ran, []);
  assert.deepEqual(outcome.fetched, foreign.map(() => "refused"));
  assert.notEqual(outcome.outline, "7px");
}
