//! `cargo xtask bench windows --hardware`: metrics of functions in turns against the same functions alone.
//!
//! `tests/programs/behaviours.c` runs functions of different kinds, in turns or one alone. What one alone has, `perf stat`
//! counts: two runs of different lengths, so that what the program does besides falls out. In turns the functions are
//! recorded with bursts of windows, with steady windows, and by periods of each event, and each function's metric is
//! compared with its own.
//!
//! This benchmark is for machines with hardware counters; `--software` takes faults per millisecond instead, which any machine counts.
//! There the times of a function alone have the kernel's share in them: `period`, which divides by samples in the function
//! itself, is then larger by what the kernel takes.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{build_dioptra, save};

const FUNCTIONS: [&str; 5] = ["divide", "add", "branch", "chase", "touch"];

/// The metrics and programs to compare.
#[derive(clap::Args)]
pub struct HardwareArguments {
    /// With --hardware: how many rounds the program makes
    #[arg(long, default_value_t = 20_000)]
    rounds: u64,
    /// With --hardware: faults per millisecond instead of instructions per cycle
    #[arg(long)]
    software: bool,
}

/// A metric that both can tell.
struct Metric {
    name: &'static str,
    numerator: &'static str,
    denominator: &'static str,
    /// The size of a unit of perf's denominator in units of the metric's.
    scale: f64,
    short: &'static str,
}

const IPC: Metric = Metric {
    name: "ipc",
    numerator: "instructions:u",
    denominator: "cycles:u",
    scale: 1.0,
    short: "300",
};

const FAULTS: Metric = Metric {
    name: "faults_per_ms",
    numerator: "page-faults",
    denominator: "task-clock",
    scale: 1.0,
    short: "100us",
};

/// Runs the bench.
pub fn run(arguments: &HardwareArguments) -> Result<()> {
    let metric = if arguments.software { FAULTS } else { IPC };
    let dioptra = build_dioptra()?;
    let program =
        dioptra_testprograms::c("behaviours", &[]).map_err(|skip| anyhow::anyhow!("{skip}"))?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("perf.data");
    let rounds = arguments.rounds;
    let alone: Vec<f64> = FUNCTIONS
        .iter()
        .map(|function| alone(&metric, &program, function, rounds))
        .collect::<Result<_>>()?;
    let group = format!("{{{},{}}}", metric.denominator, metric.numerator);
    let windows = |spec: String| vec![format!("--windows={spec}"), "-e".into(), group.clone()];
    let ways = [
        (
            "bursts",
            windows(format!("short={},source=refresh", metric.short)),
        ),
        (
            "steady",
            windows(format!("long=0,short={},source=steady", metric.short)),
        ),
        (
            "period",
            windows(format!("short={},source=period", metric.short)),
        ),
    ];
    println!(
        "{:8} {:8} {:>10} {:>10} {:>21} {:>9} {:>8}",
        "recorded", "function", "alone", "in turns", "95 %", "off", "kept"
    );
    let mut rows = Vec::new();
    for (way, options) in &ways {
        let found = match in_turns(&dioptra, &metric, options, &program, rounds, &file) {
            Ok(found) => found,
            Err(error) => {
                println!("{way:8} not possible here: {error:#}");
                continue;
            }
        };
        for (function, alone) in FUNCTIONS.iter().zip(&alone) {
            let Some(row) = found.iter().find(|row| row["function"] == *function) else {
                println!("{way:8} {function:8} {alone:10.3} not in the recording");
                continue;
            };
            let number = |name: &str| row[name].as_f64();
            let of = |suffix: &str| number(&format!("{}{suffix}", metric.name));
            let (Some(value), Some(low), Some(high)) = (of(""), of("_low"), of("_high")) else {
                println!("{way:8} {function:8} {alone:10.3} no windows kept");
                continue;
            };
            // A function without any counted event has no share that could be wrong.
            let off = if alone.abs() < 0.05 {
                String::new()
            } else {
                format!("{:.2}%", 100.0 * (value / alone - 1.0))
            };
            let kept = number("kept_windows").unwrap_or(0.0);
            println!(
                "{way:8} {function:8} {alone:10.3} {value:10.3} {low:10.3} {high:10.3} {off:>9} {kept:8}"
            );
            rows.push(json!({
                "recorded": way, "function": function, "alone": alone, "value": value, "low": low,
                "high": high, "trust": row["trust"], "kept": kept,
            }));
        }
    }
    if rows.is_empty() {
        bail!("nothing could be compared");
    }
    save(
        "windows-hardware",
        json!({ "metric": metric.name, "rounds": rounds, "rows": rows }),
    )
}

/// The metric of a function that runs alone, as `perf stat` counts it: of the longer of two runs what it has more.
fn alone(metric: &Metric, program: &Path, function: &str, rounds: u64) -> Result<f64> {
    let (many, few) = (
        count(metric, program, function, rounds)?,
        count(metric, program, function, rounds / 10)?,
    );
    Ok((many.0 - few.0) / ((many.1 - few.1) * metric.scale))
}

/// Returns the counts of numerator and denominator by `perf stat`.
fn count(metric: &Metric, program: &Path, function: &str, rounds: u64) -> Result<(f64, f64)> {
    let output = Command::new("perf")
        .args(["stat", "-x", ",", "-e"])
        .arg(format!("{},{}", metric.numerator, metric.denominator))
        .arg("--")
        .arg(program)
        .args([function, &rounds.to_string()])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .context("perf stat")?;
    let text = String::from_utf8_lossy(&output.stderr);
    let value = |event: &str| {
        text.lines()
            .map(|line| line.split(',').collect::<Vec<_>>())
            .find(|fields| fields.get(2) == Some(&event))
            .and_then(|fields| fields[0].parse::<f64>().ok())
            .with_context(|| {
                format!(
                    "this machine does not count {event}; `--software` compares what it can: {text}"
                )
            })
    };
    Ok((value(metric.numerator)?, value(metric.denominator)?))
}

/// The rows of `dioptra metrics` of all functions in turns, as objects by column.
fn in_turns(
    dioptra: &Path,
    metric: &Metric,
    options: &[String],
    program: &Path,
    rounds: u64,
    file: &Path,
) -> Result<Vec<Value>> {
    let recorded = Command::new(dioptra)
        .args(["record", "-q", "-o"])
        .arg(file)
        .args(options)
        .arg(program)
        .args(["all", &rounds.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    if !recorded.status.success() {
        bail!("{}", String::from_utf8_lossy(&recorded.stderr).trim());
    }
    let output = Command::new(dioptra)
        .args(["metrics", "--format", "json", "--set", metric.name, "-i"])
        .arg(file)
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let table: Value = serde_json::from_slice(&output.stdout)?;
    let columns: Vec<&str> = table["columns"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|column| column["id"].as_str())
        .collect();
    let rows = table["rows"].as_array().into_iter().flatten();
    Ok(rows
        .map(|row| {
            let cells = row["cells"].as_array().into_iter().flatten();
            columns
                .iter()
                .zip(cells)
                .map(|(column, cell)| ((*column).to_owned(), cell.clone()))
                .collect()
        })
        .collect())
}
