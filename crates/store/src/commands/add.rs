//! `add`: recordings and traces become profiles of a store.

use super::{Patience, bytes, count};
use anyhow::{Context, bail};
use dioptra_store::{ChosenLabels, DEFAULT_EACH_CALL, How, Kind, ReadOptions, Store};
use dioptra_symbols::SymbolOptions;
use dioptra_tables::escape;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `add`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra store add perf.data --to profiles
  dioptra store add dioptra.trace --to profiles            a trace of calls
  dioptra store add *.data --to profiles --service web --host node-7
  dioptra store add perf.data --to s3://bucket/profiles    keys and server from AWS_ACCESS_KEY_ID, AWS_ENDPOINT …")]
pub struct Arguments {
    /// Recordings of `dioptra record` or `perf record`, or directories of `dioptra trace record`
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The store: a folder, which is made if it is missing, or s3://BUCKET/PATH
    #[arg(long, value_name = "STORE")]
    to: String,
    /// The service that ran [default: unknown]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// The machine [default: the name that the recording states]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The day of the recording in UTC, such as 2026-11-28 [default: that of the first sample]
    #[arg(long, value_name = "DATE")]
    date: Option<String>,
    /// Let the time of inlined functions count for the function that contains them
    #[arg(long)]
    no_inline: bool,
    /// Store the address and source line of each sample
    #[arg(long)]
    addresses: bool,
    /// Store each call of a trace that has at most this many calls, and sums by call stack of other traces
    #[arg(long, value_name = "N", default_value_t = DEFAULT_EACH_CALL)]
    each_call: u64,
    /// Look for the recorded files below this directory
    #[arg(long, value_name = "DIR")]
    symfs: Option<PathBuf>,
    /// The recorded kernel's vmlinux [default: looked for by build id]
    #[arg(long, value_name = "FILE")]
    vmlinux: Option<PathBuf>,
    #[command(flatten)]
    patience: Patience,
}

/// Adds the recordings.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    for (flag, path) in [
        ("--symfs", &arguments.symfs),
        ("--vmlinux", &arguments.vmlinux),
    ] {
        if let Some(path) = path.as_ref().filter(|path| !path.exists()) {
            bail!("{flag} {}: there is no such file", path.display());
        }
    }
    let options = ReadOptions {
        labels: ChosenLabels {
            date: arguments.date.clone(),
            service: arguments.service.clone(),
            host: arguments.host.clone(),
        },
        symbols: SymbolOptions {
            demangle: true,
            symfs: arguments.symfs.clone(),
            vmlinux: arguments.vmlinux.clone(),
            ..SymbolOptions::default()
        },
        no_inline: arguments.no_inline,
        addresses: arguments.addresses,
        each_call: arguments.each_call,
    };
    options.labels.check()?;
    if let Some(missing) = arguments.files.iter().find(|file| !file.exists()) {
        bail!("{}: there is no such file", missing.display());
    }
    let store = Store::open_or_create_within(&arguments.to, arguments.patience.timeout)?;
    let mut failed = 0;
    for file in &arguments.files {
        // One file that is no recording does not keep the others out.
        match add(&store, file, &options) {
            Ok(()) => {}
            Err(error) if arguments.files.len() > 1 => {
                failed += 1;
                eprintln!("dioptra: {}", escape(&format!("{error:#}")));
            }
            Err(error) => return Err(error),
        }
    }
    match failed {
        0 => Ok(ExitCode::SUCCESS),
        _ => bail!(
            "{} of {} not added",
            failed,
            count(arguments.files.len() as u64, "recording", "recordings")
        ),
    }
}

fn add(store: &Store, file: &Path, options: &ReadOptions) -> anyhow::Result<()> {
    let added = store
        .add(file, options)
        .with_context(|| file.display().to_string())?;
    let profile = &added.profile;
    let what = match added.how {
        How::Added => "added as",
        How::AlreadyThere => "is there already:",
        How::Repaired => "was there damaged, and is whole again:",
    };
    eprintln!(
        "{} {what} {} (date {}, service {}, host {}; {}, {})",
        escape(&file.display().to_string()),
        profile.profile_id,
        profile.labels.date,
        profile.labels.service,
        profile.labels.host,
        match profile.kind {
            Kind::Profile => count(profile.samples().unsigned_abs(), "sample", "samples"),
            Kind::Trace => count(profile.calls.unsigned_abs(), "call", "calls"),
        },
        bytes(profile.bytes()),
    );
    if added.how != How::Added {
        return Ok(());
    }
    for warning in profile
        .warnings
        .iter()
        .flat_map(|warnings| warnings.lines())
    {
        eprintln!("# {}", escape(warning));
    }
    if !added.lost.is_empty() {
        eprintln!("the store has no place for: {}", added.lost.join("; "));
    }
    Ok(())
}
