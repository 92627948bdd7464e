//! Counts along several dimensions at once, such as processes, their modules, and the functions of these, in any order.

mod build;
mod keys;
mod leaves;
mod rows;
mod slices;
pub(crate) mod totals;

use crate::counts::counter::Count;
use crate::counts::estimate::Estimate;
use crate::hash::{FxBuildHasher, mix};
use crate::naming::names::Names;
use crate::profile::{EventProfile, Profile};
use crate::rows::aggregate::Dimension;
use crate::selecting::selection::SelectError;
use crate::stacks::frames::FrameId;
use hashbrown::{HashMap, HashTable};
use keys::Keys;
pub use rows::{Hierarchy, HierarchyCell, HierarchyRow};
pub use slices::{Slices, TimeSlices};

/// The largest number of levels in a hierarchy.
const LEVELS: usize = 16;

/// The counts to compute beside self counts, and the settings that some dimensions need.
#[derive(Clone, Copy, Default)]
pub struct HierarchyOptions<'a> {
    /// Compute totals, which include callees. Needs [`crate::LoadOptions::call_chains`] or inlined functions among the
    /// names; otherwise totals equal self counts.
    pub children: bool,
    /// Compute estimates with their errors.
    pub estimates: bool,
    /// The block of a place, for [`Dimension::Block`]. Any numbers will do; places with equal numbers form one block.
    pub blocks: Option<&'a dyn Fn(FrameId) -> u32>,
    /// The slices of [`Dimension::Time`]; see [`Profile::time_slices`].
    pub slices: TimeSlices,
}

/// Returns the counts of `profile` along all `levels`, the first one outermost, for `events` (indices of
/// [`Profile::events`]). Only combinations with counts have rows, and a row has cells only for events that it counts.
/// Memory therefore grows with the combinations that occur.
///
/// Functions need `names`, and lines need [`Names::find_lines`]. Where `names` know inlined functions, self counts
/// belong to the innermost function of a place. Totals belong to all functions there, each with its own line.
///
/// # Errors
/// [`SelectError`] where the profile was not loaded with the data that a level needs, or where there are no levels or
/// too many. Programs, processes, names and threads need [`crate::LoadOptions::threads`]. CPUs and sockets need
/// [`crate::LoadPlan::cpus`], and time slices need [`crate::LoadPlan::log`].
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
    let mut growing = Growing::new(levels.len(), &keys);
    // Without stacks, only inlined functions have callers.
    let has_stacks = profile.options().call_chains;
    let totals = options.children && keys.places() > 0 && (has_stacks || keys.of_context());
    let order = (totals && has_stacks).then(|| profile.stack_order());
    if levels.len() > 1 && levels.ends_with(&[Dimension::Address]) && !totals && !keys.of_time() {
        return Ok(leaves::count(profile, events, keys, growing, options));
    }
    let mut columns = Vec::new();
    for index in events {
        let mut scratch = Scratch::default();
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
    // Building the rows needs the most memory, so data that it does not use is dropped first.
    drop(keys);
    Ok(build::build(growing.finish(), columns))
}

/// A row while the hierarchy grows.
#[derive(Clone, Copy)]
struct Node {
    /// The node above; node 0 is above all rows.
    parent: u32,
    key: u32,
    /// The level, from 1; node 0 has level 0.
    level: u8,
}

/// The rows found so far.
struct Growing {
    nodes: Vec<Node>,
    ids: HashTable<u32>,
    levels: usize,
    /// Whether the last level is a level of places. Then the rows below one row differ only in the last step of their
    /// branch.
    ends_in_place: bool,
    /// The node for a group and a branch of places. If the last level is a level of places, the key is the branch
    /// without its last step, and the value is the node above the row. That gives far fewer entries than rows where
    /// rows are addresses. Otherwise the value is the node on the last level.
    known: HashMap<(u32, u32), u32, FxBuildHasher>,
    /// The entry that was looked up last, since neighbours often share it.
    last: ((u32, u32), u32),
    /// The groups by number.
    groups: Vec<Group>,
    group_ids: HashMap<Group, u32, FxBuildHasher>,
    last_group: (Option<Group>, u32),
}

/// Samples with the same keys on all levels that do not depend on their places.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Group {
    /// The kind of their sample keys; see [`Keys::sample_key`].
    sample_key: u32,
    slice: u32,
}

impl Growing {
    fn new(levels: usize, keys: &Keys) -> Self {
        Growing {
            nodes: vec![Node {
                parent: 0,
                key: 0,
                level: 0,
            }],
            ids: HashTable::new(),
            levels,
            ends_in_place: keys.ends_in_place(),
            known: HashMap::default(),
            last: ((u32::MAX, u32::MAX), 0),
            groups: Vec::new(),
            group_ids: HashMap::default(),
            last_group: (None, 0),
        }
    }

    fn group(&mut self, group: Group) -> u32 {
        // Mostly the group is the one that was looked up last.
        if self.last_group.0 == Some(group) {
            return self.last_group.1;
        }
        let id = *self.group_ids.entry(group).or_insert_with(|| {
            self.groups.push(group);
            // The number of groups is at most the number of samples.
            u32::try_from(self.groups.len() - 1).unwrap_or(u32::MAX)
        });
        self.last_group = (Some(group), id);
        id
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
        // The number of rows is at most the number of samples times levels. Past 32 bits the last ones share a row.
        let Ok(id) = u32::try_from(self.nodes.len()) else {
            return u32::MAX;
        };
        self.ids
            .insert_unique(hash(&node), id, |id| hash(&nodes[*id as usize]));
        self.nodes.push(node);
        id
    }

    /// Returns the node on the last level for a group's samples on a branch of places.
    fn end(&mut self, keys: &Keys, group: u32, branch: u32) -> u32 {
        let node = self.prefix(keys, group, branch);
        match self.ends_in_place {
            true => self.child(node, keys.branches[branch as usize].key),
            false => node,
        }
    }

    /// Returns the node above the last level if that is a level of places, else the node on the last level, for a
    /// group's samples on a branch of places.
    fn prefix(&mut self, keys: &Keys, group: u32, branch: u32) -> u32 {
        let (start, levels) = match self.ends_in_place {
            true => (keys.branches[branch as usize].parent, self.levels - 1),
            false => (branch, self.levels),
        };
        let wanted = (group, start);
        if self.last.0 != wanted {
            let node = match self.known.get(&wanted) {
                Some(node) => *node,
                None => {
                    let mut node = 0;
                    for level in 0..levels {
                        let key = keys.key(level, self.groups[group as usize], branch);
                        node = self.child(node, key);
                    }
                    self.known.insert(wanted, node);
                    node
                }
            };
            self.last = (wanted, node);
        }
        self.last.1
    }

    /// Drops the tables that only growing needs.
    fn finish(self) -> Vec<Node> {
        self.nodes
    }
}

/// Samples of one event that share a group and a place.
struct Hits {
    list: Vec<Hit>,
    /// By hit; empty unless estimates were asked for.
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
                sample_key: keys.sample_key(cell.sample_key),
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

    /// Adds hits by slice of time. Consecutive samples of one cell within one slice share a hit.
    fn slice(
        &mut self,
        event: &EventProfile,
        keys: &Keys,
        growing: &mut Growing,
        options: &HierarchyOptions<'_>,
    ) {
        // By cell: its last slice, and the index of its hit in that slice.
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
                    sample_key: keys.sample_key(cell.sample_key),
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

/// One event's counts, by rising node.
#[derive(Default)]
struct Column {
    /// The nodes with counts; empty where all nodes have counts.
    nodes: Vec<u32>,
    /// Self counts, in the order of `nodes`.
    own: Vec<Count>,
    /// Totals, in the order of `nodes`; empty where they equal self counts.
    totals: Vec<Count>,
    /// Estimates, in the order of `nodes`; empty unless asked for.
    estimates: Vec<Estimate>,
}

impl Column {
    /// Returns the nodes with counts, in the order of the counts.
    fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        let all = self.nodes.is_empty();
        // Node 0 is no row.
        let first = if all { 1 } else { u32::MAX };
        let each = (first..).take(if all { self.own.len() } else { 0 });
        each.chain(self.nodes.iter().copied())
    }
}

/// One event's counts by node, while they grow.
#[derive(Default)]
struct Scratch {
    own: Vec<Count>,
    totals: Vec<Count>,
    estimates: Vec<Estimate>,
}

/// Returns the element with this index, in a list that grows as needed.
#[inline]
fn at<T: Clone + Default>(list: &mut Vec<T>, index: u32) -> &mut T {
    let index = index as usize;
    if index >= list.len() {
        list.resize(index + 1, T::default());
    }
    &mut list[index]
}

impl Scratch {
    #[inline]
    fn own(&mut self, node: u32) -> &mut Count {
        at(&mut self.own, node)
    }

    #[inline]
    fn total(&mut self, node: u32) -> &mut Count {
        at(&mut self.totals, node)
    }

    #[inline]
    fn estimate(&mut self, node: u32) -> &mut Estimate {
        at(&mut self.estimates, node)
    }

    /// Adds each row's counts to the row above. On levels for which `as_own` is true, totals are self counts.
    fn finish(mut self, growing: &Growing, totals: bool, as_own: impl Fn(usize) -> bool) -> Column {
        let length = self.own.len().max(self.totals.len()).max(1);
        self.own.resize(length, Count::default());
        if totals {
            self.totals.resize(length, Count::default());
        }
        for id in (1..length).rev() {
            let node = growing.nodes[id];
            let count = self.own[id];
            if totals && as_own(usize::from(node.level) - 1) {
                self.totals[id] = count;
            }
            self.own[node.parent as usize].add(count);
            if let Some(estimate) = self.estimates.get(id).copied() {
                self.estimates[node.parent as usize].add(estimate);
            }
        }
        let estimated = !self.estimates.is_empty();
        if estimated {
            self.estimates.resize(length, Estimate::default());
        }
        let counts = |id: u32| {
            let total = self.totals.get(id as usize);
            !(self.own[id as usize].is_zero() && total.is_none_or(Count::is_zero))
        };
        let mut column = Column::default();
        // The number of nodes is at most the number of ids.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        if !(1..length).all(counts) {
            let number = (1..length).filter(|id| counts(*id)).count();
            column.nodes.reserve_exact(number);
            column.nodes.extend((1..length).filter(|id| counts(*id)));
        }
        column.own = column.pick(self.own);
        column.totals = column.pick(self.totals);
        column.estimates = column.pick(self.estimates);
        column
    }
}

impl Column {
    /// Returns the values of the column's nodes.
    fn pick<T: Copy>(&self, mut by_node: Vec<T>) -> Vec<T> {
        if by_node.is_empty() {
            return by_node;
        }
        if self.nodes.is_empty() {
            // All nodes but node 0, in the same allocation.
            by_node.remove(0);
            return by_node;
        }
        let nodes = self.nodes.iter();
        nodes.map(|node| by_node[*node as usize]).collect()
    }
}

/// Adds self counts where nothing else is needed, without collecting hits.
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
            sample_key: keys.sample_key(cell.sample_key),
            slice: 0,
        });
        let branch = keys.innermost(profile.leaf(cell.place));
        let node = growing.end(keys, group, branch);
        scratch.own(node).add(count);
        if options.estimates {
            scratch.estimate(node).add(event.counts.estimate(cell.id));
        }
    }
}

fn own(profile: &Profile, keys: &Keys, growing: &mut Growing, hits: &Hits, scratch: &mut Scratch) {
    for (index, hit) in hits.list.iter().enumerate() {
        let branch = keys.innermost(profile.leaf(hit.place));
        let node = growing.end(keys, hit.group, branch);
        scratch.own(node).add(hit.count);
        if let Some(estimate) = hits.estimates.get(index) {
            scratch.estimate(node).add(*estimate);
        }
    }
}
