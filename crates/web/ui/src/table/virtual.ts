// Which rows of a long list are in sight, by @tanstack/virtual-core.

import { elementScroll, observeElementOffset, observeElementRect, Virtualizer, type VirtualItem } from "@tanstack/virtual-core";
import { type Accessor, createEffect, createMemo, createSignal, onCleanup, onMount } from "solid-js";

export interface VirtualRows {
  items: Accessor<VirtualItem[]>;
  /**
   * The same items, each in the slot that its index gives modulo the number of slots: while the list scrolls, a slot keeps
   * its row as long as the row is in sight, so that only rows that come into sight are drawn.
   */
  slots: Accessor<(VirtualItem | null)[]>;
  height: Accessor<number>;
  scrollTo(index: number, align?: "auto" | "center" | "start"): void;
}

/** Follows the scrolling of an element that holds `count` rows of equal height below `covered` pixels of a head that stays. */
export function createVirtualRows(element: () => HTMLDivElement, count: Accessor<number>, rowHeight: Accessor<number>, covered: Accessor<number>): VirtualRows {
  const [items, setItems] = createSignal<VirtualItem[]>([]);
  const [height, setHeight] = createSignal(0);
  const options = () => ({
    count: count(),
    getScrollElement: element,
    estimateSize: () => rowHeight(),
    overscan: 8,
    scrollPaddingEnd: covered(),
    scrollToFn: elementScroll,
    observeElementRect,
    observeElementOffset,
    onChange: (instance: Virtualizer<HTMLDivElement, HTMLDivElement>) => {
      setItems(instance.getVirtualItems());
      setHeight(instance.getTotalSize());
    },
  });
  const virtualizer = new Virtualizer<HTMLDivElement, HTMLDivElement>({
    ...options(), count: 0, getScrollElement: () => null, estimateSize: () => 20, scrollPaddingEnd: 0,
  });
  onMount(() => {
    onCleanup(virtualizer._didMount());
    createEffect(() => {
      const now = options();
      rowHeight();
      virtualizer.setOptions(now);
      virtualizer._willUpdate();
      virtualizer.measure();
      setItems(virtualizer.getVirtualItems());
      setHeight(virtualizer.getTotalSize());
    });
  });
  let size = 0;
  const slots = createMemo(() => {
    const now = items();
    // The number grows in steps and never shrinks, so that it rarely changes.
    if (now.length > size) size = Math.ceil((now.length + 4) / 16) * 16;
    const out: (VirtualItem | null)[] = new Array<VirtualItem | null>(size).fill(null);
    for (const item of now) out[item.index % size] = item;
    return out;
  });
  return {
    items, slots, height,
    scrollTo: (index, align = "auto") => virtualizer.scrollToIndex(index, { align }),
  };
}

/** The height of a row, which follows the size of the page's font. */
export function createRowHeight(factor = 1.7): Accessor<number> {
  const read = () => Math.round(Number.parseFloat(getComputedStyle(document.documentElement).fontSize) * factor);
  const [height, setHeight] = createSignal(read());
  const update = () => setHeight(read());
  onMount(() => {
    addEventListener("resize", update);
    onCleanup(() => removeEventListener("resize", update));
  });
  return height;
}
