//! Tables of synthetic recordings: counters that took turns, several profiles, errors, derived columns.

#[path = "../../profile/tests/support/mod.rs"]
mod support;

use dioptra_metrics::{Environment, MetricSet};
use dioptra_perfrecords::{ReadFormat, SampleType};
use dioptra_profile::{Dimension, Names, Profile, Slices};
use dioptra_report::{
    DiffOptions, Input, MetricColumns, Normalize, PercentOf, ReportOptions, ShownNumbers,
    TableEvent, diff, report,
};
use dioptra_symbols::SymbolOptions;
use dioptra_tables::{Cell, Row, Table};
use proptest::collection::vec;
use proptest::prelude::*;
use std::num::NonZeroU32;
use support::{ID, Records, SECOND, attr, event, full, reading};

fn input<'a>(profile: &'a Profile, names: &'a Names, label: &'a str) -> Input<'a> {
    Input {
        profile,
        names,
        blocks: None,
        shapes: None,
        label,
    }
}

fn cell<'a>(table: &Table, row: Row<'a>, id: &str) -> Cell<'a> {
    row.cell(table.column_index(id).unwrap_or_else(|| panic!("no {id}")))
}

fn error(table: &Table, row: Row<'_>, id: &str) -> f64 {
    row.standard_error(table.column_index(id).unwrap()).unwrap()
}

fn named<'a>(table: &'a Table, column: &str, name: &str) -> Row<'a> {
    let rows = table.rows();
    let mut found = rows.filter(|row| cell(table, *row, column) == Cell::name(name));
    let row = found.next().unwrap_or_else(|| panic!("no row {name}"));
    assert!(found.next().is_none(), "one row {name}");
    row
}

/// Ten milliseconds, in nanoseconds.
const TEN_MS: u64 = 10_000_000;

#[test]
fn counters_that_took_turns_have_scaled_columns_beside_the_raw_ones() {
    let mut records = Records::default();
    records.map(5, 0x1000, 0x1000, 0, "/nonexistent/a");
    records.map(5, 0x3000, 0x1000, 0, "/nonexistent/b");
    let (a, b) = (0x1800, 0x3800);
    // A quarter of the second interval, half of the third.
    records.sample(ID, (5, 5), a, 10, &[10, 100 * TEN_MS, 100 * TEN_MS]);
    records.sample(ID, (5, 5), b, 10, &[20, 500 * TEN_MS, 200 * TEN_MS]);
    records.sample(ID, (5, 5), a, 30, &[50, 700 * TEN_MS, 300 * TEN_MS]);
    records.sample(SECOND, (5, 5), a, 100, &[100, 700 * TEN_MS, 700 * TEN_MS]);
    records.sample(SECOND, (5, 5), b, 60, &[160, 800 * TEN_MS, 800 * TEN_MS]);
    let events = [
        event("cycles", reading(ReadFormat::empty()), &[ID]),
        event("instructions", reading(ReadFormat::empty()), &[SECOND]),
    ];
    let profile = records.load_with(&events, &full());
    let names = Names::default();
    let inputs = [input(&profile, &names, "x")];
    let events = TableEvent::all(&[&profile]);
    let set = MetricSet::generic();
    let metrics = [MetricColumns {
        set,
        columns: vec![set.column("ipc").unwrap()],
        keep: Vec::new(),
        environment: Environment::new(),
    }];
    let options = ReportOptions {
        by: &[Dimension::Module],
        events: &events,
        errors: true,
        metrics: &metrics,
        ..ReportOptions::default()
    };
    let table = report(&inputs, &options).unwrap();
    table.check().unwrap();
    let row = named(&table, "module", "a");
    assert_eq!(cell(&table, row, "weight[cycles]"), Cell::Count(40));
    assert_eq!(
        cell(&table, row, "self_percent[cycles]"),
        Cell::ratio(40, 50)
    );
    assert_eq!(cell(&table, row, "scaled[cycles]"), Cell::real(10.0 + 60.0));
    assert_eq!(
        error(&table, row, "scaled[cycles]"),
        (100.0_f64 + 3600.0).sqrt()
    );
    let Cell::Real { value, .. } = cell(&table, row, "scaled_percent[cycles]") else {
        panic!("a share");
    };
    assert!((value - 100.0 * 70.0 / 110.0).abs() < 1e-9, "{value}");
    // The other event's counter ran all the time.
    assert_eq!(table.column_index("scaled[instructions]"), None);
    // Formulas use the estimates of both events, and their errors.
    assert_eq!(cell(&table, row, "ipc"), Cell::real(100.0 / 70.0));
    let expected = 100.0 / 70.0 * (1.0 + 3700.0 / 4900.0_f64).sqrt();
    assert!((error(&table, row, "ipc") - expected).abs() < 1e-9);
    let fact = table.facts.get("scaled").unwrap();
    assert_eq!(
        (fact.value["raw"].as_u64(), fact.value["scaled"].as_f64()),
        (Some(50), Some(110.0))
    );
    assert!(
        fact.text.contains("42.9 %") && fact.text.contains("2.200"),
        "{}",
        fact.text
    );
    // The raw columns stand alone.
    let raw = report(
        &inputs,
        &ReportOptions {
            shown: ShownNumbers {
                scaled: false,
                ..ShownNumbers::default()
            },
            ..options
        },
    );
    assert_eq!(raw.unwrap().column_index("scaled"), None);
}

/// A recording of one process and the given samples: address and weight.
fn recorded(pid: u32, name: &str, build_id: &[u8], samples: &[(u64, u64)]) -> Profile {
    let mut records = Records::default();
    records.comm(pid, pid, true, "work");
    records.map_build_id(pid, 0x1000, 0x1000, 0, name, Some(build_id));
    records.map(pid, 0x3000, 0x1000, 0, "/lib/shared");
    for (address, weight) in samples {
        records.sample(ID, (pid, pid), *address, *weight, &[]);
    }
    let plain = attr(SampleType::empty());
    records.load_with(&[event("cycles", plain, &[ID])], &full())
}

const BY_ALL: [Dimension; 3] = [Dimension::Process, Dimension::Module, Dimension::Address];

#[test]
fn sums_match_equal_modules_and_differences_match_versions() {
    let (one, two) = ([1; 20], [2; 20]);
    // The same file at two paths; another build at the first path.
    let a = recorded(
        5,
        "/bin/tool",
        &one,
        &[(0x1100, 10), (0x1100, 10), (0x3100, 7)],
    );
    let b = recorded(5, "/other/tool", &one, &[(0x1100, 5), (0x1200, 4)]);
    let c = recorded(
        9,
        "/bin/tool",
        &two,
        &[(0x1100, 100), (0x3100, 8), (0x3100, 9)],
    );
    let names = Names::default();
    let inputs = [&a, &b, &c].map(|profile| input(profile, &names, "x"));
    let events = TableEvent::all(&[&a, &b, &c]);
    let options = ReportOptions {
        by: &BY_ALL,
        events: &events,
        percent_of: PercentOf::Parent,
        ..ReportOptions::default()
    };
    let table = report(&inputs, &options).unwrap();
    table.check().unwrap();
    let mut modules: Vec<u64> = table
        .rows()
        .filter(|row| cell(&table, *row, "level") == Cell::name("module"))
        .map(|row| match cell(&table, row, "weight") {
            Cell::Count(weight) => weight,
            other => panic!("{other:?}"),
        })
        .collect();
    // Process 9 with its build and the library, process 5 with the tool of both paths and the library.
    modules.sort_unstable();
    assert_eq!(modules, [7, 17, 29, 100]);
    assert_eq!(table.rows().filter(|row| row.parent().is_none()).count(), 2);

    // Versions of one program are compared, whatever their process is.
    let options = DiffOptions {
        by: &BY_ALL[..2],
        events: &events,
        shown: 1,
        normalize: Normalize::None,
        few: 10,
        metrics: &[],
        slices: Slices::Number(NonZeroU32::MIN),
    };
    let table = diff(&inputs, &options).unwrap();
    table.check().unwrap();
    assert_eq!(table.len(), 3, "{table:?}");
    let difference = |minuend, subtrahend| Cell::Difference {
        minuend,
        subtrahend,
    };
    let top = table.rows().find(|row| row.parent().is_none()).unwrap();
    assert_eq!(cell(&table, top, "b_delta"), difference(9, 27));
    assert_eq!(cell(&table, top, "c_delta"), difference(117, 27));
    let tool = named(&table, "name", "tool");
    assert_eq!(cell(&table, tool, "c_delta"), difference(100, 20));
    assert_eq!(
        error(&table, tool, "c_delta"),
        (100.0_f64 + 100.0 + 10_000.0).sqrt()
    );
    let library = named(&table, "name", "shared");
    assert_eq!(cell(&table, library, "b_delta"), difference(0, 7));
    // One sample of ten proves nothing.
    assert_eq!(cell(&table, library, "b_status"), Cell::name("gone?"));
}

#[test]
fn what_profiles_lack_is_refused() {
    let profile = recorded(5, "/bin/tool", &[1; 20], &[(0x1100, 10)]);
    let names = Names::find(&profile, SymbolOptions::default());
    let inputs = [input(&profile, &names, "x")];
    for by in [Dimension::Cpu, Dimension::Block] {
        let options = ReportOptions {
            by: &[by],
            errors: true,
            ..ReportOptions::default()
        };
        assert!(report(&inputs, &options).is_err(), "{by:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever was sampled: rows are the sums of the rows below, a sum of profiles is the sum of their tables, and
    /// differences sum to the difference of totals.
    #[test]
    fn sums_are_exact(parts in vec((1..3_u8, vec((0..8_u64, 0..1_u64 << 40), 0..30)), 2..4)) {
        let profiles: Vec<Profile> = parts
            .iter()
            .map(|(build, samples)| {
                let at = |place: u64| 0x1000 * (1 + place % 3) + 0x100 * (place / 3);
                let samples: Vec<(u64, u64)> =
                    samples.iter().map(|(place, weight)| (at(*place), *weight)).collect();
                recorded(5, "/bin/tool", &[*build; 20], &samples)
            })
            .collect();
        let names = Names::default();
        let inputs: Vec<Input<'_>> =
            profiles.iter().map(|profile| input(profile, &names, "x")).collect();
        let all: Vec<&Profile> = profiles.iter().collect();
        let events = TableEvent::all(&all);
        let of_table = |inputs: &[Input<'_>], events: &[TableEvent]| {
            let options = ReportOptions { by: &BY_ALL, events, ..ReportOptions::default() };
            report(inputs, &options).unwrap()
        };
        let weight = |table: &Table, row: Row<'_>| match cell(table, row, "weight") {
            Cell::Count(weight) => weight,
            other => panic!("{other:?}"),
        };
        let total = |table: &Table| -> u64 {
            let top = table.rows().filter(|row| row.parent().is_none());
            top.map(|row| weight(table, row)).sum()
        };
        let whole = of_table(&inputs, &events);
        for row in whole.rows() {
            let below: Vec<u64> = whole
                .rows()
                .filter(|other| other.parent() == Some(row.id()))
                .map(|other| weight(&whole, other))
                .collect();
            prop_assert!(below.is_empty() || below.iter().sum::<u64>() == weight(&whole, row));
        }
        let each: Vec<u64> = parts.iter().map(|(_, list)| list.iter().map(|sample| sample.1).sum()).collect();
        prop_assert_eq!(total(&whole), each.iter().sum::<u64>());

        let options = DiffOptions {
            by: &BY_ALL,
            events: &events,
            shown: 1,
            normalize: Normalize::None,
            few: 10,
            metrics: &[],
            slices: Slices::Number(NonZeroU32::MIN),
        };
        let table = diff(&inputs, &options).unwrap();
        table.check().unwrap();
        for (slot, letter) in (1..parts.len()).zip(["b", "c"]) {
            let deltas = table.rows().filter(|row| row.parent().is_none()).map(|row| {
                match cell(&table, row, &format!("{letter}_delta")) {
                    Cell::Difference { minuend, subtrahend } => {
                        i128::from(minuend) - i128::from(subtrahend)
                    }
                    other => panic!("{other:?}"),
                }
            });
            prop_assert_eq!(deltas.sum::<i128>(), i128::from(each[slot]) - i128::from(each[0]));
        }
    }
}

/// A row that one profile lacks is gone only where chance is no likely reason.
#[test]
fn what_was_merely_not_sampled_is_not_gone() {
    let profile = |samples: [u64; 4]| {
        let mut records = Records::default();
        for (place, name) in (1..).zip(["a", "b", "c", "d"]) {
            records.map(5, place << 16, 0x1000, 0, &format!("/nonexistent/{name}"));
        }
        for (place, number) in (1..).zip(samples) {
            for _ in 0..number {
                records.sample(ID, (5, 5), place << 16, 10, &[]);
            }
        }
        let events = [event("cpu-clock", attr(SampleType::empty()), &[ID])];
        records.load_with(&events, &full())
    };
    let (before, after) = (profile([100, 100, 1, 0]), profile([100, 0, 0, 1]));
    let names = Names::default();
    let inputs = [input(&before, &names, "x"), input(&after, &names, "y")];
    let events = TableEvent::all(&[&before, &after]);
    let options = DiffOptions {
        by: &[Dimension::Module],
        events: &events,
        shown: 1,
        normalize: Normalize::None,
        few: 10,
        metrics: &[],
        slices: Slices::Number(NonZeroU32::MIN),
    };
    let table = diff(&inputs, &options).unwrap();
    let status = |module| cell(&table, named(&table, "module", module), "b_status");
    assert_eq!(status("a"), Cell::Empty);
    assert_eq!(
        status("b"),
        Cell::name("gone"),
        "chance: (2/3) to the 100th"
    );
    assert_eq!(status("c"), Cell::name("gone?"), "chance: 2/3");
    assert_eq!(status("d"), Cell::name("new?"), "chance: 1/3");
    assert!(table.facts.get("perhaps_unsampled").is_some());
}
