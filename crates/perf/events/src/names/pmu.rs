//! Dynamic PMUs, as sysfs describes them under `/sys/bus/event_source/devices`.
//!
//! A PMU has a number, formats (which bits of the attr's words a term such as `umask` fills) and, often, events:
//! terms with values under a name.

use crate::Attr;
use crate::cpus::CpuSet;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Where PMUs are listed.
const DEVICES: &str = "/sys/bus/event_source/devices";

/// A directory of PMUs: that of the running kernel, or a copy of another machine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmuDirectory(PathBuf);

impl Default for PmuDirectory {
    /// Returns the directory of the running kernel.
    fn default() -> Self {
        PmuDirectory(PathBuf::from(DEVICES))
    }
}

/// Why a term can't be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TermError {
    /// The PMU has no such term or event.
    #[error("the PMU {pmu} has no term or event `{term}`; it has {}", list(known))]
    Unknown {
        /// The PMU.
        pmu: String,
        /// The name that was asked for.
        term: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// The value does not fit the term's bits.
    #[error("{value:#x} does not fit the {bits} bits of the term `{term}`")]
    TooLarge {
        /// The term.
        term: String,
        /// The value.
        value: u64,
        /// The number of bits that the term has.
        bits: u32,
    },
    /// The event leaves a value open, marked with `?`, that must be typed.
    #[error("the event needs a value for its term `{term}`: write {term}=VALUE")]
    Missing {
        /// The term.
        term: String,
    },
    /// A file of sysfs that does not have the documented form.
    #[error("sysfs describes `{term}` as `{text}`, which is not understood")]
    Format {
        /// The term.
        term: String,
        /// The description.
        text: String,
    },
}

fn list(known: &[String]) -> String {
    let shown: Vec<&str> = known.iter().take(12).map(String::as_str).collect();
    let more = if known.len() > shown.len() {
        ", …"
    } else {
        ""
    };
    if shown.is_empty() {
        "none".to_owned()
    } else {
        format!("{}{more}", shown.join(", "))
    }
}

/// Returns the type number of the running kernel's PMU called `name`; `None` where the machine has none of that name.
pub fn kind(name: &str) -> Option<u32> {
    PmuDirectory::default().kind(name)
}

/// Returns true if `kind` is the PMU of uprobes or of kprobes, for which every hit is worth a sample.
pub fn is_probe(kind: u32) -> bool {
    use std::sync::OnceLock;
    static PROBES: OnceLock<[Option<u32>; 2]> = OnceLock::new();
    // Numbers below 6 are the kernel's fixed types.
    kind >= 6
        && PROBES
            .get_or_init(|| [self::kind("uprobe"), self::kind("kprobe")])
            .contains(&Some(kind))
}

impl PmuDirectory {
    /// Reads a copy of `/sys/bus/event_source/devices`.
    pub fn at(path: impl Into<PathBuf>) -> PmuDirectory {
        PmuDirectory(path.into())
    }

    fn pmu(&self, name: &str) -> Option<PathBuf> {
        let plain = !name.is_empty() && !name.contains('/') && !name.starts_with('.');
        plain.then(|| self.0.join(name))
    }

    /// Returns the type number of the PMU called `name`.
    pub fn kind(&self, name: &str) -> Option<u32> {
        std::fs::read_to_string(self.pmu(name)?.join("type"))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// Returns true if the PMU of type `kind` has a term `format`.
    pub fn has_format(&self, kind: u32, format: &str) -> bool {
        let mut of_kind = self
            .names()
            .into_iter()
            .filter(|name| self.kind(name) == Some(kind));
        of_kind.any(|name| self.0.join(name).join("format").join(format).exists())
    }

    /// Returns the names of all PMUs, sorted.
    pub fn names(&self) -> Vec<String> {
        entries(&self.0)
    }

    /// Returns the names of a PMU's events, sorted.
    pub fn events(&self, pmu: &str) -> Vec<String> {
        let Some(path) = self.pmu(pmu) else {
            return Vec::new();
        };
        let mut names = entries(&path.join("events"));
        // `name.unit`, `name.scale` and the like describe `name`.
        names.retain(|name| !name.contains('.'));
        names
    }

    /// Returns the PMU that has an event called `event`, among the PMUs that count for CPUs.
    pub fn pmu_with_event(&self, event: &str) -> Option<String> {
        if event.contains('/') || event.contains('.') {
            return None;
        }
        let core = |name: &String| name.starts_with("cpu") || name.starts_with("armv");
        let has = |name: &String| self.0.join(name).join("events").join(event).exists();
        self.names()
            .into_iter()
            .find(|name| core(name) && has(name))
    }

    /// Returns the CPUs on which events of a PMU for something larger than a CPU are to be opened.
    pub fn cpumask(&self, pmu: &str) -> Option<CpuSet> {
        std::fs::read_to_string(self.pmu(pmu)?.join("cpumask"))
            .ok()?
            .parse()
            .ok()
    }

    /// Sets one term: a format's bits, or all those of a named event. `value` is 1 where none was typed.
    ///
    /// # Errors
    /// [`TermError`].
    pub fn set_term(
        &self,
        attr: &mut Attr,
        pmu: &str,
        term: &str,
        value: Option<u64>,
    ) -> Result<(), TermError> {
        let unknown = || TermError::Unknown {
            pmu: pmu.to_owned(),
            term: term.to_owned(),
            known: self.known(pmu),
        };
        let path = self.pmu(pmu).ok_or_else(unknown)?;
        if term.contains('/') || term.starts_with('.') {
            return Err(unknown());
        }
        if let Ok(format) = std::fs::read_to_string(path.join("format").join(term)) {
            return set_bits(attr, term, format.trim(), value.unwrap_or(1));
        }
        let text = match std::fs::read_to_string(path.join("events").join(term)) {
            Ok(text) if value.is_none() => text,
            _ => return Err(unknown()),
        };
        for part in text.trim().split(',') {
            let (inner, value) = match part.split_once('=') {
                Some((inner, value)) => (inner.trim(), Some(value.trim())),
                None => (part.trim(), None),
            };
            if value == Some("?") {
                return Err(TermError::Missing {
                    term: inner.to_owned(),
                });
            }
            let number = match value {
                Some(value) => Some(number(value).ok_or_else(|| TermError::Format {
                    term: term.to_owned(),
                    text: text.trim().to_owned(),
                })?),
                None => None,
            };
            let format = match inner {
                "config" | "config1" | "config2" | "config3" => format!("{inner}:0-63"),
                _ => std::fs::read_to_string(path.join("format").join(inner))
                    .map_err(|_: io::Error| unknown())?,
            };
            set_bits(attr, inner, format.trim(), number.unwrap_or(1))?;
        }
        Ok(())
    }

    fn known(&self, pmu: &str) -> Vec<String> {
        let mut known = self.events(pmu);
        if let Some(path) = self.pmu(pmu) {
            known.extend(entries(&path.join("format")));
        }
        known
    }
}

fn entries(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Puts `value` into the bits that `format` names, such as `config1:0-7,32-35`: its low bits into the first range.
fn set_bits(attr: &mut Attr, term: &str, format: &str, value: u64) -> Result<(), TermError> {
    let malformed = || TermError::Format {
        term: term.to_owned(),
        text: format.to_owned(),
    };
    let (word, ranges) = format.split_once(':').ok_or_else(malformed)?;
    let word = match word {
        "config" => &mut attr.config,
        "config1" => &mut attr.config1,
        "config2" => &mut attr.config2,
        "config3" => &mut attr.config3,
        _ => return Err(malformed()),
    };
    let mut left = value;
    let mut total = 0;
    let mut result = *word;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let low: u32 = low.trim().parse().map_err(|_| malformed())?;
        let high: u32 = high.trim().parse().map_err(|_| malformed())?;
        if low > high || high > 63 {
            return Err(malformed());
        }
        let bits = high - low + 1;
        let mask = u64::MAX >> (64 - bits);
        result = (result & !(mask << low)) | ((left & mask) << low);
        left = left.checked_shr(bits).unwrap_or(0);
        total += bits;
    }
    if left != 0 {
        return Err(TermError::TooLarge {
            term: term.to_owned(),
            value,
            bits: total,
        });
    }
    *word = result;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_go_where_the_format_says() {
        let mut attr = Attr::default();
        set_bits(&mut attr, "event", "config:0-7,32-35", 0xABC).expect("twelve bits");
        assert_eq!(attr.config, 0xA_0000_00BC);
        set_bits(&mut attr, "edge", "config:18", 1).expect("one bit");
        assert_eq!(attr.config, 0xA_0004_00BC);
        set_bits(&mut attr, "all", "config2:0-63", u64::MAX).expect("all bits");
        assert_eq!(attr.config2, u64::MAX);
        let error = set_bits(&mut attr, "edge", "config:18", 2).expect_err("two bits");
        assert!(matches!(error, TermError::TooLarge { bits: 1, .. }));
        for format in [
            "",
            "config",
            "config:",
            "config:9-8",
            "config:0-64",
            "config9:0",
        ] {
            assert!(set_bits(&mut attr, "x", format, 0).is_err(), "{format}");
        }
    }
}
