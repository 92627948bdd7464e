//! Standard output, as text or as a page.

use dioptra_tables::escape;
use std::io::{self, IsTerminal, Write};

/// Standard output, written in large pieces.
pub struct Output {
    out: io::Stdout,
    /// Text that is still to be written, with the escape sequences of [`super::COLORS`].
    pub text: Vec<u8>,
    as_page: bool,
    is_terminal: bool,
}

impl Output {
    pub fn new() -> Output {
        Output {
            out: io::stdout(),
            text: Vec::with_capacity(1 << 17),
            as_page: false,
            is_terminal: io::stdout().is_terminal(),
        }
    }

    /// Makes an HTML page of the text if `wanted`; [`Output::finish`] ends the page.
    pub fn page(title: &str, wanted: bool) -> io::Result<Output> {
        let mut output = Output::new();
        if wanted {
            let mut head = Vec::new();
            escape_html(title.as_bytes(), &mut head);
            output
                .out
                .write_all(b"<!doctype html>\n<html>\n<head><meta charset=\"utf-8\"><title>")?;
            output.out.write_all(&head)?;
            output.out.write_all(
                b"</title></head>\n<body style=\"background: #111; color: #ddd\">\n<pre>\n",
            )?;
            output.as_page = true;
        }
        Ok(output)
    }

    /// Writes the text once it has 64 KiB.
    #[inline]
    pub fn flush_some(&mut self) -> io::Result<()> {
        if self.text.len() >= 1 << 16 {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes all text.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.as_page {
            let mut page = Vec::with_capacity(self.text.len() * 2);
            to_html(&self.text, &mut page);
            self.out.write_all(&page)?;
        } else if self.is_terminal {
            let mut harmless = Vec::with_capacity(self.text.len());
            push_harmless(&self.text, &mut harmless);
            self.out.write_all(&harmless)?;
        } else {
            self.out.write_all(&self.text)?;
        }
        self.text.clear();
        self.out.flush()
    }

    /// Writes all text, and ends the page.
    pub fn finish(mut self) -> io::Result<()> {
        self.flush()?;
        if self.as_page {
            self.out.write_all(b"</pre>\n</body>\n</html>\n")?;
            self.out.flush()?;
        }
        Ok(())
    }

    /// Adds a line.
    pub fn line(&mut self, line: &str) {
        self.text.extend_from_slice(line.as_bytes());
        self.text.push(b'\n');
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        self.flush_some()?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Output::flush(self)
    }
}

/// Appends text in a form that is safe for a terminal: colours, newlines and tabs stay, and all other control
/// characters are spelled out.
fn push_harmless(text: &[u8], out: &mut Vec<u8>) {
    let text = String::from_utf8_lossy(text);
    let mut rest = &*text;
    while !rest.is_empty() {
        let mut colors = super::COLORS.iter().chain([&super::RESET]);
        if let Some(color) = colors.find(|color| rest.starts_with(**color)) {
            out.extend_from_slice(color.as_bytes());
            rest = &rest[color.len()..];
            continue;
        }
        let is_kept = |character: char| matches!(character, '\n' | '\t');
        // The first character may be a kept one, or the beginning of an escape sequence that is no colour.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let stop = |character: char| is_kept(character) || character == '\x1b';
        let end = rest[first..]
            .find(stop)
            .map_or(rest.len(), |end| first + end);
        let (piece, after) = rest.split_at(if rest.starts_with(is_kept) {
            first
        } else {
            end
        });
        match piece.starts_with(is_kept) {
            true => out.extend_from_slice(piece.as_bytes()),
            false => out.extend_from_slice(escape(piece).as_bytes()),
        }
        rest = after;
    }
}

/// Appends text with HTML's special characters escaped.
pub fn escape_html(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        match byte {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            byte => out.push(byte),
        }
    }
}

/// The CSS styles of the sequences of [`super::COLORS`], in the same order.
const STYLES: [&str; 8] = [
    "color: #f66",
    "color: #6c6",
    "color: #69f",
    "color: #dd6",
    "color: #e7e",
    "color: #6dd",
    "font-weight: bold",
    "color: #999",
];

fn to_html(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = rest.iter().position(|&byte| byte == 0x1b) {
        escape_html(&rest[..at], out);
        rest = &rest[at..];
        let color = super::COLORS
            .iter()
            .zip(STYLES)
            .find(|(color, _)| rest.starts_with(color.as_bytes()));
        if let Some((color, style)) = color {
            out.extend_from_slice(format!("<span style=\"{style}\">").as_bytes());
            rest = &rest[color.len()..];
        } else if rest.starts_with(super::RESET.as_bytes()) {
            out.extend_from_slice(b"</span>");
            rest = &rest[super::RESET.len()..];
        } else {
            // Names have no control characters, so this sequence is none of ours.
            rest = &rest[1..];
        }
    }
    escape_html(rest, out);
}

#[cfg(test)]
mod tests {
    use super::super::{COLORS, RESET};
    use super::*;

    #[test]
    fn terminals_see_colours_and_nothing_else_that_drives_them() {
        let text = format!(
            "{}a\tb{RESET}\n\n\x1b[5m\x07c\u{9b}{}",
            COLORS[0], COLORS[7]
        );
        let mut shown = Vec::new();
        push_harmless(text.as_bytes(), &mut shown);
        assert_eq!(
            String::from_utf8_lossy(&shown),
            format!(
                "{}a\tb{RESET}\n\n\\x1b[5m\\x07c\\u{{9b}}{}",
                COLORS[0], COLORS[7]
            )
        );
        shown.clear();
        push_harmless(b"a\x9b31mb", &mut shown);
        assert_eq!(String::from_utf8_lossy(&shown), "a\u{fffd}31mb");
    }

    #[test]
    fn colours_are_styles_and_text_is_escaped() {
        let text = format!("{}a<b>{RESET} & \x1b[5m{}c", COLORS[0], COLORS[7]);
        let mut page = Vec::new();
        to_html(text.as_bytes(), &mut page);
        assert_eq!(
            String::from_utf8_lossy(&page),
            "<span style=\"color: #f66\">a&lt;b&gt;</span> &amp; [5m<span style=\"color: #999\">c"
        );
    }
}
