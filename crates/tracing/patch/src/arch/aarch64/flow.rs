//! The control flow of a module, as far as it decides which functions can be patched: the targets of branches.
//!
//! Finding it takes a look at all code, so it is found when it is first asked for.

use super::displace::{Instruction, instruction, landing};
use super::encode::words_of;
use crate::analysis::described::{Described, unwinders};
use crate::analysis::image::Image;
use crate::analysis::scan::around;
use std::collections::HashSet;

/// The control flow of a module.
#[derive(Debug, Default)]
pub struct Flow {
    /// Addresses inside functions to which a branch or a pointer leads.
    targets: HashSet<u64>,
    /// Functions that go on at their own first instruction.
    loops: HashSet<u64>,
    /// Functions that the functions of an unwinder call, which are left when an exception is thrown.
    unwinding: HashSet<u64>,
}

impl Flow {
    /// Returns whether a branch or a pointer leads to an address.
    pub fn enters(&self, address: u64) -> bool {
        self.targets.contains(&address)
    }

    /// Returns whether a function goes on at its own first instruction.
    pub fn loops(&self, start: u64) -> bool {
        self.loops.contains(&start)
    }

    /// Returns whether an unwinder calls a function.
    pub fn is_unwinding(&self, start: u64) -> bool {
        self.unwinding.contains(&start)
    }
}

/// Finds the control flow of the functions of an image.
pub fn flow(image: &Image<'_>, described: &[Described]) -> Flow {
    let mut flow = Flow::default();
    let unwinders = unwinders(image, described);
    let is_start = |function: &Described, address: u64| {
        let skip = image
            .bytes(function.start, 4)
            .and_then(|bytes| words_of(bytes).next());
        address == function.start || address == function.start + skip.map_or(0, landing)
    };
    // `parts` has pairs of a function and a part of another function to which it branches. `backs` has pairs of such a
    // part and the function to whose start it branches.
    let mut parts = HashSet::new();
    let mut backs = Vec::new();
    for function in described {
        let Some(bytes) = image.bytes(function.start, function.size) else {
            continue;
        };
        let is_unwinder = unwinders.contains(&function.start);
        for (at, word) in words_of(bytes).enumerate() {
            let address = function.start + 4 * at as u64;
            let target = match instruction(word, address) {
                Instruction::Calls(target) => {
                    if is_unwinder {
                        flow.unwinding.insert(target);
                    }
                    continue;
                }
                Instruction::Jumps(target) | Instruction::Branches(target) => target,
                _ => continue,
            };
            if function.contains(target) {
                if is_start(function, target) {
                    flow.loops.insert(function.start);
                } else {
                    flow.targets.insert(target);
                }
                continue;
            }
            flow.targets.insert(target);
            let Some(other) = around(described, target) else {
                continue;
            };
            if !function.entry && is_start(other, target) {
                backs.push((function.start, other.start));
            }
            if !other.entry {
                parts.insert((function.start, other.start));
            }
        }
    }
    for (part, start) in backs {
        if parts.contains(&(start, part)) {
            flow.loops.insert(start);
        }
    }
    flow.targets.extend(image.relative.values());
    flow
}
