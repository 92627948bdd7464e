//! Tables of a report in which each row also has the counts of another profile, and the change of its shares.

use super::compared::Compared;
use super::status::{self, Status};
use super::test::{adjusted, significance, two_sided};
use super::{DiffOptions, Normalize, add_facts};
use crate::by::{NameColumns, RowNames, add_few, sort};
use crate::columns::{Context, EventColumns, NumberOptions};
use crate::derived::Derived;
use crate::events::id_suffixes;
use crate::grid::{Grid, GridOptions, Match, Measure};
use crate::labels::Labels;
use crate::match_facts::match_facts;
use crate::row_key::RowKey;
use crate::{Input, PercentOf, ReportError, ReportOptions};
use dioptra_profile::Dimension;
use dioptra_tables::{Cell, CellNote, Column, ColumnKind, Mark, Severity, Table, Unit};

/// Changes below this number of standard errors are what two recordings of one program differ by in 19 of 20 rows.
const CHANCE: f64 = 1.96;

/// Builds the table of [`crate::report()`] of the first input, with the counts of the second one beside each column, and
/// the change of each share. Rows are those of [`crate::diff()`]: things with the same names are one row, and rows that
/// only the second profile has are there, too. Returns the key of each row, by its id.
///
/// Behind each column `ID` stands `b_ID`. Behind the shares stand `b_ID_points`, the difference in percent points with
/// its standard error, and `b_ID_significance`; programs also read `b_ID_z` and `b_ID_q`. Differences that are no larger
/// than 1.96 standard errors are marked `within_chance`. A share of zero is taken to be as uncertain as one sample. Then
/// come the derived columns as `diff` has them, and `b_status`.
///
/// # Errors
/// The errors of [`crate::report()`].
pub fn report_beside_with_keys(
    inputs: &[Input<'_>; 2],
    options: &ReportOptions<'_>,
) -> Result<(Table, Vec<RowKey>), ReportError> {
    let mut labels = Labels::new(inputs, options.by, options.slices, true);
    let (derived, counted) = Derived::all(options.metrics, inputs, options.events);
    let shown = options.events.len();
    let grid = Grid::new(
        inputs,
        &labels,
        &GridOptions {
            levels: options.by,
            events: &counted,
            children: options.children,
            counted_only: !options.children,
            estimates: true,
            apart: true,
            matching: Match::Versions,
        },
    )?;
    labels.locate(inputs, &grid, options.by);
    let totals: Vec<Vec<Measure>> = [0, 1].map(|slot| totals(&grid, counted.len(), slot)).into();
    let names: Vec<&str> = options.events.iter().map(|event| &*event.name).collect();
    let suffixes = id_suffixes(&names);
    let mut heads = Vec::new();
    let places = options.events.iter().enumerate();
    let columns: Vec<Beside> = places
        .map(|(place, _)| Beside::new(inputs, options, place, &suffixes[place], &mut heads))
        .collect();
    let numbers = heads.len();
    let formulas: Vec<Compared> = derived
        .iter()
        .flat_map(|derived| Compared::formulas(&grid, derived, &totals, shown))
        .collect();
    for column in &formulas {
        column.push_heads(&mut heads);
    }
    heads.push(Column::new(
        "b_status",
        "status",
        ColumnKind::Name,
        Unit::None,
    ));
    let firsts = NameColumns::push_heads(&labels, options.by, &mut heads);

    let tests: Vec<Vec<Vec<f64>>> = formulas.iter().map(|column| column.adjust(&grid)).collect();
    let samples: Vec<Vec<u64>> = totals
        .iter()
        .map(|totals| {
            let totals = totals.iter().take(shown);
            totals.map(|total| total.count.own.samples).collect()
        })
        .collect();
    let statuses = status::find(&grid, &samples, 1);
    let changes: Vec<Vec<Vec<Change>>> = columns
        .iter()
        .enumerate()
        .map(|(place, column)| column.changes(&grid, place))
        .collect();

    let mut table = Table::new(heads);
    table.reserve(grid.len());
    let mut names = RowNames::default();
    for (index, status) in statuses.iter().enumerate() {
        let row = grid.row(index);
        let (mut cells, mut notes) = (Vec::new(), Vec::new());
        for (place, column) in columns.iter().enumerate() {
            column.push(
                &grid,
                (index, place),
                &changes[place],
                &mut cells,
                &mut notes,
            );
        }
        for (column, adjusted) in formulas.iter().zip(&tests) {
            column.push_cells(index, adjusted, &mut cells, &mut notes);
        }
        cells.push(status.cell());
        firsts.find(&mut names, &labels, inputs, row);
        // A row's id is its index. The parent is in the table already, so its index fits.
        let parent = row.parent.map(|parent| parent as u32);
        table.push_repeating(parent, &cells, &names.cells, &notes)?;
    }
    let keys = (0..grid.len()).map(|index| RowKey::of(grid.row(index)));
    let keys: Vec<RowKey> = keys.collect();
    let by_time = options.by.contains(&Dimension::Time);
    sort(&mut table, numbers, firsts.first, by_time)?;
    let of_diff = DiffOptions {
        by: options.by,
        events: options.events,
        shown,
        normalize: Normalize::None,
        few: options.few,
        metrics: options.metrics,
        slices: options.slices,
    };
    add_facts(&mut table.facts, inputs, &of_diff, &totals);
    match_facts(&mut table.facts, &grid.notes, inputs);
    for derived in &derived {
        derived.add_facts(&mut table.facts);
    }
    let within = table.count_marks(&Mark::WithinChance);
    if within > 0 {
        table.facts.add(
            Severity::Info,
            "within_chance",
            "grey differences are no larger than chance makes them: within 1.96 standard errors",
            within,
        );
    }
    if statuses.iter().copied().any(Status::is_doubtful) {
        status::add_fact(&mut table.facts);
    }
    add_few(&mut table, options.few);
    Ok((table, keys))
}

fn totals(grid: &Grid, events: usize, slot: usize) -> Vec<Measure> {
    let mut totals = vec![Measure::default(); events];
    for index in (0..grid.len()).filter(|index| grid.row(*index).parent.is_none()) {
        for (total, measure) in totals.iter_mut().zip(grid.measures(index, slot)) {
            total.add(measure);
        }
    }
    totals
}

/// The change of one share in a row.
#[derive(Clone, Copy)]
struct Change {
    /// In percent points; `None` where one of the shares is not known.
    points: Option<f64>,
    error: f64,
    /// The difference divided by its standard error, in which a share of zero has the error of one sample.
    z: f64,
    q: f64,
    few: bool,
}

/// A column of the first profile and the column of the other one that stands beside it.
struct Pair {
    first: Option<usize>,
    other: Option<usize>,
    is_share: bool,
    of_total: bool,
}

/// The columns of one event in both profiles.
struct Beside {
    sides: [EventColumns; 2],
    pairs: Vec<Pair>,
    /// Whether each profile has the event.
    known: [bool; 2],
    few: u64,
    keeps_errors: bool,
    keeps_marks: bool,
}

impl Beside {
    fn new(
        inputs: &[Input<'_>; 2],
        options: &ReportOptions<'_>,
        place: usize,
        suffix: &str,
        heads: &mut Vec<Column>,
    ) -> Beside {
        let event = &options.events[place];
        let number_options = NumberOptions {
            children: options.children,
            shown: options.shown,
            percent_of: options.percent_of,
            errors: true,
            few: options.few,
        };
        let known = [0, 1].map(|slot| event.of.get(slot).copied().flatten().is_some());
        let sides = [0, 1].map(|slot: usize| {
            let of_slot = event.of.get(slot).copied().flatten();
            let profile = of_slot.and_then(|index| inputs[slot].profile.events().get(index));
            let profiles: Vec<_> = profile.into_iter().collect();
            EventColumns::new(&event.name, &profiles, number_options)
        });
        let of_sides = sides.each_ref().map(|side| {
            let mut heads = Vec::new();
            side.push_heads(place, "", &mut heads);
            heads
        });
        // A profile without the event has no weights, and one without scaling no scaled weights.
        let mut all = of_sides[0].clone();
        for head in &of_sides[1] {
            if all.iter().all(|known| known.id != head.id) {
                all.push(head.clone());
            }
        }
        let at = |side: usize, id: &str| of_sides[side].iter().position(|head| head.id == id);
        let mut pairs = Vec::new();
        for head in all {
            let is_share = head.unit == Unit::Percent;
            pairs.push(Pair {
                first: at(0, &head.id),
                other: at(1, &head.id),
                is_share,
                of_total: head.id == "total_percent",
            });
            let id = head.id.clone();
            let mut push = |id: String, name: String, kind, unit| {
                let column = Column::new(format!("{id}{suffix}"), name, kind, unit);
                heads.push(column.of_event(&*event.name));
                heads.len() - 1
            };
            push(id.clone(), head.name.clone(), head.kind, head.unit.clone());
            push(
                format!("b_{id}"),
                format!("B {}", head.name),
                head.kind,
                head.unit,
            );
            if is_share {
                let points = Unit::Named("points".to_owned());
                push(
                    format!("b_{id}_points"),
                    "points".into(),
                    ColumnKind::Ratio,
                    points,
                );
                let z = push(
                    format!("b_{id}_z"),
                    "z".into(),
                    ColumnKind::Ratio,
                    Unit::None,
                );
                let q = push(
                    format!("b_{id}_q"),
                    "q".into(),
                    ColumnKind::Ratio,
                    Unit::None,
                );
                push(
                    format!("b_{id}_significance"),
                    "sig".into(),
                    ColumnKind::Name,
                    Unit::None,
                );
                heads[z].is_for_programs = true;
                heads[q].is_for_programs = true;
            }
        }
        Beside {
            sides,
            pairs,
            known,
            few: options.few,
            keeps_errors: options.errors,
            keeps_marks: options.errors
                || matches!(options.percent_of, PercentOf::Row | PercentOf::Parent),
        }
    }

    /// Returns the cells of one profile in a row, and their notes.
    fn cells(
        &self,
        grid: &Grid,
        index: usize,
        place: usize,
        slot: usize,
    ) -> (Vec<Cell<'_>>, Vec<CellNote>) {
        let above = grid.row(index).parent;
        let context = Context {
            first: (place > 0).then(|| grid.measure(index, slot, 0)),
            above: above.map(|parent| grid.measure(parent, slot, place)),
        };
        let (mut cells, mut notes) = (Vec::new(), Vec::new());
        let measure = grid.measure(index, slot, place);
        self.sides[slot].push(measure, context, &mut cells, &mut notes);
        (cells, notes)
    }

    /// Computes the changes of the event's shares: by share, then row. The rows of each level are judged together.
    fn changes(&self, grid: &Grid, place: usize) -> Vec<Vec<Change>> {
        let shares = || self.pairs.iter().filter(|pair| pair.is_share);
        let mut all: Vec<Vec<Change>> = shares().map(|_| Vec::with_capacity(grid.len())).collect();
        let whole = totals_of(grid, place);
        for index in 0..grid.len() {
            let sides = [0, 1].map(|slot| self.cells(grid, index, place, slot));
            let counts = [0, 1].map(|slot| grid.measure(index, slot, place).count);
            for (pair, changes) in shares().zip(&mut all) {
                let side = |slot: usize| -> Option<(f64, f64, u64, f64)> {
                    let at = if slot == 0 { pair.first } else { pair.other };
                    let at = at.filter(|_| self.known[slot])?;
                    let (cells, notes) = &sides[slot];
                    let share = cells[at].value(100.0)?;
                    let note = notes.iter().find(|note| note.column == at);
                    let error = note.and_then(|note| note.standard_error).unwrap_or(0.0);
                    let count = match pair.of_total {
                        true => counts[slot].total,
                        false => counts[slot].own,
                    };
                    let unseen = match count.samples {
                        0 => one_sample(&cells[at], whole[slot]),
                        _ => 0.0,
                    };
                    Some((share, error, count.samples, unseen))
                };
                let (Some(first), Some(other)) = (side(0), side(1)) else {
                    changes.push(Change {
                        points: None,
                        error: f64::NAN,
                        z: f64::NAN,
                        q: f64::NAN,
                        few: false,
                    });
                    continue;
                };
                let points = other.0 - first.0;
                let spread = first.1.hypot(other.1).hypot(first.3).hypot(other.3);
                changes.push(Change {
                    points: Some(points),
                    error: first.1.hypot(other.1),
                    z: points / spread,
                    q: f64::NAN,
                    few: (1..self.few).contains(&first.2.max(other.2)),
                });
            }
        }
        let level = |row: usize| grid.row(row).level;
        let levels = (0..grid.len())
            .map(level)
            .max()
            .map_or(0, |level| level + 1);
        for changes in &mut all {
            for each in 0..levels {
                let rows: Vec<usize> = (0..grid.len()).filter(|row| level(*row) == each).collect();
                let chances: Vec<f64> = rows.iter().map(|row| two_sided(changes[*row].z)).collect();
                for (row, q) in rows.into_iter().zip(adjusted(&chances)) {
                    changes[row].q = q;
                }
            }
        }
        all
    }

    /// Appends the cells of a row, and their notes.
    fn push<'a>(
        &'a self,
        grid: &Grid,
        (index, place): (usize, usize),
        changes: &[Vec<Change>],
        cells: &mut Vec<Cell<'a>>,
        notes: &mut Vec<CellNote>,
    ) {
        let sides = [0, 1].map(|slot| self.cells(grid, index, place, slot));
        let mut changes = changes.iter();
        for pair in &self.pairs {
            for (slot, at) in [(0, pair.first), (1, pair.other)] {
                let (own, own_notes) = &sides[slot];
                let Some(at) = at.filter(|_| self.known[slot]) else {
                    cells.push(Cell::Empty);
                    continue;
                };
                if let Some(note) = own_notes.iter().find(|note| note.column == at) {
                    let mark = note.mark.clone().filter(|_| self.keeps_marks);
                    let standard_error = note.standard_error.filter(|_| self.keeps_errors);
                    if mark.is_some() || standard_error.is_some() {
                        notes.push(CellNote {
                            column: cells.len(),
                            standard_error,
                            mark,
                        });
                    }
                }
                cells.push(own[at].clone());
            }
            if !pair.is_share {
                continue;
            }
            let Some(change) = changes.next().map(|changes| changes[index]) else {
                continue;
            };
            let number = |value: f64| match change.points {
                Some(_) => Cell::real(value),
                None => Cell::Empty,
            };
            let within = change.points.is_some() && (change.z.is_nan() || change.z.abs() <= CHANCE);
            notes.push(CellNote {
                column: cells.len(),
                standard_error: Some(change.error).filter(|error| *error > 0.0),
                mark: match (within, change.few) {
                    (true, _) => Some(Mark::WithinChance),
                    (false, true) => Some(Mark::FewSamples),
                    (false, false) => None,
                },
            });
            let points = change.points.unwrap_or(f64::NAN);
            cells.extend([number(points), number(change.z), number(change.q)]);
            cells.push(match significance(change.q) {
                "" => Cell::Empty,
                stars => Cell::name(stars),
            });
        }
    }
}

/// Returns the sums of an event over the top rows: samples and weight, by profile.
fn totals_of(grid: &Grid, place: usize) -> [(u64, u64); 2] {
    let mut sums = [(0, 0); 2];
    for index in (0..grid.len()).filter(|index| grid.row(*index).parent.is_none()) {
        for (slot, (samples, weight)) in sums.iter_mut().enumerate() {
            let own = grid.measure(index, slot, place).count.own;
            *samples += own.samples;
            *weight += own.weight;
        }
    }
    sums
}

/// Returns the share in percent that one sample of the profile's mean weight would have in the place of a cell.
fn one_sample(cell: &Cell<'_>, (samples, weight): (u64, u64)) -> f64 {
    if samples == 0 {
        return 0.0;
    }
    match cell {
        Cell::Ratio { denominator, .. } if *denominator > 0 => {
            100.0 * (weight as f64 / samples as f64) / *denominator as f64
        }
        _ => 100.0 / samples as f64,
    }
}
