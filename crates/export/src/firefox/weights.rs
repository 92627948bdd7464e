//! Weights in fractions of milliseconds.
//!
//! The format has them, but `fxprof-processed-profile` takes whole numbers. Weights that are durations are therefore
//! handed over in nanoseconds, and this writer changes their unit on the way to the file.

use std::io::{self, Write};

/// The text before the samples of a track whose weights are durations.
const DURATIONS: &[u8] = br#""weightType":"tracing-ms""#;
/// The text before the weights. It can't stand within a string, where quotes have a backslash.
const WEIGHTS: &[u8] = br#""weight":["#;

/// The number of bytes that are kept to be written at once.
const FULL: usize = 1 << 16;

/// The part of the text that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Other,
    /// The samples of a track whose weights are durations, before the weights.
    Durations,
    /// The weights, in nanoseconds.
    Weights,
}

/// A writer that makes milliseconds of the weights that are durations.
pub(crate) struct DurationWeights<W: Write> {
    out: W,
    text: Vec<u8>,
    part: Part,
    /// The digits of a weight.
    digits: Vec<u8>,
}

impl<W: Write> DurationWeights<W> {
    pub(crate) fn new(out: W) -> Self {
        DurationWeights {
            out,
            text: Vec::with_capacity(FULL + 64),
            part: Part::Other,
            digits: Vec::new(),
        }
    }

    fn take(&mut self, byte: u8) {
        if self.part == Part::Weights && byte.is_ascii_digit() {
            self.digits.push(byte);
            return;
        }
        if !self.digits.is_empty() {
            push_milliseconds(&mut self.text, &self.digits);
            self.digits.clear();
        }
        self.text.push(byte);
        self.part = match (self.part, byte) {
            (Part::Weights, b']') => Part::Other,
            (Part::Other, b'"') if self.text.ends_with(DURATIONS) => Part::Durations,
            (Part::Durations, b'[') if self.text.ends_with(WEIGHTS) => Part::Weights,
            (part, _) => part,
        };
    }

    /// Writes all text that no later byte can change, and keeps enough to find the marks.
    fn write_some(&mut self, kept: usize) -> io::Result<()> {
        let ready = self.text.len().saturating_sub(kept);
        self.out.write_all(&self.text[..ready])?;
        self.text.drain(..ready);
        Ok(())
    }
}

impl<W: Write> Write for DurationWeights<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.take(*byte);
        }
        if self.text.len() >= FULL {
            self.write_some(DURATIONS.len())?;
        }
        Ok(bytes.len())
    }

    /// Writes everything. The text must be complete.
    fn flush(&mut self) -> io::Result<()> {
        self.write_some(0)?;
        self.out.flush()
    }
}

/// Adds nanoseconds as milliseconds with all their digits.
fn push_milliseconds(text: &mut Vec<u8>, digits: &[u8]) {
    let (whole, fraction) = digits.split_at(digits.len().saturating_sub(6));
    text.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
    if fraction.iter().all(|digit| *digit == b'0') {
        return;
    }
    text.push(b'.');
    text.extend(std::iter::repeat_n(b'0', 6 - fraction.len()));
    let used = fraction.iter().rposition(|digit| *digit != b'0');
    text.extend_from_slice(&fraction[..used.map_or(0, |last| last + 1)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, at_once: usize) -> String {
        let mut written = Vec::new();
        let mut writer = DurationWeights::new(&mut written);
        for part in text.as_bytes().chunks(at_once) {
            writer.write_all(part).expect("memory");
        }
        writer.flush().expect("memory");
        String::from_utf8(written).expect("text")
    }

    #[test]
    fn durations_become_milliseconds_and_the_rest_stays() {
        let text = concat!(
            r#"{"a":{"weightType":"samples","weight":[1,2000000]},"#,
            r#""b":{"weightType":"tracing-ms","stack":[7,8],"name":"\"weight\":[5]","#,
            r#""weight":[0,1,1000,1000000,2147483647,20500000],"x":[9]},"#,
            r#""c":{"weight":[123]}}"#
        );
        let expected = text.replace(
            "[0,1,1000,1000000,2147483647,20500000]",
            "[0,0.000001,0.001,1,2147.483647,20.5]",
        );
        for at_once in [1, 2, 7, 1000] {
            assert_eq!(changed(text, at_once), expected, "{at_once}");
        }
    }

    #[test]
    fn long_texts_are_written_in_parts() {
        let many = vec!["1500000"; 50_000].join(",");
        let text = format!(r#"{{"weightType":"tracing-ms","weight":[{many}]}}"#);
        assert_eq!(changed(&text, 333), text.replace("1500000", "1.5"));
    }
}
