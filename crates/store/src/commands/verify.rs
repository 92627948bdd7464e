//! `verify`: everything is read and compared with what was written.

use super::{NamedStore, bytes, count};
use std::process::ExitCode;

/// Arguments of `verify`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra store verify --store profiles           the exit status is 1 where something is damaged")]
pub struct Arguments {
    #[command(flatten)]
    store: NamedStore,
}

/// Verifies the store.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let verified = arguments.store.open()?.verify()?;
    for (object, problem) in &verified.problems {
        println!("{object}: {problem}");
    }
    println!(
        "# {} whole, with {}{}",
        count(verified.whole, "profile is", "profiles are"),
        count(verified.samples.unsigned_abs(), "sample", "samples"),
        match verified.calls {
            0 => String::new(),
            calls => format!(" and {}", count(calls.unsigned_abs(), "call", "calls")),
        },
    );
    let orphans = &verified.orphans;
    if !orphans.names.is_empty() {
        println!(
            "# {} of {} without a profile, which no view shows; `dioptra store gc` deletes them",
            count(orphans.names.len() as u64, "object", "objects"),
            bytes(orphans.bytes),
        );
    }
    match verified.problems.len() {
        0 => Ok(ExitCode::SUCCESS),
        problems => {
            println!(
                "# {}; adding the recording again mends missing and cut objects",
                count(problems as u64, "damaged object", "damaged objects")
            );
            Ok(ExitCode::FAILURE)
        }
    }
}
