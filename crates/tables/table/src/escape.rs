//! Text that is safe to print: hostile characters escaped, and the width of the rest on a terminal.

use std::fmt::Write;
use unicode_width::UnicodeWidthChar;

/// Returns true for characters that are invisible or change the order or place of others, besides the control characters:
/// format characters (soft hyphen, zero width, bidirectional controls, byte order mark, tags) and line separators.
///
/// Source: Unicode 14 general categories Cf, Zl, Zp, rounded to blocks outside of the scripts that spell with them.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// Returns true if printing the character would do anything else than show one visible glyph.
fn is_hostile(character: char) -> bool {
    character.is_control() || is_invisible(character)
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
/// combining marks, one for most others. The text should be escaped; a control character counts as one cell.
///
/// The number is the sum of the characters' widths, so text may be cut anywhere and the widths of the parts add up.
/// Terminals disagree about ligatures and about sequences of emoji.
pub fn display_width(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.chars().map(character_width).sum()
}

/// Returns the number of terminal cells that a character takes, as [`display_width`] counts them.
pub(crate) fn character_width(character: char) -> usize {
    character.width().unwrap_or(1)
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
    fn widths() {
        assert_eq!(display_width("abc"), 3);
        assert_eq!(display_width("関数"), 4);
        assert_eq!(display_width("e\u{301}"), 1);
        assert_eq!(display_width("ü…±"), 3);
        assert_eq!(display_width("🚀"), 2);
        // A syllable of Hindi: the vowel sign is drawn over its consonant.
        assert_eq!(display_width("कु"), 1);
    }

    #[test]
    fn widths_of_parts_add_up() {
        // A heart shown as an emoji, and a ligature of Arabic: terminals disagree about the width of the pairs.
        assert_eq!(display_width("❤\u{fe0f}"), 1);
        assert_eq!(display_width("\u{644}\u{627}"), 2);
    }
}
