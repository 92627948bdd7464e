//! The `dioptra-store` binary: arguments and output.

mod commands;

use clap::{Parser, Subcommand};
use dioptra_store::StoreError;
use dioptra_tables::escape;
use std::io::ErrorKind;
use std::process::ExitCode;

/// Many profiles: a store of Parquet files, and SQL over it.
#[derive(Parser)]
#[command(
    name = "dioptra-store",
    bin_name = "dioptra-store",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  dioptra-store add perf.data --to profiles --service web       add a recording or a trace; the folder is made
  dioptra-store list --store profiles                           show what there is
  dioptra-store query --store profiles top-functions --since 7d --group-by service
  dioptra-store query --store profiles 'SELECT service, sum(weight) FROM samples GROUP BY service'

`dioptra store add` and `dioptra query` are the same."
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add recordings and traces to a store
    Add(commands::add::Arguments),
    /// Show the profiles of a store
    List(commands::list::Arguments),
    /// Merge the rows of small profiles into larger files
    Compact(commands::compact::Arguments),
    /// Delete what interrupted writers left
    Gc(commands::gc::Arguments),
    /// Read everything, and compare it with what was written
    Verify(commands::verify::Arguments),
    /// Answer SQL and named questions
    #[cfg(feature = "query")]
    Query(commands::query::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Add(arguments) => commands::add::run(&arguments),
        Command::List(arguments) => commands::list::run(&arguments),
        Command::Compact(arguments) => commands::compact::run(&arguments),
        Command::Gc(arguments) => commands::gc::run(&arguments),
        Command::Verify(arguments) => commands::verify::run(&arguments),
        #[cfg(feature = "query")]
        Command::Query(arguments) => commands::query::run(&arguments),
    };
    match result {
        Ok(status) => status,
        // The reader of our output has closed the pipe: it has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let remedy = error.chain().find_map(remedy);
            let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
            eprintln!("dioptra: {}{remedy}", escape(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == ErrorKind::BrokenPipe)
    })
}

/// Returns what the user can type to get what an error says is missing.
fn remedy(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    match error.downcast_ref::<StoreError>()? {
        StoreError::NoStore { .. } => Some("`dioptra store add FILE --to PLACE` makes one"),
        StoreError::Label { label: "host", .. } => Some("give another with --host"),
        StoreError::Label { .. } => Some("give another with --service"),
        StoreError::Disturbed { .. } => Some("add it again"),
        StoreError::NoTrace { .. } => {
            Some("give a file of `dioptra record`, or the directory of `dioptra trace record`")
        }
        StoreError::Damaged { .. } | StoreError::DamagedTrace { .. } => {
            Some("copy or record it again")
        }
        StoreError::OtherLabel { .. } => {
            Some("leave the label out, or add the recording to another store")
        }
        StoreError::NotRepairable { .. } => {
            Some("delete the profile's file in `profiles` and add the recording again")
        }
        StoreError::Memory { .. } => Some(
            "give it more with --memory, or ask about fewer samples: by date, service and host, or by event",
        ),
        StoreError::Version { .. } => Some("use the dioptra that wrote it, or another place"),
        _ => None,
    }
}
