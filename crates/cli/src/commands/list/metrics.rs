//! `dioptra list metrics`: the derived columns of a CPU's sets, and whether this machine can record what they need.

use crate::commands::record::metrics::Recordable;
use crate::exit::Exit;
use crate::formats::TableFormat;
use crate::metric_sets::MetricSets;
use anyhow::bail;
use dioptra_metrics::{ColumnKind as MetricKind, Environment, MetricSet};
use dioptra_recorder::counters::MachineCounters;
use dioptra_tables::{Cell, Column, ColumnKind, Severity, Table, Unit};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra list metrics                        what there is for this CPU
  dioptra list metrics miss                   metrics with `miss` in their name, group or description
  dioptra list metrics --cpu hsw-ep           another CPU's, by the name of its set or its id
  dioptra list metrics --pmu-data ~/perfmon   with what its maker publishes

They are recorded with `dioptra record --metrics SET`, SET:METRIC or METRIC.")]
pub struct Metrics {
    /// Only metrics with this in their name, group or description
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// The metrics of this CPU: a name of `dioptra list cpus`, an id such as GenuineIntel-6-8F, or a metric file
    #[arg(long, value_name = "CPU")]
    cpu: Option<String>,
    /// Folder of metrics and events as CPU makers publish them (Intel's perfmon, Arm's telemetry-solution); so does the
    /// variable DIOPTRA_PMU_DATA
    #[arg(long, value_name = "DIR")]
    pmu_data: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    format: TableFormat,
}

pub fn run(arguments: &Metrics) -> anyhow::Result<Exit> {
    let sets = MetricSets::for_this_machine(arguments.pmu_data.as_deref())?;
    let listed = match &arguments.cpu {
        None => sets.of_this_cpu()?,
        Some(cpu) => of_cpu(&sets, cpu)?,
    };
    let mut list = List::new(arguments);
    for set in &listed {
        list.add(set)?;
    }
    let mut table = list.finish();
    if table.is_empty() {
        bail!(
            "no metric has `{}` in its name, group or description; try `dioptra list metrics`",
            arguments.filter.as_deref().unwrap_or_default()
        );
    }
    super::tell_skipped(&mut table, &sets);
    super::write(&mut table, arguments.format)
}

fn of_cpu(sets: &MetricSets, cpu: &str) -> anyhow::Result<Vec<Cow<'static, MetricSet>>> {
    let mut found = sets.for_named_cpu(cpu)?;
    if found.is_empty() {
        found.extend(sets.find(cpu)?);
    }
    if found.is_empty() {
        bail!(
            "there are no metrics for the CPU `{cpu}` but the set `generic`; see `dioptra list cpus`"
        );
    }
    Ok(found)
}

struct List {
    table: Table,
    filter: Option<String>,
    for_people: bool,
    /// The events that this machine can record. `None` with `--cpu`, whose sets may be for another machine.
    recordable: Option<Recordable>,
    /// Events that cannot be recorded, by the reason.
    refused: BTreeMap<String, Vec<String>>,
}

impl List {
    fn new(arguments: &Metrics) -> List {
        let for_people = arguments.format == TableFormat::Text;
        let name = |id: &str, name: &str| Column::new(id, name, ColumnKind::Name, Unit::None);
        let mut columns = vec![
            name("set", "set"),
            name("works", "works here"),
            name("unit", "unit"),
        ];
        if !for_people {
            columns.extend([
                name("kind", "kind"),
                name("group", "group"),
                name("events", "events"),
                name("lacks", "lacks"),
                name("formula", "formula"),
                name("title", "title"),
                name("description", "description"),
            ]);
        }
        // Text indents its tree in the last column.
        columns.push(name("metric", "metric"));
        List {
            table: Table::new(columns),
            filter: arguments
                .filter
                .as_ref()
                .map(|filter| filter.to_lowercase()),
            for_people,
            recordable: arguments.cpu.is_none().then(Recordable::default),
            refused: BTreeMap::new(),
        }
    }

    fn add(&mut self, set: &MetricSet) -> anyhow::Result<()> {
        let needed = set.needed_events();
        let mut names = Vec::new();
        if let Some(recordable) = &mut self.recordable {
            let mut counters = MachineCounters::of_threads();
            for event in &needed {
                match recordable.answer(event, &mut counters) {
                    Ok(_) => names.push(event.name.clone()),
                    Err(reason) => {
                        let events = self.refused.entry(reason).or_default();
                        if !events.contains(&event.name) {
                            events.push(event.name.clone());
                        }
                    }
                }
            }
        }
        let recorded: Vec<_> = names
            .into_iter()
            .map(dioptra_metrics::RecordedEvent::named)
            .collect();
        let bound = set.bind(&recorded, &Environment::new());
        let is_event = |name: &String| needed.iter().any(|event| event.name == **name);
        let mut rows = vec![None; set.columns().len()];
        for (index, column) in set.columns().iter().enumerate() {
            if !self.is_wanted(column) {
                continue;
            }
            let of = &bound.columns()[index];
            // A report knows the machine's constants; this list does not.
            let lacks: Vec<&str> = of
                .missing
                .iter()
                .chain(of.left_out.iter())
                .filter(|name| is_event(name))
                .map(String::as_str)
                .collect();
            let works = match &self.recordable {
                None => "",
                Some(_) if of.missing.iter().any(is_event) => "no",
                Some(_) if !lacks.is_empty() => "in part",
                Some(_) => "yes",
            };
            let mut cells = vec![
                Cell::name(set.name.as_str()),
                Cell::name(works),
                Cell::name(column.unit.to_string()),
            ];
            if self.for_people {
                let text = match column.description.as_str() {
                    "" => column.name.clone(),
                    description => format!("{}: {description}", column.name),
                };
                cells.push(Cell::name(text));
            } else {
                let kind = match column.kind {
                    MetricKind::Event => "event",
                    MetricKind::Sum => "sum",
                    MetricKind::Formula => "formula",
                };
                let lacks = match self.recordable {
                    Some(_) => lacks.join(" "),
                    None => String::new(),
                };
                cells.extend([
                    Cell::name(kind),
                    Cell::name(column.group.as_str()),
                    Cell::name(set.inputs(index).join(" ")),
                    Cell::name(lacks),
                    Cell::name(column.formula.to_string()),
                    Cell::name(column.title.as_str()),
                    Cell::name(column.description.as_str()),
                    Cell::name(column.name.as_str()),
                ]);
            }
            let parent = column.parent.and_then(|parent| rows[parent]);
            rows[index] = Some(self.table.push(parent, cells)?);
        }
        for unknown in &set.unknown {
            self.table.facts.add(
                Severity::Info,
                "not_known",
                format!("{}: {}", set.name, unknown.trim_end_matches('.')),
                set.name.as_str(),
            );
        }
        Ok(())
    }

    fn is_wanted(&self, column: &dioptra_metrics::Column) -> bool {
        let Some(filter) = &self.filter else {
            return true;
        };
        let texts = [
            &column.name,
            &column.title,
            &column.group,
            &column.description,
        ];
        texts
            .iter()
            .any(|text| text.to_lowercase().contains(filter))
    }

    fn finish(mut self) -> Table {
        for (reason, events) in self.refused {
            self.table.facts.add(
                Severity::Info,
                "events_that_cannot_be_recorded",
                format!("{} cannot be recorded here: {reason}", events.join(", ")),
                events.len(),
            );
        }
        self.table
    }
}
