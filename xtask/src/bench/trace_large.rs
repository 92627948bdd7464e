//! `cargo xtask bench trace --read`: large traces with filters, in parts, of many threads and of many functions.
//!
//! The benchmark compares CPU time with uftrace's for the same calls, and shows that memory is bounded.

use super::measure::{self, Run};
use super::trace::nanoseconds;
use super::trace_read::median;
use super::{scratch, version};
use anyhow::{Context, Result, bail};
use dioptra_testprograms::{Language, Program};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The number of functions of the program of many functions.
const FUNCTIONS: u64 = 100_000;

const FLAGS: [&str; 5] = [
    "-O1",
    "-fno-inline",
    "-fno-optimize-sibling-calls",
    "-pg",
    "-mfentry",
];

/// A program, and the commands that read its trace. `RANGE` stands for a thousandth of the time in its middle.
struct Case {
    name: &'static str,
    commands: &'static [&'static str],
}

const CASES: [Case; 3] = [
    Case {
        name: "nested",
        commands: &[
            "replay -t 10s",
            "replay -t 100us",
            "replay -C rare",
            "replay -r RANGE",
            "report -t 10s",
            "report -C rare",
            "report -r RANGE",
            "graph -t 10s",
        ],
    },
    Case {
        name: "threads",
        commands: &["report", "report -t 1us", "replay -t 10s"],
    },
    Case {
        name: "functions",
        commands: &["report", "report -t 1us", "graph"],
    },
];

/// Measures with traces of about so many calls.
pub fn run(dioptra: &Path, calls: u64, uftrace: Option<&Path>, rounds: u32) -> Result<Value> {
    let folder = scratch()?.join("trace-large");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    println!(
        "traces of {calls} calls: CPU seconds, and peak memory in MB; medians of {rounds} runs"
    );
    println!(
        "{:10} {:16} {:>9} {:>9} {:>7} {:>11} {:>11}",
        "program", "command", "dioptra", "uftrace", "ratio", "dioptra MB", "uftrace MB"
    );
    let mut rows = Vec::new();
    for case in CASES {
        let program = match case.name {
            "functions" => functions(&folder, calls)?,
            _ => Program::new(Language::C, "trace-large")
                .no_flags()
                .flags(FLAGS)
                .flags(["-pthread"])
                .build()
                .map_err(|skip| anyhow::anyhow!("{skip}"))?,
        };
        let words = [case.name.to_owned(), calls.to_string()];
        let (ours, theirs) = (folder.join("ours"), folder.join("theirs"));
        let mut record = Command::new(dioptra);
        record.args(["trace", "record", "-q", "--no-libcall", "--no-sched", "-d"]);
        let recorded = nanoseconds(record.arg(&ours).arg(&program).args(&words))?;
        let their_recorded = match uftrace {
            Some(uftrace) => {
                let mut record = Command::new(uftrace);
                record.args(["record", "--no-libcall", "--no-event", "-d"]);
                nanoseconds(record.arg(&theirs).arg(&program).args(&words))?
            }
            None => recorded,
        };
        for command in case.commands {
            let mut measured = [Vec::new(), Vec::new()];
            for _ in 0..rounds {
                let mut read = Command::new(dioptra);
                read.arg("trace").args(self::words(command, recorded));
                measured[0].push(finished(read.arg("-d").arg(&ours))?);
                if let Some(uftrace) = uftrace {
                    let mut read = Command::new(uftrace);
                    read.args(self::words(command, their_recorded));
                    measured[1].push(finished(read.args(["--no-pager", "-d"]).arg(&theirs))?);
                }
            }
            rows.push(row(case.name, command, recorded.1, &measured));
        }
        // Both are large, and the next program's are, too.
        for trace in [ours, theirs] {
            let _ = std::fs::remove_dir_all(trace);
        }
    }
    let _ = std::fs::remove_dir_all(&folder);
    let peer = uftrace.map_or(Value::Null, |path| json!(version(path)));
    Ok(json!({"calls": calls, "uftrace": peer, "rows": rows}))
}

/// The words of a command; `recorded` says how many nanoseconds a call took, and how many calls there were.
fn words(command: &str, recorded: (f64, f64)) -> Vec<String> {
    let time = (recorded.0 * recorded.1) as u64;
    let range = format!("{}us~{}us", time / 2_000, (time / 2 + time / 1_000) / 1_000);
    let words = command.split(' ');
    words.map(|word| word.replace("RANGE", &range)).collect()
}

fn finished(command: &mut Command) -> Result<Run> {
    let run = measure::start(command)?.finish(&[])?;
    match &run.failure {
        None => Ok(run),
        Some(why) => bail!("{command:?}: {why}"),
    }
}

/// Writes and compiles a program of many functions, which calls all of them in turn.
fn functions(folder: &Path, calls: u64) -> Result<PathBuf> {
    let count = FUNCTIONS.min(calls / 10).max(1);
    let mut text = String::from(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <time.h>\nstatic volatile long sink;\n",
    );
    for number in 0..count {
        writeln!(text, "void f{number}(void) {{ sink += {number}; }}")?;
    }
    text.push_str("static void (*const all[])(void) = {\n");
    for number in 0..count {
        writeln!(text, "f{number},")?;
    }
    text.push_str(
        "};
__attribute__((no_instrument_function)) int main(int count, char **arguments) {
    long number = count > 2 ? atol(arguments[2]) : 0, made = 0;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    while (made < number)
        for (unsigned i = 0; i < sizeof all / sizeof *all && made < number; i++, made++) all[i]();
    clock_gettime(CLOCK_MONOTONIC, &b);
    fprintf(stderr, \"calls %ld ns %.0f\\n\", made, (b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec));
    return 0;
}
",
    );
    let (source, program) = (folder.join("functions.c"), folder.join("functions"));
    std::fs::write(&source, text)?;
    let mut compiler = Command::new("cc");
    compiler.args(FLAGS).arg("-o").arg(&program).arg(&source);
    let status = compiler.status().context("cc")?;
    if !status.success() {
        bail!("{compiler:?} failed");
    }
    Ok(program)
}

fn row(name: &str, command: &str, calls: f64, measured: &[Vec<Run>; 2]) -> Value {
    let number = |value: fn(&Run) -> f64| measured.each_ref().map(|runs| median(runs, value));
    let cpu = number(|run| run.cpu);
    let wall = number(|run| run.wall);
    let memory = number(|run| run.peak as f64 / 1e6);
    let ratio = cpu[0] / cpu[1];
    println!(
        "{name:10} {command:16} {:>9.2} {:>9.2} {ratio:>7.2} {:>11.0} {:>11.0}{}",
        cpu[0],
        cpu[1],
        memory[0],
        memory[1],
        if ratio > 1.0 {
            "  more than uftrace"
        } else {
            ""
        },
    );
    json!({
        "program": name, "command": command, "calls": calls, "cpu_seconds": cpu, "wall_seconds": wall,
        "ratio": ratio, "peak_megabytes": memory,
    })
}
