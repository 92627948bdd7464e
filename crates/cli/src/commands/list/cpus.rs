//! `dioptra list cpus`: the CPUs for which there are metrics.

use crate::exit::Exit;
use crate::formats::TableFormat;
use crate::metric_sets::MetricSets;
use dioptra_metrics::{CpuId, builtin};
use dioptra_tables::{Cell, Column, ColumnKind, Severity, Table, Unit};
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra list cpus                           CPUs with metrics of their own, and which is this machine's
  dioptra list cpus --pmu-data ~/perfmon      with those that makers publish

Every other CPU has the set `generic`.")]
pub struct Cpus {
    /// Folder of metrics and events as CPU makers publish them (Intel's perfmon, Arm's telemetry-solution); so does the
    /// variable DIOPTRA_PMU_DATA
    #[arg(long, value_name = "DIR")]
    pmu_data: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    format: TableFormat,
}

pub fn run(arguments: &Cpus) -> anyhow::Result<Exit> {
    let sets = MetricSets::for_this_machine(arguments.pmu_data.as_deref())?;
    super::write(&mut table(&sets)?, arguments.format)
}

fn table(sets: &MetricSets) -> anyhow::Result<Table> {
    let name = |id: &str, name: &str| Column::new(id, name, ColumnKind::Name, Unit::None);
    let count = |id: &str, name: &str| Column::new(id, name, ColumnKind::Count, Unit::None);
    let mut table = Table::new(vec![
        name("set", "set"),
        name("here", "this CPU"),
        name("from", "from"),
        count("counters", "counters"),
        count("metrics", "metrics"),
        count("events", "events"),
        name("cpus", "CPUs"),
        name("title", "what"),
    ]);
    let own = sets.cpu().map(CpuId::parse);
    let here = |patterns: &[String]| {
        let matches = |own: &CpuId| patterns.iter().any(|pattern| own.matches(pattern));
        Cell::name(if own.as_ref().is_some_and(matches) {
            "yes"
        } else {
            ""
        })
    };
    let number = |count: usize| Cell::Count(count as u64);
    for cpu in sets.published().into_iter().flat_map(|data| data.cpus()) {
        let files: Vec<String> = cpu.files.iter().map(|f| f.display().to_string()).collect();
        table.push(
            None,
            vec![
                Cell::name(cpu.name.as_str()),
                here(&cpu.patterns),
                Cell::name("its maker"),
                // Counts are known only when the set is loaded, and the files may be many and large.
                Cell::Empty,
                Cell::Empty,
                Cell::Empty,
                Cell::name(cpu.patterns.join(" ")),
                Cell::name(files.join(" ")),
            ],
        )?;
    }
    for set in builtin().iter().map(|b| b.set()) {
        let any = set.cpus.is_empty();
        table.push(
            None,
            vec![
                Cell::name(set.name.as_str()),
                if any {
                    Cell::name("yes")
                } else {
                    here(&set.cpus)
                },
                Cell::name("dioptra"),
                set.counters.map_or(Cell::Empty, number),
                number(set.columns().len()),
                number(set.needed_events().len()),
                Cell::name(if any {
                    "any".to_owned()
                } else {
                    set.cpus.join(" ")
                }),
                Cell::name(set.title.as_str()),
            ],
        )?;
    }
    match &own {
        Some(own) => table.facts.add(
            Severity::Info,
            "cpu",
            format!("this CPU is {own}"),
            own.to_string(),
        ),
        None => table.facts.add(
            Severity::Info,
            "cpu",
            "this machine does not tell which CPU it has",
            serde_json::Value::Null,
        ),
    };
    super::tell_skipped(&mut table, sets);
    Ok(table)
}
