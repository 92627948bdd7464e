//! Samples counted by thread, process or CPU and by slice of time, for a timeline.

use crate::counts::counter::Count;
use crate::hash::FxBuildHasher;
use crate::profile::{EventProfile, LoggedSample, Profile};
use crate::rows::hierarchy::TimeSlices;
use crate::selecting::selection::SelectError;
use hashbrown::HashMap;
use std::ops::Range;

/// The kind of a timeline's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinnedBy {
    /// All samples, as one row.
    Everything,
    /// A thread; needs [`crate::LoadOptions::threads`].
    Thread,
    /// A process; needs [`crate::LoadOptions::threads`].
    Process,
    /// A CPU; needs [`crate::LoadPlan::cpus`].
    Cpu,
}

/// Options of a timeline: the rows, the slices of time and the values.
#[derive(Clone, Debug)]
pub struct BinOptions {
    /// The kind of the rows.
    pub by: BinnedBy,
    /// The slices of time. Samples outside of all slices are not counted.
    pub slices: TimeSlices,
    /// Whether bins hold sums of periods, else numbers of samples.
    pub weights: bool,
    /// The rows to return, the heaviest first. Bins cost memory, so only these rows get some.
    pub rows: Range<usize>,
}

/// One row of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinnedRow {
    /// The thread, process or CPU (`u32::MAX` for samples that do not state theirs); 0 for everything.
    pub key: u32,
    /// The row's samples within the slices.
    pub total: Count,
    /// The time of the first of these samples, in nanoseconds since the recording's first sample.
    pub first: u64,
    /// The time of the last one.
    pub last: u64,
    /// By slice.
    pub bins: Vec<u64>,
}

/// A timeline of one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binned {
    /// The rows that were asked for, the heaviest first.
    pub rows: Vec<BinnedRow>,
    /// The number of all rows that have samples within the slices.
    pub total_rows: usize,
    /// The samples without a time, which no slice counts.
    pub untimed: Count,
}

impl Profile {
    /// Counts the samples of an event (an index of [`Profile::events`]) by row and by slice of time.
    ///
    /// # Errors
    /// [`SelectError`] where the profile was not loaded with what this needs: [`crate::LoadPlan::log`], and what
    /// [`BinOptions::by`] says.
    pub fn binned(&self, event: usize, options: &BinOptions) -> Result<Binned, SelectError> {
        if !self.has_times() {
            return Err(SelectError::NoTimes);
        }
        match options.by {
            BinnedBy::Thread | BinnedBy::Process if !self.options.threads => {
                return Err(SelectError::NoThreads);
            }
            BinnedBy::Cpu if !self.by_cpu => return Err(SelectError::NoCpus),
            _ => {}
        }
        let Some(event) = self.events.get(event) else {
            return Ok(Binned::default());
        };
        let keys: Vec<u32> = self
            .sample_keys
            .iter()
            .map(|key| match options.by {
                BinnedBy::Everything => 0,
                BinnedBy::Thread => key.thread.unwrap_or(u32::MAX),
                BinnedBy::Process => key.thread.map_or(u32::MAX, |thread| {
                    self.tasks.threads()[thread as usize].process
                }),
                BinnedBy::Cpu => key.cpu.unwrap_or(u32::MAX),
            })
            .collect();
        let mut binned = Binned::default();
        let mut rows = all_rows(event, &keys, options, &mut binned.untimed);
        binned.total_rows = rows.len();
        rows.sort_by_key(|row| (std::cmp::Reverse(row.total.weight), row.key));
        let end = options.rows.end.min(rows.len());
        binned.rows = rows
            .drain(options.rows.start.min(end)..end)
            .map(|row| BinnedRow {
                bins: vec![0; options.slices.number as usize],
                ..row
            })
            .collect();
        fill(event, &keys, options, &mut binned.rows);
        Ok(binned)
    }
}

/// The slice of a sample, if it lies in one.
#[inline]
fn slice_of(slices: &TimeSlices, elapsed: u64) -> Option<usize> {
    let slice = elapsed.checked_sub(slices.start)? / slices.width;
    usize::try_from(slice)
        .ok()
        .filter(|slice| *slice < slices.number as usize)
}

/// All rows without their bins.
fn all_rows(
    event: &EventProfile,
    keys: &[u32],
    options: &BinOptions,
    untimed: &mut Count,
) -> Vec<BinnedRow> {
    let mut rows: Vec<BinnedRow> = Vec::new();
    let mut ids: HashMap<u32, usize, FxBuildHasher> = HashMap::default();
    event.samples(|sample| {
        let LoggedSample {
            elapsed,
            sample_key,
            ..
        } = sample;
        let Some(elapsed) = elapsed else {
            untimed.add_sample(sample.weight);
            return;
        };
        if slice_of(&options.slices, elapsed).is_none() {
            return;
        }
        let key = keys[sample_key as usize];
        let id = *ids.entry(key).or_insert_with(|| {
            rows.push(BinnedRow {
                key,
                total: Count::default(),
                first: elapsed,
                last: elapsed,
                bins: Vec::new(),
            });
            rows.len() - 1
        });
        let row = &mut rows[id];
        row.total.add_sample(sample.weight);
        row.first = row.first.min(elapsed);
        row.last = row.last.max(elapsed);
    });
    rows
}

/// Counts the bins of the rows that are returned.
fn fill(event: &EventProfile, keys: &[u32], options: &BinOptions, rows: &mut [BinnedRow]) {
    let ids: HashMap<u32, usize, FxBuildHasher> = rows
        .iter()
        .enumerate()
        .map(|(id, row)| (row.key, id))
        .collect();
    // By sample key, so that the loop over samples looks nothing up.
    let row_of: Vec<Option<usize>> = keys.iter().map(|key| ids.get(key).copied()).collect();
    event.samples(|sample| {
        let slice = sample
            .elapsed
            .and_then(|elapsed| slice_of(&options.slices, elapsed));
        if let (Some(slice), Some(row)) = (slice, row_of[sample.sample_key as usize]) {
            let bin = &mut rows[row].bins[slice];
            let value = if options.weights { sample.weight } else { 1 };
            *bin = bin.saturating_add(value);
        }
    });
}
