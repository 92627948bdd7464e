//! Metrics as the makers of CPUs publish them, from a folder of the user's (`--pmu-data DIR`).
//!
//! Read are Intel's perfmon files (`*_metrics.json`, Linux's grammar in `*_metrics_perf.json`, events in `*_core.json`,
//! `mapfile.csv`) and Arm's telemetry-solution files (`neoverse-n1.json` and the like), in any folders below.

mod arm;
mod intel;
mod linux;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cpu::CpuId;
use crate::error::MetricError;
use crate::file::{check_cycles, read_limited};
use crate::set::{Column, MetricSet};

/// Folders below the given one that are looked into.
const MAX_FOLDERS: usize = 6;
/// Files that are looked at.
const MAX_FILES: usize = 20_000;

/// A folder of makers' files.
#[derive(Debug, Default)]
pub struct PmuData {
    root: PathBuf,
    cpus: Vec<PmuCpu>,
    skipped: Vec<String>,
}

/// A CPU for which the folder has metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PmuCpu {
    /// The maker's name for it: `sapphirerapids`, `Neoverse V1`.
    pub name: String,
    /// Patterns of its ids, see [`CpuId::matches`].
    pub patterns: Vec<String>,
    /// The files that together are its set.
    pub files: Vec<PathBuf>,
}

impl PmuData {
    /// Looks through a folder. Files of other kinds are passed over; ones that look right and cannot be read are
    /// told in [`skipped`](Self::skipped).
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn open(root: &Path) -> Result<Self, MetricError> {
        let mut data = Self {
            root: root.to_owned(),
            ..Self::default()
        };
        let files = data.list()?;
        let map = files
            .iter()
            .filter(|f| file_name(f) == "mapfile.csv")
            .flat_map(|f| data.read_or_skip(f))
            .flat_map(|bytes| intel::read_mapfile(&String::from_utf8_lossy(&bytes)))
            .collect::<Vec<_>>();
        for file in &files {
            let name = file_name(file);
            let stem = ["_metrics_perf.json", "_metrics.json", "_core.json"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            if let Some(stem) = stem {
                data.add_intel(stem, file, &map);
            } else if name.ends_with(".json")
                && let Some(bytes) = data.read_or_skip(file)
                && memmem(&bytes, b"\"product_configuration\"")
            {
                match parse(file, &bytes).and_then(|json| arm::cpu(file, &json)) {
                    Ok(cpu) => data.cpus.push(cpu),
                    Err(e) => data.skipped.push(e.to_string()),
                }
            }
        }
        // Events alone are no metrics.
        data.cpus.retain(|cpu| {
            cpu.files
                .iter()
                .any(|f| !file_name(f).ends_with("_core.json"))
        });
        data.cpus.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(data)
    }

    /// The CPUs of the folder, by name.
    pub fn cpus(&self) -> &[PmuCpu] {
        &self.cpus
    }

    /// Files that could not be used, and why.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// The set for a CPU, as a profile's header or the kernel names it, or by the maker's name.
    ///
    /// # Errors
    /// The folder has none, or a file of it is wrong.
    pub fn set_for(&self, cpuid: &str) -> Result<MetricSet, MetricError> {
        let id = CpuId::parse(cpuid);
        let cpu = self
            .cpus
            .iter()
            .find(|c| {
                c.name.eq_ignore_ascii_case(cpuid) || c.patterns.iter().any(|p| id.matches(p))
            })
            .ok_or_else(|| MetricError::UnknownCpu {
                path: self.root.clone(),
                cpu: cpuid.to_owned(),
                known: self
                    .cpus
                    .iter()
                    .map(|c| c.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", "),
            })?;
        let mut set = MetricSet {
            name: cpu.name.clone(),
            title: format!("{}, as its maker publishes it", cpu.name),
            cpus: cpu.patterns.clone(),
            ..MetricSet::default()
        };
        // Events first: they say what a name in a formula is. Then the maker's own schema before Linux's.
        let mut files = cpu.files.clone();
        files.sort_by_key(|f| {
            let name = file_name(f);
            (
                !name.ends_with("_core.json"),
                name.ends_with("_metrics_perf.json"),
            )
        });
        for file in &files {
            add_file(&mut set, file)?;
        }
        check_cycles(&cpu.name, &set)?;
        Ok(set)
    }

    /// All files below the root, in order of their paths.
    fn list(&mut self) -> Result<Vec<PathBuf>, MetricError> {
        let mut files = Vec::new();
        let mut open = vec![(self.root.clone(), 0)];
        while let Some((folder, depth)) = open.pop() {
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(source) if depth == 0 => {
                    return Err(MetricError::Io {
                        path: folder,
                        source,
                    });
                }
                Err(e) => {
                    self.skipped.push(format!("{}: {e}", folder.display()));
                    continue;
                }
            };
            for entry in entries.flatten() {
                // `file_type` does not follow links: no rings.
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                let path = entry.path();
                if kind.is_dir() {
                    if depth < MAX_FOLDERS {
                        open.push((path, depth + 1));
                    } else {
                        self.skipped.push(format!("{}: too deep", path.display()));
                    }
                } else if files.len() < MAX_FILES {
                    files.push(path);
                } else {
                    self.skipped
                        .push(format!("{}: more than {MAX_FILES} files", path.display()));
                    files.sort();
                    return Ok(files);
                }
            }
        }
        files.sort();
        Ok(files)
    }

    fn read_or_skip(&mut self, file: &Path) -> Option<Vec<u8>> {
        match read_limited(file) {
            Ok(bytes) => Some(bytes),
            Err(e) => {
                self.skipped.push(e.to_string());
                None
            }
        }
    }

    fn add_intel(&mut self, stem: &str, file: &Path, map: &[(String, String)]) {
        if let Some(cpu) = self.cpus.iter_mut().find(|c| c.name == stem) {
            cpu.files.push(file.to_owned());
            return;
        }
        let patterns = map
            .iter()
            .filter(|(_, stem_of)| stem_of == stem)
            .map(|(pattern, _)| pattern.clone())
            .collect();
        self.cpus.push(PmuCpu {
            name: stem.to_owned(),
            patterns,
            files: vec![file.to_owned()],
        });
    }
}

impl MetricSet {
    /// Reads one file: ours (`.toml`), or a maker's (`.json`) without the files beside it.
    ///
    /// # Errors
    /// The file cannot be read, is none of these, or a column of it is wrong.
    pub fn load(path: &Path) -> Result<Self, MetricError> {
        if path.extension().is_none_or(|e| e != "json") {
            return Self::load_toml(path);
        }
        let mut set = Self {
            name: file_name(path).trim_end_matches(".json").to_owned(),
            ..Self::default()
        };
        set.title.clone_from(&set.name);
        add_file(&mut set, path)?;
        check_cycles(&set.name, &set)?;
        Ok(set)
    }
}

/// Adds what a maker's file holds, by its content.
fn add_file(set: &mut MetricSet, path: &Path) -> Result<(), MetricError> {
    let json = parse(path, &read_limited(path)?)?;
    let file = path.display().to_string();
    set.sources.push(file.clone());
    if let Some(events) = json.get("Events").and_then(Value::as_array) {
        intel::add_events(set, events);
        Ok(())
    } else if let Some(metrics) = json.get("Metrics").and_then(Value::as_array) {
        intel::add_metrics(&file, set, metrics)
    } else if let Some(entries) = json.as_array() {
        linux::add_metrics(&file, set, entries)
    } else if json.get("product_configuration").is_some() {
        arm::add(&file, set, &json)
    } else {
        Err(MetricError::Syntax {
            file,
            reason: "neither Intel's, Linux's nor Arm's form of metrics: it has no \"Metrics\", no list of entries and \
                     no \"product_configuration\""
                .to_owned(),
        })
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Value, MetricError> {
    serde_json::from_slice(bytes).map_err(|e| MetricError::Syntax {
        file: path.display().to_string(),
        reason: e.to_string(),
    })
}

fn file_name(path: &Path) -> &str {
    path.file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default()
}

fn memmem(bytes: &[u8], needle: &[u8]) -> bool {
    bytes.windows(needle.len()).any(|w| w == needle)
}

/// A field's text; empty if it is none.
fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn formula_error(file: &str, column: &str) -> impl FnOnce(crate::expr::ExprError) -> MetricError {
    move |source| MetricError::Formula {
        file: file.to_owned(),
        column: column.to_owned(),
        source,
    }
}

/// Adds columns in an order in which parents come first; `parents` are names, empty for none. Columns whose name is
/// taken are left out: the first file read decides.
fn push_with_parents(set: &mut MetricSet, mut waiting: Vec<(Column, String)>) {
    let known: std::collections::HashSet<String> = waiting
        .iter()
        .map(|(c, _)| c.name.to_ascii_lowercase())
        .collect();
    loop {
        let before = waiting.len();
        let mut later = Vec::new();
        for (mut column, parent) in waiting {
            let waits = known.contains(&parent.to_ascii_lowercase())
                && set.column(&parent).is_none()
                && !parent.eq_ignore_ascii_case(&column.name);
            if waits {
                later.push((column, parent));
            } else {
                column.parent = set.column(&parent);
                set.push_column(column);
            }
        }
        if later.len() == before {
            // A ring of parents: without them.
            for (column, _) in later {
                set.push_column(column);
            }
            return;
        }
        if later.is_empty() {
            return;
        }
        waiting = later;
    }
}
