// Two panes with a splitter between them that the mouse and the arrow keys move.

import { createSignal, type JSX } from "solid-js";

interface SplitProps {
  /** Under which name the place of the splitter is kept. */
  name: string;
  down?: boolean;
  /** The first pane's share at first. */
  share: number;
  label: string;
  first: JSX.Element;
  second: JSX.Element;
}

export function Split(props: SplitProps) {
  const key = `dioptra-split-${props.name}`;
  const kept = Number.parseFloat(localStorage.getItem(key) ?? "");
  const [share, setShare] = createSignal(kept > 0.05 && kept < 0.95 ? kept : props.share);
  let box!: HTMLDivElement;
  const move = (next: number) => {
    const value = Math.max(0.06, Math.min(0.94, next));
    setShare(value);
    localStorage.setItem(key, value.toFixed(4));
  };
  const onMove = (event: PointerEvent & { currentTarget: HTMLElement }) => {
    if (!event.currentTarget.hasPointerCapture(event.pointerId)) return;
    const bounds = box.getBoundingClientRect();
    move(props.down ? (event.clientY - bounds.top) / bounds.height : (event.clientX - bounds.left) / bounds.width);
  };
  const onKey = (event: KeyboardEvent) => {
    const less = props.down ? "ArrowUp" : "ArrowLeft";
    const more = props.down ? "ArrowDown" : "ArrowRight";
    if (event.key !== less && event.key !== more) return;
    move(share() + (event.key === less ? -0.03 : 0.03));
    event.preventDefault();
  };
  return (
    <div class="split" classList={{ down: props.down === true }} ref={box}>
      <div class="pane" style={{ "flex-grow": share() }}>{props.first}</div>
      <div
        class="splitter" role="separator" tabindex="0" aria-label={props.label} aria-orientation={props.down ? "horizontal" : "vertical"}
        aria-valuenow={Math.round(share() * 100)} aria-valuemin="6" aria-valuemax="94"
        onPointerDown={(event) => { event.currentTarget.setPointerCapture(event.pointerId); event.preventDefault(); }}
        onPointerMove={onMove} onKeyDown={onKey}
      />
      <div class="pane" style={{ "flex-grow": 1 - share() }}>{props.second}</div>
    </div>
  );
}
