//! `dioptra report` over several dimensions, `sum` and `diff`: sums are exact, and equal to perf's on the same files.

mod diff;
mod errors;
mod levels;
mod metrics;
mod namesakes;
mod sum;
mod working_set;

use dioptra_testprograms::{self as programs, perf_record as record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn dioptra<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dioptra"))
        .args(arguments)
        .env_remove("DIOPTRA_PMU_DATA")
        .output()
        .expect("dioptra runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The standard output of a command that must succeed.
fn shown<S: AsRef<OsStr>>(arguments: &[S]) -> String {
    let output = dioptra(arguments);
    let command: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// A row of a table: its id and parent, and its cells by column id.
#[derive(Clone, Debug)]
struct Row {
    id: u64,
    parent: Option<u64>,
    cells: BTreeMap<String, Value>,
    errors: Value,
    notes: Value,
}

impl Row {
    fn text(&self, column: &str) -> &str {
        self.cells[column].as_str().unwrap_or_default()
    }

    fn count(&self, column: &str) -> u64 {
        let cell = &self.cells[column];
        cell.as_u64().unwrap_or_else(|| panic!("{column}: {cell}"))
    }

    fn number(&self, column: &str) -> Option<f64> {
        self.cells[column].as_f64()
    }
}

/// A table as JSON has it.
#[derive(Clone, Debug)]
struct Table {
    facts: Value,
    columns: Vec<String>,
    rows: Vec<Row>,
}

fn table<S: AsRef<OsStr>>(arguments: &[S]) -> Table {
    let mut all: Vec<&OsStr> = arguments.iter().map(AsRef::as_ref).collect();
    all.extend(["--format".as_ref(), "json".as_ref()] as [&OsStr; 2]);
    let output = dioptra(&all);
    // A damaged file gives a table of what is there.
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{all:?}: {error}: {}", text(&output.stderr)));
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let columns: Vec<String> = list(&json["columns"])
        .iter()
        .map(|column| column["id"].as_str().expect("an id").to_owned())
        .collect();
    let rows = list(&json["rows"]);
    let rows = rows.iter().map(|row| Row {
        id: row["id"].as_u64().expect("an id"),
        parent: row["parent"].as_u64(),
        cells: columns.iter().cloned().zip(list(&row["cells"])).collect(),
        errors: row["standard_errors"].clone(),
        notes: row["notes"].clone(),
    });
    Table {
        facts: json["facts"].clone(),
        rows: rows.collect(),
        columns,
    }
}

fn report(file: &Path, arguments: &[&str]) -> Table {
    let mut all: Vec<&OsStr> = vec!["report".as_ref(), "-i".as_ref(), file.as_ref()];
    all.extend(arguments.iter().map(AsRef::<OsStr>::as_ref));
    table(&all)
}

impl Table {
    /// The columns whose numbers add up.
    fn sums(&self) -> Vec<&str> {
        let adds = |id: &str| {
            ["samples", "weight"].iter().any(|name| {
                let rest = id.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('['))
            })
        };
        let columns = self.columns.iter().map(String::as_str);
        columns.filter(|id| adds(id)).collect()
    }

    /// The sums of a column's numbers over the rows that pass, by the texts of some columns.
    fn by(
        &self,
        column: &str,
        names: &[&str],
        pass: impl Fn(&Row) -> bool,
    ) -> BTreeMap<Vec<String>, u64> {
        let mut sums = BTreeMap::new();
        for row in self.rows.iter().filter(|row| pass(row)) {
            let key = names.iter().map(|name| match &row.cells[*name] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            });
            let count = row.count(column);
            if count > 0 {
                *sums.entry(key.collect()).or_default() += count;
            }
        }
        sums
    }

    fn total(&self, column: &str) -> u64 {
        let top = self.rows.iter().filter(|row| row.parent.is_none());
        top.map(|row| row.count(column)).sum()
    }

    /// Checks that each row with rows below it is their exact sum.
    fn assert_sums(&self, what: &str) {
        for column in self.sums() {
            let mut below: BTreeMap<u64, u64> = BTreeMap::new();
            for row in &self.rows {
                if let Some(parent) = row.parent {
                    *below.entry(parent).or_default() += row.count(column);
                }
            }
            for row in self.rows.iter().filter(|row| below.contains_key(&row.id)) {
                assert_eq!(
                    row.count(column),
                    below[&row.id],
                    "{what}: {column}: {row:?}"
                );
            }
        }
    }
}

/// The files of others that there are.
fn shared_files() -> Vec<PathBuf> {
    let folder = match programs::need_shared_data("perfdata") {
        Ok(folder) => folder,
        Err(skip) => {
            skip.print();
            return Vec::new();
        }
    };
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().contains(".data")
        })
        .collect();
    files.sort();
    files
}
