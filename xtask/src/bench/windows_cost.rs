//! `cargo xtask bench windows --cost`: what windows cost the program that is recorded, and how large they make its file.
//!
//! - *slowed*: programs of fixed work, alone, sampled for the ranking, with windows as they come by default, and with
//!   bursts of 4 at 1 kHz, in turns: the program's CPU seconds (user + system, interrupts among them) and wall time
//!   against itself alone in the same turn, medians over turns. CPU at most 1.2. Wall time also has the thread that arms
//!   bursts, but says little where others use the machine.
//! - *file*: bytes of the windows' samples and of the section, against batch + 1 samples a burst. At most 1.05.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use dioptra_perfdata::PerfData;
use dioptra_perfevents::record::{HEADER_SIZE, RecordType};
use dioptra_windows::section::WindowsSection;
use serde_json::{Value, json};

use super::compare::median;
use super::{build_dioptra, save};

/// By how much the program may be slowed.
const SLOWED_AT_MOST: f64 = 1.2;
/// The largest size of the windows relative to their samples.
const LARGER_AT_MOST: f64 = 1.05;

/// The measurements to make.
#[derive(clap::Args)]
pub struct CostArguments {
    /// With --cost: how often each recording is made
    #[arg(long, default_value_t = 7)]
    recordings: usize,
    /// With --cost: what windows are asked for
    #[arg(long, default_value = "long=1ms,batch=4")]
    windows: String,
}

/// One run of a program, in seconds.
struct Cost {
    cpu: f64,
    wall: f64,
}

/// A way to run a program: a name, and the recorder's arguments if it is recorded.
type Way = (&'static str, Option<Vec<String>>);

/// The way that all others are compared with.
const ALONE: usize = 0;

/// The ways; those that must not slow the program much bring `--windows`.
fn ways(windows: &str) -> Vec<Way> {
    let recorded = |words: &[&str]| Some(words.iter().map(ToString::to_string).collect());
    vec![
        ("alone", None),
        ("sampled", recorded(&["-F", "500"])),
        ("windows", recorded(&["--windows"])),
        (
            "asked",
            recorded(&["-F", "500", &format!("--windows={windows}")]),
        ),
    ]
}

/// Runs the bench.
pub fn run(arguments: &CostArguments) -> Result<()> {
    let dioptra = build_dioptra()?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("perf.data");
    let ways = ways(&arguments.windows);
    let mut slowed = Vec::new();
    let mut passed = true;
    println!(
        "windows: by default; asked: --windows={}",
        arguments.windows
    );
    println!("program    recorded      CPU s   ratio (lowest–highest)   wall s   ratio");
    // Computing, where windows only interrupt; faults and system calls, where they also count.
    for (name, words) in [("shares", &["1000"][..]), ("windows", &["800"])] {
        let program =
            dioptra_testprograms::c(name, &[]).map_err(|skip| anyhow::anyhow!("{skip}"))?;
        let mut costs: Vec<Vec<Cost>> = ways.iter().map(|_| Vec::new()).collect();
        for run in 0..arguments.recordings {
            let mut order: Vec<usize> = (0..ways.len()).collect();
            if run % 2 == 1 {
                order.reverse();
            }
            for way in order {
                let recorder = ways[way].1.as_ref().map(|more| (dioptra.as_path(), more));
                costs[way].push(measure(recorder, &file, &program, words)?);
            }
        }
        for ((way, recorder), of_way) in ways.iter().zip(&costs) {
            let cpu = Ratio::of(of_way, &costs[ALONE], |cost| cost.cpu)?;
            let wall = Ratio::of(of_way, &costs[ALONE], |cost| cost.wall)?;
            println!(
                "{name:10} {way:10} {:8.3} {:7.3} ({:.3}–{:.3})          {:7.3} {:7.3}",
                cpu.seconds, cpu.median, cpu.least, cpu.most, wall.seconds, wall.median,
            );
            let has_windows =
                |words: &Vec<String>| words.iter().any(|w| w.starts_with("--windows"));
            if recorder.as_ref().is_some_and(has_windows) {
                passed &= cpu.median <= SLOWED_AT_MOST;
            }
            slowed.push(json!({
                "program": name, "recorded": way, "cpu": cpu.seconds, "cpu_ratio": cpu.median,
                "cpu_ratios": [cpu.least, cpu.most], "wall": wall.seconds, "wall_ratio": wall.median,
                "wall_ratios": [wall.least, wall.most],
            }));
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!(
        "load of the machine, this bench's own of about 1 among it: {}",
        load.trim_end()
    );
    let size = size(&dioptra, &arguments.windows, &file)?;
    passed &= size["ratio"]
        .as_f64()
        .is_some_and(|ratio| ratio <= LARGER_AT_MOST);
    println!("windows in the file: {size}");
    save(
        "windows-cost",
        json!({
            "windows": arguments.windows, "runs": arguments.recordings, "slowed": slowed, "file": size,
            "load": load.trim_end(), "bars": {"slowed": SLOWED_AT_MOST, "file": LARGER_AT_MOST}, "passed": passed,
        }),
    )?;
    if !passed {
        bail!(
            "windows cost more than they may: {SLOWED_AT_MOST} of CPU time, {LARGER_AT_MOST} of bytes"
        );
    }
    Ok(())
}

/// The time of one way relative to another's.
struct Ratio {
    /// Median of its own seconds.
    seconds: f64,
    /// Median of the ratios of runs of the same turn.
    median: f64,
    least: f64,
    most: f64,
}

impl Ratio {
    fn of(runs: &[Cost], alone: &[Cost], figure: fn(&Cost) -> f64) -> Result<Ratio> {
        let pairs = runs.iter().zip(alone);
        let ratios: Vec<f64> = pairs
            .map(|(run, alone)| figure(run) / figure(alone))
            .collect();
        Ok(Ratio {
            seconds: median(runs.iter().map(figure).collect()).context("no runs")?,
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
            median: median(ratios).context("no runs")?,
        })
    }
}

/// Runs a program, recorded or not, and asks the shell that waits for it what it took.
fn measure(
    recorder: Option<(&Path, &Vec<String>)>,
    file: &Path,
    program: &Path,
    words: &[&str],
) -> Result<Cost> {
    let mut command = match recorder {
        Some((dioptra, more)) => {
            let mut command = Command::new(dioptra);
            command.args(["record", "-q", "-o"]).arg(file).args(more);
            command.arg("sh");
            command
        }
        None => Command::new("sh"),
    };
    let begin = Instant::now();
    let output = command
        .args(["-c", "\"$0\" \"$@\" >/dev/null; times"])
        .arg(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .context("running the program")?;
    let wall = begin.elapsed().as_secs_f64();
    let text = String::from_utf8_lossy(&output.stdout);
    let cpu = text.lines().nth(1).and_then(children_seconds);
    match cpu {
        Some(cpu) if output.status.success() => Ok(Cost { cpu, wall }),
        _ => bail!("{}", String::from_utf8_lossy(&output.stderr).trim()),
    }
}

/// The sum of `0m1.25s 0m0.03s`, which the shell's `times` prints for its children.
fn children_seconds(line: &str) -> Option<f64> {
    let mut sum = 0.0;
    let mut found = false;
    for time in line.split_whitespace() {
        let (minutes, seconds) = time.strip_suffix('s')?.split_once('m')?;
        sum += minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?;
        found = true;
    }
    found.then_some(sum)
}

/// Returns the bytes that windows take of a file.
fn size(dioptra: &Path, windows: &str, file: &Path) -> Result<Value> {
    let program: PathBuf =
        dioptra_testprograms::c("windows", &[]).map_err(|skip| anyhow::anyhow!("{skip}"))?;
    let output = Command::new(dioptra)
        .args(["record", "-q", "-o"])
        .arg(file)
        .arg(format!("--windows={windows}"))
        .arg(program)
        .arg("800")
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let mut data = PerfData::open(file)?;
    let section = WindowsSection::of(&mut data, None).context("no windows")?;
    let batch = section.schedule.map_or(0, |schedule| schedule.batch);
    let leaders: Vec<usize> = section
        .groups
        .iter()
        .map(|group| group.leader as usize)
        .collect();
    let (mut bytes, mut samples) = (0, 0);
    data.read(|record| {
        let of_windows = record.event.is_some_and(|event| leaders.contains(&event));
        if record.raw.kind == RecordType::SAMPLE && of_windows {
            bytes += (HEADER_SIZE + record.raw.body.len()) as u64;
            samples += 1_u64;
        }
        ControlFlow::Continue(())
    });
    let bursts = section.bursts.len() as u64;
    let of_section = section.encode().len() as u64;
    let record = bytes as f64 / samples.max(1) as f64;
    let due = u64::from(batch + 1) * bursts;
    Ok(json!({
        "bursts": bursts, "samples": samples, "record": record, "bytes": bytes, "section": of_section,
        "section_per_burst": of_section as f64 / bursts.max(1) as f64,
        "ratio": (bytes + of_section) as f64 / (due as f64 * record),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_one_turn() {
        let runs = |figures: [f64; 3]| {
            figures.map(|cpu| Cost {
                cpu,
                wall: 2.0 * cpu,
            })
        };
        // The machine was slow in the second turn.
        let (alone, recorded) = (runs([1.0, 4.0, 1.0]), runs([1.1, 4.4, 1.2]));
        let ratio = Ratio::of(&recorded, &alone, |cost| cost.cpu).unwrap();
        assert!((ratio.median - 1.1).abs() < 1e-9 && (ratio.most - 1.2).abs() < 1e-9);
        assert!((ratio.seconds - 1.2).abs() < 1e-9 && ratio.least < 1.11);
        assert!(Ratio::of(&[], &alone, |cost| cost.wall).is_err());
    }

    #[test]
    fn the_shells_times_are_understood() {
        assert_eq!(children_seconds("0m1.25s 1m0.5s"), Some(61.75));
        assert_eq!(children_seconds(""), None);
        assert_eq!(children_seconds("what 0m1s"), None);
    }
}
