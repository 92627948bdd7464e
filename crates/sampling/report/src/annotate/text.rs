//! An annotation as text for people.

use super::listing;
use super::model::{Annotation, PlaceCount};
use super::source_view;
use super::style::{AnnotationStyle, AnnotationView};
use dioptra_profile::branches::Executions;
use dioptra_tables::fact_line;
use dioptra_tables::{Emphasis, Severity, escape};
use dioptra_tables::{display_width, push_escaped};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Tabs of source files stand for as many columns.
const TAB: usize = 8;

/// Writes an annotation: information above it, losses and fallbacks below.
///
/// Percentages are of the function, each event's of its weight; a place without samples shows none. Addresses are
/// `objdump`'s.
///
/// # Errors
/// Only those of the writer.
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

/// What is annotated.
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
    /// By event.
    events: Vec<OfEvent>,
    /// How wide executions are, where branch records tell them.
    pub runs: Option<usize>,
}

/// The columns of one event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OfEvent {
    /// Shares and samples, so wide.
    Full(usize),
    /// Shares only.
    Shares,
    /// None: it was not sampled in this function, as the heading tells.
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

/// How wide `100.00%` is, and its heading.
const PERCENT: usize = 7;
/// Terminals of less cells show no samples of events after the first one.
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

    /// The events that have columns.
    fn shown(&self) -> impl Iterator<Item = (usize, OfEvent)> + '_ {
        let events = self.events.iter().copied().enumerate();
        events.filter(|(_, columns)| *columns != OfEvent::None)
    }

    /// Appends the headings: a line of events if there are several, and what each column is.
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
        counts: &[PlaceCount],
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

/// How often: estimated for the whole recording where that can be told, else as seen.
pub(super) fn executions(runs: Executions) -> String {
    match runs.estimated {
        Some(estimated) => format!("{estimated:.0}"),
        None => runs.seen.to_string(),
    }
}

/// The first of those with most weight of the first event, samples deciding among equals.
pub(super) fn hottest<'a>(counts: impl Iterator<Item = &'a [PlaceCount]>) -> Option<usize> {
    let mut best: Option<(usize, (u64, u64))> = None;
    for (index, counts) in counts.enumerate() {
        let heat = heat(counts);
        if heat.1 > 0 && best.is_none_or(|(_, most)| heat > most) {
            best = Some((index, heat));
        }
    }
    best.map(|(index, _)| index)
}

/// The first event's weight, and samples of all.
pub(super) fn heat(counts: &[PlaceCount]) -> (u64, u64) {
    let samples = counts.iter().map(|count| count.count.samples).sum();
    (
        counts.first().map_or(0, |count| count.count.weight),
        samples,
    )
}

/// Appends a line of source, harmless and with its tabs spread.
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

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
