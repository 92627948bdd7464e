//! The rows of a timeline in another profile, aligned at the first sample of each.

use crate::api::{TimelineOther, TimelineOtherRow, TimelineRows};
use crate::failure::Failure;
use crate::other::{Other, both};
use crate::selected::Selected;
use crate::texts;
use crate::timelines::label;
use dioptra_profile::{BinOptions, Binned, BinnedRow, Profile, TimeSlices};
use dioptra_tables::{Facts, Severity};
use hashbrown::HashMap;
use serde_json::json;
use std::num::NonZeroU64;

/// The largest number of bins that are counted in the other profile.
const MOST_VALUES: usize = 1 << 23;

/// The rows of the other profile that stand for rows of the first one.
pub(crate) struct OtherRows {
    pub answer: Option<TimelineOther>,
    /// By row of the first profile's answer.
    pub rows: Vec<Option<TimelineOtherRow>>,
    pub facts: Facts,
}

/// A name by which rows are known again: of a thread its own and its process's.
type Name = (String, String);

fn name(profile: &Profile, rows: TimelineRows, key: u32) -> Name {
    let tasks = profile.tasks();
    match rows {
        TimelineRows::Thread => {
            let thread = tasks.threads().get(key as usize);
            let process = thread.map(|thread| tasks.process_name(thread.process));
            (tasks.thread_name(key), process.unwrap_or_default())
        }
        TimelineRows::Process => (tasks.process_name(key), String::new()),
        TimelineRows::Cpu => (key.to_string(), String::new()),
        TimelineRows::All => Name::default(),
    }
}

/// The number of a thread or process.
fn number(profile: &Profile, rows: TimelineRows, key: u32) -> Option<u32> {
    let tasks = profile.tasks();
    match rows {
        TimelineRows::Thread => tasks.threads().get(key as usize).map(|thread| thread.tid),
        TimelineRows::Process => tasks.processes().get(key as usize).map(|of| of.pid),
        TimelineRows::Cpu | TimelineRows::All => Some(key),
    }
}

/// Finds for each row of the first profile the row of the other one: that of the same name and number, else, of the
/// rows of one name without such a partner, the heaviest for the heaviest, and so on. Both lists are heaviest first.
fn partners(
    rows: TimelineRows,
    (first, first_rows): (&Profile, &[BinnedRow]),
    (other, other_rows): (&Profile, &[BinnedRow]),
) -> Vec<Option<usize>> {
    let mut free: HashMap<Name, Vec<usize>> = HashMap::new();
    for (place, row) in other_rows.iter().enumerate().rev() {
        // The heaviest come last, where they are taken from.
        free.entry(name(other, rows, row.key))
            .or_default()
            .push(place);
    }
    let mut found: Vec<Option<usize>> = vec![None; first_rows.len()];
    for (row, partner) in first_rows.iter().zip(&mut found) {
        let Some(places) = free.get_mut(&name(first, rows, row.key)) else {
            continue;
        };
        let own = number(first, rows, row.key);
        let same = places
            .iter()
            .position(|place| number(other, rows, other_rows[*place].key) == own);
        *partner = same.map(|at| places.remove(at));
    }
    for (row, partner) in first_rows.iter().zip(&mut found) {
        if partner.is_none() {
            let places = free.get_mut(&name(first, rows, row.key));
            *partner = places.and_then(Vec::pop);
        }
    }
    found
}

/// Counts the other profile's samples of an event in the same bins, for the rows that the options choose.
pub(crate) fn compare(
    selected: &Selected,
    other: &Other,
    event: usize,
    options: &BinOptions,
    rows: TimelineRows,
) -> Result<OtherRows, Failure> {
    let there = &other.selected;
    let mut found = OtherRows {
        answer: None,
        rows: Vec::new(),
        facts: other.facts.clone(),
    };
    let matched = both(&selected.profile, &there.profile);
    let same = matched.iter().find(|both| both.of[0] == Some(event));
    let lacks = |what: &str| {
        format!(
            "{} has no {what}, so that it is not drawn",
            there.loaded.path
        )
    };
    let Some(event_there) = same.and_then(|both| both.of[1]) else {
        let name = texts::name(selected.profile.events()[event].name());
        found.facts.add(
            Severity::Warning,
            "not_in_other",
            lacks(&format!("samples of {name}")),
            json!(there.loaded.index),
        );
        return Ok(found);
    };
    let Some(duration) = there.loaded.duration else {
        found.facts.add(
            Severity::Warning,
            "not_in_other",
            lacks("sample with a time"),
            json!(there.loaded.index),
        );
        return Ok(found);
    };
    if rows == TimelineRows::Cpu && !there.loaded.has_cpus {
        found.facts.add(
            Severity::Warning,
            "not_in_other",
            lacks("sample with a CPU"),
            json!(there.loaded.index),
        );
        return Ok(found);
    }
    // Partners are sought among all rows, whatever range is asked for.
    let slices = options.slices;
    let number = NonZeroU64::new(slices.number.into()).unwrap_or(NonZeroU64::MIN);
    let all = BinOptions {
        slices: TimeSlices {
            width: slices.width.saturating_mul(number),
            number: 1,
            ..slices
        },
        rows: 0..usize::MAX,
        ..options.clone()
    };
    let whole = selected.profile.binned(event, &all)?;
    let whole_there = there.profile.binned(event_there, &all)?;
    let partner = partners(
        rows,
        (&selected.profile, &whole.rows),
        (&there.profile, &whole_there.rows),
    );
    let end = options.rows.end.min(partner.len());
    let shown = &partner[options.rows.start.min(end)..end];
    let wanted = shown.iter().flatten().max().map_or(0, |last| last + 1);
    let most = MOST_VALUES / slices.number.max(1) as usize;
    if wanted > most {
        found.facts.add(
            Severity::Warning,
            "other_rows_left_out",
            format!(
                "{} has so many rows that only its {most} heaviest are drawn",
                there.loaded.path
            ),
            json!(most),
        );
    }
    let binned = there.profile.binned(
        event_there,
        &BinOptions {
            rows: 0..wanted.min(most),
            ..options.clone()
        },
    )?;
    let mut is_matched = vec![false; whole_there.rows.len()];
    for place in partner.iter().flatten() {
        is_matched[*place] = true;
    }
    let (mut unmatched_rows, mut unmatched_samples) = (0, 0);
    for (row, is_matched) in whole_there.rows.iter().zip(is_matched) {
        if !is_matched {
            unmatched_rows += 1;
            unmatched_samples += row.total.samples;
        }
    }
    found.rows = shown
        .iter()
        .map(|place| {
            let row = binned.rows.get((*place)?)?;
            let (name, number) = label(there, rows, row.key);
            Some(TimelineOtherRow {
                name: texts::name(&name),
                number,
                samples: row.total.samples,
                weight: row.total.weight,
                values: row.bins.clone(),
            })
        })
        .collect();
    found.answer = Some(TimelineOther {
        profile: there.loaded.index,
        generation: there.loaded.generation,
        end_ns: duration.saturating_add(1),
        samples: sum(&whole_there),
        unmatched_rows,
        unmatched_samples,
        peak: peak(&found.rows),
    });
    Ok(found)
}

fn sum(binned: &Binned) -> u64 {
    binned.rows.iter().map(|row| row.total.samples).sum()
}

fn peak(rows: &[Option<TimelineOtherRow>]) -> u64 {
    let values = rows.iter().flatten().flat_map(|row| &row.values);
    values.copied().max().unwrap_or(0)
}
