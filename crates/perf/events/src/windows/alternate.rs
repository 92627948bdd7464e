//! Events that alternate between a long and a short period themselves, as was proposed for Linux: no release has them so
//! far. A kernel that takes the attribute is no proof: since 6.19 another field stands in its place. So the attribute
//! is tried, and works only if the periods of the samples really alternate.

use super::findings::{Finding, Observation};
use super::plan::plan_of;
use super::probe::Own;
use super::schedule::{Length, Schedule};
use super::source::WindowsSpec;
use crate::errors::AttachError;
use crate::spec::{EventGroup, EventSpec, Target};
use std::time::Duration;

/// The schedule that the probe asks for, in page faults: one window in each long period.
const PROBED: Schedule = Schedule {
    long: Length::Count(64),
    short: Length::Count(8),
    jitter: Length::Count(0),
    batch: 1,
};

/// Makes `leader` alternate by a schedule: four words behind the attribute hold its lengths and its batch.
pub(super) fn apply(leader: &mut EventSpec, schedule: &Schedule) {
    let [long, short, _, batch] = schedule.numbers();
    let jitter = schedule.jitter_of(schedule.short);
    leader.attr.sample_period = long;
    leader.tail = [long, short, jitter, batch]
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
}

/// Tries on the calling thread whether this kernel's events alternate.
pub(super) fn probe(spec: &WindowsSpec) -> Finding {
    match try_out(spec) {
        Ok(counts) if alternates(&counts) => Finding::works(Observation::Alternates),
        Ok(counts) => Finding::fails(Observation::DoesNotAlternate {
            samples: counts.len(),
        }),
        Err(error) => Finding::fails(Observation::CannotAlternate {
            because: error.to_string(),
        }),
    }
}

/// Returns the page faults between the samples of an event that should alternate.
fn try_out(spec: &WindowsSpec) -> Result<Vec<u64>, AttachError> {
    let mut leader = EventSpec::page_faults();
    leader.attr.flags |= crate::AttrFlags::EXCLUDE_KERNEL | crate::AttrFlags::EXCLUDE_HV;
    apply(&mut leader, &PROBED);
    let steady = Schedule {
        short: PROBED.long,
        ..spec.schedule
    };
    let groups = vec![EventGroup::new([leader])];
    let mut probed = WindowsSpec::new(steady, groups, Target::SelfProcess);
    probed.inherit = false;
    let (_, plan) = plan_of(&probed);
    let samples = Own::open(&plan, 8)?.run(Duration::from_millis(5))?;
    let counts = samples.windows(2);
    Ok(counts
        .map(|pair| pair[1].count.saturating_sub(pair[0].count))
        .collect())
}

/// Whether counts between samples are of two kinds: short ones, and those that fill up to the long period.
fn alternates(counts: &[u64]) -> bool {
    let (long, short) = (PROBED.long.number(), PROBED.short.number());
    let is_short = |count: &&u64| **count <= short + short / 2;
    let is_long = |count: &&u64| (long - short).saturating_sub(short / 2) <= **count;
    let shorts = counts.iter().filter(is_short).count();
    let longs = counts.iter().filter(is_long).count();
    shorts >= 2 && longs >= 2 && shorts + longs == counts.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_alternating_periods_count() {
        // The two make up the long period.
        assert!(alternates(&[56, 8, 56, 8, 56, 8]));
        // The longer one in full, with jitter.
        assert!(alternates(&[64, 8, 66, 8, 62, 8]));
        // Bursts of four.
        assert!(alternates(&[64, 8, 8, 8, 8, 64, 8, 8, 8, 8, 64]));
        // A kernel that takes the words for something else.
        assert!(!alternates(&[64, 64, 64, 64, 64]));
        assert!(!alternates(&[8, 8, 8, 8, 8, 8]));
        assert!(!alternates(&[64, 8, 31, 8, 64, 8]));
        assert!(!alternates(&[56, 8]));
        assert!(!alternates(&[]));
    }

    #[test]
    fn the_schedule_stands_behind_the_attribute() {
        let schedule = Schedule {
            long: Length::Count(1_000_000),
            short: Length::Count(300),
            jitter: Length::Count(20),
            batch: 4,
        };
        let mut leader = EventSpec::page_faults();
        apply(&mut leader, &schedule);
        assert_eq!(leader.attr.sample_period, 1_000_000);
        let words = [1_000_000_u64, 300, 20, 4].map(u64::to_ne_bytes);
        assert_eq!(leader.tail, words.concat());
    }
}
