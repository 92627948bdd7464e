//! Times and names as the trace's texts show them.

use anyhow::bail;
use dioptra_calls::FunctionNames;
use dioptra_report::escape;
use dioptra_tracelayout::{FunctionEntry, FunctionKind};
use std::io::{self, IsTerminal, Write};

/// Adds a number, right-aligned in `width` columns.
pub fn push_number(out: &mut Vec<u8>, mut number: u64, width: usize) {
    let mut digits = [b' '; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    let from = at.min(digits.len() - width.min(digits.len()));
    out.extend_from_slice(&digits[from..]);
}

/// Adds three digits.
pub fn push_three(out: &mut Vec<u8>, number: u64) {
    out.push(b'0' + (number / 100 % 10) as u8);
    out.push(b'0' + (number / 10 % 10) as u8);
    out.push(b'0' + (number % 10) as u8);
}

/// How many columns a duration has.
pub const DURATION: usize = 10;

/// Adds a duration in [`DURATION`] columns: `   1.234 us`, rounded down.
pub fn push_duration(out: &mut Vec<u8>, nanoseconds: u64) {
    const UNITS: [(u64, &[u8; 3]); 5] = [
        (1_000, b" us"),
        (1_000_000, b" ms"),
        (1_000_000_000, b"  s"),
        (60_000_000_000, b"  m"),
        (3_600_000_000_000, b"  h"),
    ];
    let unit = UNITS.iter().rev().find(|(unit, _)| nanoseconds >= *unit);
    let (unit, name) = unit.unwrap_or(&UNITS[0]);
    let thousandths = u128::from(nanoseconds % unit) * 1000 / u128::from(*unit);
    push_number(out, nanoseconds / unit, DURATION - 7);
    out.push(b'.');
    push_three(out, thousandths as u64);
    out.extend_from_slice(*name);
}

/// A duration without blanks in front.
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

/// Where a function is in its module's file, or in memory if it is in none; nothing for library calls and events.
pub fn address(entry: &FunctionEntry) -> String {
    match entry.kind {
        FunctionKind::Function | FunctionKind::Address => format!("{:x}", entry.place),
        _ => String::new(),
    }
}

/// Functions as they are shown.
pub struct Labels<'n, 't> {
    names: &'n FunctionNames<'t>,
    with_library: bool,
    made: Vec<Option<Box<str>>>,
}

impl<'n, 't> Labels<'n, 't> {
    /// With the module of library functions behind their names, if that is asked for.
    pub fn new(names: &'n FunctionNames<'t>, with_library: bool) -> Labels<'n, 't> {
        Labels {
            names,
            with_library,
            made: vec![None; names.trace().function_count()],
        }
    }

    /// The file name of its module.
    pub fn module(&self, function: u32) -> &'t str {
        self.names.module(function)
    }

    /// A function's name; control characters are spelled out.
    pub fn get(&mut self, function: u32) -> &str {
        let Some(made) = self.made.get_mut(function as usize) else {
            return self.names.get(function);
        };
        made.get_or_insert_with(|| {
            let mut name = escape(self.names.get(function));
            if self.with_library
                && let Some(library) = self.names.library(function)
            {
                name.push('@');
                name.push_str(&escape(library));
            }
            name.into()
        })
    }
}

/// Where functions are written, as `FILE:LINE`; looked for when it is asked for.
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

    /// Of one function; none if that is not known.
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

/// When to use colours.
#[derive(clap::Args)]
pub struct Color {
    /// Use colours: yes, no, or auto for a terminal
    #[arg(long, value_name = "yes|no|auto", default_value = "auto")]
    color: String,
}

impl Color {
    /// Whether to.
    pub fn is_wanted(&self) -> anyhow::Result<bool> {
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

/// Escape sequences of [`dioptra_filters::COLORS`], in their order.
pub const COLORS: [&str; 8] = [
    "\x1b[91m", "\x1b[32m", "\x1b[94m", "\x1b[33m", "\x1b[95m", "\x1b[36m", "\x1b[1m", "\x1b[90m",
];
/// Back to no colour.
pub const RESET: &str = "\x1b[0m";

/// The colour of a duration: nothing for less than 10 µs.
pub fn duration_color(nanoseconds: u64) -> Option<&'static str> {
    match nanoseconds {
        0..10_000 => None,
        10_000..1_000_000 => Some(COLORS[1]),
        1_000_000..100_000_000 => Some(COLORS[3]),
        _ => Some(COLORS[0]),
    }
}

/// Standard output, written in large pieces.
pub struct Output {
    out: io::StdoutLock<'static>,
    /// What is to be written.
    pub text: Vec<u8>,
}

impl Output {
    pub fn new() -> Output {
        Output {
            out: io::stdout().lock(),
            text: Vec::with_capacity(1 << 17),
        }
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
        self.out.write_all(&self.text)?;
        self.text.clear();
        self.out.flush()
    }

    /// Adds a line.
    pub fn line(&mut self, line: &str) {
        self.text.extend_from_slice(line.as_bytes());
        self.text.push(b'\n');
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
    fn timestamps_have_nine_decimals() {
        let mut out = Vec::new();
        push_timestamp(&mut out, 16_005_700_941_019, 18);
        assert_eq!(String::from_utf8_lossy(&out), "   16005.700941019");
    }
}
