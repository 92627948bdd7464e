//! Events that alternate between a long and a short period themselves: proposed for Linux in several forms, in none of
//! its releases so far. What a kernel takes is no proof: since 6.19 another field stands where these were to stand. So
//! each form is tried, and counts only if the periods of the samples that come really alternate.

use super::plan::plan_of;
use super::probe::{Finding, Own};
use super::schedule::{Length, Schedule};
use super::source::WindowsSpec;
use crate::names::pmu::PmuDirectory;
use crate::spec::{EventGroup, EventSpec};
use std::time::Duration;

/// A form of the attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A PMU whose format has `strobe_period`: the low half of `config2` (the prototype).
    Strobe,
    /// A word with the short period, so many bytes behind the attr as it is known here (versions 1 to 3).
    Word(usize),
    /// A word whose low half is the short period, with four bits of jitter's logarithm above (version 4).
    Halves(usize),
    /// Four words: long, short, jitter, batch (as proposed in review).
    Four(usize),
}

impl Form {
    /// All that are tried. The second of each pair is for kernels whose first word behind the attr is another one.
    const ALL: [Form; 6] = [
        Form::Halves(0),
        Form::Halves(8),
        Form::Word(0),
        Form::Word(8),
        Form::Four(0),
        Form::Four(8),
    ];

    fn name(self) -> &'static str {
        match self {
            Form::Strobe => "strobe_period",
            Form::Word(_) => "alt_sample_period",
            Form::Halves(_) => "hf_sample",
            Form::Four(_) => "four periods",
        }
    }

    /// Makes `leader` alternate between windows of `short` and the rest of `long`.
    pub fn apply(self, leader: &mut EventSpec, long: u64, short: u64, jitter: u64, batch: u32) {
        let words: Vec<u64> = match self {
            Form::Strobe => {
                leader.attr.config2 |= short & 0xffff_ffff;
                Vec::new()
            }
            Form::Word(_) => vec![short],
            Form::Halves(_) => {
                // 2^n values around the period.
                let bits = u64::from(64 - jitter.saturating_mul(2).leading_zeros()).min(15);
                vec![(short & 0xffff_ffff) | bits << 32]
            }
            Form::Four(_) => vec![long, short, jitter, u64::from(batch)],
        };
        let skipped = match self {
            Form::Word(skipped) | Form::Halves(skipped) | Form::Four(skipped) => skipped,
            Form::Strobe => 0,
        };
        leader.attr.sample_period = long;
        leader.tail = vec![0; if words.is_empty() { 0 } else { skipped }];
        for word in words {
            leader.tail.extend_from_slice(&word.to_ne_bytes());
        }
    }
}

/// The form that this kernel has, as far as it can be tried; and what was found.
pub(super) fn find(spec: &WindowsSpec) -> (Option<Form>, Finding) {
    let mut taken = Vec::new();
    let mut refused = None;
    let mut forms = Form::ALL.to_vec();
    let strobes = spec
        .groups
        .iter()
        .filter_map(|group| group.events.first())
        .all(has_strobe);
    if strobes {
        forms.insert(0, Form::Strobe);
    }
    for form in forms {
        match try_form(form, spec) {
            Ok(counts) if alternates(&counts, LONG, SHORT) => {
                let text = format!("the periods of {} alternate", form.name());
                return (Some(form), Finding::works(text));
            }
            Ok(counts) => taken.push(format!("{} ({} samples)", form.name(), counts.len())),
            Err(error) => refused = Some(error),
        }
    }
    let text = match (taken.is_empty(), refused) {
        (true, Some(error)) => format!("this kernel has no alternating periods: {error}"),
        (true, None) => "this kernel has no alternating periods".to_owned(),
        (false, _) => format!(
            "this kernel takes {}, but the periods do not alternate",
            taken.join(", ")
        ),
    };
    (None, Finding::fails(text))
}

/// As [`find`], for those who only want to know.
pub(super) fn probe(spec: &WindowsSpec) -> Finding {
    find(spec).1
}

/// Whether the event's PMU has the prototype's format.
fn has_strobe(leader: &EventSpec) -> bool {
    let pmus = PmuDirectory::default();
    pmus.has_format(leader.attr.kind, "strobe_period")
}

/// Periods with which it is tried, in page faults.
const LONG: u64 = 64;
const SHORT: u64 = 8;

/// Page faults between the samples that come, where a form is taken.
fn try_form(form: Form, spec: &WindowsSpec) -> Result<Vec<u64>, crate::errors::AttachError> {
    let mut leader = if form == Form::Strobe {
        // Of that PMU only.
        let first = spec.groups.first().and_then(|group| group.events.first());
        first.cloned().unwrap_or_else(EventSpec::page_faults)
    } else {
        EventSpec::page_faults()
    };
    leader.attr.flags |= crate::AttrFlags::EXCLUDE_KERNEL | crate::AttrFlags::EXCLUDE_HV;
    form.apply(&mut leader, LONG, SHORT, 0, 1);
    let mut probed = WindowsSpec::new(
        Schedule {
            short: Length::Count(LONG),
            ..spec.schedule
        },
        vec![EventGroup::new([leader])],
        crate::spec::Target::SelfProcess,
    );
    probed.inherit = false;
    let (_, plan) = plan_of(&probed);
    let samples = Own::open(&plan, 8)?.run(Duration::from_millis(5))?;
    Ok(samples
        .windows(2)
        .map(|pair| pair[1].count.saturating_sub(pair[0].count))
        .collect())
}

/// Whether counts between samples are of two kinds: short ones, and those that fill up to the long period.
fn alternates(counts: &[u64], long: u64, short: u64) -> bool {
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
        // Version 4: the two make up the long period.
        assert!(alternates(&[56, 8, 56, 8, 56, 8], LONG, SHORT));
        // Of the longer one in full, with jitter.
        assert!(alternates(&[64, 8, 66, 8, 62, 8], LONG, SHORT));
        // Bursts of four.
        assert!(alternates(
            &[64, 8, 8, 8, 8, 64, 8, 8, 8, 8, 64],
            LONG,
            SHORT
        ));
        // A kernel that takes the word for something else.
        assert!(!alternates(&[64, 64, 64, 64, 64], LONG, SHORT));
        assert!(!alternates(&[8, 8, 8, 8, 8, 8], LONG, SHORT));
        assert!(!alternates(&[64, 8, 31, 8, 64, 8], LONG, SHORT));
        assert!(!alternates(&[56, 8], LONG, SHORT));
        assert!(!alternates(&[], LONG, SHORT));
    }

    #[test]
    fn forms_are_laid_out_as_proposed() {
        let word = |form: Form| {
            let mut leader = EventSpec::page_faults();
            form.apply(&mut leader, 1_000_000, 300, 20, 4);
            assert_eq!(leader.attr.sample_period, 1_000_000);
            leader.tail
        };
        assert_eq!(word(Form::Word(0)), 300_u64.to_ne_bytes());
        let halves = word(Form::Halves(8));
        assert_eq!(halves.len(), 16);
        assert_eq!(
            u64::from_ne_bytes(*halves[8..].first_chunk().unwrap()),
            300 | 6 << 32,
            "2^6 values around the period are up to 32 to either side"
        );
        assert_eq!(word(Form::Four(0)).len(), 32);
        assert_eq!(word(Form::Strobe), []);
    }
}
