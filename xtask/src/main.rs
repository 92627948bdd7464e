//! The chores of the project: `cargo xtask test`, `fresh`, `bench`, `fuzz`, `soak`, `store`, `arm-test`, `pmu-test`, `man`,
//! `deb` and `publish-check`.

mod arm_test;
mod bench;
mod cargo_test;
mod fresh;
mod fuzz;
mod packages;
mod page;
mod pmu_test;
mod prose;
mod soak;
mod store;
mod test;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Pass all tests: tools, format, lints, tests, doc tests
    Test {
        /// Install nothing: list the tools that tests use and this machine lacks, and test with the others
        #[arg(long)]
        no_install: bool,
    },
    /// Build the page's bundle and test the page in Chromium; a step of `test`, too
    Page,
    /// Type the README's commands on a machine that has nothing but Debian and Rust
    Fresh(fresh::Arguments),
    /// Measure dioptra beside its peers, in one run
    Bench {
        #[command(subcommand)]
        bench: bench::Bench,
    },
    /// Run the fuzz targets, each for a while
    Fuzz {
        /// This target only
        target: Option<String>,
        /// The seconds that each target runs
        #[arg(long, default_value_t = 60)]
        seconds: u32,
    },
    /// Trace random programs, and kill traced ones, for a long time
    Soak(soak::Arguments),
    /// Check and test the store of many profiles, a workspace of its own that takes minutes to build
    Store {
        /// Kill 500 writers and 500 mergers, and fail at each request to a server
        #[arg(long)]
        faults: bool,
        /// Install DuckDB and Spark, build Ballista, and compare their answers with the embedded engine's
        #[arg(long, conflicts_with_all = ["faults", "release"])]
        engines: bool,
        /// Test optimized code
        #[arg(long)]
        release: bool,
    },
    /// Trace programs on 64-bit Arm, in a virtual machine, and compare the traces with what the programs say themselves
    ArmTest(arm_test::Arguments),
    /// Check what needs hardware counters, in a virtual machine that emulates them exactly
    PmuTest(pmu_test::Arguments),
    /// Write the man pages and shell completions below target/package-files
    Man(packages::ManArguments),
    /// Build the Debian package; with --check, use it in a clean Debian tree, too
    Deb(packages::DebArguments),
    /// Check that the publishable crates can be published, without publishing them
    PublishCheck,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::Test { no_install } => test::run(!no_install),
        Chore::Page => page::run(),
        Chore::Fresh(arguments) => fresh::run(&arguments),
        Chore::Bench { bench } => bench::run(&bench).map(|()| ExitCode::SUCCESS),
        Chore::Fuzz { target, seconds } => {
            fuzz::run(target.as_deref(), seconds).map(|()| ExitCode::SUCCESS)
        }
        Chore::Soak(arguments) => soak::run(&arguments).map(|()| ExitCode::SUCCESS),
        Chore::Store {
            faults,
            engines,
            release,
        } => match (faults, engines) {
            (true, _) => store::faults(release),
            (_, true) => store::engines(),
            _ => store::run(release),
        }
        .map(|()| ExitCode::SUCCESS),
        Chore::ArmTest(arguments) => arm_test::run(&arguments),
        Chore::PmuTest(arguments) => pmu_test::run(&arguments),
        Chore::Man(arguments) => packages::man(&arguments),
        Chore::Deb(arguments) => packages::deb(&arguments),
        Chore::PublishCheck => packages::publish_check(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

/// The repository's root, where cargo's commands run.
fn root() -> PathBuf {
    dioptra_testprograms::repository_root()
}

/// Returns the folder for downloads, which outlive the target folder.
fn cache() -> Result<PathBuf> {
    let home = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))
        .context("neither HOME nor XDG_CACHE_HOME says where downloads are kept")?;
    Ok(home.join("dioptra"))
}
