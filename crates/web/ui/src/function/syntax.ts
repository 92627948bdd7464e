// Colours for source and assembly. Both give pieces of text with a class; text never becomes markup.

import hljs from "highlight.js/lib/core";
import armasm from "highlight.js/lib/languages/armasm";
import c from "highlight.js/lib/languages/c";
import cpp from "highlight.js/lib/languages/cpp";
import python from "highlight.js/lib/languages/python";
import rust from "highlight.js/lib/languages/rust";
import x86asm from "highlight.js/lib/languages/x86asm";

hljs.registerLanguage("c", c);
hljs.registerLanguage("cpp", cpp);
hljs.registerLanguage("rust", rust);
hljs.registerLanguage("python", python);
hljs.registerLanguage("x86asm", x86asm);
hljs.registerLanguage("armasm", armasm);

export interface Piece {
  text: string;
  kind: string;
}

const LONGEST = 1_500_000;
const BY_ENDING: Record<string, string> = {
  c: "c", h: "cpp", cc: "cpp", cpp: "cpp", cxx: "cpp", "c++": "cpp", hh: "cpp", hpp: "cpp", hxx: "cpp", inc: "cpp", tcc: "cpp", ipp: "cpp", rs: "rust", py: "python",
};

/** The language of a file, by the ending of its name. */
function languageOf(path: string, arch: string): string | null {
  const ending = path.slice(path.lastIndexOf(".") + 1).toLowerCase();
  if (ending === "s" || ending === "asm") return /arm|aarch64/.test(arch) ? "armasm" : "x86asm";
  if (/\/include\/c\+\+\/|\/bits\//.test(path) && !path.slice(path.lastIndexOf("/")).includes(".")) return "cpp";
  return BY_ENDING[ending] ?? null;
}

/** The kinds that the style sheet knows, by the beginning of highlight.js' scopes. */
function kindOf(scope: string | undefined): string {
  if (!scope) return "";
  if (scope.startsWith("title.class") || scope === "type" || scope === "built_in") return "type";
  if (scope.startsWith("title")) return "function";
  if (scope.startsWith("comment") || scope === "doctag") return "comment";
  if (scope.startsWith("string") || scope.startsWith("char") || scope === "regexp") return "string";
  if (scope === "number" || scope === "literal" || scope === "symbol") return "number";
  if (scope === "keyword" || scope.startsWith("variable.language")) return "keyword";
  if (scope.startsWith("meta")) return "meta";
  return "";
}

interface TokenNode {
  scope?: string;
  children: (TokenNode | string)[];
}

/** Splits a file into lines of coloured pieces. Files in other languages, and huge ones, have no colours. */
export function colourSource(path: string, arch: string, lines: readonly string[]): Piece[][] {
  const language = languageOf(path, arch);
  const text = lines.join("\n");
  if (language === null || text.length > LONGEST) return lines.map((line) => [{ text: line, kind: "" }]);
  const result = hljs.highlight(text, { language, ignoreIllegals: true }) as unknown as { _emitter: { root: TokenNode } };
  const out: Piece[][] = [[]];
  const walk = (node: TokenNode, kind: string) => {
    for (const child of node.children) {
      if (typeof child !== "string") { walk(child, kindOf(child.scope) || kind); continue; }
      const parts = child.split("\n");
      parts.forEach((part, at) => {
        if (at > 0) out.push([]);
        if (part) out[out.length - 1]!.push({ text: part, kind });
      });
    }
  };
  walk(result._emitter.root, "");
  return out.length === lines.length ? out : lines.map((line) => [{ text: line, kind: "" }]);
}

const ASSEMBLY = /(%[a-z][a-z0-9]*|\b(?:[er]?(?:[abcd]x|[sd]i|[sb]p|ip)|r(?:8|9|1[0-5])[dwb]?|[abcd][lh]|[xyz]mm\d+|[wxvqdsb]\d{1,2}|sp|lr|xzr|wzr)\b)|([$#]?-?0x[0-9a-f]+|[$#]-?\d+|\b\d+\b)|(<[^>]*>|#.*$|\/\/.*$)/gi;

/** Splits an instruction's text: mnemonic, registers, numbers, symbols. */
export function colourInstruction(text: string): Piece[] {
  const mnemonic = /^\s*(?:(?:lock|rep[nz]?e?|notrack|bnd|data16|cs|ds) )*[a-z][\w.]*/i.exec(text)?.[0] ?? "";
  const out: Piece[] = mnemonic ? [{ text: mnemonic.padEnd(7), kind: /^\s*(j|call|ret|b[.l ]|b$|cb|tb|bl)/.test(mnemonic) ? "function" : "keyword" }] : [];
  const rest = text.slice(mnemonic.length);
  let from = 0;
  for (const match of rest.matchAll(ASSEMBLY)) {
    if (match.index > from) out.push({ text: rest.slice(from, match.index), kind: "" });
    out.push({ text: match[0], kind: match[1] ? "type" : match[2] ? "number" : "comment" });
    from = match.index + match[0].length;
  }
  if (from < rest.length) out.push({ text: rest.slice(from), kind: "" });
  return out;
}
