//! Counts along the levels of a table, of one profile or of several whose rows are matched by name.

mod functions;
mod same;

use crate::Input;
use crate::events::TableEvent;
use crate::labels::Labels;
use dioptra_profile::{
    Dimension, Estimate, Hierarchy, HierarchyOptions, ModuleId, SelectError, SelfAndTotal, Slices,
    TimeSlices, aggregate, hierarchy,
};
pub(crate) use functions::MatchNotes;
pub(crate) use same::Match;
use same::Same;
pub use same::same_functions_of;
use std::collections::HashMap;
use std::num::NonZeroU64;

/// The levels and events that a table counts, and the way in which it does.
pub(crate) struct GridOptions<'a> {
    pub levels: &'a [Dimension],
    pub events: &'a [TableEvent],
    pub children: bool,
    /// Whether rows that count nothing of their own are left out, where totals are not shown.
    pub counted_only: bool,
    /// Whether estimates use each sample's weight.
    pub estimates: bool,
    /// Whether each profile keeps counts of its own; otherwise they are summed.
    pub apart: bool,
    pub matching: Match,
}

/// A row: a key of one level, below its parent.
#[derive(Clone, Copy)]
pub(crate) struct GridRow {
    pub parent: Option<usize>,
    pub level: usize,
    /// The first profile that has this row; `key` is the row's key there.
    pub input: usize,
    pub key: u32,
}

/// The counts of one event in a row.
#[derive(Clone, Copy, Default)]
pub(crate) struct Measure {
    pub count: SelfAndTotal,
    /// The estimate of the self count.
    pub estimate: Estimate,
}

impl Measure {
    pub(crate) fn add(&mut self, other: Measure) {
        self.count.own.add(other.count.own);
        self.count.total.add(other.count.total);
        self.estimate.add(other.estimate);
    }
}

/// Rows with their counts; each row comes after its parent.
pub(crate) struct Grid {
    /// Notes on the matching of functions of several profiles.
    pub notes: MatchNotes,
    rows: GridRows,
    /// For each profile and module, its number among the modules of all profiles; empty where there is one profile.
    modules: Vec<Vec<usize>>,
    slots: usize,
    events: usize,
}

enum GridRows {
    /// The rows of one profile, as they were counted.
    Counted(Box<Counted>),
    /// The rows of several profiles, matched.
    Matched {
        rows: Vec<GridRow>,
        /// The counts by row, slot and event.
        measures: Vec<Measure>,
    },
}

impl Grid {
    /// Counts the rows of all profiles and matches them.
    ///
    /// # Errors
    /// The errors of [`hierarchy`].
    pub(crate) fn new(
        inputs: &[Input<'_>],
        labels: &Labels,
        options: &GridOptions<'_>,
    ) -> Result<Grid, SelectError> {
        let slots = if options.apart { inputs.len() } else { 1 };
        let events = options.events.len();
        if let [input] = inputs
            && options.matching == Match::Equal
        {
            let counted = Counted::new(input, 0, labels, options)?;
            return Ok(Grid {
                notes: MatchNotes::default(),
                rows: GridRows::Counted(Box::new(counted)),
                modules: Vec::new(),
                slots,
                events,
            });
        }
        let same = Same::new(inputs, options.matching, options.levels);
        let functions = inputs.iter().map(|input| input.names.functions().len());
        let mut has_row: Vec<Vec<bool>> = functions.map(|number| vec![false; number]).collect();
        let (mut rows, mut measures) = (Vec::new(), Vec::new());
        let mut known = HashMap::new();
        for (place, input) in inputs.iter().enumerate() {
            let slot = if options.apart { place } else { 0 };
            let found = Counted::new(input, place, labels, options)?;
            let mut ids: Vec<usize> = Vec::with_capacity(found.rows.len());
            for index in 0..found.rows.len() {
                let row = found.row(index);
                let parent = row.parent.map(|parent| ids[parent]);
                let level = options.levels[row.level];
                let key = same.key(place, level, row.key);
                if level == Dimension::Function
                    && let Some(has_row) = has_row[place].get_mut(row.key as usize)
                {
                    *has_row = true;
                }
                let id = *known.entry((parent, row.level, key)).or_insert_with(|| {
                    rows.push(GridRow {
                        parent,
                        input: place,
                        ..row
                    });
                    measures.resize(rows.len() * slots * events, Measure::default());
                    rows.len() - 1
                });
                ids.push(id);
                found.each(index, |event, measure| {
                    let at: &mut Measure = &mut measures[(id * slots + slot) * events + event];
                    at.add(measure);
                });
            }
        }
        Ok(Grid {
            notes: same.notes(|input, function| has_row[input][function as usize]),
            rows: GridRows::Matched { rows, measures },
            modules: same.into_modules(),
            slots,
            events,
        })
    }

    /// Returns the number of a profile's module among the modules of all profiles.
    pub(crate) fn module_number(&self, input: usize, module: ModuleId) -> usize {
        let numbers = self.modules.get(input);
        let number = numbers.and_then(|numbers| numbers.get(module as usize));
        number.copied().unwrap_or(module as usize)
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        match &self.rows {
            GridRows::Counted(counted) => counted.rows.len(),
            GridRows::Matched { rows, .. } => rows.len(),
        }
    }

    /// Returns one row.
    #[inline]
    pub(crate) fn row(&self, row: usize) -> GridRow {
        match &self.rows {
            GridRows::Counted(counted) => counted.row(row),
            GridRows::Matched { rows, .. } => rows[row],
        }
    }

    /// Returns the counts of an event in a row; `slot` is 0 unless profiles were kept apart.
    #[inline]
    pub(crate) fn measure(&self, row: usize, slot: usize, event: usize) -> Measure {
        match &self.rows {
            GridRows::Counted(counted) => counted.measure(row, event),
            GridRows::Matched { measures, .. } => {
                measures[(row * self.slots + slot) * self.events + event]
            }
        }
    }

    /// Returns the counts of a row, by event.
    pub(crate) fn measures(&self, row: usize, slot: usize) -> impl Iterator<Item = Measure> + '_ {
        (0..self.events).map(move |event| self.measure(row, slot, event))
    }
}

/// The rows of one profile.
struct Counted {
    rows: Hierarchy,
    /// The profile's index.
    input: usize,
    /// For each event of the table, its index among the counted events; `None` where the profile lacks it.
    events: Vec<Option<usize>>,
    /// For each counted event, its index among the table's events.
    shown: Vec<usize>,
    has_estimates: bool,
}

impl Counted {
    fn new(
        input: &Input<'_>,
        place: usize,
        labels: &Labels,
        options: &GridOptions<'_>,
    ) -> Result<Counted, SelectError> {
        let (mut events, mut shown, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        for (column, event) in options.events.iter().enumerate() {
            events.push(event.of[place].map(|_| indices.len()));
            if let Some(index) = event.of[place] {
                shown.push(column);
                indices.push(index);
            }
        }
        Ok(Counted {
            rows: count(input, &indices, labels, options)?,
            input: place,
            events,
            shown,
            has_estimates: options.estimates,
        })
    }

    #[inline]
    fn row(&self, row: usize) -> GridRow {
        let row = self.rows.row(row);
        GridRow {
            parent: row.parent,
            level: row.level,
            input: self.input,
            key: row.key,
        }
    }

    #[inline]
    fn measure(&self, row: usize, event: usize) -> Measure {
        let Some(event) = self.events[event] else {
            return Measure::default();
        };
        let count = self.rows.count(row, event);
        let estimate = match self.has_estimates {
            true => self.rows.estimate(row, event),
            false => Estimate::of(count.own),
        };
        Measure { count, estimate }
    }

    /// Calls `visit` with each event of the table that a row counts, and the counts.
    fn each(&self, row: usize, mut visit: impl FnMut(usize, Measure)) {
        for cell in self.rows.cells(row) {
            let event = self.shown[cell.event as usize];
            visit(event, self.measure(row, event));
        }
    }
}

/// Counts the rows of one profile.
fn count(
    input: &Input<'_>,
    events: &[usize],
    labels: &Labels,
    options: &GridOptions<'_>,
) -> Result<Hierarchy, SelectError> {
    let Input { profile, names, .. } = *input;
    if let [dimension] = *options.levels
        && !options.estimates
        && !(options.counted_only && profile.options().call_chains)
        && !matches!(dimension, Dimension::Block | Dimension::Time)
        && (options.children || dimension != Dimension::Address)
    {
        // One level is counted faster without a hierarchy.
        let rows = aggregate(profile, names, dimension, events);
        return Ok(Hierarchy::of_one_level(rows));
    }
    let block_of = |frame| input.blocks.map_or(0, |blocks| blocks.of(frame));
    hierarchy(
        profile,
        names,
        options.levels,
        events,
        &HierarchyOptions {
            children: options.children,
            estimates: options.estimates,
            blocks: input.blocks.is_some().then_some(&block_of),
            slices: labels.slices,
        },
    )
}

/// Returns slices of time that hold the samples of all profiles, each of which begins at its own first sample.
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
