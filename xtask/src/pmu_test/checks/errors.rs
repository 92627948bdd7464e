//! Events that the PMU does not have, and the messages of the other commands about them.

use anyhow::Result;

use super::{Guest, Results, Step};
use crate::pmu_test::table::Table;

pub fn steps() -> Vec<Step> {
    vec![Step {
        name: "not-supported",
        lines: "run single dioptra record -e cache-misses -o a.data steps\n\
                run group dioptra record -e '{cycles,branch-misses}' -o a.data steps\n\
                run large dioptra record -e '{cycles,r08,r08,r08,r08,r08,r08,r08}:S' -o a.data steps\n\
                run doctor dioptra doctor\n\
                run list dioptra list events\n"
            .to_string(),
        check: not_supported,
    }]
}

fn not_supported(_: &Guest, results: &Results, table: &mut Table) -> Result<()> {
    table.step("not-supported");
    for (command, event) in [("single", "cache-misses"), ("group", "branch-misses")] {
        table.equal(&format!("{event}: status"), 125, results.status(command)?);
        table.tells(
            &format!("{event}: the error"),
            &[
                event,
                "this machine does not have the event",
                "dioptra list events",
            ],
            &results.text(&format!("{command}.err"))?,
        );
    }
    table.equal(
        "eight counters at a time: status",
        125,
        results.status("large")?,
    );
    table.tells(
        "eight counters at a time: the error",
        &["group"],
        &results.text("large.err")?,
    );
    table.tells(
        "doctor",
        &["cycles and instructions can be sampled"],
        &results.output("doctor")?,
    );
    let list = results.output("list")?;
    let available = |name: &str| {
        list.lines()
            .find(|line| line.split_whitespace().next() == Some(name))
            .and_then(|line| line.split_whitespace().nth(2))
            .unwrap_or("not listed")
            .to_string()
    };
    table.equal("list: cycles", "yes".to_string(), available("cycles"));
    table.equal(
        "list: instructions",
        "yes".to_string(),
        available("instructions"),
    );
    table.equal(
        "list: cache-misses",
        "no".to_string(),
        available("cache-misses"),
    );
    Ok(())
}
