//! Totals: what was counted at a row's places or anything they called, each sample once.

use super::keys::Keys;
use super::{ColumnOfNodes, Growing, Hits};
use crate::counts::Count;
use crate::profile::Profile;
use crate::stacks::{StackId, Stacks};

/// By stack: on how many levels of places, from the outermost, a caller has the same keys as its innermost frame.
/// Samples count there with that caller already.
pub(super) struct Repeats(Vec<u8>);

impl Repeats {
    /// Walks the tree of stacks once.
    pub(super) fn find(stacks: &Stacks, keys: &Keys) -> Repeats {
        let length = stacks.len();
        let id = |index: usize| StackId::try_from(index).unwrap_or(StackId::MAX);
        // The callees of each stack, one list after the other.
        let mut firsts = vec![0_u32; length + 1];
        for index in 1..length {
            firsts[stacks.get(id(index)).parent as usize + 1] += 1;
        }
        for index in 0..length {
            firsts[index + 1] += firsts[index];
        }
        let mut next = firsts.clone();
        let mut callees = vec![Stacks::ROOT; length.saturating_sub(1)];
        for index in 1..length {
            let place = &mut next[stacks.get(id(index)).parent as usize];
            callees[*place as usize] = id(index);
            *place += 1;
        }
        // How many callers lie on each branch now.
        let mut active = vec![0_u32; keys.branches.len()];
        let mut repeats = vec![0_u8; length];
        // What to do next: enter a stack, or leave it.
        let mut waiting: Vec<(StackId, bool)> = Vec::new();
        let below = |stack: StackId| {
            let list = firsts[stack as usize] as usize..firsts[stack as usize + 1] as usize;
            callees[list].iter().map(|callee| (*callee, true))
        };
        waiting.extend(below(Stacks::ROOT));
        while let Some((stack, enters)) = waiting.pop() {
            let mut branch = keys.innermost(stacks.get(stack).frame);
            let mut level = keys.places();
            while level > 0 {
                let active = &mut active[branch as usize];
                if enters {
                    if *active > 0 && repeats[stack as usize] == 0 {
                        // At most sixteen.
                        repeats[stack as usize] = level as u8;
                    }
                    *active += 1;
                } else {
                    *active -= 1;
                }
                branch = keys.branches[branch as usize].parent;
                level -= 1;
            }
            if enters {
                waiting.push((stack, false));
                waiting.extend(below(stack));
            }
        }
        Repeats(repeats)
    }
}

/// Adds the totals of one event on all levels from the first one of places on.
pub(super) fn add(
    profile: &Profile,
    keys: &Keys,
    growing: &mut Growing,
    hits: &Hits,
    repeats: &Repeats,
    column: &mut ColumnOfNodes,
) {
    let stacks = profile.stacks();
    // The hits of each group, one list after the other.
    let mut order: Vec<u32> = (0_u32..).take(hits.list.len()).collect();
    if growing.groups.len() > 1 {
        order.sort_by_key(|index| hits.list[*index as usize].group);
    }
    // By stack: what lies below, while a group is counted.
    let mut weights = vec![Count::default(); stacks.len()];
    let mut seen = vec![false; stacks.len()];
    let mut touched: Vec<StackId> = Vec::new();
    for of_group in order
        .chunk_by(|one, other| hits.list[*one as usize].group == hits.list[*other as usize].group)
    {
        for index in of_group {
            let hit = hits.list[*index as usize];
            weights[hit.place as usize].add(hit.count);
            let mut stack = hit.place;
            while !seen[stack as usize] {
                seen[stack as usize] = true;
                touched.push(stack);
                if stack == Stacks::ROOT {
                    break;
                }
                stack = stacks.get(stack).parent;
            }
        }
        let Some(group) = of_group.first().map(|hit| hits.list[*hit as usize].group) else {
            continue;
        };
        // Callers have smaller ids.
        touched.sort_unstable_by_key(|stack| std::cmp::Reverse(*stack));
        for stack in touched.drain(..) {
            let weight = std::mem::take(&mut weights[stack as usize]);
            seen[stack as usize] = false;
            if stack == Stacks::ROOT {
                continue;
            }
            let node = stacks.get(stack);
            weights[node.parent as usize].add(weight);
            let repeated = repeats.0[stack as usize];
            if usize::from(repeated) == keys.places() {
                continue;
            }
            let mut row = growing.end(keys, group, keys.innermost(node.frame));
            for level in (0..growing.levels).rev() {
                if keys.depth(level) <= repeated {
                    break;
                }
                column.at(row).total.add(weight);
                row = growing.nodes[row as usize].parent;
            }
        }
    }
}
