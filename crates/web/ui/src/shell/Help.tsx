import { For, onMount } from "solid-js";

const KEYS: [string, string][] = [
  ["1 … 9", "Go to a view"],
  ["/", "Go to the text filter of the view"],
  ["?", "Show this help"],
  ["Esc", "Leave a field, close a panel, zoom out"],
  ["↑ ↓ PgUp PgDn Home End", "Move in a table"],
  ["→ ←", "Open or close a row of a tree; move between siblings of a flame graph"],
  ["Enter", "Open the row's function; zoom to the node"],
  ["Space", "Select the row: every view then counts its samples only"],
  ["c", "Copy the whole name of the row"],
  ["f", "Flame graph: begin stacks at the node's function"],
  ["m M", "Flame graph: leave out the node's function, its module; callees take its place"],
  ["d D", "Flame graph: drop the samples with the node's function, with its module"],
  ["o", "Flame graph: open the node's function"],
  ["n", "Scatter plot: the next outlier"],
  ["Shift+← →", "Timeline of calls: move in time; without Shift from call to call"],
  ["+ − 0", "Timeline and control-flow graph: zoom in, out, show all"],
];

export function Help(props: { onClose(): void }) {
  let box!: HTMLDivElement;
  onMount(() => box.focus());
  return (
    <div class="overlay" onClick={() => props.onClose()}>
      <div
        class="dialog" role="dialog" aria-modal="true" aria-label="Keys" tabindex="-1" ref={box} onClick={(event) => event.stopPropagation()}
        onKeyDown={(event) => { if (event.key === "Escape") { event.stopPropagation(); props.onClose(); } }}
      >
        <h2>Keys</h2>
        <table><tbody><For each={KEYS}>{([keys, what]) => <tr><td><kbd>{keys}</kbd></td><td>{what}</td></tr>}</For></tbody></table>
        <p class="dim">A selection made in any view holds in all views and stands in the address, so that a link shows what you see.</p>
        <p class="dim">Grey italic numbers rest on few samples. ± is one standard error.</p>
        <button class="toggle" onClick={() => props.onClose()}>Close</button>
      </div>
    </div>
  );
}
