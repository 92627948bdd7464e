//! Counts rows down to addresses. There may be as many rows as cells, so the cells are sorted instead of looked up one
//! by one.

use super::build::build_with_places;
use super::keys::Keys;
use super::{Group, Growing, Hierarchy, HierarchyOptions, Scratch};
use crate::counts::counter::{Count, Counts};
use crate::counts::estimate::Estimate;
use crate::profile::Profile;

/// A cell of a row on the last level. The counts of the cell stay in the event's [`Counts`].
#[derive(Clone, Copy, Default)]
struct Leaf {
    key: u32,
    /// The index of its event among the events asked for.
    event: u32,
    cell: u32,
}

impl Leaf {
    /// Returns whether both belong to one row and one event.
    fn is_same(&self, other: &Self) -> bool {
        (self.key, self.event) == (other.key, other.event)
    }
}

/// Computes self counts along several levels, of which the last is a level of places and none is of time.
pub(super) fn count(
    profile: &Profile,
    events: &[usize],
    keys: Keys,
    mut growing: Growing,
    options: &HierarchyOptions<'_>,
) -> Hierarchy {
    let event_of = |index: &usize| profile.events().get(*index);
    // By cell, for one event after the other: the row above the cell's own row.
    let mut above: Vec<u32> = Vec::new();
    let mut columns = Vec::new();
    for event in events.iter().map(event_of) {
        let mut scratch = Scratch::default();
        if let Some(event) = event {
            above.reserve_exact(event.counts.iter().count());
            for (cell, count) in event.counts.iter() {
                let group = growing.group(Group {
                    sample_key: keys.sample_key(cell.sample_key),
                    slice: 0,
                });
                let branch = keys.innermost(profile.leaf(cell.place));
                let node = growing.prefix(&keys, group, branch);
                above.push(node);
                scratch.own(node).add(count);
                if options.estimates {
                    scratch.estimate(node).add(event.counts.estimate(cell.id));
                }
            }
        }
        columns.push(scratch.finish(&growing, false, |_| true));
    }
    let (upper, row_of) = build_with_places(growing.finish(), columns);
    // By row: the place of the next leaf below it. At the end of the loop it is the first leaf of the following row.
    let mut next = vec![0_usize; upper.len() + 1];
    for node in &mut above {
        // The node's row replaces the node from here on. `row_of` counts rows from 1.
        *node = row_of[*node as usize] - 1;
        next[*node as usize + 1] += 1;
    }
    drop(row_of);
    for row in 1..next.len() {
        next[row] += next[row - 1];
    }
    let mut leaves = vec![Leaf::default(); above.len()];
    let mut rows = above.iter();
    for (place, event) in (0..).zip(events.iter().map(event_of)) {
        let Some(event) = event else {
            continue;
        };
        for ((cell, _), row) in event.counts.iter().zip(&mut rows) {
            let branch = keys.innermost(profile.leaf(cell.place));
            let to = &mut next[*row as usize];
            leaves[*to] = Leaf {
                key: keys.branches[branch as usize].key,
                event: place,
                cell: cell.id,
            };
            *to += 1;
        }
    }
    drop((above, keys));
    let counts: Vec<Option<&Counts>> = events
        .iter()
        .map(|event| event_of(event).map(|event| &event.counts))
        .collect();
    append(upper, &next, leaves, &counts)
}

/// Puts rows below the rows of `upper`. The `leaves` of the first row end at the first of `ends`, and so on.
fn append(
    upper: Hierarchy,
    ends: &[usize],
    mut leaves: Vec<Leaf>,
    counts: &[Option<&Counts>],
) -> Hierarchy {
    let mut start = 0;
    for end in ends {
        leaves[start..*end].sort_unstable_by_key(|leaf| (leaf.key, leaf.event, leaf.cell));
        start = *end;
    }
    let of_row = |row: usize| row.checked_sub(1).map_or(0, |before| ends[before])..ends[row];
    let (mut rows, mut cells) = (upper.len(), upper.own.len());
    for row in 0..upper.len() {
        let below = &leaves[of_row(row)];
        rows += below.chunk_by(|one, other| one.key == other.key).count();
        cells += below.chunk_by(Leaf::is_same).count();
    }
    // With a single event, every row has one cell if every upper row has one.
    let is_sparse = !upper.firsts.is_empty();
    let sparse = |length: usize| if is_sparse { length } else { 0 };
    let estimated = !upper.estimates.is_empty();
    let mut all = Hierarchy {
        above: Vec::with_capacity(rows),
        keys: Vec::with_capacity(rows),
        levels: Vec::with_capacity(rows),
        firsts: Vec::with_capacity(sparse(rows + 1)),
        events: Vec::with_capacity(sparse(cells)),
        own: Vec::with_capacity(cells),
        totals: Vec::new(),
        estimates: Vec::with_capacity(if estimated { cells } else { 0 }),
    };
    // By row of `upper`: one more than its row in the result.
    let mut moved: Vec<u32> = Vec::with_capacity(upper.len());
    for row in 0..upper.len() {
        let level = upper.levels[row];
        let parent = upper.above[row].checked_sub(1);
        all.above
            .push(parent.map_or(0, |parent| moved[parent as usize]));
        all.keys.push(upper.keys[row]);
        all.levels.push(level);
        // Row numbers have 32 bits.
        let number = all.keys.len() as u32;
        moved.push(number);
        if is_sparse {
            all.firsts.push(all.own.len());
        }
        for cell in upper.cells(row) {
            all.own.push(cell.count.own);
            if is_sparse {
                all.events.push(cell.event);
            }
            if estimated {
                all.estimates.push(cell.estimate);
            }
        }
        for leaf in leaves[of_row(row)].chunk_by(|one, other| one.key == other.key) {
            all.above.push(number);
            all.keys.push(leaf[0].key);
            all.levels.push(level + 1);
            if is_sparse {
                all.firsts.push(all.own.len());
            }
            for of_event in leaf.chunk_by(Leaf::is_same) {
                let event = of_event[0].event;
                let (mut count, mut estimate) = (Count::default(), Estimate::default());
                if let Some(counts) = counts[event as usize] {
                    for leaf in of_event {
                        count.add(counts.get(leaf.cell));
                        if estimated {
                            estimate.add(counts.estimate(leaf.cell));
                        }
                    }
                }
                all.own.push(count);
                if is_sparse {
                    all.events.push(event);
                }
                if estimated {
                    all.estimates.push(estimate);
                }
            }
        }
    }
    if is_sparse {
        all.firsts.push(all.own.len());
    }
    all
}
