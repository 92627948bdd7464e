//! Counts along the levels of a table, of one profile or of several whose rows are matched by name.

mod same;

use crate::Input;
use crate::labels::Labels;
use dioptra_profile::{
    Dimension, Estimate, HierarchyOptions, Profile, SelectError, SelfAndTotal, Slices, TimeSlices,
    aggregate, hierarchy,
};
pub(crate) use same::Match;
use same::Same;
use std::collections::HashMap;
use std::num::NonZeroU64;

/// An event of a table: of each profile the one that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEvent {
    /// Its name.
    pub name: String,
    /// By profile: its index in [`Profile::events`]; `None` where it was not recorded.
    pub of: Vec<Option<usize>>,
}

impl TableEvent {
    /// The events of all profiles that sampled anything, those of one name together, in the order of the profiles.
    pub fn all(profiles: &[&Profile]) -> Vec<TableEvent> {
        let mut events: Vec<TableEvent> = Vec::new();
        for (place, profile) in profiles.iter().enumerate() {
            for index in profile.sampled_events() {
                let name = profile.events()[index].name();
                // One profile may have several events of one name.
                let known = events
                    .iter_mut()
                    .find(|event| event.name == name && event.of[place].is_none());
                match known {
                    Some(event) => event.of[place] = Some(index),
                    None => {
                        let mut of = vec![None; profiles.len()];
                        of[place] = Some(index);
                        events.push(TableEvent {
                            name: name.to_owned(),
                            of,
                        });
                    }
                }
            }
        }
        events
    }
}

/// What a table counts, and how.
pub(crate) struct GridOptions<'a> {
    pub levels: &'a [Dimension],
    pub events: &'a [TableEvent],
    pub children: bool,
    /// Estimates that know each sample's weight.
    pub estimates: bool,
    /// Each profile keeps counts of its own; else they are summed.
    pub apart: bool,
    pub matching: Match,
}

/// One row: the place of a key in the hierarchy.
#[derive(Clone, Copy)]
pub(crate) struct GridRow {
    pub parent: Option<usize>,
    pub level: usize,
    /// The profile that has this row first, and its key there.
    pub input: usize,
    pub key: u32,
}

/// What a row counts of an event.
#[derive(Clone, Copy, Default)]
pub(crate) struct Measure {
    pub count: SelfAndTotal,
    /// Of `own`.
    pub estimate: Estimate,
}

impl Measure {
    pub(crate) fn add(&mut self, other: Measure) {
        self.count.own.add(other.count.own);
        self.count.total.add(other.count.total);
        self.estimate.add(other.estimate);
    }
}

/// Rows with their counts: each row stands behind the one above it.
pub(crate) struct Grid {
    pub rows: Vec<GridRow>,
    /// By row, slot and event.
    measures: Vec<Measure>,
    slots: usize,
    events: usize,
}

impl Grid {
    /// # Errors
    /// As [`hierarchy`].
    pub(crate) fn new(
        inputs: &[Input<'_>],
        labels: &Labels,
        options: &GridOptions<'_>,
    ) -> Result<Grid, SelectError> {
        let slots = if options.apart { inputs.len() } else { 1 };
        let mut grid = Grid {
            rows: Vec::new(),
            measures: Vec::new(),
            slots,
            events: options.events.len(),
        };
        let mut same = (inputs.len() > 1 || options.matching == Match::Versions)
            .then(|| Same::new(inputs, options.matching));
        let mut known = HashMap::new();
        for (place, input) in inputs.iter().enumerate() {
            let slot = if options.apart { place } else { 0 };
            let events: Vec<(usize, usize)> = options
                .events
                .iter()
                .enumerate()
                .filter_map(|(column, event)| Some((column, event.of[place]?)))
                .collect();
            let found = rows_of(input, &events, labels, options)?;
            let mut ids = Vec::with_capacity(found.rows.len());
            for (index, row) in found.rows.iter().enumerate() {
                let parent = row.parent.map(|parent: usize| ids[parent]);
                let new = GridRow {
                    parent,
                    level: row.level,
                    input: place,
                    key: row.key,
                };
                let id = match &mut same {
                    None => grid.push(new),
                    Some(same) => {
                        let key = same.key(place, options.levels[row.level], row.key);
                        *known
                            .entry((parent, row.level, key))
                            .or_insert_with(|| grid.push(new))
                    }
                };
                ids.push(id);
                for (column, measure) in found.of(index) {
                    let at = grid.index(id, slot, column);
                    grid.measures[at].add(measure);
                }
            }
        }
        Ok(grid)
    }

    fn push(&mut self, row: GridRow) -> usize {
        self.rows.push(row);
        let length = self.rows.len() * self.slots * self.events;
        self.measures.resize(length, Measure::default());
        self.rows.len() - 1
    }

    #[inline]
    fn index(&self, row: usize, slot: usize, event: usize) -> usize {
        (row * self.slots + slot) * self.events + event
    }

    /// What a row counts of an event; `slot` is 0 unless profiles were kept apart.
    #[inline]
    pub(crate) fn measure(&self, row: usize, slot: usize, event: usize) -> Measure {
        self.measures[self.index(row, slot, event)]
    }

    /// What a row counts, by event.
    pub(crate) fn measures(&self, row: usize, slot: usize) -> &[Measure] {
        let first = self.index(row, slot, 0);
        &self.measures[first..first + self.events]
    }
}

/// The rows of one profile.
struct Found {
    rows: Vec<FoundRow>,
    /// By row: which of its measures is the first, and where they end.
    firsts: Vec<usize>,
    /// With the column of their event.
    measures: Vec<(usize, Measure)>,
}

struct FoundRow {
    parent: Option<usize>,
    level: usize,
    key: u32,
}

impl Found {
    fn of(&self, row: usize) -> impl Iterator<Item = (usize, Measure)> + '_ {
        let end = self.firsts.get(row + 1).copied();
        let range = self.firsts[row]..end.unwrap_or(self.measures.len());
        self.measures[range].iter().copied()
    }
}

fn rows_of(
    input: &Input<'_>,
    events: &[(usize, usize)],
    labels: &Labels,
    options: &GridOptions<'_>,
) -> Result<Found, SelectError> {
    let Input { profile, names, .. } = *input;
    let indices: Vec<usize> = events.iter().map(|(_, index)| *index).collect();
    let mut found = Found {
        rows: Vec::new(),
        firsts: Vec::new(),
        measures: Vec::new(),
    };
    if let [dimension] = *options.levels
        && !options.estimates
        && !matches!(dimension, Dimension::Block | Dimension::Time)
    {
        // One level costs less by itself.
        for row in aggregate(profile, names, dimension, &indices) {
            found.firsts.push(found.measures.len());
            found.rows.push(FoundRow {
                parent: None,
                level: 0,
                key: row.key,
            });
            for ((column, _), count) in events.iter().zip(row.counts) {
                let estimate = Estimate::of(count.own);
                found.measures.push((*column, Measure { count, estimate }));
            }
        }
        return Ok(found);
    }
    let block_of = |frame| input.blocks.map_or(0, |blocks| blocks.of(frame));
    let counted = hierarchy(
        profile,
        names,
        options.levels,
        &indices,
        &HierarchyOptions {
            children: options.children,
            estimates: options.estimates,
            blocks: input.blocks.is_some().then_some(&block_of),
            slices: labels.slices,
        },
    )?;
    for (index, row) in counted.rows().enumerate() {
        found.firsts.push(found.measures.len());
        found.rows.push(FoundRow {
            parent: row.parent,
            level: row.level,
            key: row.key,
        });
        for cell in counted.cells(index) {
            let event = cell.event as usize;
            let estimate = match options.estimates {
                true => cell.estimate,
                false => Estimate::of(cell.count.own),
            };
            let measure = Measure {
                count: cell.count,
                estimate,
            };
            found.measures.push((events[event].0, measure));
        }
    }
    Ok(found)
}

/// Slices of time that hold the samples of all profiles, each of which begins at its own first sample.
pub(crate) fn slices(inputs: &[Input<'_>], slices: Slices) -> TimeSlices {
    let each: Vec<TimeSlices> = inputs
        .iter()
        .filter_map(|input| input.profile.time_slices(slices))
        .collect();
    let Some(first) = each.first() else {
        return TimeSlices::default();
    };
    if each.len() == 1 {
        return *first;
    }
    let start = each.iter().map(|slices| slices.start).min().unwrap_or(0);
    let end = |slices: &TimeSlices| slices.span(slices.number.saturating_sub(1)).1;
    let end = each.iter().map(end).max().unwrap_or(0);
    let length = end.saturating_sub(start).max(1);
    let width = match slices {
        Slices::Number(number) => length.div_ceil(number.get().into()),
        Slices::Width(width) => width.get(),
    };
    let width = width.max(length.div_ceil(u64::from(u32::MAX - 1))).max(1);
    TimeSlices {
        start,
        width: NonZeroU64::new(width).unwrap_or(NonZeroU64::MIN),
        number: u32::try_from(length.div_ceil(width)).unwrap_or(u32::MAX - 1),
    }
}
