//! `cargo xtask bench trace --read`: what it takes to read a trace, beside uftrace with its own of the same program.
//!
//! The benchmark counts records (entries and exits) in a second of CPU time. It shows that memory does not grow with the
//! trace: each trace is read at one size and at eight times that size.

use super::measure::{self, Run};
use super::trace::nanoseconds;
use super::{build_dioptra, save, scratch, trace_large, version};
use anyhow::{Result, bail};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The size of the large trace relative to the small one.
const TIMES: u64 = 8;
/// At least so many records a second of the peer's.
const TARGET: f64 = 3.0;
/// Memory may differ by so much between the small and the large trace.
const SLACK: u64 = 8 << 20;

/// Name, our arguments, the peer's.
const COMMANDS: [(&str, &[&str], &[&str]); 6] = [
    ("replay", &["replay"], &["replay"]),
    ("report", &["report"], &["report"]),
    ("graph", &["graph"], &["graph"]),
    ("dump", &["dump"], &["dump"]),
    (
        "chrome",
        &["dump", "--format", "chrome"],
        &["dump", "--chrome"],
    ),
    (
        "flame",
        &["dump", "--format", "flame-graph"],
        &["dump", "--flame-graph"],
    ),
];

/// The times of a command in each round.
#[derive(Default)]
struct Measured {
    ours: Vec<Run>,
    peers: Vec<Run>,
    /// The runs of dioptra on the large trace.
    ours_large: Vec<Run>,
    peers_large: Vec<Run>,
}

/// Measures with traces of about so many calls, and eight times as many; then with `large` calls as [`trace_large`] does. `program` counts calls as the trace bench's.
pub fn run(
    program: &Path,
    workloads: &[(&str, u64, u64)],
    uftrace: Option<&Path>,
    rounds: u32,
    large: u64,
) -> Result<()> {
    let dioptra = build_dioptra()?;
    let folder = scratch()?.join("trace-read");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    println!(
        "millions of records a second, as wall time has it (as CPU time has it), medians of {rounds} runs; peak memory in MB of a trace and of one {TIMES} times as long"
    );
    println!(
        "{:8} {:8} {:>8} {:>16} {:>16} {:>14} {:>13} {:>13}",
        "workload", "command", "records", "dioptra", "uftrace", "ratio", "dioptra MB", "uftrace MB"
    );
    let mut rows = Vec::new();
    for (workload, small, large) in workloads {
        let traces = |size: &str, count: u64| -> Result<(PathBuf, PathBuf, u64)> {
            let (ours, theirs) = (
                folder.join(format!("ours-{size}")),
                folder.join(format!("theirs-{size}")),
            );
            let words = [(*workload).to_owned(), count.to_string()];
            let mut command = Command::new(&dioptra);
            command.args(["trace", "record", "-q", "--no-libcall", "--no-sched", "-d"]);
            let records = 2 * calls(command.arg(&ours).arg(program).args(&words))?;
            if let Some(uftrace) = uftrace {
                let mut command = Command::new(uftrace);
                command.args(["record", "--no-libcall", "--no-event", "-d"]);
                calls(command.arg(&theirs).arg(program).args(&words))?;
            }
            Ok((ours, theirs, records))
        };
        let (ours, theirs, _) = traces("small", *small)?;
        let (ours_large, theirs_large, records_large) = traces("large", *large)?;
        for (name, our_words, their_words) in COMMANDS {
            let mut measured = Measured::default();
            for round in 0..rounds {
                let mut turns = [0, 1];
                if round % 2 == 1 {
                    turns.reverse();
                }
                for turn in turns {
                    if turn == 0 {
                        let read = |trace: &Path| {
                            let mut command = Command::new(&dioptra);
                            read(command.arg("trace").args(our_words).arg("-d").arg(trace))
                        };
                        measured.ours.push(read(&ours)?);
                        measured.ours_large.push(read(&ours_large)?);
                    } else if let Some(uftrace) = uftrace {
                        let read = |trace: &Path| {
                            let mut command = Command::new(uftrace);
                            let command = command.args(their_words).arg("--no-pager");
                            read(command.arg("-d").arg(trace))
                        };
                        measured.peers.push(read(&theirs)?);
                        measured.peers_large.push(read(&theirs_large)?);
                    }
                }
            }
            rows.push(row(workload, name, records_large, &measured));
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    let peer = uftrace.map_or(Value::Null, |path| json!(version(path)));
    let large = match large {
        0 => Value::Null,
        calls => trace_large::run(&dioptra, calls, uftrace, rounds)?,
    };
    save(
        "trace-read",
        json!({"rounds": rounds, "uftrace": peer, "rows": rows, "large": large}),
    )
}

/// Measures all commands with one trace of each tool, of a program of this name; `records` are how many each holds. A command
/// that fails is said to.
pub fn read_both(
    name: &str,
    dioptra: &Path,
    uftrace: Option<&Path>,
    [ours, theirs]: &[PathBuf; 2],
    records: [u64; 2],
    rounds: u32,
) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for (command, our_words, their_words) in COMMANDS {
        let mut measured = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let mut command = Command::new(dioptra);
            command.arg("trace").args(our_words).arg("-d").arg(ours);
            measured[0].push(measure::start(&mut command)?.finish(&[])?);
            if let Some(uftrace) = uftrace {
                let mut command = Command::new(uftrace);
                command.args(their_words).arg("--no-pager").arg("-d");
                measured[1].push(measure::start(command.arg(theirs))?.finish(&[])?);
            }
            // Once is enough to see that it does not work.
            if measured.iter().flatten().any(|run| run.failure.is_some()) {
                break;
            }
        }
        let speed = |tool: usize, time: fn(&Run) -> f64| {
            records[tool] as f64 / 1e6 / median(&measured[tool], time)
        };
        let wall = [0, 1].map(|tool| speed(tool, |run| run.wall));
        let cpu = [0, 1].map(|tool| speed(tool, |run| run.cpu));
        let memory = [0, 1].map(|tool| median(&measured[tool], |run| run.peak as f64 / 1e6));
        let failures = measured
            .iter()
            .flatten()
            .find_map(|run| run.failure.as_deref());
        println!(
            "{name:16} {command:8} {:>10} {:>16} {:>16} {:>14} {:>13} {}",
            records[0],
            format!("{:.1} ({:.1})", wall[0], cpu[0]),
            format!("{:.1} ({:.1})", wall[1], cpu[1]),
            format!("{:.1} ({:.1})", wall[0] / wall[1], cpu[0] / cpu[1]),
            format!("{:.0} {:.0} MB", memory[0], memory[1]),
            failures.unwrap_or_default(),
        );
        rows.push(json!({
            "program": name, "command": command, "records": records,
            "millions_of_records_a_second": {"wall": wall, "cpu": cpu}, "target": TARGET,
            "peak_megabytes": memory, "failure": failures,
        }));
    }
    Ok(rows)
}

fn read(command: &mut Command) -> Result<Run> {
    let run = measure::start(command)?.finish(&[])?;
    match &run.failure {
        None => Ok(run),
        Some(why) => bail!("{command:?}: {why}"),
    }
}

pub(super) fn median(runs: &[Run], value: impl Fn(&Run) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn row(workload: &str, name: &str, records: u64, measured: &Measured) -> Value {
    let speed = |runs: &[Run], records: u64, time: fn(&Run) -> f64| {
        records as f64 / 1e6 / median(runs, time)
    };
    let wall: fn(&Run) -> f64 = |run| run.wall;
    let cpu: fn(&Run) -> f64 = |run| run.cpu;
    let ours = [wall, cpu].map(|time| speed(&measured.ours_large, records, time));
    let peers = [wall, cpu].map(|time| speed(&measured.peers_large, records, time));
    let megabytes = |runs: &[Run]| median(runs, |run| run.peak as f64 / 1e6);
    let (memory, memory_large) = (megabytes(&measured.ours), megabytes(&measured.ours_large));
    let (peers_memory, peers_large) =
        (megabytes(&measured.peers), megabytes(&measured.peers_large));
    let ratio = [ours[0] / peers[0], ours[1] / peers[1]];
    let is_flat = (memory_large - memory) * 1e6 < SLACK as f64;
    let pair = |[wall, cpu]: [f64; 2]| format!("{wall:.1} ({cpu:.1})");
    println!(
        "{workload:8} {name:8} {records:8} {:>16} {:>16} {:>14} {:>13} {:>13}{}{}",
        pair(ours),
        pair(peers),
        pair(ratio),
        format!("{memory:.0} → {memory_large:.0}"),
        format!("{peers_memory:.0} → {peers_large:.0}"),
        if ratio[1] < TARGET {
            "  below the target"
        } else {
            ""
        },
        if is_flat { "" } else { "  memory grows" },
    );
    json!({
        "workload": workload, "command": name, "records": records,
        "millions_of_records_a_second": {"dioptra": {"wall": ours[0], "cpu": ours[1]}, "uftrace": {"wall": peers[0], "cpu": peers[1]}},
        "ratio": {"wall": ratio[0], "cpu": ratio[1]}, "target": TARGET,
        "peak_megabytes": {"dioptra": [memory, memory_large], "uftrace": [peers_memory, peers_large]},
        "flat": is_flat,
    })
}

/// Records, and returns how many calls there were.
fn calls(command: &mut Command) -> Result<u64> {
    Ok(nanoseconds(command)?.1 as u64)
}
