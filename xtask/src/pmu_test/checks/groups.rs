//! Groups of counters: values at samples, and groups that take turns.

use anyhow::{Context, Result};
use serde_json::Value;

use super::sampling::predicted;
use super::{Guest, LONG, Results, Step, by_name, column, facts};
use crate::pmu_test::table::Table;

const PERIOD: u64 = 100_003;
/// The period of the groups that take turns: some hundred samples in a turn.
const TURNS: u64 = 10_007;

pub fn steps() -> Vec<Step> {
    // The cycle counter leads, since it alone reports overflows on time; six counters are left for others.
    let half = "{cycles:u,r08:u,r08:u,r08:u,r08:u,r08:u}:S";
    vec![
        Step {
            name: "group",
            lines: format!(
                "run record dioptra record -q -e '{{cycles:u,instructions:u}}:S' -c {PERIOD} -o a.data steps\n\
                 run dump dioptra dump -i a.data --format json --type SAMPLE\n\
                 run report dioptra report -i a.data --format json\n"
            ),
            check: group,
        },
        Step {
            name: "turns",
            lines: format!(
                "run record dioptra record -q -e '{half},{half}' -c {TURNS} -o a.data long\n\
                 run dump dioptra dump -i a.data --format json --type SAMPLE\n\
                 run report dioptra report -i a.data --format json\n"
            ),
            check: turns,
        },
    ]
}

/// The values of a sample's counters.
pub fn values(sample: &Value) -> Vec<u64> {
    let counters = sample["counters"].as_array().into_iter().flatten();
    counters
        .filter_map(|counter| counter["value"].as_u64())
        .collect()
}

fn group(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("group");
    let (_, places) = predicted(guest, PERIOD)?;
    results.output("record")?;
    let samples = results.lines("dump")?;
    table.equal("samples", places.len(), samples.len());
    let exact = samples
        .iter()
        .zip(1..)
        .filter(|(sample, number)| values(sample) == [number * PERIOD, number * PERIOD])
        .count();
    table.equal(
        "samples whose cycles and instructions are n periods",
        places.len(),
        exact,
    );
    let report = results.json("report")?;
    for event in ["cycles:u:S", "instructions:u:S"] {
        let weights = by_name::<u64>(&report, "function", column(&report, "weight", Some(event))?)?;
        table.equal(
            &format!("report: {event}"),
            places.len() as u64 * PERIOD,
            weights.values().sum(),
        );
    }
    Ok(())
}

/// Instructions of `long`, which differs from `steps` by its number of rounds only.
fn of_long(guest: &Guest) -> Result<u64> {
    let round = guest.steps.listing.address("round")?;
    let (mut executed, mut begins) = (0_u64, Vec::new());
    let total = guest.steps.listing.step(|place| {
        if place == round {
            begins.push(executed);
        }
        executed += 1;
    })?;
    let one = begins.get(1).context("steps has two rounds")? - begins[0];
    Ok(total + (LONG - begins.len() as u64) * one)
}

fn turns(guest: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("turns");
    let total = of_long(guest)?;
    results.output("record")?;
    let samples = results.lines("dump")?;
    let mut leaders: Vec<_> = samples
        .iter()
        .filter_map(|sample| sample["counters"][0]["id"].as_u64())
        .collect();
    leaders.sort_unstable();
    leaders.dedup();
    table.equal("groups that came to their turn", 2, leaders.len());
    for (number, leader) in leaders.iter().enumerate() {
        let last = samples
            .iter()
            .rfind(|sample| sample["counters"][0]["id"] == *leader)
            .context("a group has a sample")?;
        let time = |name: &str| last[name].as_u64().unwrap_or(0) as f64;
        let share = time("time_running") / time("time_enabled");
        table.between(
            &format!("group {number}: share of the time"),
            0.25,
            0.75,
            share,
        );
        let counted = values(last);
        table.equal(&format!("group {number}: counters"), 6, counted.len());
        table.equal(
            &format!("group {number}: instructions are counted as cycles are"),
            counted[1..].len(),
            counted[1..]
                .iter()
                .filter(|value| **value == counted[0])
                .count(),
        );
        table.near(
            &format!("group {number}: cycles, scaled"),
            total as f64,
            0.1,
            counted[0] as f64 / share,
        );
    }
    let report = results.json("report")?;
    for event in ["cycles:u:S", "r08:u:S"] {
        let scaled = by_name::<f64>(&report, "module", column(&report, "scaled", Some(event))?)?;
        let scaled: f64 = scaled.values().sum();
        table.near(
            &format!("report: {event}, scaled"),
            total as f64,
            0.1,
            scaled,
        );
    }
    let told = facts(&report, "info").join("; ");
    table.tells(
        "report says so",
        &["in turns with others", "% of the time"],
        &told,
    );
    Ok(())
}
