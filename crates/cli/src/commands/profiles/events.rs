//! The events that a user names.

use anyhow::Context;
use dioptra_metrics::EventName;
use dioptra_profile::Profile;

/// Finds the wanted events, each by its name, its name without modifiers or settings, or its number from 1.
pub fn find_events(profile: &Profile, wanted: &[String]) -> anyhow::Result<Vec<usize>> {
    let names = || profile.events().iter().map(|event| event.name());
    wanted
        .iter()
        .map(|wanted| {
            let number = || {
                let number: usize = wanted.parse().ok()?;
                (1..=profile.events().len())
                    .contains(&number)
                    .then(|| number - 1)
            };
            names()
                .position(|name| name == wanted)
                .or_else(|| names().position(|name| without_modifiers(name) == wanted))
                .or_else(|| names().position(|name| is_spelling(name, wanted)))
                .or_else(number)
                .with_context(|| {
                    let known: Vec<&str> = names().collect();
                    format!(
                        "the profile has no event `{wanted}`; it has {}",
                        known.join(", ")
                    )
                })
        })
        .collect()
}

/// Returns whether both name the same event, such as `cpu-cycles` and `cycles/period=1000/u`.
fn is_spelling(name: &str, wanted: &str) -> bool {
    let (name, wanted) = (EventName::parse(name), EventName::parse(wanted));
    let same_unit = wanted.pmu.is_empty() || wanted.pmu == name.pmu;
    same_unit && !wanted.key.is_empty() && wanted.key == name.key
}

/// Returns the name without its modifiers, such as `cycles` of `cycles:u`. A tracepoint's name keeps its colon.
fn without_modifiers(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((event, modifiers))
            if modifiers
                .chars()
                .all(|letter| "ukhGHpPSDIeWb".contains(letter)) =>
        {
            event
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_spelling, without_modifiers};

    #[test]
    fn modifiers_are_no_part_of_a_name() {
        assert!(is_spelling("page-faults/period=1/u", "page-faults"));
        assert!(!is_spelling("page-faults", "major-faults"));
        assert_eq!(without_modifiers("cycles:uk"), "cycles");
        assert_eq!(without_modifiers("cpu-clock"), "cpu-clock");
        assert_eq!(
            without_modifiers("sched:sched_switch"),
            "sched:sched_switch"
        );
    }
}
