//! A published Gooda report holds raw counts, periods, multiplex factors and penalties beside the columns that Gooda
//! made of them. The engine, in Gooda's mode and with the shipped tree, must make the same numbers, cell by cell.
//!
//! Known exceptions, each by its name below: one cell that is off by one, `branch_misprediction` (that report's version
//! of Gooda did not add `Wrong_path_cycles`), and `port_saturation` (Gooda's is wrongly coded). A table prints
//! multiplex factors with four digits, which decides a truncation where counts are large; in other tables than the one
//! whose exception is named, a cell off by one is accepted if a factor within the printed digits makes it, and is
//! listed.

use std::path::{Path, PathBuf};

use dioptra_metrics::{
    Bound, Cell, ColumnKind, Count, Environment, Evaluator, MetricSet, Mode, NeededEvent,
    RecordedEvent,
};
use dioptra_testprograms::{Skip, need_shared_data, or_skip};

/// (row, column): the report has 21057 where its own printed inputs give 21056.
const OFF_BY_ONE: &[(&str, &str)] = &[("Global sample breakdown", "instruction_starvation")];
/// Gooda's code takes the last of six ports instead of the busiest.
const WRONGLY_CODED: &str = "port_saturation";

fn folder() -> Result<PathBuf, Skip> {
    match std::env::var_os("DIOPTRA_GOODA_DIR") {
        Some(folder) => Ok(PathBuf::from(folder)),
        None => need_shared_data("gooda"),
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
        // The flags of cycles are the last head row.
        let data = 1 + lines
            .iter()
            .take(8)
            .position(|row| row.iter().any(|cell| cell == "Cycles"))
            .unwrap_or_else(|| panic!("{}: no head row Cycles", path.display()));
        Self {
            names: lines[0].clone(),
            periods: numbers("Period"),
            multiplex: numbers("Multiplex"),
            penalties: numbers("Penalty"),
            rows: lines[data..].to_vec(),
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

#[derive(Default)]
struct Checked {
    rows: usize,
    cells: usize,
    wrong_path: usize,
    /// Off by one, by name.
    named: Vec<(String, String)>,
    /// Off by one, within the printed digits of the multiplex factors.
    by_printing: Vec<(String, String)>,
}

/// Half of the last printed digit of a multiplex factor.
const HALF_DIGIT: f64 = 0.00005;

/// Where an event of the tree stands in the table; the table may use another spelling.
fn find(table: &Table, event: &NeededEvent) -> Option<usize> {
    std::iter::once(&event.name)
        .chain(&event.aka)
        .find_map(|name| table.column(name))
}

/// The tree bound to the table's events, and how a row's counts are made. `nudge` moves each event's factor within its
/// printed digits so that costs grow (1) or shrink (-1).
struct Reader<'t> {
    table: &'t Table,
    events: Vec<(String, usize)>,
    nudge: f64,
    reference: usize,
}

impl<'t> Reader<'t> {
    fn new(table: &'t Table, set: &MetricSet, nudge: f64) -> Self {
        let events: Vec<(String, usize)> = set
            .needed_events()
            .into_iter()
            .filter_map(|e| Some((e.name.clone(), find(table, &e)?)))
            .collect();
        let reference = set.reference.as_deref().expect("a tree has one");
        let reference = table.column(reference).expect("the table has the cycles");
        Self {
            table,
            events,
            nudge,
            reference,
        }
    }

    fn multiplex(&self, at: usize) -> f64 {
        // Costs are divided by the reference's weight, and retired operations stand on the right of a minus.
        let against = at == self.reference || self.table.names[at].contains("retire_slots");
        let sign = if against { -self.nudge } else { self.nudge };
        self.table.multiplex[at] + sign * HALF_DIGIT
    }

    fn bind(&self, set: &MetricSet) -> Bound {
        let recorded: Vec<RecordedEvent> = self
            .events
            .iter()
            .map(|(name, at)| RecordedEvent {
                name: name.clone(),
                period: Some(self.table.periods[*at] * self.multiplex(*at)),
                group: None,
            })
            .collect();
        set.bind(&recorded, &Environment::new())
    }

    fn counts(&self, row: &[String]) -> Vec<Count> {
        self.events
            .iter()
            .map(|(name, at)| {
                let samples: u64 = row[*at]
                    .parse()
                    .unwrap_or_else(|_| panic!("{name}: {:?}", row[*at]));
                let weight = samples * self.table.periods[*at] as u64;
                Count::sampled(samples, weight, self.multiplex(*at))
            })
            .collect()
    }
}

fn check(table: &Table, set: &MetricSet, path: &Path) -> Checked {
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
    let readers = [0.0, -1.0, 1.0].map(|nudge| Reader::new(table, set, nudge));
    let bounds = readers.each_ref().map(|reader| reader.bind(set));
    let total_row = table.rows.last().expect("a row of totals");
    let mut evaluators: Vec<Evaluator<'_>> = bounds
        .iter()
        .zip(&readers)
        .map(|(bound, reader)| bound.evaluator(&reader.counts(total_row), Mode::Gooda))
        .collect();
    let wrong_path_cycles = set.column("Wrong_path_cycles").expect("in every tree");
    let mut checked = Checked::default();
    for row in &table.rows {
        if row[readers[0].reference].is_empty() {
            // A child row of calls: one filled column, nothing derived.
            continue;
        }
        checked.rows += 1;
        let label = row
            .iter()
            .find(|cell| cell.parse::<i64>().is_err() && !cell.is_empty())
            .cloned()
            .unwrap_or_default();
        let cells: Vec<Vec<Cell>> = evaluators
            .iter_mut()
            .zip(&readers)
            .map(|(evaluator, reader)| evaluator.row(&reader.counts(row)).to_vec())
            .collect();
        for (i, column) in set.columns().iter().enumerate() {
            if column.kind == ColumnKind::Event || column.name == WRONGLY_CODED {
                continue;
            }
            let Some(at) = table.column(&column.name) else {
                continue;
            };
            let ours: Vec<f64> = cells
                .iter()
                .map(|cells| {
                    let Cell::Value { value, partial, .. } = cells[i] else {
                        panic!(
                            "{}: {label}, {}: {:?}",
                            path.display(),
                            column.name,
                            cells[i]
                        );
                    };
                    assert!(!partial, "{}: {} lacks inputs", path.display(), column.name);
                    match column.name.as_str() {
                        "branch_misprediction" => {
                            value - cells[wrong_path_cycles].value().expect("was recorded")
                        }
                        _ => value,
                    }
                })
                .collect();
            let theirs: f64 = row[at].parse().expect("a number");
            checked.cells += 1;
            checked.wrong_path += usize::from(column.name == "Wrong_path_cycles");
            if ours[0] == theirs {
                continue;
            }
            let cell = (label.clone(), column.name.clone());
            let explained =
                (ours[0] - theirs).abs() == 1.0 && ours[1] <= theirs && theirs <= ours[2];
            assert!(
                explained,
                "{}: {cell:?}: {} instead of {theirs}",
                path.display(),
                ours[0]
            );
            if OFF_BY_ONE.contains(&(label.as_str(), column.name.as_str())) {
                checked.named.push(cell);
            } else {
                checked.by_printing.push(cell);
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
        assert_eq!(checked.cells, 10 * checked.rows, "{}", path.display());
        assert_eq!(checked.wrong_path, checked.rows, "{}", path.display());
        assert!(
            checked.named.len() <= OFF_BY_ONE.len(),
            "{:?}",
            checked.named
        );
        // The known table has its named exception and no other.
        let few = match path.file_name().and_then(|n| n.to_str()) {
            Some("function_hotspots.csv") if checked.rows == 2047 => 0,
            _ => 2 + checked.cells / 100,
        };
        assert!(
            checked.by_printing.len() <= few,
            "{:?}",
            checked.by_printing
        );
        eprintln!(
            "{}: {} rows, {} cells equal, off by one: {:?}, by the printed digits: {:?}",
            path.display(),
            checked.rows,
            checked.cells - checked.named.len() - checked.by_printing.len(),
            checked.named,
            checked.by_printing
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
