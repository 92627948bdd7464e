//! Standard output, as text or as a page.

use std::io::{self, Write};

/// Standard output, written in large pieces.
pub struct Output {
    out: io::Stdout,
    /// What is to be written: text, with colours as [`super::COLORS`] has them.
    pub text: Vec<u8>,
    as_page: bool,
}

impl Output {
    pub fn new() -> Output {
        Output {
            out: io::stdout(),
            text: Vec::with_capacity(1 << 17),
            as_page: false,
        }
    }

    /// Makes an HTML page of the text, if that is wanted; it ends with [`Output::finish`].
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

    /// Writes if much has gathered.
    #[inline]
    pub fn flush_some(&mut self) -> io::Result<()> {
        if self.text.len() >= 1 << 16 {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes everything.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.as_page {
            let mut page = Vec::with_capacity(self.text.len() * 2);
            to_html(&self.text, &mut page);
            self.out.write_all(&page)?;
        } else {
            self.out.write_all(&self.text)?;
        }
        self.text.clear();
        self.out.flush()
    }

    /// Writes everything, and ends the page.
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

/// Text without what means something in HTML.
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

/// What the sequences of [`super::COLORS`] are in HTML, in their order.
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
            // Names have no control characters, so this is none of ours.
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
