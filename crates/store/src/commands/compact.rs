//! `compact`: the rows of small profiles move into larger objects.

use super::{NamedStore, bytes, count, duration};
use anyhow::bail;
use dioptra_store::{CompactOptions, LONGEST_SETTLE};
use dioptra_tables::escape;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `compact`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra store compact --store profiles --dry-run     show how much there is to merge
  dioptra store compact --store profiles
  dioptra store compact --store profiles --settle 0s   nobody queries the store now

Profiles of one day, service and host are merged. Answers stay the same. `dioptra store gc` deletes the old objects later.")]
pub struct Arguments {
    #[command(flatten)]
    store: NamedStore,
    /// The size of merged objects in MiB, those of all tables together
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1024))]
    size: u64,
    /// Wait this long before profiles name the merged objects. Queries of other engines may take as long; up to 30m
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    settle: Duration,
    /// Write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Merges the rows of small profiles.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.settle > LONGEST_SETTLE {
        bail!("--settle: the longest time is 30m");
    }
    let options = CompactOptions {
        target_bytes: arguments.size << 20,
        settle: arguments.settle,
        dry_run: arguments.dry_run,
    };
    let settle = arguments.settle.as_secs();
    let compacted = arguments.store.open()?.compact(options, |so_far| {
        if settle > 0 {
            eprintln!(
                "{} written; waiting for {settle} s until queries that began before have ended (--settle)",
                count(so_far.after.0, "merged object", "merged objects")
            );
        }
    })?;
    for (profile, reason) in &compacted.skipped {
        println!("{profile}: {}", escape(reason));
    }
    let objects = |(number, size): (u64, u64)| {
        format!("{} of {}", count(number, "object", "objects"), bytes(size))
    };
    let profiles = count(compacted.profiles, "profile", "profiles");
    let groups = count(compacted.groups, "group", "groups");
    match arguments.dry_run {
        true => println!(
            "# would merge {profiles} in {groups}: {}",
            objects(compacted.before)
        ),
        false => println!(
            "# merged {profiles} in {groups}: {} instead of {}",
            objects(compacted.after),
            objects(compacted.before)
        ),
    }
    match compacted.skipped.len() {
        0 => Ok(ExitCode::SUCCESS),
        skipped => {
            let skipped = count(skipped as u64, "profile", "profiles");
            println!("# left out: {skipped}");
            Ok(ExitCode::FAILURE)
        }
    }
}
