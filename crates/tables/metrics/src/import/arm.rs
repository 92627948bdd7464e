//! Arm's telemetry-solution: events, metrics and their groups of one core in one file.

use std::path::Path;

use serde_json::{Map, Value};

use super::{PmuCpu, formula_error, text};
use crate::error::MetricError;
use crate::expr::parse;
use crate::set::{Column, ColumnKind, MetricSet, NeededEvent};
use crate::unit::Unit;

/// Which core the file is for.
pub(super) fn cpu(path: &Path, json: &Value) -> Result<PmuCpu, MetricError> {
    let product = &json["product_configuration"];
    let (implementer, part) = (text(product, "implementer"), text(product, "part_num"));
    if implementer.is_empty() || part.is_empty() {
        return Err(MetricError::Syntax {
            file: path.display().to_string(),
            reason: "product_configuration without implementer and part_num".to_owned(),
        });
    }
    let name = match text(product, "product_name") {
        "" => part,
        name => name,
    };
    Ok(PmuCpu {
        name: name.to_owned(),
        patterns: vec![format!("arm64-{implementer}-{part}")],
        files: vec![path.to_owned()],
    })
}

pub(super) fn add(file: &str, set: &mut MetricSet, json: &Value) -> Result<(), MetricError> {
    if let Ok(cpu) = cpu(Path::new(file), json) {
        set.cpus = cpu.patterns;
    }
    for (name, event) in object(json, "events") {
        let code = text(event, "code");
        let code = code
            .strip_prefix("0x")
            .and_then(|h| u64::from_str_radix(h, 16).ok());
        set.push_event(NeededEvent {
            name: name.clone(),
            encoding: code.map(|c| format!("r{c:x}")),
            // The cycle counter counts nothing else.
            fixed: name == "CPU_CYCLES",
            description: text(event, "title").to_owned(),
            ..NeededEvent::default()
        });
    }
    let groups = json
        .get("groups")
        .map(|g| object(g, "metrics").collect::<Vec<_>>());
    let group_of = |metric: &str| {
        let found = groups.iter().flatten().find(|(_, group)| {
            let metrics = group.get("metrics").and_then(Value::as_array);
            metrics
                .into_iter()
                .flatten()
                .any(|m| m.as_str() == Some(metric))
        });
        found.map_or(String::new(), |(name, group)| match text(group, "title") {
            "" => (*name).clone(),
            title => title.to_owned(),
        })
    };
    for (name, metric) in object(json, "metrics") {
        let formula = parse(text(metric, "formula")).map_err(formula_error(file, name))?;
        set.push_column(Column {
            name: name.clone(),
            title: text(metric, "title").to_owned(),
            unit: Unit::from_name(text(metric, "units")),
            kind: ColumnKind::Formula,
            formula,
            parent: None,
            children: Vec::new(),
            event: None,
            penalty: None,
            group: group_of(name),
            description: text(metric, "description").to_owned(),
        });
    }
    Ok(())
}

fn object<'v>(json: &'v Value, field: &str) -> impl Iterator<Item = (&'v String, &'v Value)> {
    json.get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}
