//! Our metric files: TOML, one for each family of CPUs. `crates/tables/metrics/data/README.md` tells their format.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;

use crate::error::MetricError;
use crate::expr::{Expr, Function, parse};
use crate::set::{Column, ColumnKind, MetricSet, NeededEvent, Resolved, event_formula};
use crate::unit::Unit;

/// The largest file that is read.
pub(crate) const MAX_FILE: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    name: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    sources: Vec<String>,
    #[serde(default)]
    cpus: Vec<String>,
    #[serde(default)]
    unknown: Vec<String>,
    counters: Option<usize>,
    reference: Option<String>,
    #[serde(default)]
    constants: BTreeMap<String, f64>,
    #[serde(default)]
    event: Vec<EventEntry>,
    #[serde(default)]
    column: Vec<ColumnEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventEntry {
    name: String,
    encoding: Option<String>,
    #[serde(default)]
    aka: Vec<String>,
    period: Option<u64>,
    #[serde(default)]
    precise: u8,
    #[serde(default)]
    fixed: bool,
    #[serde(default)]
    read_only: bool,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnEntry {
    name: String,
    title: Option<String>,
    unit: Option<String>,
    event: Option<String>,
    penalty: Option<f64>,
    #[serde(default)]
    sum: bool,
    formula: Option<String>,
    parent: Option<String>,
    #[serde(default)]
    adds_to: Vec<String>,
    #[serde(default)]
    group: String,
    #[serde(default)]
    description: String,
}

impl MetricSet {
    /// Reads a metric file of ours.
    pub(crate) fn load_toml(path: &Path) -> Result<Self, MetricError> {
        let bytes = read_limited(path)?;
        let file = path.display().to_string();
        let text = String::from_utf8(bytes).map_err(|e| MetricError::Syntax {
            file: file.clone(),
            reason: format!("not UTF-8 text: {e}"),
        })?;
        Self::from_toml(&file, &text)
    }

    /// Reads the text of a metric file; `file` names it in errors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn from_toml(file: &str, text: &str) -> Result<Self, MetricError> {
        let read: File = toml::from_str(text).map_err(|e| MetricError::Syntax {
            file: file.to_owned(),
            reason: in_one_line(&e, text),
        })?;
        if read.schema != 1 {
            return Err(MetricError::Syntax {
                file: file.to_owned(),
                reason: format!("schema {}; this version reads schema 1", read.schema),
            });
        }
        let mut set = Self {
            name: read.name,
            title: read.title,
            description: read.description,
            sources: read.sources,
            cpus: read.cpus,
            unknown: read.unknown,
            counters: read.counters,
            reference: read.reference,
            constants: read
                .constants
                .into_iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value))
                .collect(),
            ..Self::default()
        };
        for e in read.event {
            set.push_event(NeededEvent {
                name: e.name,
                encoding: e.encoding,
                aka: e.aka,
                period: e.period,
                precise: e.precise,
                fixed: e.fixed,
                read_only: e.read_only,
                description: e.description,
            });
        }
        build_columns(file, &mut set, &read.column)?;
        check(file, &set)?;
        Ok(set)
    }
}

pub(crate) fn read_limited(path: &Path) -> Result<Vec<u8>, MetricError> {
    let io = |source| MetricError::Io {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(MetricError::TooLarge {
            path: path.to_owned(),
            size: bytes.len() as u64,
            limit: MAX_FILE,
        });
    }
    Ok(bytes)
}

fn wrong(file: &str, column: &str, reason: impl Into<String>) -> MetricError {
    MetricError::Column {
        file: file.to_owned(),
        column: column.to_owned(),
        reason: reason.into(),
    }
}

fn build_columns(
    file: &str,
    set: &mut MetricSet,
    entries: &[ColumnEntry],
) -> Result<(), MetricError> {
    let mut addends: BTreeMap<String, Vec<Expr>> = BTreeMap::new();
    for entry in entries {
        let own = match (&entry.event, entry.sum, &entry.formula) {
            (Some(event), false, None) => event_formula(event, entry.penalty),
            // A sum or formula adds by its name, so that its own rounding comes first.
            (None, true, None) | (None, false, Some(_)) => Expr::name(&entry.name),
            _ => {
                return Err(wrong(
                    file,
                    &entry.name,
                    "needs exactly one of `event`, `sum = true` and `formula`",
                ));
            }
        };
        for target in &entry.adds_to {
            addends
                .entry(target.to_ascii_lowercase())
                .or_default()
                .push(own.clone());
        }
    }
    for entry in entries {
        let (kind, formula) = if let Some(event) = &entry.event {
            (ColumnKind::Event, event_formula(event, entry.penalty))
        } else if let Some(text) = &entry.formula {
            let formula = parse(text).map_err(|source| MetricError::Formula {
                file: file.to_owned(),
                column: entry.name.clone(),
                source,
            })?;
            (ColumnKind::Formula, formula)
        } else {
            let Some(terms) = addends.remove(&entry.name.to_ascii_lowercase()) else {
                return Err(wrong(file, &entry.name, "is a sum to which no column adds"));
            };
            (ColumnKind::Sum, Expr::Call(Function::Sum, terms))
        };
        if kind != ColumnKind::Event
            && set
                .event_index
                .contains_key(&entry.name.to_ascii_lowercase())
        {
            return Err(wrong(file, &entry.name, "has the name of an event"));
        }
        let parent = match &entry.parent {
            None => None,
            Some(parent) => Some(set.column(parent).ok_or_else(|| {
                wrong(
                    file,
                    &entry.name,
                    format!("no column {parent:?} stands before it to be its parent"),
                )
            })?),
        };
        let costs = entry.penalty.is_some_and(|p| p > 0.0);
        if entry.penalty.is_some_and(|p| !p.is_finite() || p < 0.0) {
            return Err(wrong(
                file,
                &entry.name,
                "a penalty is a number of cycles from 0 on",
            ));
        }
        let unit = match &entry.unit {
            Some(unit) => Unit::from_name(unit),
            None if costs || kind == ColumnKind::Sum => Unit::Cycles,
            None if kind == ColumnKind::Event => Unit::Events,
            None => Unit::Ratio,
        };
        let column = Column {
            name: entry.name.clone(),
            title: entry.title.clone().unwrap_or_else(|| entry.name.clone()),
            unit,
            kind,
            formula,
            parent,
            children: Vec::new(),
            event: entry.event.clone(),
            penalty: entry.penalty,
            group: entry.group.clone(),
            description: entry.description.clone(),
        };
        if !set.push_column(column) {
            return Err(wrong(file, &entry.name, "stands twice"));
        }
    }
    match addends.into_keys().next() {
        None => Ok(()),
        Some(target) => Err(wrong(
            file,
            &target,
            "something adds to it, but it is no column with `sum = true`",
        )),
    }
}

/// Every event of a formula is declared, no column needs itself: a list that does not feed its own tree is an error
/// here, not a zero in a report.
fn check(file: &str, set: &MetricSet) -> Result<(), MetricError> {
    for column in set.columns() {
        let mut undeclared = None;
        column.formula.visit_names(&mut |name| {
            if matches!(set.resolve(name), Resolved::Event) && set.event(name).is_none() {
                undeclared = Some(name.to_owned());
            }
        });
        if let Some(name) = undeclared {
            return Err(wrong(
                file,
                &column.name,
                format!("the event {name:?} is not declared in an [[event]] of this file"),
            ));
        }
    }
    if let Some(reference) = &set.reference
        && set.event(reference).is_none()
    {
        return Err(MetricError::Syntax {
            file: file.to_owned(),
            reason: format!("the reference {reference:?} is not a declared event"),
        });
    }
    check_cycles(file, set)
}

/// Refuses a set in which a column needs its own value.
pub(crate) fn check_cycles(file: &str, set: &MetricSet) -> Result<(), MetricError> {
    match set.reference_order() {
        Ok(_) => Ok(()),
        Err(column) => Err(wrong(
            file,
            &set.columns()[column].name,
            "needs its own value",
        )),
    }
}

/// Tells where a text is wrong, and why, in one line: messages with ends of lines in them could pass for several.
fn in_one_line(error: &toml::de::Error, text: &str) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map_or(1, |before| before.matches('\n').count() + 1);
    format!("line {line}: {}", error.message().replace('\n', ", "))
}
