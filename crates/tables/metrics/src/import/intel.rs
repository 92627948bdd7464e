//! Intel's perfmon: metrics in its own schema, core events, the map of CPUs.

use std::collections::HashMap;

use serde_json::Value;

use super::{formula_error, push_with_parents, text};
use crate::error::MetricError;
use crate::expr::{BinaryOp, Expr, parse};
use crate::set::{Column, ColumnKind, MetricSet, NeededEvent};
use crate::unit::Unit;

/// Returns the pattern and file stem of each line of `mapfile.csv` that names core events.
pub(super) fn read_mapfile(map: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for line in map.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let (Some(pattern), Some(file), Some(kind)) =
            (fields.first(), fields.get(2), fields.get(3))
        else {
            continue;
        };
        let name = file.rsplit('/').next().unwrap_or_default();
        let Some(stem) = name.strip_suffix("_core.json") else {
            continue;
        };
        let entry = ((*pattern).to_owned(), stem.to_owned());
        if matches!(*kind, "core" | "hybridcore") && !found.contains(&entry) {
            found.push(entry);
        }
    }
    found
}

pub(super) fn add_events(set: &mut MetricSet, events: &[Value]) {
    for event in events {
        let name = text(event, "EventName");
        if name.is_empty() || set.event(name).is_some() {
            continue;
        }
        let counter = text(event, "Counter");
        set.push_event(NeededEvent {
            name: name.to_owned(),
            encoding: encoding(event),
            aka: Vec::new(),
            period: text(event, "SampleAfterValue").parse().ok(),
            precise: u8::from(
                text(event, "Precise") == "1" || matches!(text(event, "PEBS"), "1" | "2"),
            ),
            fixed: counter.starts_with("Fixed"),
            read_only: false,
            description: text(event, "BriefDescription").to_owned(),
        });
    }
}

/// Returns perf's words for an entry; `None` if the entry has a code that needs more than the general fields.
fn encoding(event: &Value) -> Option<String> {
    // Some events may be programmed by either of two codes.
    let code = number(text(event, "EventCode").split(',').next()?)?;
    let umask = number(text(event, "UMask")).unwrap_or(0);
    let mut terms = format!("cpu/event={code:#04x},umask={umask:#04x}");
    for (field, term) in [
        ("CounterMask", "cmask"),
        ("Invert", "inv"),
        ("EdgeDetect", "edge"),
        ("AnyThread", "any"),
    ] {
        if let Some(value) = number(text(event, field)).filter(|v| *v != 0) {
            terms.push_str(&format!(",{term}={value}"));
        }
    }
    let value = number(text(event, "MSRValue")).unwrap_or(0);
    let msr = text(event, "MSRIndex")
        .split(',')
        .next()
        .and_then(number)
        .unwrap_or(0);
    match msr {
        0 => {}
        0x3f6 => terms.push_str(&format!(",ldlat={value:#x}")),
        0x3f7 => terms.push_str(&format!(",frontend={value:#x}")),
        0x1a6 | 0x1a7 => terms.push_str(&format!(",offcore_rsp={value:#x}")),
        _ => return None,
    }
    Some(terms + "/")
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

pub(super) fn add_metrics(
    file: &str,
    set: &mut MetricSet,
    metrics: &[Value],
) -> Result<(), MetricError> {
    let mut columns = Vec::new();
    for metric in metrics {
        let name = text(metric, "MetricName");
        if name.is_empty() {
            continue;
        }
        let mut meaning: HashMap<&str, Expr> = HashMap::new();
        for event in metric
            .get("Events")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let event_name = text(event, "Name");
            declare(set, event_name);
            meaning.insert(text(event, "Alias"), Expr::name(event_name));
        }
        for entry in metric
            .get("Constants")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            meaning.insert(text(entry, "Alias"), constant(text(entry, "Name")));
        }
        let formula = parse(text(metric, "Formula")).map_err(formula_error(file, name))?;
        let formula = formula.substitute(&|alias| {
            meaning
                .get(alias)
                .cloned()
                .or_else(|| literal(alias))
                .or_else(|| alias.starts_with("DURATIONTIME").then(|| constant(alias)))
        });
        let legacy = text(metric, "LegacyName");
        columns.push((
            Column {
                name: name.to_owned(),
                title: legacy.strip_prefix("metric_").unwrap_or(legacy).to_owned(),
                unit: Unit::from_name(text(metric, "UnitOfMeasure")),
                kind: ColumnKind::Formula,
                formula,
                parent: None,
                children: Vec::new(),
                event: None,
                penalty: None,
                group: text(metric, "MetricGroup").to_owned(),
                description: text(metric, "BriefDescription").to_owned(),
            },
            text(metric, "ParentCategory").to_owned(),
        ));
    }
    push_with_parents(set, columns);
    Ok(())
}

/// Returns Intel's constants under the names that Linux's grammar gives them.
fn constant(name: &str) -> Expr {
    let times = |factor: f64| {
        Expr::Binary(
            BinaryOp::Mul,
            Box::new(Expr::name("duration_time")),
            Box::new(Expr::Number(factor)),
        )
    };
    match name {
        "DURATIONTIMEINSECONDS" => Expr::name("duration_time"),
        "DURATIONTIMEINMILLISECONDS" => times(1000.0),
        "HYPERTHREADING_ON" => Expr::name("#smt_on"),
        "THREADS_PER_CORE" => Expr::name("#threads_per_core"),
        "SYSTEM_TSC_FREQ" => Expr::name("#system_tsc_freq"),
        "SOCKET_COUNT" => Expr::name("#num_packages"),
        "CORES_PER_SOCKET" => Expr::name("#cores_per_socket"),
        "CHAS_PER_SOCKET" => Expr::name("#chas_per_socket"),
        "system.sockets[0].cpus.count * system.socket_count" => Expr::name("#num_cpus"),
        other => match other.parse::<f64>() {
            Ok(n) if n.is_finite() && n >= 0.0 => Expr::Number(n),
            _ => Expr::name(format!("#{other}")),
        },
    }
}

/// `e9` in a formula stands for 1e9.
fn literal(word: &str) -> Option<Expr> {
    let digits = word.strip_prefix('e')?;
    (!digits.is_empty() && digits.len() <= 2 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
        .map(|n: i32| Expr::Number(10f64.powi(n)))
}

/// Declares an event such as `NAME:c1:e1` as the event `NAME` with these changes.
fn declare(set: &mut MetricSet, name: &str) {
    if name.is_empty() || set.event(name).is_some() {
        return;
    }
    let (base, changes) = name
        .split_once(':')
        .map_or((name, ""), |(base, changes)| (base, changes));
    let topdown = topdown_slot(name);
    let known = set.event(base).cloned();
    let encoding = match topdown {
        Some(umask) => Some(format!("cpu/event=0x00,umask={umask:#04x}/")),
        None => known
            .as_ref()
            .and_then(|e| e.encoding.as_deref())
            .and_then(|e| changed(e, changes)),
    };
    // `USER` and `SUP` change modifiers only and leave the encoding's fields: such a name stands for the same event.
    let base = known.unwrap_or_default();
    set.push_event(NeededEvent {
        name: name.to_owned(),
        aka: Vec::new(),
        fixed: topdown.is_some() || base.fixed && changes.is_empty(),
        read_only: topdown.is_some_and(|umask| umask >= 0x80),
        encoding,
        ..base
    });
}

/// Returns the second byte of the kernel's encoding for a pseudo event of the top-down register.
fn topdown_slot(name: &str) -> Option<u8> {
    Some(match name {
        "TOPDOWN.SLOTS:perf_metrics" | "TOPDOWN.SLOTS" => 0x04,
        "PERF_METRICS.RETIRING" => 0x80,
        "PERF_METRICS.BAD_SPECULATION" => 0x81,
        "PERF_METRICS.FRONTEND_BOUND" => 0x82,
        "PERF_METRICS.BACKEND_BOUND" => 0x83,
        "PERF_METRICS.HEAVY_OPERATIONS" => 0x84,
        "PERF_METRICS.BRANCH_MISPREDICTS" => 0x85,
        "PERF_METRICS.FETCH_LATENCY" => 0x86,
        "PERF_METRICS.MEMORY_BOUND" => 0x87,
        _ => return None,
    })
}

/// Returns an encoding with `c1`, `e1`, `i1`, `u0xfc`, `USER`, `SUP` applied; `None` for any other change.
fn changed(encoding: &str, changes: &str) -> Option<String> {
    let (terms, _) = encoding.strip_prefix("cpu/")?.rsplit_once('/')?;
    let mut terms: Vec<String> = terms.split(',').map(str::to_owned).collect();
    let mut modifiers = "";
    for change in changes.split(':').filter(|c| !c.is_empty()) {
        let mut set_term = |field: &str, value: u64| {
            terms.retain(|t| !t.starts_with(&format!("{field}=")));
            terms.push(format!("{field}={value:#x}"));
        };
        match change {
            "USER" => modifiers = "u",
            "SUP" => modifiers = "k",
            _ => {
                let field = match change.get(..1)? {
                    "c" => "cmask",
                    "e" => "edge",
                    "i" => "inv",
                    "u" => "umask",
                    _ => return None,
                };
                set_term(field, number(change.get(1..)?)?);
            }
        }
    }
    Some(format!("cpu/{}/{modifiers}", terms.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapfile() {
        let map = "Family-model,Version,Filename,EventType\n\
                   GenuineIntel-6-3F,V1,/HSX/events/haswellx_core.json,core\n\
                   GenuineIntel-6-3F,V1,/HSX/events/haswellx_uncore.json,uncore\nshort\n\n";
        assert_eq!(
            read_mapfile(map),
            [("GenuineIntel-6-3F".to_owned(), "haswellx".to_owned())]
        );
    }

    #[test]
    fn changes_of_an_encoding() {
        assert_eq!(
            changed("cpu/event=0x48,umask=0x02,cmask=1/", "c2:e1").as_deref(),
            Some("cpu/event=0x48,umask=0x02,cmask=0x2,edge=0x1/")
        );
        assert_eq!(
            changed("cpu/event=0xc4/", "USER").as_deref(),
            Some("cpu/event=0xc4/u")
        );
        assert_eq!(changed("cpu/event=0xc4/", "percore"), None);
        assert_eq!(changed("cpu/event=0xc4/", "é"), None);
    }
}
