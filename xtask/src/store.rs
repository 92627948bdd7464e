//! `cargo xtask store`: format, lints and tests of the store of many profiles, which is a workspace of its own.
//!
//! Its dependencies take minutes to compile, so `cargo xtask test` leaves it out.

use crate::tools::{self, Tool, command, file};
use anyhow::{Context, Result, ensure};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

/// The tools of the other engines. Spark runs on Java, and its package and DuckDB's come from PyPI.
const ENGINES: &[Tool] = &[
    command("java", &["openjdk-17-jre-headless", "default-jre-headless"]),
    command("python3", &["python3"]),
    file(
        "/usr/lib/python3/dist-packages/pip/__init__.py",
        &["python3-pip"],
    ),
];

/// The Python packages of the other engines, with those that they depend on.
const PACKAGES: [&str; 3] = ["duckdb==2.0.1", "py4j==0.10.9.9", "pyspark==4.3.0"];

/// Builds `dioptra`, whose numbers the tests compare with, and checks and tests the store. With `release`, the tests run
/// optimized code.
pub fn run(release: bool) -> Result<()> {
    let root = crate::root();
    let store = root.join("crates/store");
    build_dioptra(&root)?;
    cargo(&store, &["fmt", "--all", "--check"], &[])?;
    let lints = ["clippy", "--all-targets", "--", "-D", "warnings"];
    cargo(&store, &lints, &[])?;
    // A build without the engine of queries has code that only it compiles.
    let mut without = vec!["clippy", "--no-default-features", "--lib", "--bins"];
    without.extend(&lints[2..]);
    cargo(&store, &without, &[])?;
    let mut test = vec!["test"];
    test.extend(release.then_some("--release"));
    cargo(&store, &test, &[])
}

/// Builds `dioptra`, unless the variable `DIOPTRA` names one.
fn build_dioptra(root: &Path) -> Result<()> {
    match std::env::var_os("DIOPTRA") {
        Some(_) => Ok(()),
        None => cargo(root, &["build", "--package", "dioptra"], &[]),
    }
}

/// Kills 500 writers and 500 mergers at random moments, fills disks, cuts files, and lets a server fail at each request.
///
/// With `release`, the killed programs are optimized, as the measured ones are.
pub fn faults(release: bool) -> Result<()> {
    let root = crate::root();
    let store = root.join("crates/store");
    build_dioptra(&root)?;
    let tests = [
        "test",
        "--test",
        "safety",
        "--test",
        "compaction",
        "--test",
        "faults",
    ];
    let wanted = [
        ("DIOPTRA_STORE_KILLS", OsStr::new("500")),
        ("DIOPTRA_STORE_FAULTS", OsStr::new("all")),
    ];
    let release = release.then_some("--release");
    let words = tests.into_iter().chain(release);
    let words: Vec<&str> = words.chain(["--", "--nocapture"]).collect();
    cargo(&store, &words, &wanted)
}

/// Installs other engines, builds the Ballista program, and compares the engines' answers with the embedded one's.
/// Without an engine its tests are skipped, saying so.
pub fn engines() -> Result<()> {
    let root = crate::root();
    let store = root.join("crates/store");
    let ballista = store.join("engines/ballista");
    tools::provide_these(ENGINES, true);
    let mut variables: Vec<(&str, OsString)> = Vec::new();
    let named = std::env::var_os("DIOPTRA_PYTHON").is_some();
    let python = (!named).then(|| dioptra_testprograms::python_with(&PACKAGES));
    match python {
        None => println!("DIOPTRA_PYTHON names a Python; no packages are installed"),
        Some(Ok(python)) => {
            variables.push(("DIOPTRA_PYTHON", python.get_program().to_owned()));
            let path = python.get_envs().find(|(name, _)| *name == "PYTHONPATH");
            let path = path.and_then(|(_, value)| value);
            variables.extend(path.map(|path| ("PYTHONPATH", path.to_owned())));
        }
        Some(Err(skip)) => println!("{skip}; the tests of DuckDB and Spark are skipped"),
    }
    build_dioptra(&root)?;
    cargo(&ballista, &["fmt", "--check"], &[])?;
    let lints = ["clippy", "--all-targets", "--", "-D", "warnings"];
    cargo(&ballista, &lints, &[])?;
    cargo(&ballista, &["build"], &[])?;
    let tests = ["test", "--test", "engines", "--test", "distributed"];
    let words: Vec<&str> = tests.into_iter().chain(["--", "--nocapture"]).collect();
    let variables: Vec<(&str, &OsStr)> = variables
        .iter()
        .map(|(name, value)| (*name, &**value))
        .collect();
    cargo(&store, &words, &variables)
}

fn cargo(folder: &Path, words: &[&str], variables: &[(&str, &OsStr)]) -> Result<()> {
    println!("--- cargo {} in {}", words.join(" "), folder.display());
    let status = Command::new("cargo")
        .args(words)
        .envs(variables.iter().copied())
        .current_dir(folder)
        .status()
        .context("cargo does not start")?;
    ensure!(status.success(), "cargo {} failed", words.join(" "));
    Ok(())
}
