//! The checks: each step is a script for the guest, and what its results must be.

mod errors;
mod groups;
mod sampling;
mod stacks;
mod whole;
mod windows;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::programs::{self, Program};
use super::table::Table;
use crate::root;

/// The programs that the guest has, with what is known of them.
pub struct Guest {
    /// `steps`: three functions with 60, 30 and 10 % of the instructions.
    pub steps: Program,
    /// The same for longer, and for much longer.
    medium: Program,
    /// See `medium`.
    long: Program,
    /// `rates`: three functions with known rates of faults and calls.
    pub rates: Program,
    /// The same with fewer faults for the time, for windows.
    pub windows: Program,
    /// The same with a tenth of the faults, so that what the kernel does for them hardly shows in the program's time.
    seldom: Program,
    /// One round of it.
    seldom_round: Program,
    /// One round of `windows`, for its truth.
    pub round: Program,
    /// `pair`: the same functions in two threads.
    pub pair: Program,
    /// `frames`: callers that only unwinding finds.
    frames: Program,
    /// `counts`: runs a program under counters of its own.
    counts: Program,
}

/// Rounds of `long`: enough for counters that take turns of 4 ms.
pub const LONG: u64 = 1500;
/// Rounds of `medium`: some ten bursts, and 100,000 short periods.
const MEDIUM: u64 = 500;
/// The turns of the loops of `windows`: half of the time is the kernel's, which serves the faults.
const WINDOWS: [(&str, u64); 3] = [("QUIET", 20_000), ("FAULTING", 1), ("CALLING", 500)];
/// The work between two faults of `seldom`.
const SELDOM: (&str, u64) = ("WORK", 1552);
/// Rounds of `windows`.
pub const ROUNDS: u64 = 600;
/// The length of one call of each function of `rates`; the rounds make the program.
const RATES: [(&str, u64); 4] = [
    ("QUIET", 20_000),
    ("FAULTING", 6),
    ("CALLING", 500),
    ("ROUNDS", 100),
];

/// `rates.S` with the loops of `windows`.
fn rates(folder: &Path, name: &str, rounds: u64, more: &[(&str, u64)]) -> Result<Program> {
    let turns = [WINDOWS.as_slice(), &[("ROUNDS", rounds)], more].concat();
    programs::assemble(folder, name, "rates.S", &turns)
}

impl Guest {
    /// Builds the programs.
    pub fn build(folder: &Path) -> Result<Guest> {
        // Its threads do together what `windows` does.
        let turns: Vec<_> = WINDOWS
            .iter()
            .map(|(name, value)| format!("-Wa,--defsym,{name}={value}"))
            .collect();
        let mut pair = vec!["-O2"];
        let rounds = format!("-DROUNDS={ROUNDS}");
        pair.push(&rounds);
        pair.extend(turns.iter().map(String::as_str));
        Ok(Guest {
            steps: programs::assemble(folder, "steps", "steps.S", &[("ROUNDS", 100)])?,
            medium: programs::assemble(folder, "medium", "steps.S", &[("ROUNDS", MEDIUM)])?,
            long: programs::assemble(folder, "long", "steps.S", &[("ROUNDS", LONG)])?,
            rates: programs::assemble(folder, "rates", "rates.S", &RATES)?,
            windows: rates(folder, "windows", ROUNDS, &[])?,
            seldom: rates(folder, "seldom", ROUNDS, &[SELDOM])?,
            seldom_round: rates(folder, "seldom-round", 1, &[SELDOM])?,
            round: rates(folder, "round", 1, &[])?,
            pair: programs::build(folder, "pair", &["pair.c", "pair.S"], &pair)?,
            frames: programs::build(
                folder,
                "frames",
                &["frames.c"],
                &["-O2", "-fomit-frame-pointer"],
            )?,
            counts: programs::build(folder, "counts", &["counts.c"], &["-O2"])?,
        })
    }

    /// The programs as files for the guest's `/bin`.
    pub fn files(&self) -> Vec<(String, PathBuf)> {
        let programs = [
            &self.steps,
            &self.medium,
            &self.long,
            &self.rates,
            &self.windows,
            &self.seldom,
            &self.pair,
            &self.frames,
            &self.counts,
        ];
        let file = |program: &&Program| {
            let name = program.path.file_name().unwrap_or_default();
            (
                format!("bin/{}", name.to_string_lossy()),
                program.path.clone(),
            )
        };
        let mut files: Vec<_> = programs.iter().map(file).collect();
        files.push((
            "rates.toml".to_string(),
            root().join("tests/pmu/rates.toml"),
        ));
        files
    }
}

/// A step's check of its results.
type Check = fn(&Guest, &Results, &mut Table) -> Result<()>;

/// One step.
pub struct Step {
    /// Its name, and that of its folder.
    pub name: &'static str,
    /// The commands that the guest runs in the folder; see the prelude in `machine`.
    pub lines: String,
    /// The comparison of the results with the expected values.
    pub check: Check,
}

/// All steps.
pub fn steps(guest: &Guest) -> Result<Vec<Step>> {
    let mut steps = sampling::steps();
    steps.extend(groups::steps());
    steps.extend(stacks::steps());
    steps.extend(whole::steps(guest)?);
    steps.extend(errors::steps());
    steps.extend(windows::steps(guest)?);
    Ok(steps)
}

/// The files and outputs of one step.
pub struct Results {
    folder: PathBuf,
}

impl Results {
    /// The results of the step `name` below `folder`.
    pub fn new(folder: &Path, name: &str) -> Results {
        Results {
            folder: folder.join(name),
        }
    }

    /// A file's path.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// A file's text.
    pub fn text(&self, file: &str) -> Result<String> {
        let path = self.path(file);
        let bytes = fs::read(&path).with_context(|| format!("no result {}", path.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the standard output of a command of `run NAME …`, if the command succeeded.
    pub fn output(&self, name: &str) -> Result<String> {
        let status = self.status(name)?;
        if status != 0 {
            let said = self.text(&format!("{name}.err"))?;
            anyhow::bail!("{name}: status {status}: {}", said.trim());
        }
        self.text(&format!("{name}.out"))
    }

    /// The exit status of `run NAME …`.
    pub fn status(&self, name: &str) -> Result<i32> {
        Ok(self.text(&format!("{name}.status"))?.trim().parse()?)
    }

    /// A whole output as JSON.
    pub fn json(&self, name: &str) -> Result<Value> {
        serde_json::from_str(&self.output(name)?).with_context(|| format!("{name} is no JSON"))
    }

    /// An output of one JSON object a line.
    pub fn lines(&self, name: &str) -> Result<Vec<Value>> {
        self.output(name)?
            .lines()
            .map(|line| {
                serde_json::from_str(line).with_context(|| format!("{name}: `{line}` is no JSON"))
            })
            .collect()
    }

    /// The numbers that `counts` printed.
    pub fn counts(&self, name: &str) -> Result<BTreeMap<String, u64>> {
        self.output(name)?
            .lines()
            .map(|line| {
                let (event, value) = line.split_once(' ').context("counts prints `EVENT N`")?;
                Ok((event.to_string(), value.parse()?))
            })
            .collect()
    }
}

/// The column of a table (`report --format json`) by its id, and its event where there are several: those of the second
/// are called `ID_2`.
pub fn column(table: &Value, id: &str, event: Option<&str>) -> Result<usize> {
    let number = |found: &str| {
        found
            .strip_prefix(id)?
            .strip_prefix('_')?
            .parse::<u32>()
            .ok()
    };
    let is = |column: &Value| {
        let found = column["id"].as_str().unwrap_or_default();
        found == id || (event.is_some() && number(found).is_some())
    };
    table["columns"]
        .as_array()
        .and_then(|columns| {
            columns
                .iter()
                .position(|column| is(column) && event.is_none_or(|event| column["event"] == event))
        })
        .with_context(|| format!("the table has no column {id}"))
}

/// A number that a cell may hold: a count, or a scaled one.
pub trait Number: Copy + Default + std::ops::Add<Output = Self> {
    /// The cell's number, zero if it has none.
    fn of(cell: &Value) -> Self;
}

impl Number for u64 {
    fn of(cell: &Value) -> u64 {
        cell.as_u64().unwrap_or(0)
    }
}

impl Number for f64 {
    fn of(cell: &Value) -> f64 {
        cell.as_f64().unwrap_or(0.0)
    }
}

/// The values of the outermost rows in the column `of`, by their names in the column `by`; of rows with the same name the
/// sum.
pub fn by_name<T: Number>(table: &Value, by: &str, of: usize) -> Result<BTreeMap<String, T>> {
    let by = column(table, by, None)?;
    let mut sums = BTreeMap::<String, T>::new();
    let rows = table["rows"].as_array().context("the table has no rows")?;
    for row in rows.iter().filter(|row| row["parent"].is_null()) {
        let cells = &row["cells"];
        let name = cells[by].as_str().unwrap_or_default().to_string();
        let sum = sums.entry(name).or_default();
        *sum = *sum + T::of(&cells[of]);
    }
    Ok(sums)
}

/// The texts of a table's facts of one severity.
pub fn facts(table: &Value, severity: &str) -> Vec<String> {
    let facts = table["facts"].as_object().into_iter().flatten();
    facts
        .filter(|(_, fact)| fact["severity"] == severity)
        .filter_map(|(_, fact)| fact["text"].as_str().map(str::to_string))
        .collect()
}

/// A number that dump writes as `0x…`.
pub fn address(value: &Value) -> Result<u64> {
    let text = value.as_str().context("no address")?;
    Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
}
