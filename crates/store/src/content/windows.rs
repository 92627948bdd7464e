//! The rows of windows: the counts of each window, and those of the whole run.

use super::functions::Functions;
use super::rows::{signed, thread_parts};
use crate::columns::{Rows, Value};
use crate::error::StoreError;
use crate::schema::Table;
use dioptra_export::Source;
use dioptra_profile::UNKNOWN;
use dioptra_windows::collect::CollectedWindows;
use dioptra_windows::estimate::WindowFlags;
use dioptra_windows::section::WindowsSection;

/// The words for the reasons why a window is unusable.
const FLAGS: [(WindowFlags, &str); 8] = [
    (WindowFlags::THROTTLED, "throttled"),
    (WindowFlags::LOST, "lost"),
    (WindowFlags::SWITCHED, "switched"),
    (WindowFlags::MIGRATED, "migrated"),
    (WindowFlags::LATE, "late"),
    (WindowFlags::PARTLY_COUNTED, "partly_counted"),
    (WindowFlags::INFLATED, "inflated"),
    (WindowFlags::BROKEN, "broken"),
];

/// Writes a row for each event of each window.
///
/// # Errors
/// A value is too large for a signed number.
pub(super) fn write(
    source: &Source<'_>,
    windows: &CollectedWindows,
    functions: &mut Functions<'_>,
) -> Result<Rows, StoreError> {
    let mut rows = Rows::new(Table::Windows);
    let profile = source.profile;
    let first = profile.first_time();
    for (number, burst) in windows.bursts().iter().enumerate() {
        let Some(group) = windows.plan().groups.get(usize::from(burst.group)) else {
            continue;
        };
        // A burst may begin before the first sample.
        let elapsed = first.map(|first| {
            let since = i128::from(burst.time) - i128::from(first);
            i64::try_from(since).unwrap_or(i64::MAX)
        });
        for window in windows.windows(number) {
            let thread = thread_parts(source, Some(window.thread));
            let comm = match thread.tid {
                Some(_) => profile.tasks().thread_name(window.thread),
                None => UNKNOWN.to_owned(),
            };
            let start = functions.stack(window.start);
            let end = functions.stack(window.end);
            let flags: Vec<&str> = FLAGS
                .iter()
                .filter(|(flag, _)| window.flags.contains(*flag))
                .map(|(_, word)| *word)
                .collect();
            let flags = Some(flags.join(" ")).filter(|flags| !flags.is_empty());
            for (event, value) in group.events.iter().zip(window.counts) {
                rows.push(&[
                    Value::Text(profile.events()[*event as usize].name()),
                    Value::Integer(signed("value", *value)?),
                    Value::Integer(i64::from(burst.group)),
                    Value::Integer(i64::try_from(number).unwrap_or(i64::MAX)),
                    Value::Integer(i64::from(window.index)),
                    Value::OptionalInteger(elapsed),
                    Value::Integer(signed("period", burst.period)?),
                    Value::OptionalInteger(thread.pid),
                    Value::OptionalInteger(thread.tid),
                    Value::Text(&thread.process),
                    Value::Text(&comm),
                    Value::Integer(i64::from(burst.cpu)),
                    Value::Text(&start),
                    Value::Text(&end),
                    Value::OptionalText(flags.as_deref()),
                ]);
            }
        }
    }
    Ok(rows)
}

/// Writes a row for each event that was counted over the whole run.
///
/// # Errors
/// A value is too large for a signed number.
pub(super) fn write_totals(section: &WindowsSection) -> Result<Rows, StoreError> {
    let mut rows = Rows::new(Table::WindowTotals);
    for total in &section.totals {
        rows.push(&[
            Value::Text(&total.event),
            Value::Integer(signed("value", total.value)?),
            Value::Integer(signed("enabled_ns", total.enabled)?),
            Value::Integer(signed("running_ns", total.running)?),
        ]);
    }
    Ok(rows)
}
