//! Expected values beside measured ones.

use std::fmt::Display;

/// The checks in the order in which they were made.
#[derive(Default)]
pub struct Table {
    rows: Vec<Row>,
    step: String,
}

struct Row {
    check: String,
    expected: String,
    got: String,
    passed: bool,
}

impl Table {
    /// Names the step that the following checks belong to.
    pub fn step(&mut self, name: &str) {
        self.step = name.to_string();
    }

    /// The two must be the same.
    pub fn equal<T: PartialEq + Display>(&mut self, check: &str, expected: T, got: T) {
        let passed = expected == got;
        self.push(check, expected.to_string(), got.to_string(), passed);
    }

    /// The number must lie within `share` of the expected one.
    pub fn near(&mut self, check: &str, expected: f64, share: f64, got: f64) {
        self.push(
            check,
            format!("{} ± {} %", short(expected), short(share * 100.0)),
            short(got),
            (got - expected).abs() <= expected.abs() * share,
        );
    }

    /// The number must lie between two.
    pub fn between(&mut self, check: &str, low: f64, high: f64, got: f64) {
        self.push(
            check,
            format!("{} to {}", short(low), short(high)),
            short(got),
            low <= got && got <= high,
        );
    }

    /// The number must be at least that.
    pub fn at_least(&mut self, check: &str, low: f64, got: f64) {
        self.push(
            check,
            format!("at least {}", short(low)),
            short(got),
            low <= got,
        );
    }

    /// The text must have all these parts.
    pub fn tells(&mut self, check: &str, parts: &[&str], text: &str) {
        let passed = parts.iter().all(|part| text.contains(part));
        self.push(check, parts.join(" … "), text.trim().to_string(), passed);
    }

    /// Adds a check that could not be made, with the reason.
    pub fn failure(&mut self, check: &str, why: &str) {
        self.push(check, String::new(), why.to_string(), false);
    }

    /// Something that was left out, which is no failure.
    pub fn skipped(&mut self, check: &str, why: &str) {
        self.push(check, "(skipped)".to_string(), why.to_string(), true);
    }

    fn push(&mut self, check: &str, expected: String, got: String, passed: bool) {
        self.rows.push(Row {
            check: format!("{}: {check}", self.step),
            expected,
            got,
            passed,
        });
    }

    /// Whether there were checks, and all passed.
    pub fn passed(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.passed)
    }

    /// A line for the end.
    pub fn summary(&self) -> String {
        let failed = self.rows.iter().filter(|row| !row.passed).count();
        if failed == 0 {
            format!("all {} checks passed", self.rows.len())
        } else {
            format!("{failed} of {} checks FAILED", self.rows.len())
        }
    }

    /// Prints the table to standard output; long texts of checks that passed are cut.
    pub fn print(&self) {
        let width = |text: fn(&Row) -> &str, most: usize| {
            let widest = self
                .rows
                .iter()
                .map(|row| text(row).chars().count().min(most))
                .max();
            widest.unwrap_or(0)
        };
        let check = width(|row| &row.check, 70);
        let expected = width(|row| &row.expected, 50);
        println!("\n     {:check$}  {:expected$}  got", "check", "expected");
        for row in &self.rows {
            let mark = if row.passed { "ok" } else { "FAIL" };
            let got = if row.passed {
                cut(&row.got)
            } else {
                row.got.clone()
            };
            println!(
                "{mark:4} {:check$}  {:expected$}  {got}",
                row.check, row.expected
            );
        }
        println!();
    }
}

fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= 60 {
        return line.to_string();
    }
    line.chars().take(59).chain(['…']).collect()
}

/// A number as people write it: whole ones whole, others with four digits.
fn short(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number}");
    }
    let digits = 3 - number.abs().log10().floor().clamp(-6.0, 3.0) as i32;
    format!("{number:.*}", digits.max(0) as usize)
}
