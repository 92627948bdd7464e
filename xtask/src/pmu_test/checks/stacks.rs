//! Call chains: by the kernel along frame pointers, and by unwinding copied stacks.

use anyhow::Result;
use serde_json::Value;

use super::sampling::predicted;
use super::{Guest, Results, Step, address, column};
use crate::pmu_test::table::Table;

const PERIOD: u64 = 7919;

pub fn steps() -> Vec<Step> {
    vec![
        Step {
            name: "frame-pointers",
            lines: format!(
                "run record dioptra record -q -g -e cycles:u -c {PERIOD} -o a.data steps\n\
                 run dump dioptra dump -i a.data --format json --type SAMPLE\n\
                 run report dioptra report -i a.data --tree callers --format json\n"
            ),
            check: frame_pointers,
        },
        Step {
            name: "unwinding",
            lines: "run record dioptra record -q --call-graph dwarf -e cycles:u -c 100003 -o a.data frames\n\
                    run report dioptra report -i a.data --tree callers --no-inline --format json\n"
                .to_string(),
            check: unwinding,
        },
    ]
}

fn frame_pointers(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("frame-pointers");
    let (_, places) = predicted(guest, PERIOD)?;
    results.output("record")?;
    let samples = results.lines("dump")?;
    table.equal("samples", places.len(), samples.len());
    let listing = &guest.steps.listing;
    let (mut deep, mut whole) = (0, 0);
    for sample in &samples {
        let ip = address(&sample["ip"])?;
        let function = listing.function(ip);
        // In the first two instructions there is no frame yet.
        if !["heavy", "medium", "light"].contains(&function) || ip < listing.address(function)? + 8
        {
            continue;
        }
        deep += 1;
        let callers: Vec<_> = sample["callchain"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|entry| address(entry).ok())
            .map(|place| listing.function(place))
            .collect();
        whole += usize::from(callers == [function, "round", "rounds", "_start"]);
    }
    table.equal("chains from the loops to _start", deep, whole);
    let report = results.json("report")?;
    table.equal(
        "report: callers of heavy",
        "heavy < round < rounds < _start".to_string(),
        first_path(&report)?,
    );
    Ok(())
}

/// The first row of a tree with the rows below it, each its parent's first child.
fn first_path(report: &Value) -> Result<String> {
    let function = column(report, "function", None)?;
    let mut path: Vec<&str> = Vec::new();
    let mut parent = Value::Null;
    for row in report["rows"].as_array().into_iter().flatten() {
        if row["parent"] == parent {
            path.push(row["cells"][function].as_str().unwrap_or_default());
            parent = row["id"].clone();
        }
    }
    Ok(path.join(" < "))
}

fn unwinding(_: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("unwinding");
    results.output("record")?;
    let report = results.json("report")?;
    let path = first_path(&report)?;
    table.tells(
        "report: callers of leaf",
        &["leaf < middle < outer < main"],
        &path,
    );
    let total = report["rows"][0]["cells"][column(&report, "total_percent", None)?].as_f64();
    table.between("report: share of leaf", 99.0, 100.0, total.unwrap_or(0.0));
    // The row of main below leaf: as much as leaf has, unless stacks broke off.
    let function = column(&report, "function", None)?;
    let share = column(&report, "total_percent", None)?;
    let main = report["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|row| row["cells"][function] == "main");
    table.equal(
        "report: share of leaf called from main",
        total.unwrap_or(0.0),
        main.and_then(|row| row["cells"][share].as_f64())
            .unwrap_or(0.0),
    );
    Ok(())
}
