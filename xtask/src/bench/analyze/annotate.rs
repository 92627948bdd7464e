//! The time of `perf annotate` for the hottest functions of a profile.
//!
//! Asked for no function it annotates all that have samples, the hottest first, in one run: the file is read once, and
//! each function's code comes from a disassembler of its own. Another run that ends with the first function tells what
//! reading alone takes.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::super::measure::{self, Run};

/// The longest time that perf may annotate.
const PATIENCE: Duration = Duration::from_secs(90);

/// Lets perf annotate up to `most` functions and prints what it took beside `ours`, CPU-seconds for as many in
/// dioptra.
pub fn peer(perf: &Path, file: &str, most: usize, ours: Option<f64>) -> Result<Value> {
    let (reading, begun) = annotated(perf, file, 0)?;
    let (all, done) = annotated(perf, file, most)?;
    if begun.is_none() || done.is_none_or(|done| done == 0) {
        println!("perf annotate: no function within {} s", PATIENCE.as_secs());
        return Ok(json!({"reading": figures(&reading), "all": figures(&all)}));
    }
    let done = done.unwrap_or(0);
    let each = (all.cpu - reading.cpu) / done as f64;
    println!(
        "perf annotate: {:.1} CPU s to read the file, {:.1} CPU s for the {done} hottest functions ({:.0} ms each)",
        reading.cpu,
        each * done as f64,
        1e3 * each
    );
    let ratio = ours.map(|ours| each * most as f64 / ours);
    if let Some(ratio) = ratio {
        println!(
            "  for {most} functions{} {:.1} CPU s, {ratio:.0} times as much as dioptra",
            if done < most { ", as those take," } else { "" },
            each * most as f64
        );
    }
    Ok(json!({
        "reading": figures(&reading),
        "all": figures(&all),
        "functions": done,
        "cpu_s_each": each,
        "wanted": most,
        "ratio": ratio,
    }))
}

/// Runs perf until it has annotated `most` functions, or has no more of them or of time. How many there were; `None`
/// if it did not even begin.
fn annotated(perf: &Path, file: &str, most: usize) -> Result<(Run, Option<usize>)> {
    let arguments = ["annotate", "--stdio", "-i", file];
    let mut command = Command::new(perf);
    let mut started = measure::start_into(command.args(arguments), Stdio::piped())
        .with_context(|| perf.display().to_string())?;
    let end = Instant::now() + PATIENCE;
    let output = started.stdout().context("perf's output")?;
    let (send, headings) = mpsc::channel();
    // The thread ends with perf, whose output is then at its end.
    std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
        {
            if is_heading(&line) && send.send(()).is_err() {
                break;
            }
            line.clear();
        }
    });
    let mut begun = 0_usize;
    let done = loop {
        match headings.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(()) => begun += 1,
            Err(mpsc::RecvTimeoutError::Timeout) => break begun.checked_sub(1),
            Err(mpsc::RecvTimeoutError::Disconnected) => break (begun > 0).then_some(begun),
        }
        // The next one's heading ends a function.
        if begun > most {
            break Some(most);
        }
    };
    started.signal(libc::SIGKILL);
    Ok((started.finish(&[])?, done))
}

/// Returns a run's figures. A run that was ended is no failure.
fn figures(run: &Run) -> Value {
    json!({"cpu_s": run.cpu, "wall_s": run.wall, "peak_bytes": run.peak})
}

/// Whether a line begins a function: ` Percent | Source code & Disassembly of ls for cycles (…)`.
fn is_heading(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    line.trim_start().starts_with("Percent") && line.contains("Disassembly of ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_told_from_code() {
        assert!(is_heading(
            b" Percent |\tSource code & Disassembly of ls for cycles (3 samples)\n"
        ));
        assert!(!is_heading(
            b"    0.00 :   4000:   push %rbp # Disassembly of \n"
        ));
    }
}
