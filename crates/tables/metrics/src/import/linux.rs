//! Metrics in the grammar of Linux's metric files: a list of entries with `MetricName` and `MetricExpr`.

use serde_json::Value;

use super::{formula_error, push_with_parents, text};
use crate::error::MetricError;
use crate::expr::{BinaryOp, Expr, parse};
use crate::set::{Column, ColumnKind, MetricSet};
use crate::unit::Unit;

pub(super) fn add_metrics(
    file: &str,
    set: &mut MetricSet,
    entries: &[Value],
) -> Result<(), MetricError> {
    let mut columns = Vec::new();
    for entry in entries {
        let (name, expr) = (text(entry, "MetricName"), text(entry, "MetricExpr"));
        if name.is_empty() || expr.is_empty() {
            continue;
        }
        let formula = parse(expr).map_err(formula_error(file, name))?;
        let (factor, unit) = scale_unit(text(entry, "ScaleUnit"));
        let formula = if factor == 1.0 {
            formula
        } else {
            Expr::Binary(
                BinaryOp::Mul,
                Box::new(formula),
                Box::new(Expr::Number(factor)),
            )
        };
        columns.push((
            Column {
                name: name.to_owned(),
                title: name.to_owned(),
                unit,
                kind: ColumnKind::Formula,
                formula,
                parent: None,
                children: Vec::new(),
                event: None,
                penalty: None,
                group: text(entry, "MetricGroup").to_owned(),
                description: text(entry, "BriefDescription").to_owned(),
            },
            String::new(),
        ));
    }
    push_with_parents(set, columns);
    Ok(())
}

/// `100%` is a factor and a unit.
fn scale_unit(text: &str) -> (f64, Unit) {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
        .unwrap_or(text.len());
    // `1e-9s` has an exponent.
    let exponent = text[end..]
        .strip_prefix(['e', 'E'])
        .map(|rest| {
            let signs = rest.len() - rest.trim_start_matches(['-', '+']).len();
            let digits = rest[signs..].bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 { 0 } else { 1 + signs + digits }
        })
        .unwrap_or(0);
    let (number, unit) = text.split_at(end + exponent);
    let factor = number
        .parse()
        .ok()
        .filter(|f: &f64| f.is_finite() && *f >= 0.0);
    (
        factor.unwrap_or(1.0),
        Unit::from_name(&unit.replace("per_instr", "per instruction")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_and_units() {
        assert_eq!(scale_unit("100%"), (100.0, Unit::Percent(String::new())));
        assert_eq!(scale_unit("1GHz"), (1.0, Unit::Other("GHz".to_owned())));
        assert_eq!(scale_unit("1e-9s"), (1e-9, Unit::Other("s".to_owned())));
        assert_eq!(
            scale_unit("1per_instr"),
            (1.0, Unit::Other("per instruction".to_owned()))
        );
        assert_eq!(scale_unit(""), (1.0, Unit::Ratio));
        assert_eq!(
            scale_unit("6.4e-05MiB"),
            (6.4e-05, Unit::Other("MiB".to_owned()))
        );
        assert_eq!(scale_unit("events"), (1.0, Unit::Events));
    }
}
