//! The functions with the most time.

use super::{Chosen, INNERMOST, SAMPLES};
use crate::error::StoreError;
use crate::session::{Answer, Session};

/// The options of [`top_functions`].
#[derive(Clone, Debug)]
pub struct TopOptions {
    /// The samples.
    pub chosen: Chosen,
    /// Columns of the view `samples`; each combination of their values is a group of its own.
    pub group_by: Vec<String>,
    /// The most functions of each group.
    pub limit: u32,
}

/// The columns by which functions can be grouped.
pub const GROUPS: [&str; 7] = [
    "service",
    "host",
    "date",
    "process",
    "comm",
    "cpu",
    "profile_id",
];

/// Returns the functions that ran in the most samples, by group: `function`, `module`, `samples`, `weight`, and
/// `percent` of the group's weight. Also returns the event.
///
/// # Errors
/// There are no such samples, or a group is none of [`GROUPS`].
pub fn top_functions(
    session: &Session,
    options: &TopOptions,
) -> Result<(Answer, String), StoreError> {
    for group in &options.group_by {
        if !GROUPS.contains(&&**group) {
            return Err(StoreError::Question(format!(
                "{group:?} is no group; there are {}",
                GROUPS.join(", ")
            )));
        }
    }
    let (conditions, event) = options.chosen.with_event(session)?;
    let groups: String = options
        .group_by
        .iter()
        .map(|group| format!("{group}, "))
        .collect();
    let of_sums: String = options
        .group_by
        .iter()
        .map(|group| format!("s.{group}, "))
        .collect();
    let stacks = options.chosen.stacks(INNERMOST, None);
    let partition = match options.group_by.is_empty() {
        true => String::new(),
        false => format!("PARTITION BY {} ", options.group_by.join(", ")),
    };
    let limit = options.limit;
    let answer = session.sql(&format!(
        "SELECT {groups}function, module, samples, weight, percent FROM (\
           SELECT {groups}function, module, samples, weight, \
             round(100.0 * weight / sum(weight) OVER ({partition}), 2) AS percent, \
             row_number() OVER ({partition}ORDER BY weight DESC, function, module) AS place \
           FROM (\
             SELECT {of_sums}coalesce(k.function, '[unknown]') AS function, coalesce(k.module, '[unknown]') AS module, \
               sum(s.samples) AS samples, sum(s.weight) AS weight \
             FROM (\
               SELECT {groups}stack_id, sum(samples) AS samples, sum(weight) AS weight \
               FROM {SAMPLES} a WHERE {conditions} GROUP BY {groups}stack_id) s \
             JOIN {stacks} k ON s.stack_id = k.stack_id \
             GROUP BY {of_sums}coalesce(k.function, '[unknown]'), coalesce(k.module, '[unknown]')) f) t \
         WHERE place <= {limit} ORDER BY {groups}weight DESC, function, module"
    ))?;
    Ok((answer, event.event))
}
