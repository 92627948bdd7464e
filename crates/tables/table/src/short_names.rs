//! Shortening of functions' names to a width: for tables on a terminal and on a page.
//!
//! Templates and generics make names of thousands of characters. [`fit_name`] leaves a name alone that fits, and
//! otherwise takes away in this order, until the rest fits: the compiler's hashes, type arguments from the innermost
//! ones outwards, the types of parameters, their brackets, and at last the middle.

use crate::escape::{character_width, display_width};
use std::borrow::Cow;
use std::ops::Range;

/// The text in place of a part that was taken away.
const DOTS: &str = "…";

/// Shortens a name to at most `width` terminal cells. The name is escaped text ([`crate::escape()`]).
///
/// ```
/// use dioptra_tables::fit_name;
/// let name = "std::vector<int, std::allocator<int> >::push_back(int const&)";
/// assert_eq!(fit_name(name, 80), name);
/// assert_eq!(fit_name(name, 42), "std::vector<…>::push_back(int const&)");
/// assert_eq!(fit_name(name, 30), "std::vector<…>::push_back(…)");
/// assert_eq!(fit_name(name, 20), "std::ve…>::push_back");
/// ```
pub fn fit_name(name: &str, width: usize) -> Cow<'_, str> {
    let name = without_hashes(name);
    if display_width(&name) <= width {
        return name;
    }
    let lists = Lists::of(&name);
    // Each level of type arguments costs a look at the name; beyond a few, all levels go at once.
    const MOST_LEVELS: usize = 8;
    for level in (0..lists.levels.min(MOST_LEVELS)).rev() {
        let folded = lists.fold(&name, level, Parameters::Whole);
        if display_width(&folded) <= width {
            return Cow::Owned(folded);
        }
    }
    for parameters in [Parameters::Folded, Parameters::LeftOut] {
        let folded = lists.fold(&name, 0, parameters);
        if parameters == Parameters::LeftOut || display_width(&folded) <= width {
            return Cow::Owned(cut_middle(&folded, width).into_owned());
        }
    }
    name
}

/// Replaces all type arguments of a name by `<…>`, and leaves the compiler's hashes out.
///
/// ```
/// use dioptra_tables::fold_arguments;
/// assert_eq!(fold_arguments("<alloc::vec::Vec<u8> as Drop>::drop"), "<alloc::vec::Vec<…> as Drop>::drop");
/// assert_eq!(fold_arguments("core::mem::swap::<u8>::h0123456789abcdef"), "core::mem::swap<…>");
/// assert_eq!(fold_arguments("bool operator< <int>(A<int>, B)"), "bool operator< <…>(A<…>, B)");
/// ```
pub fn fold_arguments(name: &str) -> Cow<'_, str> {
    let name = without_hashes(name);
    let lists = Lists::of(&name);
    if lists.arguments.is_empty() {
        return name;
    }
    Cow::Owned(lists.fold(&name, 0, Parameters::Whole))
}

/// Leaves out the middle of a text that is wider than `width` cells. A little more of the end than of the beginning
/// stays, since the end distinguishes methods.
pub fn cut_middle(text: &str, width: usize) -> Cow<'_, str> {
    if display_width(text) <= width {
        return Cow::Borrowed(text);
    }
    let Some(room) = width.checked_sub(1) else {
        return Cow::Borrowed("");
    };
    let head = room * 2 / 5;
    let mut out = String::new();
    let mut used = 0;
    for character in text.chars() {
        let cells = character_width(character);
        if used + cells > head {
            break;
        }
        used += cells;
        out.push(character);
    }
    // One mark is enough.
    while out.ends_with(DOTS) {
        out.pop();
        used -= 1;
    }
    out.push_str(DOTS);
    let (mut start, mut left) = (text.len(), room - used);
    for (at, character) in text.char_indices().rev() {
        match left.checked_sub(character_width(character)) {
            Some(rest) => (start, left) = (at, rest),
            None => break,
        }
    }
    out.push_str(text[start..].trim_start_matches(DOTS));
    Cow::Owned(out)
}

/// Leaves out the end of a text that is wider than `width` cells.
pub fn cut_end(text: &str, width: usize) -> Cow<'_, str> {
    if display_width(text) <= width {
        return Cow::Borrowed(text);
    }
    let Some(room) = width.checked_sub(1) else {
        return Cow::Borrowed("");
    };
    let mut used = 0;
    let end = text.char_indices().find(|(_, character)| {
        used += character_width(*character);
        used > room
    });
    let (head, _) = text.split_at(end.map_or(0, |(end, _)| end));
    Cow::Owned(format!("{head}{DOTS}"))
}

/// Leaves out the parts that rustc adds to make names unique: `::h` and 16 digits at the end of legacy names, and
/// `[digits]` behind a crate's name.
fn without_hashes(name: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(name);
    let is_digits = |text: &str| {
        text.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    if let Some(at) = out.rfind("::h")
        && let Some(digits) = out.get(at + 3..at + 19)
        && is_digits(digits)
        && out[at + 19..]
            .chars()
            .next()
            .is_none_or(|next| matches!(next, '.' | '@' | ' '))
    {
        let mut owned = out.into_owned();
        owned.replace_range(at..at + 19, "");
        out = Cow::Owned(owned);
    }
    let mut from = 0;
    while let Some(open) = out[from..].find('[').map(|at| from + at) {
        from = open + 1;
        let Some(length) = out[open..].find("]::") else {
            break;
        };
        let after_name = out[..open].ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let digits = &out[open + 1..open + length];
        if after_name && (8..=16).contains(&digits.len()) && is_digits(digits) {
            let mut owned = out.into_owned();
            owned.replace_range(open..=open + length, "");
            out = Cow::Owned(owned);
            from = open;
        }
    }
    out
}

/// The places in a name of lists in brackets.
struct Lists {
    /// Type arguments, brackets included, each with the number of lists of type arguments around it, sorted by their
    /// starts.
    arguments: Vec<(Range<usize>, usize)>,
    /// One more than the largest number of lists around one.
    levels: usize,
    /// Types of parameters, brackets included, that lie in no list of type arguments and in no other list of
    /// parameters.
    parameters: Vec<Range<usize>>,
}

/// The form in which parameters are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parameters {
    Whole,
    /// As `(…)`.
    Folded,
    LeftOut,
}

/// An open bracket.
struct Open {
    bracket: u8,
    at: usize,
    /// Whether the bracket begins type arguments or, if it is round, parameters.
    is_list: bool,
}

impl Lists {
    fn of(name: &str) -> Lists {
        let bytes = name.as_bytes();
        let mut open: Vec<Open> = Vec::new();
        let mut lists = Lists {
            arguments: Vec::new(),
            levels: 0,
            parameters: Vec::new(),
        };
        let mut at = 0;
        while at < bytes.len() {
            if let Some(length) = operator(name, at) {
                at += length;
                // A space keeps the arguments of `operator<` apart from it.
                let space = usize::from(bytes.get(at) == Some(&b' '));
                if bytes.get(at + space) == Some(&b'<') {
                    at += space;
                    open.push(Open {
                        bracket: b'<',
                        at,
                        is_list: true,
                    });
                    at += 1;
                } else if bytes.get(at) == Some(&b'(') {
                    open.push(Open {
                        bracket: b'(',
                        at,
                        is_list: true,
                    });
                    at += 1;
                }
                continue;
            }
            let before = at.checked_sub(1).map(|before| bytes[before]);
            let after_name = before.is_some_and(is_of_word);
            match bytes[at] {
                // Behind a name or `::` this bracket begins arguments, at a path's beginning Rust's `<T as Trait>`.
                // Behind a bracket it compares.
                b'<' if before != Some(b')') => open.push(Open {
                    bracket: b'<',
                    at,
                    is_list: after_name || before == Some(b':'),
                }),
                b'>' if before != Some(b'-')
                    && open.last().is_some_and(|open| open.bracket == b'<') =>
                {
                    if let Some(list) = open.pop().filter(|open| open.is_list) {
                        let around = |open: &&Open| open.bracket == b'<' && open.is_list;
                        let level = open.iter().filter(around).count();
                        lists.levels = lists.levels.max(level + 1);
                        lists.arguments.push((list.at..at + 1, level));
                    }
                }
                bracket @ (b'(' | b'[' | b'{') => open.push(Open {
                    bracket,
                    at,
                    is_list: bracket == b'(' && (after_name || before == Some(b'>')),
                }),
                bracket @ (b')' | b']' | b'}') => {
                    let opening = match bracket {
                        b')' => b'(',
                        b']' => b'[',
                        _ => b'{',
                    };
                    // Signs left open within these brackets were no brackets.
                    if let Some(place) = open.iter().rposition(|open| open.bracket == opening) {
                        let list = open.drain(place..).next();
                        if let Some(list) = list.filter(|list| list.is_list && open.is_empty()) {
                            lists.parameters.push(list.at..at + 1);
                        }
                    }
                }
                _ => {}
            }
            at += 1;
        }
        lists.arguments.sort_by_key(|(list, _)| list.start);
        lists
    }

    /// Folds type arguments from a level on.
    fn fold(&self, name: &str, level: usize, parameters: Parameters) -> String {
        let of_level = self.arguments.iter().filter(|(_, of)| *of == level);
        let mut folded: Vec<(Range<usize>, &str)> =
            of_level.map(|(list, _)| (list.clone(), "<…>")).collect();
        let short = match parameters {
            Parameters::Whole => None,
            Parameters::Folded => Some("(…)"),
            Parameters::LeftOut => Some(""),
        };
        if let Some(short) = short {
            let each = self.parameters.iter();
            folded.extend(each.map(|list| (list.clone(), short)));
        }
        folded.sort_by_key(|(list, _)| list.start);
        let mut out = String::with_capacity(name.len());
        let mut from = 0;
        for (list, short) in folded {
            // This list lies within one that was folded already.
            if list.start < from {
                continue;
            }
            let kept = &name[from..list.start];
            from = list.end;
            // Rust's `::<…>` and C++'s `<…>` mean the same.
            out.push_str(match short {
                "<…>" => kept.strip_suffix("::").unwrap_or(kept),
                _ => kept,
            });
            let is_empty = list.len() == 2;
            out.push_str(match is_empty && !short.is_empty() {
                true => &name[list],
                false => short,
            });
        }
        out.push_str(&name[from..]);
        out
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

/// Returns the length of `operator` and its sign, if the name has one at this place and the sign has brackets in it.
fn operator(name: &str, at: usize) -> Option<usize> {
    const WORD: &str = "operator";
    /// Longer signs stand before the signs that they begin with.
    const SIGNS: [&str; 14] = [
        "<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "<", ">", "()", "[]", "new[]",
    ];
    let rest = name.get(at..)?.strip_prefix(WORD)?;
    let before = at.checked_sub(1).map(|before| name.as_bytes()[before]);
    if before.is_some_and(is_of_word) {
        return None;
    }
    let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign))?;
    Some(WORD.len() + sign.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn arguments_are_folded() {
        for (name, folded) in [
            ("main", "main"),
            ("", ""),
            ("std::vector<int>::push_back", "std::vector<…>::push_back"),
            (
                "void std::sort<int*, std::less<int> >(int*, int*, std::less<int>)",
                "void std::sort<…>(int*, int*, std::less<…>)",
            ),
            ("a::b<>::c", "a::b<>::c"),
            // Operators are no brackets.
            (
                "bool operator<(A const&, B<int>)",
                "bool operator<(A const&, B<…>)",
            ),
            (
                "std::ostream& std::operator<< <char>(int)",
                "std::ostream& std::operator<< <…>(int)",
            ),
            ("auto operator<=><X>(X)", "auto operator<=><…>(X)"),
            ("P<int>::operator->() const", "P<…>::operator->() const"),
            (
                "P<int>::operator->*<long>(int)",
                "P<…>::operator->*<…>(int)",
            ),
            (
                "F<int>::operator()(V<int>) const",
                "F<…>::operator()(V<…>) const",
            ),
            (
                "M<K, V>::operator[](K const&)",
                "M<…>::operator[](K const&)",
            ),
            (
                "C::operator std::vector<int>() const",
                "C::operator std::vector<…>() const",
            ),
            ("my_operator<int>::f", "my_operator<…>::f"),
            // Signs within brackets are no brackets.
            ("f<(N>3), int>(char)", "f<…>(char)"),
            ("f<((1ul)<(2ul)), (a->b)>::g", "f<…>::g"),
            ("h(std::function<void (int)>)", "h(std::function<…>)"),
            (
                "run<main::{lambda(S<int>)#1}>::{lambda(S<int>)#2}",
                "run<…>::{lambda(S<…>)#2}",
            ),
            // Rust, either mangling.
            (
                "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
                "core::ptr::drop_in_place<…>",
            ),
            (
                "core::ptr::drop_in_place::<alloc::vec::Vec<u8>>",
                "core::ptr::drop_in_place<…>",
            ),
            (
                "<alloc::vec::Vec<T,A> as core::ops::Drop>::drop",
                "<alloc::vec::Vec<…> as core::ops::Drop>::drop",
            ),
            (
                "<F as core::ops::FnOnce<()>>::call_once",
                "<F as core::ops::FnOnce<…>>::call_once",
            ),
            (
                "<fn(u8) -> Vec<u8> as FnOnce<(u8,)>>::call_once",
                "<fn(u8) -> Vec<…> as FnOnce<…>>::call_once",
            ),
            ("<[T] as Join<&S>>::join", "<[T] as Join<…>>::join"),
            ("f::<{closure#0}>::{closure#1}", "f<…>::{closure#1}"),
            (
                "std::io::Write::write_all::h0123456789abcdef",
                "std::io::Write::write_all",
            ),
            ("f::h0123456789abcdef.llvm.77", "f.llvm.77"),
            ("f::h0123456789abcdefg", "f::h0123456789abcdefg"),
            ("f::hello", "f::hello"),
            (
                "core[1a2b3c4d5e6f7081]::mem::swap::<u8>",
                "core::mem::swap<…>",
            ),
            ("a[12]::b", "a[12]::b"),
            // Brackets that are left open are left alone.
            ("f<int", "f<int"),
            ("f>x<int>", "f>x<…>"),
            ("a)b]c>", "a)b]c>"),
            ("関<数>::名", "関<…>::名"),
        ] {
            assert_eq!(fold_arguments(name), folded, "{name}");
        }
    }

    #[test]
    fn inner_arguments_go_first() {
        let name = "Map<Key<int, char>, Value<Pair<long, long>>>::insert(Key<int, char>, int)";
        for (width, fitted) in [
            (73, name),
            (
                72,
                "Map<Key<int, char>, Value<Pair<…>>>::insert(Key<int, char>, int)",
            ),
            (60, "Map<Key<…>, Value<…>>::insert(Key<int, char>, int)"),
            (49, "Map<…>::insert(Key<…>, int)"),
            (26, "Map<…>::insert(…)"),
            (16, "Map<…>::insert"),
            (12, "Map<…:insert"),
            (5, "M…ert"),
            (1, "…"),
            (0, ""),
        ] {
            assert_eq!(fit_name(name, width), fitted, "{width}");
        }
        assert_eq!(
            fit_name("/usr/lib/a/very/long/path/libfoo.so.6", 20),
            "/usr/li…/libfoo.so.6"
        );
        assert_eq!(
            fit_name("(anonymous namespace)::run(int) const", 35),
            "(anonymous namespace)::run(…) const"
        );
        assert_eq!(fit_name("関数関数関数", 7), "関…関数");
    }

    proptest! {
        /// Any text, and text with many brackets.
        #[test]
        fn names_fit(name in "([a-c:]|[-<>()\\[\\]{}]|operator|::h| |関|\u{301}){0,40}", width in 0_usize..60) {
            let name = crate::escape(&name);
            let fitted = fit_name(&name, width);
            prop_assert!(display_width(&fitted) <= width, "{fitted}");
            if display_width(&name) <= width {
                prop_assert_eq!(&*fitted, &*without_hashes(&name));
            }
            // Folding what is folded changes nothing.
            let folded = fold_arguments(&name).into_owned();
            prop_assert_eq!(fold_arguments(&folded), folded.as_str());
        }
    }
}
