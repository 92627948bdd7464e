//! `/api/timeline`: samples by row and bin of time.

use crate::api::{
    RowKeys, TimelineAnswer, TimelineEvent, TimelineRequest, TimelineRow, TimelineRows,
    TimelineValue,
};
use crate::failure::Failure;
use crate::jobs::Ticket;
use crate::other::Other;
use crate::selected::Selected;
use crate::server::Shared;
use crate::texts;
use crate::timeline_changes::compare;
use dioptra_profile::{BinOptions, BinnedBy, BinnedRow, GapsOf, SelectError, TimeSlices};
use dioptra_report::profile_facts;
use dioptra_tables::Severity;
use std::num::NonZeroU64;

/// The largest number of bins in a row.
const MOST_BINS: u32 = 4000;
/// The largest number of bins in all rows of an answer.
const MOST_VALUES: usize = 1 << 20;

/// The slices of time that the bins are.
fn slices(from: u64, to: u64, bins: u32) -> TimeSlices {
    let length = to.saturating_sub(from).max(1);
    let width = length.div_ceil(u64::from(bins)).max(1);
    TimeSlices {
        start: from,
        width: NonZeroU64::new(width).unwrap_or(NonZeroU64::MIN),
        // No more than `bins`.
        number: u32::try_from(length.div_ceil(width)).unwrap_or(bins),
    }
}

/// Answers `/api/timeline`.
pub(crate) fn answer(
    shared: &Shared,
    request: &TimelineRequest,
    ticket: &Ticket,
) -> Result<TimelineAnswer, Failure> {
    let mut selection = request.selection.clone();
    let time = request.span.or(selection.time).unwrap_or_default();
    if request.span.is_some() {
        // The span is counted in full, so that the selected time can be drawn as a part of it.
        selection.time = None;
    }
    let selected = Selected::of(shared, &selection, false)?;
    ticket.check()?;
    let loaded = &selected.loaded;
    let duration = loaded.duration.ok_or(SelectError::NoTimes)?;
    let end = duration.saturating_add(1);
    let (from, to) = (time.0.unwrap_or(0), time.1.unwrap_or(end));
    let bins = request.bins.unwrap_or(500);
    if !(1..=MOST_BINS).contains(&bins) {
        return Err(Failure::parameter("bins", format!("is 1 to {MOST_BINS}")));
    }
    if from >= to {
        return Err(Failure::parameter(
            "span",
            "begins behind the recording's end",
        ));
    }
    let slices = slices(from, to, bins);
    let rows = request.rows.unwrap_or_default();
    let first = request.from.unwrap_or(0);
    let most = MOST_VALUES / slices.number.max(1) as usize;
    let count = request.count.unwrap_or(100).min(most);
    let event = selected.first_event()?;
    let options = BinOptions {
        by: match rows {
            TimelineRows::Thread => BinnedBy::Thread,
            TimelineRows::Process => BinnedBy::Process,
            TimelineRows::Cpu => BinnedBy::Cpu,
            TimelineRows::All => BinnedBy::Everything,
        },
        slices,
        weights: request.value == Some(TimelineValue::Weight),
        rows: first..first.saturating_add(count),
    };
    let binned = selected.profile.binned(event, &options)?;
    let mut other = match request.with {
        Some(with) => {
            ticket.check()?;
            let other = Other::of(shared, &selected, &selection, with, false)?;
            Some(compare(&selected, &other, event, &options, rows)?)
        }
        None => None,
    };
    let values = binned.rows.iter().flat_map(|row| &row.bins);
    let peak = values.copied().max().unwrap_or(0);
    let untimed = binned.untimed.samples;
    let of_event = &selected.profile.events()[event];
    let mut facts = profile_facts(&selected.profile, &selected.named().names, &[event]);
    let left_out = selected.profile.switches_left_out();
    if left_out > 0 {
        facts.add(
            Severity::Warning,
            "switches_left_out",
            format!("{left_out} times off the CPU are not shown: the recording has too many"),
            left_out,
        );
    }
    let mut partners = Vec::new();
    let mut answer_other = None;
    if let Some(found) = &mut other {
        facts.append(std::mem::take(&mut found.facts));
        partners = std::mem::take(&mut found.rows);
        answer_other = found.answer.take();
    }
    partners.resize_with(binned.rows.len(), || None);
    Ok(TimelineAnswer {
        other: answer_other,
        profile: loaded.index,
        generation: loaded.generation,
        event: TimelineEvent {
            key: loaded.keys.event(event),
            name: texts::name(of_event.name()),
            unit: texts::unit(of_event),
        },
        start_ns: from,
        end_ns: slices.span(slices.number.saturating_sub(1)).1,
        bin_ns: slices.width.get(),
        bins: slices.number,
        total_rows: binned.total_rows,
        rows: binned
            .rows
            .into_iter()
            .zip(partners)
            .map(|(binned, other)| TimelineRow {
                other,
                ..row(&selected, rows, binned, &slices)
            })
            .collect(),
        peak,
        untimed,
        facts: texts::facts(&facts),
    })
}

/// By bin: the thousandths of it without a CPU, or without a thread.
fn off(selected: &Selected, rows: TimelineRows, key: u32, slices: &TimeSlices) -> Option<Vec<u16>> {
    let of = match rows {
        TimelineRows::Thread => GapsOf::Thread(key),
        TimelineRows::Cpu => GapsOf::Cpu(key),
        TimelineRows::Process | TimelineRows::All => return None,
    };
    let gaps = selected.profile.gaps(of, slices)?;
    let width = u128::from(slices.width.get());
    // No slice has more gaps than time.
    let part = |gap: u64| (u128::from(gap) * 1000 / width).min(1000) as u16;
    Some(gaps.into_iter().map(part).collect())
}

fn row(
    selected: &Selected,
    rows: TimelineRows,
    binned: BinnedRow,
    slices: &TimeSlices,
) -> TimelineRow {
    let keys = &selected.loaded.keys;
    let tasks = selected.profile.tasks();
    let mut key = RowKeys::default();
    let mut process_name = None;
    match rows {
        TimelineRows::Thread => {
            if let Some(thread) = tasks.threads().get(binned.key as usize) {
                key.thread = Some(keys.thread(binned.key));
                key.process = Some(keys.process(thread.process));
                process_name = Some(texts::name(&tasks.process_name(thread.process)));
            }
        }
        TimelineRows::Process => {
            let process = tasks.processes().get(binned.key as usize);
            key.process = process.map(|_| keys.process(binned.key));
        }
        TimelineRows::Cpu if binned.key != u32::MAX => key.cpu = Some(binned.key.to_string()),
        TimelineRows::Cpu | TimelineRows::All => {}
    }
    let (name, number) = label(selected, rows, binned.key);
    TimelineRow {
        other: None,
        key,
        name: texts::name(&name),
        number,
        process_name,
        samples: binned.total.samples,
        weight: binned.total.weight,
        first_ns: binned.first,
        last_ns: binned.last,
        off: off(selected, rows, binned.key, slices),
        values: binned.bins,
    }
}

/// The name of a row, and the number of its thread, process or CPU.
pub(crate) fn label(selected: &Selected, rows: TimelineRows, key: u32) -> (String, Option<u32>) {
    let tasks = selected.profile.tasks();
    match rows {
        TimelineRows::Thread => {
            let thread = tasks.threads().get(key as usize);
            (tasks.thread_name(key), thread.map(|thread| thread.tid))
        }
        TimelineRows::Process => {
            let process = tasks.processes().get(key as usize);
            (tasks.process_name(key), process.map(|process| process.pid))
        }
        TimelineRows::Cpu if key != u32::MAX => (format!("CPU {key}"), Some(key)),
        TimelineRows::Cpu => ("unknown CPU".to_owned(), None),
        TimelineRows::All => ("all".to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_cover_the_span() {
        for (from, to, bins) in [(0, 1, 500), (0, 1000, 3), (5, 12, 7), (0, u64::MAX, 4000)] {
            let slices = slices(from, to, bins);
            assert!(slices.number <= bins);
            assert!(slices.span(slices.number - 1).1 >= to);
            assert!(slices.number == 1 || slices.span(slices.number - 1).0 < to);
        }
    }
}
