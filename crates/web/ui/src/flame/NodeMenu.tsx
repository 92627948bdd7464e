// The menu of a flame graph's node: what to do with its function and module.

import { For, onCleanup, onMount, Show } from "solid-js";
import { cutMiddle, fold, visible } from "../names";
import type { FlameAnswer } from "../net/types";

export interface NodeAction {
  key: string;
  title: string;
  about: string;
  of: "function" | "module";
  run(fn: number): void;
}

interface NodeMenuProps {
  answer: FlameAnswer;
  fn: number;
  x: number;
  y: number;
  actions: readonly NodeAction[];
  onClose(): void;
}

export function NodeMenu(props: NodeMenuProps) {
  let box!: HTMLDivElement;
  const each = () => props.answer.functions[props.fn];
  const module = () => props.answer.modules[each()?.module ?? -1]?.name ?? "";
  const buttons = () => [...box.querySelectorAll<HTMLButtonElement>("button")];
  const onAway = (event: Event) => { if (!box.contains(event.target as Node)) props.onClose(); };
  onMount(() => {
    buttons()[0]?.focus();
    addEventListener("pointerdown", onAway);
    onCleanup(() => removeEventListener("pointerdown", onAway));
  });
  const run = (action: NodeAction) => { const { fn } = props; props.onClose(); action.run(fn); };
  const onKey = (event: KeyboardEvent) => {
    const all = buttons();
    const at = all.indexOf(document.activeElement as HTMLButtonElement);
    const action = props.actions.find((action) => action.key === event.key);
    if (event.key === "ArrowDown") all[(at + 1) % all.length]?.focus();
    else if (event.key === "ArrowUp") all[(at + all.length - 1) % all.length]?.focus();
    else if (event.key === "Escape" || event.key === "Tab") props.onClose();
    else if (action && !event.ctrlKey && !event.metaKey && !event.altKey) run(action);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const group = (of: "function" | "module") => (
    <For each={props.actions.filter((action) => action.of === of)}>
      {(action) => <button role="menuitem" title={action.about} onClick={() => run(action)}><span>{action.title}</span><kbd>{action.key}</kbd></button>}
    </For>
  );
  return (
    <div
      class="node-menu" role="menu" aria-label="Function" ref={box} onKeyDown={onKey}
      style={{ left: `${Math.max(4, Math.min(props.x, innerWidth - 330))}px`, top: `${Math.max(4, Math.min(props.y, innerHeight - 330))}px` }}
    >
      <div class="head mono" title={visible(each()?.name ?? "").slice(0, 2000)}>{cutMiddle(fold(each()?.name ?? ""), 44) || "[no name]"}</div>
      {group("function")}
      <Show when={module() && props.actions.some((action) => action.of === "module")}>
        <div class="head mono">{cutMiddle(visible(module()), 44)}</div>
        {group("module")}
      </Show>
    </div>
  );
}
