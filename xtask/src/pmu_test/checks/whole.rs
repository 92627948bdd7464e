//! The whole machine, several threads, breakpoints and faults; and perf's view of the guest's files.

use std::process::{Command, Stdio};

use anyhow::Result;
use serde_json::Value;

use super::sampling::predicted;
use super::{Guest, ROUNDS, Results, Step, by_name, column};
use crate::pmu_test::table::Table;

const PERIOD: u64 = 20_011;
/// Short against the 10,000 cycles that `faulting` takes at a time.
const OFTEN: u64 = 2_003;

pub fn steps(guest: &Guest) -> Result<Vec<Step>> {
    let leaf = guest.rates.listing.address("leaf")?;
    Ok(vec![
        Step {
            name: "whole-machine",
            lines: format!(
                "run record dioptra record -q -a -e cycles:u -c {PERIOD} -o a.data -- sh -c 'steps & steps; wait'\n\
                 run report dioptra report -i a.data --by module --format json\n\
                 run all dioptra record -q -a -e cycles -c {PERIOD} -o b.data -- sh -c 'steps & steps; wait'\n\
                 run modules dioptra report -i b.data --by comm,module --format json\n\
                 run dump dioptra dump -i b.data --format json --type SAMPLE\n"
            ),
            check: whole_machine,
        },
        Step {
            name: "threads",
            lines: format!(
                "run record dioptra record -q -e cycles:u -c {OFTEN} -o a.data pair\n\
                 run report dioptra report -i a.data --by comm,function --format json\n"
            ),
            check: threads,
        },
        Step {
            name: "each-event",
            lines: format!(
                "run counts counts rates\n\
                 run record dioptra record -q -e mem:{leaf:#x}/4:x:u,page-faults:u -c 100 -o a.data rates\n\
                 run report dioptra report -i a.data --format json\n"
            ),
            check: each_event,
        },
    ])
}

fn whole_machine(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("whole-machine");
    let (total, _) = predicted(guest, PERIOD)?;
    results.output("record")?;
    let report = results.json("report")?;
    let user = by_name::<u64>(&report, "module", column(&report, "weight", None)?)?;
    // Whose sample comes next after a switch is left open.
    let switches = 4.0 * PERIOD as f64 / (2 * total) as f64;
    table.near(
        "cycles of two programs",
        2.0 * total as f64,
        switches,
        user.get("steps").copied().unwrap_or(0) as f64,
    );

    results.output("all")?;
    let report = results.json("modules")?;
    let (module, weight) = (
        column(&report, "module", None)?,
        column(&report, "weight", None)?,
    );
    let sum = |of: &dyn Fn(&Value) -> bool| -> u64 {
        let rows = report["rows"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|row| of(row));
        rows.filter_map(|row| row["cells"][weight].as_u64()).sum()
    };
    let all = sum(&|row| row["parent"].is_null());
    table.equal(
        "all programs' cycles are the samples'",
        results.lines("dump")?.len() as u64 * PERIOD,
        all,
    );
    let kernel = sum(&|row| row["cells"][module] == "[kernel.kallsyms]");
    let rest = sum(&|row| !row["parent"].is_null() && row["cells"][module] != "[kernel.kallsyms]");
    table.equal("kernel and user space make the whole", all, kernel + rest);
    table.between(
        "cycles of the kernel",
        PERIOD as f64,
        all as f64,
        kernel as f64,
    );
    Ok(())
}

fn threads(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("threads");
    results.output("record")?;
    let report = results.json("report")?;
    let (name, weight) = (
        column(&report, "function", None)?,
        column(&report, "weight", None)?,
    );
    let of = |function: &str| -> f64 {
        let rows = report["rows"].as_array().into_iter().flatten();
        rows.filter(|row| row["cells"][name] == function)
            .filter_map(|row| row["cells"][weight].as_u64())
            .sum::<u64>() as f64
    };
    let mut in_round = std::collections::BTreeMap::<&str, u64>::new();
    guest.round.listing.step(|place| {
        *in_round
            .entry(guest.round.listing.function(place))
            .or_default() += 1;
    })?;
    let expected = |function: &str| (ROUNDS * in_round.get(function).copied().unwrap_or(0)) as f64;
    for function in ["quiet", "faulting", "calling"] {
        let cycles = expected(function);
        table.near(&format!("cycles of {function}"), cycles, 0.02, of(function));
    }
    let comms = by_name::<u64>(&report, "comm", weight)?;
    table.near(
        "cycles of the thread `still`",
        expected("quiet"),
        0.02,
        comms.get("still").copied().unwrap_or(0) as f64,
    );
    Ok(())
}

fn each_event(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("each-event");
    let leaf = guest.rates.listing.address("leaf")?;
    let mut calls = 0_u64;
    let store = guest.rates.listing.address("faulting")? + 6 * 4;
    let mut stores = 0_u64;
    guest.rates.listing.step(|place| {
        calls += u64::from(place == leaf);
        stores += u64::from(place == store);
    })?;
    results.output("record")?;
    let report = results.json("report")?;
    let samples = |event: &str| -> Result<u64> {
        let counts = by_name::<u64>(
            &report,
            "function",
            column(&report, "samples", Some(event))?,
        )?;
        Ok(counts.values().sum())
    };
    let faults = results
        .counts("counts")?
        .get("page-faults")
        .copied()
        .unwrap_or(0);
    table.between(
        "the kernel counts faults as stepped, and those of the start",
        stores as f64,
        stores as f64 + 8.0,
        faults as f64,
    );
    table.equal(
        "samples of calls, one for 100",
        calls / 100,
        samples(&format!("mem:{leaf:#x}/4:x:u"))?,
    );
    table.near(
        "samples of faults, one for 100",
        (stores / 100) as f64,
        1.0 / (stores / 100) as f64,
        samples("page-faults:u")? as f64,
    );
    perf_reads(results, samples("page-faults:u")? + calls / 100, table)
}

/// perf of this machine on the guest's file: as many samples.
fn perf_reads(results: &Results, samples: u64, table: &mut Table) -> Result<()> {
    let Ok(perf) = dioptra_testprograms::need_tool("perf") else {
        table.skipped("perf script", "perf is not installed here");
        return Ok(());
    };
    let output = Command::new(perf)
        .args(["script", "-F", "event,ip", "-i"])
        .arg(results.path("a.data"))
        .stdin(Stdio::null())
        .output()?;
    let lines = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| !line.trim().is_empty())
        .count();
    table.equal(
        "perf script of this machine: samples",
        samples,
        lines as u64,
    );
    Ok(())
}
