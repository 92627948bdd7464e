//! A writer before a terminal that spells control characters out.

use crate::escape::push_escaped;
use std::io::{self, Write};

/// A writer that spells out every character that would drive the terminal, except ends of lines.
///
/// Renderings for programs, such as CSV and graphs, pass through it where a person looks at them.
///
/// Bytes that are no UTF-8 become `\u{fffd}`, since terminals of other encodings take some for control characters.
pub struct Harmless<W: Write> {
    out: W,
    is_json: bool,
    /// The beginning of a character whose other bytes are still to come.
    begun: Vec<u8>,
    text: String,
}

impl<W: Write> Harmless<W> {
    /// Makes a writer before `out`; in JSON, characters are spelled as JSON spells them.
    pub fn new(out: W, is_json: bool) -> Self {
        Harmless {
            out,
            is_json,
            begun: Vec::new(),
            text: String::new(),
        }
    }

    /// Writes everything that is left.
    ///
    /// # Errors
    /// Returns the errors of the writer.
    pub fn finish(mut self) -> io::Result<()> {
        if !self.begun.is_empty() {
            self.out.write_all("\u{fffd}".as_bytes())?;
        }
        self.out.flush()
    }

    fn push(&mut self, text: &str) {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.text.push('\n');
            }
            if !self.is_json {
                push_escaped(&mut self.text, line);
                continue;
            }
            let mut escaped = String::new();
            for character in line.chars() {
                escaped.clear();
                push_escaped(&mut escaped, character.encode_utf8(&mut [0; 4]));
                let is_plain = escaped.chars().eq([character]);
                if is_plain {
                    self.text.push(character);
                    continue;
                }
                for unit in character.encode_utf16(&mut [0; 2]) {
                    self.text.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
}

impl<W: Write> Write for Harmless<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let begun = std::mem::take(&mut self.begun);
        let mut rest = &begun[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    self.push(text);
                    break;
                }
                Err(error) => {
                    let (text, wrong) = rest.split_at(error.valid_up_to());
                    self.push(&String::from_utf8_lossy(text));
                    match error.error_len() {
                        Some(length) => {
                            self.text.push('\u{fffd}');
                            rest = &wrong[length..];
                        }
                        None => {
                            self.begun = wrong.to_vec();
                            break;
                        }
                    }
                }
            }
        }
        self.out.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(bytes: &[u8], is_json: bool, piece: usize) -> String {
        let mut out = Vec::new();
        let mut harmless = Harmless::new(&mut out, is_json);
        for piece in bytes.chunks(piece) {
            harmless.write_all(piece).unwrap();
        }
        harmless.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn nothing_drives_a_terminal_however_it_comes() {
        let bytes = "a\u{1b}]0;x\u{7}\n関\u{9b}31m\u{e0041}\r,".as_bytes();
        for piece in [1, 2, 3, 100] {
            assert_eq!(
                written(bytes, false, piece),
                "a\\x1b]0;x\\x07\n関\\u{9b}31m\\u{e0041}\\r,"
            );
            assert_eq!(
                written(b"\x9b31m\xe9\x96", false, piece),
                "\u{fffd}31m\u{fffd}"
            );
        }
    }

    #[test]
    fn json_stays_json() {
        let text = "a\u{7f}\u{9b}\u{202e}\u{e0041}\u{1f600}";
        let shown = written(serde_json::to_string(text).unwrap().as_bytes(), true, 5);
        assert_eq!(shown, "\"a\\u007f\\u009b\\u202e\\udb40\\udc41\u{1f600}\"");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}
