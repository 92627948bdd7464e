//! Stubs of the procedure linkage table.

use super::displace::{Instruction, instruction, landing};
use super::encode::{X16, words_of};
use crate::analysis::image::{Image, Stub};
use object::{Object, ObjectSection};
use std::collections::BTreeMap;

/// Returns the stubs of an image whose relocations are known, by their addresses.
///
/// A stub may begin with a landing pad. It puts the address of its pointer's page in `x16`, loads the pointer into
/// `x17`, and branches to that.
pub fn stubs(image: &Image<'_>) -> BTreeMap<u64, Stub> {
    /// `ldr x17, [x16, …]`.
    const LOAD: u32 = 0xf940_0211;
    let mut stubs = BTreeMap::new();
    for section in image.elf.sections() {
        let Ok(".plt" | ".plt.got") = section.name() else {
            continue;
        };
        let Ok(bytes) = section.data() else { continue };
        let words: Vec<u32> = words_of(bytes).collect();
        for (at, pair) in words.windows(2).enumerate() {
            let jump = section.address() + 4 * at as u64;
            let [first, load] = *pair else { continue };
            let Instruction::Makes(X16, page) = instruction(first, jump) else {
                continue;
            };
            if load & 0xffc0_03ff != LOAD {
                continue;
            }
            let pointer = page + u64::from(load >> 10 & 0xfff) * 8;
            let before = at.checked_sub(1).and_then(|at| words.get(at));
            if let Some(name) = image.slots.get(&pointer) {
                let stub = Stub {
                    name: name.clone(),
                    jump,
                    pointer,
                };
                stubs.insert(jump - before.map_or(0, |word| landing(*word)), stub);
            }
        }
    }
    stubs
}
