//! Facts on events that are no part of the ordinary sampling.

use dioptra_profile::Profile;
use dioptra_tables::{Facts, Remedy, Severity};
use serde_json::json;

/// Adds facts on events that were recorded for windows: on events that a table leaves out, and on events that it
/// shows.
pub(crate) fn events_of_windows(facts: &mut Facts, profile: &Profile, shown: &[usize]) {
    let of_windows = |index: &usize| profile.events()[*index].is_set_aside();
    let names = |events: &mut dyn Iterator<Item = usize>| -> Vec<&str> {
        let mut names: Vec<&str> = events.map(|index| profile.events()[index].name()).collect();
        names.dedup();
        names
    };
    let all = 0..profile.events().len();
    let hidden = names(&mut all.filter(|index| of_windows(index) && !shown.contains(index)));
    if !hidden.is_empty() {
        facts.add(
            Severity::Info,
            "events_of_windows",
            format!(
                "read over windows, and no part of this table: {}",
                hidden.join(", ")
            ),
            json!(hidden),
        );
        facts.propose(Remedy::ShowWindows);
    }
    let told = names(&mut shown.iter().copied().filter(of_windows));
    if !told.is_empty() {
        facts.add(
            Severity::Warning,
            "samples_of_windows",
            format!(
                "samples of {} lie where bursts of windows were, not where time went",
                told.join(", ")
            ),
            json!(told),
        );
    }
}
