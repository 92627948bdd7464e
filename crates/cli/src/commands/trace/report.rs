//! `dioptra trace report`: the number of calls and the times of each function.

mod cpus;
mod diff;
pub mod fields;
mod tasks;

use super::render::{Output, Sources, duration, push_duration, push_number, title};
use super::selected::{Data, Naming, Selected, facts};
use super::summary::number_of;
use super::usage;
use crate::exit::Exit;
use crate::output::say;
use crate::screen::{Spelling, stdout};
use dioptra_calls::{
    FunctionNames, FunctionTimes, Statistics, View, statistics, statistics_with_cpus,
};
use dioptra_filters::SampleKind;
use dioptra_tables::{
    Cell, CellNote, Column, ColumnKind, Facts, Format, Mark, Severity, Table, Unit, escape,
};
use fields::{Field, Key};
use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

/// Arguments of `dioptra trace report`.
#[derive(clap::Args)]
#[command(after_help = "\
Fields: total, total-avg, total-min, total-max, total-stdv (relative, in percent), total-min-ts, total-max-ts (when the extreme call began), the same of self, call, size, cpu-count, cpu-mask, cpu-list (the CPUs on which calls of it ran, as far as scheduling was recorded); `all` or `none`. Keys to sort by are the same and func.

A function's total time counts calls within calls of itself once; its self time is that outside of recorded calls below it, shown or not. Averages and extremes are those of single calls.

Examples:
  dioptra trace report -s self
  dioptra trace report --avg-total -s max
  dioptra trace report -F parse@sample=1/10        estimates, with their errors
  dioptra trace report --diff other.trace --format csv")]
pub struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    pub selected: Selected,
    #[command(flatten)]
    pub naming: Naming,
    /// Columns of each function [default: total,self,call]
    #[arg(short = 'f', long, value_name = "FIELDS")]
    output_fields: Option<String>,
    /// Sort by these keys, the largest first [default: total; with --avg-total or --avg-self, avg]
    #[arg(short = 's', long, value_name = "KEYS")]
    sort: Option<String>,
    /// Show average, shortest and longest total times
    #[arg(long)]
    avg_total: bool,
    /// Show average, shortest and longest self times
    #[arg(long, conflicts_with = "avg_total")]
    avg_self: bool,
    /// A row for each thread instead of each function
    #[arg(long, conflicts_with = "diff")]
    task: bool,
    /// Compare with another trace: what is there more than in this one
    #[arg(long, value_name = "DIR")]
    diff: Option<PathBuf>,
    /// Form of differences: [no-]abs, [no-]percent, compact or full
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    diff_policy: Vec<String>,
    /// With --diff: sort by this trace (0), the other one (1) or the difference (2)
    #[arg(long, value_name = "0..2", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=2))]
    sort_column: u8,
    /// Add up functions whose shown names are equal, such as instances of a template, as uftrace does
    #[arg(long)]
    fold: bool,
    /// Show where functions are written
    #[arg(long)]
    srcline: bool,
    /// Output format
    #[arg(long, value_name = "text|csv|json|html", default_value = "text")]
    format: String,
}

/// A row of the table: a function, or several of one name.
pub struct Row {
    pub name: String,
    size: Option<u64>,
    source: Option<String>,
    pub times: FunctionTimes,
    /// The way in which executions were sampled, if they were.
    sampling: Option<SampleKind>,
}

impl Row {
    /// Adds the numbers of another function of the same name.
    fn merge(&mut self, other: &Row) {
        self.times.merge(&other.times);
        self.size = self.size.max(other.size);
    }
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let averages = arguments.avg_total || arguments.avg_self;
    if averages && (arguments.task || arguments.output_fields.is_some()) {
        let instead = if arguments.task { "--task" } else { "-f" };
        say!("--avg-total and --avg-self choose no fields beside {instead}");
    }
    let format: Format = match arguments.format.as_str() {
        "normal" | "html" => Format::Text,
        word => word.parse().map_err(|_| {
            usage(format_args!(
                "--format: `{word}` is none of text, csv, json and html"
            ))
        })?,
    };
    let as_page = arguments.format == "html";
    if arguments.task {
        return tasks::run(&arguments, format, as_page);
    }
    if let Some(other) = &arguments.diff {
        return diff::run(&arguments, other, format, as_page);
    }
    let which = fields::Average::of(arguments.avg_total, arguments.avg_self);
    let fields = Field::parse(arguments.output_fields.as_deref(), which)?;
    let keys = Key::parse(arguments.sort.as_deref(), which).map_err(usage)?;
    let trace = arguments.data.open()?;
    let names = arguments.naming.names(&trace)?;
    let view = arguments.selected.view(&names)?;
    let sums = sums(&view, &fields, &keys);
    let mut rows = rows(&sums, &names, &view, arguments.srcline);
    match arguments.fold {
        true => rows = folded(rows),
        false => tell_apart(&mut rows, &names),
    }
    fields::sort(&mut rows, &keys);
    let facts = report_facts(&view, &names, &sums, &rows);
    match format {
        Format::Text => {
            let mut out = Output::page(&title(&trace), as_page)?;
            text(&rows, &fields, arguments.srcline, &mut out.text);
            out.finish()?;
            facts.write_text(&mut io::stderr().lock())?;
        }
        format => {
            let mut table = table(&rows, &fields, arguments.srcline)?;
            table.facts = facts;
            format.write(&mut table, None, stdout(Spelling::Text))?;
            if !format.shows_facts() {
                table.facts.write_text(&mut io::stderr().lock())?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Returns the sums of a view; CPUs are included if fields or keys need them.
fn sums(view: &View<'_>, fields: &[Field], keys: &[Key]) -> Statistics {
    let with_cpus =
        fields.iter().any(|field| field.is_of_cpus()) || keys.iter().any(|key| key.is_of_cpus());
    if !with_cpus {
        return statistics(view);
    }
    if view.trace().switch_count() == 0 {
        say!(
            "on which CPUs functions ran is not known: no context switches were recorded; record without --no-sched and --no-event"
        );
    }
    statistics_with_cpus(view)
}

/// Makes a row for each function. Functions of one name, such as local copies of an inline function, stay apart by
/// their ids. Library calls of several modules share a row.
pub fn rows(
    sums: &Statistics,
    names: &FunctionNames<'_>,
    view: &View<'_>,
    srcline: bool,
) -> Vec<Row> {
    let mut sources = srcline.then(|| Sources::new(names));
    let rows = sums.functions.iter().map(|times| {
        let id = times.function;
        Row {
            name: names.get(id).to_owned(),
            size: names.size(id),
            source: sources
                .as_mut()
                .and_then(|sources| sources.get(id))
                .map(str::to_owned),
            times: times.clone(),
            sampling: view.sampling(id),
        }
    });
    rows.collect()
}

/// Merges rows of equal names.
fn folded(rows: Vec<Row>) -> Vec<Row> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut folded: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        match places
            .get(&row.name)
            .and_then(|place| folded.get_mut(*place))
        {
            Some(first) => first.merge(&row),
            None => {
                places.insert(row.name.clone(), folded.len());
                folded.push(row);
            }
        }
    }
    folded
}

/// Gives functions whose shown names are equal longer names: with template arguments, in full, or with their modules.
pub fn tell_apart(rows: &mut [Row], names: &FunctionNames<'_>) {
    for detail in 1..4 {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for row in rows.iter() {
            *counts.entry(row.name.clone()).or_default() += 1;
        }
        for row in rows.iter_mut().filter(|row| counts[&row.name] > 1) {
            let id = row.times.function;
            let longer = names.detailed(id).into_iter().nth(detail);
            row.name = match longer {
                Some(name) => name,
                None if names.module(id).is_empty() => continue,
                None => format!("{}@{}", row.name, names.module(id)),
            };
        }
    }
}

/// Returns the sentence about calls that are open at the end of the shown range.
pub fn open_calls(view: &View<'_>, open: u64) -> String {
    let calls = number_of(open, "call");
    match view.range().stop {
        Some(_) => {
            format!("{calls} had not ended at the end of the range: their durations reach to it")
        }
        None => format!("{calls} had not ended: their durations reach to the end"),
    }
}

/// Returns the diagnostics of these rows.
pub fn report_facts(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    sums: &Statistics,
    rows: &[Row],
) -> Facts {
    let mut facts = facts(view.trace(), names, &sums.losses);
    let open: u64 = sums.functions.iter().map(|times| times.open).sum();
    if open > 0 {
        facts.add(Severity::Info, "open_calls", open_calls(view, open), open);
    }
    let range = view.range();
    if rows.is_empty() && (range.start.is_some() || range.stop.is_some()) {
        let text = "the range of -r has no calls: a plain number is a time stamp of the machine's clock; 5s~10s is 5 to 10 s after the start";
        facts.add(Severity::Info, "empty_range", text, true);
    }
    let sampled = rows.iter().filter(|row| estimates(row).is_some()).count();
    if sampled > 0 {
        facts.add(
            Severity::Info,
            "sampled_functions",
            format!("estimates, marked ~, are scaled from sampled calls, in {}; an error is one standard error", number_of(sampled as u64, "row")),
            sampled,
        );
    }
    let skewed = rows
        .iter()
        .filter(|row| row.sampling == Some(SampleKind::Rate))
        .count();
    if skewed > 0 {
        facts.add(
            Severity::Fallback,
            "skewed_samples",
            format!("{skewed} functions are sampled by rate: the shown calls do not stand for the others, so what is estimated of their times is skewed"),
            skewed,
        );
    }
    let slow = rows.iter().filter(|row| is_slowest(row)).count();
    if slow > 0 {
        facts.add(
            Severity::Fallback,
            "slowest_calls",
            format!("{slow} functions are shown with their slowest calls only (sample=pNN): neither their numbers nor those of what they call stand for all calls"),
            slow,
        );
    }
    let unseen = [
        ("unrecorded_functions", view.counted(), "none was recorded"),
        (
            "unchosen_functions",
            view.counted_by_rules(),
            "none was chosen",
        ),
    ];
    for (id, counted, why) in unseen {
        unseen_fact(id, &counted, why, names, &mut facts);
    }
    facts
}

/// Adds the diagnostic about functions of which no execution was chosen. `counted` has all executions and the chosen
/// ones.
fn unseen_fact(
    id: &str,
    counted: &BTreeMap<u32, (u64, u64)>,
    why: &str,
    names: &FunctionNames<'_>,
    facts: &mut Facts,
) {
    let unseen = counted
        .iter()
        .filter(|(_, (seen, shown))| *seen > 0 && *shown == 0);
    let unseen: Vec<_> = unseen.collect();
    if unseen.is_empty() {
        return;
    }
    let calls: u64 = unseen.iter().map(|(_, (seen, _))| *seen).sum();
    let first = unseen.iter().take(3).map(|(id, _)| names.get(**id));
    let first: Vec<&str> = first.collect();
    let more = if unseen.len() > 3 { ", …" } else { "" };
    facts.add(
        Severity::Info,
        id,
        format!(
            "{calls} calls of {} sampled functions are not in the table, since {why}: {}{more}",
            unseen.len(),
            first.join(", ")
        ),
        calls,
    );
}

/// Returns whether a row's numbers come only from calls that were slower than others.
fn is_slowest(row: &Row) -> bool {
    row.sampling == Some(SampleKind::Tail)
}

/// Returns a row's sums as they are shown: total, self, calls, each with its standard error if it is known. Returns
/// `None` for a row that is not sampled, and for a row of slow calls alone, which say nothing about other calls.
fn estimates(row: &Row) -> Option<[(f64, Option<f64>); 3]> {
    let sampled = row.times.sampled.as_ref()?;
    if is_slowest(row) && sampled.calls.value == row.times.calls as f64 {
        return None;
    }
    let parts = [sampled.total, sampled.self_time, sampled.calls];
    Some(parts.map(|estimate| (estimate.value, estimate.standard_error)))
}

fn heading(fields: &[Field], srcline: bool, out: &mut Vec<u8>) {
    for field in fields {
        let width = field.width();
        out.extend_from_slice(format!("  {:>width$}", field.heading()).as_bytes());
    }
    let source = if srcline { " [Source]" } else { "" };
    out.extend_from_slice(format!("  Function{source}\n").as_bytes());
    for field in fields {
        out.extend_from_slice(b"  ");
        out.resize(out.len() + field.width(), b'=');
    }
    out.extend_from_slice(b"  ====================\n");
}

fn text(rows: &[Row], fields: &[Field], srcline: bool, out: &mut Vec<u8>) {
    // Scripts ask for names alone, so there is no heading then.
    if !fields.is_empty() {
        heading(fields, srcline, out);
    }
    for row in rows {
        push_fields(row, fields, out);
        push_name(row, out);
        if let Some(source) = &row.source {
            out.extend_from_slice(format!(" [{source}]").as_bytes());
        }
        out.push(b'\n');
    }
}

/// Adds a row's fields.
pub fn push_fields(row: &Row, fields: &[Field], out: &mut Vec<u8>) {
    for field in fields {
        out.extend_from_slice(b"  ");
        field.push_text(row, out);
    }
}

/// Adds a row's function, with the errors of estimates.
pub fn push_name(row: &Row, out: &mut Vec<u8>) {
    out.extend_from_slice(b"  ");
    out.extend_from_slice(escape(&row.name).as_bytes());
    if let Some([total, _, calls]) = estimates(row) {
        let error = |(value, error): (f64, Option<f64>)| match error {
            Some(error) if value > 0.0 => format!("±{:.1}%", 100.0 * error / value),
            Some(_) => "±0".to_owned(),
            None => "±?".to_owned(),
        };
        let note = format!(
            "  ~ {} calls shown; total {}, calls {}",
            row.times.calls,
            error(total),
            error(calls)
        );
        out.extend_from_slice(note.as_bytes());
    } else if is_slowest(row) {
        out.extend_from_slice(b"  the slowest calls only");
    }
}

fn table(rows: &[Row], fields: &[Field], srcline: bool) -> anyhow::Result<Table> {
    let mut columns = vec![
        Column::new("function", "Function", ColumnKind::Name, Unit::None),
        Column::new("function_id", "Id", ColumnKind::Name, Unit::None).for_programs(),
    ];
    columns.extend(fields.iter().map(|field| field.column()));
    if srcline {
        columns.push(Column::new(
            "source",
            "Source",
            ColumnKind::Name,
            Unit::None,
        ));
    }
    let mut table = Table::new(columns);
    for row in rows {
        let mut cells = vec![
            Cell::name(row.name.as_str()),
            Cell::Count(u64::from(row.times.function)),
        ];
        let mut notes = Vec::new();
        for field in fields {
            let cell = field.cell(row);
            if estimates(row).is_some() && field.is_sum() {
                let few = row.times.calls < 2;
                notes.push(CellNote {
                    column: cells.len(),
                    standard_error: field.standard_error(row),
                    mark: few.then_some(Mark::FewSamples),
                });
            }
            cells.push(cell);
        }
        if srcline {
            cells.push(row.source.as_deref().map_or(Cell::Empty, Cell::name));
        }
        table.push_noted(None, cells, notes)?;
    }
    Ok(table)
}

/// Formats a duration with a sign, in ten columns or more.
fn signed_duration(nanoseconds: i128) -> String {
    let sign = if nanoseconds < 0 { '-' } else { '+' };
    let magnitude = u64::try_from(nanoseconds.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", duration(magnitude))
}
