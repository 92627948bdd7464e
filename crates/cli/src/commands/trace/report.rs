//! `dioptra trace report`: the number of calls and the times of each function.

mod diff;
pub mod fields;
mod tasks;

use super::render::{Output, Sources, duration, push_duration, push_number, title};
use super::selected::{Data, Naming, Selected, facts, spelled};
use super::usage;
use crate::exit::Exit;
use crate::output::say;
use crate::screen::{Spelling, stdout};
use dioptra_calls::{FunctionNames, Statistics, View, statistics_with};
use dioptra_tables::{Facts, Format, Severity, escape};
use dioptra_trace_report::{
    Row, counts_ticks, estimates, folded, function_facts, function_rows, function_table,
    is_slowest, needed_statistics, tell_apart,
};
use fields::{Field, Key};
use std::io;
use std::path::PathBuf;

/// Arguments of `dioptra trace report`.
#[derive(clap::Args)]
#[command(after_help = "\
Fields: total, total-avg, total-min, total-max, total-stdv (relative, in percent), total-p50, total-p90, total-p99 (percentiles), total-min-ts, total-max-ts (when the extreme call began), the same of self, call, size, cpu-count, cpu-mask, cpu-list (the CPUs on which calls of it ran, as far as scheduling was recorded); `all` or `none`. Keys to sort by are the same and func.

A function's total time counts calls within calls of itself once; its self time is that outside of recorded calls below it, shown or not. Averages, extremes and percentiles are those of single calls; of more than 64 calls a percentile is given within 1.6 percent.

Examples:
  dioptra trace report -s self
  dioptra trace report --avg-total -s max
  dioptra trace report -f total,call,total-p50,total-p99 -s total-p99
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
    let fields = fields::fields(arguments.output_fields.as_deref(), which)?;
    let keys = fields::keys(arguments.sort.as_deref(), which).map_err(usage)?;
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
            let ticks = counts_ticks(&trace);
            let mut table = function_table(&rows, &fields, arguments.srcline, ticks)?;
            table.facts = facts;
            format.write(&mut table, None, stdout(Spelling::Text))?;
            if !format.shows_facts() {
                table.facts.write_text(&mut io::stderr().lock())?;
            }
        }
    }
    Ok(Exit::Done)
}

/// Returns the sums of a view, with the parts that fields or keys need.
fn sums(view: &View<'_>, fields: &[Field], keys: &[Key]) -> Statistics {
    let needed = needed_statistics(fields, keys);
    if needed.cpus && view.trace().switch_count() == 0 {
        say!(
            "on which CPUs functions ran is not known: no context switches were recorded; record without --no-sched and --no-event"
        );
    }
    statistics_with(view, needed)
}

/// Makes a row for each function, with the places in the source if `srcline` asks for them.
pub fn rows(
    sums: &Statistics,
    names: &FunctionNames<'_>,
    view: &View<'_>,
    srcline: bool,
) -> Vec<Row> {
    let mut rows = function_rows(sums, names, view);
    if srcline {
        let mut sources = Sources::new(names);
        for row in &mut rows {
            row.source = sources.get(row.times.function).map(str::to_owned);
        }
    }
    rows
}

/// Returns the diagnostics of these rows, with their remedies.
pub fn report_facts(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    sums: &Statistics,
    rows: &[Row],
) -> Facts {
    let mut facts = function_facts(view, names, sums, rows);
    let range = view.range();
    if rows.is_empty() && (range.start.is_some() || range.stop.is_some()) {
        let text = "the range of -r has no calls: a plain number is a time stamp of the machine's clock; 5s~10s is 5 to 10 s after the start";
        facts.add(Severity::Info, "empty_range", text, true);
    }
    spelled(facts)
}

fn heading(fields: &[Field], srcline: bool, out: &mut Vec<u8>) {
    for field in fields {
        let width = fields::width(*field);
        out.extend_from_slice(format!("  {:>width$}", field.heading()).as_bytes());
    }
    let source = if srcline { " [Source]" } else { "" };
    out.extend_from_slice(format!("  Function{source}\n").as_bytes());
    for field in fields {
        out.extend_from_slice(b"  ");
        out.resize(out.len() + fields::width(*field), b'=');
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
        fields::push_text(*field, row, out);
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

/// Formats a duration with a sign, in ten columns or more.
fn signed_duration(nanoseconds: i128) -> String {
    let sign = if nanoseconds < 0 { '-' } else { '+' };
    let magnitude = u64::try_from(nanoseconds.unsigned_abs()).unwrap_or(u64::MAX);
    format!("{sign}{}", duration(magnitude))
}
