//! C++ names without parameters and template arguments.

/// A demangled C++ name without its return type, parameters and template arguments: `std::vector::push_back` for
/// `std::vector<int, std::allocator<int> >::push_back(int&&)`.
///
/// What follows the parameters goes, too, but for a version (`@GLIBCXX_3.4`) and marks of the compiler (`[clone .cold]`).
///
/// ```
/// use dioptra_calls::simple_name;
/// assert_eq!(simple_name("int apply<int>(int)"), "apply");
/// assert_eq!(simple_name("A<int>::operator<(A<int> const&) const"), "A::operator<");
/// assert_eq!(simple_name("(anonymous namespace)::f(int)"), "(anonymous namespace)::f");
/// ```
pub fn simple_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    // "vtable for X", "virtual thunk to f()": no return type ends there.
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
            rest = after
                .strip_prefix(' ')
                .filter(|r| r.starts_with('<'))
                .unwrap_or(after);
            continue;
        }
        match c {
            '<' => rest = behind(rest, '<', '>'),
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
                let mark = tail.find('@').or_else(|| tail.find(" [clone"));
                out.push_str(mark.map_or("", |mark| &tail[mark..]));
                break;
            }
            ' ' if rest.starts_with(" [clone") => {
                out.push_str(rest);
                break;
            }
            // What came before is the return type.
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

/// What is behind an `operator…` with which `rest` begins.
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

/// What is behind the bracket that closes the one with which `text` begins.
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

#[cfg(test)]
mod tests {
    use super::*;

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
        }
    }
}
