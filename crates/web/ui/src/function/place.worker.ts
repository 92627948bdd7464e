// Places the blocks of control-flow graphs outside of the page's thread, which stays free for the reader meanwhile.

import { type GraphParts, placeBlocks } from "./layout";

export interface PlaceRequest {
  id: number;
  parts: GraphParts;
  sideways: boolean;
}

self.onmessage = ({ data }: MessageEvent<PlaceRequest>) => {
  self.postMessage({ id: data.id, graph: placeBlocks(data.parts, data.sideways) });
};
