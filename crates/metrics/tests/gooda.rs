//! A published Gooda report holds raw counts, periods, multiplex factors and penalties beside the columns that Gooda
//! made of them. The engine, in Gooda's mode and with the shipped tree, must make the same numbers, cell by cell.
//!
//! Known exceptions, each by its name below: one cell that is off by one in the report itself, `branch_misprediction`
//! (that report's version of Gooda did not add `Wrong_path_cycles`), and `port_saturation` (Gooda's is wrongly coded).

use std::path::{Path, PathBuf};

use dioptra_metrics::{
    Cell, ColumnKind, Count, Environment, Evaluator, MetricSet, Mode, RecordedEvent,
};
use dioptra_testprograms::{Skip, or_skip};

/// (last part of the row's name, column): the report has 21057 where its own inputs give 21056.
const OFF_BY_ONE: &[(&str, &str)] = &[("Global sample breakdown", "instruction_starvation")];
/// Gooda's code takes the last of six ports instead of the busiest.
const WRONGLY_CODED: &str = "port_saturation";

fn folder() -> Result<PathBuf, Skip> {
    let folder = match std::env::var_os("DIOPTRA_GOODA_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/gooda"),
    };
    if folder.is_dir() {
        Ok(folder)
    } else {
        Err(Skip::new(format!(
            "no Gooda report at {}",
            folder.display()
        )))
    }
}

/// A table of the report: a JavaScript array literal, one row per line, with holes.
struct Table {
    names: Vec<String>,
    periods: Vec<f64>,
    multiplex: Vec<f64>,
    penalties: Vec<f64>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).expect("the table reads");
        let lines: Vec<Vec<String>> = text
            .lines()
            .map(str::trim)
            .filter(|line| line.starts_with('[') && line.len() > 2)
            .map(split_row)
            .collect();
        let head = |word: &str| {
            lines
                .iter()
                .take(8)
                .find(|row| row.iter().any(|cell| cell == word))
                .unwrap_or_else(|| panic!("{}: no head row {word}", path.display()))
        };
        let numbers = |word: &str| {
            head(word)
                .iter()
                .map(|cell| cell.parse().unwrap_or(0.0))
                .collect()
        };
        Self {
            names: lines[0].clone(),
            periods: numbers("Period"),
            multiplex: numbers("Multiplex"),
            penalties: numbers("Penalty"),
            rows: lines[7..].to_vec(),
        }
    }

    fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|n| n == name)
    }
}

fn split_row(line: &str) -> Vec<String> {
    let inner = line
        .trim_start_matches('[')
        .trim_end_matches(',')
        .trim_end_matches(']');
    let mut cells = vec![String::new()];
    let mut quoted = false;
    for c in inner.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            ' ' if !quoted => {}
            c => cells.last_mut().expect("never empty").push(c),
        }
    }
    cells
}

/// The CPU of a report, from the file beside its tables.
fn set_of(folder: &Path) -> &'static MetricSet {
    let properties =
        std::fs::read_to_string(folder.join("platform_properties.txt")).expect("properties");
    let number = |word: &str| -> u32 {
        let at = properties.find(word).expect("family and model") + word.len();
        let digits: String = properties[at..]
            .chars()
            .skip_while(|c| !c.is_ascii_digit())
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse().expect("a number")
    };
    let id = format!("GenuineIntel,{},{},0", number("family"), number("model"));
    MetricSet::for_cpu(&id).unwrap_or_else(|| panic!("no shipped set for {id}"))
}

struct Checked {
    cells: usize,
    wrong_path: usize,
    exceptions: Vec<(String, String)>,
}

fn check(table: &Table, set: &MetricSet, path: &Path) -> Checked {
    // Every event of the tree that the table has, in the tree's order.
    let events: Vec<(String, usize)> = set
        .needed_events()
        .into_iter()
        .filter_map(|e| Some((e.name.clone(), table.column(&e.name)?)))
        .collect();
    let recorded: Vec<RecordedEvent> = events
        .iter()
        .map(|(name, at)| RecordedEvent {
            name: name.clone(),
            period: Some(table.periods[*at] * table.multiplex[*at]),
            group: None,
        })
        .collect();
    let bound = set.bind(&recorded, &Environment::new());
    let counts = |row: &[String]| -> Vec<Count> {
        events
            .iter()
            .map(|(name, at)| {
                let samples: u64 = row[*at]
                    .parse()
                    .unwrap_or_else(|_| panic!("{name}: {}", row[*at]));
                Count::sampled(
                    samples,
                    samples * table.periods[*at] as u64,
                    table.multiplex[*at],
                )
            })
            .collect()
    };
    // The penalties of the table are the file's.
    for column in set.columns() {
        if let (Some(event), Some(penalty)) = (&column.event, column.penalty)
            && let Some(at) = table.column(event)
        {
            assert_eq!(
                table.penalties[at],
                penalty,
                "{}: penalty of {event}",
                path.display()
            );
        }
    }
    let totals = counts(table.rows.last().expect("a row of totals"));
    let mut evaluator: Evaluator = bound.evaluator(&totals, Mode::Gooda);
    let wrong_path_cycles = set.column("Wrong_path_cycles").expect("in every tree");
    let mut checked = Checked {
        cells: 0,
        wrong_path: 0,
        exceptions: Vec::new(),
    };
    for row in &table.rows {
        let label = row
            .iter()
            .find(|cell| cell.parse::<i64>().is_err() && !cell.is_empty())
            .cloned()
            .unwrap_or_default();
        let cells = evaluator.row(&counts(row));
        for (column, cell) in set.columns().iter().zip(cells) {
            if column.kind == ColumnKind::Event || column.name == WRONGLY_CODED {
                continue;
            }
            let Some(at) = table.column(&column.name) else {
                continue;
            };
            let Cell::Value { value, partial, .. } = cell else {
                panic!("{}: {label}, {}: {cell:?}", path.display(), column.name);
            };
            assert!(!partial, "{}: {} lacks inputs", path.display(), column.name);
            let mut ours = *value;
            if column.name == "branch_misprediction" {
                ours -= cells[wrong_path_cycles].value().expect("was recorded");
            }
            let theirs: f64 = row[at].parse().expect("a number");
            checked.cells += 1;
            if column.name == "Wrong_path_cycles" {
                checked.wrong_path += 1;
            }
            if ours != theirs {
                assert!(
                    OFF_BY_ONE
                        .iter()
                        .any(|(r, c)| label.replace(' ', "") == r.replace(' ', "")
                            && *c == column.name)
                        && (ours - theirs).abs() == 1.0,
                    "{}: {label}, {}: {ours} instead of {theirs}",
                    path.display(),
                    column.name
                );
                checked
                    .exceptions
                    .push((label.clone(), column.name.clone()));
            }
        }
    }
    checked
}

#[test]
fn every_derived_cell_of_the_published_report() {
    let folder = or_skip!(folder());
    let mut tables: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("the folder reads")
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path
                .file_name()
                .and_then(|n| n.to_str())
                .unwrap_or_default();
            name.ends_with("_hotspots.csv") || name == "process.csv"
        })
        .collect();
    tables.sort();
    if tables.is_empty() {
        dioptra_testprograms::skip(format!("no table in {}", folder.display()));
        return;
    }
    let set = set_of(&folder);
    for path in &tables {
        let table = Table::read(path);
        let checked = check(&table, set, path);
        // Nine sums and the wrong path, in each row.
        assert_eq!(checked.cells, 10 * table.rows.len(), "{}", path.display());
        assert_eq!(checked.wrong_path, table.rows.len(), "{}", path.display());
        assert!(
            checked.exceptions.len() <= OFF_BY_ONE.len(),
            "{:?}",
            checked.exceptions
        );
        eprintln!(
            "{}: {} rows, {} cells equal, {} exceptions {:?}",
            path.display(),
            table.rows.len(),
            checked.cells - checked.exceptions.len(),
            checked.exceptions.len(),
            checked.exceptions
        );
    }
}

/// The same tree without truncation: the sums differ from Gooda's by less than one sample for each term.
#[test]
fn exact_mode_is_near_the_truncated_one() {
    let folder = or_skip!(folder());
    let path = folder.join("function_hotspots.csv");
    if !path.is_file() {
        dioptra_testprograms::skip(format!("no {}", path.display()));
        return;
    }
    let table = Table::read(&path);
    let set = set_of(&folder);
    let names: Vec<String> = set
        .needed_events()
        .into_iter()
        .map(|e| e.name)
        .filter(|name| table.column(name).is_some())
        .collect();
    let recorded: Vec<RecordedEvent> = names.iter().map(RecordedEvent::named).collect();
    let bound = set.bind(&recorded, &Environment::new());
    let counts = |row: &[String]| -> Vec<Count> {
        names
            .iter()
            .map(|name| {
                let at = table.column(name).expect("was found before");
                let samples: u64 = row[at].parse().expect("a count");
                Count::sampled(
                    samples,
                    samples * table.periods[at] as u64,
                    table.multiplex[at],
                )
            })
            .collect()
    };
    let totals = counts(table.rows.last().expect("totals"));
    let cycles = table.column("unhalted_core_cycles").expect("the reference");
    let unit = table.periods[cycles] * table.multiplex[cycles];
    let mut exact = bound.evaluator(&totals, Mode::Exact);
    let load = set.column("load_latency").expect("a branch");
    let at = table.column("load_latency").expect("a branch");
    for row in &table.rows {
        let Cell::Value { value, error, .. } = exact.row(&counts(row))[load] else {
            panic!("load_latency has all inputs");
        };
        let theirs: f64 = row[at].parse().expect("a number");
        assert!(value / unit >= theirs - 1.0 && value / unit < theirs + 11.0 + 1.0);
        // One sample of remote DRAM is many cycles: no cell is as sure as its digits.
        assert!(error > 0.0);
    }
}
