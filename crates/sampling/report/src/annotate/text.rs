//! An annotation as text for people.

use super::listing;
use super::model::{AddressCount, Annotation};
use super::source_view;
use super::style::{AnnotationStyle, AnnotationView};
use dioptra_profile::branches::Executions;
use dioptra_tables::fact_line;
use dioptra_tables::{Emphasis, Severity, escape};
use dioptra_tables::{display_width, push_escaped};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The number of columns between two tab stops of source files.
const TAB: usize = 8;

/// Writes an annotation as text: information above it, losses and fallbacks below.
///
/// Percentages are an event's share of the function's weight; a place without samples shows none. Addresses are
/// `objdump`'s.
///
/// # Errors
/// The errors of the writer.
pub fn write_annotation(
    annotation: &Annotation,
    style: &AnnotationStyle,
    out: impl Write,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    for fact in &annotation.facts {
        if fact.severity == Severity::Info {
            style.write_comment(Emphasis::Heading, &fact_line(fact), &mut out)?;
        }
    }
    style.write_comment(
        Emphasis::Heading,
        &format!("# {}", heading(annotation)),
        &mut out,
    )?;
    let columns = Columns::of(annotation, style);
    if style.view == AnnotationView::Source {
        source_view::write(annotation, style, &columns, &mut out)?;
    } else {
        listing::write(annotation, style, &columns, &mut out)?;
    }
    for fact in &annotation.facts {
        if fact.severity != Severity::Info {
            style.write_comment(Emphasis::Diagnostic, &fact_line(fact), &mut out)?;
        }
    }
    out.flush()
}

/// Returns the heading: the function, its addresses, and its share of each event.
fn heading(annotation: &Annotation) -> String {
    let mut text = format!(
        "{} in {}",
        escape(&annotation.name),
        escape(&annotation.module)
    );
    if let (Some(start), Some(addresses)) = (annotation.virtual_start, &annotation.addresses) {
        let end = start.wrapping_add(addresses.end.wrapping_sub(addresses.start));
        let _ = write!(text, ", {start:#x}..{end:#x}");
    }
    for event in &annotation.events {
        let percent = event.percent(event.function, event.all).unwrap_or(0.0);
        let _ = write!(
            text,
            "; {}: {} samples, {percent:.2} %",
            escape(&event.name),
            event.function.count.samples
        );
    }
    text.push_str("; * marks the hottest, percentages are of the function");
    text
}

/// The columns of numbers.
pub(super) struct Columns {
    /// The columns of each event.
    events: Vec<OfEvent>,
    /// The width of executions in cells, where there are branch records.
    pub runs: Option<usize>,
}

/// The columns of one event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OfEvent {
    /// Shares, and samples in this many cells.
    Full(usize),
    /// Shares only.
    Shares,
    /// No columns: the event was not sampled in this function, as the heading says.
    None,
}

impl OfEvent {
    fn width(self) -> usize {
        match self {
            OfEvent::Full(samples) => PERCENT + 1 + samples,
            OfEvent::Shares => PERCENT,
            OfEvent::None => 0,
        }
    }
}

/// The width in cells of `100.00%` and of its heading.
const PERCENT: usize = 7;
/// The width in cells below which a terminal shows no samples of events after the first one.
const ENOUGH: usize = 120;

impl Columns {
    fn of(annotation: &Annotation, style: &AnnotationStyle) -> Columns {
        let digits = |count: u64| count.to_string().len();
        let events = annotation.events.iter().enumerate();
        let events = events.map(|(place, event)| {
            let samples = event.function.count.samples;
            match style.width {
                Some(_) if place > 0 && samples == 0 => OfEvent::None,
                Some(width) if place > 0 && width < ENOUGH => OfEvent::Shares,
                _ => OfEvent::Full(digits(samples).max("samples".len())),
            }
        });
        let runs = annotation.branches.as_ref().and_then(|branches| {
            let runs = branches.counts.instructions.iter();
            let widest = runs.map(|runs| executions(*runs).len()).max()?;
            Some(widest.max("runs".len()))
        });
        Columns {
            events: events.collect(),
            runs,
        }
    }

    /// Returns the events that have columns.
    fn shown(&self) -> impl Iterator<Item = (usize, OfEvent)> + '_ {
        let events = self.events.iter().copied().enumerate();
        events.filter(|(_, columns)| *columns != OfEvent::None)
    }

    /// Returns the headings: a line of events if there are several, and the name of each column.
    pub fn headings(&self, annotation: &Annotation, with_runs: bool) -> String {
        let mut text = String::new();
        if annotation.events.len() > 1 {
            for (event, columns) in self.shown() {
                let width = columns.width();
                let mut name = escape(&annotation.events[event].name);
                if display_width(&name) > width {
                    name = name.chars().take(width).collect();
                }
                let pad = width.saturating_sub(display_width(&name));
                let _ = write!(text, "{:pad$}{name} ", "");
            }
            text.push('\n');
        }
        for (_, columns) in self.shown() {
            let _ = write!(text, "{:>PERCENT$} ", "percent");
            if let OfEvent::Full(width) = columns {
                let _ = write!(text, "{:>width$} ", "samples");
            }
        }
        if let Some(width) = self.runs.filter(|_| with_runs) {
            let _ = write!(text, "{:>width$} ", "runs");
        }
        text
    }

    /// Appends a place's counts.
    pub fn push(
        &self,
        annotation: &Annotation,
        style: &AnnotationStyle,
        counts: &[AddressCount],
        is_hottest: bool,
        out: &mut String,
    ) {
        for (event, columns) in self.shown() {
            let Some(count) = counts.get(event) else {
                continue;
            };
            let event = &annotation.events[event];
            if count.count.samples == 0 {
                let _ = write!(out, "{:width$} ", "", width = columns.width());
                continue;
            }
            let percent = event.percent(*count, event.function);
            let look = if is_hottest {
                Emphasis::Hottest
            } else {
                Emphasis::of_percent(percent)
            };
            style.paint(look, out, |out| {
                let shown = percent.map_or("-".to_owned(), |percent| format!("{percent:.2}%"));
                let _ = write!(out, "{shown:>PERCENT$} ");
                if let OfEvent::Full(width) = columns {
                    let _ = write!(out, "{:>width$} ", count.count.samples);
                }
            });
        }
    }

    /// Appends empty cells.
    pub fn push_blank(&self, with_runs: bool, out: &mut String) {
        for (_, columns) in self.shown() {
            let _ = write!(out, "{:width$} ", "", width = columns.width());
        }
        if let Some(width) = self.runs.filter(|_| with_runs) {
            let _ = write!(out, "{:width$}", "", width = width + 1);
        }
    }

    pub fn push_runs(&self, annotation: &Annotation, place: usize, out: &mut String) {
        if let (Some(width), Some(branches)) = (self.runs, &annotation.branches) {
            let runs = branches.counts.instructions.get(place);
            let shown = runs.filter(|runs| runs.seen > 0);
            let shown = shown.map_or(String::new(), |runs| executions(*runs));
            let _ = write!(out, "{shown:>width$} ");
        }
    }
}

/// Returns a number of executions: the estimate for the whole recording where there is one, else the number seen.
pub(super) fn executions(runs: Executions) -> String {
    match runs.estimated {
        Some(estimated) => format!("{estimated:.0}"),
        None => runs.seen.to_string(),
    }
}

/// Returns the index of the hottest counts: most weight of the first event, then most samples, then the first ones.
pub(super) fn hottest<'a>(counts: impl Iterator<Item = &'a [AddressCount]>) -> Option<usize> {
    let mut best: Option<(usize, (u64, u64))> = None;
    for (index, counts) in counts.enumerate() {
        let heat = heat(counts);
        if heat.1 > 0 && best.is_none_or(|(_, most)| heat > most) {
            best = Some((index, heat));
        }
    }
    best.map(|(index, _)| index)
}

/// Returns the weight of the first event, and the samples of all.
pub(super) fn heat(counts: &[AddressCount]) -> (u64, u64) {
    let samples = counts.iter().map(|count| count.count.samples).sum();
    (
        counts.first().map_or(0, |count| count.count.weight),
        samples,
    )
}

/// Appends a line of source, with control characters escaped and tabs expanded.
pub(super) fn push_source(out: &mut String, line: &str) {
    let mut column = 0;
    for (index, part) in line.split('\t').enumerate() {
        if index > 0 {
            let pad = TAB - column % TAB;
            let _ = write!(out, "{:pad$}", "");
            column += pad;
        }
        let before = out.len();
        push_escaped(out, part);
        column += display_width(&out[before..]);
    }
}

/// Returns the last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
