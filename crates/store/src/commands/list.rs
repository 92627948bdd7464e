//! `list`: the profiles of a store.

use super::{NamedStore, count};
use dioptra_tables::escape;
use std::io::Write;
use std::process::ExitCode;

/// Arguments of `list`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra store list --store profiles
  dioptra query --store profiles --format json 'SELECT * FROM profiles'    the same for programs")]
pub struct Arguments {
    #[command(flatten)]
    store: NamedStore,
}

/// Lists the profiles.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let profiles = arguments.store.open()?.profiles()?;
    let heads = [
        "profile", "date", "service", "host", "samples", "calls", "events", "command",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    for profile in &profiles {
        let events: Vec<&str> = profile.totals.iter().map(|total| &*total.event).collect();
        rows.push([
            profile.profile_id.clone(),
            profile.labels.date.clone(),
            profile.labels.service.clone(),
            profile.labels.host.clone(),
            profile.samples().to_string(),
            profile.calls.to_string(),
            escape(&events.join(" ")),
            escape(profile.command.as_deref().unwrap_or_default()),
        ]);
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut out = std::io::stdout().lock();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            match heads[column] {
                "samples" | "calls" => line.push_str(&format!("{cell:>width$}  ")),
                _ => line.push_str(&format!("{cell:<width$}  ")),
            }
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    writeln!(
        out,
        "# {}",
        count(profiles.len() as u64, "profile", "profiles")
    )?;
    Ok(ExitCode::SUCCESS)
}
