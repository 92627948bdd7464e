//! What one trace has more than another.

use super::{Arguments, Output, duration, report_facts, rows, signed_duration, title, usage};
use dioptra_calls::statistics;
use dioptra_report::{Cell, Column, ColumnKind, Facts, Format, Table, Unit, escape};
use dioptra_tracedata::Trace;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// How differences are shown.
#[derive(Clone, Copy)]
struct Policy {
    /// Sort by size, whatever the sign.
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

const MEASURES: [(&str, &str); 3] = [
    ("total", "Total time"),
    ("self", "Self time"),
    ("calls", "Calls"),
];

/// Total, self and calls of a function here and there; none where it was not called.
#[derive(Clone, Copy, Default)]
struct Pair([[Option<u64>; 2]; 3]);

impl Pair {
    fn add(&mut self, side: usize, values: [u64; 3]) {
        for (measure, value) in self.0.iter_mut().zip(values) {
            let known = measure[side].unwrap_or(0);
            measure[side] = Some(known.saturating_add(value));
        }
    }

    fn difference(&self, measure: usize) -> i128 {
        let [here, there] = self.0[measure].map(|value| i128::from(value.unwrap_or(0)));
        there - here
    }

    fn percent(&self, measure: usize) -> Option<f64> {
        let here = self.0[measure][0].filter(|here| *here > 0)?;
        Some(100.0 * self.difference(measure) as f64 / here as f64)
    }
}

pub fn run(
    arguments: &Arguments,
    other: &Path,
    format: Format,
    as_page: bool,
) -> anyhow::Result<ExitCode> {
    let policy = Policy::parse(&arguments.diff_policy)?;
    let measure = match arguments.sort.as_deref() {
        None | Some("total") => 0,
        Some("self") => 1,
        Some("call") => 2,
        Some(key) => {
            return Err(usage(format_args!(
                "-s {key}: differences are sorted by total, self or call"
            )));
        }
    };
    let here = arguments.data.open()?;
    let there = Trace::open(other)?;
    let mut pairs: BTreeMap<String, Pair> = BTreeMap::new();
    let mut all = Facts::new();
    for (side, trace) in [&here, &there].into_iter().enumerate() {
        let names = arguments.naming.names(trace)?;
        let view = arguments.selected.view(&names)?;
        let sums = statistics(&view);
        let rows = rows(&sums, &names, &view, false);
        all.append(report_facts(&view, &names, &sums, &rows));
        for row in rows {
            let times = &row.times;
            let values = match super::estimates(&row) {
                Some(estimates) => estimates.map(|(value, _)| value.round() as u64),
                None => [times.total, times.self_time, times.calls],
            };
            pairs.entry(row.name).or_default().add(side, values);
        }
    }
    let mut pairs: Vec<(String, Pair)> = pairs.into_iter().collect();
    let order = |a: &Pair, b: &Pair| -> Ordering {
        match (arguments.sort_column, policy.percent) {
            (side @ (0 | 1), _) => b.0[measure][side as usize].cmp(&a.0[measure][side as usize]),
            (_, true) => {
                let key = |pair: &Pair| {
                    let percent = pair.percent(measure).unwrap_or(0.0);
                    if policy.absolute {
                        percent.abs()
                    } else {
                        percent
                    }
                };
                key(b).total_cmp(&key(a))
            }
            _ => {
                let key = |pair: &Pair| {
                    let difference = pair.difference(measure);
                    if policy.absolute {
                        difference.abs()
                    } else {
                        difference
                    }
                };
                key(b).cmp(&key(a))
            }
        }
    };
    pairs.sort_by(|a, b| order(&a.1, &b.1).then_with(|| a.0.cmp(&b.0)));
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
        text(&pairs, policy, &mut out);
        let mut page = Output::page(&title(&here), as_page)?;
        page.text.extend_from_slice(out.as_bytes());
        page.finish()?;
        all.write_text(&mut io::stderr().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = table(&pairs)?;
    table.facts = all;
    format.write(&mut table, None, io::stdout().lock())?;
    if !format.shows_facts() {
        table.facts.write_text(&mut io::stderr().lock())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(pairs: &[(String, Pair)], policy: Policy, out: &mut String) {
    let width = if policy.full { 35 } else { 11 };
    for (_, heading) in MEASURES {
        let heading = if policy.full {
            format!("{heading} (diff)")
        } else {
            heading.to_owned()
        };
        out.push_str(&format!("   {heading:>width$}"));
    }
    out.push_str("   Function\n");
    for _ in MEASURES {
        out.push_str(&format!("   {}", "=".repeat(width)));
    }
    out.push_str("   ====================\n");
    for (name, pair) in pairs {
        for (measure, _) in MEASURES.iter().enumerate() {
            let value = |value: Option<u64>| match (value, measure) {
                (None, _) => "-".to_owned(),
                (Some(calls), 2) => calls.to_string(),
                (Some(time), _) => duration(time),
            };
            let difference = match (policy.percent, measure) {
                (true, _) => match pair.percent(measure) {
                    Some(percent) => format!("{percent:+.2}%"),
                    None => "N/A".to_owned(),
                },
                (false, 2) => format!("{:+}", pair.difference(measure)),
                (false, _) => signed_duration(pair.difference(measure)),
            };
            let [here, there] = pair.0[measure];
            match policy.full {
                true => out.push_str(&format!(
                    "   {:>10}  {:>10}  {difference:>11}",
                    value(here),
                    value(there)
                )),
                false => out.push_str(&format!("   {difference:>11}")),
            }
        }
        out.push_str(&format!("   {}\n", escape(name)));
    }
}

fn table(pairs: &[(String, Pair)]) -> anyhow::Result<Table> {
    let mut columns = vec![Column::new(
        "function",
        "Function",
        ColumnKind::Name,
        Unit::None,
    )];
    for (id, heading) in MEASURES {
        let (kind, unit) = match id {
            "calls" => (ColumnKind::Count, Unit::None),
            _ => (ColumnKind::Time, Unit::Nanoseconds),
        };
        let column = |suffix: &str| {
            Column::new(
                format!("{id}_{suffix}"),
                format!("{heading} {suffix}"),
                kind,
                unit.clone(),
            )
        };
        columns.extend([column("base"), column("diff"), column("delta")]);
    }
    let mut table = Table::new(columns);
    for (name, pair) in pairs {
        let mut cells = vec![Cell::name(name.as_str())];
        for [here, there] in pair.0 {
            cells.push(here.map_or(Cell::Empty, Cell::Count));
            cells.push(there.map_or(Cell::Empty, Cell::Count));
            cells.push(Cell::Difference {
                minuend: there.unwrap_or(0),
                subtrahend: here.unwrap_or(0),
            });
        }
        table.push(None, cells)?;
    }
    Ok(table)
}
