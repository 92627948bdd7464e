//! Metrics of windows as columns of other tables: beside samples in reports, and their differences in changes.

use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::selected::Selected;
use crate::server::Shared;
use crate::windowed::{Windowed, WindowedKey};
use dioptra_profile::Dimension;
use dioptra_report::{Input, MetricColumns};
use dioptra_tables::Table;
use dioptra_windows::display::{
    WindowInput, WindowOptions, WindowRows, add_window_differences, add_window_metrics,
};
use std::sync::Arc;

/// Returns the recording of a selection with its windows, loaded for such rows.
pub(crate) fn windowed(
    shared: &Shared,
    selected: &Selected,
    (rows, kernel_apart): (WindowRows, bool),
    ticket: &Ticket,
) -> Result<Arc<Windowed>, Failure> {
    let key = WindowedKey {
        selection: selected.key.clone(),
        rows: match rows {
            WindowRows::Path | WindowRows::Line => rows,
            WindowRows::Thread | WindowRows::Process => WindowRows::Thread,
            _ => WindowRows::Function,
        },
        kernel_apart,
    };
    shared.windowed.get(key.clone(), || {
        ticket.check()?;
        Windowed::load(selected, &key, ticket)
    })
}

/// Returns a recording with its windows as the functions behind tables take it.
pub(crate) fn input<'a>(windowed: &'a Windowed, selected: &'a Selected) -> WindowInput<'a> {
    WindowInput {
        report: Input {
            profile: &windowed.profile,
            names: &windowed.named.names,
            blocks: None,
            shapes: None,
            label: &selected.loaded.path,
        },
        windows: windowed.windows.as_ref(),
    }
}

/// Returns the rows of windows that a table's rows are.
fn rows(by: &[Dimension], inlined: bool) -> Result<WindowRows, Failure> {
    let rows = match by {
        [Dimension::Function] if !inlined => WindowRows::Function,
        [Dimension::Line] if !inlined => WindowRows::Line,
        [Dimension::Module] => WindowRows::Module,
        [Dimension::Thread] => WindowRows::Thread,
        [Dimension::Process] => WindowRows::Process,
        _ => {
            return Err(Failure::parameter(
                "metric",
                "goes in a recording with windows with rows of one kind: function, line, module, thread or process",
            ));
        }
    };
    Ok(rows)
}

/// Adds the metrics to a table of these rows: to a report of one selection, or to the changes from the first one to the second.
pub(crate) fn add(
    shared: &Shared,
    sides: &[&Selected],
    (by, metrics): (&[Dimension], &[MetricColumns<'_>]),
    table: &mut Table,
    ticket: &Ticket,
) -> Result<(), Failure> {
    if let Some(without) = sides.iter().find(|side| !side.loaded.has_windows()) {
        return Err(Failure::NotRecorded {
            text: format!(
                "{} has no windows, and the other profile has",
                without.loaded.label
            ),
            remedy: "record both with --windows, or both without",
        });
    }
    let inlined = sides.iter().any(|side| side.key.request().inlined);
    let options = WindowOptions {
        by: rows(by, inlined)?,
        metrics,
        closure: sides.iter().all(|side| side.is_everything()),
        for_people: false,
        ..WindowOptions::default()
    };
    let loaded = sides
        .iter()
        .map(|side| windowed(shared, side, (options.by, false), ticket));
    let loaded: Vec<Arc<Windowed>> = loaded.collect::<Result<_, _>>()?;
    ticket.check()?;
    let inputs: Vec<WindowInput<'_>> = loaded
        .iter()
        .zip(sides)
        .map(|(windowed, side)| input(windowed, side))
        .collect();
    match &inputs[..] {
        [input] => add_window_metrics(table, input, &options)?,
        inputs => add_window_differences(table, inputs, &options)?,
    };
    for windowed in &loaded {
        table.facts.append(windowed.facts.clone());
    }
    Ok(())
}
