//! The events of tables: the matching of events of several profiles, and the suffixes of column ids.

use dioptra_metrics::EventName;
use dioptra_perfrecords::AttrFlags;
use dioptra_profile::{EventProfile, Profile};
use dioptra_tables::{Facts, Severity};
use serde_json::json;

/// An event of a table, which stands for at most one event of each profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEvent {
    /// Its name.
    pub name: String,
    /// For each profile, the event's index in [`Profile::events`]; `None` where it was not recorded.
    pub of: Vec<Option<usize>>,
}

impl TableEvent {
    /// Returns the events of all profiles that sampled anything, in the order of the profiles. Events of one name are
    /// one event.
    ///
    /// An event whose name other profiles lack is matched with an event that counts the same, if there is only one
    /// such: `cpu-clock:ppp` with `cpu-clock`, since only the precision that was asked for differs.
    pub fn all(profiles: &[&Profile]) -> Vec<TableEvent> {
        let mut events: Vec<TableEvent> = Vec::new();
        for (place, profile) in profiles.iter().enumerate() {
            let sampled = profile.sampled_events();
            let mut left = Vec::new();
            for index in &sampled {
                let name = profile.events()[*index].name();
                // One profile may have several events of one name.
                let mut known = events.iter_mut();
                match known.find(|event| event.name == name && event.of[place].is_none()) {
                    Some(event) => event.of[place] = Some(*index),
                    None => left.push(*index),
                }
            }
            for index in left {
                let own = &profile.events()[index];
                let first = |event: &TableEvent| {
                    let mut of = event.of.iter().zip(profiles);
                    of.find_map(|(index, profile)| profile.events().get((*index)?))
                };
                let mut fitting = events.iter_mut().filter(|event| {
                    event.of[place].is_none()
                        && first(event).is_some_and(|one| counts_same(one, own))
                });
                if let (Some(event), None) = (fitting.next(), fitting.next()) {
                    event.of[place] = Some(index);
                    continue;
                }
                let mut of = vec![None; profiles.len()];
                of[place] = Some(index);
                let name = own.name().to_owned();
                events.push(TableEvent { name, of });
            }
        }
        events
    }
}

/// Returns whether two events count the same in the same modes, however precisely and often they are sampled.
fn counts_same(one: &EventProfile, other: &EventProfile) -> bool {
    let modes = AttrFlags::EXCLUDE_USER | AttrFlags::EXCLUDE_KERNEL | AttrFlags::EXCLUDE_HV;
    let (first, second) = (EventName::parse(one.name()), EventName::parse(other.name()));
    one.attr().flags & modes == other.attr().flags & modes
        && one.attr().kind == other.attr().kind
        && !first.key.is_empty()
        && (&first.key, &first.pmu) == (&second.key, &second.pmu)
}

/// Returns the suffix of the column ids of each event: empty where there is only one, else the event in brackets.
pub(crate) fn id_suffixes(names: &[&str]) -> Vec<String> {
    if names.len() < 2 {
        return vec![String::new(); names.len()];
    }
    let suffix = |(place, name): (usize, &&str)| {
        let before = names[..place].iter().filter(|known| *known == name).count();
        match before {
            0 => format!("[{name}]"),
            before => format!("[{name}#{}]", before + 1),
        }
    };
    names.iter().enumerate().map(suffix).collect()
}

/// Adds facts on events of other names that count as one.
pub(crate) fn paired_facts(facts: &mut Facts, events: &[TableEvent], profiles: &[&Profile]) {
    for event in events {
        let each = event.of.iter().zip(profiles);
        let names =
            each.filter_map(|(index, profile)| Some(profile.events().get((*index)?)?.name()));
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > 1 {
            facts.add(
                Severity::Info,
                "paired_events",
                format!("{} count as one event", names.join(" and ")),
                json!(names),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::id_suffixes;

    #[test]
    fn ids_of_several_events_name_them() {
        assert_eq!(id_suffixes(&["cycles"]), [""]);
        assert_eq!(
            id_suffixes(&["cycles", "page-faults", "cycles"]),
            ["[cycles]", "[page-faults]", "[cycles#2]"]
        );
    }
}
