//! `cargo xtask bench attach`: what it costs to sample a program that already runs, the program and the recorder.
//!
//! - *attach*: to 10, 100, 1000 threads, one of which computes: the recorder's CPU seconds and peak memory for
//!   attaching, half a second of sampling and ending; and the time from its start to the first sample.
//! - *create*: what starting and joining a thread costs the program, alone and while a recorder is attached.
//! - *rate*: the recorder's CPU at 1 kHz and 10 kHz on a program that keeps all CPUs busy, and samples lost.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::compare::{median, run_json};
use super::measure::{self, Run};
use super::{build_dioptra, cpus, find_perf, save, version};

/// The measurements to make.
#[derive(clap::Args)]
pub struct Arguments {
    /// The number of runs of each tool
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Leave dioptra out
    #[arg(long)]
    peers_only: bool,
}

/// A recorder, told how to attach to a process.
#[derive(Clone)]
struct Recorder {
    name: &'static str,
    program: PathBuf,
}

impl Recorder {
    /// Attaches for `seconds`, or until SIGINT.
    fn command(&self, pid: u32, rate: u32, seconds: Option<f64>, file: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([
                "record",
                "-e",
                "cpu-clock",
                "-F",
                &rate.to_string(),
                "-p",
                &pid.to_string(),
                "-o",
            ])
            .arg(file);
        if self.name == "perf" {
            // dioptra's clock, so that the time of the first sample can be compared with ours; no copies of the
            // target's files in the home folder, which would cost time as well.
            command.args(["-k", "mono", "--no-buildid-cache"]);
            if let Some(seconds) = seconds {
                command.args(["--", "sleep", &seconds.to_string()]);
            }
        } else if let Some(seconds) = seconds {
            command.args(["--duration", &seconds.to_string()]);
        }
        command
    }
}

/// One recording's figures.
struct Recording {
    run: Run,
    /// From the recorder's start to the first sample, in seconds.
    first_sample: Option<f64>,
    samples: Option<u64>,
    lost: Option<u64>,
    /// Samples over those due: the target's CPU time between the first sample and the last, times the rate.
    share: Option<f64>,
}

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    let perf = find_perf()?;
    let mut recorders = Vec::new();
    if !arguments.peers_only {
        recorders.push(Recorder {
            name: "dioptra",
            program: build_dioptra()?,
        });
    }
    recorders.push(Recorder {
        name: "perf",
        program: perf.clone(),
    });
    let target =
        dioptra_testprograms::c("livethreads", &[]).map_err(|skip| anyhow::anyhow!("{skip}"))?;

    let bench = AttachBench {
        recorders,
        perf: perf.clone(),
        target,
        runs: arguments.runs,
    };
    let versions: Vec<_> = bench
        .recorders
        .iter()
        .map(|r| json!({r.name: version(&r.program)}))
        .collect();
    let attach = bench.attach()?;
    let create = bench.create()?;
    let rate = bench.rate()?;
    save(
        "attach",
        json!({"versions": versions, "runs": arguments.runs, "attach": attach, "create": create, "rate": rate}),
    )
}

struct AttachBench {
    recorders: Vec<Recorder>,
    perf: PathBuf,
    target: PathBuf,
    runs: usize,
}

impl AttachBench {
    /// Calls back for each recorder in each turn, the order reversed in every second turn; results by recorder.
    fn turns<T>(
        &self,
        mut turn: impl FnMut(&Recorder) -> Result<T>,
    ) -> Result<Vec<(&Recorder, Vec<T>)>> {
        let mut results: Vec<_> = self.recorders.iter().map(|r| (r, Vec::new())).collect();
        for i in 0..self.runs {
            let mut order: Vec<usize> = (0..results.len()).collect();
            if i % 2 == 1 {
                order.reverse();
            }
            for j in order {
                let value = turn(results[j].0).with_context(|| results[j].0.name)?;
                results[j].1.push(value);
            }
        }
        Ok(results)
    }

    fn attach(&self) -> Result<Vec<Value>> {
        println!("\nattach for 0.5 s at 1 kHz to a program with N threads");
        println!(
            "{:>7} {:<8} {:>8} {:>8} {:>9} {:>16}",
            "threads", "tool", "CPU s", "wall s", "peak MB", "first sample ms"
        );
        let mut rows = Vec::new();
        for threads in [10, 100, 1000] {
            for (recorder, recordings) in
                self.turns(|r| self.record(r, threads, "one", 1000, 0.5))?
            {
                let row = Medians::of(&recordings);
                print!("{threads:>7} {:<8} ", recorder.name);
                match &row.failure {
                    Some(failure) => println!("did not finish: {failure}"),
                    None => println!(
                        "{} {} {} {}",
                        number(row.cpu, 8, 3, 1.0),
                        number(row.wall, 8, 3, 1.0),
                        number(row.peak, 9, 1, 1e-6),
                        number(row.first_sample, 16, 1, 1e3)
                    ),
                }
                rows.push(row.json(recorder, json!({"threads": threads}), &recordings));
            }
        }
        Ok(rows)
    }

    fn create(&self) -> Result<Vec<Value>> {
        const THREADS: u32 = 2000;
        println!("\nstart and join {THREADS} threads, one by one, in a program with 10 others");
        println!(
            "{:<8} {:>14} {:>14} {:>7}",
            "tool", "alone us", "attached us", "ratio"
        );
        let results = self.turns(|recorder| {
            let mut target = Target::start(&self.target, 10, "sleep")?;
            let before = target.create(THREADS)?;
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("perf.data");
            let recorder =
                measure::start(&mut recorder.command(target.child.id(), 1000, None, &file))?;
            // Long enough to attach to eleven threads on a busy machine.
            std::thread::sleep(Duration::from_secs(2));
            let during = target.create(THREADS)?;
            recorder.signal(libc::SIGINT);
            let run = recorder.finish(&[])?;
            // perf passes the signal on that ended it.
            let failure = run
                .failure
                .filter(|why| !why.starts_with("killed by signal 2:"));
            Ok((
                before / f64::from(THREADS),
                during / f64::from(THREADS),
                failure,
            ))
        })?;
        let mut rows = Vec::new();
        for (recorder, turns) in results {
            let before = median(turns.iter().map(|t| t.0).collect());
            let during = median(turns.iter().map(|t| t.1).collect());
            let failure = turns.iter().find_map(|t| t.2.clone());
            let ratio = before.zip(during).map(|(before, during)| during / before);
            print!("{:<8} ", recorder.name);
            match &failure {
                Some(failure) => println!("did not finish: {failure}"),
                None => println!(
                    "{} {} {}",
                    number(before, 14, 1, 1e6),
                    number(during, 14, 1, 1e6),
                    number(ratio, 7, 2, 1.0)
                ),
            }
            rows.push(json!({
                "tool": recorder.name, "alone_s": before, "attached_s": during, "ratio": ratio,
                "did_not_finish": failure,
                "runs": turns.iter().map(|t| json!([t.0, t.1])).collect::<Vec<_>>(),
            }));
        }
        Ok(rows)
    }

    fn rate(&self) -> Result<Vec<Value>> {
        let threads = cpus();
        println!("\nrecord {threads} busy threads for 3 s");
        println!(
            "{:>7} {:<8} {:>8} {:>9} {:>9} {:>14} {:>7}",
            "Hz", "tool", "CPU s", "peak MB", "samples", "of those due", "lost"
        );
        let mut rows = Vec::new();
        for rate in [1000, 10_000] {
            for (recorder, recordings) in
                self.turns(|r| self.record(r, threads, "spin", rate, 3.0))?
            {
                let row = Medians::of(&recordings);
                print!("{rate:>7} {:<8} ", recorder.name);
                match &row.failure {
                    Some(failure) => println!("did not finish: {failure}"),
                    None => println!(
                        "{} {} {} {}% {}",
                        number(row.cpu, 8, 3, 1.0),
                        number(row.peak, 9, 1, 1e-6),
                        number(row.samples, 9, 0, 1.0),
                        number(row.share, 13, 1, 100.0),
                        number(row.lost, 7, 0, 1.0)
                    ),
                }
                rows.push(row.json(recorder, json!({"hz": rate}), &recordings));
            }
        }
        Ok(rows)
    }

    /// One recording of a fresh target.
    fn record(
        &self,
        recorder: &Recorder,
        threads: usize,
        mode: &str,
        rate: u32,
        seconds: f64,
    ) -> Result<Recording> {
        let mut target = Target::start(&self.target, threads, mode)?;
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("perf.data");
        let cpu = target.cpu()?;
        let start = monotonic();
        let run =
            measure::start(&mut recorder.command(target.child.id(), rate, Some(seconds), &file))?
                .finish(&[])?;
        let target_cpu = target.cpu()? - cpu;
        if run.failure.is_some() {
            return Ok(Recording {
                run,
                first_sample: None,
                samples: None,
                lost: None,
                share: None,
            });
        }
        let (samples, lost) = if recorder.name == "perf" {
            self.perf_counts(&file)?
        } else {
            dioptra_counts(&recorder.program, &file)?
        };
        let sampled = self.sampled(&file);
        let first_sample = sampled.map(|(first, _)| first - start);
        // The target also runs while the recorder starts and ends; only its time between the samples is due.
        let share = sampled.zip(samples).map(|((first, last), samples)| {
            let due = target_cpu * (last - first) / run.wall * f64::from(rate);
            samples as f64 / due
        });
        Ok(Recording {
            run,
            first_sample,
            samples,
            lost,
            share,
        })
    }

    /// The times of the first and the last sample that `perf script` prints, in seconds of CLOCK_MONOTONIC.
    fn sampled(&self, file: &Path) -> Option<(f64, f64)> {
        let output = Command::new(&self.perf)
            .args(["script", "-F", "time", "--ns", "-i"])
            .arg(file)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut times = text
            .lines()
            .filter_map(|line| line.trim().trim_end_matches(':').parse::<f64>().ok());
        let first = times.next()?;
        Some((first, times.next_back().unwrap_or(first)))
    }

    /// Samples and lost samples as `perf report` counts them.
    fn perf_counts(&self, file: &Path) -> Result<(Option<u64>, Option<u64>)> {
        let text = |arguments: &[&str]| -> Result<String> {
            let output = Command::new(&self.perf)
                .args(["report", "-i"])
                .arg(file)
                .args(arguments)
                .stdin(Stdio::null())
                .output()?;
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let stats = text(&["--stats"])?;
        let header = text(&["--stdio", "-g", "none", "--no-children", "-s", "comm"])?;
        Ok((
            number_after(&stats, "SAMPLE events:"),
            number_after(&header, "# Total Lost Samples:"),
        ))
    }
}

/// Samples and lost samples as `dioptra info --format json` counts them.
fn dioptra_counts(dioptra: &Path, file: &Path) -> Result<(Option<u64>, Option<u64>)> {
    let output = Command::new(dioptra)
        .args(["info", "--format", "json", "-i"])
        .arg(file)
        .stdin(Stdio::null())
        .output()?;
    let info: Value =
        serde_json::from_slice(&output.stdout).context("the output of dioptra info")?;
    let lost = [&info["lost"], &info["facts"]["lost"]]
        .into_iter()
        .find_map(Value::as_u64);
    Ok((info["records"]["SAMPLE"].as_u64(), lost))
}

/// The first number behind a text.
fn number_after(text: &str, label: &str) -> Option<u64> {
    text.split_once(label)?
        .1
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// A running `livethreads`; killed when dropped.
struct Target {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Target {
    fn start(program: &Path, threads: usize, mode: &str) -> Result<Self> {
        let mut child = Command::new(program)
            .args([&threads.to_string(), mode])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the target has no pipes");
        };
        let mut target = Self {
            child,
            requests,
            answers: BufReader::new(answers),
        };
        if target.answer()? != ["ready"] {
            bail!("the target is not ready");
        }
        Ok(target)
    }

    fn answer(&mut self) -> Result<Vec<String>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.split_whitespace().map(String::from).collect())
    }

    /// Seconds of wall time for starting and joining so many threads.
    fn create(&mut self, count: u32) -> Result<f64> {
        writeln!(self.requests, "create {count}")?;
        self.last_word_in_seconds()
    }

    /// The CPU seconds the target has used.
    fn cpu(&mut self) -> Result<f64> {
        writeln!(self.requests, "cpu")?;
        self.last_word_in_seconds()
    }

    fn last_word_in_seconds(&mut self) -> Result<f64> {
        let answer = self.answer()?;
        let nanoseconds: f64 = answer.last().context("the target is gone")?.parse()?;
        Ok(nanoseconds / 1e9)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // The program may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CLOCK_MONOTONIC in seconds.
fn monotonic() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a live timespec for the call to fill; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Medians over the recordings, or why one failed.
struct Medians {
    cpu: Option<f64>,
    wall: Option<f64>,
    peak: Option<f64>,
    first_sample: Option<f64>,
    samples: Option<f64>,
    lost: Option<f64>,
    share: Option<f64>,
    failure: Option<String>,
}

impl Medians {
    fn of(recordings: &[Recording]) -> Self {
        let of = |figure: &dyn Fn(&Recording) -> Option<f64>| {
            median(recordings.iter().filter_map(figure).collect())
        };
        Self {
            cpu: of(&|r| Some(r.run.cpu)),
            wall: of(&|r| Some(r.run.wall)),
            peak: of(&|r| Some(r.run.peak as f64)),
            first_sample: of(&|r| r.first_sample),
            samples: of(&|r| r.samples.map(|n| n as f64)),
            lost: of(&|r| r.lost.map(|n| n as f64)),
            share: of(&|r| r.share),
            failure: recordings.iter().find_map(|r| r.run.failure.clone()),
        }
    }

    fn json(&self, recorder: &Recorder, facts: Value, recordings: &[Recording]) -> Value {
        let mut row = json!({
            "tool": recorder.name,
            "cpu_s": self.cpu, "wall_s": self.wall, "peak_bytes": self.peak, "first_sample_s": self.first_sample,
            "samples": self.samples, "lost": self.lost, "share_of_due": self.share,
            "did_not_finish": self.failure,
            "runs": recordings.iter().map(|r| run_json(&r.run)).collect::<Vec<_>>(),
        });
        if let Value::Object(facts) = facts {
            for (key, value) in facts {
                row[key] = value;
            }
        }
        row
    }
}

/// A figure times a scale, right-aligned, or a dash.
fn number(value: Option<f64>, width: usize, decimals: usize, scale: f64) -> String {
    value.map_or_else(
        || format!("{:>width$}", "-"),
        |v| format!("{:>width$.decimals$}", v * scale),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perf_output_is_understood() {
        let stats = "Aggregated stats:\n           TOTAL events:        100\n          SAMPLE events:         85  (85.0%)\n";
        assert_eq!(number_after(stats, "SAMPLE events:"), Some(85));
        assert_eq!(
            number_after("#\n# Total Lost Samples: 12\n#\n", "# Total Lost Samples:"),
            Some(12)
        );
        assert_eq!(number_after("", "SAMPLE events:"), None);
    }
}
