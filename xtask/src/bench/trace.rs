//! `cargo xtask bench trace`: what a traced call takes, beside uftrace and beside no tracing at all.
//!
//! Three workloads: `fib`, a loop around a tiny function, and `big`, a thousand functions that call each other, where
//! branches and caches are what they are in real programs. The program measures the CPU time of its own thread, so that
//! what other programs do to the machine matters little; runs take turns.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use dioptra_testprograms::{Language, Program};
use serde_json::{Value, json};

use super::{build, save, scratch, version};

/// The measurements to make.
#[derive(Args)]
pub struct Arguments {
    /// The number of rounds
    #[arg(long, default_value_t = 5)]
    pub(super) rounds: u32,
    /// Calls of a run, about
    #[arg(long, default_value_t = 3_000_000)]
    calls: u64,
    /// Not uftrace
    #[arg(long)]
    without_peer: bool,
    /// Measure calls that sampling leaves out instead of recorded ones
    #[arg(long, conflicts_with_all = ["read", "real"])]
    pub(super) sampled: bool,
    /// Measure how fast traces are read, instead of recording
    #[arg(long)]
    pub(super) read: bool,
    /// With --read: calls of the traces that are read with filters, in parts, of 200 threads and of 100,000 functions (32 bytes each
    /// in uftrace's trace, 6 in ours); 0 leaves these out
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50_000_000,
        requires = "read"
    )]
    large: u64,
    /// Real programs: interpreters, a compiler, a data base, a parser; with --read, how fast their traces are read, too
    #[arg(long)]
    real: bool,
    /// Only real programs whose names contain this, such as "sqlite"
    #[arg(long, requires = "real")]
    pub(super) only: Option<String>,
}

/// A way to make functions traceable.
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) flags: &'static [&'static str],
    pub(super) ours: &'static [&'static str],
    peers: &'static [&'static str],
    /// The most that a call may take beside the peer's.
    target: f64,
}

pub(super) const METHODS: [Method; 5] = [
    Method {
        name: "fentry",
        flags: &["-pg", "-mfentry"],
        ours: &[],
        peers: &[],
        target: 0.33,
    },
    Method {
        name: "patchable",
        flags: &["-fpatchable-function-entry=5"],
        ours: &[],
        peers: &["-P", "."],
        target: 0.33,
    },
    Method {
        name: "plain",
        flags: &[],
        ours: &["-P"],
        peers: &["-P", "."],
        target: 0.33,
    },
    Method {
        name: "mcount",
        flags: &["-pg"],
        ours: &[],
        peers: &[],
        target: 0.5,
    },
    Method {
        name: "cygprof",
        flags: &["-finstrument-functions"],
        ours: &[],
        peers: &[],
        target: 0.5,
    },
];

#[derive(Default)]
struct Measured {
    plain: Vec<f64>,
    ours: Vec<f64>,
    peers: Vec<f64>,
    bytes: f64,
    /// The share of calls that the peer has traced.
    share: f64,
}

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.sampled {
        return super::trace_sampled::run(arguments);
    }
    if arguments.real {
        return super::trace_real::run(arguments);
    }
    if arguments.read {
        return read(arguments);
    }
    let tracer = build(&["--package", "dioptra-trace-recorder", "--example", "trace"])?;
    let uftrace = peer(arguments)?;
    let folder = scratch()?.join("trace");
    std::fs::create_dir_all(&folder)?;
    let workloads = workloads(arguments);
    let mut results: BTreeMap<(usize, usize), Measured> = BTreeMap::new();
    for round in 0..arguments.rounds {
        for (at, method) in METHODS.iter().enumerate() {
            let program = program(method)?;
            for (number, (workload, count)) in workloads.iter().enumerate() {
                let count = count.to_string();
                let words = [*workload, &count];
                let measured = results.entry((number, at)).or_default();
                measured
                    .plain
                    .push(nanoseconds(Command::new(&program).args(words))?.0);
                let ours = |measured: &mut Measured| {
                    let trace = folder.join("ours");
                    let mut command = Command::new(&tracer);
                    command
                        .args(method.ours)
                        .args(["--no-libcall", "-d"])
                        .arg(&trace);
                    let (time, calls) = nanoseconds(command.arg(&program).args(words))?;
                    measured.ours.push(time);
                    let size = std::fs::metadata(trace.join("records"))?.len();
                    measured.bytes = size as f64 / calls;
                    anyhow::Ok(())
                };
                let theirs = |measured: &mut Measured| {
                    let Some(uftrace) = &uftrace else {
                        return Ok(());
                    };
                    let mut command = Command::new(uftrace);
                    command
                        .args(["record", "--no-libcall", "--no-event"])
                        .args(method.peers);
                    command
                        .arg("-d")
                        .arg(folder.join("theirs"))
                        .arg(&program)
                        .args(words);
                    let (time, calls) = nanoseconds(&mut command)?;
                    measured.peers.push(time);
                    measured.share = records(&folder.join("theirs"))? / PEERS_BYTES / calls;
                    anyhow::Ok(())
                };
                if round % 2 == 0 {
                    ours(measured)?;
                    theirs(measured)?;
                } else {
                    theirs(measured)?;
                    ours(measured)?;
                }
            }
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    print(&workloads, &results, uftrace.as_deref(), arguments)
}

pub(super) fn peer(arguments: &Arguments) -> Result<Option<PathBuf>> {
    if arguments.without_peer {
        return Ok(None);
    }
    let uftrace = dioptra_testprograms::need_tool("uftrace").map_err(|skip| {
        anyhow::anyhow!("{skip}; it is the peer to compare with (--without-peer does without)")
    })?;
    Ok(Some(uftrace))
}

/// Reading traces of about so many calls, and of an eighth of them.
fn read(arguments: &Arguments) -> Result<()> {
    let program = program(&METHODS[0])?;
    let (small, large) = (arguments.calls / 8, arguments.calls);
    let workloads = [
        ("fib", fib_argument(small), fib_argument(large)),
        ("loop", small, large),
        ("big", small / 15, large / 15),
    ];
    let uftrace = peer(arguments)?;
    super::trace_read::run(
        &program,
        &workloads,
        uftrace.as_deref(),
        arguments.rounds,
        arguments.large,
    )
}

/// Bytes that uftrace writes for a call.
pub(super) const PEERS_BYTES: f64 = 32.0;

/// Bytes of the records in uftrace's directory.
pub(super) fn records(folder: &Path) -> Result<f64> {
    let mut size = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_records = name
            .strip_suffix(".dat")
            .is_some_and(|tid| tid.bytes().all(|byte| byte.is_ascii_digit()));
        if is_records {
            size += entry.metadata()?.len();
        }
    }
    Ok(size as f64)
}

/// The number whose computation makes about so many calls.
fn fib_argument(calls: u64) -> u64 {
    let (mut before, mut now, mut n) = (1, 1, 1);
    while now < calls {
        (before, now) = (now, now + before + 1);
        n += 1;
    }
    n
}

pub(super) fn program(method: &Method) -> Result<PathBuf> {
    Program::new(Language::C, "trace-calls")
        .no_flags()
        .flags(["-O1", "-fno-inline", "-fno-optimize-sibling-calls"])
        .flags(method.flags.iter().copied())
        .build()
        .map_err(|skip| anyhow::anyhow!("{skip}"))
}

/// Nanoseconds of a call, and the number of calls, as the program says.
pub(super) fn nanoseconds(command: &mut Command) -> Result<(f64, f64)> {
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let words = text
        .lines()
        .find_map(|line| line.strip_prefix("calls ")?.split_once(" ns "));
    let Some((calls, time)) = words else {
        bail!("{command:?} failed: {text}");
    };
    let (calls, time): (f64, f64) = (calls.parse()?, time.trim().parse()?);
    Ok((time / calls, calls))
}

/// The workloads, each with the number that it is given.
pub(super) fn workloads(arguments: &Arguments) -> [(&'static str, u64); 3] {
    [
        ("fib", fib_argument(arguments.calls)),
        ("loop", arguments.calls),
        ("big", arguments.calls / 15),
    ]
}

pub(super) fn minimum_and_median(values: &[f64]) -> (f64, f64) {
    (minimum(values), median(values))
}

fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(
    workloads: &[(&str, u64)],
    results: &BTreeMap<(usize, usize), Measured>,
    uftrace: Option<&Path>,
    arguments: &Arguments,
) -> Result<()> {
    println!(
        "ns of CPU time for a call, less one of the uninstrumented program: minimum (median) of {} runs",
        arguments.rounds
    );
    println!(
        "{:8} {:10} {:>8} {:>16} {:>16} {:>7} {:>7} {:>7}",
        "workload", "method", "untraced", "dioptra", "uftrace", "ratio", "target", "bytes"
    );
    let mut rows = Vec::new();
    for ((number, at), measured) in results {
        let (workload, _) = workloads[*number];
        let method = &METHODS[*at];
        // The time of an uninstrumented program: hooks that do nothing are part of a method's price.
        let uninstrumented = METHODS.iter().position(|method| method.flags.is_empty());
        let plain = uninstrumented
            .and_then(|plain| results.get(&(*number, plain)))
            .map_or((0.0, 0.0), |m| (minimum(&m.plain), median(&m.plain)));
        let net = |values: &[f64]| (minimum(values) - plain.0, median(values) - plain.1);
        let ours = net(&measured.ours);
        // Functions that it can't patch cost it nothing: what counts is a call that is traced.
        let share = if measured.share < 0.1 {
            f64::NAN
        } else {
            measured.share
        };
        let peers = net(&measured.peers);
        let peers = (peers.0 / share, peers.1 / share);
        let ratio = ours.1 / peers.1;
        let pair = |(minimum, median): (f64, f64)| format!("{minimum:.1} ({median:.1})");
        println!(
            "{:8} {:10} {:8.1} {:>16} {:>16} {:7.2} {:7.2} {:7.2}",
            workload,
            method.name,
            minimum(&measured.plain),
            pair(ours),
            pair(peers),
            ratio,
            method.target,
            measured.bytes,
        );
        if (measured.share - 1.0).abs() > 0.01 && !measured.peers.is_empty() {
            println!(
                "{:19} (uftrace traced {:.0} % of the calls)",
                "",
                100.0 * measured.share
            );
        }
        rows.push(json!({
            "workload": workload, "method": method.name, "untraced": minimum(&measured.plain),
            "dioptra": {"minimum": ours.0, "median": ours.1},
            "uftrace": {"minimum": peers.0, "median": peers.1},
            "uftrace_share": measured.share, "ratio": ratio, "target": method.target, "bytes": measured.bytes,
        }));
    }
    let peer = uftrace.map_or(Value::Null, |path| json!(version(path)));
    save(
        "trace",
        json!({"rounds": arguments.rounds, "uftrace": peer, "rows": rows}),
    )
}
