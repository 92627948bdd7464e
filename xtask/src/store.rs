//! `cargo xtask store`: format, lints and tests of the store of many profiles, which is a workspace of its own.
//!
//! Its dependencies take minutes to compile, so `cargo xtask test` leaves it out.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

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
        ("DIOPTRA_STORE_KILLS", "500"),
        ("DIOPTRA_STORE_FAULTS", "all"),
    ];
    let release = release.then_some("--release");
    let words = tests.into_iter().chain(release);
    let words: Vec<&str> = words.chain(["--", "--nocapture"]).collect();
    cargo(&store, &words, &wanted)
}

fn cargo(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> Result<()> {
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
