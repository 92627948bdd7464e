//! Sampling the cycle counter: numbers of samples, their addresses, and what report and annotate make of them.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::{Guest, Results, Step, address, by_name, column, facts};
use crate::pmu_test::table::Table;

/// Prime, so that the samples come to stand everywhere in the loops.
const PERIOD: u64 = 7919;
/// So short that every second instruction of a page of code takes part; 20,000 samples.
const SHORT: u64 = 300;

pub fn steps() -> Vec<Step> {
    let report = "run report dioptra report -i a.data --format json\n\
                  run dump dioptra dump -i a.data --format json --type SAMPLE\n";
    vec![
        Step {
            name: "cycles",
            lines: format!(
                "run counts counts steps\n\
                 run record dioptra record -q -e cycles:u -c {PERIOD} -o a.data steps\n{report}\
                 run annotate dioptra annotate -i a.data heavy --asm --format json\n"
            ),
            check: cycles,
        },
        Step {
            name: "default",
            lines: format!("run record dioptra record -o a.data steps\n{report}"),
            check: by_default,
        },
        Step {
            name: "throttled",
            lines: format!(
                "max_rate 100000 25\nrun record dioptra record -e cycles:u -c {SHORT} -o a.data steps\n{report}"
            ),
            check: throttled,
        },
        Step {
            name: "short",
            lines: format!(
                "run record dioptra record -e cycles:u -c {SHORT} -o a.data steps\n{report}"
            ),
            check: short,
        },
    ]
}

/// Where `steps` stands after each `period` instructions.
pub fn predicted(guest: &Guest, period: u64) -> Result<(u64, Vec<u64>)> {
    let mut executed = 0_u64;
    let mut places = Vec::new();
    let total = guest.steps.listing.step(|place| {
        if executed > 0 && executed.is_multiple_of(period) {
            places.push(place);
        }
        executed += 1;
    })?;
    Ok((total, places))
}

fn addresses(results: &Results) -> Result<Vec<u64>> {
    results
        .lines("dump")?
        .iter()
        .map(|sample| address(&sample["ip"]))
        .collect()
}

/// Compares samples with places one by one.
fn compare(table: &mut Table, period: u64, places: &[u64], samples: &[u64]) {
    table.equal(
        &format!("samples, one every {period}"),
        places.len(),
        samples.len(),
    );
    let same = places
        .iter()
        .zip(samples)
        .filter(|(place, sample)| place == sample)
        .count();
    table.equal("samples at the very instruction", places.len(), same);
}

/// Counts of samples by function, as predicted.
fn by_function(guest: &Guest, places: &[u64]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for place in places {
        *sums
            .entry(guest.steps.listing.function(*place).to_string())
            .or_default() += 1;
    }
    sums
}

fn cycles(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("cycles");
    let (total, places) = predicted(guest, PERIOD)?;
    let counts = results.counts("counts")?;
    let counted = |event: &str| counts.get(event).copied().unwrap_or(0);
    table.equal(
        "the kernel counts cycles as stepped",
        total,
        counted("cycles"),
    );
    table.equal(
        "the kernel counts instructions as stepped",
        total,
        counted("instructions"),
    );

    results.output("record")?;
    compare(table, PERIOD, &places, &addresses(results)?);
    let report = results.json("report")?;
    let samples = by_name::<u64>(&report, "function", column(&report, "samples", None)?)?;
    table.equal(
        "report: samples by function",
        show(&by_function(guest, &places)),
        show(&samples),
    );
    let weights = by_name::<u64>(&report, "function", column(&report, "weight", None)?)?;
    table.equal(
        "report: cycles",
        places.len() as u64 * PERIOD,
        weights.values().sum(),
    );
    table.equal(
        "report: losses",
        String::new(),
        facts(&report, "loss").join("; "),
    );

    let annotated = results.json("annotate")?;
    let mut wrong = Vec::new();
    let instructions = annotated["instructions"]
        .as_array()
        .context("annotate shows no instructions")?;
    for instruction in instructions {
        let place = instruction["virtual_address"].as_u64().unwrap_or(0);
        let expected = places.iter().filter(|sampled| **sampled == place).count() as u64;
        if instruction["counts"][0]["samples"].as_u64() != Some(expected) {
            wrong.push(format!("{place:#x}"));
        }
    }
    table.equal("annotate: instructions of heavy", 13, instructions.len());
    table.equal(
        "annotate: instructions with other counts",
        String::new(),
        wrong.join(" "),
    );
    Ok(())
}

fn show(counts: &BTreeMap<String, u64>) -> String {
    let parts: Vec<_> = counts
        .iter()
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    parts.join(", ")
}

fn by_default(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("default");
    let (total, _) = predicted(guest, PERIOD)?;
    results.output("record")?;
    let report = results.json("report")?;
    let event = report["facts"]["event"]["value"]["name"]
        .as_str()
        .unwrap_or_default();
    table.equal(
        "cycles need no fallback",
        "cycles",
        event.split(':').next().unwrap_or_default(),
    );
    let weights = by_name::<u64>(&report, "module", column(&report, "weight", None)?)?;
    // The frequency is still being found, and the kernel's share counts too.
    table.near(
        "cycles of the program",
        total as f64,
        0.2,
        weights.get("steps").copied().unwrap_or(0) as f64,
    );
    Ok(())
}

fn throttled(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("throttled");
    let (total, _) = predicted(guest, PERIOD)?;
    results.output("record")?;
    table.tells(
        "record says so",
        &["the kernel held back samples"],
        &results.text("record.err")?,
    );
    let report = results.json("report")?;
    table.tells(
        "report says so",
        &["throttled"],
        &facts(&report, "loss").join("; "),
    );
    let taken = results.lines("dump")?.len() as f64;
    table.between(
        "samples, fewer than without",
        1.0,
        (total / SHORT) as f64 - 1.0,
        taken,
    );
    Ok(())
}

fn short(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("short");
    let (_, places) = predicted(guest, SHORT)?;
    results.output("record")?;
    compare(table, SHORT, &places, &addresses(results)?);
    let report = results.json("report")?;
    table.equal(
        "report: losses",
        String::new(),
        facts(&report, "loss").join("; "),
    );
    Ok(())
}
