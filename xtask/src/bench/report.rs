//! `cargo xtask bench report`: the same profiles read by dioptra and by perf, decoded by dioptra and by the crate
//! linux-perf-data, and how dioptra's cost grows with the file.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde_json::{Value, json};

use super::compare::{Comparison, Contestant, Work, compare};
use super::input::{self, Input, Kind};
use super::{build_dioptra, find_perf, save, version};
use crate::{root, test::cargo};

/// The profiles to compare on, and the number of rounds.
#[derive(clap::Args)]
pub struct Arguments {
    /// The number of runs of each tool
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Small profiles and few runs: whether all of it works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// The kinds of profiles; all kinds unless given
    #[arg(long = "kind", value_enum, value_delimiter = ',')]
    kinds: Vec<Kind>,
    /// Size of the profiles to record, in MB, in place of each kind's own; they are kept for the next time
    #[arg(long)]
    size: Option<u64>,
    /// Take this profile instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "kinds", "quick"])]
    input: Option<PathBuf>,
    /// Which reports to compare; those that suit the profile unless given
    #[arg(long = "mode", value_enum, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Leave the decoders out
    #[arg(long)]
    no_decode: bool,
    /// Leave out how the cost grows with the file
    #[arg(long)]
    no_growth: bool,
    /// Leave dioptra out
    #[arg(long)]
    peers_only: bool,
}

/// A kind of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Functions by their own samples, call chains unused
    Flat,
    /// Functions by their own samples, with the tree of their callers
    Tree,
    /// Functions by their own samples and those of what they call
    Children,
    /// Both: what a bare `perf report` does. It can take more memory than there is
    Default,
    /// Children with inlined functions as rows of their own. perf shows them below rows only
    Inline,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Tree => "tree",
            Self::Children => "children",
            Self::Default => "default",
            Self::Inline => "inline",
        }
    }

    fn dioptra(self) -> &'static [&'static str] {
        match self {
            Self::Flat => &[],
            Self::Tree => &["--tree", "callers"],
            Self::Children => &["--children"],
            Self::Default => &["--children", "--tree", "callers"],
            Self::Inline => &["--children", "--inline"],
        }
    }

    fn perf(self) -> &'static [&'static str] {
        match self {
            Self::Flat => &["-g", "none", "--no-children"],
            Self::Tree => &["--no-children"],
            Self::Children => &["-g", "none", "--children", "--no-inline"],
            Self::Default => &[],
            Self::Inline => &["--no-children", "--inline"],
        }
    }

    /// Returns the modes that make sense for a kind of profile.
    fn of(kind: Kind) -> &'static [Mode] {
        match kind {
            Kind::SysFp | Kind::AppFp => &[Mode::Flat, Mode::Tree, Mode::Children, Mode::Default],
            Kind::Flat | Kind::SysEvents => &[Mode::Flat],
            Kind::Dwarf | Kind::DwarfMany => &[Mode::Children, Mode::Inline],
        }
    }
}

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    let bench = ReportBench {
        perf: find_perf()?,
        dioptra: match arguments.peers_only {
            true => None,
            false => Some(build_dioptra()?),
        },
        runs: if arguments.quick { 1 } else { arguments.runs },
    };
    println!(
        "{} runs, limit {} s and 12 GiB of address space; ratios are dioptra's medians over perf's",
        bench.runs,
        input::time_limit().as_secs()
    );
    let mut inputs = Vec::new();
    if let Some(path) = &arguments.input {
        let modes = [Mode::Flat, Mode::Tree, Mode::Children];
        inputs.push(("given", input::given(path)?, modes.to_vec()));
    } else {
        let kinds = match &arguments.kinds[..] {
            [] => &Kind::ALL[..],
            kinds => kinds,
        };
        for &kind in kinds {
            let size = match (arguments.size, arguments.quick) {
                (Some(size), _) => size,
                (None, true) => kind.megabytes() / 20,
                (None, false) => kind.megabytes(),
            };
            let input = input::make(&bench.perf, kind, size)?;
            inputs.push((kind.name(), input, Mode::of(kind).to_vec()));
        }
    }
    let mut reports = Vec::new();
    for (name, input, modes) in &inputs {
        let modes = match &arguments.modes[..] {
            [] => modes,
            modes => modes,
        };
        reports.push(bench.reports(name, input, modes, !arguments.no_decode)?);
    }
    let mut growth = Value::Null;
    let of_machine = arguments.kinds.is_empty() || arguments.kinds.contains(&Kind::SysFp);
    if !arguments.no_growth && arguments.input.is_none() && of_machine {
        let sizes = if arguments.quick {
            [1, 5, 20]
        } else {
            [10, 100, 400]
        };
        growth = bench.growth(&sizes)?;
    }
    save(
        "report",
        json!({
            "versions": {
                "dioptra": bench.dioptra.as_deref().map(version),
                "perf": version(&bench.perf),
            },
            "inputs": reports,
            "growth": growth,
        }),
    )
}

struct ReportBench {
    perf: PathBuf,
    dioptra: Option<PathBuf>,
    runs: usize,
}

impl ReportBench {
    /// All reports of one profile, and its decoders.
    fn reports(&self, name: &str, input: &Input, modes: &[Mode], decode: bool) -> Result<Value> {
        input::warm(&input.path)?;
        let samples = input
            .samples
            .map_or_else(String::new, |n| format!(", {n} samples"));
        println!(
            "\n{name}: {}, {:.1} MB{samples}",
            input.path.display(),
            input.bytes as f64 / 1e6
        );
        Comparison::print_heading();
        let work = Work {
            bytes: input.bytes,
            samples: input.samples,
        };
        let mut results = Vec::new();
        for &mode in modes {
            let comparison = compare(mode.name(), self.contestants(mode, &input.path), self.runs)?;
            comparison.print(work);
            results.push(comparison.json());
        }
        let decoders = match decode && self.dioptra.is_some() {
            true => decoders(&input.path, self.runs)?,
            false => Value::Null,
        };
        Ok(json!({
            "name": name,
            "path": input.path,
            "bytes": input.bytes,
            "samples": input.samples,
            "modes": results,
            "decoders": decoders,
        }))
    }

    fn contestants(&self, mode: Mode, file: &Path) -> Vec<Contestant> {
        let file = &*file.to_string_lossy();
        let ours = self.dioptra.as_deref().map(|dioptra| {
            let arguments = [&["report", "-i", file], mode.dioptra()].concat();
            Contestant::new("dioptra", dioptra, &arguments)
        });
        let arguments = [&["report", "--stdio", "-i", file], mode.perf()].concat();
        let peer = Contestant::new("perf", &self.perf, &arguments);
        ours.into_iter().chain([peer]).collect()
    }

    /// Measures dioptra on the beginnings of one long profile, of these sizes in MB.
    fn growth(&self, sizes: &[u64]) -> Result<Value> {
        let Some(dioptra) = &self.dioptra else {
            return Ok(Value::Null);
        };
        let largest = sizes.iter().max().copied().unwrap_or(1);
        let whole = input::make(&self.perf, Kind::SysFp, largest)?;
        println!("\ngrowth: beginnings of {}", whole.path.display());
        println!(
            "{:<10} {:>8} {:>8} {:>10} {:>8}",
            "mode", "MB", "CPU s", "CPU ms/MB", "peak MB"
        );
        let mut rows = Vec::new();
        for mode in [Mode::Flat, Mode::Children] {
            for &size in sizes {
                let part = input::cut(&whole, size)?;
                input::warm(&part.path)?;
                let file = &*part.path.to_string_lossy();
                let arguments = [&["report", "-i", file], mode.dioptra()].concat();
                let contestant = Contestant::new("dioptra", dioptra, &arguments);
                let comparison = compare(mode.name(), vec![contestant], self.runs)?;
                let megabytes = part.bytes as f64 / 1e6;
                match comparison.first() {
                    Some((cpu, peak)) => println!(
                        "{:<10} {megabytes:>8.1} {cpu:>8.3} {:>10.2} {:>8.1}",
                        mode.name(),
                        1e3 * cpu / megabytes,
                        peak / 1e6
                    ),
                    None => println!("{:<10} {megabytes:>8.1} did not finish", mode.name()),
                }
                rows.push(json!({"bytes": part.bytes, "result": comparison.json()}));
            }
        }
        Ok(json!(rows))
    }
}

/// Measures decoding alone, on one thread, beside the crate linux-perf-data.
fn decoders(file: &Path, runs: usize) -> Result<Value> {
    let output = Command::new(cargo())
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "dioptra-perfdata",
        ])
        .args(["--example", "decode", "--"])
        .arg(file)
        .arg(runs.to_string())
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo run --example decode")?;
    if !output.status.success() {
        bail!("the example decode failed on {}", file.display());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    println!("decode, one thread:");
    for line in text.lines() {
        println!("  {line}");
    }
    Ok(json!(text.lines().collect::<Vec<_>>()))
}
