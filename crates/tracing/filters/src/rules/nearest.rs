//! Suggestions for misspelt names.

use super::simple_name::simple_name;
use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec::Vec;

/// Returns the number of insertions, deletions, replacements and swaps of neighbours that turn one text into the
/// other, if it is at most `most`.
pub(crate) fn distance(left: &str, right: &str, most: usize) -> Option<usize> {
    let left: Vec<char> = left.chars().flat_map(char::to_lowercase).collect();
    let right: Vec<char> = right.chars().flat_map(char::to_lowercase).collect();
    if left.len().abs_diff(right.len()) > most {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.iter().enumerate() {
        let mut row = Vec::with_capacity(right.len() + 1);
        row.push(i + 1);
        for (j, b) in right.iter().enumerate() {
            let replaced = last[j] + usize::from(a != b);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        if row.iter().all(|cost| *cost > most) {
            return None;
        }
        before = last;
        last = row;
    }
    last.pop().filter(|distance| *distance <= most)
}

/// Returns the largest distance of a suggestion from the text.
fn most(text: &str) -> usize {
    (text.chars().count() / 3).clamp(1, 6)
}

/// Returns the word nearest to `text`, if one is near.
pub(crate) fn nearest_word<'a>(
    text: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    words
        .into_iter()
        .filter_map(|word| Some((distance(text, word, most(text))?, word)))
        .min()
        .map(|(_, word)| word)
}

/// Returns up to `limit` names near to `text`, the nearest first: spelled alike, ending in it after `::`, or
/// beginning with it.
pub(crate) fn nearest_names<'a>(
    text: &str,
    names: impl IntoIterator<Item = &'a str>,
    limit: usize,
) -> Vec<String> {
    let wanted = last_segment(text);
    let most = most(wanted);
    let mut found: BTreeSet<(usize, usize, String)> = BTreeSet::new();
    for name in names {
        let bare = without_parameters(name);
        // For a template's instance the displayed name counts. Names of Rust's methods may begin with a bracket.
        let has_arguments = bare.contains('<') && !bare.starts_with('<') && bare.len() < name.len();
        let shown = has_arguments.then(|| simple_name(name));
        let bare = shown.as_deref().unwrap_or(bare);
        let segment = last_segment(bare);
        let cost = distance(wanted, segment, most).or_else(|| {
            let long = wanted.chars().count() >= 3;
            (long && (segment.starts_with(wanted) || segment.ends_with(wanted))).then_some(most + 1)
        });
        if let Some(cost) = cost {
            found.insert((cost, bare.len().abs_diff(text.len()), bare.to_string()));
            if found.len() > limit {
                found.pop_last();
            }
        }
    }
    found.into_iter().map(|(_, _, name)| name).collect()
}

fn last_segment(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns a demangled name without its parameter list and the text behind that.
pub(crate) fn without_parameters(name: &str) -> &str {
    // `operator()` and `(anonymous namespace)` have parentheses of their own.
    let mut depth = 0_usize;
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            '(' if depth == 0
                && at > 0
                && !name[..at].ends_with("operator")
                && !name[..at].ends_with("::") =>
            {
                return &name[..at];
            }
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_swaps_as_one() {
        assert_eq!(distance("smaple", "sample", 3), Some(1));
        assert_eq!(distance("filter", "filtre", 3), Some(1));
        assert_eq!(distance("kitten", "sitting", 3), Some(3));
        assert_eq!(distance("kitten", "sitting", 2), None);
        assert_eq!(distance("", "ab", 2), Some(2));
    }

    #[test]
    fn parameters_are_cut_off_where_they_begin() {
        for (name, bare) in [
            ("main", "main"),
            ("a::b(int, std::function<void()>)", "a::b"),
            ("A::operator()(int) const", "A::operator()"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            (
                "ns::(anonymous namespace)::f()",
                "ns::(anonymous namespace)::f",
            ),
            ("apply<void (int)>(int)", "apply<void (int)>"),
        ] {
            assert_eq!(without_parameters(name), bare);
        }
    }

    #[test]
    fn near_names_come_first() {
        let names = [
            "parse_line(char*)",
            "ns::parse_file()",
            "print",
            "parse_files",
            "x",
        ];
        assert_eq!(
            nearest_names("parse_fiel", names, 2),
            [
                "parse_file".replace("p", "ns::p"),
                "parse_files".to_string()
            ]
        );
        assert_eq!(nearest_names("zzzzzz", names, 3), [""; 0]);
    }
}
