// Tests of modules that need no browser: node tests/units.mjs

import assert from "node:assert/strict";
import { fileURLToPath } from "node:url";
import { build } from "vite";

/** Compiles a module of the page and loads it. */
async function load(path) {
  const result = await build({
    configFile: false, logLevel: "silent",
    build: { write: false, minify: false, lib: { entry: fileURLToPath(new URL(`../src/${path}`, import.meta.url)), formats: ["es"], fileName: "module" } },
  });
  const [{ output }] = Array.isArray(result) ? result : [result];
  return import(`data:text/javascript;base64,${Buffer.from(output[0].code).toString("base64")}`);
}

const { fold, visible, cutMiddle } = await load("names.ts");
// The same examples as in crates/tables/table/src/short_names.rs.
assert.equal(fold("std::vector<int, std::allocator<int> >::push_back(int const&)"), "std::vector<…>::push_back(int const&)");
assert.equal(fold("<alloc::vec::Vec<u8> as Drop>::drop"), "<alloc::vec::Vec<…> as Drop>::drop");
assert.equal(fold("core::mem::swap::<u8>::h0123456789abcdef"), "core::mem::swap<…>");
assert.equal(fold("bool operator< <int>(A<int>, B)"), "bool operator< <…>(A<…>, B)");
assert.equal(fold("operator<<"), "operator<<");
assert.equal(fold("Foo<(Kind)3, void (*)(int)>::operator->()"), "Foo<…>::operator->()");
assert.equal(fold("a<b"), "a<b");
assert.equal(visible("a\u202eb\u0000"), "a\\u{202e}b\\u{0}");
assert.equal(cutMiddle("abcdefghij", 5), "a…hij");
const long = `f<${"x<".repeat(300_000)}`;
const began = Date.now();
assert(fold(long).length <= 400);
assert(Date.now() - began < 500, "a hostile name takes no time");

const { duration, percent, axisTime, inUnit } = await load("format.ts");
assert.equal(duration(46_750_000), "46.750 ms");
assert.equal(duration(0), "0");
assert.equal(percent(12.345), "12.35");
assert.equal(axisTime(1_500_000_000, 500_000_000), "1.5 s");
assert.equal(inUnit(1234567, "samples"), "1,234,567");

const { marks, zoomed } = await load("timeline/scale.ts");
assert.deepEqual(marks({ from: 0, to: 10 }, 5), { step: 2, times: [0, 2, 4, 6, 8, 10] });
assert.deepEqual(zoomed({ from: 0, to: 100 }, 0.5, 50, { from: 0, to: 100 }, 1), { from: 25, to: 75 });
assert.deepEqual(zoomed({ from: 25, to: 75 }, 10, 50, { from: 0, to: 100 }, 1), { from: 0, to: 100 });

const { layOut, nodeAt, neighbour, findNodes } = await load("flame/model.ts");
const nodes = { id: [0, 1, 2, 3], parent: [-1, 0, 0, -1], function: [0, 1, 2, 2], below: [2, 0, 0, 0], own: [[2, 5, 3, 10]], total: [[10, 5, 3, 10]], own_samples: [[]], total_samples: [[]] };
const model = layOut({ events: [], functions: [{ name: "f" }, { name: "g" }, { name: "h" }], modules: [], above: [], nodes });
assert.equal(model.total, 20);
assert.deepEqual([...model.left], [0, 0, 0, 0.25, 0.5]);
assert.equal(nodeAt(model, 2, 0.3), 3);
assert.equal(nodeAt(model, 2, 0.45), -1, "a node's own weight leaves a gap");
assert.equal(neighbour(model, 1, "down"), 2);
assert.equal(neighbour(model, 2, "right"), 3);
assert.deepEqual(findNodes(model, "H").share, 0.65);

const { csv } = await load("save.ts");
assert.equal(csv([["a", 'say "x",\ny', null, 1.5]]), 'a,"say ""x"",\ny",,1.5\r\n');

const { layArrows, listRows } = await load("function/listing.ts");
const jumps = { answer: { stacks: [], frames: {}, strings: [], instructions: { address: [0, 1, 2, 3], stack: [-1, -1, -1, -1] }, blocks: [], targets: [{ instruction: 2, to: 0 }, { instruction: 0, to: 3 }, { instruction: 1, to: null }] } };
const pieces = layArrows(jumps, listRows(jumps, new Set(), true));
assert.deepEqual(pieces.get(1).map((piece) => [piece.lane, piece.part]), [[0, "through"], [1, "through"]]);
assert.equal(pieces.get(3)[0].part, "end");
console.log("ok      units");

const { rowsCrossed, placeBlocks } = await load("function/layout.ts");
const edge = (from, to) => ({ from, to, kind: "jump", executions: null });
assert.equal(rowsCrossed(new Set([0, 1, 2, 3]), [edge(0, 1), edge(1, 2), edge(2, 3), edge(0, 3), edge(3, 1), edge(2, 2), edge(3, 9)]), 3 + 3 + 2);
// A long function with a jump table: with all of its edges dagre would need the whole stack, and many seconds.
const cases = Array.from({ length: 200 }, (_, at) => ({ weight: [200 - at] }));
const branches = cases.flatMap((_, at) => [edge(at, at + 1), edge(at, (at * 37) % 200), edge(at, (at * 91) % 200), edge(at, 199)]).filter(({ to }) => to < 200);
const placed = placeBlocks({ blocks: cases, edges: branches, loops: [] }, false);
assert(placed.blocks.length < 160 && placed.blocks.length > 4 && placed.blocks.some(({ block }) => block === 0), `${placed.blocks.length} blocks`);
assert.equal(placed.leftOut, 200 - placed.blocks.length);
