//! C++ names without parameters, and without template arguments.

use super::nearest::without_parameters;
use std::borrow::ToOwned;
use std::string::String;

/// A demangled C++ name without its return type, parameters and template arguments: `std::vector::push_back` for
/// `std::vector<int, std::allocator<int> >::push_back(int&&)`.
///
/// The text behind the parameters is removed, too, except a version (`@GLIBCXX_3.4`) and marks of the compiler
/// (`[clone .cold]`).
///
/// ```
/// use dioptra_filters::simple_name;
/// assert_eq!(simple_name("int apply<int>(int)"), "apply");
/// assert_eq!(simple_name("A<int>::operator<(A<int> const&) const"), "A::operator<");
/// assert_eq!(simple_name("(anonymous namespace)::f(int)"), "(anonymous namespace)::f");
/// ```
#[must_use]
pub fn simple_name(name: &str) -> String {
    reduced(name, false)
}

/// A demangled C++ name without its return type and parameters, and with its template arguments: `ns::f<int>` for
/// `void ns::f<int>(int)`.
///
/// ```
/// use dioptra_filters::qualified_name;
/// assert_eq!(qualified_name("int ns::apply<int>(int)"), "ns::apply<int>");
/// assert_eq!(qualified_name("std::ostream& std::operator<< <char>(std::ostream&)"), "std::operator<< <char>");
/// ```
#[must_use]
pub fn qualified_name(name: &str) -> String {
    reduced(name, true)
}

fn reduced(name: &str, with_arguments: bool) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    // "vtable for X", "virtual thunk to f()": the words before the name are no return type.
    let prefix = [
        "non-virtual thunk to ",
        "virtual thunk to ",
        "guard variable for ",
        "construction vtable for ",
        "vtable for ",
        "VTT for ",
        "typeinfo for ",
        "typeinfo name for ",
    ]
    .into_iter()
    .find(|prefix| name.starts_with(prefix));
    if let Some(prefix) = prefix {
        out.push_str(prefix);
        rest = &rest[prefix.len()..];
    }
    let start = out.len();
    while let Some(c) = rest.chars().next() {
        if let Some(after) = operator(rest, &out[start..]) {
            out.push_str(&rest[..rest.len() - after.len()]);
            rest = after;
            if let Some(arguments) = after.strip_prefix(' ').filter(|r| r.starts_with('<')) {
                out.push_str(if with_arguments { " " } else { "" });
                rest = arguments;
            }
            continue;
        }
        match c {
            '<' => {
                let after = behind(rest, '<', '>');
                if with_arguments {
                    out.push_str(&rest[..rest.len() - after.len()]);
                }
                rest = after;
            }
            '{' => {
                let after = behind(rest, '{', '}');
                out.push_str(&rest[..rest.len() - after.len()]);
                rest = after;
            }
            '(' if rest.starts_with("(anonymous namespace)") => {
                out.push_str("(anonymous namespace)");
                rest = &rest["(anonymous namespace)".len()..];
            }
            '(' => {
                let after = behind(rest, '(', ')');
                let tail = after.strip_prefix(" const").unwrap_or(after);
                if tail.starts_with("::") {
                    rest = tail;
                    continue;
                }
                // A return type that is deduced; the name follows.
                if matches!(&out[start..], "decltype" | "decltype ") && after.starts_with(' ') {
                    out.truncate(start);
                    rest = &after[1..];
                    continue;
                }
                let mark = tail.find('@').or_else(|| tail.find(" [clone"));
                out.push_str(mark.map_or("", |mark| &tail[mark..]));
                break;
            }
            ' ' if rest.starts_with(" [clone") => {
                out.push_str(rest);
                break;
            }
            // The words before were the return type.
            ' ' if rest.starts_with(" (") && &out[start..] == "decltype" => rest = &rest[1..],
            ' ' => {
                out.truncate(start);
                rest = &rest[1..];
            }
            c => {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    if out.len() == start {
        return name.to_owned();
    }
    out
}

/// Returns the text behind an `operator…` with which `rest` begins.
fn operator<'a>(rest: &'a str, before: &str) -> Option<&'a str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let after = rest.strip_prefix("operator")?;
    if before.ends_with(is_word) || after.starts_with(is_word) {
        return None;
    }
    if let Some(after) = after.strip_prefix("()") {
        return Some(after);
    }
    if after.starts_with(' ') {
        // A conversion, `new[]`, or a literal's suffix: up to the parameters.
        return Some(&after[after.find('(').unwrap_or(after.len())..]);
    }
    let signs = |c: char| !"<>=!+-*/%^&|~[],".contains(c);
    let mut end = after.find(signs).unwrap_or(after.len());
    // `operator< <int>` has a blank, `operator+<int>` has none.
    if let Some(angle) = after[..end].find('<')
        && angle > 0
        && !after[..end].starts_with('<')
    {
        end = angle;
    }
    Some(&after[end..])
}

/// Returns the text behind the bracket that closes the one with which `text` begins.
fn behind(text: &str, open: char, close: char) -> &str {
    let mut depth = 0_usize;
    let mut last = ' ';
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close && !(close == '>' && last == '-') {
            depth -= 1;
            if depth == 0 {
                return &text[at + c.len_utf8()..];
            }
        }
        last = c;
    }
    ""
}

/// Returns true if a name of the symbol table is a mangled C++ name, not a Rust one.
#[must_use]
pub fn is_cpp(raw: &str) -> bool {
    let mangled = raw.split('@').next().unwrap_or(raw);
    (mangled.starts_with("_Z") || mangled.starts_with("__Z")) && !has_rust_hash(mangled)
}

/// Returns true if a mangled name ends with the hash of Rust's legacy names: `17h` and 16 digits.
fn has_rust_hash(mangled: &str) -> bool {
    // A suffix such as `.llvm.123` may follow. Names of trait methods hold dots, too: `_ZN45_$LT$a..B$u20$as…`.
    mangled.rmatch_indices("17h").any(|(start, _)| {
        let hash = mangled.get(start + 3..start + 20).unwrap_or("");
        let digits = hash.strip_suffix('E').unwrap_or("");
        let after = mangled.get(start + 20..).unwrap_or("");
        digits.bytes().all(|byte| byte.is_ascii_hexdigit())
            && digits.len() == 16
            && (after.is_empty() || after.starts_with('.'))
    })
}

/// The forms of a function's name.
#[derive(Clone, Debug)]
pub struct NameForms<'a> {
    /// The demangled name.
    full: &'a str,
    /// The demangled name without its parameters.
    bare: &'a str,
    /// The name in the symbol table, if it is another one.
    linkage: Option<&'a str>,
    /// The reduced forms of a C++ name: without return type and parameters; and without template arguments, too.
    reduced: Option<[String; 2]>,
}

impl<'a> NameForms<'a> {
    /// Returns the forms of a function's demangled name. `linkage` is the name in the symbol table if it is another
    /// one.
    #[must_use]
    pub fn new(full: &'a str, linkage: Option<&'a str>) -> NameForms<'a> {
        let reduces = linkage.is_some_and(is_cpp);
        NameForms {
            full,
            bare: without_parameters(full),
            linkage,
            reduced: reduces.then(|| [qualified_name(full), simple_name(full)]),
        }
    }

    /// Returns true if a text is one of the names.
    #[must_use]
    pub fn is_named(&self, text: &str) -> bool {
        self.all().any(|name| name == text)
    }

    /// Returns all names.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.demangled()
            .chain(self.linkage)
            .chain((self.bare != self.full).then_some(self.bare))
    }

    /// Returns the names that patterns are compared with: the full one, and those without parameters.
    pub(crate) fn demangled(&self) -> impl Iterator<Item = &str> {
        let reduced = self.reduced.iter().flatten().map(String::as_str);
        core::iter::once(self.full).chain(reduced)
    }

    /// Returns the demangled name.
    pub(crate) fn full(&self) -> &str {
        self.full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_names_are_no_cpp_names() {
        assert!(is_cpp("_ZN3foo3barEi"));
        assert!(!is_cpp("_ZN3std2rt10lang_start17h0123456789abcdefE"));
        assert!(!is_cpp("_RNvCs1234_7mycrate3foo"));
        assert!(!is_cpp("main"));
    }

    #[test]
    fn template_arguments_stay_in_qualified_names() {
        for (full, qualified) in [
            ("main", "main"),
            ("int ns::tw<int>(int)", "ns::tw<int>"),
            ("ns::A::bar2(int, char const*)", "ns::A::bar2"),
            (
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("decltype(auto) f<int>(int)", "f<int>"),
            ("decltype (x()) g<int>(int)", "g<int>"),
            ("A::operator bool() const", "A::operator bool"),
            ("bool operator==<int>(A<int>, A<int>)", "operator==<int>"),
        ] {
            assert_eq!(qualified_name(full), qualified);
        }
        assert_eq!(simple_name("decltype(auto) f<int>(int)"), "f");
    }

    #[test]
    fn parameters_and_arguments_go() {
        for (full, simple) in [
            ("main", "main"),
            ("a::b(int, std::function<void()>)", "a::b"),
            ("A::operator()(int) const", "A::operator()"),
            (
                "ns::(anonymous namespace)::f()",
                "ns::(anonymous namespace)::f",
            ),
            (
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
                "std::vector::push_back",
            ),
            (
                "std::ostream& std::operator<< <char>(std::ostream&)",
                "std::operator<<",
            ),
            ("operator new(unsigned long)@plt", "operator new@plt"),
            ("A::operator bool() const", "A::operator bool"),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                "main::{lambda(int)#1}::operator()",
            ),
            ("f(int)::g(char)", "f::g"),
            ("virtual thunk to B::f()", "virtual thunk to B::f"),
            ("f(int) [clone .cold]", "f [clone .cold]"),
            ("A::operator->()", "A::operator->"),
            ("bool operator==<int>(A<int>, A<int>)", "operator=="),
            ("~A", "~A"),
            ("<weird", "<weird"),
        ] {
            assert_eq!(simple_name(full), simple, "{full}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_taken(text in "[a-z<>(){}:@ é-]{0,40}|operator[a-z<>() -]{0,9}") {
            proptest::prop_assert!(simple_name(&text).len() <= text.len());
            proptest::prop_assert!(qualified_name(&text).len() <= text.len());
        }
    }
}
