//! Functions with the counts of their lines and of what was inlined there, and their text.

use dioptra_symbols::SourceFrame;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Compilers store this many bits of the distance between a line and the function's first line.
const OFFSET_MASK: u32 = 0xffff;

/// A line of a function, counted from the function's first line, and the block of the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LineKey {
    offset: u32,
    discriminator: u64,
}

/// A line in a function, or in what was inlined into it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CodePlace {
    /// The functions, outermost first, each with the line at which the next one was inlined.
    functions: Vec<(Arc<str>, LineKey)>,
}

impl CodePlace {
    /// Returns the place of the frames at an address, innermost first; `None` where a function's name, its first line
    /// or the line is not known.
    pub(super) fn of(frames: &[SourceFrame]) -> Option<CodePlace> {
        let of_frame = |frame: &SourceFrame| {
            let name = frame.link_name.clone()?;
            // Blanks separate the functions that a line calls.
            let is_word = !name.is_empty() && !name.contains(char::is_whitespace);
            let offset = frame.line?.wrapping_sub(frame.declared?) & OFFSET_MASK;
            let discriminator = frame.discriminator;
            let key = LineKey {
                offset,
                discriminator,
            };
            is_word.then_some((name, key))
        };
        let functions: Option<Vec<_>> = frames.iter().rev().map(of_frame).collect();
        let functions = functions.filter(|functions| !functions.is_empty())?;
        Some(CodePlace { functions })
    }

    /// Returns the function whose code the place is.
    pub(super) fn outermost(&self) -> &Arc<str> {
        &self.functions[0].0
    }
}

/// The count of a line, and the functions that it called.
#[derive(Debug, Default)]
struct LineCount {
    count: u64,
    called: BTreeMap<Arc<str>, u64>,
}

/// A function's counts.
#[derive(Debug, Default)]
struct Counts {
    head: u64,
    lines: BTreeMap<LineKey, LineCount>,
    inlined: BTreeMap<LineKey, BTreeMap<Arc<str>, Counts>>,
}

impl Counts {
    /// Returns the sum of the counts of all lines, those of inlined functions included.
    fn total(&self) -> u64 {
        let own = self.lines.values().map(|line| line.count);
        let inlined = self.inlined.values().flat_map(BTreeMap::values);
        let inlined = inlined.map(Counts::total);
        own.chain(inlined).fold(0, u64::saturating_add)
    }

    /// Writes the lines, and below them the inlined functions, as deep as they lie in one another.
    fn write(&self, depth: usize, out: &mut dyn Write) -> io::Result<()> {
        let blanks = " ".repeat(depth);
        let number = |key: &LineKey| match key.discriminator {
            0 => key.offset.to_string(),
            discriminator => format!("{}.{discriminator}", key.offset),
        };
        for (key, line) in &self.lines {
            write!(out, "{blanks}{}: {}", number(key), line.count)?;
            for (callee, calls) in &line.called {
                write!(out, " {callee}:{calls}")?;
            }
            writeln!(out)?;
        }
        for (key, functions) in &self.inlined {
            for (name, counts) in functions {
                writeln!(out, "{blanks}{}: {name}:{}", number(key), counts.total())?;
                counts.write(depth + 1, out)?;
            }
        }
        Ok(())
    }
}

/// All functions that have symbols of their own, with their counts.
#[derive(Debug, Default)]
pub(super) struct FunctionCounts {
    functions: BTreeMap<Arc<str>, Counts>,
}

impl FunctionCounts {
    /// Adds to the count of a line.
    pub(super) fn add(&mut self, place: &CodePlace, count: u64) {
        let line = self.line(place);
        line.count = line.count.saturating_add(count);
    }

    /// Makes a line's count at least this one.
    pub(super) fn raise(&mut self, place: &CodePlace, count: u64) {
        let line = self.line(place);
        line.count = line.count.max(count);
    }

    /// Adds calls of a function to a line.
    pub(super) fn add_calls(&mut self, site: &CodePlace, callee: &Arc<str>, calls: u64) {
        let sum = self.line(site).called.entry(callee.clone()).or_default();
        *sum = sum.saturating_add(calls);
    }

    /// Adds to the number of times that a function was entered.
    pub(super) fn add_head(&mut self, function: &Arc<str>, calls: u64) {
        let head = &mut self.functions.entry(function.clone()).or_default().head;
        *head = head.saturating_add(calls);
    }

    fn line(&mut self, place: &CodePlace) -> &mut LineCount {
        let (outermost, mut key) = (place.outermost(), place.functions[0].1);
        let mut counts = self.functions.entry(outermost.clone()).or_default();
        for (function, line) in &place.functions[1..] {
            let at_call = counts.inlined.entry(key).or_default();
            counts = at_call.entry(function.clone()).or_default();
            key = *line;
        }
        counts.lines.entry(key).or_default()
    }

    /// Returns the sum of the counts of all lines.
    pub(super) fn total(&self) -> u64 {
        let each = self.functions.values().map(Counts::total);
        each.fold(0, u64::saturating_add)
    }

    /// Writes all functions, those with the largest sums first.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut functions: Vec<_> = self.functions.iter().collect();
        functions.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.total()));
        for (name, counts) in functions {
            writeln!(out, "{name}:{}:{}", counts.total(), counts.head)?;
            counts.write(1, out)?;
        }
        Ok(())
    }
}
