// A made-up function for the mock server: source, instructions, blocks and loops that belong together.

const SOURCE = `#include <stdint.h>
#include <stddef.h>

// Mixes a block of bytes into a hash.
static inline uint64_t mix(uint64_t hash, uint64_t word) {
  hash ^= word;
  hash *= 0x9e3779b97f4a7c15ull;
  return hash ^ (hash >> 29);
}

uint64_t hash_all(const uint64_t *words, size_t count, size_t rounds) {
  uint64_t hash = 0;
  for (size_t round = 0; round < rounds; round++) {
    for (size_t at = 0; at < count; at++) {
      hash = mix(hash, words[at]);
    }
    if (hash == 0)
      hash = 1; /* never stuck at 0 */
  }
  return hash;
}

const char *text = "<script>alert('source')</script>";
`.split("\n");

// text, line, inlined line or 0, jump target or null
const CODE = [
  ["pushq %rbp", 11, 0, null], ["movq %rsp, %rbp", 11, 0, null], ["testq %rdx, %rdx", 13, 0, null], ["je 4011c5", 13, 0, 25],
  ["xorl %eax, %eax", 12, 0, null], ["xorl %r8d, %r8d", 13, 0, null], ["movabsq $0x9e3779b97f4a7c15, %r9", 15, 7, null],
  ["testq %rsi, %rsi", 14, 0, null], ["je 4011a0", 14, 0, 18], ["xorl %ecx, %ecx", 14, 0, null],
  ["xorq (%rdi,%rcx,8), %rax", 15, 6, null], ["imulq %r9, %rax", 15, 7, null], ["movq %rax, %r10", 15, 8, null], ["shrq $0x1d, %r10", 15, 8, null],
  ["xorq %r10, %rax", 15, 8, null], ["incq %rcx", 14, 0, null], ["cmpq %rsi, %rcx", 14, 0, null], ["jne 401170", 14, 0, 10],
  ["testq %rax, %rax", 17, 0, null], ["jne 4011b0", 17, 0, 21], ["movl $0x1, %eax", 18, 0, null],
  ["incq %r8", 13, 0, null], ["cmpq %rdx, %r8", 13, 0, null], ["jne 401150", 13, 0, 7], ["jmp 4011c8", 20, 0, 26],
  ["xorl %eax, %eax", 12, 0, null], ["popq %rbp", 20, 0, null], ["retq", 20, 0, null],
];
const HEAT = [1, 0, 1, 0, 1, 0, 2, 30, 8, 4, 4100, 2300, 900, 310, 1400, 620, 210, 1800, 60, 5, 0, 40, 12, 55, 1, 0, 2, 3];
const STARTS = [0, 4, 7, 9, 10, 18, 20, 21, 24, 25, 26];

export function functionAnswer(query, functions, events) {
  const found = functions.find((each) => each.key === query.get("function"));
  if (!found) return { status: 404, body: { error: { code: "no_such_function", text: "The profile has no such function.", remedy: null } } };
  const samples = [HEAT, HEAT.map((heat) => Math.floor(heat / 50))];
  const weights = samples.map((list, e) => list.map((value) => value * events[e].period));
  const sum = (list) => list.reduce((a, b) => a + b, 0);
  const counted = (e, scale = 1) => ({ samples: sum(samples[e]) * scale, weight: sum(weights[e]) * scale, estimate: sum(weights[e]) * scale, error: Math.sqrt(sum(samples[e])) * events[e].period });
  const frames = { function: [], file: [], line: [], column: [], inlined: [] };
  const stacks = [];
  const stackOf = CODE.map(([, line, inner]) => {
    const stack = [];
    for (const [name, number, inlined] of inner ? [[1, inner, 1], [0, line, 0]] : [[0, line, 0]]) {
      stack.push(frames.line.length);
      frames.function.push(name); frames.file.push(0); frames.line.push(number); frames.column.push(3); frames.inlined.push(inlined);
    }
    stacks.push(stack);
    return stacks.length - 1;
  });
  const blockOf = (at) => STARTS.findLastIndex((start) => start <= at);
  const blockSum = (list, block) => sum(list.slice(STARTS[block], STARTS[block + 1] ?? CODE.length));
  const blocks = STARTS.map((first, at) => ({
    first, count: (STARTS[at + 1] ?? CODE.length) - first, loop: at === 4 ? 1 : at >= 2 && at <= 7 ? 0 : null, depth: at === 4 ? 2 : at >= 2 && at <= 7 ? 1 : 0,
    samples: samples.map((list) => blockSum(list, at)), weight: weights.map((list) => blockSum(list, at)), estimate: weights.map((list) => blockSum(list, at)),
  }));
  const edges = [];
  blocks.forEach((block, at) => {
    const last = block.first + block.count - 1;
    const [text, , , target] = CODE[last];
    if (target !== null) edges.push({ from: at, to: blockOf(target), outside: null, function: null, kind: text.startsWith("jmp") ? "jump" : "taken", executions: null });
    if (text === "retq") edges.push({ from: at, to: null, outside: null, function: null, kind: "leave", executions: null });
    else if (!text.startsWith("jmp")) edges.push({ from: at, to: at + 1, outside: null, function: null, kind: "fall_through", executions: null });
  });
  const loop = (header, parent, depth, list, trips) => ({ header, parent, depth, blocks: list, samples: samples.map((s) => sum(list.map((b) => blockSum(s, b)))), weight: weights.map((s) => sum(list.map((b) => blockSum(s, b)))), trips, trips_error: trips ? 11.2 : null });
  const lines = [];
  for (let line = 1; line <= 22; line++) {
    const at = CODE.map((code, i) => ((code[2] || code[1]) === line ? i : -1)).filter((i) => i >= 0);
    const outer = CODE.map((code, i) => (code[1] === line ? i : -1)).filter((i) => i >= 0);
    if (at.length + outer.length === 0) continue;
    const pick = (list, which) => list.map((values) => sum(which.map((i) => values[i])));
    lines.push({ file: 0, line, has_code: at.length > 0, samples: pick(samples, at), weight: pick(weights, at), outer_samples: pick(samples, outer), outer_weight: pick(weights, outer) });
  }
  return {
    profile: 0, generation: 1,
    function: { key: found.key, name: found.name, raw_name: found.name, module: { ...found.module, path: `/usr/lib/${found.module.name}` }, start: 0x1150, end: 0x11d0, virtual_start: 0x401150 },
    events: events.map(({ key, name, unit }, e) => ({ key, name, unit, scaled: false, total: counted(e, 4), own: counted(e) })),
    has_code: true, strings: ["hash_all", "mix", "sequential", "conditional_jump"], frames, stacks,
    instructions: {
      address: CODE.map((_, at) => 0x1150 + at * 4), virtual_address: CODE.map((_, at) => 0x401150 + at * 4), bytes: CODE.map(() => "4889e590"), text: CODE.map(([text]) => text),
      kind: CODE.map(([, , , target]) => (target === null ? 2 : 3)), block: CODE.map((_, at) => blockOf(at)), stack: stackOf,
      samples, weight: weights, estimate: weights, error: weights.map((list, e) => list.map((value) => Math.sqrt(value / events[e].period) * events[e].period)),
    },
    targets: CODE.flatMap(([, , , target], at) => (target === null ? [] : [{ instruction: at, to: target, virtual_address: 0x401150 + target * 4, function: null, offset: null, key: null }])),
    blocks, edges, loops: [loop(2, null, 1, [2, 3, 4, 5, 6, 7], 12.5), loop(4, 0, 2, [4], 812.3)],
    files: [{ id: "f1", path: "/home/me/<b>hash</b>.c", found: true, found_at: "/home/me/hash.c", lines: SOURCE.length, newer: false, why: null }], lines, unresolved_jumps: 0, facts: [],
  };
}

export function sourceAnswer() {
  return { file: { id: "f1", path: "/home/me/<b>hash</b>.c", found: true, found_at: "/home/me/hash.c", lines: SOURCE.length, newer: false, why: null }, from: 1, total_lines: SOURCE.length, lines: SOURCE };
}
