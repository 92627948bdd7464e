//! An annotation as source files with counts beside their lines.

use super::model::{AddressCount, AnnotatedLine, Annotation};
use super::style::AnnotationStyle;
use super::text::{Columns, heat, hottest, push_source};
use dioptra_instructions::Credit;
use dioptra_tables::Emphasis;
use dioptra_tables::escape;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

/// Returns the counts of a line that `credit` asks for.
fn counts(line: &AnnotatedLine, credit: Credit) -> &[AddressCount] {
    match credit {
        Credit::Innermost => &line.innermost,
        Credit::Outermost => &line.outermost,
    }
}

/// Writes all lines that have code, file by file: first the function's own file.
pub(super) fn write(
    annotation: &Annotation,
    style: &AnnotationStyle,
    columns: &Columns,
    out: &mut impl Write,
) -> io::Result<()> {
    let credit = style.credit;
    let lines: Vec<&AnnotatedLine> = annotation
        .lines
        .iter()
        .filter(|line| match credit {
            Credit::Innermost => line.has_code,
            Credit::Outermost => heat(&line.outermost).1 > 0 || line.has_code,
        })
        .collect();
    let hottest = hottest(lines.iter().map(|line| counts(line, credit)));
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(heat(counts(lines[*at], credit))));
    // Each line is shown with the lines around it.
    let lines_each = 1 + 2 * style.context as usize;
    let few = style.lines.map(|lines| (lines / lines_each).max(1));
    let limit = style.limit.or(few).unwrap_or(usize::MAX);
    let shown: BTreeSet<usize> = order.iter().copied().take(limit).collect();
    let headings = format!(
        "{}  {} source",
        columns.headings(annotation, false),
        style.bar()
    );
    style.write_lines(&headings, out)?;
    for file in files(annotation, &lines) {
        let of_file = (0..lines.len()).filter(|at| lines[*at].file == file && shown.contains(at));
        let of_file: Vec<usize> = of_file.collect();
        if of_file.is_empty() {
            continue;
        }
        let mut text = String::new();
        let mut row =
            |counts: Option<&[AddressCount]>, is_hottest: bool, look: Emphasis, what: &str| {
                match counts {
                    Some(counts) => columns.push(annotation, style, counts, is_hottest, &mut text),
                    None => columns.push_blank(false, &mut text),
                }
                let mark = if is_hottest { "*" } else { " " };
                let _ = write!(text, "{mark} {} ", style.bar());
                style.paint(look, &mut text, |out| out.push_str(what));
                text.push('\n');
            };
        let Some(file) = &file else {
            for at in of_file {
                let counts = counts(lines[at], credit);
                row(
                    Some(counts),
                    hottest == Some(at),
                    Emphasis::Plain,
                    "instructions without a line",
                );
            }
            style.write_lines(&text, out)?;
            continue;
        };
        let source = annotation.sources.get(file);
        let path = source.map_or_else(
            || file.to_string(),
            |source| source.path.to_string_lossy().into_owned(),
        );
        row(None, false, Emphasis::Heading, &escape(&path));
        let last = lines.iter().filter(|line| line.file.as_ref() == Some(file));
        let last = last.filter_map(|line| line.line).max().unwrap_or(0);
        let width = last.saturating_add(style.context).to_string().len();
        let numbers: BTreeMap<u32, usize> = (0..lines.len())
            .filter(|at| lines[*at].file.as_ref() == Some(file))
            .filter_map(|at| Some((lines[at].line?, at)))
            .collect();
        // Lines between two lines of code are shown if they are near one of them.
        let mut next = 0_u32;
        for at in of_file {
            let line = lines[at];
            let Some(number) = line.line else {
                let is_hottest = hottest == Some(at);
                row(
                    Some(counts(line, credit)),
                    is_hottest,
                    Emphasis::Plain,
                    "lines unknown",
                );
                continue;
            };
            let from = number.saturating_sub(style.context).max(next).max(1);
            if next > 0 && from > next && source.is_some() {
                row(None, false, Emphasis::Heading, style.dots());
            }
            let to = number.saturating_add(style.context);
            for shown_number in from..=to {
                let of_source = source.and_then(|source| source.line(shown_number));
                if shown_number != number && of_source.is_none() {
                    continue;
                }
                let found = numbers.get(&shown_number).copied();
                // A later line that is shown gets its own turn. A line that the limit left out is shown without
                // numbers.
                if shown_number > number && found.is_some_and(|at| shown.contains(&at)) {
                    break;
                }
                let found = found.filter(|at| shown.contains(at));
                let mut what = format!("{shown_number:>width$}  ");
                push_source(&mut what, of_source.unwrap_or(""));
                row(
                    found.map(|at| counts(lines[at], credit)),
                    found.is_some() && hottest == found,
                    Emphasis::Plain,
                    what.trim_end(),
                );
                next = shown_number + 1;
            }
        }
        style.write_lines(&text, out)?;
    }
    if shown.len() < lines.len() {
        let left_out = lines.len() - shown.len();
        let samples: u64 = (0..lines.len())
            .filter(|at| !shown.contains(at))
            .map(|at| heat(counts(lines[at], credit)).1)
            .sum();
        writeln!(out, "# {left_out} more lines with code, {samples} samples")?;
    }
    Ok(())
}

/// Returns the files of the lines: the function's own first, unknown ones last.
fn files(annotation: &Annotation, lines: &[&AnnotatedLine]) -> Vec<Option<Arc<str>>> {
    let own = annotation
        .places
        .iter()
        .find_map(|place| place.frames.last()?.file.clone());
    let mut files: Vec<Option<Arc<str>>> = lines.iter().map(|line| line.file.clone()).collect();
    files.dedup();
    files.sort_by_key(|file| (*file != own, file.is_none()));
    files
}
