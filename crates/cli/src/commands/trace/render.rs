//! Texts of times and names in traces.

mod output;

pub use output::{Output, escape_html};

use anyhow::bail;
use dioptra_calls::FunctionNames;
use dioptra_tables::escape;
use dioptra_tracedata::Trace;
use dioptra_tracelayout::{FunctionEntry, FunctionKind};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

/// The two digits of each number from 00 to 99.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Writes a number's digits so that they end before `end`, and returns the index of the first digit.
#[inline]
fn put_digits(buffer: &mut [u8; 32], end: usize, mut number: u64) -> usize {
    let mut at = end;
    while number >= 100 {
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
        number /= 100;
    }
    if number >= 10 {
        at -= 2;
        buffer[at..at + 2].copy_from_slice(&PAIRS[number as usize]);
    } else {
        at -= 1;
        buffer[at] = b'0' + number as u8;
    }
    at
}

/// Adds a number, right-aligned in `width` columns.
#[inline]
pub fn push_number(out: &mut Vec<u8>, number: u64, width: usize) {
    let mut digits = [b' '; 32];
    let at = put_digits(&mut digits, 32, number);
    out.extend_from_slice(&digits[at.min(32 - width.min(32))..]);
}

/// Adds three digits.
pub fn push_three(out: &mut Vec<u8>, number: u64) {
    out.push(b'0' + (number / 100 % 10) as u8);
    out.push(b'0' + (number / 10 % 10) as u8);
    out.push(b'0' + (number % 10) as u8);
}

/// Whether durations are in clock ticks of unknown length.
static IN_TICKS: AtomicBool = AtomicBool::new(false);

/// Shows durations as ticks from now on, for traces whose recorder was killed before it had read its clock twice.
pub fn show_ticks() {
    IN_TICKS.store(true, Ordering::Relaxed);
}

/// Returns whether durations are shown as ticks.
pub fn shows_ticks() -> bool {
    IN_TICKS.load(Ordering::Relaxed)
}

/// The columns that a duration takes.
pub const DURATION: usize = 10;

/// Adds a duration in [`DURATION`] columns: `   1.234 us`, rounded down; in ticks, `   1234 tk`.
pub fn push_duration(out: &mut Vec<u8>, nanoseconds: u64) {
    const UNITS: [(u64, &[u8; 3]); 5] = [
        (1_000, b" us"),
        (1_000_000, b" ms"),
        (1_000_000_000, b"  s"),
        (60_000_000_000, b"  m"),
        (3_600_000_000_000, b"  h"),
    ];
    if shows_ticks() {
        push_number(out, nanoseconds, DURATION - 3);
        out.extend_from_slice(b" tk");
        return;
    }
    let unit = UNITS.iter().rev().find(|(unit, _)| nanoseconds >= *unit);
    let (unit, name) = unit.unwrap_or(&UNITS[0]);
    let thousandths = u128::from(nanoseconds % unit) * 1000 / u128::from(*unit);
    push_number(out, nanoseconds / unit, DURATION - 7);
    out.push(b'.');
    push_three(out, thousandths as u64);
    out.extend_from_slice(*name);
}

/// Returns a duration without blanks in front.
pub fn duration(nanoseconds: u64) -> String {
    let mut out = Vec::with_capacity(DURATION);
    push_duration(&mut out, nanoseconds);
    String::from_utf8_lossy(&out).trim_start().to_owned()
}

/// Adds a timestamp in seconds with nine decimals, right-aligned in `width` columns.
pub fn push_timestamp(out: &mut Vec<u8>, time: u64, width: usize) {
    push_number(out, time / 1_000_000_000, width.saturating_sub(10));
    out.push(b'.');
    let rest = time % 1_000_000_000;
    push_three(out, rest / 1_000_000);
    push_three(out, rest / 1_000 % 1_000);
    push_three(out, rest % 1_000);
}

/// Adds text, right-aligned in `width` columns.
pub fn push_right(out: &mut Vec<u8>, text: &str, width: usize) {
    let blanks = width.saturating_sub(text.chars().count());
    out.extend(std::iter::repeat_n(b' ', blanks));
    out.extend_from_slice(text.as_bytes());
}

/// Returns a function's address in its module's file, or in memory if it has no module. Library calls and events have
/// none.
pub fn address(entry: &FunctionEntry) -> String {
    match entry.kind {
        FunctionKind::Function | FunctionKind::Address => format!("{:x}", entry.place),
        _ => String::new(),
    }
}

/// The shown texts of functions.
pub struct Labels<'n, 't> {
    names: &'n FunctionNames<'t>,
    with_library: bool,
    made: Vec<Option<Label>>,
}

impl<'n, 't> Labels<'n, 't> {
    /// Makes labels. `with_library` adds the module's name behind library functions.
    pub fn new(names: &'n FunctionNames<'t>, with_library: bool) -> Labels<'n, 't> {
        Labels {
            names,
            with_library,
            made: (0..names.trace().function_count()).map(|_| None).collect(),
        }
    }

    /// Returns the file name of the function's module.
    pub fn module(&self, function: u32) -> &'t str {
        self.names.module(function)
    }

    /// Returns the function's name, with control characters spelled out.
    #[inline]
    pub fn get(&mut self, function: u32) -> &str {
        let Label { text, name } = self.label(function);
        text.get(..*name).unwrap_or(text)
    }

    /// Returns the text of a call: the name with its parameters if these are shown, else the name and `()`.
    #[inline]
    pub fn call(&mut self, function: u32) -> &str {
        &self.label(function).text
    }

    #[inline]
    fn label(&mut self, function: u32) -> &Label {
        // A damaged record may name any id; ids beyond the table are shown as id 0, which is no function.
        let known = (function as usize) < self.made.len();
        let function = if known { function } else { 0 };
        let names = self.names;
        if self.made.is_empty() {
            self.made.push(None);
        }
        self.made[function as usize].get_or_insert_with(|| {
            let mut text = escape(names.get(function));
            if self.with_library
                && let Some(library) = names.library(function)
            {
                text.push('@');
                text.push_str(&escape(library));
            }
            let name = text.len();
            if !names.has_parameters(function) {
                text.push_str("()");
            }
            Label {
                text: text.into(),
                name,
            }
        })
    }
}

/// The shown texts of one function.
struct Label {
    /// The text of a call.
    text: Box<str>,
    /// The bytes of `text` that are the name.
    name: usize,
}

/// The source lines of functions as `FILE:LINE`, looked up on first use.
pub struct Sources<'n, 't> {
    names: &'n FunctionNames<'t>,
    found: Vec<Option<Option<Box<str>>>>,
}

impl<'n, 't> Sources<'n, 't> {
    pub fn new(names: &'n FunctionNames<'t>) -> Sources<'n, 't> {
        Sources {
            names,
            found: vec![None; names.trace().function_count()],
        }
    }

    /// Returns the source line of a function, if it is known.
    pub fn get(&mut self, function: u32) -> Option<&str> {
        let found = self.found.get_mut(function as usize)?;
        let names = self.names;
        let source = found.get_or_insert_with(|| {
            let source = names.sources(&[function]).pop().flatten();
            source.map(|(file, line)| format!("{}:{line}", escape(&file)).into())
        });
        source.as_deref()
    }
}

/// Output styles of text.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Style {
    /// As it is
    #[value(alias = "text")]
    Normal,
    /// As a page for a browser
    Html,
}

/// The title of a page: the traced command.
pub fn title(trace: &Trace) -> String {
    escape(&trace.info().command.join(" "))
}

/// When to use colours.
#[derive(clap::Args)]
pub struct Color {
    /// Use colours: yes, no, or auto for a terminal
    #[arg(long, value_name = "yes|no|auto", default_value = "auto")]
    color: String,
}

impl Color {
    /// Returns whether to use colours. Pages have colours unless the user refuses them.
    pub fn is_wanted(&self, as_page: bool) -> anyhow::Result<bool> {
        if self.color == "auto" && as_page {
            return Ok(true);
        }
        if self.color == "auto" {
            let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            return Ok(!refused && io::stdout().is_terminal());
        }
        match dioptra_filters::parse_bool(&self.color) {
            Some(wanted) => Ok(wanted),
            None => bail!(super::usage(format_args!(
                "--color {}: use yes, no or auto",
                self.color
            ))),
        }
    }
}

/// The escape sequences of [`dioptra_filters::COLORS`], in the same order.
pub const COLORS: [&str; 8] = [
    "\x1b[91m", "\x1b[32m", "\x1b[94m", "\x1b[33m", "\x1b[95m", "\x1b[36m", "\x1b[1m", "\x1b[90m",
];
/// The escape sequence that ends a colour.
pub const RESET: &str = "\x1b[0m";

/// Returns the colour of a duration; there is none below 10 µs.
pub fn duration_color(nanoseconds: u64) -> Option<&'static str> {
    match nanoseconds {
        0..10_000 => None,
        10_000..1_000_000 => Some(COLORS[1]),
        1_000_000..100_000_000 => Some(COLORS[3]),
        _ => Some(COLORS[0]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_take_ten_columns() {
        for (nanoseconds, shown) in [
            (0, "  0.000 us"),
            (999_999, "999.999 us"),
            (1_000_000, "  1.000 ms"),
            (1_234_999_999, "  1.234  s"),
            (90_000_000_000, "  1.500  m"),
            (u64::MAX, "5124095.576  h"),
        ] {
            let mut out = Vec::new();
            push_duration(&mut out, nanoseconds);
            assert_eq!(String::from_utf8_lossy(&out), shown);
        }
    }

    #[test]
    fn numbers_are_written_as_they_are() {
        for number in [0, 7, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX] {
            for width in [0, 1, 6, 20, 25] {
                let mut out = Vec::new();
                push_number(&mut out, number, width);
                assert_eq!(String::from_utf8_lossy(&out), format!("{number:width$}"));
            }
        }
    }

    #[test]
    fn timestamps_have_nine_decimals() {
        let mut out = Vec::new();
        push_timestamp(&mut out, 16_005_700_941_019, 18);
        assert_eq!(String::from_utf8_lossy(&out), "   16005.700941019");
    }
}
