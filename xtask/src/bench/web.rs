//! `cargo xtask bench web`: the page in Chromium on a large profile, and speedscope on the same stacks.

use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::compare::median;
use super::input::{self, Input, Kind};
use super::measure::{self, Run};
use super::{build_dioptra, find_perf, save, scratch, version};
use crate::page;
use crate::root;

/// The version of speedscope that npm brings.
const SPEEDSCOPE: &str = "speedscope@1.25.0";

/// The profile to measure, and the number of rounds.
#[derive(clap::Args)]
pub struct Arguments {
    /// Size of the profile to record, in MB; it is kept for the next time
    #[arg(long, default_value_t = 400)]
    size: u64,
    /// Take this profile instead
    #[arg(long, value_name = "FILE", conflicts_with = "size")]
    input: Option<PathBuf>,
    /// The number of runs of `dioptra report`
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// The number of actions in the page
    #[arg(long, default_value_t = 200)]
    actions: usize,
    /// Leave speedscope out
    #[arg(long)]
    no_peers: bool,
}

/// Runs the bench.
pub fn run(arguments: &Arguments) -> Result<()> {
    let dioptra = build_dioptra()?;
    let input = match &arguments.input {
        Some(path) => input::given(path)?,
        None => input::make(&find_perf()?, Kind::SysFp, arguments.size)?,
    };
    let Some(npm) = page::Npm::prepare()? else {
        bail!("the npm registry did not give the page's packages");
    };
    input::warm(&input.path)?;
    println!(
        "{}: {:.0} MB",
        input.path.display(),
        input.bytes as f64 / 1e6
    );
    let reports = reports(&dioptra, &input, arguments.runs)?;
    let speedscope = match arguments.no_peers {
        true => None,
        false => Some(speedscope(&npm)?),
    };
    let (server, page) = pages(
        &dioptra,
        &npm,
        &input,
        arguments.actions,
        speedscope.as_deref(),
    )?;
    let result = json!({
        "version": version(&dioptra),
        "input": {"file": input.path, "bytes": input.bytes, "samples": input.samples},
        "report": {
            "wall": median(reports.iter().map(|run| run.wall).collect()),
            "cpu": median(reports.iter().map(|run| run.cpu).collect()),
            "peak": median(reports.iter().map(|run| run.peak as f64).collect()),
        },
        "server": {"cpu": server.cpu, "peak": server.peak},
        "page": page,
    });
    print(&result);
    save("web", result)
}

/// Runs `dioptra report` on the profile.
fn reports(dioptra: &Path, input: &Input, runs: usize) -> Result<Vec<Run>> {
    let mut all = Vec::new();
    for _ in 0..runs.max(1) {
        let mut command = Command::new(dioptra);
        command
            .args(["report", "--children", "-i"])
            .arg(&input.path);
        let run = measure::start(&mut command)?.finish(&[])?;
        if let Some(failure) = &run.failure {
            bail!("dioptra report: {failure}");
        }
        all.push(run);
    }
    Ok(all)
}

/// Installs speedscope, and returns the folder of its page.
fn speedscope(npm: &page::Npm) -> Result<PathBuf> {
    let folder = scratch()?.join("speedscope");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let install = [
        "install",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--prefix",
        ".",
        SPEEDSCOPE,
    ];
    if !npm.run(&folder, &install)? {
        bail!("npm install {SPEEDSCOPE} failed; --no-peers leaves it out");
    }
    Ok(folder.join("node_modules/speedscope/dist/release"))
}

/// Serves the profile, and lets Chromium act on the page.
fn pages(
    dioptra: &Path,
    npm: &page::Npm,
    input: &Input,
    actions: usize,
    speedscope: Option<&Path>,
) -> Result<(Run, Value)> {
    let mut command = Command::new(dioptra);
    command.args(["web", "--no-open"]).arg(&input.path);
    let mut server = measure::start_into(&mut command, Stdio::piped())?;
    let out = server.stdout().context("the server's output")?;
    let mut address = String::new();
    BufReader::new(out).read_line(&mut address)?;
    let output = npm
        .node()
        .arg("tests/bench.mjs")
        .arg(address.trim())
        .arg(actions.to_string())
        .args(speedscope)
        .current_dir(root().join("crates/web/ui"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running node tests/bench.mjs");
    server.signal(libc::SIGINT);
    let run = server.finish(&[])?;
    let output = output?;
    if let Some(failure) = &run.failure {
        bail!("dioptra web: {failure}");
    }
    if !output.status.success() {
        bail!("node tests/bench.mjs: {}", output.status);
    }
    let page = serde_json::from_slice(&output.stdout).context("the numbers of tests/bench.mjs")?;
    Ok((run, page))
}

fn print(result: &Value) {
    let number = |path: &str| result.pointer(path).and_then(Value::as_f64);
    let mut out = std::io::stdout().lock();
    let mut line = |title: &str, value: Option<f64>, unit: &str, beside: Option<(f64, &str)>| {
        let Some(value) = value else { return };
        let ratio = beside.map(|(other, name)| format!("   {:.2} × {name}", value / other));
        let ratio = ratio.unwrap_or_default();
        // A closed standard output is no reason to fail.
        let _ = writeln!(out, "{title:<44} {value:>10.1} {unit}{ratio}");
    };
    let wall = number("/report/wall");
    let peak = number("/report/peak");
    line("dioptra report --children", wall, "s", None);
    line(
        "dioptra report --children, peak memory",
        peak.map(|peak| peak / 1e6),
        "MB",
        None,
    );
    let seconds = number("/page/load_ms").map(|ms| ms / 1e3);
    line(
        "the page's profile is loaded after",
        seconds,
        "s",
        wall.map(|wall| (wall, "report")),
    );
    let server = number("/server/peak").map(|peak| peak / 1e6);
    let beside = peak.map(|peak| (peak / 1e6, "report's peak"));
    line("server, peak memory", server, "MB", beside);
    line(
        "first useful paint after loading",
        number("/page/paint_ms"),
        "ms",
        None,
    );
    line(
        "the page's files, compressed",
        number("/page/bundle_bytes").map(|bytes| bytes / 1e3),
        "kB",
        None,
    );
    let empty = serde_json::Map::new();
    let actions = result["page"]["actions"].as_object().unwrap_or(&empty);
    for (kind, times) in actions {
        let of = |name: &str| times[name].as_f64();
        line(
            &format!("{kind}: median of {}", times["count"]),
            of("median"),
            "ms",
            None,
        );
        line(&format!("{kind}: 95th percentile"), of("p95"), "ms", None);
    }
    let graph = number("/page/flame_ms");
    line("flame graph of a new page", graph, "ms", None);
    let beside = graph.map(|graph| (graph, "the page's"));
    line(
        "speedscope's flame graph of the same stacks",
        number("/page/speedscope/ms"),
        "ms",
        beside,
    );
}
