//! `gc`: what interrupted writers left is deleted.

use super::{NamedStore, bytes, count, duration};
use dioptra_store::Orphans;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `gc`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra store gc --store profiles --dry-run     show what would be deleted
  dioptra store gc --store profiles")]
pub struct Arguments {
    #[command(flatten)]
    store: NamedStore,
    /// Keep objects that were written less than this ago: a writer may still be at work
    #[arg(long, value_name = "TIME", default_value = "1d", value_parser = duration)]
    older_than: Duration,
    /// Delete nothing
    #[arg(long)]
    dry_run: bool,
}

/// Deletes the objects without a profile.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let store = arguments.store.open()?;
    let collected = store.gc(arguments.older_than, arguments.dry_run)?;
    for name in &collected.deleted.names {
        println!("{name}");
    }
    let told = |orphans: &Orphans| {
        let number = count(orphans.names.len() as u64, "object", "objects");
        format!("{number} of {}", bytes(orphans.bytes))
    };
    let verb = match arguments.dry_run {
        true => "would delete",
        false => "deleted",
    };
    println!("# {verb} {} without a profile", told(&collected.deleted));
    if !collected.kept.names.is_empty() {
        println!(
            "# kept {} without a profile, too young to be sure (--older-than)",
            told(&collected.kept)
        );
    }
    Ok(ExitCode::SUCCESS)
}
