//! The subjects of a rule: names, patterns, modules, source files.

use super::simple_name::NameForms;
use regex::{Regex, RegexBuilder};
use std::boxed::Box;
use std::format;
use std::string::{String, ToString};

/// The way in which texts with pattern characters match names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatchStyle {
    /// As regular expressions that match anywhere in the name.
    #[default]
    Regex,
    /// As a shell's patterns, with `*`, `?` and `[…]`, over the whole name.
    Glob,
    /// As plain names: there are no patterns.
    Simple,
}

impl MatchStyle {
    /// Parses `regex`, `glob` or `simple`; `None` for other words.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "regex" => Some(Self::Regex),
            "glob" => Some(Self::Glob),
            "simple" => Some(Self::Simple),
            _ => None,
        }
    }

    /// Returns the word for the style; the inverse of [`MatchStyle::parse`].
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Regex => "regex",
            Self::Glob => "glob",
            Self::Simple => "simple",
        }
    }
}

/// The characters that make a text a pattern.
const PATTERN_CHARACTERS: &[char] = &[
    '.', '?', '*', '+', '-', '^', '$', '|', '(', ')', '[', ']', '{', '}',
];

/// The largest compiled pattern, in bytes: a text of a few characters could ask for gigabytes otherwise.
const PATTERN_SIZE: usize = 1 << 20;

/// A pattern that names are compared with.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    /// The demangled name with or without its parameters, or the name in the symbol table.
    Exact(String),
    /// A regular expression; the text itself also matches as a whole.
    Regex(String, Box<Regex>),
}

/// Parts of demangled names that are no regular expressions.
const CLOSURES: [&str; 3] = ["{lambda(", "{closure#", "{{closure}}"];

impl Pattern {
    /// Returns a pattern for names, or the defect of the text.
    pub fn new(text: &str, style: MatchStyle) -> Result<Self, String> {
        let plain =
            style == MatchStyle::Simple || is_operator(text) || !text.contains(PATTERN_CHARACTERS);
        if plain {
            return Ok(Self::Exact(text.to_string()));
        }
        let expression = match style {
            MatchStyle::Glob => glob(text),
            _ => text.to_string(),
        };
        match compile(&expression) {
            Ok(regex) => Ok(Self::Regex(text.to_string(), regex)),
            // Names hold `{lambda(int)#1}` and `{closure#0}`, which are no repetitions.
            Err(_) if CLOSURES.iter().any(|closure| text.contains(closure)) => {
                Ok(Self::Exact(text.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if one of a function's names matches. A substitute for the name of a function without one matches
    /// only patterns that any name matches, and patterns with a `<`: letters of its file or digits of its address are
    /// no name.
    pub fn matches(&self, names: &NameForms<'_>) -> bool {
        match self {
            Self::Exact(text) => names.is_named(text),
            Self::Regex(text, regex) => {
                let is_hidden_place = is_place(names.full()) && !text.contains('<');
                let is_match = match is_hidden_place {
                    true => regex.is_match("<>"),
                    false => names.demangled().any(|name| regex.is_match(name)),
                };
                is_match || names.is_named(text)
            }
        }
    }

    /// Returns the longest stretch without pattern characters, for suggestions of near names.
    pub fn literal(&self) -> &str {
        match self {
            Self::Exact(text) => text,
            Self::Regex(text, _) => text
                .split(PATTERN_CHARACTERS)
                .max_by_key(|part| part.len())
                .unwrap_or(""),
        }
    }
}

/// Returns true if a name is the substitute for the name of a function without one: its file and its address there
/// (`<libz.so.1+0x1234>`), or an address alone.
fn is_place(name: &str) -> bool {
    let inner = name
        .strip_prefix('<')
        .and_then(|rest| rest.strip_suffix('>'));
    let digits = inner.map(|inner| inner.rsplit_once("+0x").map_or(inner, |(_, digits)| digits));
    digits.is_some_and(|digits| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        !digits.is_empty() && digits.bytes().all(is_digit)
    })
}

/// Returns true for names such as `operator+` and `Vector::operator[]`, which contain pattern characters.
fn is_operator(text: &str) -> bool {
    let Some(rest) = text
        .strip_prefix("operator")
        .or_else(|| text.split_once("::operator").map(|(_, rest)| rest))
    else {
        return false;
    };
    rest.starts_with(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Returns true if `wanted` is the beginning of the module's file name, or its path.
pub(crate) fn module_matches(wanted: &str, module: &str) -> bool {
    if wanted.contains('/') {
        return module == wanted;
    }
    let file = module.rsplit('/').next().unwrap_or(module);
    !wanted.is_empty() && file.starts_with(wanted)
}

/// A set of source files: a file or folder, or a pattern for paths.
#[derive(Debug, Clone)]
pub(crate) enum Location {
    /// The components of a path.
    Path(String),
    /// A regular expression that matches anywhere in the path.
    Regex(Box<Regex>),
}

impl Location {
    /// Returns a set of source files, or the defect of the text.
    pub fn new(text: &str, style: MatchStyle) -> Result<Self, String> {
        // A dot, a dash and a plus are common in names of files.
        let plain = style == MatchStyle::Simple
            || !text.contains(['?', '*', '^', '$', '|', '(', ')', '[', ']', '{', '}']);
        Ok(match (plain, style) {
            (true, _) => Self::Path(text.trim_matches('/').to_string()),
            (false, MatchStyle::Glob) => Self::Regex(compile(&glob(text))?),
            (false, _) => Self::Regex(compile(text)?),
        })
    }

    pub fn matches(&self, path: &str) -> bool {
        match self {
            Self::Path(wanted) => path.match_indices(wanted.as_str()).any(|(at, found)| {
                let before = at == 0 || path[..at].ends_with('/');
                let rest = &path[at + found.len()..];
                before && (rest.is_empty() || rest.starts_with('/'))
            }),
            Self::Regex(regex) => regex.is_match(path),
        }
    }
}

fn compile(expression: &str) -> Result<Box<Regex>, String> {
    RegexBuilder::new(expression)
        .size_limit(PATTERN_SIZE)
        .dfa_size_limit(PATTERN_SIZE)
        .build()
        .map(Box::new)
        .map_err(|error| match error {
            regex::Error::Syntax(message) => {
                // The last line is the reason; those before draw the pattern, which the caller does itself.
                let reason = message.lines().last().unwrap_or("it is not understood");
                reason.trim_start_matches("error: ").to_string()
            }
            regex::Error::CompiledTooBig(_) => "it is too large".to_string(),
            other => format!("{other}"),
        })
}

/// Returns a shell's pattern as a regular expression over the whole text.
fn glob(text: &str) -> String {
    let mut expression = String::from("^(?s:");
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '*' => expression.push_str(".*"),
            '?' => expression.push('.'),
            '[' => match set(rest.as_str()) {
                Some((set, after)) => {
                    expression.push_str(&set);
                    rest = after.chars();
                }
                None => expression.push_str("\\["),
            },
            '\\' => match rest.next() {
                Some(escaped) => expression.push_str(&regex::escape(&escaped.to_string())),
                None => expression.push_str("\\\\"),
            },
            c => expression.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    expression.push_str(")$");
    expression
}

/// Returns a set of a shell's pattern as a regular expression, and the text behind it; `text` begins behind the
/// opening bracket.
fn set(text: &str) -> Option<(String, &str)> {
    let (negated, body) = match text.strip_prefix(['!', '^']) {
        Some(body) => ("^", body),
        None => ("", text),
    };
    // A closing bracket that comes first is a member.
    let first = body.chars().next()?.len_utf8();
    let end = first + body.get(first..)?.find(']')?;
    let members: String = body[..end]
        .chars()
        .flat_map(|c| {
            let escape = matches!(c, '[' | ']' | '\\' | '^' | '&' | '~');
            escape.then_some('\\').into_iter().chain([c])
        })
        .collect();
    Some((format!("[{negated}{members}]"), &body[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(text: &str, style: MatchStyle, name: &str) -> bool {
        Pattern::new(text, style)
            .unwrap()
            .matches(&NameForms::new(name, None))
    }

    #[test]
    fn texts_without_pattern_characters_are_names() {
        assert!(matches("main", MatchStyle::Regex, "main"));
        assert!(!matches("main", MatchStyle::Regex, "domain"));
        assert!(matches("ns::f", MatchStyle::Regex, "ns::f(int, char*)"));
        assert!(!matches("ns::f", MatchStyle::Regex, "ns::f2(int)"));
        let mangled = Pattern::new("_Z1av", MatchStyle::Regex).unwrap();
        assert!(mangled.matches(&NameForms::new("a()", Some("_Z1av"))));
    }

    #[test]
    fn cpp_functions_have_simple_qualified_and_full_names() {
        let method = ("ns::A::bar2(int, char const*)", "_ZN2ns1A4bar2EiPKc");
        let constructor = ("ns::A::A(int)", "_ZN2ns1AC1Ei");
        let template = ("int ns::tw<int>(int)", "_ZN2ns2twIiEET_S1_");
        let rust = ("<a::B as f::C>::f", "_RNvXNtCs1_1aB_1fC1f");
        for (text, style, (name, linkage), expected) in [
            ("bar2$", MatchStyle::Regex, method, true),
            ("^ns::A::bar2$", MatchStyle::Regex, method, true),
            ("A::A$", MatchStyle::Regex, constructor, true),
            ("^bar2$", MatchStyle::Regex, method, false),
            ("char const", MatchStyle::Regex, method, false),
            ("char const.$", MatchStyle::Regex, method, false),
            ("char const[*]", MatchStyle::Regex, method, true),
            ("ns::A::*", MatchStyle::Glob, method, true),
            ("*::bar2", MatchStyle::Glob, method, true),
            ("*::bar", MatchStyle::Glob, method, false),
            ("ns::tw", MatchStyle::Regex, template, true),
            ("ns::tw", MatchStyle::Simple, template, true),
            ("ns::tw<int>", MatchStyle::Regex, template, true),
            ("^ns::tw<int>$", MatchStyle::Regex, template, true),
            ("ns::tw<long>", MatchStyle::Regex, template, false),
            ("int ns::tw<int>(int)", MatchStyle::Regex, template, true),
            ("^ns::tw$", MatchStyle::Regex, template, true),
            ("tw", MatchStyle::Regex, template, false),
            ("^::f$", MatchStyle::Regex, rust, false),
        ] {
            let pattern = Pattern::new(text, style).unwrap();
            let names = NameForms::new(name, Some(linkage));
            assert_eq!(pattern.matches(&names), expected, "{text} {name}");
        }
    }

    #[test]
    fn regular_expressions_match_anywhere_and_names_match_themselves() {
        assert!(matches("^ma.n", MatchStyle::Regex, "mainly"));
        assert!(matches("a|b", MatchStyle::Regex, "cab"));
        assert!(matches("f(int*)", MatchStyle::Regex, "f(int*)"));
    }

    #[test]
    fn places_are_no_names() {
        let place = "<libcrypto.so.3+0x1f30>";
        for text in [
            "f.*",
            "crypt*",
            ".*crypt.*",
            "[a-z]",
            "x1",
            "f[0-9]",
            "so.3",
        ] {
            assert!(!matches(text, MatchStyle::Regex, place), "{text}");
        }
        assert!(!matches(".*f", MatchStyle::Regex, "<1f30>"));
        for text in [
            ".",
            ".*",
            "^",
            "^<",
            "<libcrypto.*",
            "<libcrypto.so.3+0x1f30>",
        ] {
            assert!(matches(text, MatchStyle::Regex, place), "{text}");
        }
        assert!(matches("*", MatchStyle::Glob, place));
        assert!(matches("<libcrypto*", MatchStyle::Glob, place));
        assert!(!matches("*f*", MatchStyle::Glob, place));
        assert!(matches(place, MatchStyle::Simple, place));
        // A name that is no operator's.
        assert!(matches("f.*", MatchStyle::Regex, "<a::B as f::C>::f"));
    }

    #[test]
    fn operators_are_exact() {
        assert!(matches("operator+", MatchStyle::Regex, "operator+(V, V)"));
        assert!(!matches("operator+", MatchStyle::Regex, "operatorr"));
        assert!(matches(
            "V::operator[]",
            MatchStyle::Regex,
            "V::operator[](int)"
        ));
        assert!(matches(
            "V::operator()",
            MatchStyle::Regex,
            "V::operator()(int)"
        ));
        assert!(matches(
            "operator new",
            MatchStyle::Glob,
            "operator new(unsigned long)"
        ));
        assert!(matches("operator.*", MatchStyle::Simple, "operator.*"));
        assert!(matches("operators_.*", MatchStyle::Regex, "operators_x"));
    }

    #[test]
    fn globs_match_whole_names() {
        for (text, name, expected) in [
            ("ma*", "main", true),
            ("ma*", "domain", false),
            ("m??n", "main", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]x", "]x", true),
            ("[x", "[x", true),
            ("a.c*", "abcd", false),
            ("a\\*", "a*", true),
        ] {
            assert_eq!(
                matches(text, MatchStyle::Glob, name),
                expected,
                "{text} {name}"
            );
        }
    }

    #[test]
    fn wrong_and_huge_patterns_are_refused() {
        assert!(
            Pattern::new("a(b", MatchStyle::Regex)
                .unwrap_err()
                .contains("unclosed group")
        );
        assert!(Pattern::new("((a{999}){999}){999}", MatchStyle::Regex).is_err());
    }

    #[test]
    fn locations_are_components_of_paths() {
        let at = |text: &str, path: &str| {
            Location::new(text, MatchStyle::Regex)
                .unwrap()
                .matches(path)
        };
        assert!(at("main.c", "src/main.c"));
        assert!(!at("main.c", "src/domain.c"));
        assert!(at("src", "/home/x/src/main.c"));
        assert!(at("src/", "src/main.c"));
        assert!(!at("sr", "src/main.c"));
        assert!(at("c++/12", "/usr/include/c++/12/vector"));
        assert!(at("^lib.*[.]c$", "lib/a.c"));
    }

    #[test]
    fn modules_are_the_beginnings_of_files_names() {
        assert!(module_matches("libc", "/usr/lib/libc.so.6"));
        assert!(!module_matches("usr", "/usr/lib/libc.so.6"));
        assert!(module_matches("/usr/lib/libc.so.6", "/usr/lib/libc.so.6"));
    }
}
