//! Derived columns that the user asked for.

use super::profiles::Loaded;
use crate::metric_sets::{ChosenColumns, MetricSets};
use anyhow::{Context, bail};
use dioptra_metrics::{CpuId, Environment, MetricSet, RecordedEvent};
use dioptra_report::MetricColumns;
use std::borrow::Cow;
use std::path::PathBuf;

/// Arguments that name derived columns.
#[derive(clap::Args)]
pub struct Derived {
    /// Derived columns: a metric such as `ipc`, a set such as `generic`, `SET:METRIC`, a file of metrics, or `cpu` for
    /// the set of the recorded CPU; see `dioptra list metrics`
    #[arg(long, alias = "metrics", value_name = "NAME", value_delimiter = ',')]
    metric: Vec<String>,
    /// A folder of the events and metrics that Intel (perfmon) or Arm (telemetry-solution) publish
    /// [default: DIOPTRA_PMU_DATA]
    #[arg(long, value_name = "DIR")]
    pmu_data: Option<PathBuf>,
}

/// Metric sets and the columns chosen from them.
pub struct Chosen {
    /// Each set with its chosen columns, and the indices of the columns that the user named.
    sets: Vec<(ChosenColumns, Vec<usize>)>,
    environment: Environment,
}

impl Derived {
    /// Returns whether the user named no derived columns.
    pub fn is_empty(&self) -> bool {
        self.metric.is_empty()
    }

    /// Makes the arguments from these names; `pmu_data` is the folder of makers' metrics.
    pub fn of(metric: Vec<String>, pmu_data: Option<PathBuf>) -> Derived {
        Derived { metric, pmu_data }
    }

    /// Returns the columns that the user named. If there are none, returns all columns of the generic set that the
    /// recorded events make.
    pub fn choose_or_generic(&self, loaded: &[Loaded]) -> anyhow::Result<Chosen> {
        const FEW: u64 = 10;
        let mut chosen = self.choose_named(loaded, FEW, "--set")?;
        if chosen.sets.is_empty() {
            let set = MetricSet::generic();
            let columns = ChosenColumns {
                set: Cow::Borrowed(set),
                columns: (0..set.columns().len()).collect(),
            };
            chosen.sets.push((columns, Vec::new()));
        }
        Ok(chosen)
    }

    /// Finds the columns that the user named, for the CPU of the first profile.
    pub fn choose(&self, loaded: &[Loaded], few: u64) -> anyhow::Result<Chosen> {
        self.choose_named(loaded, few, "--metric")
    }

    /// Does the work of [`Derived::choose`]; `option` is the one that errors name.
    fn choose_named(
        &self,
        loaded: &[Loaded],
        few: u64,
        option: &'static str,
    ) -> anyhow::Result<Chosen> {
        let cpuid = loaded.first().and_then(|loaded| loaded.cpuid.clone());
        let mut environment = Environment::new();
        environment.min_samples = few;
        if let Some(cpuid) = &cpuid {
            environment = environment.with_cpu(CpuId::parse(cpuid));
        }
        let mut chosen = Chosen {
            sets: Vec::new(),
            environment,
        };
        if self.metric.is_empty() {
            return Ok(chosen);
        }
        let folder = self.pmu_data.as_deref();
        let sets = match loaded.first() {
            Some(first) => MetricSets::for_recording(&first.path, cpuid, folder)?,
            None => MetricSets::for_cpu(cpuid, folder)?,
        };
        for name in &self.metric {
            let found = sets.choose(name).context(option)?;
            let all = found.set.columns();
            let whole = found.columns.len() == all.len();
            let is_first = |column: &usize| {
                let parent = all[*column].parent;
                !whole && !parent.is_some_and(|parent| found.columns.contains(&parent))
            };
            let named: Vec<usize> = found.columns.iter().copied().filter(is_first).collect();
            let known = chosen
                .sets
                .iter_mut()
                .find(|(known, _)| known.set.name == found.set.name);
            match known {
                Some((known, keep)) => {
                    let new = |column: &usize| !known.columns.contains(column);
                    let more: Vec<usize> = found.columns.into_iter().filter(new).collect();
                    known.columns.extend(more);
                    keep.extend(named);
                }
                None => chosen.sets.push((found, named)),
            }
        }
        Ok(chosen)
    }
}

impl Chosen {
    /// Checks that each profile has the events of at least one of the columns.
    ///
    /// # Errors
    /// A profile has none of the events: every column would be empty.
    pub fn check_events(&self, loaded: &[Loaded]) -> anyhow::Result<()> {
        match loaded.iter().find_map(|loaded| self.lacks_events(loaded)) {
            Some(lack) => bail!(lack),
            None => Ok(()),
        }
    }

    /// Checks that a sum of profiles has the events of at least one of the columns. A set that was named as a whole may
    /// have none: a table shows the columns that there are.
    ///
    /// # Errors
    /// No profile has the events: every column would be empty.
    pub fn check_events_of_sum(&self, loaded: &[Loaded]) -> anyhow::Result<()> {
        if self.sets.iter().any(|(_, named)| named.is_empty()) {
            return Ok(());
        }
        let lacks: Option<Vec<String>> = loaded.iter().map(|one| self.lacks_events(one)).collect();
        match lacks.and_then(|lacks| lacks.into_iter().next()) {
            Some(lack) => bail!(lack),
            None => Ok(()),
        }
    }

    /// Returns the error for a profile that has the events of none of the columns; `None` if it has some.
    fn lacks_events(&self, loaded: &Loaded) -> Option<String> {
        if self.sets.is_empty() {
            return None;
        }
        let all = loaded.profile.events();
        let of_windows = all.iter().any(|event| event.is_set_aside());
        let events: Vec<RecordedEvent> = all
            .iter()
            .filter(|event| !event.is_dummy() && event.is_set_aside() == of_windows)
            .map(|event| RecordedEvent::named(event.name()))
            .collect();
        let mut wanted: Vec<&str> = Vec::new();
        let mut missing: Vec<String> = Vec::new();
        let mut any = false;
        for (chosen, named) in &self.sets {
            let bound = chosen.set.bind(&events, &self.environment);
            for column in &chosen.columns {
                let of = &bound.columns()[*column].missing;
                any |= of.is_empty();
                if !named.is_empty() && !named.contains(column) {
                    continue;
                }
                wanted.push(&chosen.set.columns()[*column].name);
                missing.extend(of.iter().cloned());
            }
        }
        if any {
            return None;
        }
        missing.sort_unstable();
        missing.dedup();
        let known = self.values_of(&events);
        Some(no_events(loaded, &wanted, &missing, &known, &events))
    }

    /// Returns the generic metrics that these events make.
    fn values_of(&self, events: &[RecordedEvent]) -> Vec<&'static str> {
        let generic = MetricSet::generic();
        let bound = generic.bind(events, &self.environment);
        let columns = generic.columns().iter().zip(bound.columns());
        let known = columns.filter(|(_, bound)| bound.missing.is_empty());
        known.map(|(column, _)| &*column.name).collect()
    }

    /// Returns the columns for tables. Tables drop a column whose inputs were not recorded, with a diagnostic, unless
    /// the user named that column.
    pub fn columns(&self) -> Vec<MetricColumns<'_>> {
        let each = self.sets.iter().map(|(chosen, keep)| MetricColumns {
            set: &chosen.set,
            columns: chosen.columns.clone(),
            keep: keep.clone(),
            environment: self.environment.clone(),
        });
        each.collect()
    }
}

/// The number of names that an error lists at most.
const NAMED: usize = 4;

/// Returns the one-line error for a profile that lacks the events of all wanted metrics, with the remedy.
fn no_events(
    loaded: &Loaded,
    wanted: &[&str],
    missing: &[String],
    known: &[&str],
    events: &[RecordedEvent],
) -> String {
    let list = |names: &[&str]| {
        let more = names.len().saturating_sub(NAMED);
        let shown = names[..names.len().min(NAMED)].join(", ");
        match more {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    };
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    let recorded: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    let (verb, first) = match wanted {
        [one] => ("has", *one),
        _ => ("have", wanted.first().copied().unwrap_or_default()),
    };
    let instead = match known {
        [] => String::new(),
        known => format!("; what was recorded makes {}", list(known)),
    };
    format!(
        "{}: {} {verb} no value without {}, and the recording has only {}: record with `dioptra record --windows --metrics \
         {first}` on a machine that counts them, as `dioptra list metrics` tells{instead}",
        loaded.path.display(),
        list(wanted),
        list(&missing),
        list(&recorded),
    )
}
