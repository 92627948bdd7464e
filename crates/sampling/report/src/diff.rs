//! Differences between profiles: the first one is compared with each of the others.

mod beside;
mod compared;
mod status;
mod test;

use crate::by::{NameColumns, RowNames, add_few, add_recorded_facts, facts_of};
use crate::derived::Derived;
use crate::grid::{Grid, GridOptions, Match, Measure};
use crate::labels::Labels;
use crate::match_facts::match_facts;
use crate::row_key::RowKey;
use crate::{Input, MetricColumns, ReportError, TableEvent};
use compared::Compared;
use dioptra_profile::{Dimension, Slices};
use dioptra_tables::{Cell, Column, ColumnKind, Facts, Severity, Table, Unit};
use serde_json::json;
use status::Status;

pub use beside::report_beside_with_keys;
pub use test::{adjusted, significance, two_sided};

/// The quantity by which weights of profiles are divided to compare them.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Normalize {
    /// No quantity: weights are compared as they are.
    #[default]
    None,
    /// The duration of each profile in seconds.
    Time(Vec<f64>),
    /// The sum of an event in each profile; the event is an index of [`DiffOptions::events`].
    Event(usize),
}

/// The options of a comparison.
#[derive(Clone, Debug)]
pub struct DiffOptions<'a> {
    /// The dimensions of rows; several are levels, the first one outermost.
    pub by: &'a [Dimension],
    /// The events that are counted; events that only normalize may come last.
    pub events: &'a [TableEvent],
    /// The number of events, from the first one on, that have columns.
    pub shown: usize,
    /// The quantity by which weights are divided.
    pub normalize: Normalize,
    /// The number of samples below which differences are marked.
    pub few: u64,
    /// Derived columns.
    pub metrics: &'a [MetricColumns<'a>],
    /// The slices into which [`Dimension::Time`] is cut.
    pub slices: Slices,
}

/// Returns the letter of a profile among those compared: `a` for the first.
pub fn profile_letter(place: usize) -> String {
    let last = u8::try_from(place % 26).unwrap_or(0);
    let letter = char::from(b'a' + last);
    match place / 26 {
        0 => letter.to_string(),
        more => format!("{letter}{more}"),
    }
}

/// Builds the table of changes from the first of `inputs` to each of the others. Rows with the same names are one
/// row: modules of one build id, else of one path or name; processes and threads of one name.
///
/// For each event there are, of each profile, `a_percent`, `b_percent`, … and `a_weight`, `b_weight`, … (and
/// `a_value`, …, where weights are normalized), then for each but the first `b_delta` with its standard error,
/// `b_change` in percent, and `b_significance`; programs also read `a_samples`, `b_z` and `b_q`. Derived columns
/// follow, likewise. `b_status` marks rows that are `new` or `gone`, or, where chance may have left them without
/// samples, `new?` or `gone?`. Rows with the largest difference of the first event come first.
///
/// Differences without normalization are exact, and the differences of top rows sum to the difference of the
/// profiles' sums. The error is the sampling error: each count varies as a Poisson process does. One star or more
/// means that no more than 5 %, 1 % or 0.1 % of rows so marked are expected to be there by chance (Benjamini and
/// Hochberg).
///
/// # Errors
/// The errors of [`crate::report()`].
pub fn diff(inputs: &[Input<'_>], options: &DiffOptions<'_>) -> Result<Table, ReportError> {
    Ok(diff_with_keys(inputs, options)?.0)
}

/// Builds the table of [`diff`], and returns the key of each row, by its id.
///
/// # Errors
/// The errors of [`crate::report()`].
pub fn diff_with_keys(
    inputs: &[Input<'_>],
    options: &DiffOptions<'_>,
) -> Result<(Table, Vec<RowKey>), ReportError> {
    let mut labels = Labels::new(inputs, options.by, options.slices, true);
    let (derived, counted) = Derived::all(options.metrics, inputs, options.events);
    let formulas = options.events.len();
    let grid = Grid::new(
        inputs,
        &labels,
        &GridOptions {
            levels: options.by,
            events: &counted,
            counted_only: false,
            children: false,
            estimates: true,
            apart: true,
            matching: Match::Versions,
        },
    )?;
    labels.locate(inputs, &grid, options.by);
    let slots = inputs.len();
    let totals: Vec<Vec<Measure>> = (0..slots)
        .map(|slot| {
            let mut totals = vec![Measure::default(); counted.len()];
            for index in (0..grid.len()).filter(|index| grid.row(*index).parent.is_none()) {
                for (total, measure) in totals.iter_mut().zip(grid.measures(index, slot)) {
                    total.add(measure);
                }
            }
            totals
        })
        .collect();
    let mut columns: Vec<Compared> = Vec::new();
    for place in 0..options.shown.min(options.events.len()) {
        columns.push(Compared::event(&grid, inputs, options, &totals, place));
    }
    for derived in &derived {
        columns.extend(Compared::formulas(&grid, derived, &totals, formulas));
    }
    let mut heads = Vec::new();
    columns
        .iter()
        .for_each(|column| column.push_heads(&mut heads));
    for slot in 1..slots {
        let id = format!("{}_status", profile_letter(slot));
        let name = if slots == 2 {
            "status".to_owned()
        } else {
            id.clone()
        };
        heads.push(Column::new(id, name, ColumnKind::Name, Unit::None));
    }
    let names = NameColumns::push_heads(&labels, options.by, &mut heads);
    let tests: Vec<Vec<Vec<f64>>> = columns.iter().map(|column| column.adjust(&grid)).collect();

    let samples: Vec<Vec<u64>> = totals
        .iter()
        .map(|totals| {
            let totals = totals.iter().take(formulas);
            totals.map(|total| total.count.own.samples).collect()
        })
        .collect();
    let statuses: Vec<Vec<Status>> = (1..slots)
        .map(|slot| status::find(&grid, &samples, slot))
        .collect();

    // Rows are sorted by level first, so that parents come before the rows below them.
    let mut order: Vec<usize> = (0..grid.len()).collect();
    let size = |row: usize| {
        let first = columns.first();
        first.map_or((0.0, 0.0), |column| (column.largest(row), column.most(row)))
    };
    order.sort_by(|one, other| {
        let level = |row: usize| grid.row(row).level;
        let (one_size, other_size) = (size(*one), size(*other));
        level(*one)
            .cmp(&level(*other))
            .then(other_size.0.total_cmp(&one_size.0))
            .then(other_size.1.total_cmp(&one_size.1))
    });
    let mut table = Table::new(heads);
    // The id in the table of each row of the grid.
    let mut ids = vec![0_u32; grid.len()];
    let mut named = RowNames::default();
    let mut keys = Vec::with_capacity(grid.len());
    for index in order {
        let row = grid.row(index);
        let mut cells = Vec::with_capacity(table.columns.len());
        let mut notes = Vec::new();
        for (column, adjusted) in columns.iter().zip(&tests) {
            column.push_cells(index, adjusted, &mut cells, &mut notes);
        }
        cells.extend(statuses.iter().map(|of_slot| of_slot[index].cell()));
        names.find(&mut named, &labels, inputs, row);
        let parent = row.parent.map(|parent| ids[parent]);
        ids[index] = table.push_repeating(parent, &cells, &named.cells, &notes)?;
        keys.push(RowKey::of(row));
    }
    add_facts(&mut table.facts, inputs, options, &totals);
    match_facts(&mut table.facts, &grid.notes, inputs);
    derived
        .iter()
        .for_each(|derived| derived.add_facts(&mut table.facts));
    if statuses.iter().flatten().any(|status| status.is_doubtful()) {
        status::add_fact(&mut table.facts);
    }
    add_few(&mut table, options.few);
    Ok((table, keys))
}

fn add_facts(
    facts: &mut Facts,
    inputs: &[Input<'_>],
    options: &DiffOptions<'_>,
    totals: &[Vec<Measure>],
) {
    let shown = &options.events[..options.shown.min(options.events.len())];
    for (slot, input) in inputs.iter().enumerate() {
        let name = profile_letter(slot).to_uppercase();
        facts.add(
            Severity::Info,
            "profile",
            format!("{name}: {}", input.label),
            json!({"name": profile_letter(slot), "profile": input.label}),
        );
    }
    for (slot, input) in inputs.iter().enumerate() {
        let name = profile_letter(slot).to_uppercase();
        let input = Input {
            label: &name,
            ..*input
        };
        facts.append(facts_of(&input, slot, options.events, true, false));
    }
    for (place, event) in shown.iter().enumerate() {
        for slot in 1..inputs.len() {
            if event.of[0].is_none() || event.of[slot].is_none() {
                continue;
            }
            let (before, after) = (totals[0][place], totals[slot][place]);
            let (from, to) = (before.count.own.weight, after.count.own.weight);
            let change = Cell::Difference {
                minuend: to,
                subtrahend: from,
            };
            let error = (before.estimate.variance + after.estimate.variance).sqrt();
            let percent = 100.0 * (to as f64 - from as f64) / from as f64;
            facts.add(
                Severity::Info,
                "total_change",
                format!(
                    "{}: {} in all {percent:+.2} % ±{:.2} %",
                    event.name,
                    profile_letter(slot).to_uppercase(),
                    100.0 * error / from as f64,
                ),
                json!({
                    "event": event.name, "profile": profile_letter(slot), "from": from, "to": to,
                    "delta": change.value(1.0), "standard_error": error,
                }),
            );
        }
    }
    add_recorded_facts(facts, options.events, inputs);
    match &options.normalize {
        Normalize::None => {}
        Normalize::Time(seconds) => {
            let told: Vec<String> = seconds.iter().map(|time| format!("{time:.3} s")).collect();
            facts.add(
                Severity::Info,
                "normalized",
                format!(
                    "weights are per second of each recording: {}",
                    told.join(", ")
                ),
                json!({"by": "time", "seconds": seconds}),
            );
        }
        Normalize::Event(by) => {
            if let Some(event) = options.events.get(*by) {
                facts.add(
                    Severity::Info,
                    "normalized",
                    format!(
                        "weights are compared per {} of the whole profile",
                        event.name
                    ),
                    json!({"by": event.name}),
                );
            }
        }
    }
    facts.add(
        Severity::Info,
        "significance",
        "* ** ***: at most 5 %, 1 %, 0.1 % of the rows so marked are there by chance of sampling; runs differ by more than that",
        json!([0.05, 0.01, 0.001]),
    );
}
