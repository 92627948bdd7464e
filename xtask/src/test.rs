//! `cargo xtask test`: everything that must hold before a change lands.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use dioptra_testprograms::{NO_SKIP, SKIPS_FILE, skips_are_forbidden};

use crate::page::{self, Page};
use crate::pmu_test::cross::{self, Checked};
use crate::{cargo_test, prose, root, tools};

/// The name of the step that installs the tests' tools.
pub const TOOLS_STEP: &str = "tools";
/// The name of the last step, which lists what was skipped and why.
pub const SKIPPED_STEP: &str = "skipped";

/// Runs all steps, each announced and timed; the first that fails ends the run with its exit code.
pub fn run(install: bool) -> Result<ExitCode> {
    let start = Instant::now();
    announce(TOOLS_STEP);
    tools::provide(install);
    let skips = Skips::new()?;
    let code = steps(&skips)?;
    skips.show()?;
    if code.is_none() {
        println!("--- all passed in {:.1} s", start.elapsed().as_secs_f64());
    }
    Ok(code.unwrap_or(ExitCode::SUCCESS))
}

/// Runs the steps behind the installation of tools. Returns the exit code of the one that failed.
fn steps(skips: &Skips) -> Result<Option<ExitCode>> {
    const NEXTEST: &[&str] = &["nextest", "run", "--workspace"];
    const CARGO_TEST: &[&str] = &["test", "--workspace", "--all-targets"];
    let tests = if has_nextest() {
        NEXTEST
    } else {
        println!(
            "cargo-nextest is not installed: taking cargo test, which runs the recording tests one at a time too"
        );
        CARGO_TEST
    };
    announce("prose");
    if !prose::check()? {
        println!("--- prose: FAILED (docs/testing.md says what is checked)");
        return Ok(Some(ExitCode::FAILURE));
    }
    let steps: [(&str, &[&str]); 4] = [
        ("format", &["fmt", "--all", "--check"]),
        (
            "lints",
            &[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ],
        ),
        ("tests", tests),
        ("doc tests", &["test", "--doc", "--workspace"]),
    ];
    for (name, arguments) in steps {
        announce(name);
        let step = Instant::now();
        let status = if arguments == CARGO_TEST {
            cargo_test::run(&skips.file)?
        } else {
            Command::new(cargo())
                .args(arguments)
                .current_dir(root())
                .env(SKIPS_FILE, &skips.file)
                .stdin(Stdio::null())
                .status()
                .with_context(|| format!("running cargo {}", arguments.join(" ")))?
        };
        let seconds = step.elapsed().as_secs_f64();
        if !status.success() {
            println!(
                "--- {name}: FAILED after {seconds:.1} s (cargo {})",
                arguments.join(" ")
            );
            // A signal has no code; 1 says failure as well.
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(Some(ExitCode::from(code.unwrap_or(1))));
        }
        println!("--- {name}: passed in {seconds:.1} s");
    }
    announce("page");
    let step = Instant::now();
    match page::check()? {
        Page::Passed => println!("--- page: passed in {:.1} s", step.elapsed().as_secs_f64()),
        Page::Failed(command) => {
            println!("--- page: FAILED ({command} in crates/web/ui)");
            return Ok(Some(ExitCode::FAILURE));
        }
        Page::Skipped(reason) if skips_are_forbidden() => {
            println!("--- page: FAILED, skipped in spite of {NO_SKIP}: {reason}");
            return Ok(Some(ExitCode::FAILURE));
        }
        Page::Skipped(reason) => {
            println!("skipped: {reason}");
            skips.add("page", &reason)?;
        }
    }
    announce("64-bit Arm");
    let step = Instant::now();
    let lacking = match cross::check()? {
        Checked::Passed => {
            println!(
                "--- 64-bit Arm: passed in {:.1} s",
                step.elapsed().as_secs_f64()
            );
            return Ok(None);
        }
        Checked::Failed => {
            println!(
                "--- 64-bit Arm: FAILED (cargo check --target {})",
                cross::TARGET
            );
            return Ok(Some(ExitCode::FAILURE));
        }
        // No package brings it, so it is a limit of the machine; `cargo xtask arm-test` gets it by itself.
        Checked::NoStandardLibrary => format!("it takes `rustup target add {}`", cross::TARGET),
        Checked::NoLinker => {
            let reason = "aarch64-linux-gnu-gcc is not installed";
            if skips_are_forbidden() {
                println!("--- 64-bit Arm: FAILED, skipped in spite of {NO_SKIP}: {reason}");
                return Ok(Some(ExitCode::FAILURE));
            }
            reason.into()
        }
    };
    println!("skipped: {lacking}");
    skips.add("64-bit Arm", &lacking)?;
    Ok(None)
}

/// The file to which tests write why they skip something.
struct Skips {
    file: PathBuf,
}

impl Skips {
    /// Makes the file, empty. Tests that run as another user append to it, too.
    fn new() -> Result<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
        let file = root().join(target).join("skipped-tests.txt");
        fs::write(&file, "")
            .and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o666)))
            .with_context(|| file.display().to_string())?;
        Ok(Self { file })
    }

    /// Adds a step that was skipped.
    fn add(&self, step: &str, reason: &str) -> Result<()> {
        let mut file = fs::OpenOptions::new()
            .append(true)
            .open(&self.file)
            .with_context(|| self.file.display().to_string())?;
        writeln!(file, "xtask\tthe step {step}\t{reason}")
            .with_context(|| self.file.display().to_string())
    }

    /// Prints the reasons, each with the tests that it kept from running.
    fn show(&self) -> Result<()> {
        let text =
            fs::read_to_string(&self.file).with_context(|| self.file.display().to_string())?;
        announce(SKIPPED_STEP);
        print!("{}", grouped(&text));
        Ok(())
    }
}

/// Groups lines of place, test and reason by reason, the one with the most tests first.
fn grouped(text: &str) -> String {
    let mut by_reason = BTreeMap::<&str, BTreeSet<(&str, &str)>>::new();
    let mut all = BTreeSet::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, '\t');
        if let (Some(place), Some(test), Some(reason)) =
            (fields.next(), fields.next(), fields.next())
        {
            let file = place.rsplit_once(':').map_or(place, |(file, _)| file);
            by_reason.entry(reason).or_default().insert((file, test));
            all.insert((file, test));
        }
    }
    if all.is_empty() {
        return "no test skipped anything\n".into();
    }
    let mut shown = format!("{} skipped something:\n", all.len());
    let mut by_reason: Vec<_> = by_reason.into_iter().collect();
    by_reason.sort_by_key(|(_, tests)| std::cmp::Reverse(tests.len()));
    for (reason, tests) in by_reason {
        let _ = writeln!(shown, "{:5}  {reason}", tests.len());
        for (file, test) in tests {
            let _ = writeln!(shown, "         {test} ({file})");
        }
    }
    shown
}

/// The cargo that runs us.
pub fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn announce(name: &str) {
    println!("--- {name}");
    // The step's own output must come after its name; a closed stdout shows there as well.
    let _ = std::io::stdout().flush();
}

fn has_nextest() -> bool {
    let output = Command::new(cargo())
        .args(["nextest", "--version"])
        .stdin(Stdio::null())
        .output();
    output.is_ok_and(|output| output.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_are_grouped_by_reason() {
        assert_eq!(grouped(""), "no test skipped anything\n");
        let text = "a/b.rs:7\tone\tno perf\n\
                    a/b.rs:9\ttwo\tno perf\n\
                    a/b.rs:8\tone\tno perf\n\
                    c.rs:1\tm::three\tneeds root\n";
        assert_eq!(
            grouped(text),
            "3 skipped something:\n    2  no perf\n         one (a/b.rs)\n         two (a/b.rs)\n    1  \
             needs root\n         m::three (c.rs)\n"
        );
    }
}
