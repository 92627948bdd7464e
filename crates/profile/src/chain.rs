//! From a sample's call chain to a stack.
//!
//! Consecutive samples of a thread share most of their outer frames, so each thread remembers its last chain: only
//! where a new one differs are addresses looked up.
//!
//! Addresses are taken as the kernel wrote them. Those of callers are return addresses, one past the call; perf looks
//! them up unchanged, and so do we, or our numbers would differ from its by the calls that end a function.

use crate::frames::{Frame, Frames};
use crate::modules::Modules;
use crate::stacks::{StackId, Stacks};
use dioptra_perfevents::U64s;
use dioptra_perfevents::record::CpuMode;

/// Entries from here on are no addresses but marks (`PERF_CONTEXT_MAX` in `linux/perf_event.h`).
const FIRST_MARK: u64 = -4095_i64 as u64;

/// One entry of the last chain, with the stack from the outermost frame to it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    stack: StackId,
    mode: CpuMode,
    /// Whether the stack's innermost frame lies in no mapping.
    unmapped: bool,
}

/// The stack of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chained {
    pub stack: StackId,
    /// Whether its innermost frame lies in no mapping.
    pub unmapped: bool,
}

impl Chained {
    /// The empty stack.
    pub(crate) const NONE: Chained = Chained {
        stack: Stacks::ROOT,
        unmapped: false,
    };
}

/// A thread's last chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChainMemo {
    /// Outermost first, marks included.
    entries: Vec<Entry>,
    /// Which state of the mappings the entries belong to.
    version: (u64, u64),
}

/// Room for the parts of one chain, reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// Where each part starts, and the mode of its addresses; the part's first entry is its mark.
    list: Vec<(usize, CpuMode)>,
    /// The frames that differ from those of the chain before, outermost first.
    frames: Vec<Frame>,
}

impl Parts {
    /// Splits a chain at its marks; false if a mark is none that the kernel writes, which makes the chain worthless.
    fn split(&mut self, chain: &U64s<'_>) -> bool {
        self.list.clear();
        // perf's chains begin with a mark; one that does not is a user's.
        self.list.push((0, CpuMode::User));
        for (index, address) in chain.iter().enumerate() {
            if address < FIRST_MARK {
                continue;
            }
            let mode = match address.cast_signed() {
                -32 => CpuMode::Hypervisor,
                -128 => CpuMode::Kernel,
                -512 => CpuMode::User,
                // A guest's, guest kernel's and guest user's part.
                -2048 | -2176 => CpuMode::GuestKernel,
                -2560 => CpuMode::GuestUser,
                _ => return false,
            };
            self.list.push((index, mode));
        }
        true
    }
}

impl ChainMemo {
    /// The stack of `chain`, whose entries come innermost first. `version` names the state of the mappings, `locate`
    /// finds an address in it. `None` for a chain with a mark that does not exist.
    #[inline]
    pub(crate) fn stack(
        &mut self,
        chain: &U64s<'_>,
        version: (u64, u64),
        parts: &mut Parts,
        stacks: &mut Stacks,
        frames: &mut Frames,
        mut locate: impl FnMut(CpuMode, u64) -> Frame,
    ) -> Option<Chained> {
        if self.version != version {
            self.entries.clear();
            self.version = version;
        }
        let mut known = chain
            .iter()
            .rev()
            .zip(&self.entries)
            .take_while(|(address, entry)| *address == entry.address)
            .count();
        if known == chain.len() && known == self.entries.len() {
            return Some(self.last());
        }
        if !parts.split(chain) {
            return None;
        }
        // The part in which the chains part has its mark among the entries that differ: its mode may differ too.
        let next = chain.len() - known;
        let mode = mode_at(&parts.list, next);
        if known > 0 && self.entries[known - 1].mode != mode {
            known = 0;
        }
        self.entries.truncate(known);
        let Chained {
            mut stack,
            mut unmapped,
        } = self.last();
        // First where each address lies, while the table of frames is fetched from memory, then the frames' numbers.
        parts.frames.clear();
        let mut rest = chain.len() - known;
        for &(start, mode) in parts.list.iter().rev() {
            while rest > start {
                rest -= 1;
                let address = chain.get(rest)?;
                if address < FIRST_MARK {
                    let frame = locate(mode, address);
                    frames.prefetch(frame);
                    parts.frames.push(frame);
                }
            }
        }
        let mut located = parts.frames.iter();
        let mut rest = chain.len() - known;
        for &(start, mode) in parts.list.iter().rev() {
            while rest > start {
                rest -= 1;
                let address = chain.get(rest)?;
                if address < FIRST_MARK {
                    let frame = *located.next()?;
                    stack = stacks.child(stack, frames.intern(frame));
                    unmapped = frame.module == Modules::UNKNOWN;
                }
                self.entries.push(Entry {
                    address,
                    stack,
                    mode,
                    unmapped,
                });
            }
        }
        Some(Chained { stack, unmapped })
    }

    /// The stack of the last chain.
    fn last(&self) -> Chained {
        self.entries.last().map_or(Chained::NONE, |entry| Chained {
            stack: entry.stack,
            unmapped: entry.unmapped,
        })
    }

    /// Forgets the chain and its memory.
    pub(crate) fn forget(&mut self) {
        *self = ChainMemo::default();
    }
}

/// The mode of the entry at `index`; of one past the end, that of the outermost part.
fn mode_at(parts: &[(usize, CpuMode)], index: usize) -> CpuMode {
    parts
        .iter()
        .rev()
        .find(|(start, _)| *start <= index)
        .map_or(CpuMode::User, |(_, mode)| *mode)
}

/// The first address of a chain, which is the sampled instruction's where chain and sample agree.
#[inline]
pub(crate) fn innermost(chain: &U64s<'_>) -> Option<u64> {
    chain.iter().find(|address| *address < FIRST_MARK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfevents::ByteOrder;

    const KERNEL: u64 = -128_i64 as u64;
    const USER: u64 = -512_i64 as u64;

    /// Runs chains through one memo; frames are the address, plus a thousand in kernel mode.
    fn stacks_of(chains: &[&[u64]]) -> Vec<Option<Vec<u64>>> {
        let mut memo = ChainMemo::default();
        let mut parts = Parts::default();
        let mut stacks = Stacks::default();
        let mut frames = Frames::default();
        let locate = |mode, address| Frame {
            address: address + 1000 * u64::from(mode == CpuMode::Kernel),
            module: (address % 2) as u32,
        };
        chains
            .iter()
            .map(|chain| {
                let bytes: Vec<u8> = chain.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let chain = U64s::new(&bytes, ByteOrder::NATIVE);
                let found =
                    memo.stack(&chain, (0, 0), &mut parts, &mut stacks, &mut frames, locate);
                let found = found?;
                let whole: Vec<Frame> = stacks
                    .frames(found.stack)
                    .map(|id| frames.get(id))
                    .collect();
                let unmapped = whole
                    .first()
                    .is_some_and(|leaf| leaf.module == Modules::UNKNOWN);
                assert_eq!(found.unmapped, unmapped);
                Some(whole.iter().map(|frame| frame.address).collect())
            })
            .collect()
    }

    #[test]
    fn marks_switch_the_mode_and_are_no_frames() {
        let chain = [KERNEL, 1, 2, USER, 3, 4];
        assert_eq!(stacks_of(&[&chain]), [Some(vec![1001, 1002, 3, 4])]);
        assert_eq!(stacks_of(&[&[5, 6]]), [Some(vec![5, 6])]);
        assert_eq!(stacks_of(&[&[]]), [Some(vec![])]);
        assert_eq!(stacks_of(&[&[-3_i64 as u64, 1]]), [None]);
    }

    #[test]
    fn every_order_of_chains_gives_the_same_stacks() {
        let chains: [&[u64]; 9] = [
            &[KERNEL, 1, 2, USER, 3, 4],
            &[USER, 3, 4],
            &[USER, 9, 3, 4],
            &[KERNEL, 1, 3, 4],
            &[3, 4],
            &[USER, 4],
            &[],
            &[KERNEL, 3, 4],
            &[KERNEL, 1, USER, KERNEL, 3, USER, 3, 4],
        ];
        let alone: Vec<_> = chains
            .iter()
            .map(|chain| stacks_of(&[chain]).remove(0))
            .collect();
        for (first, one) in chains.iter().enumerate() {
            for (second, two) in chains.iter().enumerate() {
                let both = stacks_of(&[one, two, one]);
                let expected = [&alone[first], &alone[second], &alone[first]];
                assert!(both.iter().eq(expected), "{one:?} {two:?}: {both:?}");
            }
        }
    }
}
