//! `cargo xtask soak agent`: the agent, killed at random moments while its uploads fail at random. `cargo xtask soak attach`:
//! a program of 50 threads, attached to and detached from again and again.
//!
//! `cargo xtask soak`: the random tests of tracing, at length and with other seeds, its clocks, for minutes, and programs that
//! are hard to trace, again and again: many call stacks, libraries that come and go, threads at the start, sanitizers, LuaJIT.

use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// Arguments of `cargo xtask soak`.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: Option<What>,
    /// The number of random trees of calls that are executed, over all ways to build the program
    #[arg(long, default_value_t = 10_000)]
    trees: u64,
    /// The number of times that a traced program is killed
    #[arg(long, default_value_t = 200)]
    kills: u64,
    /// For how many seconds a traced program compares its calls' times with its own
    #[arg(long, default_value_t = 200)]
    seconds: u64,
    /// The largest number of stacks that a traced program exchanges by itself
    #[arg(long, default_value_t = 200_000)]
    fibers: u64,
    /// The number of rounds in which libraries are reloaded, code is patched under busy threads, and programs with sanitizers and LuaJIT run
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// The first seed; without it, the clock's
    #[arg(long)]
    seed: Option<u64>,
    /// Only ways to build and trace whose names contain this, such as "g++ -O2 plain"
    #[arg(long)]
    only: Option<String>,
}

/// A part of the soak that is asked for by itself.
#[derive(clap::Subcommand)]
enum What {
    /// `dioptra agent`, killed at random moments while its uploads fail at random
    Agent {
        /// The number of times that the agent is killed
        #[arg(long, default_value_t = 500)]
        kills: u64,
    },
    /// A program of 50 threads, attached to and detached from again and again
    Attach {
        /// The number of attachments
        #[arg(long, default_value_t = 10_000)]
        cycles: u64,
    },
}

/// Attaches to a program again and again, and checks what is recorded and what is left in it.
fn attach(cycles: u64) -> Result<()> {
    let status = Command::new("cargo")
        .args(["test", "-p", "dioptra", "--test", "trace_record"])
        .args([
            "--",
            "--nocapture",
            "--exact",
            "attach::serial_a_process_survives_many_attachments",
        ])
        .env("DIOPTRA_SOAK_ATTACH", cycles.to_string())
        .current_dir(crate::root())
        .status()
        .context("cargo does not start")?;
    ensure!(
        status.success(),
        "attaching has harmed a program: see above"
    );
    Ok(())
}

/// Kills the agent, and checks that every segment arrives.
fn agent(kills: u64) -> Result<()> {
    let status = Command::new("cargo")
        .args(["test", "-p", "dioptra", "--test", "agent"])
        .args([
            "--",
            "--nocapture",
            "--exact",
            "nothing_is_lost_whatever_fails",
        ])
        .env("DIOPTRA_SOAK_AGENT_KILLS", kills.to_string())
        .current_dir(crate::root())
        .status()
        .context("cargo does not start")?;
    ensure!(status.success(), "a segment was lost or changed: see above");
    Ok(())
}

/// Runs the tests that make up what they do.
pub fn run(arguments: &Arguments) -> Result<()> {
    match arguments.what {
        Some(What::Agent { kills }) => return agent(kills),
        Some(What::Attach { cycles }) => return attach(cycles),
        None => {}
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let seed = arguments.seed.unwrap_or(now.as_secs() << 20);
    println!("--- seed {seed}");
    let status = Command::new("cargo")
        .args([
            "test",
            "-p",
            "dioptra-trace-recorder",
            "--test",
            "trace_random",
        ])
        .args(["--test", "trace_clock", "--test", "trace_fibers"])
        .arg("--no-fail-fast")
        .args(["--", "--nocapture", "--test-threads=1"])
        .env("DIOPTRA_SOAK_SECONDS", arguments.seconds.to_string())
        .env("DIOPTRA_SOAK_TREES", arguments.trees.to_string())
        .env("DIOPTRA_SOAK_KILLS", arguments.kills.to_string())
        .env("DIOPTRA_SOAK_FIBERS", arguments.fibers.to_string())
        .env("DIOPTRA_SOAK_SEED", seed.to_string())
        .env(
            "DIOPTRA_SOAK_ONLY",
            arguments.only.as_deref().unwrap_or_default(),
        )
        .current_dir(crate::root())
        .status()
        .context("cargo does not start")?;
    ensure!(
        status.success(),
        "a trace differs from what the program said: see above; seed {seed}"
    );
    for round in 1..=arguments.rounds {
        println!("--- round {round} of programs that are hard to trace");
        for test in [
            &[
                "dioptra-trace-recorder",
                "--test",
                "trace_reloads",
                "--test",
                "trace_patching",
            ][..],
            &["dioptra", "--test", "trace_record", "guests::"],
        ] {
            let status = Command::new("cargo")
                .args(["test", "-p"])
                .args(test)
                .args(["--", "--test-threads=1"])
                .current_dir(crate::root())
                .status()
                .context("cargo does not start")?;
            ensure!(status.success(), "round {round} failed: see above");
        }
    }
    Ok(())
}
