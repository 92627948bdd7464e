//! `record --metrics`: the events that metrics need, in groups that this machine can count at once, with notes about
//! events that it cannot count.

use crate::metric_sets::ChosenColumns;
use dioptra_metrics::{BindNote, Environment, NeededEvent, RecordedEvent};
use dioptra_perfevents::{EventGroup, EventSpec, parse_events};
use dioptra_recorder::counters::{
    Counters, general_counters, refusal, schedulable, takes_a_counter,
};
use std::collections::{BTreeMap, HashMap};

/// The number of general counters, where neither the machine nor the set says it.
const USUAL_COUNTERS: usize = 4;

/// The number of smaller group sizes that are tried below the number of general counters.
const FEWER_COUNTERS: usize = 3;

/// The number of names that a note lists; it only counts the rest.
const NAMES_IN_A_NOTE: usize = 8;

/// Events to record for metrics.
#[derive(Debug, Default)]
pub struct MetricEvents {
    /// The events, in groups that can be counted at once.
    pub groups: Vec<EventGroup>,
    /// Notes for the user about events that the machine cannot record.
    pub notes: Vec<String>,
}

/// Returns the events to record for the chosen columns, on a machine with these counters.
///
/// # Errors
/// Returns the reasons if none of the events can be counted.
pub fn events_for(
    chosen: &[ChosenColumns],
    counters: &mut dyn Counters,
) -> Result<MetricEvents, String> {
    let mut recordable = Recordable::default();
    let wanted: Vec<TriedColumns<'_>> = chosen
        .iter()
        .map(|chosen| recordable.wanted(chosen, counters))
        .collect();
    let events = &recordable.events;
    if events.is_empty() {
        return Err(nothing(&wanted));
    }
    let groups = groups(&wanted, events, counters);
    let recorded = recorded(events, &groups);
    let notes = wanted
        .iter()
        .flat_map(|wanted| wanted.notes(&recorded))
        .collect();
    let groups = groups
        .iter()
        .map(|group| EventGroup::new(group.iter().map(|&event| events[event].clone())));
    Ok(MetricEvents {
        groups: groups.collect(),
        notes,
    })
}

/// Events that can be recorded, each once, with the result of every trial.
#[derive(Default)]
pub struct Recordable {
    events: Vec<EventSpec>,
    answers: HashMap<String, Result<usize, String>>,
}

impl Recordable {
    fn wanted<'c>(
        &mut self,
        chosen: &'c ChosenColumns,
        counters: &mut dyn Counters,
    ) -> TriedColumns<'c> {
        let needed = chosen.set.needed_events_of(&chosen.columns);
        let answers = needed.iter().map(|event| {
            let key = event.name.to_ascii_lowercase();
            (key, self.answer(event, counters))
        });
        TriedColumns {
            chosen,
            answers: answers.collect(),
            needed,
        }
    }

    /// Tries an event once. Returns its index among the recordable events, or the reason why it cannot be recorded.
    pub fn answer(
        &mut self,
        event: &NeededEvent,
        counters: &mut dyn Counters,
    ) -> Result<usize, String> {
        if event.read_only {
            return Err("it can be read beside another event, but not sampled".to_owned());
        }
        let text = event
            .spec()
            .ok_or("the set does not know how to ask for it")?;
        if let Some(answer) = self.answers.get(&text) {
            return answer.clone();
        }
        let answer = self.try_event(&event.name, &text, counters);
        self.answers.insert(text, answer.clone());
        answer
    }

    fn try_event(
        &mut self,
        name: &str,
        text: &str,
        counters: &mut dyn Counters,
    ) -> Result<usize, String> {
        let parsed =
            parse_events(text).map_err(|error| format!("{}; {}", error.what, error.remedy))?;
        let mut event = parsed
            .into_iter()
            .flat_map(|group| group.events)
            .next()
            .ok_or("it names no event")?;
        // Without the typed period: readers of the profile look for this name.
        name.clone_into(&mut event.name);
        // A clock's nanoseconds are no cycles, so a ratio of them would be wrong.
        event.clock_can_replace = false;
        // Two sets may ask for one event with different periods.
        let same = |other: &EventSpec| {
            let what = |event: &EventSpec| (event.attr.kind, event.attr.config, event.attr.config1);
            other.name == event.name && what(other) == what(&event)
        };
        if let Some(index) = self.events.iter().position(same) {
            return Ok(index);
        }
        match refusal(&event, counters) {
            Some(reason) => Err(reason.to_string()),
            None => {
                self.events.push(event);
                Ok(self.events.len() - 1)
            }
        }
    }
}

/// Chosen columns, with the result of the trial of each of their events.
struct TriedColumns<'c> {
    chosen: &'c ChosenColumns,
    needed: Vec<NeededEvent>,
    /// The result of each event, by its name in lower case.
    answers: HashMap<String, Result<usize, String>>,
}

impl TriedColumns<'_> {
    fn answer(&self, event: &str) -> Option<&Result<usize, String>> {
        self.answers.get(&event.to_ascii_lowercase())
    }

    /// Returns the recordable events that have no fixed counter.
    fn general_events(&self) -> impl Iterator<Item = usize> {
        let unfixed = self.needed.iter().filter(|event| !event.fixed);
        unfixed.filter_map(|event| self.answer(&event.name)?.as_ref().ok().copied())
    }

    /// Returns notes about the columns that lack events on this machine.
    fn notes(&self, recorded: &[RecordedEvent]) -> Vec<String> {
        let set = &self.chosen.set;
        let bound = set.bind(recorded, &Environment::new());
        // By event: the columns that have no value without it, and the columns that become lower bounds.
        let mut losses: HashMap<String, (Vec<&str>, Vec<&str>)> = HashMap::new();
        for &column in &self.chosen.columns {
            let name = set.columns()[column].name.as_str();
            for event in bound.columns()[column].missing.iter() {
                losses
                    .entry(event.to_ascii_lowercase())
                    .or_default()
                    .0
                    .push(name);
            }
            for event in bound.columns()[column].left_out.iter() {
                losses
                    .entry(event.to_ascii_lowercase())
                    .or_default()
                    .1
                    .push(name);
            }
        }
        let mut notes = Vec::new();
        for (reason, events) in self.refusals() {
            notes.push(format!(
                "{}: {} of {} events cannot be recorded: {reason}",
                set.name,
                events.len(),
                self.needed.len()
            ));
            for event in events {
                let (without, less) = losses
                    .get(&event.to_ascii_lowercase())
                    .cloned()
                    .unwrap_or_default();
                let mut note = format!("  without {event}: ");
                note.push_str(&match (without.is_empty(), less.is_empty()) {
                    (true, true) => "every column has a value".to_owned(),
                    (false, true) => format!("no {}", some_of(&without)),
                    (true, false) => format!("only a lower bound of {}", some_of(&less)),
                    (false, false) => format!(
                        "no {}; only a lower bound of {}",
                        some_of(&without),
                        some_of(&less)
                    ),
                });
                notes.push(note);
            }
        }
        let torn = self.torn(recorded);
        if !torn.is_empty() {
            let torn: Vec<&str> = torn.iter().map(String::as_str).collect();
            notes.push(format!(
                "{}: too few counters to count all events at once of {}",
                set.name,
                some_of(&torn)
            ));
        }
        notes
    }

    /// Returns the columns whose events are not all counted at the same time.
    fn torn(&self, recorded: &[RecordedEvent]) -> Vec<String> {
        let set = &self.chosen.set;
        let bound = set.bind(recorded, &Environment::new());
        let torn = bound.notes().iter().filter_map(|note| match note {
            BindNote::ApartGroups { column } => Some(column.clone()),
            _ => None,
        });
        let is_chosen = |name: &String| {
            let column = set.column(name);
            column.is_some_and(|column| self.chosen.columns.contains(&column))
        };
        torn.filter(is_chosen).collect()
    }

    /// Returns the events that cannot be recorded, by reason, in the set's order.
    fn refusals(&self) -> Vec<(&str, Vec<&str>)> {
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for event in &self.needed {
            let Some(Err(reason)) = self.answer(&event.name) else {
                continue;
            };
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, events)) => events.push(&event.name),
                None => reasons.push((reason, vec![&event.name])),
            }
        }
        reasons
    }
}

/// Returns the one-line reason why nothing can be recorded.
fn nothing(wanted: &[TriedColumns<'_>]) -> String {
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (reason, events) in wanted.iter().flat_map(TriedColumns::refusals) {
        reasons.entry(reason).or_default().extend(events);
    }
    let reasons: Vec<String> = reasons
        .iter()
        .map(|(reason, events)| format!("{}: {reason}", some_of(events)))
        .collect();
    if reasons.is_empty() {
        "the metrics need no events".to_owned()
    } else {
        format!(
            "none of the metrics' events can be recorded: {}",
            reasons.join("; ")
        )
    }
}

fn some_of(names: &[&str]) -> String {
    match names.split_at_checked(NAMES_IN_A_NOTE) {
        Some((first, rest)) if rest.len() > 1 => {
            format!("{} and {} more", first.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

/// Returns groups that can be counted at once; the events of a formula share a group where they fit.
fn groups(
    wanted: &[TriedColumns<'_>],
    events: &[EventSpec],
    counters: &mut dyn Counters,
) -> Vec<Vec<usize>> {
    let general = if events.iter().any(|event| takes_a_counter(&event.attr)) {
        let unfixed = wanted.iter().flat_map(TriedColumns::general_events);
        let unfixed: Vec<&EventSpec> = unfixed
            .map(|event| &events[event])
            .filter(|event| takes_a_counter(&event.attr))
            .collect();
        general_counters(&unfixed, counters)
    } else {
        None
    };
    let of_sets = wanted
        .iter()
        .filter_map(|wanted| wanted.chosen.set.counters);
    let general = general.or(of_sets.min()).unwrap_or(USUAL_COUNTERS);
    // A set's fixed counters may be general ones here, and some events do not fit every counter. Smaller groups may
    // then keep formulas together that would otherwise be torn.
    let mut best: Option<(usize, Vec<Vec<usize>>)> = None;
    for general in (general.saturating_sub(FEWER_COUNTERS).max(1)..=general).rev() {
        let groups = schedulable(events, &groups_of(wanted, general), counters);
        let recorded = recorded(events, &groups);
        let torn = wanted.iter().map(|w| w.torn(&recorded).len()).sum();
        if best.as_ref().is_none_or(|(least, _)| torn < *least) {
            best = Some((torn, groups));
        }
        if torn == 0 {
            break;
        }
    }
    best.map(|(_, groups)| groups).unwrap_or_default()
}

/// Returns the groups for this number of general counters.
fn groups_of(wanted: &[TriedColumns<'_>], general: usize) -> Vec<Vec<usize>> {
    let mut groups = Vec::new();
    for wanted in wanted {
        let chosen = wanted.chosen;
        let split = chosen
            .set
            .split_groups_of(&chosen.columns, general, |event| {
                matches!(wanted.answer(&event.name), Some(Ok(_)))
            });
        for group in split.groups {
            let mut indices = Vec::new();
            for event in &group.events {
                if let Some(Ok(index)) = wanted.answer(&event.name)
                    && !indices.contains(index)
                {
                    indices.push(*index);
                }
            }
            groups.push(indices);
        }
    }
    groups
}

/// Returns the recorded events, each with the group that it is counted in.
fn recorded(events: &[EventSpec], groups: &[Vec<usize>]) -> Vec<RecordedEvent> {
    let in_group = |(number, group): (usize, &Vec<usize>)| {
        let number = u32::try_from(number).ok();
        let recorded = |&event: &usize| RecordedEvent {
            name: events[event].name.clone(),
            period: None,
            group: number.filter(|_| takes_a_counter(&events[event].attr)),
        };
        group.iter().map(recorded).collect::<Vec<_>>()
    };
    groups.iter().enumerate().flat_map(in_group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_metrics::MetricSet;
    use dioptra_perfevents::Refusal;
    use dioptra_recorder::counters::{Trial, Uncountable};
    use std::borrow::Cow;
    use std::io;

    /// A machine that counts this many hardware events at once, and has none of the `unknown` events.
    struct Machine {
        counters: usize,
        unknown: &'static [&'static str],
    }

    impl Counters for Machine {
        fn try_group(&mut self, events: &[&EventSpec]) -> Trial {
            if events.len() == 1 && self.unknown.contains(&events[0].name.as_str()) {
                let refusal = Refusal::Other(io::Error::other("not here"));
                return Trial::Refused(Uncountable::Open(refusal));
            }
            let counted = events.iter().filter(|e| takes_a_counter(&e.attr)).count();
            if counted > self.counters {
                Trial::NotAtOnce
            } else {
                Trial::Counted
            }
        }
    }

    fn generic(columns: &[&str]) -> ChosenColumns {
        let set = MetricSet::generic();
        let columns = match columns {
            [] => (0..set.columns().len()).collect(),
            names => names.iter().map(|name| set.column(name).unwrap()).collect(),
        };
        ChosenColumns {
            set: Cow::Borrowed(set),
            columns,
        }
    }

    fn names(found: &MetricEvents) -> Vec<Vec<&str>> {
        found
            .groups
            .iter()
            .map(|group| group.events.iter().map(|e| e.name.as_str()).collect())
            .collect()
    }

    #[test]
    fn software_events_stand_alone_and_formulas_together() {
        let mut machine = Machine {
            counters: 4,
            unknown: &[],
        };
        let found = events_for(&[generic(&[])], &mut machine).unwrap();
        let groups = names(&found);
        for alone in ["task-clock", "page-faults", "context-switches"] {
            assert!(groups.contains(&vec![alone]), "{groups:?}");
        }
        for pair in [
            ["instructions", "cycles"],
            ["branch-misses", "branches"],
            ["branch-misses", "instructions"],
            ["cache-misses", "cache-references"],
        ] {
            let together = |group: &&Vec<&str>| pair.iter().all(|name| group.contains(name));
            assert!(groups.iter().any(|g| together(&g)), "{pair:?}: {groups:?}");
        }
        assert!(groups.iter().all(|group| group.len() <= 4), "{groups:?}");
        assert_eq!(found.notes, Vec::<String>::new());
        let events = found.groups.iter().flat_map(|group| &group.events);
        for event in events {
            assert!(
                event.explicit_period && !event.clock_can_replace,
                "{event:?}"
            );
        }
    }

    #[test]
    fn one_counter_is_told_to_be_too_few() {
        let mut machine = Machine {
            counters: 1,
            unknown: &[],
        };
        let found = events_for(&[generic(&["ipc"])], &mut machine).unwrap();
        assert_eq!(names(&found).len(), 2);
        assert_eq!(
            found.notes,
            ["generic: too few counters to count all events at once of ipc"]
        );
    }

    #[test]
    fn what_cannot_be_counted_is_told_with_what_it_costs() {
        let mut machine = Machine {
            counters: 4,
            unknown: &["instructions", "cache-misses"],
        };
        let found = events_for(&[generic(&[])], &mut machine).unwrap();
        let groups = names(&found);
        assert!(!groups.iter().flatten().any(|name| *name == "instructions"));
        assert!(groups.iter().flatten().any(|name| *name == "cycles"));
        let told = found.notes.join("\n");
        assert!(
            told.contains("generic: 2 of 13 events cannot be recorded: not here"),
            "{told}"
        );
        assert!(
            told.contains("without instructions: no ipc, branch_mpki, cache_mpki"),
            "{told}"
        );
        assert!(
            told.contains("without cache-misses: no cache_miss_ratio, cache_mpki"),
            "{told}"
        );
        let error = events_for(
            &[generic(&["ipc"])],
            &mut Machine {
                counters: 4,
                unknown: &["instructions", "cycles"],
            },
        );
        assert!(error.unwrap_err().contains("not here"));
    }

    #[test]
    fn two_choices_share_their_events() {
        let mut machine = Machine {
            counters: 4,
            unknown: &[],
        };
        let twice = [generic(&["faults_per_ms"]), generic(&["switches_per_ms"])];
        let found = events_for(&twice, &mut machine).unwrap();
        assert_eq!(
            names(&found),
            [["task-clock"], ["page-faults"], ["context-switches"]]
        );
    }
}
