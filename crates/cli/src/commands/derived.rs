//! Derived columns that the user asked for.

use super::profiles::Loaded;
use crate::metric_sets::MetricSets;
use anyhow::{Context, bail};
use dioptra_perfdata::PerfData;
use dioptra_report::{ChosenMetrics, MetricColumns, MissingEvents};
use std::path::{Path, PathBuf};

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

/// The metrics that the user chose.
pub struct Chosen(ChosenMetrics);

impl Derived {
    /// Returns whether the user named no derived columns.
    pub fn is_empty(&self) -> bool {
        self.metric.is_empty()
    }

    /// Returns the folder of makers' metrics, if the user named one.
    pub fn folder(&self) -> Option<&Path> {
        self.pmu_data.as_deref()
    }

    /// Returns the names that the user gave.
    pub fn into_names(self) -> Vec<String> {
        self.metric
    }

    /// Checks that each name chooses something for the CPU of a recording.
    pub fn check_names(&self, path: &Path, data: &PerfData) -> anyhow::Result<()> {
        if self.metric.is_empty() {
            return Ok(());
        }
        let cpuid = data.features().cpuid.clone();
        let sets = MetricSets::for_recording(path, cpuid, self.folder())?;
        for name in &self.metric {
            sets.choose(name).context("--metric")?;
        }
        Ok(())
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
        if chosen.0.is_empty() {
            chosen.0.add_generic();
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
        let mut chosen = Chosen(ChosenMetrics::new(cpuid.as_deref(), few));
        if self.metric.is_empty() {
            return Ok(chosen);
        }
        let folder = self.pmu_data.as_deref();
        let sets = match loaded.first() {
            Some(first) => MetricSets::for_recording(&first.path, cpuid, folder)?,
            None => MetricSets::for_cpu(cpuid, folder)?,
        };
        for name in &self.metric {
            chosen.0.add(sets.choose(name).context(option)?);
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
        if self.0.has_whole_sets() {
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
        let missing = self.0.missing(&loaded.profile)?;
        Some(no_events(loaded, &missing))
    }

    /// Returns the columns for tables.
    pub fn columns(&self) -> Vec<MetricColumns<'_>> {
        self.0.columns()
    }
}

/// The number of names that an error lists at most.
const NAMED: usize = 4;

/// Returns the one-line error for a profile that lacks the events of all wanted metrics, with the remedy.
fn no_events(loaded: &Loaded, events: &MissingEvents) -> String {
    let list = |names: &[String]| {
        let more = names.len().saturating_sub(NAMED);
        let shown = names[..names.len().min(NAMED)].join(", ");
        match more {
            0 => shown,
            more => format!("{shown} and {more} more"),
        }
    };
    let (verb, first) = match events.wanted.as_slice() {
        [one] => ("has", one.as_str()),
        several => ("have", several.first().map_or("", String::as_str)),
    };
    let instead = match events.known.as_slice() {
        [] => String::new(),
        known => format!("; what was recorded makes {}", list(known)),
    };
    format!(
        "{}: {} {verb} no value without {}, and the recording has only {}: record with `dioptra record --windows --metrics \
         {first}` on a machine that counts them, as `dioptra list metrics` tells{instead}",
        loaded.path.display(),
        list(&events.wanted),
        list(&events.missing),
        list(&events.recorded),
    )
}
