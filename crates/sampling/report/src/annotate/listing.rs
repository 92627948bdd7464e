//! An annotation as instructions, or addresses where there is no code.

use super::arrows::{Arrow, Arrows};
use super::fitting::hottest_places;
use super::model::{AddressCount, AddressFrame, AnnotatedAddress, AnnotatedBlock, Annotation};
use super::style::{AnnotationStyle, AnnotationView};
use super::text::{Columns, base_name, executions, heat, hottest, push_source};
use dioptra_tables::{Emphasis, escape, fit_name};
use dioptra_tables::{display_width, push_escaped};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{self, Write};
use std::sync::Arc;

/// The width in cells to which instructions are padded before the remark on them.
const WIDEST_CODE: usize = 44;

/// Writes instructions, or addresses.
pub(super) fn write(
    annotation: &Annotation,
    style: &AnnotationStyle,
    columns: &Columns,
    out: &mut impl Write,
) -> io::Result<()> {
    let shown = match style.lines.filter(|_| style.limit.is_none()) {
        None => Shown::of(annotation, style.limit),
        Some(budget) => {
            let lines = lines_of_places(annotation, style, columns);
            Shown::Places(hottest_places(annotation, &lines, budget))
        }
    };
    // On a terminal, arrows to places that are left out would take room from the code.
    let arrows = arrows(annotation, style, |place| {
        style.width.is_none() || shown.has(annotation, place)
    });
    let mut listing = Listing::new(annotation, style, columns, &arrows);
    let what = if annotation.has_code {
        "instruction"
    } else {
        "address"
    };
    let headings = format!(
        "{}  {} {what}",
        columns.headings(annotation, true),
        style.bar()
    );
    style.write_lines(&headings, out)?;
    let mut left_out: Option<(usize, Vec<AddressCount>)> = None;
    let mut before: Option<usize> = None;
    for index in 0..annotation.places.len() {
        if !shown.has(annotation, index) {
            let nothing = || (0, vec![AddressCount::default(); annotation.events.len()]);
            let (count, counts) = left_out.get_or_insert_with(nothing);
            *count += 1;
            super::counts::add(counts, &annotation.places[index].counts);
            continue;
        }
        if let Some((count, counts)) = left_out.take() {
            listing.left_out(index, count, &counts);
            before = None;
        }
        listing.place(index, before);
        before = Some(index);
        style.write_lines(&listing.text, out)?;
        listing.text.clear();
    }
    if let Some((count, counts)) = left_out {
        listing.left_out(annotation.places.len(), count, &counts);
        style.write_lines(&listing.text, out)?;
    }
    if arrows.left_out > 0 {
        writeln!(out, "# {} more jumps are not drawn", arrows.left_out)?;
    }
    Ok(())
}

/// Counts the lines that each place takes below the one before it.
fn lines_of_places(
    annotation: &Annotation,
    style: &AnnotationStyle,
    columns: &Columns,
) -> Vec<usize> {
    let arrows = Arrows::default();
    let mut listing = Listing::new(annotation, style, columns, &arrows);
    let places = 0..annotation.places.len();
    let count = places.map(|index| {
        listing.text.clear();
        listing.place(index, index.checked_sub(1));
        listing.text.lines().count()
    });
    count.collect()
}

/// Returns the arrows of all jumps within the function between places that are shown.
fn arrows(
    annotation: &Annotation,
    style: &AnnotationStyle,
    is_shown: impl Fn(usize) -> bool,
) -> Arrows {
    if style.glyphs().is_none() {
        return Arrows::default();
    }
    let jumps = annotation
        .places
        .iter()
        .enumerate()
        .filter_map(|(from, place)| {
            let is_jump = place.kind.is_some_and(|kind| kind.is_jump());
            let to = place.target.as_ref()?.place?;
            (is_jump && is_shown(from) && is_shown(to)).then_some(Arrow { from, to })
        });
    Arrows::new(jumps.collect())
}

/// Returns whether two places show the same line, inlined in the same way. Columns do not matter.
fn same_lines(one: &[AddressFrame], other: &[AddressFrame]) -> bool {
    let line = |frame: &AddressFrame| (frame.file.clone(), frame.line);
    one.first().map(line) == other.first().map(line) && same_chain(one, other)
}

/// Returns whether two places are inlined at the same calls.
fn same_chain(one: &[AddressFrame], other: &[AddressFrame]) -> bool {
    let mut pairs = one.iter().zip(other).enumerate();
    one.len() == other.len()
        && pairs.all(|(depth, (one, other))| {
            let same_line = (&one.file, one.line) == (&other.file, other.line);
            one.function == other.function && (depth == 0 || same_line)
        })
}

/// The places that are shown under a limit.
enum Shown {
    All,
    /// The places of these blocks.
    Blocks(BTreeSet<usize>),
    /// These places.
    Places(BTreeSet<usize>),
}

impl Shown {
    /// Returns the hottest blocks, or the hottest places where there is no code.
    fn of(annotation: &Annotation, limit: Option<usize>) -> Shown {
        let Some(limit) = limit else {
            return Shown::All;
        };
        let mut heats: Vec<((u64, u64), usize)> = if annotation.has_code {
            let blocks = annotation.blocks.iter().enumerate();
            blocks
                .map(|(at, block)| (heat(&block.counts), at))
                .collect()
        } else {
            let places = annotation.places.iter().enumerate();
            places
                .map(|(at, place)| (heat(&place.counts), at))
                .collect()
        };
        heats.sort_by_key(|(heat, at)| (std::cmp::Reverse(*heat), *at));
        let hottest = heats.into_iter().take(limit).map(|(_, at)| at).collect();
        match annotation.has_code {
            true => Shown::Blocks(hottest),
            false => Shown::Places(hottest),
        }
    }

    fn has(&self, annotation: &Annotation, place: usize) -> bool {
        match self {
            Shown::All => true,
            Shown::Places(places) => places.contains(&place),
            Shown::Blocks(blocks) => {
                let block = annotation.places[place].block;
                block.is_some_and(|block| blocks.contains(&block))
            }
        }
    }
}

/// A listing while it is written.
struct Listing<'a> {
    annotation: &'a Annotation,
    style: &'a AnnotationStyle,
    columns: &'a Columns,
    arrows: &'a Arrows,
    address_width: usize,
    hottest: Option<usize>,
    hottest_line: Option<usize>,
    /// The annotation's lines by file and number.
    lines: BTreeMap<(Option<&'a Arc<str>>, Option<u32>), usize>,
    text: String,
}

impl<'a> Listing<'a> {
    fn new(
        annotation: &'a Annotation,
        style: &'a AnnotationStyle,
        columns: &'a Columns,
        arrows: &'a Arrows,
    ) -> Self {
        Listing {
            annotation,
            style,
            columns,
            arrows,
            address_width: annotation
                .places
                .last()
                .map_or(1, |place| format!("{:x}", place.virtual_address).len()),
            hottest: hottest(annotation.places.iter().map(|place| &place.counts[..])),
            hottest_line: hottest(annotation.lines.iter().map(|line| &line.innermost[..])),
            lines: annotation
                .lines
                .iter()
                .enumerate()
                .map(|(at, line)| ((line.file.as_ref(), line.line), at))
                .collect(),
            text: String::new(),
        }
    }

    /// Begins a line without numbers that stands before an instruction, such as a heading.
    fn begin(&mut self, place: usize, mark: &str) {
        self.columns.push_blank(true, &mut self.text);
        let _ = write!(self.text, "{mark:1} {} ", self.style.bar());
        if let Some(glyphs) = self.style.glyphs() {
            self.arrows.before(place, glyphs, &mut self.text);
        }
    }

    fn left_out(&mut self, place: usize, count: usize, counts: &[AddressCount]) {
        self.columns
            .push(self.annotation, self.style, counts, false, &mut self.text);
        if let Some(width) = self.columns.runs {
            let _ = write!(self.text, "{:width$} ", "");
        }
        let _ = write!(self.text, "  {} ", self.style.bar());
        if let Some(glyphs) = self.style.glyphs() {
            self.arrows.before(place, glyphs, &mut self.text);
        }
        let what = match (self.annotation.has_code, count) {
            (true, 1) => "instruction",
            (true, _) => "instructions",
            (false, 1) => "address",
            (false, _) => "addresses",
        };
        let _ = writeln!(self.text, "{} {count} {what} left out", self.style.dots());
    }

    /// Appends one place with its headings; `before` is the place shown last, or `None` if places were left out
    /// since.
    fn place(&mut self, index: usize, before: Option<usize>) {
        let place = &self.annotation.places[index];
        if let Some(number) = place.block {
            let block = &self.annotation.blocks[number];
            if block.places.start == index {
                self.block(number, block);
            }
        }
        if self.style.view == AnnotationView::Mixed || !self.annotation.has_code {
            let before = before.map(|before| &self.annotation.places[before]);
            if before.is_none_or(|before| !same_lines(&before.frames, &place.frames)) {
                self.source(index, place, before);
            }
        }
        self.columns.push(
            self.annotation,
            self.style,
            &place.counts,
            self.hottest == Some(index),
            &mut self.text,
        );
        self.columns
            .push_runs(self.annotation, index, &mut self.text);
        let mark = if self.hottest == Some(index) {
            "*"
        } else {
            " "
        };
        let _ = write!(self.text, "{mark} {} ", self.style.bar());
        if let Some(glyphs) = self.style.glyphs() {
            self.arrows.beside(index, glyphs, &mut self.text);
        }
        let width = self.address_width;
        let _ = write!(self.text, "{:>width$x}", place.virtual_address);
        if self.annotation.has_code {
            let mut code = place.text.clone();
            self.push_target(place, &mut code);
            let told = self.told(index, place);
            if told.is_empty() {
                let _ = write!(self.text, ":  {code}");
            } else {
                let pad = WIDEST_CODE.saturating_sub(display_width(&code));
                let _ = write!(self.text, ":  {code}{:pad$}  ; {told}", "");
            }
        } else {
            let told = self.told(index, place);
            if !told.is_empty() {
                let _ = write!(self.text, "  ; {told}");
            }
        }
        self.text.push('\n');
    }

    /// Appends the function or block to which an instruction leads.
    fn push_target(&self, place: &AnnotatedAddress, code: &mut String) {
        let Some(target) = &place.target else {
            return;
        };
        let is_data = !place
            .kind
            .is_some_and(|kind| kind.is_jump() || kind.is_call());
        if let Some((name, distance)) = &target.function {
            if is_data {
                let _ = write!(code, "  # {:x}", target.virtual_address);
            }
            code.push_str(" <");
            push_escaped(code, name);
            if *distance > 0 {
                let _ = write!(code, "+{distance:#x}");
            }
            code.push('>');
        } else if let Some(to) = target.place
            && let Some(block) = self.annotation.places[to].block
        {
            let _ = write!(code, " {} block {block}", self.style.leads_to());
        }
    }

    /// Returns a remark on an instruction: its branch records and its memory samples.
    fn told(&self, index: usize, place: &AnnotatedAddress) -> String {
        let mut told: Vec<String> = Vec::new();
        if let Some(branches) = &self.annotation.branches {
            let sites = &branches.counts.sites;
            let at = sites.binary_search_by_key(&index, |site| site.instruction);
            if let Some(site) = at.ok().map(|at| &sites[at]) {
                if site.taken.seen > 0 || site.not_taken.is_some() {
                    let mut text = format!("taken {}", executions(site.taken));
                    if let Some(not_taken) = site.not_taken {
                        let _ = write!(text, ", not {}", executions(not_taken));
                    }
                    told.push(text);
                }
                if let Some(share) = site.mispredicted {
                    let space = if self.style.width.is_some() { "" } else { " " };
                    told.push(format!(
                        "{:.1} ±{:.1}{space}% mispredicted",
                        100.0 * share.ratio(),
                        100.0 * share.error
                    ));
                }
                // An indirect branch does not hold its target, so the records' targets are listed.
                if place.target.is_none() {
                    let targets = site.targets.iter().filter(|edge| !edge.kind.is_diversion());
                    let targets: Vec<String> = targets
                        .take(3)
                        .filter_map(|edge| {
                            let name = branches.functions.get(&edge.to)?;
                            Some(format!("{} {}", executions(edge.taken), escape(name)))
                        })
                        .collect();
                    if !targets.is_empty() {
                        told.push(format!("to {}", targets.join(", ")));
                    }
                }
            }
        }
        let memory = self.annotation.memory.as_ref();
        if let Some(Some(memory)) = memory.map(|memory| &memory.places[index]) {
            if let Some(mean) = memory.latency().mean() {
                told.push(format!("latency {mean:.1} cycles"));
            }
            let sources = memory.sources();
            let sources: Vec<String> = sources
                .iter()
                .filter(|(source, _)| source.0 != 0)
                .take(2)
                .map(|(source, latency)| format!("{} {}", latency.samples, source.level()))
                .collect();
            if !sources.is_empty() {
                told.push(sources.join(", "));
            }
        }
        told.join("; ")
    }

    /// Appends the heading of a block.
    fn block(&mut self, number: usize, block: &AnnotatedBlock) {
        let mut text = format!("block {number}");
        for (event, count) in self.annotation.events.iter().zip(&block.counts) {
            if count.count.samples > 0 {
                let percent = event.percent(*count, event.function).unwrap_or(0.0);
                let _ = write!(text, ", {percent:.2}% ({})", count.count.samples);
            }
        }
        if let Some(branches) = &self.annotation.branches {
            let of_block = &branches.counts.blocks[number];
            if of_block.executions.seen > 0 {
                let _ = write!(text, ", runs {}", executions(of_block.executions));
            }
            if let Some((mean, error)) = of_block.cycles.mean() {
                let _ = write!(text, ", {mean:.1} ±{error:.1} cycles");
            }
        }
        if let Some(at) = block.innermost_loop {
            let natural = &self.annotation.loops[at];
            if natural.natural.header == number {
                let _ = write!(
                    text,
                    ", header of loop {at} at depth {}",
                    natural.natural.depth
                );
                if let Some(parent) = natural.natural.parent {
                    let _ = write!(text, " in loop {parent}");
                }
                for (event, count) in self.annotation.events.iter().zip(&natural.counts) {
                    if count.count.samples > 0 {
                        let percent = event.percent(*count, event.function).unwrap_or(0.0);
                        let _ = write!(text, ", {percent:.2}%");
                    }
                }
                self.push_trips(at, &mut text);
            } else {
                let _ = write!(text, ", in loop {at} at depth {}", block.depth);
            }
        }
        self.begin(block.places.start, " ");
        let style = self.style;
        style.paint(Emphasis::Heading, &mut self.text, |out| {
            let _ = write!(out, "[{text}]");
        });
        self.text.push('\n');
    }

    fn push_trips(&self, at: usize, text: &mut String) {
        let Some(branches) = &self.annotation.branches else {
            return;
        };
        if let Some((mean, error)) = branches
            .counts
            .loops
            .get(at)
            .and_then(|one| one.mean_trips())
        {
            let _ = write!(text, ", {mean:.1} ±{error:.1} trips");
        }
    }

    /// Appends the source line of a place, and the calls at which it was inlined.
    fn source(
        &mut self,
        index: usize,
        place: &AnnotatedAddress,
        before: Option<&AnnotatedAddress>,
    ) {
        let Some(frame) = place.frames.first() else {
            // A fact says so where the function has no source at all.
            if self.annotation.lines.len() > 1 {
                self.begin(index, " ");
                let style = self.style;
                style.paint(Emphasis::Source, &mut self.text, |out| {
                    out.push_str("no source line");
                });
                self.text.push('\n');
            }
            return;
        };
        let inlined = place.frames.len() > 1;
        let callers_changed =
            before.is_none_or(|before| !same_chain(&before.frames, &place.frames));
        if inlined && callers_changed {
            let chain = match self.style.width {
                Some(width) => folded_chain(&place.frames, width),
                None => chain(&place.frames),
            };
            self.begin(index, " ");
            let style = self.style;
            style.paint(Emphasis::Heading, &mut self.text, |out| {
                let _ = write!(out, "({chain})");
            });
            self.text.push('\n');
        }
        let at = self.lines.get(&(frame.file.as_ref(), frame.line)).copied();
        let mark = if at.is_some() && at == self.hottest_line {
            "*"
        } else {
            " "
        };
        self.begin(index, mark);
        let mut text = match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("{}:{line}", escape(base_name(file))),
            (Some(file), None) => escape(base_name(file)),
            _ => "no source line".to_owned(),
        };
        if let Some(line) = at.map(|at| &self.annotation.lines[at]) {
            let shares = self.annotation.events.iter().zip(&line.innermost);
            let shares: Vec<String> = shares
                .filter(|(_, count)| count.count.samples > 0)
                .filter_map(|(event, count)| event.percent(*count, event.function))
                .map(|percent| format!("{percent:.2}%"))
                .collect();
            if !shares.is_empty() {
                let _ = write!(text, " ({})", shares.join(", "));
            }
        }
        let source = frame
            .file
            .as_ref()
            .and_then(|file| self.annotation.sources.get(file));
        if let (Some(source), Some(line)) = (source, frame.line)
            && let Some(line) = source.line(line)
        {
            text.push_str("  ");
            push_source(&mut text, line);
        }
        let look = if mark == "*" {
            Emphasis::Hottest
        } else {
            Emphasis::Source
        };
        let style = self.style;
        style.paint(look, &mut self.text, |out| out.push_str(&text));
        self.text.push('\n');
    }
}

/// Returns which function was inlined where, from the innermost one outwards.
fn chain(frames: &[AddressFrame]) -> String {
    let mut chain = String::new();
    for (inner, outer) in frames.iter().zip(frames.iter().skip(1)) {
        let name = inner.function.as_deref().unwrap_or("[unknown]");
        let separator = if chain.is_empty() { "" } else { ", " };
        let _ = write!(chain, "{separator}{} inlined", escape(name));
        if let (Some(file), Some(line)) = (&outer.file, outer.line) {
            let _ = write!(chain, " at {}:{line}", escape(base_name(file)));
        }
    }
    chain
}

/// Returns the innermost function of a chain of inlined calls, and the line of the function itself that led to it.
/// Functions in between are counted.
fn folded_chain(frames: &[AddressFrame], width: usize) -> String {
    let name = frames.first().and_then(|frame| frame.function.as_deref());
    let name = escape(name.unwrap_or("[unknown]"));
    let mut chain = format!("{} inlined", fit_name(&name, (width / 3).max(16)));
    if let Some(own) = frames.last()
        && let (Some(file), Some(line)) = (&own.file, own.line)
    {
        let _ = write!(chain, " at {}:{line}", escape(base_name(file)));
    }
    if frames.len() > 2 {
        let _ = write!(chain, " through {} more", frames.len() - 2);
    }
    chain
}
