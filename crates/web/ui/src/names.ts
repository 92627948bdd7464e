// Names of functions as people read them: type arguments folded, the compiler's hashes left out. The whole name stays on
// hover and on copy. `dioptra report` folds by the same rules (crates/tables/table/src/short_names.rs).

const folded = new Map<string, string>();
const MOST_KEPT = 20_000;
const LONGEST_SHOWN = 400;

/** Folds a name's type arguments to `<…>`, and cuts the middle of names of absurd length. */
export function fold(name: string): string {
  const known = folded.get(name);
  if (known !== undefined) return known;
  if (folded.size > MOST_KEPT) folded.clear();
  const short = shorten(visible(name));
  folded.set(name, short);
  return short;
}

/** Shows control and direction-changing characters as escapes, so that no name can disguise itself. */
export function visible(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (character) => `\\u{${character.charCodeAt(0).toString(16)}}`);
}

function shorten(name: string): string {
  const cut = name.length > LONGEST_SHOWN * 8 ? cutMiddle(name, LONGEST_SHOWN * 8) : name;
  return cutMiddle(foldArguments(withoutHashes(cut)), LONGEST_SHOWN);
}

/** Leaves out the middle of a text. */
export function cutMiddle(text: string, longest: number): string {
  if (text.length <= longest) return text;
  const head = Math.floor((longest - 1) * 0.4);
  return `${text.slice(0, head)}…${text.slice(text.length - (longest - 1 - head))}`;
}

function withoutHashes(name: string): string {
  return name.replace(/::h[0-9a-f]{16}(?=$|[.@ ])/, "").replace(/(\w)\[[0-9a-f]{8,16}\](?=::)/g, "$1");
}

function isWord(character: string | undefined): boolean {
  return character !== undefined && /[\w$\u0080-\uffff]/.test(character);
}

/** Replaces type arguments by `<…>`. Operators such as `<` and `->`, and Rust's `<T as Trait>` at a path's start, stay. */
function foldArguments(name: string): string {
  if (!name.includes("<")) return name;
  let out = "";
  let at = 0;
  while (at < name.length) {
    const operator = /^operator ?(<=>|<<=|>>=|->\*?|<<|>>|<=|>=|<|>)/.exec(name.startsWith("operator", at) ? name.slice(at, at + 14) : "");
    if (operator && !isWord(name[at - 1])) {
      out += operator[0];
      at += operator[0].length;
      const space = name[at] === " " ? 1 : 0;
      if (name[at + space] === "<") {
        const end = closing(name, at + space);
        if (end < 0) return out + name.slice(at);
        out += `${" ".repeat(space)}<…>`;
        at = end + 1;
      }
      continue;
    }
    const before = name[at - 1];
    if (name[at] === "<" && (isWord(before) || before === ":")) {
      const end = closing(name, at);
      if (end < 0) return out + name.slice(at);
      if (out.endsWith("::")) out = out.slice(0, -2);
      out += end === at + 1 ? "<>" : "<…>";
      at = end + 1;
      continue;
    }
    out += name[at];
    at += 1;
  }
  return out;
}

/** The position of the bracket that closes the one at `open`, or -1. */
function closing(name: string, open: number): number {
  let depth = 0;
  let round = 0;
  for (let at = open; at < name.length; at++) {
    const character = name[at];
    if (character === "(") round += 1;
    else if (character === ")") round -= 1;
    else if (round > 0) continue;
    else if (character === "<") depth += 1;
    else if (character === ">" && name[at - 1] !== "-" && --depth === 0) return at;
  }
  return -1;
}

/** The last part of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}
