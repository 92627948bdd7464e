//! `cargo xtask bench`: dioptra beside its peers, in one run on one machine.
//!
//! The tools take turns, and the order turns round from one run to the next, so that a change of the machine's
//! load hits all of them alike. What counts is the ratio of the medians of CPU seconds (user + system) and of peak
//! memory. A tool that hits a limit or fails did not finish, which is a result too.

mod analyze;
mod attach;
mod compare;
mod fleet;
mod input;
mod measure;
mod report;
mod trace;
mod trace_large;
mod trace_read;
mod trace_real;
mod trace_sampled;
mod web;
mod windows;
mod windows_cost;
mod windows_hardware;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};

use crate::{root, test::cargo};

/// A bench and its arguments.
#[derive(Subcommand)]
pub enum Bench {
    /// `dioptra report` beside `perf report --stdio` on the same file
    Report(report::Arguments),
    /// The whole tree of a profile beside a plain report, second questions, and code beside `perf annotate`
    Analyze(analyze::Arguments),
    /// `dioptra record -p` beside `perf record -p` on the same program
    Attach(attach::Arguments),
    /// Questions over the profiles of a synthetic fleet, beside DuckDB and Spark on the same files
    Fleet(fleet::Arguments),
    /// Traced calls beside uftrace's
    Trace(trace::Arguments),
    /// The page in Chromium on a large profile: loading, actions and memory, beside `dioptra report` and speedscope
    Web(web::Arguments),
    /// Intervals, bias and trust of the metrics of windows, on simulated programs whose rates are known
    Windows(windows::Arguments),
}

/// Runs one bench.
pub fn run(bench: &Bench) -> Result<()> {
    match bench {
        Bench::Report(arguments) => report::run(arguments),
        Bench::Analyze(arguments) => analyze::run(arguments),
        Bench::Attach(arguments) => attach::run(arguments),
        Bench::Fleet(arguments) => fleet::run(arguments),
        Bench::Trace(arguments) => trace::run(arguments),
        Bench::Web(arguments) => web::run(arguments),
        Bench::Windows(arguments) => windows::run(arguments),
    }
}

/// Builds dioptra in release mode and returns the executable's path.
fn build_dioptra() -> Result<PathBuf> {
    build(&["--package", "dioptra", "--bin", "dioptra"])
        .context("dioptra does not build; --peers-only measures the others alone")
}

/// Builds what the arguments name in release mode and returns the executable's path.
fn build(what: &[&str]) -> Result<PathBuf> {
    let output = Command::new(cargo())
        .args(["build", "--release"])
        .args(what)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo build")?;
    if !output.status.success() {
        bail!("cargo build {} failed", what.join(" "));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
        .context("cargo build named no executable")
}

/// The peer, or what to do without it.
fn find_perf() -> Result<PathBuf> {
    dioptra_testprograms::need_tool("perf").map_err(|skip| {
        anyhow::anyhow!(
            "{skip}; it is the peer to compare with (Debian: apt-get install linux-perf)"
        )
    })
}

/// Where inputs are kept between runs: `bench` in the target folder.
fn scratch() -> Result<PathBuf> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from);
    let folder = root().join(target).join("bench");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Writes a bench's result to `bench-results/NAME.json` and says so.
fn save(name: &str, mut result: Value) -> Result<()> {
    result["schema"] = json!(1);
    result["bench"] = json!(name);
    result["machine"] = machine();
    let folder = root().join("bench-results");
    let file = folder.join(format!("{name}.json"));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&file, format!("{result:#}\n")))
        .with_context(|| file.display().to_string())?;
    println!("\n{}", file.strip_prefix(root()).unwrap_or(&file).display());
    Ok(())
}

/// Returns everything besides the tools that the figures depend on.
fn machine() -> Value {
    let line = |path: &str| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_string()
    };
    let cpu = line("/proc/cpuinfo");
    let model = cpu
        .lines()
        .find(|l| l.starts_with("model name"))
        .and_then(|l| l.split(": ").nth(1));
    json!({
        "cpus": cpus(),
        "model": model,
        "kernel": line("/proc/sys/kernel/osrelease"),
        "load_at_end": line("/proc/loadavg").split(' ').next(),
    })
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The first line of `TOOL --version`.
fn version(tool: &Path) -> String {
    let output = Command::new(tool)
        .arg("--version")
        .stdin(Stdio::null())
        .output();
    output.map_or_else(
        |error| error.to_string(),
        |output| {
            String::from_utf8_lossy(&output.stdout)
                .lines()
                .next()
                .unwrap_or_default()
                .to_string()
        },
    )
}
