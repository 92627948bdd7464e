//! Tools that do the same job, in turns: medians, ratios, the table and its JSON.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::measure::{self, Run};

/// One tool's way to do the job.
pub struct Contestant {
    /// The tool's name: `dioptra`, `perf`.
    pub name: &'static str,
    /// Its executable.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// Texts by which perf says that it gave up while its exit status is 0.
pub const COMPLAINTS: &[&str] = &[
    "failed to process type",
    "Cannot allocate memory",
    "not enough memory",
];

impl Contestant {
    pub fn new(name: &'static str, program: &Path, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        Self {
            name,
            program: program.to_path_buf(),
            arguments,
        }
    }

    /// The command, to be started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command
    }

    fn shown(&self) -> String {
        format!("{} {}", self.name, self.arguments.join(" "))
    }
}

/// The amount of work of a job.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    pub bytes: u64,
    pub samples: Option<u64>,
}

/// The figures of all tools for one job. The ratios compare the first tool with the last one.
pub struct Comparison {
    mode: String,
    tools: Vec<(Contestant, Vec<Run>)>,
}

/// The median of some figures, the mean of the middle two where their number is even; `None` of none.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Lets every contestant do the job `runs` times, in alternating order. One that did not finish gets no other try.
pub fn compare(mode: &str, contestants: Vec<Contestant>, runs: usize) -> Result<Comparison> {
    let mut tools: Vec<(Contestant, Vec<Run>)> =
        contestants.into_iter().map(|c| (c, Vec::new())).collect();
    for turn in 0..runs {
        let mut order: Vec<usize> = (0..tools.len()).collect();
        if turn % 2 == 1 {
            order.reverse();
        }
        for i in order {
            let (contestant, done) = &mut tools[i];
            if done.last().is_some_and(|run| run.failure.is_some()) {
                continue;
            }
            let run = measure::start(&mut contestant.command())
                .and_then(|started| started.finish(COMPLAINTS))
                .with_context(|| contestant.shown())?;
            done.push(run);
        }
    }
    Ok(Comparison {
        mode: mode.to_string(),
        tools,
    })
}

/// Median of a figure over the runs that finished.
fn typical(runs: &[Run], figure: impl Fn(&Run) -> f64) -> Option<f64> {
    median(
        runs.iter()
            .filter(|r| r.failure.is_none())
            .map(figure)
            .collect(),
    )
}

impl Comparison {
    /// The first tool's median over the last one's; `None` unless both finished, or where only one ran.
    fn ratio(&self, figure: impl Fn(&Run) -> f64) -> Option<f64> {
        let (first, last) = (self.tools.first()?, self.tools.last()?);
        if self.tools.len() < 2 {
            return None;
        }
        Some(typical(&first.1, &figure)? / typical(&last.1, &figure)?)
    }

    /// The heading of what [`Comparison::print`] writes.
    pub fn print_heading() {
        println!(
            "{:<10} {:<8} {:>8} {:>15} {:>8} {:>8} {:>9} {:>10} {:>9} {:>10}",
            "mode",
            "tool",
            "CPU s",
            "min..max",
            "wall s",
            "peak MB",
            "MB/CPU s",
            "k smp/CPU s",
            "CPU ratio",
            "peak ratio"
        );
    }

    /// Prints one line a tool.
    pub fn print(&self, work: Work) {
        for (i, (contestant, runs)) in self.tools.iter().enumerate() {
            let mode = if i == 0 { self.mode.as_str() } else { "" };
            print!("{mode:<10} {:<8} ", contestant.name);
            let medians = (
                typical(runs, |r| r.cpu),
                typical(runs, |r| r.wall),
                typical(runs, |r| r.peak as f64),
            );
            if let (Some(cpu), Some(wall), Some(peak)) = medians {
                let cpus = || runs.iter().filter(|r| r.failure.is_none()).map(|r| r.cpu);
                let (least, most) = (cpus().fold(f64::MAX, f64::min), cpus().fold(0.0, f64::max));
                let spread = format!("{least:.2}..{most:.2}");
                let samples = work.samples.map_or_else(
                    || "-".into(),
                    |samples| format!("{:.0}", samples as f64 / cpu / 1e3),
                );
                print!(
                    "{cpu:>8.3} {spread:>15} {wall:>8.3} {:>8.1} {:>9.0} {samples:>11}",
                    peak / 1e6,
                    work.bytes as f64 / cpu / 1e6,
                );
                if i == 0 {
                    let shown = |ratio: Option<f64>| {
                        ratio.map_or_else(|| "-".into(), |r| format!("{r:.3}"))
                    };
                    print!(
                        " {:>9} {:>10}",
                        shown(self.ratio(|r| r.cpu)),
                        shown(self.ratio(|r| r.peak as f64))
                    );
                }
            }
            println!();
            if let Some(run) = runs.iter().find(|r| r.failure.is_some()) {
                let why = run.failure.as_deref().unwrap_or_default();
                println!(
                    "{:19} did not finish: {why} (after {:.1} CPU s, {:.0} MB)",
                    "",
                    run.cpu,
                    run.peak as f64 / 1e6
                );
            }
        }
    }

    /// The first tool's median of CPU seconds and of peak memory in bytes, if it finished.
    pub fn first(&self) -> Option<(f64, f64)> {
        let runs = &self.tools.first()?.1;
        Some((typical(runs, |r| r.cpu)?, typical(runs, |r| r.peak as f64)?))
    }

    /// All runs and their medians.
    pub fn json(&self) -> Value {
        let tools: Vec<_> = self
            .tools
            .iter()
            .map(|(contestant, runs)| {
                json!({
                    "tool": contestant.name,
                    "command": contestant.shown(),
                    "cpu_s": typical(runs, |r| r.cpu),
                    "wall_s": typical(runs, |r| r.wall),
                    "peak_bytes": typical(runs, |r| r.peak as f64),
                    "runs": runs.iter().map(run_json).collect::<Vec<_>>(),
                })
            })
            .collect();
        json!({
            "mode": self.mode,
            "cpu_ratio": self.ratio(|r| r.cpu),
            "peak_ratio": self.ratio(|r| r.peak as f64),
            "tools": tools,
        })
    }
}

/// One run as JSON.
pub fn run_json(run: &Run) -> Value {
    json!({"cpu_s": run.cpu, "wall_s": run.wall, "peak_bytes": run.peak, "did_not_finish": run.failure})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_takes_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn one_that_fails_gets_no_other_try() {
        let contestants = vec![
            Contestant::new("good", Path::new("true"), &[]),
            Contestant::new("bad", Path::new("false"), &[]),
        ];
        let comparison = compare("mode", contestants, 3).unwrap();
        let json = comparison.json();
        assert_eq!(json["tools"][0]["runs"].as_array().unwrap().len(), 3);
        assert_eq!(json["tools"][1]["runs"].as_array().unwrap().len(), 1);
        assert_eq!(
            json["tools"][1]["runs"][0]["did_not_finish"],
            "exit status 1: "
        );
        assert_eq!(json["cpu_ratio"], Value::Null);
        assert_eq!(json["tools"][1]["cpu_s"], Value::Null);
    }
}
