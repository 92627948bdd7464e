//! Lines of text: wrapped ones, and the lines that lead through a tree.

use crate::escape::{character_width, display_width};
use crate::order::RowPosition;
use std::borrow::Cow;

/// Wraps a text at its spaces; all lines but the first one begin with `indent`. Words that are too long are cut.
pub fn wrap(text: &str, width: usize, indent: &str) -> Vec<String> {
    let width = width.max(display_width(indent) + 8);
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut used = 0;
    let mut is_empty = true;
    for word in text.split(' ') {
        let mut word = word;
        let cells = display_width(word);
        if !is_empty && used + 1 + cells > width {
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            (used, is_empty) = (display_width(indent), true);
        }
        if !is_empty {
            line.push(' ');
            used += 1;
        }
        while used + display_width(word) > width {
            let mut cells = 0;
            let end = word.char_indices().find(|(_, character)| {
                cells += character_width(*character);
                used + cells > width
            });
            let (head, rest) = word.split_at(end.map_or(word.len(), |(end, _)| end));
            line.push_str(head);
            lines.push(std::mem::replace(&mut line, indent.to_owned()));
            used = display_width(indent);
            word = rest;
        }
        line.push_str(word);
        used += display_width(word);
        is_empty = false;
    }
    lines.push(line);
    lines
}

/// Writes percents in one way: `4.21 %` as `4.21%`.
pub fn close_percents(text: &str) -> Cow<'_, str> {
    if !text.contains(" %") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(" %") {
        out.push_str(&rest[..at]);
        if !rest[..at].ends_with(|last: char| last.is_ascii_digit()) {
            out.push(' ');
        }
        out.push('%');
        rest = &rest[at + 2..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Makes the lines that lead to each row of a tree from the rows above it. Rows at more than `deepest` levels tell
/// their level instead.
pub(super) fn guides(places: &[RowPosition], deepest: u32, unicode: bool) -> Vec<String> {
    let [through, last, next, blank] = match unicode {
        true => ["│ ", "└─", "├─", "  "],
        false => ["| ", "`-", "|-", "  "],
    };
    let mut guides = vec![String::new(); places.len()];
    // By level: whether a row further down has the same row above it.
    let mut more: Vec<bool> = Vec::new();
    for (place, guide) in places.iter().zip(&mut guides).rev() {
        let depth = place.depth as usize;
        let shown = place.depth.min(deepest) as usize;
        more.resize(depth + 1, false);
        for more in more.iter().take(shown).skip(1) {
            guide.push_str(if *more { through } else { blank });
        }
        if place.depth > deepest {
            guide.push_str(&format!("{blank}[{}] ", place.depth));
        } else if depth > 0 {
            guide.push_str(if more[depth] { next } else { last });
        }
        more[depth] = true;
    }
    guides
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn percents_are_closed() {
        for (text, closed) in [
            ("43 more rows, 16.48 %", "43 more rows, 16.48%"),
            (
                "+117.83 % ±209.87 %; at most 5 %, 1 %",
                "+117.83% ±209.87%; at most 5%, 1%",
            ),
            ("a %b", "a %b"),
        ] {
            assert_eq!(close_percents(text), closed);
        }
    }

    #[test]
    fn guides_lead_to_rows() {
        let places = [0, 1, 2, 3, 3, 1, 2, 0, 1];
        let places = places.map(|depth| RowPosition { row: 0, depth });
        assert_eq!(
            guides(&places, 9, true),
            ["", "├─", "│ └─", "│   ├─", "│   └─", "└─", "  └─", "", "└─"]
        );
        assert_eq!(
            guides(&places, 2, false),
            [
                "", "|-", "| `-", "|   [3] ", "|   [3] ", "`-", "  `-", "", "`-"
            ]
        );
    }

    proptest! {
        #[test]
        fn wrapping_loses_nothing(text in "[a関]{0,30}( [ab]{0,12}){0,20}", width in 12_usize..40) {
            let lines = wrap(&text, width, "#   ");
            let mut together = String::new();
            for (number, line) in lines.iter().enumerate() {
                prop_assert!(display_width(line) <= width, "{line}");
                together.push_str(if number > 0 { &line[4..] } else { line });
            }
            let without = |text: &str| text.replace(' ', "");
            prop_assert_eq!(without(&together), without(&text));
        }
    }
}
