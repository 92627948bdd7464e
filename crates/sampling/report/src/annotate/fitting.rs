//! A listing that fits a terminal: the places around the hottest ones, and lines no wider than the screen.

use super::model::Annotation;
use super::text::heat;
use dioptra_tables::display_width;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The number of places before and behind a hot one that are shown with it.
const AROUND: usize = 4;

/// Chooses the hottest places and their surroundings so that they take at most `budget` lines. `lines` holds the
/// number of lines that each place takes. A place without samples is chosen only near a place that has some, or if no
/// place has any.
pub(super) fn hottest_places(
    annotation: &Annotation,
    lines: &[usize],
    budget: usize,
) -> BTreeSet<usize> {
    let heats: Vec<(u64, u64)> = annotation
        .places
        .iter()
        .map(|place| heat(&place.counts))
        .collect();
    around_hottest(&heats, lines, budget)
}

fn around_hottest(heats: &[(u64, u64)], lines: &[usize], budget: usize) -> BTreeSet<usize> {
    if lines.iter().sum::<usize>() <= budget {
        return (0..heats.len()).collect();
    }
    let mut hottest: Vec<usize> = (0..heats.len()).filter(|at| heats[*at].1 > 0).collect();
    hottest.sort_by_key(|at| (std::cmp::Reverse(heats[*at]), *at));
    if hottest.is_empty() {
        hottest.push(0);
    }
    let mut chosen = BTreeSet::new();
    let mut used = 0;
    for hot in hottest {
        let around = hot.saturating_sub(AROUND)..(hot + AROUND + 1).min(heats.len());
        let new: Vec<usize> = around.filter(|at| !chosen.contains(at)).collect();
        // One more line stands for the places that are left out in between.
        let cost = new.iter().map(|at| lines[*at]).sum::<usize>() + 1;
        if used + cost > budget && !chosen.is_empty() {
            break;
        }
        used += cost;
        chosen.extend(new);
    }
    // A line that stands for a single place is no shorter than the place itself, so the place is shown.
    let is_alone = |at: &usize| {
        let beside = at
            .checked_sub(1)
            .is_some_and(|before| chosen.contains(&before));
        !chosen.contains(at) && beside && chosen.contains(&(at + 1))
    };
    let places = (0..heats.len()).filter(|at| lines[*at] == 1 && is_alone(at));
    let filled: Vec<usize> = places.collect();
    chosen.extend(filled);
    chosen
}

/// Cuts the end of a line that is wider than `width` cells. Colour sequences have no width, and are kept.
pub(super) fn cut_line(line: &str, width: usize) -> Cow<'_, str> {
    if display_width(line) <= width {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    let mut used = 0;
    // The length of `out` at which dots still fit; the line is cut there if it turns out too wide.
    let mut end = None;
    while let Some(character) = rest.chars().next() {
        let length = match character {
            '\x1b' => rest.find('m').map_or(rest.len(), |end| end + 1),
            _ => character.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        if character == '\x1b' {
            out.push_str(piece);
            continue;
        }
        let cells = display_width(piece);
        if end.is_none() && used + cells > width.saturating_sub(1) {
            end = Some(out.len());
        }
        used += cells;
        if used > width {
            let kept = out.split_off(end.unwrap_or(0));
            out.push('…');
            // The colour sequences behind the cut are kept, so that colours end.
            let colors = kept.split('\x1b').skip(1).chain(rest.split('\x1b').skip(1));
            for color in colors {
                let code = color.split_once('m').map_or("", |(code, _)| code);
                let _ = write!(out, "\x1b{code}m");
            }
            return Cow::Owned(out);
        }
        out.push_str(piece);
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_around_the_hottest_fit() {
        let mut heats = vec![(0, 0); 1000];
        for (at, heat) in [(100, 50), (102, 10), (500, 40), (900, 3)] {
            heats[at] = (heat, heat);
        }
        let lines = vec![1; 1000];
        let chosen: Vec<usize> = around_hottest(&heats, &lines, 25).into_iter().collect();
        let expected: Vec<usize> = (96..=106).chain(496..=504).collect();
        assert_eq!(chosen, expected);
        assert_eq!(around_hottest(&heats, &lines, 1000).len(), 1000);
        assert_eq!(around_hottest(&heats, &lines, 40).len(), 29);
        // However little room there is, the hottest place is shown.
        assert!(around_hottest(&heats, &lines, 1).contains(&100));
        assert_eq!(around_hottest(&[(0, 0); 50], &[1; 50], 10).len(), 5);
    }

    #[test]
    fn long_lines_are_cut_and_colours_end() {
        assert_eq!(cut_line("abcdef", 6), "abcdef");
        assert_eq!(cut_line("abcdefg", 6), "abcde…");
        assert_eq!(cut_line("関数関数", 6), "関数…");
        assert_eq!(
            cut_line("\x1b[31mab\x1b[0mcd\x1b[2mefgh\x1b[0m", 5),
            "\x1b[31mab\x1b[0mcd\x1b[2m…\x1b[0m"
        );
        assert_eq!(cut_line("\x1b[31mabcde\x1b[0m", 5), "\x1b[31mabcde\x1b[0m");
    }
}
