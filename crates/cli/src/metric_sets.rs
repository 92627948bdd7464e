//! The available sets of metrics: built-in ones, the user's files, and the makers' data in a folder of the user's.

use anyhow::{Context, anyhow, bail};
use dioptra_metrics::{CpuId, MetricSet, PmuData, builtin};
use dioptra_recorder::machine::Machine;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The variable that names the makers' folder, in place of `--pmu-data`.
const FOLDER: &str = "DIOPTRA_PMU_DATA";

/// The name of the set for the CPU at hand.
pub const OF_THE_CPU: &str = "cpu";

/// The sources of metric sets.
#[derive(Debug)]
pub struct MetricSets {
    published: Option<PmuData>,
    /// The CPU at hand, as a profile's header names it.
    cpu: Option<String>,
    /// The recording whose CPU that is; `None` for this machine's.
    recording: Option<PathBuf>,
}

/// A set, and its chosen columns.
#[derive(Clone, Debug)]
pub struct ChosenColumns {
    /// The set.
    pub set: Cow<'static, MetricSet>,
    /// The indices of the chosen columns.
    pub columns: Vec<usize>,
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
            Ok(data)
        };
        Ok(MetricSets {
            published: folder.map(open).transpose()?,
            cpu,
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

    /// Returns the CPU at hand, as a profile's header names it, if it is known.
    pub fn cpu(&self) -> Option<&str> {
        self.cpu.as_deref()
    }

    /// Returns the makers' data, if a folder was named.
    pub fn published(&self) -> Option<&PmuData> {
        self.published.as_ref()
    }

    /// Returns all sets for the CPU at hand: the maker's set, the built-in one for its family, and `generic`.
    ///
    /// # Errors
    /// A maker's file is wrong.
    pub fn of_this_cpu(&self) -> anyhow::Result<Vec<Cow<'static, MetricSet>>> {
        let mut sets = match self.cpu() {
            Some(cpu) => self.for_named_cpu(cpu)?,
            None => Vec::new(),
        };
        sets.push(Cow::Borrowed(MetricSet::generic()));
        Ok(sets)
    }

    /// Returns the sets for a CPU, by its id or by the name of one of its sets: the maker's, then the built-in ones.
    /// Returns none if the CPU has only the generic set.
    ///
    /// # Errors
    /// A maker's file is wrong.
    pub fn for_named_cpu(&self, cpu: &str) -> anyhow::Result<Vec<Cow<'static, MetricSet>>> {
        let mut sets = Vec::new();
        if let Some(data) = &self.published
            && publishes(data, cpu)
        {
            sets.push(Cow::Owned(data.set_for(cpu)?));
        }
        sets.extend(
            MetricSet::named(cpu)
                .or_else(|| MetricSet::for_cpu(cpu))
                .map(Cow::Borrowed),
        );
        Ok(sets)
    }

    /// Finds the set of this name: a file's path, a built-in set, a CPU of the makers' folder, a CPU's id, or `cpu` for
    /// the CPU at hand. Returns `None` if there is none.
    ///
    /// # Errors
    /// The set exists but cannot be read.
    pub fn find(&self, name: &str) -> anyhow::Result<Option<Cow<'static, MetricSet>>> {
        let path = Path::new(name);
        let is_path = name.contains('/')
            || path
                .extension()
                .is_some_and(|end| end == "toml" || end == "json");
        if is_path {
            return Ok(Some(Cow::Owned(MetricSet::load(path)?)));
        }
        if name.eq_ignore_ascii_case(OF_THE_CPU) {
            let cpu = self.cpu().with_context(|| self.no_cpu())?;
            let set = self.for_named_cpu(cpu)?.into_iter().next();
            let Some(set) = set else {
                bail!(
                    "there is no set for the CPU {} but `generic`; see `dioptra list cpus`, or name a folder of its \
                     maker's files with --pmu-data",
                    CpuId::parse(cpu)
                );
            };
            return Ok(Some(set));
        }
        if name.is_empty() {
            return Ok(None);
        }
        Ok(self.for_named_cpu(name)?.into_iter().next())
    }

    /// Returns the columns that a name chooses. The name is a whole set ([`MetricSets::find`]), `SET:COLUMN`, or a
    /// column of the sets for the CPU at hand. A column is one with the columns that fold under it, or a maker's group
    /// of columns.
    ///
    /// # Errors
    /// There is nothing of this name, or it cannot be read.
    pub fn choose(&self, name: &str) -> anyhow::Result<ChosenColumns> {
        if let Some(set) = self.find(name)? {
            let columns = (0..set.columns().len()).collect();
            return Ok(ChosenColumns { set, columns });
        }
        // Names of columns may hold colons themselves.
        for (at, _) in name.match_indices(':') {
            if let Some(set) = self.find(&name[..at])? {
                let column = &name[at + 1..];
                let columns = set.columns_named(column).ok_or_else(|| {
                    anyhow!(
                        "the set {} has no column or group `{column}`; see `dioptra list metrics --cpu {}`",
                        set.name,
                        &name[..at]
                    )
                })?;
                return Ok(ChosenColumns { set, columns });
            }
        }
        for set in self.of_this_cpu()? {
            if let Some(columns) = set.columns_named(name) {
                return Ok(ChosenColumns { set, columns });
            }
        }
        let known: Vec<&str> = builtin().iter().map(|b| b.name).collect();
        bail!(
            "there is no set of metrics, and no metric for this CPU, named `{name}`; sets are {}{}; metrics are listed \
             by `dioptra list metrics`",
            known.join(", "),
            match &self.published {
                Some(data) => format!(
                    " and, of the makers' folder, {}",
                    data.cpus()
                        .iter()
                        .map(|cpu| cpu.name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
                None => String::new(),
            }
        )
    }
}

/// Returns whether the folder has a set for the CPU.
fn publishes(data: &PmuData, cpu: &str) -> bool {
    let id = CpuId::parse(cpu);
    data.cpus().iter().any(|known| {
        known.name.eq_ignore_ascii_case(cpu) || known.patterns.iter().any(|p| id.matches(p))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(cpu: &str) -> MetricSets {
        MetricSets {
            published: None,
            cpu: Some(cpu.to_owned()),
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
