//! `dioptra list`: events, metrics and CPUs of this machine, with the names to type.

mod cpus;
mod metrics;

use crate::exit::Exit;
use crate::formats::TableFormat;
use crate::metric_sets::MetricSets;
use crate::output::say;
use crate::remedies::with_remedy;
use crate::screen::{Spelling, stdout};
use clap::Subcommand;
use dioptra_perfevents::{EventKind, ListedEvent, list_events};
use dioptra_tables::{Cell, Column, ColumnKind, Format, Severity, Table, Unit};
use std::collections::BTreeMap;
use std::io;

/// Arguments of `dioptra list`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra list events                        what can be counted and sampled here
  dioptra list metrics                       derived columns for this CPU
  dioptra list cpus                          CPUs that metrics are known for")]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Events to count and sample, whether they work here, and what they need
    Events(Events),
    /// Metrics (derived columns) for this CPU or another, and whether this machine can record what they need
    Metrics(metrics::Metrics),
    /// CPUs for which there are metrics
    Cpus(cpus::Cpus),
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra list events             all but tracepoints, whose systems are counted
  dioptra list events sched:      tracepoints of the scheduler
  dioptra list events cache       whatever has `cache` in its name, kind or description

Modifiers go behind an event: cycles:u (user space), :k (kernel), :p or :pp (precise addresses).")]
struct Events {
    /// Only events with this in their name, kind or description
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    format: TableFormat,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    match arguments.what {
        What::Events(events) => list_of_events(&events),
        What::Metrics(metrics) => metrics::run(&metrics),
        What::Cpus(cpus) => cpus::run(&cpus),
    }
}

/// Writes the table. Formats that have no place for diagnostics get them on standard error.
fn write(table: &mut Table, format: TableFormat) -> anyhow::Result<Exit> {
    let spelling = match format.is_json() {
        true => Spelling::Json,
        false => Spelling::Text,
    };
    let format = Format::from(format);
    format.write(table, None, stdout(spelling))?;
    if !format.shows_facts() {
        table.facts.write_text(&mut io::stderr().lock())?;
    }
    Ok(Exit::Done)
}

/// Adds a diagnostic for each file in the makers' folder that could not be used.
fn tell_skipped(table: &mut Table, sets: &MetricSets) {
    let skipped = sets.published().map_or(&[][..], |data| data.skipped());
    for reason in skipped {
        table.facts.add(
            Severity::Loss,
            "skipped_file",
            format!("not read: {reason}"),
            reason.as_str(),
        );
    }
}

fn list_of_events(events: &Events) -> anyhow::Result<Exit> {
    let mut listed = list_events();
    let mut left_out = 0;
    match &events.filter {
        Some(filter) => {
            let filter = filter.to_lowercase();
            listed.retain(|event| matches(event, &filter));
        }
        // There are thousands of tracepoints, so text leaves them out; CSV and JSON have them.
        None if events.format == TableFormat::Text => {
            let before = listed.len();
            listed.retain(|event| event.kind != EventKind::Tracepoint);
            left_out = before - listed.len();
        }
        None => {}
    }
    if listed.is_empty() {
        let filter = events.filter.as_deref().unwrap_or_default();
        say!("no event has `{filter}` in its name, kind or description; try `dioptra list events`");
        return Ok(Exit::Failed);
    }
    let mut table = table(&listed, events.format)?;
    if left_out > 0 {
        table.facts.add(
            Severity::Info,
            "tracepoints_left_out",
            format!(
                "{left_out} tracepoints are not shown; `dioptra list events tracepoint` shows them"
            ),
            left_out,
        );
    }
    write(&mut table, events.format)
}

/// Returns whether a lower-case text is part of the shown text of an event.
fn matches(event: &ListedEvent, filter: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(filter);
    has(&event.name)
        || event.aliases.iter().any(|alias| has(alias))
        || has(&event.kind.to_string())
        || has(&event.description)
}

/// Makes the table of events. For programs each row has the reason why its event does not work; text has each reason
/// only once.
fn table(events: &[ListedEvent], format: TableFormat) -> anyhow::Result<Table> {
    let name = |id: &str, name: &str| Column::new(id, name, ColumnKind::Name, Unit::None);
    let mut columns = vec![
        name("event", "event"),
        name("kind", "kind"),
        name("works", "works here"),
        name("aliases", "also"),
        name("description", "counts"),
    ];
    let refusal_is_shown = format != TableFormat::Text;
    if refusal_is_shown {
        columns.push(name("refusal", "what it lacks"));
    }
    let mut table = Table::new(columns);
    let mut refusals: BTreeMap<String, usize> = BTreeMap::new();
    for event in events {
        let mut cells = vec![
            Cell::name(event.name.as_str()),
            Cell::name(event.kind.to_string()),
            Cell::name(if event.works.is_ok() { "yes" } else { "no" }),
            Cell::name(event.aliases.join(" ")),
            Cell::name(event.description.as_str()),
        ];
        let refusal = event.works.as_ref().err();
        let refusal = refusal.map(|refusal| with_remedy(refusal));
        if refusal_is_shown {
            cells.push(Cell::name(refusal.clone().unwrap_or_default()));
        }
        if let Some(refusal) = refusal {
            *refusals.entry(refusal).or_default() += 1;
        }
        table.push(None, cells)?;
    }
    for (refusal, count) in refusals {
        let text = format!("{count} events do not work here: {refusal}");
        table
            .facts
            .add(Severity::Info, "events_that_do_not_work", text, count);
    }
    Ok(table)
}
