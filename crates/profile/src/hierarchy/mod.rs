//! Counts along several dimensions at once: processes, in each its modules, in each its functions, in any order.

mod build;
mod keys;
mod slices;
pub(crate) mod totals;

use crate::aggregate::{Dimension, SelfAndTotal};
use crate::counts::Count;
use crate::frames::FrameId;
use crate::hash::{FxBuildHasher, mix};
use crate::names::Names;
use crate::profile::{EventProfile, Profile};
use crate::select::SelectError;
use crate::spread::Estimate;
use hashbrown::{HashMap, HashTable};
use keys::Keys;
pub use slices::{Slices, TimeSlices};

/// How many levels a hierarchy may have.
const LEVELS: usize = 16;

/// What to compute beside self counts, and what some dimensions need.
#[derive(Clone, Copy, Default)]
pub struct HierarchyOptions<'a> {
    /// Totals of what was called too; needs [`crate::LoadOptions::call_chains`] or inlined functions among the names,
    /// else totals equal self counts.
    pub children: bool,
    /// Estimates with errors too.
    pub estimates: bool,
    /// The block of a place, for [`Dimension::Block`]: any numbers, of which equal ones are one block.
    pub blocks: Option<&'a dyn Fn(FrameId) -> u32>,
    /// How [`Dimension::Time`] is sliced; see [`Profile::time_slices`].
    pub slices: TimeSlices,
}

/// Counts along several dimensions, as [`hierarchy`] makes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hierarchy {
    rows: Vec<HierarchyRow>,
    /// By row: where its cells begin; one more at the end.
    firsts: Vec<usize>,
    cells: Vec<HierarchyCell>,
    /// By cell; empty unless asked for.
    estimates: Vec<Estimate>,
}

/// One row of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HierarchyRow {
    /// The row above it; always an earlier one.
    pub parent: Option<usize>,
    /// Which of the levels it belongs to, from 0.
    pub level: usize,
    /// As [`crate::AggregateRow::key`], for the level's dimension.
    pub key: u32,
}

/// What one row counts of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HierarchyCell {
    /// Which of the events asked for, from 0.
    pub event: u32,
    /// `own` is exactly the sum of the rows below; `total` is what was counted at any place that this row stands for or
    /// anything it called, each sample once.
    pub count: SelfAndTotal,
}

impl Hierarchy {
    /// All rows: each before those below it, the rows below one by rising key.
    pub fn rows(&self) -> &[HierarchyRow] {
        &self.rows
    }

    fn range(&self, row: usize) -> std::ops::Range<usize> {
        let at = |index: usize| self.firsts.get(index).copied().unwrap_or(self.cells.len());
        at(row)..at(row.saturating_add(1))
    }

    /// What a row counts, by rising event; events of which it counts nothing are left out.
    pub fn cells(&self, row: usize) -> &[HierarchyCell] {
        &self.cells[self.range(row)]
    }

    /// What a row counts of the event with this place among those asked for.
    pub fn count(&self, row: usize, event: usize) -> SelfAndTotal {
        self.find(row, event)
            .map_or_else(SelfAndTotal::default, |cell| self.cells[cell].count)
    }

    /// What a row's `own` stands for and its error; zero unless estimates were asked for.
    pub fn estimate(&self, row: usize, event: usize) -> Estimate {
        self.find(row, event)
            .and_then(|cell| self.estimates.get(cell).copied())
            .unwrap_or_default()
    }

    fn find(&self, row: usize, event: usize) -> Option<usize> {
        self.range(row)
            .find(|cell| self.cells[*cell].event as usize == event)
    }
}

/// The counts of `profile` along all `levels`, the first one outermost, for `events` (indices of
/// [`Profile::events`]). Only combinations that count anything have rows, and only events that a row counts have cells,
/// so memory grows with what was seen.
///
/// Functions need `names`, lines [`Names::find_lines`]. Where `names` know inlined functions, self counts belong to the
/// innermost function of a place and totals to all functions there, each with its own line.
///
/// # Errors
/// [`SelectError`] where the profile was not loaded with what a level needs: [`crate::LoadOptions::threads`] for
/// programs, processes, names and threads, [`crate::LoadPlan::cpus`] for CPUs and sockets, [`crate::LoadPlan::log`] for
/// time slices; or where there are no levels or too many.
pub fn hierarchy(
    profile: &Profile,
    names: &Names,
    levels: &[Dimension],
    events: &[usize],
    options: &HierarchyOptions<'_>,
) -> Result<Hierarchy, SelectError> {
    if levels.is_empty() || levels.len() > LEVELS {
        return Err(SelectError::Levels);
    }
    let keys = Keys::new(profile, names, levels, options)?;
    let mut growing = Growing::new(levels.len());
    // Without stacks only functions that were put into others have callers.
    let has_stacks = profile.options().call_chains;
    let totals = options.children && keys.places() > 0 && (has_stacks || keys.of_context());
    let order = (totals && has_stacks).then(|| profile.stack_order());
    let mut columns = Vec::new();
    let mut scratch = Scratch::default();
    for index in events {
        let Some(event) = profile.events().get(*index) else {
            columns.push(Column::default());
            continue;
        };
        let as_own = |level| !totals || keys.depth(level) == 0;
        if !totals && !keys.of_time() {
            own_of_cells(profile, event, &keys, &mut growing, options, &mut scratch);
            columns.push(scratch.finish(&growing, totals, as_own));
            continue;
        }
        let hits = Hits::new(event, &keys, &mut growing, options);
        own(profile, &keys, &mut growing, &hits, &mut scratch);
        if totals {
            totals::add(names, &keys, &mut growing, &hits, order, &mut scratch);
        }
        columns.push(scratch.finish(&growing, totals, as_own));
    }
    // Making rows needs most memory: what it does not use goes before.
    drop((scratch, keys));
    let nodes = std::mem::take(&mut growing.nodes);
    drop(growing);
    Ok(build::build(&nodes, columns))
}

/// A row while the hierarchy grows.
#[derive(Clone, Copy)]
struct Node {
    /// The row above; node 0 is above all.
    parent: u32,
    key: u32,
    /// From 1; 0 is node 0.
    level: u8,
}

/// The rows that were seen.
struct Growing {
    nodes: Vec<Node>,
    ids: HashTable<u32>,
    levels: usize,
    /// Of a group and a branch of places: its row on the last level.
    ends: HashMap<(u32, u32), u32, FxBuildHasher>,
    /// The keys of a group that do not depend on the place, and the slice of time.
    groups: Vec<Group>,
    group_ids: HashMap<Group, u32, FxBuildHasher>,
}

/// Samples with the same keys on all levels that do not depend on their places.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Group {
    /// What their parts have in common.
    part: u32,
    slice: u32,
}

impl Growing {
    fn new(levels: usize) -> Self {
        Growing {
            nodes: vec![Node {
                parent: 0,
                key: 0,
                level: 0,
            }],
            ids: HashTable::new(),
            levels,
            ends: HashMap::default(),
            groups: Vec::new(),
            group_ids: HashMap::default(),
        }
    }

    fn group(&mut self, group: Group) -> u32 {
        *self.group_ids.entry(group).or_insert_with(|| {
            self.groups.push(group);
            // No more groups than samples.
            u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn child(&mut self, parent: u32, key: u32) -> u32 {
        let hash = |node: &Node| mix(u64::from(node.parent), u64::from(node.key));
        let level = self.nodes[parent as usize].level + 1;
        let node = Node { parent, key, level };
        let nodes = &self.nodes;
        let known = self.ids.find(hash(&node), |id| {
            let known = nodes[*id as usize];
            (known.parent, known.key) == (parent, key)
        });
        if let Some(id) = known {
            return *id;
        }
        // No more rows than samples and levels; past 32 bits the last ones share a row.
        let Ok(id) = u32::try_from(self.nodes.len()) else {
            return u32::MAX;
        };
        self.ids
            .insert_unique(hash(&node), id, |id| hash(&nodes[*id as usize]));
        self.nodes.push(node);
        id
    }

    /// The row on the last level of a group's samples on a branch of places.
    fn end(&mut self, keys: &Keys, group: u32, branch: u32) -> u32 {
        if let Some(node) = self.ends.get(&(group, branch)) {
            return *node;
        }
        let mut node = 0;
        for level in 0..self.levels {
            let key = keys.key(level, self.groups[group as usize], branch);
            node = self.child(node, key);
        }
        self.ends.insert((group, branch), node);
        node
    }
}

/// Samples of one event that share a group and a place.
struct Hits {
    list: Vec<Hit>,
    /// By hit; empty unless asked for.
    estimates: Vec<Estimate>,
}

#[derive(Clone, Copy)]
struct Hit {
    group: u32,
    place: u32,
    count: Count,
}

impl Hits {
    fn new(
        event: &EventProfile,
        keys: &Keys,
        growing: &mut Growing,
        options: &HierarchyOptions<'_>,
    ) -> Hits {
        let mut hits = Hits {
            list: Vec::new(),
            estimates: Vec::new(),
        };
        if keys.of_time() {
            hits.slice(event, keys, growing, options);
            return hits;
        }
        for (cell, count) in event.counts.iter() {
            let group = growing.group(Group {
                part: keys.part(cell.part),
                slice: 0,
            });
            hits.list.push(Hit {
                group,
                place: cell.place,
                count,
            });
            if options.estimates {
                hits.estimates.push(event.counts.estimate(cell.id));
            }
        }
        hits
    }

    /// Samples of the same cell come in runs of the same slice.
    fn slice(
        &mut self,
        event: &EventProfile,
        keys: &Keys,
        growing: &mut Growing,
        options: &HierarchyOptions<'_>,
    ) {
        // By cell: its last slice, and its hit there.
        let mut last: Vec<(u32, usize)> = Vec::new();
        event.counts.samples(|id, sample| {
            let slice = options.slices.of(sample.elapsed);
            let index = id as usize;
            if index >= last.len() {
                last.resize(index + 1, (0, usize::MAX));
            }
            if last[index].1 == usize::MAX || last[index].0 != slice {
                let cell = event.counts.cell(id);
                let group = growing.group(Group {
                    part: keys.part(cell.part),
                    slice,
                });
                last[index] = (slice, self.list.len());
                self.list.push(Hit {
                    group,
                    place: cell.place,
                    count: Count::default(),
                });
                if options.estimates {
                    self.estimates.push(Estimate::default());
                }
            }
            let at = last[index].1;
            self.list[at].count.add_sample(sample.weight);
            if options.estimates {
                let value = sample.weight as f64 * sample.factor;
                self.estimates[at].add(Estimate {
                    value,
                    variance: value * value,
                });
            }
        });
    }
}

/// One event's counts, of the nodes that count anything, by rising node.
#[derive(Default)]
struct Column {
    nodes: Vec<u32>,
    /// As `nodes`.
    own: Vec<Count>,
    /// As `nodes`; empty where they are self counts.
    totals: Vec<Count>,
    /// As `nodes`; empty unless asked for.
    estimates: Vec<Estimate>,
}

/// One event's counts by node, while they grow; its room is used again for the next event.
#[derive(Default)]
struct Scratch {
    counts: Vec<SelfAndTotal>,
    estimates: Vec<Estimate>,
}

impl Scratch {
    fn at(&mut self, node: u32) -> &mut SelfAndTotal {
        let index = node as usize;
        if index >= self.counts.len() {
            self.counts.resize(index + 1, SelfAndTotal::default());
        }
        &mut self.counts[index]
    }

    fn add_estimate(&mut self, node: u32, estimate: Estimate) {
        let index = node as usize;
        if index >= self.estimates.len() {
            self.estimates.resize(index + 1, Estimate::default());
        }
        self.estimates[index].add(estimate);
    }

    /// Adds each row's counts to the row above, and takes them all. Where `as_own` says so of a level, totals are self
    /// counts.
    fn finish(
        &mut self,
        growing: &Growing,
        totals: bool,
        as_own: impl Fn(usize) -> bool,
    ) -> Column {
        for id in (1..self.counts.len()).rev() {
            let node = growing.nodes[id];
            let count = self.counts[id].own;
            if as_own(usize::from(node.level) - 1) {
                self.counts[id].total = count;
            }
            self.counts[node.parent as usize].own.add(count);
            if let Some(estimate) = self.estimates.get(id).copied() {
                self.estimates[node.parent as usize].add(estimate);
            }
        }
        let estimated = !self.estimates.is_empty();
        let counts = |count: &SelfAndTotal| !(count.own.is_zero() && count.total.is_zero());
        let below = self.counts.get(1..).unwrap_or_default();
        let length = below.iter().filter(|count| counts(count)).count();
        let mut column = Column {
            nodes: Vec::with_capacity(length),
            own: Vec::with_capacity(length),
            totals: Vec::with_capacity(if totals { length } else { 0 }),
            estimates: Vec::with_capacity(if estimated { length } else { 0 }),
        };
        for (id, count) in (1_u32..).zip(below).filter(|(_, count)| counts(count)) {
            column.nodes.push(id);
            column.own.push(count.own);
            if totals {
                column.totals.push(count.total);
            }
            if estimated {
                let estimate = self.estimates.get(id as usize);
                column.estimates.push(estimate.copied().unwrap_or_default());
            }
        }
        self.counts.clear();
        self.estimates.clear();
        column
    }
}

/// Self counts where nothing else is needed: hits need not be collected.
fn own_of_cells(
    profile: &Profile,
    event: &EventProfile,
    keys: &Keys,
    growing: &mut Growing,
    options: &HierarchyOptions<'_>,
    scratch: &mut Scratch,
) {
    for (cell, count) in event.counts.iter() {
        let group = growing.group(Group {
            part: keys.part(cell.part),
            slice: 0,
        });
        let branch = keys.innermost(profile.leaf(cell.place));
        let node = growing.end(keys, group, branch);
        scratch.at(node).own.add(count);
        if options.estimates {
            scratch.add_estimate(node, event.counts.estimate(cell.id));
        }
    }
}

fn own(profile: &Profile, keys: &Keys, growing: &mut Growing, hits: &Hits, scratch: &mut Scratch) {
    for (index, hit) in hits.list.iter().enumerate() {
        let branch = keys.innermost(profile.leaf(hit.place));
        let node = growing.end(keys, hit.group, branch);
        scratch.at(node).own.add(hit.count);
        if let Some(estimate) = hits.estimates.get(index) {
            scratch.add_estimate(node, *estimate);
        }
    }
}
