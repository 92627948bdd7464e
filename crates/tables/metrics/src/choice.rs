//! Choosing metrics by name, among the built-in sets, files, and a maker's published sets.

use crate::{CpuId, MetricError, MetricSet, PmuData, builtin};
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// The name of the set for the CPU at hand.
const OF_THE_CPU: &str = "cpu";

/// The available sets of metrics, for one CPU.
#[derive(Debug, Default)]
pub struct MetricSets {
    published: Option<Arc<PmuData>>,
    cpu: Option<String>,
}

/// A set, and its chosen columns.
#[derive(Clone, Debug)]
pub struct ChosenColumns {
    /// The set.
    pub set: Cow<'static, MetricSet>,
    /// The indices of the chosen columns.
    pub columns: Vec<usize>,
}

impl ChosenColumns {
    /// Returns the chosen columns that were named themselves: not those that fold under another chosen one, and none if the
    /// whole set was chosen.
    pub fn named(&self) -> Vec<usize> {
        let all = self.set.columns();
        let whole = self.columns.len() == all.len();
        let is_first = |column: &usize| {
            let parent = all[*column].parent;
            !whole && !parent.is_some_and(|parent| self.columns.contains(&parent))
        };
        self.columns.iter().copied().filter(is_first).collect()
    }
}

/// A reason why a name chooses no metrics.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// A set's file cannot be read or is wrong.
    #[error(transparent)]
    Metric(#[from] MetricError),
    /// The set of the CPU was asked for, and the CPU is unknown.
    #[error("it is not known which CPU this is; name a set")]
    NoCpu,
    /// The set of the CPU was asked for, and there is none.
    #[error("there is no set for the CPU {cpu} but `generic`")]
    NoSetOfCpu {
        /// The CPU, without its stepping.
        cpu: String,
    },
    /// The set lacks the column.
    #[error("the set {set} has no column or group `{column}`")]
    NoColumn {
        /// The set.
        set: String,
        /// The set's name, as it was given.
        given: String,
        /// The column that was asked for.
        column: String,
    },
    /// Neither a set nor a column has the name.
    #[error("there is no set of metrics, and no metric for this CPU, named `{name}`; sets are {}", known.join(", "))]
    NoMetric {
        /// The name.
        name: String,
        /// The built-in sets.
        known: Vec<String>,
        /// The CPUs of the makers' folder; `None` without such a folder.
        published: Option<Vec<String>>,
    },
}

impl MetricSets {
    /// Makes the list of sets for a CPU, given as a profile's header names it, with the makers' sets if there are any.
    pub fn new(cpu: Option<String>, published: Option<Arc<PmuData>>) -> MetricSets {
        MetricSets { published, cpu }
    }

    /// Returns the CPU, as a profile's header names it, if it is known.
    pub fn cpu(&self) -> Option<&str> {
        self.cpu.as_deref()
    }

    /// Returns the makers' data, if there is any.
    pub fn published(&self) -> Option<&PmuData> {
        self.published.as_deref()
    }

    /// Returns all sets for the CPU: the maker's set, the built-in one for its family, and `generic`.
    ///
    /// # Errors
    /// A maker's file is wrong.
    pub fn of_this_cpu(&self) -> Result<Vec<Cow<'static, MetricSet>>, MetricError> {
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
    pub fn for_named_cpu(&self, cpu: &str) -> Result<Vec<Cow<'static, MetricSet>>, MetricError> {
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

    /// Finds the set of this name: a built-in set, a CPU of the makers' data, a CPU's id, or `cpu` for the CPU at hand.
    /// Returns `None` if there is none. Reads no file but the makers'.
    ///
    /// # Errors
    /// The set exists but cannot be read, or the CPU at hand has none.
    pub fn find(&self, name: &str) -> Result<Option<Cow<'static, MetricSet>>, ChoiceError> {
        if name.eq_ignore_ascii_case(OF_THE_CPU) {
            let cpu = self.cpu().ok_or(ChoiceError::NoCpu)?;
            let set = self.for_named_cpu(cpu)?.into_iter().next();
            let no_set = || ChoiceError::NoSetOfCpu {
                cpu: CpuId::parse(cpu).to_string(),
            };
            return set.ok_or_else(no_set).map(Some);
        }
        if name.is_empty() {
            return Ok(None);
        }
        Ok(self.for_named_cpu(name)?.into_iter().next())
    }

    /// Finds the set of this name, as [`MetricSets::find`], or that in the file of this path: a name with a slash, or one
    /// that ends in `.toml` or `.json`.
    ///
    /// # Errors
    /// The errors of [`MetricSets::find`].
    pub fn find_or_load(&self, name: &str) -> Result<Option<Cow<'static, MetricSet>>, ChoiceError> {
        let path = Path::new(name);
        let is_path = name.contains('/')
            || path
                .extension()
                .is_some_and(|end| end == "toml" || end == "json");
        match is_path {
            true => Ok(Some(Cow::Owned(MetricSet::load(path)?))),
            false => self.find(name),
        }
    }

    /// Returns the columns that a name chooses. The name is a whole set ([`MetricSets::find_or_load`]), `SET:COLUMN`, or
    /// a column of the sets for the CPU at hand. A column is one with the columns that fold under it, or a maker's group
    /// of columns.
    ///
    /// # Errors
    /// There is nothing of this name, or it cannot be read.
    pub fn choose(&self, name: &str) -> Result<ChosenColumns, ChoiceError> {
        self.choose_from(name, |name| self.find_or_load(name))
    }

    /// Returns the columns that a name chooses, as [`MetricSets::choose`], but opens no file that the name itself states:
    /// for names from strangers.
    ///
    /// # Errors
    /// The errors of [`MetricSets::choose`].
    pub fn choose_known(&self, name: &str) -> Result<ChosenColumns, ChoiceError> {
        self.choose_from(name, |name| self.find(name))
    }

    fn choose_from(
        &self,
        name: &str,
        find: impl Fn(&str) -> Result<Option<Cow<'static, MetricSet>>, ChoiceError>,
    ) -> Result<ChosenColumns, ChoiceError> {
        if let Some(set) = find(name)? {
            let columns = (0..set.columns().len()).collect();
            return Ok(ChosenColumns { set, columns });
        }
        // Names of columns may hold colons themselves.
        for (at, _) in name.match_indices(':') {
            if let Some(set) = find(&name[..at])? {
                let column = &name[at + 1..];
                let Some(columns) = set.columns_named(column) else {
                    return Err(ChoiceError::NoColumn {
                        set: set.name.clone(),
                        given: name[..at].to_owned(),
                        column: column.to_owned(),
                    });
                };
                return Ok(ChosenColumns { set, columns });
            }
        }
        for set in self.of_this_cpu()? {
            if let Some(columns) = set.columns_named(name) {
                return Ok(ChosenColumns { set, columns });
            }
        }
        let published = self.published.as_ref();
        Err(ChoiceError::NoMetric {
            name: name.to_owned(),
            known: builtin().iter().map(|set| set.name.to_owned()).collect(),
            published: published
                .map(|data| data.cpus().iter().map(|cpu| cpu.name.clone()).collect()),
        })
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

    #[test]
    fn strangers_open_no_files() {
        let sets = MetricSets::new(Some("GenuineIntel,6,63,2".to_owned()), None);
        let error = sets.choose_known("/etc/passwd").unwrap_err();
        assert!(matches!(error, ChoiceError::NoMetric { .. }), "{error}");
        let error = sets.choose("/no/such/file.toml").unwrap_err();
        assert!(matches!(error, ChoiceError::Metric(_)), "{error}");
        assert_eq!(sets.choose_known("ipc").unwrap().set.name, "generic");
        assert_eq!(sets.choose_known("cpu").unwrap().set.name, "hsw-ep");
    }

    #[test]
    fn the_named_columns_are_those_that_fold_under_no_other() {
        let sets = MetricSets::default();
        let ipc = sets.choose("generic:ipc").unwrap();
        assert_eq!(ipc.named(), [MetricSet::generic().column("ipc").unwrap()]);
        assert!(ipc.columns.len() > 1);
        assert!(sets.choose("generic").unwrap().named().is_empty());
    }
}
