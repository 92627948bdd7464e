// The line at the bottom: what must be known about the numbers in sight.

import { createSignal, Show } from "solid-js";
import { plural } from "../format";
import { visible } from "../names";
import { shownFile, trouble } from "../state/profile";
import { go } from "../state/url";

const [saying, setSaying] = createSignal("");
let timer: ReturnType<typeof setTimeout> | undefined;

/** Shows a short message at the bottom of the page. */
export function say(text: string): void {
  setSaying(text);
  clearTimeout(timer);
  timer = setTimeout(() => setSaying(""), 6000);
}

export function Foot() {
  const facts = (severity: string) => shownFile()?.facts.filter((fact) => fact.severity === severity) ?? [];
  return (
    <footer class="foot">
      <Show when={facts("loss").length > 0}>
        <a class="loss" href="#/summary" onClick={(event) => { event.preventDefault(); go({ view: "summary" }); }}>{plural(facts("loss").length, "loss", "losses")}</a>
      </Show>
      <Show when={facts("warning").length + facts("fallback").length > 0}>
        <a class="warning" href="#/summary" onClick={(event) => { event.preventDefault(); go({ view: "summary" }); }}>
          {plural(facts("warning").length + facts("fallback").length, "warning")}
        </a>
      </Show>
      <span class="saying" role="status">{trouble() ? visible(trouble()!.text) : saying()}</span>
      <span class="space" />
      <span>{visible(shownFile()?.machine.hostname ?? "")}</span>
    </footer>
  );
}
