//! Differences between two traces.

use super::super::render::shows_ticks;
use super::fields::{self, Average, Field, Key};
use super::{
    Arguments, Output, Row, duration, report_facts, rows, signed_duration, sums, title, usage,
};
use crate::commands::trace::fields::parse;
use crate::exit::Exit;
use crate::screen::{Spelling, stdout};
use dioptra_tables::{Cell, Column, ColumnKind, Facts, Format, Table, Unit, escape};
use dioptra_tracedata::Trace;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// The form in which differences are shown.
#[derive(Clone, Copy)]
struct Policy {
    /// Whether rows are sorted by the size of the difference, whatever its sign.
    absolute: bool,
    percent: bool,
    full: bool,
}

impl Policy {
    fn parse(words: &[String]) -> anyhow::Result<Policy> {
        let mut policy = Policy {
            absolute: true,
            percent: false,
            full: false,
        };
        for word in words {
            match word.as_str() {
                "abs" => policy.absolute = true,
                "no-abs" => policy.absolute = false,
                "percent" => policy.percent = true,
                "no-percent" => policy.percent = false,
                "full" => policy.full = true,
                "compact" => policy.full = false,
                word => {
                    return Err(usage(format_args!(
                        "--diff-policy: there is no policy `{word}`; use abs, no-abs, percent, no-percent, compact or full"
                    )));
                }
            }
        }
        Ok(policy)
    }
}

/// A function's number here and there; `None` where it has none. Ratios are in hundredths of a percent.
type Values = [Option<u64>; 2];

fn difference([here, there]: Values) -> i128 {
    i128::from(there.unwrap_or(0)) - i128::from(here.unwrap_or(0))
}

/// Returns the difference in percent of the number here.
fn percent(values: Values) -> Option<f64> {
    let here = values[0].filter(|here| *here > 0)?;
    Some(100.0 * difference(values) as f64 / here as f64)
}

/// The rows of a function here and there; functions of one name share a pair.
#[derive(Default)]
struct Pair([Option<Row>; 2]);

impl Pair {
    fn values(&self, field: Field) -> Values {
        let value = |row: &Option<Row>| match field.cell(row.as_ref()?) {
            Cell::Count(count) => Some(count),
            Cell::Real { value, .. } if field.is_ratio() => Some((value * 100.0).round() as u64),
            Cell::Real { value, .. } => Some(value.round() as u64),
            _ => None,
        };
        [value(&self.0[0]), value(&self.0[1])]
    }

    fn source(&self) -> Option<&str> {
        self.0
            .iter()
            .flatten()
            .find_map(|row| row.source.as_deref())
    }
}

/// Returns whether a field has differences. Sets of CPUs have none, and neither have moments of two recordings.
fn has_difference(field: Field) -> bool {
    !matches!(field, Field::CpuMask | Field::CpuList) && !field.is_moment()
}

/// Returns the fields that `text` asks for, among fields that have differences.
fn difference_fields(text: Option<&str>, average: Average) -> anyhow::Result<Vec<Field>> {
    let known = fields::FIELDS
        .iter()
        .map(|(name, field, ..)| (*name, *field));
    let known = known.filter(|(_, field)| has_difference(*field));
    parse(text, &Field::usual(average), known)
}

pub fn run(
    arguments: &Arguments,
    other: &Path,
    format: Format,
    as_page: bool,
) -> anyhow::Result<Exit> {
    let policy = Policy::parse(&arguments.diff_policy)?;
    let average = Average::of(arguments.avg_total, arguments.avg_self);
    let fields = difference_fields(arguments.output_fields.as_deref(), average)?;
    let keys = fields::keys(arguments.sort.as_deref(), average).map_err(usage)?;
    let is_key = |key: &Key| !matches!(key, Key::Field(field) if !has_difference(*field));
    if !keys.iter().all(is_key) {
        return Err(usage(
            "-s: sets of CPUs and moments have no differences to sort by",
        ));
    }
    let here = arguments.data.open()?;
    let there = Trace::open(other)?;
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut all = Facts::new();
    for (side, trace) in [&here, &there].into_iter().enumerate() {
        let names = arguments.naming.names(trace)?;
        let view = arguments.selected.view(&names)?;
        let sums = sums(&view, &fields, &keys);
        let rows = rows(&sums, &names, &view, arguments.srcline);
        all.append(report_facts(&view, &names, &sums, &rows));
        for row in rows {
            match &mut pairs.entry(row.name.clone()).or_default().0[side] {
                Some(known) => known.merge(&row),
                none => *none = Some(row),
            }
        }
    }
    let mut pairs: Vec<(String, Pair)> = pairs.into_iter().collect();
    let order = |key: Key, a: &(String, Pair), b: &(String, Pair)| -> Ordering {
        let Key::Field(field) = key else {
            return a.0.cmp(&b.0);
        };
        let (a, b) = (a.1.values(field), b.1.values(field));
        match (arguments.sort_column, policy.percent, policy.absolute) {
            (side @ (0 | 1), ..) => b[side as usize].cmp(&a[side as usize]),
            (_, true, absolute) => {
                let key = |values| {
                    let percent = percent(values).unwrap_or(0.0);
                    if absolute { percent.abs() } else { percent }
                };
                key(b).total_cmp(&key(a))
            }
            (_, false, true) => difference(b).abs().cmp(&difference(a).abs()),
            (_, false, false) => difference(b).cmp(&difference(a)),
        }
    };
    pairs.sort_by(|a, b| {
        let by = keys.iter().map(|key| order(*key, a, b));
        by.fold(Ordering::Equal, Ordering::then)
            .then_with(|| a.0.cmp(&b.0))
    });
    if format == Format::Text {
        let from = |trace: &Trace| {
            let command = escape(&trace.info().command.join(" "));
            format!("{}\t(from {command})", trace.folder().display())
        };
        let mut out = format!(
            "#\n# dioptra diff\n#  [0] base: {}\n#  [1] diff: {}\n#\n",
            from(&here),
            from(&there)
        );
        text(&pairs, &fields, policy, arguments.srcline, &mut out);
        let mut page = Output::page(&title(&here), as_page)?;
        page.text.extend_from_slice(out.as_bytes());
        page.finish()?;
        all.write_text(&mut io::stderr().lock())?;
        return Ok(Exit::Done);
    }
    let mut table = table(&pairs, &fields, arguments.srcline)?;
    table.facts = all;
    format.write(&mut table, None, stdout(Spelling::Text))?;
    if !format.shows_facts() {
        table.facts.write_text(&mut io::stderr().lock())?;
    }
    Ok(Exit::Done)
}

fn text(
    pairs: &[(String, Pair)],
    fields: &[Field],
    policy: Policy,
    srcline: bool,
    out: &mut String,
) {
    // The columns of a difference. Percentages take fewer, but only beside the numbers.
    let last = if policy.percent && policy.full { 8 } else { 11 };
    let width = if policy.full { 24 + last } else { 11 };
    if !fields.is_empty() {
        for field in fields {
            let heading = match policy.full {
                true => format!("{} (diff)", field.heading()),
                false => field.heading().to_owned(),
            };
            out.push_str(&format!("   {heading:>width$}"));
        }
        out.push_str("   Function");
        out.push_str(if srcline { " [Source]\n" } else { "\n" });
        for _ in fields {
            out.push_str(&format!("   {}", "=".repeat(width)));
        }
        out.push_str("   ====================\n");
    }
    for (name, pair) in pairs {
        for field in fields {
            let values = pair.values(*field);
            let by = difference(values);
            let number = |value: u64| match *field {
                field if field.is_time() => duration(value),
                field if field.is_ratio() => format!("{:.2}%", value as f64 / 100.0),
                _ => value.to_string(),
            };
            let value = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), number);
            let difference = match *field {
                field if policy.percent && field.is_time() => match percent(values) {
                    Some(percent) => format!("{percent:+.2}%"),
                    None => "N/A".to_owned(),
                },
                field if field.is_time() => signed_duration(by),
                field if field.is_ratio() => format!("{:+.2}%", by as f64 / 100.0),
                _ => format!("{by:+}"),
            };
            if policy.full {
                let [here, there] = values;
                out.push_str(&format!("   {:>10}  {:>10}  ", value(here), value(there)));
                out.push_str(&format!("{difference:>last$}"));
            } else {
                out.push_str(&format!("   {difference:>width$}"));
            }
        }
        out.push_str(&format!("   {}", escape(name)));
        if let Some(source) = pair.source() {
            out.push_str(&format!(" [{source}]"));
        }
        out.push('\n');
    }
}

fn table(pairs: &[(String, Pair)], fields: &[Field], srcline: bool) -> anyhow::Result<Table> {
    let name = |id, heading| Column::new(id, heading, ColumnKind::Name, Unit::None);
    let mut columns = vec![name("function", "Function")];
    for field in fields {
        let base = field.column(shows_ticks());
        let column = |suffix: &str| {
            let (id, heading) = (
                format!("{}_{suffix}", base.id),
                format!("{} {suffix}", base.name),
            );
            Column::new(id, heading, base.kind, base.unit.clone())
        };
        columns.extend([column("base"), column("diff"), column("delta")]);
    }
    columns.extend(srcline.then(|| name("source", "Source")));
    let mut table = Table::new(columns);
    for (name, pair) in pairs {
        let mut cells = vec![Cell::name(name.as_str())];
        for field in fields {
            let values = pair.values(*field);
            let cell = |value: u64| match field.is_ratio() {
                true => Cell::real(value as f64 / 100.0),
                false => Cell::Count(value),
            };
            cells.extend(values.map(|value| value.map_or(Cell::Empty, cell)));
            cells.push(match field.is_ratio() {
                true => Cell::real(difference(values) as f64 / 100.0),
                false => Cell::Difference {
                    minuend: values[1].unwrap_or(0),
                    subtrahend: values[0].unwrap_or(0),
                },
            });
        }
        if srcline {
            cells.push(pair.source().map_or(Cell::Empty, Cell::name));
        }
        table.push(None, cells)?;
    }
    Ok(table)
}
