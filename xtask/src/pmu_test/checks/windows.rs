//! Bursts of windows: their number and lengths, the rates that they find, and how large their files are.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::groups::values;
use super::{Guest, Results, Step, address, column};
use crate::pmu_test::programs::Program;
use crate::pmu_test::table::Table;

/// Cycles of a window.
const SHORT: u64 = 300;
/// Windows of a burst.
const BATCH: usize = 4;
/// The largest relative error of rates: several times the variation of a few hundred bursts.
const NEAR: f64 = 0.03;

pub fn steps(guest: &Guest) -> Result<Vec<Step>> {
    let leaf = guest.windows.listing.address("leaf")?;
    // The ranking is left to a clock: the emulated PMU tells overflows on time only on the counter that leads windows.
    let record = |name: &str, options: &str, groups: &str, command: &str| {
        format!(
            "run {name} dioptra record {options} -F 3989 -e 'cpu-clock:u,{groups}' -o {name}.data {command}\n\
             run {name}-info dioptra info -i {name}.data --format json\n\
             run {name}-dump dioptra dump -i {name}.data --format json --type SAMPLE\n\
             run {name}-metrics dioptra metrics -i {name}.data --set /rates.toml --format json\n"
        )
    };
    let faults = "{cycles:u,instructions:u,page-faults:u}";
    let calls = format!("{{cycles:u,mem:{leaf:#x}/4:x:u}}");
    // Half of the time and more is the kernel's here, in which no burst begins.
    let random = format!("--windows=short={SHORT},long=250us");
    Ok(vec![
        Step {
            name: "windows-fixed",
            lines: record("a", &format!("{random},jitter=0"), faults, "windows"),
            check: fixed,
        },
        Step {
            name: "windows-random",
            lines: record("a", &random, faults, "windows")
                + "run report dioptra report -i a.data --format json\n",
            check: drawn,
        },
        Step {
            name: "windows-seldom",
            // More bursts: each meets a fault or none.
            lines: record(
                "a",
                &format!("--windows=short={SHORT},long=100us"),
                faults,
                "seldom",
            ),
            check: seldom,
        },
        Step {
            name: "windows-rotating",
            lines: record("a", &random, &format!("{faults},{calls}"), "windows"),
            check: rotating,
        },
        Step {
            name: "windows-threads",
            lines: record("a", &random, faults, "pair")
                + "run by-thread dioptra metrics -i a.data --set /rates.toml --by thread --format json\n",
            check: threads,
        },
        Step {
            name: "windows-cpus",
            lines: record("a", &format!("-a {random}"), faults, "windows"),
            check: cpus,
        },
        Step {
            name: "windows-size",
            lines: format!(
                "run windows dioptra record -q --windows=short={SHORT} -F 3989 -e 'cpu-clock:u,{faults}' -o a.data medium\n\
                 run steady dioptra record -q -e '{faults}:S' -c {SHORT} -o b.data medium\n\
                 run sizes wc -c a.data b.data\nrm b.data\n"
            ),
            check: size,
        },
    ])
}

/// The windows of a recording, from its samples alone.
struct Windows {
    bursts: Vec<Burst>,
}

/// The samples of one burst: a start marker, and one for each window's end.
struct Burst {
    tid: u64,
    samples: Vec<(u64, Vec<u64>)>,
}

impl Burst {
    /// Each window's beginning and end, and what was counted between.
    fn windows(&self) -> impl Iterator<Item = (u64, u64, Vec<u64>)> {
        self.samples.windows(2).map(|pair| {
            let ((start, before), (end, after)) = (&pair[0], &pair[1]);
            let counts = after
                .iter()
                .zip(before)
                .map(|(after, before)| after - before)
                .collect();
            (*start, *end, counts)
        })
    }
}

impl Windows {
    /// Reads the bursts whose groups have `counters` counters. A leader's samples belong to one burst after the other.
    fn read(results: &Results, name: &str, counters: usize) -> Result<Windows> {
        let mut leaders: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for sample in results.lines(&format!("{name}-dump"))? {
            if values(&sample).len() == counters {
                let leader = sample["counters"][0]["id"]
                    .as_u64()
                    .context("a counter has no id")?;
                leaders.entry(leader).or_default().push(sample);
            }
        }
        let mut bursts = Vec::new();
        for samples in leaders.into_values() {
            for samples in samples.chunks(BATCH + 1) {
                bursts.push(Burst {
                    tid: samples[0]["tid"].as_u64().unwrap_or(0),
                    samples: samples
                        .iter()
                        .map(|sample| Ok((address(&sample["ip"])?, values(sample))))
                        .collect::<Result<_>>()?,
                });
            }
        }
        ensure!(!bursts.is_empty(), "no samples with {counters} counters");
        Ok(Windows { bursts })
    }

    /// Events of the counter `index` for 1000 of the leader's, over the windows that begin and end in the function.
    fn rate(&self, program: &Program, function: &str, index: usize) -> f64 {
        let (mut events, mut cycles) = (0, 0);
        for (start, end, counts) in self.bursts.iter().flat_map(Burst::windows) {
            if program.listing.function(start) == function
                && program.listing.function(end) == function
            {
                events += counts[index];
                cycles += counts[0];
            }
        }
        1000.0 * events as f64 / cycles as f64
    }

    /// Complete ones.
    fn complete(&self) -> usize {
        self.bursts
            .iter()
            .filter(|burst| burst.samples.len() == BATCH + 1)
            .count()
    }

    fn lengths(&self) -> BTreeSet<u64> {
        self.bursts
            .iter()
            .flat_map(Burst::windows)
            .map(|(_, _, counts)| counts[0])
            .collect()
    }
}

/// Faults and calls for 1000 cycles, from the instructions between them.
fn truth(guest: &Guest) -> Result<(f64, f64)> {
    let listing = &guest.round.listing;
    let leaf = listing.address("leaf")?;
    // The store of the inner loop is the seventh instruction.
    let store = listing.address("faulting")? + 6 * 4;
    let (mut stores, mut calls, mut faulting, mut calling) = (0_u64, 0_u64, 0_u64, 0_u64);
    listing.step(|place| {
        stores += u64::from(place == store);
        calls += u64::from(place == leaf);
        match listing.function(place) {
            "faulting" => faulting += 1,
            // The caller runs all the time but for the two instructions of leaf.
            "calling" | "leaf" => calling += 1,
            _ => {}
        }
    })?;
    Ok((
        1000.0 * stores as f64 / faulting as f64,
        1000.0 * calls as f64 / calling as f64,
    ))
}

/// Checks the properties of all windows of one group that armed bursts made.
fn armed(results: &Results, windows: &Windows, groups: usize, table: &mut Table) -> Result<Value> {
    results.output("a")?;
    let info = results.json("a-info")?["windows"].clone();
    table.equal(
        "source",
        "refresh",
        info["source"].as_str().unwrap_or("none"),
    );
    if groups == 1 {
        let bursts = info["bursts"].as_u64().unwrap_or(0);
        table.between("bursts of the section", 100.0, 10_000.0, bursts as f64);
        // Threads may end within a burst.
        table.between(
            "complete bursts",
            bursts as f64 - 2.0,
            bursts as f64,
            windows.complete() as f64,
        );
    }
    let mut odd = 0;
    for burst in &windows.bursts {
        let mut lengths = burst.windows().map(|(_, _, counts)| counts[0]);
        let first = lengths.next();
        odd += usize::from(lengths.any(|length| Some(length) != first));
    }
    table.equal("bursts with windows of several lengths", 0, odd);
    Ok(info)
}

fn fixed(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("windows-fixed");
    let windows = Windows::read(results, "a", 3)?;
    armed(results, &windows, 1, table)?;
    table.tells(
        "record's summary",
        &["windows by refresh", "bursts armed", "complete"],
        &results.text("a.err")?,
    );
    table.equal(
        "lengths of windows in cycles",
        format!("{:?}", [SHORT]),
        format!("{:?}", windows.lengths().into_iter().collect::<Vec<_>>()),
    );
    let instructions = windows
        .bursts
        .iter()
        .flat_map(Burst::windows)
        .filter(|(_, _, counts)| counts[1] != SHORT);
    table.equal(
        "windows with other numbers of instructions",
        0,
        instructions.count(),
    );
    let (faults, _) = truth(guest)?;
    // Bursts that began where the kernel returns to the program would be in step with its faults: two of them in each
    // window, if all windows are as long.
    table.near(
        "faults in faulting, out of step with the bursts",
        faults,
        NEAR,
        windows.rate(&guest.windows, "faulting", 2),
    );
    table.equal(
        "faults in quiet",
        0.0,
        windows.rate(&guest.windows, "quiet", 2),
    );
    Ok(())
}

fn drawn(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("windows-random");
    let windows = Windows::read(results, "a", 3)?;
    armed(results, &windows, 1, table)?;
    let lengths = windows.lengths();
    table.between(
        "different lengths of windows",
        50.0,
        201.0,
        lengths.len() as f64,
    );
    table.between(
        "shortest window",
        200.0,
        220.0,
        lengths.first().copied().unwrap_or(0) as f64,
    );
    table.between(
        "longest window",
        380.0,
        400.0,
        lengths.last().copied().unwrap_or(0) as f64,
    );
    let (faults, _) = truth(guest)?;
    table.near(
        "faults for 1000 cycles in faulting",
        faults,
        NEAR,
        windows.rate(&guest.windows, "faulting", 2),
    );

    let metrics = results.json("a-metrics")?;
    let figure = |function: &str, id: &str| cell(&metrics, "function", function, id);
    let (low, high) = (
        figure("faulting", "faults_low")?,
        figure("faulting", "faults_high")?,
    );
    table.near(
        "metrics: faults in faulting",
        faults,
        NEAR,
        figure("faulting", "faults_raw")?,
    );
    // Once in a hundred thousand runs the truth is outside of an interval twice as wide.
    table.between(
        "metrics: the truth against twice the interval",
        low - (high - low) / 2.0,
        high + (high - low) / 2.0,
        faults,
    );
    table.between(
        "metrics: width of the interval",
        faults * 0.001,
        faults * 0.1,
        high - low,
    );
    for function in ["quiet", "calling"] {
        table.equal(
            &format!("metrics: faults in {function}"),
            0.0,
            figure(function, "faults_raw")?,
        );
        table.equal(
            &format!("metrics: instructions in a cycle in {function}"),
            1.0,
            figure(function, "rate_raw")?,
        );
    }
    let report = results.json("report")?;
    let told = super::facts(&report, "info").join("; ");
    table.tells(
        "report leaves the windows' samples out",
        &["read over windows"],
        &told,
    );
    Ok(())
}

/// Shares and rates must make what plain counters counted in the same run. Faults are further apart here than bursts are
/// long, and two thirds of the time are the kernel's, which serves them: bursts that began where it returns would meet few.
fn seldom(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("windows-seldom");
    results.output("a")?;
    let metrics = results.json("a-metrics")?;
    let listing = &guest.seldom_round.listing;
    let (mut stores, mut faulting) = (0_u64, 0_u64);
    let store = listing.address("faulting")? + 6 * 4;
    listing.step(|place| {
        stores += u64::from(place == store);
        faulting += u64::from(listing.function(place) == "faulting");
    })?;
    let truth = 1000.0 * stores as f64 / faulting as f64;
    let raw = cell(&metrics, "function", "faulting", "faults_raw")?;
    table.near(
        "faults for 1000 cycles in faulting, as counted",
        truth,
        0.1,
        raw,
    );
    let shown = cell(&metrics, "function", "faulting", "faults")?;
    table.near(
        "faults for 1000 cycles in faulting, as shown",
        truth,
        0.1,
        shown,
    );
    for function in ["quiet", "calling"] {
        table.equal(
            &format!("faults in {function}, as shown"),
            0.0,
            cell(&metrics, "function", function, "faults")?,
        );
    }
    let facts = metrics["facts"]
        .as_object()
        .context("metrics has no facts")?;
    let closures = facts.iter().filter(|(id, _)| id.starts_with("closure"));
    let closures: Vec<_> = closures.map(|(_, fact)| &fact["value"]).collect();
    table.equal("events with a closure", 2, closures.len());
    for closure in closures {
        let event = closure["event"].as_str().unwrap_or_default();
        let number = |name: &str| closure[name].as_f64().context("a closure has no number");
        let (low, high) = (number("error_low")?, number("error_high")?);
        // A value without any variation may differ in its last digits.
        let doubled = ((high - low) / 2.0).max(1e-9);
        table.between(&format!("{event}: error"), -0.25, 0.25, number("error")?);
        table.between(
            &format!("{event}: 0 in twice the interval"),
            low - doubled,
            high + doubled,
            0.0,
        );
    }
    Ok(())
}

/// A cell of the row with this name.
fn cell(table: &Value, by: &str, name: &str, id: &str) -> Result<f64> {
    let (by, id) = (column(table, by, None)?, column(table, id, None)?);
    table["rows"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|row| row["cells"][by] == name)
        .and_then(|row| row["cells"][id].as_f64())
        .with_context(|| format!("{name} has no such value"))
}

fn rotating(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("windows-rotating");
    let (with_faults, with_calls) = (
        Windows::read(results, "a", 3)?,
        Windows::read(results, "a", 2)?,
    );
    let info = armed(results, &with_faults, 2, table)?;
    let bursts: Vec<_> = info["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|group| group["bursts"].as_f64())
        .collect();
    table.equal("groups", 2, bursts.len());
    let (least, most) = (
        bursts.iter().copied().fold(f64::MAX, f64::min),
        bursts.iter().copied().fold(0.0, f64::max),
    );
    table.between(
        "the groups' bursts, fewest to most",
        0.95,
        1.0,
        least / most,
    );
    let (faults, calls) = truth(guest)?;
    table.near(
        "faults in faulting, by their group",
        faults,
        2.0 * NEAR,
        with_faults.rate(&guest.windows, "faulting", 2),
    );
    table.near(
        "calls in calling, by theirs",
        calls,
        2.0 * NEAR,
        with_calls.rate(&guest.windows, "calling", 1),
    );
    table.equal(
        "calls in quiet",
        0.0,
        with_calls.rate(&guest.windows, "quiet", 1),
    );
    Ok(())
}

fn threads(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("windows-threads");
    let windows = Windows::read(results, "a", 3)?;
    armed(results, &windows, 1, table)?;
    let mut bursts: BTreeMap<u64, usize> = BTreeMap::new();
    for burst in &windows.bursts {
        *bursts.entry(burst.tid).or_default() += 1;
    }
    table.between(
        "threads with 20 bursts and more",
        2.0,
        3.0,
        bursts.values().filter(|bursts| **bursts >= 20).count() as f64,
    );
    let (faults, _) = truth(guest)?;
    table.near(
        "faults in faulting",
        faults,
        NEAR,
        windows.rate(&guest.pair, "faulting", 2),
    );
    table.equal(
        "faults in quiet",
        0.0,
        windows.rate(&guest.pair, "quiet", 2),
    );
    let by_thread = results.json("by-thread")?;
    let rows = by_thread["rows"].as_array().map_or(0, Vec::len);
    table.between("metrics --by thread: rows", 2.0, 3.0, rows as f64);
    Ok(())
}

fn cpus(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("windows-cpus");
    let windows = Windows::read(results, "a", 3)?;
    let info = results.json("a-info")?["windows"].clone();
    table.equal(
        "source",
        "refresh",
        info["source"].as_str().unwrap_or("none"),
    );
    let (faults, _) = truth(guest)?;
    table.near(
        "faults in faulting",
        faults,
        2.0 * NEAR,
        windows.rate(&guest.windows, "faulting", 2),
    );
    table.equal(
        "faults in quiet",
        0.0,
        windows.rate(&guest.windows, "quiet", 2),
    );
    table.near(
        "metrics: faults in faulting",
        faults,
        2.0 * NEAR,
        cell(
            &results.json("a-metrics")?,
            "function",
            "faulting",
            "faults_raw",
        )?,
    );
    Ok(())
}

fn size(_: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("windows-size");
    results.output("windows")?;
    results.output("steady")?;
    let sizes = results.output("sizes")?;
    let size = |file: &str| -> Result<f64> {
        let line = sizes
            .lines()
            .find(|line| line.ends_with(file))
            .with_context(|| format!("no size of {file}"))?;
        Ok(line.split_whitespace().next().context("no size")?.parse()?)
    };
    table.at_least(
        "file of all windows, in files with windows",
        50.0,
        size("b.data")? / size("a.data")?,
    );
    Ok(())
}
