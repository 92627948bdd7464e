// A card that says what a static report holds and what it leaves out.

import { For } from "solid-js";
import { visible } from "../names";
import type { StoredReport } from "../net/types";

export function ReportCard(props: { about: StoredReport }) {
  const written = () => new Date(props.about.written * 1000).toISOString().slice(0, 16).replace("T", " ");
  return (
    <section class="card report-card" aria-label="This report">
      <h2>This report <span class="dim">{written()} UTC, dioptra {visible(props.about.version)}</span></h2>
      <p class="dim">It opens without a server and asks nobody. {props.about.has_source ? "It contains source text and assembly." : "It contains assembly, but no source text."}</p>
      <Sentences title="In it" list={props.about.holds} />
      <Sentences title="Not in it" list={props.about.lacks} />
    </section>
  );
}

function Sentences(props: { title: string; list: readonly string[] }) {
  return (
    <>
      <h3>{props.title}</h3>
      <ul><For each={props.list}>{(text) => <li>{visible(text)}</li>}</For></ul>
    </>
  );
}
