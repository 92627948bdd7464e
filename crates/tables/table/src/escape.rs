//! Text that is safe to print: hostile characters escaped, and the width of the rest on a terminal.

use std::fmt::Write;

/// Characters that are invisible or change the order or place of others, besides the control characters: format
/// characters (soft hyphen, zero width, bidirectional controls, byte order mark, tags) and line separators.
/// Source: Unicode 14 general categories Cf, Zl, Zp, rounded to blocks outside of the scripts that spell with them.
const INVISIBLE: &[(u32, u32)] = &[
    (0x00ad, 0x00ad),
    (0x061c, 0x061c),
    (0x180e, 0x180e),
    (0x200b, 0x200f),
    (0x2028, 0x202e),
    (0x2060, 0x206f),
    (0xfeff, 0xfeff),
    (0xfff9, 0xfffb),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe007f),
];

/// Characters that are drawn over the one before them (general categories Mn and Me), the common blocks.
const COMBINING: &[(u32, u32)] = &[
    (0x0300, 0x036f),
    (0x0483, 0x0489),
    (0x0591, 0x05bd),
    (0x0610, 0x061a),
    (0x064b, 0x065f),
    (0x1ab0, 0x1aff),
    (0x1dc0, 0x1dff),
    (0x20d0, 0x20f0),
    (0x302a, 0x302d),
    (0x3099, 0x309a),
    (0xfe00, 0xfe0f),
    (0xfe20, 0xfe2f),
    (0xe0100, 0xe01ef),
];

/// Characters that take two cells (East Asian width W or F), rounded to blocks.
const WIDE: &[(u32, u32)] = &[
    (0x1100, 0x115f),
    (0x231a, 0x231b),
    (0x2329, 0x232a),
    (0x23e9, 0x23ec),
    (0x25fd, 0x25fe),
    (0x2614, 0x2615),
    (0x2648, 0x2653),
    (0x26aa, 0x26ab),
    (0x2705, 0x2705),
    (0x270a, 0x270b),
    (0x2728, 0x2728),
    (0x274c, 0x274c),
    (0x2753, 0x2755),
    (0x2795, 0x2797),
    (0x2b1b, 0x2b1c),
    (0x2e80, 0x303e),
    (0x3041, 0x3247),
    (0x3250, 0x4dbf),
    (0x4e00, 0xa4cf),
    (0xa960, 0xa97f),
    (0xac00, 0xd7a3),
    (0xf900, 0xfaff),
    (0xfe10, 0xfe19),
    (0xfe30, 0xfe6b),
    (0xff01, 0xff60),
    (0xffe0, 0xffe6),
    (0x16fe0, 0x18aff),
    (0x1b000, 0x1b2ff),
    (0x1f300, 0x1f320),
    (0x1f32d, 0x1f335),
    (0x1f337, 0x1f37c),
    (0x1f37e, 0x1f393),
    (0x1f3a0, 0x1f3ca),
    (0x1f3e0, 0x1f3f0),
    (0x1f3f8, 0x1f43e),
    (0x1f442, 0x1f4fc),
    (0x1f4ff, 0x1f53d),
    (0x1f550, 0x1f567),
    (0x1f5fb, 0x1f64f),
    (0x1f680, 0x1f6c5),
    (0x1f7e0, 0x1f7eb),
    (0x1f90c, 0x1f93a),
    (0x1f93c, 0x1f945),
    (0x1f947, 0x1f9ff),
    (0x1fa70, 0x1faff),
    (0x20000, 0x3fffd),
];

/// Returns true if one of the sorted ranges holds the character.
fn within(ranges: &[(u32, u32)], character: char) -> bool {
    let code = u32::from(character);
    ranges
        .binary_search_by(|&(first, last)| {
            if last < code {
                std::cmp::Ordering::Less
            } else if first > code {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        })
        .is_ok()
}

/// Returns true if printing the character would do anything else than show one visible glyph.
fn is_hostile(character: char) -> bool {
    character.is_control() || (!character.is_ascii() && within(INVISIBLE, character))
}

/// Appends `text` to `out`, with every control character and every invisible or reordering one spelled out: `\n`, `\t`,
/// `\r`, `\0`, `\x1b` for ASCII, `\u{202e}` beyond. Everything else, backslashes included, stays, so that ordinary
/// names read as they are. Readers that need the exact characters take CSV or JSON.
pub fn push_escaped(out: &mut String, text: &str) {
    // The common name is plain ASCII without controls.
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        out.push_str(text);
        return;
    }
    for character in text.chars() {
        match character {
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            hostile if is_hostile(hostile) => {
                let code = u32::from(hostile);
                // Writing to a String cannot fail.
                let _ = if code < 0x80 {
                    write!(out, "\\x{code:02x}")
                } else {
                    write!(out, "\\u{{{code:x}}}")
                };
            }
            plain => out.push(plain),
        }
    }
}

/// Returns `text` with every control, invisible or reordering character spelled out (`\n`, `\x1b`, `\u{202e}`). No name
/// can then break a line, move the cursor or recolour the terminal.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    push_escaped(&mut out, text);
    out
}

/// Returns the number of terminal cells that `text` takes: two for East Asian wide characters and emoji, none for
/// combining marks, one for everything else. The text should be escaped. The number is an estimate, since terminals
/// disagree about rare characters.
pub fn display_width(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.chars()
        .map(|character| {
            if character.is_ascii() {
                1
            } else if within(COMBINING, character) {
                0
            } else if within(WIDE, character) {
                2
            } else {
                1
            }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_drives_a_terminal_survives() {
        assert_eq!(escape("a\nb\tc\r\0\u{7}"), "a\\nb\\tc\\r\\0\\x07");
        assert_eq!(escape("\u{1b}[31mred\u{7f}"), "\\x1b[31mred\\x7f");
        assert_eq!(escape("\u{9b}31m"), "\\u{9b}31m");
        assert_eq!(escape("x\u{202e}y\u{200b}"), "x\\u{202e}y\\u{200b}");
        assert_eq!(
            escape("std::vec<T>::push \\ ü 関数"),
            "std::vec<T>::push \\ ü 関数"
        );
    }

    #[test]
    fn every_character_escapes_to_harmless_ones() {
        for character in '\0'..=char::MAX {
            let escaped = escape(&character.to_string());
            assert!(
                !escaped.chars().any(is_hostile),
                "{:x}",
                u32::from(character)
            );
        }
    }

    #[test]
    fn ranges_are_sorted_so_that_searching_works() {
        for ranges in [INVISIBLE, COMBINING, WIDE] {
            assert!(ranges.iter().all(|(first, last)| first <= last));
            assert!(ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }

    #[test]
    fn widths() {
        assert_eq!(display_width("abc"), 3);
        assert_eq!(display_width("関数"), 4);
        assert_eq!(display_width("e\u{301}"), 1);
        assert_eq!(display_width("ü…±"), 3);
        assert_eq!(display_width("🚀"), 2);
    }
}
