// Graphs that are placed by a worker. A static report has no second file, so it places them itself.

import { type Accessor, createEffect, createMemo, createSignal, onCleanup } from "solid-js";
import { report } from "../net/client";
import { type GraphParts, type PlacedGraph, placeBlocks } from "./layout";
import type { FunctionModel } from "./model";
import type { PlaceRequest } from "./place.worker";

const NONE: PlacedGraph = { blocks: [], edges: [], width: 1, height: 1, leftOut: 0 };

function partsOf({ answer }: FunctionModel): GraphParts {
  return { blocks: answer.blocks, edges: answer.edges, loops: answer.loops };
}

/** The placed graph of a function; without blocks, and `isBusy`, until it is there. */
export function createPlaced(model: Accessor<FunctionModel>, sideways: Accessor<boolean>): { placed: Accessor<PlacedGraph>; isBusy: Accessor<boolean> } {
  if (report()) return { placed: createMemo(() => placeBlocks(partsOf(model()), sideways())), isBusy: () => false };
  const [done, setDone] = createSignal<{ model: FunctionModel; sideways: boolean; graph: PlacedGraph } | null>(null);
  let asked: { id: number; model: FunctionModel; sideways: boolean } | null = null;
  const worker = new Worker(new URL("./place.worker.ts", import.meta.url), { type: "module" });
  onCleanup(() => worker.terminate());
  worker.onmessage = ({ data }: MessageEvent<{ id: number; graph: PlacedGraph }>) => {
    // A graph that was asked for earlier is of no use any more.
    if (asked?.id === data.id) setDone({ model: asked.model, sideways: asked.sideways, graph: data.graph });
  };
  worker.onerror = () => { if (asked) setDone({ ...asked, graph: placeBlocks(partsOf(asked.model), asked.sideways) }); };
  createEffect(() => {
    asked = { id: (asked?.id ?? 0) + 1, model: model(), sideways: sideways() };
    worker.postMessage({ id: asked.id, parts: partsOf(asked.model), sideways: asked.sideways } satisfies PlaceRequest);
  });
  const isDone = () => { const now = done(); return now !== null && now.model === model() && now.sideways === sideways(); };
  return { placed: createMemo(() => (isDone() ? done()!.graph : NONE)), isBusy: () => !isDone() };
}
