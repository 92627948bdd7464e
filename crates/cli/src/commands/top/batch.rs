//! Tables on standard output, one at every interval.

use super::follow::{Origin, Snapshot, Update};
use super::status::Meter;
use super::tables::{Part, RowOptions, sort};
use super::{EndedBy, Shower};
use crate::output::is_broken_pipe;
use crate::screen::{Spelling, stdout};
use anyhow::bail;
use dioptra_tables::{Format, TextOptions};
use rustix::process::{Signal, getpid, kill_process};
use std::io::{self, Write};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Writes tables until the recording ends, or there are as many as were wanted.
pub fn run(mut shower: Shower) -> anyhow::Result<EndedBy> {
    let records_here = shower.origin == Origin::Here;
    let result = write_tables(&mut shower);
    let is_users = match &result {
        Ok(ended) => *ended == EndedBy::User,
        Err(_) => true,
    };
    if is_users && records_here {
        stop_recording()?;
    }
    match result {
        // Whoever read the tables has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(EndedBy::User),
        result => result,
    }
}

/// Ends the recording as Ctrl-C does. A command that it started gets the signal, too.
pub fn stop_recording() -> io::Result<()> {
    Ok(kill_process(getpid(), Signal::INT)?)
}

fn write_tables(shower: &mut Shower) -> anyhow::Result<EndedBy> {
    let mut meter = Meter::new();
    let mut written = 0;
    let mut next = Instant::now() + shower.shown.interval;
    loop {
        let wait = next.saturating_duration_since(Instant::now());
        match shower.received.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {
                shower.requests.snapshot();
                // A slow reader of the tables gets fewer of them, not ever more at once.
                next = (next + shower.shown.interval).max(Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(EndedBy::Recording),
            Ok(Update::Snapshot(snapshot)) => {
                write(shower, *snapshot, &mut meter, written)?;
                written += 1;
                if shower.shown.iterations.is_some_and(|most| written >= most) {
                    return Ok(EndedBy::User);
                }
            }
            Ok(Update::Last(snapshot)) => {
                write(shower, *snapshot, &mut meter, written)?;
                return Ok(EndedBy::Recording);
            }
            Ok(Update::Failed(why)) => bail!("reading the recording: {why}"),
            // The last snapshot is on its way, unless the recording failed at once.
            Ok(Update::TargetsEnded | Update::Stop) => next += Duration::from_secs(3600),
        }
    }
}

fn write(
    shower: &mut Shower,
    snapshot: Snapshot,
    meter: &mut Meter,
    before: u64,
) -> anyhow::Result<()> {
    let status = meter.measure(&snapshot);
    let shown = shower.shown.clone();
    let named = shower.tables.name(snapshot)?;
    let events = named.snapshot.profile.sampled_events();
    let options = RowOptions {
        rows: shown.rows,
        part: &Part::Everything,
        events: &events,
        filter: &shown.filter,
    };
    let (mut table, _) = shower.tables.rows(&named, &options, &status)?;
    if let Some(column) = &shown.sort {
        sort(&mut table, column)?;
    }
    let format = Format::from(shown.format);
    let spelling = match (format, shown.format.is_json()) {
        (Format::Text, _) => Spelling::Text,
        (_, true) => Spelling::Json,
        _ => Spelling::Text,
    };
    let mut out = stdout(spelling);
    if format == Format::Text && before > 0 {
        writeln!(out)?;
    }
    let text = TextOptions {
        limit: Some(shown.limit),
        ..TextOptions::default()
    };
    format.write_with(&mut table, &text, &mut out)?;
    out.flush()?;
    if !format.shows_facts() {
        table.facts.write_text(&mut io::stderr().lock())?;
    }
    Ok(())
}
