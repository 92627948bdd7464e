//! `cargo xtask test`: everything that must hold before a change lands.

use std::io::Write;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::pmu_test::cross;
use crate::{root, tools};

/// Runs all steps, each announced and timed; the first that fails ends the run with its exit code.
pub fn run(install: bool) -> Result<ExitCode> {
    let start = Instant::now();
    announce("tools");
    tools::provide(install);

    let tests: &[&str] = if has_nextest() {
        &["nextest", "run", "--workspace"]
    } else {
        println!(
            "cargo-nextest is not installed: taking cargo test, which runs the recording tests one at a time too"
        );
        &[
            "test",
            "--workspace",
            "--all-targets",
            "--",
            "--test-threads=1",
        ]
    };
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
        let status = Command::new(cargo())
            .args(arguments)
            .current_dir(root())
            .stdin(Stdio::null())
            .status()
            .with_context(|| format!("running cargo {}", arguments.join(" ")))?;
        let seconds = step.elapsed().as_secs_f64();
        if !status.success() {
            println!(
                "--- {name}: FAILED after {seconds:.1} s (cargo {})",
                arguments.join(" ")
            );
            // A signal has no code; 1 says failure as well.
            return Ok(ExitCode::from(
                status
                    .code()
                    .and_then(|c| u8::try_from(c).ok())
                    .unwrap_or(1),
            ));
        }
        println!("--- {name}: passed in {seconds:.1} s");
    }
    announce("64-bit Arm");
    let step = Instant::now();
    match cross::check()? {
        Some(true) => println!(
            "--- 64-bit Arm: passed in {:.1} s",
            step.elapsed().as_secs_f64()
        ),
        Some(false) => {
            println!(
                "--- 64-bit Arm: FAILED (cargo check --target {})",
                cross::TARGET
            );
            return Ok(ExitCode::FAILURE);
        }
        None => println!(
            "skipped: it takes `rustup target add {}` and aarch64-linux-gnu-gcc; `cargo xtask arm-test` gets them by itself",
            cross::TARGET
        ),
    }
    println!("--- all passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
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
