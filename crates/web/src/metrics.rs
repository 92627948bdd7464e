//! Metrics: derived columns of tables, and the tables of `dioptra metrics` with their intervals.

use crate::api::{OfferedMetric, RowKeys, TableRequest};
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::loaded::Loaded;
use crate::row_keys::KeySource;
use crate::selected::Selected;
use crate::server::Shared;
use crate::tables::{KeyedTable, TableKey, TableKind, key_of};
use crate::texts;
use crate::window_columns;
use dioptra_metrics::{ChoiceError, PmuData};
use dioptra_profile::Dimension;
use dioptra_report::{ChosenMetrics, RowKey};
use dioptra_windows::display::{DisplayError, WindowOptions, WindowRows, window_metrics_with_keys};
use dioptra_windows::estimate::Trust;
use std::sync::Arc;

/// The largest number of metrics that an answer offers; makers publish hundreds for a CPU.
const MOST_OFFERED: usize = 2000;
/// The largest number of names of metrics in a request.
const MOST_NAMES: usize = 100;

/// The metrics that the command line names, and the makers' data.
#[derive(Clone, Debug, Default)]
pub(crate) struct MetricNames {
    /// The names of the metrics that tables show unless a request names others.
    pub names: Vec<String>,
    pub published: Option<Arc<PmuData>>,
}

impl From<ChoiceError> for Failure {
    fn from(error: ChoiceError) -> Failure {
        let text = error.to_string();
        Failure::parameter("metric", texts::name(&text))
    }
}

/// The metrics with these names. Files are read only where the command line named them.
pub(crate) fn chosen(
    loaded: &Loaded,
    names: &[String],
    few: u64,
) -> Result<ChosenMetrics, Failure> {
    if names.len() > MOST_NAMES {
        return Err(Failure::parameter("metric", "is given too often"));
    }
    let mut chosen = ChosenMetrics::new(loaded.metric_sets.cpu(), few);
    for name in names {
        let found = match loaded.default_metrics.contains(name) {
            true => loaded.metric_sets.choose(name)?,
            false => loaded.metric_sets.choose_known(name)?,
        };
        chosen.add(found);
    }
    check_events(&chosen, loaded)?;
    Ok(chosen)
}

/// The metrics with these names, of a recording without windows.
pub(crate) fn of_samples(
    loaded: &Loaded,
    names: &[String],
    few: u64,
) -> Result<ChosenMetrics, Failure> {
    if !names.is_empty() && loaded.has_windows() {
        return Err(Failure::NotRecorded {
            text: "this recording has windows, whose metrics have intervals and trust of their own"
                .to_owned(),
            remedy: "the Metrics view shows them",
        });
    }
    chosen(loaded, names, few)
}

/// Fails if the recording has the events of none of the metrics.
fn check_events(chosen: &ChosenMetrics, loaded: &Loaded) -> Result<(), Failure> {
    match chosen.missing(&loaded.profile) {
        None => Ok(()),
        Some(missing) => Err(Failure::NotRecorded {
            text: format!(
                "{} has no value without {}, and the recording has only {}",
                texts::name(&missing.wanted.join(", ")),
                missing.missing.join(", "),
                texts::name(&missing.recorded.join(", "))
            ),
            remedy: "record with dioptra record --windows on a machine that counts these events",
        }),
    }
}

/// The metrics that a recording's events make, of all sets for its CPU.
pub(crate) fn offered(loaded: &Loaded) -> Vec<OfferedMetric> {
    let none = ChosenMetrics::new(loaded.metric_sets.cpu(), 0);
    // A maker's file that is wrong is an error for those who ask for it.
    let sets = loaded.metric_sets.of_this_cpu().unwrap_or_default();
    let mut offered: Vec<OfferedMetric> = Vec::new();
    for set in &sets {
        let all = set.columns();
        for index in none.made(set, &loaded.profile) {
            let column = &all[index];
            let mut depth = 0;
            let mut above = column.parent;
            while let Some(parent) = above {
                depth += 1;
                above = all[parent].parent;
            }
            let name = format!("{}:{}", set.name, column.name);
            if offered.iter().all(|known| known.name != name) {
                offered.push(OfferedMetric {
                    name,
                    set: set.name.clone(),
                    title: texts::name(&column.title),
                    description: texts::name(&column.description),
                    depth,
                });
            }
        }
    }
    offered.truncate(MOST_OFFERED);
    offered
}

/// The rows of a table of metrics, and the dimension of the things that they stand for.
fn rows(by: Option<&str>) -> Result<(WindowRows, Dimension), Failure> {
    Ok(match by.unwrap_or("function") {
        "function" => (WindowRows::Function, Dimension::Function),
        "path" => (WindowRows::Path, Dimension::Function),
        "line" => (WindowRows::Line, Dimension::Line),
        "module" => (WindowRows::Module, Dimension::Module),
        "thread" => (WindowRows::Thread, Dimension::Thread),
        "process" => (WindowRows::Process, Dimension::Process),
        _ => {
            return Err(Failure::parameter(
                "by",
                "is one of function, path, line, module, thread, process",
            ));
        }
    })
}

impl From<DisplayError> for Failure {
    fn from(error: DisplayError) -> Failure {
        match error {
            DisplayError::Report(error) => error.into(),
            DisplayError::NoCallers => Failure::no_chains(),
            DisplayError::NoWindows => Failure::NotRecorded {
                text: "the profile has no windows, and no events whose ratios are metrics"
                    .to_owned(),
                remedy: "record with dioptra record --windows, or read counters together with \
                         -e '{cycles,instructions}:S'",
            },
            other => Failure::Internal(other.to_string()),
        }
    }
}

/// The table of `dioptra metrics` for a request, and its selection.
pub(crate) fn table(
    shared: &Shared,
    request: &TableRequest,
    ticket: &Ticket,
) -> Result<(Selected, TableKey, Arc<KeyedTable>), Failure> {
    let (rows, dimension) = rows(request.by.as_deref())?;
    if request.children || request.with.is_some() || request.selection.inlined {
        return Err(Failure::parameter(
            "of",
            "metrics goes without children, with and inlined: windows are of whole functions",
        ));
    }
    let selected = Selected::of(shared, &request.selection, rows == WindowRows::Line)?;
    let kind = TableKind::Metrics {
        rows,
        kernel_apart: request.kernel_apart,
    };
    let key = key_of(&selected, request, vec![dimension], kind)?;
    let table = shared.tables.get(key.clone(), || {
        let kind = (rows, request.kernel_apart);
        let windowed = window_columns::windowed(shared, &selected, kind, ticket)?;
        ticket.check()?;
        let mut chosen = chosen(&selected.loaded, &key.metric, key.few)?;
        if chosen.is_empty() {
            chosen.add_generic();
        }
        let columns = chosen.columns();
        let input = window_columns::input(&windowed, &selected);
        let options = WindowOptions {
            by: rows,
            metrics: &columns,
            tell_missing: !key.metric.is_empty(),
            ranking: match request.selection.event.is_empty() {
                true => None,
                false => selected.events.first().copied(),
            },
            least_share: 0.0,
            least_trust: Trust::Unreliable,
            closure: selected.is_everything(),
            for_people: false,
        };
        let (mut table, keys) = window_metrics_with_keys(&input, &options)?;
        table.facts.append(windowed.facts.clone());
        let source = KeySource {
            keys: &windowed.keys,
            profile: &windowed.profile,
            named: &windowed.named,
        };
        let made = keys.iter().map(|key| {
            let mut found = RowKeys::default();
            let row = RowKey {
                level: 0,
                input: 0,
                key: *key,
            };
            source.add(dimension, row, &mut found);
            found
        });
        Ok(KeyedTable {
            made: Some(made.collect()),
            table,
            keys: Vec::new(),
            blocks: None,
            by: vec![dimension],
            named: None,
        })
    })?;
    Ok((selected, key, table))
}
