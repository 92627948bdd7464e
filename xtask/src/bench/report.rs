//! `cargo xtask bench report`: the same profile read by dioptra and by perf.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;
use serde_json::json;

use super::compare::{Comparison, Contestant, compare};
use super::{build_dioptra, find_perf, input, save, version};

/// What to compare, on what.
#[derive(clap::Args)]
pub struct Arguments {
    /// How often each tool runs
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Size of the profile to record, in MB; it is kept for the next time
    #[arg(long, default_value_t = 100)]
    size: u64,
    /// What the profile holds
    #[arg(long, value_enum, default_value = "sys-fp")]
    kind: input::Kind,
    /// Take this profile instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["size", "kind"])]
    input: Option<PathBuf>,
    /// Which reports to compare
    #[arg(long = "mode", value_enum, value_delimiter = ',', default_values = ["flat", "tree", "children"])]
    modes: Vec<Mode>,
    /// Leave dioptra out
    #[arg(long)]
    peers_only: bool,
}

/// A kind of report.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Mode {
    /// Functions by their own samples, call chains unused
    Flat,
    /// Functions by their own samples, with the tree of their callers
    Tree,
    /// Functions by their own samples and those of what they call
    Children,
    /// Both: what a bare `perf report` does. It can take more memory than there is
    Default,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Tree => "tree",
            Self::Children => "children",
            Self::Default => "default",
        }
    }

    fn dioptra(self) -> &'static [&'static str] {
        match self {
            Self::Flat => &[],
            Self::Tree => &["--tree", "callers"],
            Self::Children => &["--children"],
            Self::Default => &["--children", "--tree", "callers"],
        }
    }

    fn perf(self) -> &'static [&'static str] {
        match self {
            Self::Flat => &["-g", "none", "--no-children"],
            Self::Tree => &["--no-children"],
            Self::Children => &["-g", "none", "--children"],
            Self::Default => &[],
        }
    }
}

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    let perf = find_perf()?;
    let dioptra = if arguments.peers_only {
        None
    } else {
        Some(build_dioptra()?)
    };
    let input = match &arguments.input {
        Some(path) => input::given(path)?,
        None => input::make(&perf, arguments.kind, arguments.size)?,
    };
    input::warm(&input.path)?;
    let samples = input
        .samples
        .map_or_else(String::new, |n| format!(", {n} samples"));
    println!(
        "report of {}: {:.1} MB{samples}; {} runs, limit {} s and 12 GiB of address space",
        input.path.display(),
        input.bytes as f64 / 1e6,
        arguments.runs,
        input::time_limit().as_secs()
    );

    Comparison::print_heading();
    let mut modes = Vec::new();
    for mode in &arguments.modes {
        let contestants = contestants(
            *mode,
            dioptra.as_deref(),
            &perf,
            &input.path.to_string_lossy(),
        );
        let comparison = compare(mode.name(), contestants, arguments.runs)?;
        comparison.print();
        modes.push(comparison.json());
    }
    save(
        "report",
        json!({
            "input": {"path": input.path, "bytes": input.bytes, "samples": input.samples},
            "versions": {"dioptra": dioptra.as_deref().map(version), "perf": version(&perf)},
            "modes": modes,
        }),
    )
}

fn contestants(mode: Mode, dioptra: Option<&Path>, perf: &Path, file: &str) -> Vec<Contestant> {
    let ours = dioptra.map(|dioptra| {
        Contestant::new(
            "dioptra",
            dioptra,
            &[&["report", "-i", file], mode.dioptra()].concat(),
        )
    });
    let peers = Contestant::new(
        "perf",
        perf,
        &[&["report", "--stdio", "-i", file], mode.perf()].concat(),
    );
    ours.into_iter().chain([peers]).collect()
}
