//! The tables of a snapshot: rows with the shares of now and of all, trees of callers, annotated functions.

use super::Rows;
use super::follow::Snapshot;
use super::status::Status;
use crate::remedies;
use anyhow::Context;
use dioptra_instructions::Syntax;
use dioptra_profile::{
    DebugInfoWanted, LiveNames, Names, ProcessId, Profile, Selection, ThreadId, TreeDirection,
    TreeLimits,
};
use dioptra_report::{
    AnnotateOptions, AnnotationStyle, Drawing, Input, ReportOptions, RowKey, ShownNumbers,
    SourceFiles, TableEvent, TreeOptions, annotate, function_with_id, profile_facts,
    report_with_keys, tree, write_annotation,
};
use dioptra_symbols::{SymbolOptions, Symbolizer};
use dioptra_tables::{Cell, Direction, Severity, Table, ViewOptions};
use std::fmt;
use std::time::Duration;

/// The maker of tables, which keeps the names that it has found.
pub struct Tables {
    symbols: SymbolOptions,
    sources: SourceFiles,
    span: Duration,
    /// The names of the places so far, with the number of restarts that they belong to.
    live: Option<(LiveNames, u64)>,
}

/// A snapshot with its names.
pub struct Named {
    pub snapshot: Snapshot,
    /// The counts of the span that ends at the snapshot. Ids are those of the whole profile.
    pub now: Profile,
    pub names: Names,
}

/// The samples that a table shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All samples.
    #[default]
    Everything,
    /// The samples of a process.
    Process(ProcessId),
    /// The samples of a thread.
    Thread(ThreadId),
    /// The samples in a module, by its number.
    Module(u32),
}

/// The callers that a tree shows.
#[derive(Clone, Copy, Debug)]
pub struct CallersOf {
    /// Whether samples of now count alone.
    pub now: bool,
    /// Whether inlined functions stand in the tree.
    pub inlined: bool,
}

/// The options of a table of rows.
pub struct RowOptions<'a> {
    pub rows: Rows,
    pub part: &'a Part,
    /// The events, as indices of [`Profile::events`].
    pub events: &'a [usize],
    /// The text that the names of rows must hold.
    pub filter: &'a str,
}

impl Tables {
    pub fn new(symbols: SymbolOptions, sources: SourceFiles, span: Duration) -> Tables {
        Tables {
            symbols,
            sources,
            span,
            live: None,
        }
    }

    /// Names the places of a snapshot. Only new places are looked up.
    pub fn name(&mut self, snapshot: Snapshot) -> anyhow::Result<Named> {
        let profile = &snapshot.profile;
        let fits = |live: &(LiveNames, u64)| live.1 == snapshot.restarts;
        if !self.live.as_ref().is_some_and(fits) {
            let names = LiveNames::new(profile, self.symbols.clone());
            self.live = Some((names, snapshot.restarts));
        }
        let (live, _) = self.live.as_mut().context("there are names")?;
        let names = live.update(profile);
        let now = profile.select(&Selection {
            time: (Some(snapshot.now_from), None),
            ..Selection::default()
        })?;
        Ok(Named {
            snapshot,
            now,
            names,
        })
    }

    /// Returns the table of rows, the largest share of now first, with the key of each row by its id.
    pub fn rows(
        &self,
        named: &Named,
        options: &RowOptions<'_>,
        status: &Status,
    ) -> anyhow::Result<(Table, Vec<RowKey>)> {
        let (now, all) = named.parts(options.part)?;
        let inputs = [named.input(&now, "now"), named.input(&all, "all")];
        let several = options.events.len() > 1;
        let mut events = Vec::new();
        for index in options.events {
            let name = all.events().get(*index).map_or("", |event| event.name());
            let titled = |title: &str| match several {
                true => format!("{title}: {name}"),
                false => title.to_owned(),
            };
            events.push(TableEvent {
                name: titled("now"),
                of: vec![Some(*index), None],
            });
            events.push(TableEvent {
                name: titled("all"),
                of: vec![None, Some(*index)],
            });
        }
        let by = [options.rows.dimension()];
        let report = ReportOptions {
            by: &by,
            events: &events,
            shown: ShownNumbers {
                weight: false,
                scaled: false,
                ..ShownNumbers::default()
            },
            ..ReportOptions::default()
        };
        let (mut table, keys) = report_with_keys(&inputs, &report)?;
        table.facts = profile_facts(&all, &named.names, options.events);
        self.add_facts(named, status, &mut table);
        remedies::spell(&mut table.facts);
        let table = filtered(table, options.filter)?;
        Ok((table, keys))
    }

    /// Adds the facts about the view itself: its span, rate, losses and cost.
    fn add_facts(&self, named: &Named, status: &Status, table: &mut Table) {
        let snapshot = &named.snapshot;
        let span = self.span.min(snapshot.age).as_secs_f64();
        let age = snapshot.age.as_secs_f64();
        table.facts.add(
            Severity::Info,
            "top_span_seconds",
            format!("now: the last {span:.1} s; all: the {age:.1} s since the first sample"),
            span,
        );
        table.facts.add(
            Severity::Info,
            "top_samples_per_second",
            format!("{:.0} samples a second", status.samples_per_second),
            status.samples_per_second,
        );
        table.facts.add(
            Severity::Info,
            "top_own_cpu_percent",
            format!("top itself takes {:.1} % of a CPU", status.own_cpu_percent),
            status.own_cpu_percent,
        );
        if snapshot.restarts > 0 {
            table.facts.add(
                Severity::Loss,
                "top_restarts",
                format!(
                    "the tables were full {} times, and all counts began anew {age:.1} s ago",
                    snapshot.restarts
                ),
                snapshot.restarts,
            );
        }
        if snapshot.forgotten > 0 {
            table.facts.add(
                Severity::Loss,
                "top_samples_missing_now",
                format!(
                    "{} samples are missing in now, where more came than are held; all has them",
                    snapshot.forgotten
                ),
                snapshot.forgotten,
            );
        }
    }

    /// Returns the tree of a function's callers; `None` if it has no samples. Recordings without call chains have none.
    pub fn callers(
        &self,
        named: &Named,
        function: u32,
        event: usize,
        how: CallersOf,
    ) -> anyhow::Result<Option<Table>> {
        let leaves = named.names.functions().len() > function as usize;
        let frames = 0..u32::try_from(named.snapshot.profile.frames().len()).unwrap_or(u32::MAX);
        let leaves: Vec<bool> = match leaves {
            true => frames
                .map(|frame| named.names.of_frame(frame) == function)
                .collect(),
            false => return Ok(None),
        };
        let from = match how.now {
            true => &named.now,
            false => &named.snapshot.profile,
        };
        let selected = from.select(&Selection {
            leaves: Some(leaves),
            ..Selection::default()
        })?;
        let options = TreeOptions {
            direction: TreeDirection::Callers,
            limits: TreeLimits {
                least: 50,
                width: 30,
            },
            events: Some(vec![event]),
        };
        let mut table = match how.inlined {
            false => tree(&selected, &named.names, &options)?,
            true => {
                let mut names = named.names.clone();
                let wanted = DebugInfoWanted {
                    inlined: true,
                    ..DebugInfoWanted::default()
                };
                names.find_debug_info_of_counted(&selected, self.symbols.clone(), wanted);
                tree(&selected, &names, &options)?
            }
        };
        remedies::spell(&mut table.facts);
        Ok(Some(table))
    }

    /// Returns the lines of a function's code with the counts of each, as wide as `width`; `None` for code without a place of its own.
    pub fn code(
        &self,
        named: &Named,
        function: u32,
        of_now: bool,
        (width, drawing): (usize, Drawing),
    ) -> anyhow::Result<Option<Vec<String>>> {
        let profile = match of_now {
            true => &named.now,
            false => &named.snapshot.profile,
        };
        let mut symbols = self.symbols.clone();
        symbols
            .recorded_kernel
            .get_or_insert_with(|| profile.recorded_kernel().clone());
        let demangle = std::mem::replace(&mut symbols.demangle, false);
        let symbolizer = Symbolizer::new(symbols);
        let found = function_with_id(profile, &named.names, &symbolizer, function);
        let Some(found) = found else {
            return Ok(None);
        };
        let options = AnnotateOptions {
            events: Some(profile.sampled_events()),
            syntax: Syntax::AtAndT,
            demangle,
            sources: self.sources.clone(),
        };
        let mut annotation = annotate(profile, &named.names, &symbolizer, &found, &options);
        remedies::spell(&mut annotation.facts);
        let style = AnnotationStyle {
            drawing,
            width: Some(width),
            ..AnnotationStyle::default()
        };
        let mut text = Vec::new();
        write_annotation(&annotation, &style, &mut text)?;
        let text = String::from_utf8_lossy(&text);
        Ok(Some(text.lines().map(str::to_owned).collect()))
    }
}

impl Named {
    /// Returns a part of the counts of now and of all.
    fn parts(&self, part: &Part) -> anyhow::Result<(Profile, Profile)> {
        let whole = &self.snapshot.profile;
        let mut selection = Selection::default();
        match part {
            Part::Everything => return Ok((self.now.clone(), whole.clone())),
            Part::Process(process) => selection.processes = vec![*process],
            Part::Thread(thread) => selection.threads = vec![*thread],
            Part::Module(module) => {
                let frames = whole.frames().iter();
                let within = frames.map(|frame| frame.module == *module);
                selection.leaves = Some(within.collect());
            }
        }
        Ok((self.now.select(&selection)?, whole.select(&selection)?))
    }

    fn input<'a>(&'a self, profile: &'a Profile, label: &'a str) -> Input<'a> {
        Input {
            profile,
            names: &self.names,
            blocks: None,
            shapes: None,
            label,
        }
    }
}

/// Returns the rows of a table whose names hold a text.
fn filtered(table: Table, text: &str) -> anyhow::Result<Table> {
    if text.is_empty() {
        return Ok(table);
    }
    let counts_case = text.chars().any(char::is_uppercase);
    let passes = |row: dioptra_tables::Row<'_>| {
        row.cells().any(|cell| match cell {
            Cell::Name(name) if counts_case => name.contains(text),
            Cell::Name(name) => name.to_lowercase().contains(text),
            _ => false,
        })
    };
    let view = table.view(&ViewOptions {
        passes: Some(&passes),
        ..ViewOptions::default()
    })?;
    Ok(table.of_view(&view))
}

/// The column that `--sort` names is not there.
#[derive(Debug)]
pub struct UnknownColumn {
    wanted: String,
    known: Vec<String>,
}

impl fmt::Display for UnknownColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wanted, known) = (&self.wanted, self.known.join(", "));
        write!(
            f,
            "--sort: there is no column `{wanted}`; there are {known}"
        )
    }
}

impl std::error::Error for UnknownColumn {}

/// Sorts a table by the column with this id.
///
/// # Errors
/// There is no such column.
pub fn sort(table: &mut Table, column: &str) -> anyhow::Result<usize> {
    let index = table.column_index(column).ok_or_else(|| UnknownColumn {
        wanted: column.to_owned(),
        known: table
            .columns
            .iter()
            .map(|column| column.id.clone())
            .collect(),
    })?;
    let direction = match table.columns[index].kind {
        dioptra_tables::ColumnKind::Name => Direction::Ascending,
        _ => Direction::Descending,
    };
    table.sort_by(index, direction)?;
    Ok(index)
}
