//! The weights that the nodes of a flame graph have in another profile.
//!
//! Addresses and keys differ between builds, so nodes are the same where the names of all functions from the top to them
//! and of the functions' modules are.

use crate::api::{FlameNew, FlameOther, FlameRequest};
use crate::changes::{CallersPart, Changes};
use crate::failure::Failure;
use crate::flames::{FlatTree, TreeKey, tree};
use crate::jobs::Ticket;
use crate::other::{Other, both, same_functions};
use crate::selected::Selected;
use crate::server::Shared;
use crate::texts;
use dioptra_profile::{Count, FunctionId};
use dioptra_tables::{Facts, Severity};
use hashbrown::HashMap;
use serde_json::json;

/// The largest number of nodes in an answer that only the other profile has.
const MOST_NEW: usize = 1000;
/// The number of nodes after which a job asks whether somebody still waits.
const STEP: usize = 1 << 16;
/// Stands for a node that the first profile lacks.
const NONE: u32 = u32::MAX;

/// A question about the other profile.
pub(crate) struct Asked<'a> {
    pub request: &'a FlameRequest,
    /// The other profile's index.
    pub with: usize,
    pub selected: &'a Selected,
    /// The tree of the first profile.
    pub key: &'a TreeKey,
    pub tree: &'a FlatTree,
    /// The nodes of the answer, rising.
    pub nodes: &'a [usize],
}

/// A function's name and its module's.
type Name<'a> = (&'a str, &'a str);

fn name_of(selected: &Selected, function: FunctionId) -> Name<'_> {
    let function = &selected.named().names.functions()[function as usize];
    let module = selected.profile.modules().get(function.module);
    (&function.name, &module.label)
}

/// The name by which a function is known again. Addresses without names differ in each run, so those of a module are one.
fn stable_name(selected: &Selected, function: FunctionId) -> Name<'_> {
    let known = &selected.named().names.functions()[function as usize];
    let (name, module) = name_of(selected, function);
    match known.is_unknown() {
        true => ("", module),
        false => (name, module),
    }
}

impl Asked<'_> {
    /// Finds the nodes of the first profile in the other one.
    pub(crate) fn answer(
        &self,
        shared: &Shared,
        facts: &mut Facts,
        ticket: &Ticket,
    ) -> Result<FlameOther, Failure> {
        let first = self.selected;
        let other = Other::of(shared, first, &self.request.selection, self.with, false)?;
        facts.append(other.facts);
        let other = other.selected;
        if !other.loaded.has_chains() {
            return Err(Failure::NotRecorded {
                text: format!("the samples of {} have no call chains", other.loaded.path),
                remedy: "record call chains: dioptra record -g",
            });
        }
        let matched = both(&first.profile, &other.profile);
        // By event of the first profile: the other's.
        let events: Vec<Option<usize>> = first
            .events
            .iter()
            .map(|event| {
                let found = matched.iter().find(|both| both.of[0] == Some(*event));
                found.and_then(|both| both.of[1])
            })
            .collect();
        let focus = match self.key.focus {
            None => None,
            Some(function) => {
                let same = same_functions(
                    (&first.loaded, first.named()),
                    (&other.loaded, other.named()),
                    function,
                );
                match same.first() {
                    Some(function) => Some(*function),
                    None => return Ok(self.nothing(&other, &events, facts)),
                }
            }
        };
        let key = TreeKey {
            selection: other.key.clone(),
            events: events.iter().flatten().copied().collect(),
            callers: self.key.callers,
            focus,
            changes: Changes::default(),
            part: CallersPart::default(),
        };
        let other_tree = tree(shared, &other, key, ticket)?;
        self.compare(&other, &other_tree, &events, ticket)
    }

    /// The answer where the other profile has no such function.
    fn nothing(&self, other: &Selected, events: &[Option<usize>], facts: &mut Facts) -> FlameOther {
        facts.add(
            Severity::Warning,
            "focus_not_in_other",
            format!("{} does not have the function", other.loaded.path),
            json!(self.with),
        );
        let zeros = vec![vec![0; self.nodes.len()]; events.len()];
        FlameOther {
            profile: other.loaded.index,
            generation: other.loaded.generation,
            weight: weights(other, events),
            total: zeros.clone(),
            total_samples: zeros,
            new: Vec::new(),
            new_weight: 0,
        }
    }

    fn compare(
        &self,
        other: &Selected,
        other_tree: &FlatTree,
        events: &[Option<usize>],
        ticket: &Ticket,
    ) -> Result<FlameOther, Failure> {
        // Names as numbers, the same in both profiles.
        let mut numbers: HashMap<Name<'_>, u32> = HashMap::new();
        let mut of_first: HashMap<FunctionId, u32> = HashMap::new();
        // By parent, one more than its number, and name: the node of the first profile.
        let mut places: HashMap<(u32, u32), u32> = HashMap::with_capacity(self.tree.len());
        // By node of the first profile: the first node of the same path, which stands for all.
        let mut leaders: Vec<u32> = Vec::with_capacity(self.tree.len());
        for node in 0..self.tree.len() {
            if node % STEP == 0 {
                ticket.check()?;
            }
            let function = self.tree.function[node];
            let next = numbers.len() as u32;
            let number = *of_first.entry(function).or_insert_with(|| {
                *numbers
                    .entry(stable_name(self.selected, function))
                    .or_insert(next)
            });
            let parent = self
                .tree
                .parent(node)
                .map_or(0, |parent| leaders[parent] + 1);
            // No more nodes than 32 bits count.
            let leader = *places.entry((parent, number)).or_insert(node as u32);
            leaders.push(leader);
        }
        // By place among the tree's events: the place among the request's.
        let shown: Vec<usize> = (0..events.len())
            .filter(|at| events[*at].is_some())
            .collect();
        let mut sums: Vec<Vec<Count>> = vec![vec![Count::default(); self.tree.len()]; events.len()];
        let mut of_other: HashMap<FunctionId, Option<u32>> = HashMap::new();
        let mut found: Vec<u32> = Vec::with_capacity(other_tree.len());
        let mut new: Vec<(u64, u32, usize)> = Vec::new();
        let mut new_weight = 0_u64;
        for node in 0..other_tree.len() {
            if node % STEP == 0 {
                ticket.check()?;
            }
            let parent = match other_tree.parent(node) {
                None => 0,
                Some(parent) if found[parent] == NONE => {
                    found.push(NONE);
                    continue;
                }
                Some(parent) => found[parent] + 1,
            };
            let function = other_tree.function[node];
            let number = *of_other
                .entry(function)
                .or_insert_with(|| numbers.get(&stable_name(other, function)).copied());
            let same = number.and_then(|number| places.get(&(parent, number)).copied());
            let Some(same) = same else {
                found.push(NONE);
                if shown.first() == Some(&0) {
                    let weight = other_tree.total[0][node].weight;
                    new_weight = new_weight.saturating_add(weight);
                    new.push((weight, parent, node));
                }
                continue;
            };
            found.push(same);
            for (place, at) in shown.iter().enumerate() {
                let count = other_tree.total[place][node];
                let sum = &mut sums[*at][same as usize];
                sum.samples = sum.samples.saturating_add(count.samples);
                sum.weight = sum.weight.saturating_add(count.weight);
            }
        }
        new.sort_unstable_by_key(|(weight, _, node)| (std::cmp::Reverse(*weight), *node));
        let new = new.into_iter().filter_map(|(weight, parent, node)| {
            // Nodes below one that the answer leaves out are left out, too.
            let parent = match parent.checked_sub(1) {
                None => -1,
                Some(parent) => {
                    let place = self.nodes.binary_search(&(parent as usize)).ok()?;
                    i32::try_from(place).ok()?
                }
            };
            let (name, module) = name_of(other, other_tree.function[node]);
            Some(FlameNew {
                parent,
                name: texts::name(name),
                module: texts::name(module),
                weight,
            })
        });
        let each = |value: fn(&Count) -> u64| -> Vec<Vec<u64>> {
            let events = self.tree.total.iter().zip(&sums);
            events
                .map(|(own, sums)| self.shared_out(own, sums, &leaders, value))
                .collect()
        };
        Ok(FlameOther {
            profile: other.loaded.index,
            generation: other.loaded.generation,
            weight: weights(other, events),
            total: each(|count| count.weight),
            total_samples: each(|count| count.samples),
            new: new.take(MOST_NEW).collect(),
            new_weight,
        })
    }
}

impl Asked<'_> {
    /// By node of the answer: its part of the other profile's sum for its path. Nodes of one path share the sum as they share
    /// the path's weight here.
    fn shared_out(
        &self,
        own: &[Count],
        sums: &[Count],
        leaders: &[u32],
        value: fn(&Count) -> u64,
    ) -> Vec<u64> {
        let mut wholes = vec![0_u64; own.len()];
        for (count, leader) in own.iter().zip(leaders) {
            let whole = &mut wholes[*leader as usize];
            *whole = whole.saturating_add(value(count));
        }
        let of_node = |node: &usize| {
            let leader = leaders[*node] as usize;
            let (sum, part, whole) = (value(&sums[leader]), value(&own[*node]), wholes[leader]);
            match whole {
                0 => 0,
                whole => {
                    let shared = u128::from(sum) * u128::from(part) / u128::from(whole);
                    u64::try_from(shared).unwrap_or(u64::MAX)
                }
            }
        };
        self.nodes.iter().map(of_node).collect()
    }
}

/// By event of the first profile: the whole weight of the other one.
fn weights(other: &Selected, events: &[Option<usize>]) -> Vec<Option<u64>> {
    let each = events.iter();
    each.map(|event| Some(other.profile.events()[(*event)?].total().weight))
        .collect()
}
