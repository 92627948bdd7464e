//! Derived columns: which ones were asked for.

use super::profiles::Loaded;
use crate::metric_sets::{ChosenColumns, MetricSets};
use anyhow::Context;
use dioptra_metrics::{CpuId, Environment, MetricSet};
use dioptra_report::MetricColumns;
use std::borrow::Cow;
use std::path::PathBuf;

/// Arguments that name derived columns.
#[derive(clap::Args)]
pub struct Derived {
    /// Derived columns: a metric such as `ipc`, a set such as `generic`, `SET:METRIC`, a file of metrics, or `cpu` for the
    /// set of the recorded CPU; see `dioptra list metrics`
    #[arg(long, alias = "metrics", value_name = "NAME", value_delimiter = ',')]
    metric: Vec<String>,
    /// A folder of the events and metrics that Intel (perfmon) or Arm (telemetry-solution) publish
    /// [default: DIOPTRA_PMU_DATA]
    #[arg(long, value_name = "DIR")]
    pmu_data: Option<PathBuf>,
}

/// Sets and their columns.
pub struct Chosen {
    /// Each with the columns that were asked for by name.
    sets: Vec<(ChosenColumns, Vec<usize>)>,
    environment: Environment,
}

impl Derived {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.metric.is_empty()
    }

    /// Of these names, with makers' metrics from this folder.
    pub fn of(metric: Vec<String>, pmu_data: Option<PathBuf>) -> Derived {
        Derived { metric, pmu_data }
    }

    /// What was asked for or, where nothing was, all of the generic set that the recorded events make.
    pub fn choose_or_generic(&self, loaded: &[Loaded]) -> anyhow::Result<Chosen> {
        const FEW: u64 = 10;
        let mut chosen = self.choose(loaded, FEW)?;
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

    /// Finds what was asked for, for the CPU of the first profile.
    pub fn choose(&self, loaded: &[Loaded], few: u64) -> anyhow::Result<Chosen> {
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
        let sets = MetricSets::for_cpu(cpuid, self.pmu_data.as_deref())?;
        for name in &self.metric {
            let found = sets.choose(name).context("--metric")?;
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
    /// For tables. Columns whose inputs were not recorded are left out, and told, unless they were named themselves.
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
