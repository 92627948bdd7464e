//! Recordings, stores and the programs that tests run.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod bucket;

use dioptra_testprograms::{self as programs, Skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// The sums of samples and weights by function and module.
pub type Totals = BTreeMap<(String, String), (i64, i64)>;

/// Returns the `dioptra` binary: that of the variable `DIOPTRA`, else the one of the repository's target folder.
pub fn dioptra() -> Result<PathBuf, Skip> {
    let target = programs::repository_root().join("target");
    let built = ["debug/dioptra", "release/dioptra"].map(|name| target.join(name));
    let named = std::env::var_os("DIOPTRA").map(PathBuf::from);
    let found = named.into_iter().chain(built).find(|path| path.is_file());
    found.ok_or_else(|| Skip::new("there is no dioptra; `cargo xtask store` builds it"))
}

/// Returns a Python that has a module.
pub fn python_with(module: &str) -> Result<PathBuf, Skip> {
    let named = std::env::var_os("DIOPTRA_PYTHON").map(PathBuf::from);
    let python = named.map_or_else(|| programs::need_tool("python3"), Ok)?;
    let import = format!("import {module}");
    let output = Command::new(&python).args(["-c", &import]).output();
    match output.is_ok_and(|output| output.status.success()) {
        true => Ok(python),
        false => Err(Skip::new(format!(
            "Python has no {module} (pip install {module}; DIOPTRA_PYTHON names another Python)"
        ))),
    }
}

/// Returns the command of the program under test.
pub fn store_command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_dioptra-store"))
}

/// Runs the program under test, which must succeed, and returns what it prints.
pub fn run<const N: usize>(words: [&str; N]) -> String {
    text(&checked(store_command().args(words)))
}

/// Runs a command that must succeed.
pub fn checked(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// Returns what a command printed.
pub fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns a path as text.
pub fn word(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A folder with a recording, and room for stores.
pub struct Recording {
    pub folder: TempDir,
    pub file: PathBuf,
}

impl Recording {
    /// Records a test program for a fraction of a second.
    pub fn of(program: &str, words: &[&str], options: &[&str]) -> Result<Recording, Skip> {
        programs::need_sampling()?;
        let dioptra = dioptra()?;
        let program = programs::c(program, &[])?;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("perf.data");
        checked(
            Command::new(dioptra)
                .args(["record", "-o", word(&file)])
                .args(options)
                .arg("--")
                .arg(program)
                .args(words)
                .current_dir(folder.path()),
        );
        Ok(Recording { folder, file })
    }

    /// Returns a path for a store.
    pub fn store(&self) -> String {
        word(&self.folder.path().join("store")).to_owned()
    }

    /// Adds the recording to a store.
    pub fn add_to(&self, store: &str) {
        run(["add", word(&self.file), "--to", store, "--service", "web"]);
    }

    /// Returns the sums that `dioptra report` shows of the recording's only event.
    pub fn report(&self) -> Totals {
        let report = checked(
            Command::new(dioptra().unwrap_or_else(|skip| panic!("{skip:?}"))).args([
                "report",
                "--inline",
                "-i",
                word(&self.file),
                "--format",
                "json",
            ]),
        );
        let report: Value = serde_json::from_str(&text(&report)).unwrap();
        let columns = report["columns"].as_array().unwrap();
        let place = |id: &str| {
            columns
                .iter()
                .position(|column| column["id"] == id)
                .unwrap()
        };
        let [samples, weight, module, function] =
            ["samples", "weight", "module", "function"].map(place);
        let mut totals = Totals::new();
        for row in report["rows"].as_array().unwrap() {
            let cells = row["cells"].as_array().unwrap();
            let name = |place: usize| cells[place].as_str().unwrap().to_owned();
            let number = |place: usize| cells[place].as_i64().unwrap();
            // Functions that differ in their address only are one here and in the store.
            let sum = totals.entry((name(function), name(module))).or_default();
            sum.0 += number(samples);
            sum.1 += number(weight);
        }
        totals
    }
}

/// Traces the calls of a test program. Returns the folder that holds the trace, and the trace.
pub fn trace(program: &str, words: &[&str], options: &[&str]) -> Result<(TempDir, PathBuf), Skip> {
    let dioptra = dioptra()?;
    let program = programs::c(program, &[])?;
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("dioptra.trace");
    let mut record = Command::new(dioptra);
    record
        .args(["trace", "record", "-d", word(&trace)])
        .args(options);
    let output = record.arg("--").arg(program).args(words).output().unwrap();
    if !trace.join("info.json").exists() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(Skip::new(format!("nothing can be traced here: {said}")));
    }
    Ok((folder, trace))
}

/// Records a test program with windows. Returns the folder that holds the recording, and the recording.
pub fn windows() -> Result<(TempDir, PathBuf), Skip> {
    programs::need_sampling()?;
    let program = programs::c("windows", &["-no-pie"])?;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("perf.data");
    let mut record = Command::new(dioptra()?);
    record.args([
        "record",
        "-g",
        "-o",
        word(&file),
        "--windows=long=1ms,short=10,jitter=3,batch=3",
        "-e",
        "{page-faults,task-clock,minor-faults}",
        "--",
    ]);
    checked(record.arg(program).arg("200"));
    Ok((folder, file))
}

/// The query whose rows are [`Totals`], in SQL that every engine understands.
pub const TOTALS: &str = "SELECT function, module, sum(samples) AS samples, sum(weight) AS weight \
     FROM samples GROUP BY function, module";

/// Returns the totals that a store answers.
pub fn totals(store: &str) -> Totals {
    let answer = run(["query", "--store", store, "--format", "json", TOTALS]);
    totals_of(&serde_json::from_str(&answer).unwrap())
}

/// Returns the totals of rows with the columns of [`TOTALS`].
pub fn totals_of(rows: &Value) -> Totals {
    let rows = rows.as_array().unwrap().iter();
    let name = |row: &Value, column: &str| row[column].as_str().unwrap().to_owned();
    let number = |row: &Value, column: &str| row[column].as_i64().unwrap();
    rows.map(|row| {
        (
            (name(row, "function"), name(row, "module")),
            (number(row, "samples"), number(row, "weight")),
        )
    })
    .collect()
}

/// Returns the only file with rows below a table's folder.
pub fn only_file(folder: &Path) -> PathBuf {
    let files = files_below(folder);
    let [file] = &*files else { panic!("{files:?}") };
    file.clone()
}

/// Returns the files below a folder of a store, without the one of each table that has no rows.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false if path.ends_with("no-rows.parquet") => {}
            false => files.push(path),
        }
    }
    files.sort();
    files
}

/// Writes a copy of a recording that has other bytes and the same content: a number follows its end.
pub fn distinct_copy(from: &Path, to: &Path, number: usize) {
    let mut bytes = std::fs::read(from).unwrap();
    // Bytes at the end that no section names are no damage.
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&number.to_le_bytes());
    std::fs::write(to, bytes).unwrap();
}
