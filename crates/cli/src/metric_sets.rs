//! The available sets of metrics: built-in ones, the user's files, and the makers' data in a folder of the user's.

use anyhow::{Context, anyhow, bail};
pub use dioptra_metrics::ChosenColumns;
use dioptra_metrics::{ChoiceError, MetricSet, PmuData};
use dioptra_recorder::machine::Machine;
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The variable that names the makers' folder, in place of `--pmu-data`.
const FOLDER: &str = "DIOPTRA_PMU_DATA";

/// The sources of metric sets, with errors in the words of the command line.
#[derive(Debug)]
pub struct MetricSets {
    sets: dioptra_metrics::MetricSets,
    /// The recording whose CPU that is; `None` for this machine's.
    recording: Option<PathBuf>,
}

impl MetricSets {
    /// Returns the sets for this machine.
    ///
    /// # Errors
    /// The same as [`MetricSets::for_cpu`].
    pub fn for_this_machine(folder: Option<&Path>) -> anyhow::Result<MetricSets> {
        MetricSets::for_cpu(Machine::running().cpuid, folder)
    }

    /// Returns the sets for a CPU, with the makers' sets of `folder` or, without it, of `DIOPTRA_PMU_DATA`.
    ///
    /// # Errors
    /// The folder cannot be read, or has no metrics.
    pub fn for_cpu(cpu: Option<String>, folder: Option<&Path>) -> anyhow::Result<MetricSets> {
        let published = MetricSets::open_published(folder)?;
        Ok(MetricSets {
            sets: dioptra_metrics::MetricSets::new(cpu, published),
            recording: None,
        })
    }

    /// Finds the sets for the CPU that a recording names, if it names one.
    ///
    /// # Errors
    /// The same as [`MetricSets::for_cpu`].
    pub fn for_recording(
        recording: &Path,
        cpu: Option<String>,
        folder: Option<&Path>,
    ) -> anyhow::Result<MetricSets> {
        let mut sets = MetricSets::for_cpu(cpu, folder)?;
        sets.recording = Some(recording.to_owned());
        Ok(sets)
    }

    /// Returns the message that the CPU is unknown, with the remedy.
    fn no_cpu(&self) -> String {
        match &self.recording {
            None => "this machine does not tell which CPU it has; name a set".to_owned(),
            Some(recording) => format!(
                "{} does not say which CPU it was recorded on: its header has no CPU id (feature CPUID), as after a \
                 recorder that was killed or wrote to a pipe; name that CPU's set instead of `cpu` (`dioptra list cpus` \
                 has them), or record again into a file",
                recording.display()
            ),
        }
    }

    /// Opens the makers' data of `folder` or, without it, of `DIOPTRA_PMU_DATA`, if either is named.
    ///
    /// # Errors
    /// The same as [`MetricSets::for_cpu`].
    pub fn open_published(folder: Option<&Path>) -> anyhow::Result<Option<Arc<PmuData>>> {
        let (folder, who) = match folder {
            Some(folder) => (Some(folder.to_owned()), "--pmu-data"),
            None => (
                std::env::var_os(FOLDER)
                    .filter(|folder| !folder.is_empty())
                    .map(PathBuf::from),
                FOLDER,
            ),
        };
        let open = |folder: PathBuf| {
            let data = PmuData::open(&folder).with_context(|| who.to_owned())?;
            if data.cpus().is_empty() {
                let skipped = data.skipped().join("; ");
                bail!(
                    "{who}: {} holds no metrics that Intel's perfmon or Arm's telemetry-solution publish{}{skipped}",
                    folder.display(),
                    if skipped.is_empty() { "" } else { ": " },
                );
            }
            Ok(Arc::new(data))
        };
        folder.map(open).transpose()
    }

    /// Returns the makers' data, if a folder was named.
    pub fn published(&self) -> Option<&PmuData> {
        self.sets.published()
    }

    /// Returns the CPU at hand, as a profile's header names it, if it is known.
    pub fn cpu(&self) -> Option<&str> {
        self.sets.cpu()
    }

    /// Returns all sets for the CPU at hand: the maker's set, the built-in one for its family, and `generic`.
    ///
    /// # Errors
    /// A maker's file is wrong.
    pub fn of_this_cpu(&self) -> anyhow::Result<Vec<Cow<'static, MetricSet>>> {
        Ok(self.sets.of_this_cpu()?)
    }

    /// Returns the sets for a CPU; see [`dioptra_metrics::MetricSets::for_named_cpu`].
    ///
    /// # Errors
    /// A maker's file is wrong.
    pub fn for_named_cpu(&self, cpu: &str) -> anyhow::Result<Vec<Cow<'static, MetricSet>>> {
        Ok(self.sets.for_named_cpu(cpu)?)
    }

    /// Finds the set of this name; see [`dioptra_metrics::MetricSets::find_or_load`].
    ///
    /// # Errors
    /// The set exists but cannot be read.
    pub fn find(&self, name: &str) -> anyhow::Result<Option<Cow<'static, MetricSet>>> {
        self.sets
            .find_or_load(name)
            .map_err(|error| self.explain(error))
    }

    /// Returns the columns that a name chooses; see [`dioptra_metrics::MetricSets::choose`].
    ///
    /// # Errors
    /// There is nothing of this name, or it cannot be read.
    pub fn choose(&self, name: &str) -> anyhow::Result<ChosenColumns> {
        self.sets.choose(name).map_err(|error| self.explain(error))
    }

    /// Adds to an error the commands and flags that help.
    fn explain(&self, error: ChoiceError) -> anyhow::Error {
        match error {
            ChoiceError::NoCpu => anyhow!(self.no_cpu()),
            ChoiceError::NoSetOfCpu { .. } => anyhow!(
                "{error}; see `dioptra list cpus`, or name a folder of its maker's files with --pmu-data"
            ),
            ChoiceError::NoColumn { ref given, .. } => {
                anyhow!("{error}; see `dioptra list metrics --cpu {given}`")
            }
            ChoiceError::NoMetric { ref published, .. } => {
                let published = match published {
                    Some(cpus) => format!(" and, of the makers' folder, {}", cpus.join(", ")),
                    None => String::new(),
                };
                anyhow!("{error}{published}; metrics are listed by `dioptra list metrics`")
            }
            other => other.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(cpu: &str) -> MetricSets {
        MetricSets {
            sets: dioptra_metrics::MetricSets::new(Some(cpu.to_owned()), None),
            recording: None,
        }
    }

    #[test]
    fn sets_and_columns_by_name() {
        let haswell = sets("GenuineIntel,6,63,2");
        let name = |text: &str| haswell.choose(text).map(|found| found.set.name.clone());
        assert_eq!(name("Generic").unwrap(), "generic");
        assert_eq!(name("cpu").unwrap(), "hsw-ep");
        assert_eq!(name("zen4").unwrap(), "zen4");
        assert_eq!(name("GenuineIntel-6-8F").unwrap(), "sapphire-rapids");
        let generic = MetricSet::generic();
        let ipc = haswell.choose("generic:IPC").unwrap();
        let named: Vec<&str> = ipc
            .columns
            .iter()
            .map(|&c| generic.columns()[c].name.as_str())
            .collect();
        assert_eq!(named, ["ipc", "frontend_stalled", "backend_stalled"]);
        // Without a set's name the sets of this CPU come first.
        assert_eq!(name("ipc").unwrap(), "generic");
        let starved = haswell.choose("instruction_starvation").unwrap();
        assert_eq!(starved.set.name, "hsw-ep");
        assert!(starved.columns.len() > 1);
        // The colon belongs to the column's name.
        assert_eq!(name("rs_events:empty_cycles").unwrap(), "hsw-ep");
        assert_eq!(name("hsw:rs_events:empty_cycles").unwrap(), "hsw");
    }

    #[test]
    fn what_there_is_not_is_told() {
        let unknown = sets("AuthenticAMD,26,2,1");
        let error = |text: &str| format!("{:#}", unknown.choose(text).unwrap_err());
        assert!(
            error("cpu").contains("AuthenticAMD-26-2-1"),
            "{}",
            error("cpu")
        );
        assert!(error("no-such-thing").contains("hsw-ep"));
        assert!(error("generic:no-such-thing").contains("no-such-thing"));
        assert!(error("").contains("no set"), "{}", error(""));
        assert!(error("/no/such/file.toml").contains("/no/such/file.toml"));
        assert_eq!(unknown.of_this_cpu().unwrap().len(), 1);
        let missing = MetricSets::for_cpu(None, Some(Path::new("/no/such/folder")));
        assert!(format!("{:#}", missing.unwrap_err()).contains("/no/such/folder"));
    }
}
