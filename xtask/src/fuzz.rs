//! `cargo xtask fuzz`: the fuzz targets, each for a while.

use anyhow::{Context, Result, bail, ensure};
use std::process::Command;

/// The crates with fuzz targets, and these.
const TARGETS: [(&str, &[&str]); 6] = [
    ("tracing/calls", &["trace"]),
    ("tracing/filters", &["rules"]),
    ("tracing/patch", &["code"]),
    ("perf/data", &["recording", "writer"]),
    ("perf/records", &["records"]),
    ("perf/events", &["events"]),
];

/// Runs `only`, or every target, for `seconds` each; a finding is an error that tells where its input lies.
///
/// Needs `cargo install cargo-fuzz`. Sanitizers need a nightly compiler, so they are off.
pub fn run(only: Option<&str>, seconds: u32) -> Result<()> {
    let chosen: Vec<(&str, &str)> = TARGETS
        .iter()
        .flat_map(|(folder, targets)| targets.iter().map(|target| (*folder, *target)))
        .filter(|(_, target)| only.is_none_or(|only| only == *target))
        .collect();
    ensure!(
        !chosen.is_empty(),
        "there is no such fuzz target; there are {TARGETS:?}"
    );
    let installed = Command::new("cargo").args(["fuzz", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        bail!("cargo-fuzz is missing; install it with `cargo install cargo-fuzz`");
    }
    for (folder, target) in chosen {
        println!("--- fuzzing {target} of {folder} for {seconds} s");
        // New inputs go to the first folder; the saved ones are only read.
        let found = crate::root().join("target/fuzz").join(target);
        let saved = crate::root()
            .join("crates")
            .join(folder)
            .join("fuzz/corpus")
            .join(target);
        std::fs::create_dir_all(&found).context("no folder for what is found")?;
        let status = Command::new("cargo")
            .args(["fuzz", "run", "-s", "none", target])
            .arg(&found)
            .args(saved.is_dir().then_some(&saved))
            .arg("--")
            .arg(format!("-max_total_time={seconds}"))
            .env("RUSTC_BOOTSTRAP", "1")
            .current_dir(crate::root().join("crates").join(folder))
            .status()
            .context("cargo fuzz does not start")?;
        ensure!(
            status.success(),
            "{target} has a finding: its input lies in crates/{folder}/fuzz/artifacts/{target}; mend it, and keep the \
             input in the corpus"
        );
    }
    Ok(())
}
