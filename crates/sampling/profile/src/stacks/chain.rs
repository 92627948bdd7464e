//! From a sample's call chain to a stack.
//!
//! Consecutive samples of a thread share most of their outer frames. Each thread therefore remembers its last chain,
//! and only the addresses that differ from it are looked up.
//!
//! Addresses are used as the kernel wrote them. The addresses of callers are return addresses, one past the call. perf
//! looks them up unchanged, and so does this module; otherwise the numbers would differ from perf's for calls that end
//! a function.
//!
//! While functions are traced, a thunk stands between caller and callee. The walk leaves thunks out, with two
//! exceptions: a thunk at the outer end of a chain, whose callers are unknown, and a thunk that was executing itself.

use crate::processes::modules::Modules;
use crate::stacks::frames::{Frame, Frames};
use crate::stacks::walks::{At, Start, Walks};
use dioptra_perfrecords::U64s;
use dioptra_perfrecords::record::CpuMode;

/// Entries from this value on are marks, not addresses (`PERF_CONTEXT_MAX` in `linux/perf_event.h`).
pub(crate) const FIRST_MARK: u64 = -4095_i64 as u64;

/// One entry of the last chain, with the stack from the outermost frame to it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    stack: Start,
    mode: CpuMode,
    /// Whether the stack's innermost frame lies in no mapping.
    unmapped: bool,
    /// Whether the entry is a thunk's address.
    thunk: bool,
    /// Whether a thunk was left out between the chain's outer end and this entry.
    through: bool,
}

/// The outcome of the walk of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chained {
    /// Whether the stack has no frame.
    pub empty: bool,
    /// Whether the stack's innermost frame lies in no mapping.
    pub unmapped: bool,
    /// Whether thunks were left out.
    pub through: bool,
}

/// A thread's last chain.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChainMemo {
    /// Outermost first, marks included.
    entries: Vec<Entry>,
    /// The number of entries whose stacks are known; the stacks of later entries wait for their walks.
    known: usize,
    /// The state of the mappings that the entries belong to: the versions of the process's and the kernel's mappings.
    version: (u64, u64),
}

/// Room for the parts of one chain, reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    /// The start of each part, and the mode of its addresses. The part's first entry is its mark.
    list: Vec<(usize, CpuMode)>,
}

impl Parts {
    /// Splits a chain at its marks. Returns false for a mark that the kernel does not write, which makes the chain
    /// worthless.
    fn split(&mut self, chain: &U64s<'_>) -> bool {
        self.list.clear();
        // perf's chains begin with a mark; a chain without one is a user's.
        self.list.push((0, CpuMode::User));
        for (index, address) in chain.iter().enumerate() {
            if address < FIRST_MARK {
                continue;
            }
            let mode = match address.cast_signed() {
                -32 => CpuMode::Hypervisor,
                -128 => CpuMode::Kernel,
                -512 => CpuMode::User,
                // The parts of a guest, its kernel, and its user code.
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
    /// Begins a walk to the stack of `chain`, whose entries come innermost first. `version` names the state of the
    /// mappings. `locate` finds an address in that state, and whether the address is a thunk's. Returns `None`, without
    /// a walk, for a chain with an unknown mark.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        chain: &U64s<'_>,
        version: (u64, u64),
        parts: &mut Parts,
        walks: &mut Walks,
        frames: &Frames,
        mut locate: impl FnMut(CpuMode, u64) -> (Frame, bool),
    ) -> Option<Chained> {
        if self.version != version {
            self.entries.clear();
            self.known = 0;
            self.version = version;
        }
        let mut same = chain
            .iter()
            .rev()
            .zip(&self.entries)
            .take_while(|(address, entry)| *address == entry.address)
            .count();
        if same == chain.len() && same == self.entries.len() {
            let (stack, unmapped, through) = self.last();
            walks.begin(stack);
            return Some(Chained {
                empty: stack.depth == 0,
                unmapped,
                through,
            });
        }
        if !parts.split(chain) {
            return None;
        }
        // In the part in which the chains diverge, the mark is among the entries that differ. The mode may therefore
        // differ too.
        let next = chain.len() - same;
        let mode = mode_at(&parts.list, next);
        if same > 0 && self.entries[same - 1].mode != mode {
            same = 0;
        }
        // Whether a thunk is left out depends on the entry after it.
        if same > 0 && self.entries[same - 1].thunk {
            same -= 1;
        }
        self.entries.truncate(same);
        self.known = self.known.min(same);
        let (mut stack, mut unmapped, mut through) = self.last();
        walks.begin(stack);
        let mut rest = chain.len() - same;
        for &(start, mode) in parts.list.iter().rev() {
            while rest > start {
                rest -= 1;
                let Some(address) = chain.get(rest) else {
                    break;
                };
                let mut thunk = false;
                if address < FIRST_MARK {
                    let (frame, is_thunk) = locate(mode, address);
                    thunk = is_thunk;
                    let callee = rest.checked_sub(1).and_then(|callee| chain.get(callee));
                    let is_caller = callee.is_some_and(|callee| callee < FIRST_MARK);
                    if thunk && is_caller && stack.depth > 0 {
                        through = true;
                    } else {
                        unmapped = frame.module == Modules::UNKNOWN;
                        stack = Start {
                            at: walks.step(frame, frames),
                            depth: stack.depth + 1,
                        };
                    }
                }
                self.entries.push(Entry {
                    address,
                    stack,
                    mode,
                    unmapped,
                    thunk,
                    through,
                });
            }
        }
        Some(Chained {
            empty: stack.depth == 0,
            unmapped,
            through,
        })
    }

    /// Returns the stack of the last chain, whether its innermost frame lies in no mapping, and whether thunks were
    /// left out.
    fn last(&self) -> (Start, bool, bool) {
        self.entries
            .last()
            .map_or((Start::ROOT, false, false), |entry| {
                (entry.stack, entry.unmapped, entry.through)
            })
    }

    /// Fills in the stacks of the chain's entries, after all walks are done.
    pub(crate) fn learn(&mut self, walks: &Walks) {
        for entry in self.entries.iter_mut().skip(self.known) {
            entry.stack.at = At::Known(walks.stack(entry.stack.at));
        }
        self.known = self.entries.len();
    }

    /// Forgets the chain and frees its memory.
    pub(crate) fn forget(&mut self) {
        *self = ChainMemo::default();
    }
}

/// Returns the mode of the entry at `index`; for an index past the end, the mode of the outermost part.
fn mode_at(parts: &[(usize, CpuMode)], index: usize) -> CpuMode {
    parts
        .iter()
        .rev()
        .find(|(start, _)| *start <= index)
        .map_or(CpuMode::User, |(_, mode)| *mode)
}

/// Returns the first address of a chain, which is the sampled instruction's where chain and sample agree.
#[inline]
pub(crate) fn innermost(chain: &U64s<'_>) -> Option<u64> {
    chain.iter().find(|address| *address < FIRST_MARK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::call_stacks::Stacks;
    use dioptra_perfrecords::ByteOrder;

    const KERNEL: u64 = -128_i64 as u64;
    const USER: u64 = -512_i64 as u64;

    /// Runs chains through one memo, `at_once` of them at a time. A frame is the address, plus a thousand in kernel
    /// mode. Frames from a hundred up to a thousand are thunks.
    fn stacks_of(chains: &[&[u64]], at_once: usize) -> Vec<Option<Vec<u64>>> {
        let mut memo = ChainMemo::default();
        let mut parts = Parts::default();
        let mut walks = Walks::default();
        let mut stacks = Stacks::default();
        let mut frames = Frames::default();
        let locate = |mode, address| {
            let frame = Frame {
                address: address + 1000 * u64::from(mode == CpuMode::Kernel),
                module: (address % 2) as u32,
            };
            (frame, (100..1000).contains(&frame.address))
        };
        let mut all = Vec::new();
        for chains in chains.chunks(at_once) {
            let found: Vec<Option<Chained>> = chains
                .iter()
                .map(|chain| {
                    let bytes: Vec<u8> = chain.iter().flat_map(|word| word.to_ne_bytes()).collect();
                    let chain = U64s::new(&bytes, ByteOrder::NATIVE);
                    memo.walk(&chain, (0, 0), &mut parts, &mut walks, &frames, locate)
                })
                .collect();
            walks.go(&mut stacks, &mut frames);
            memo.learn(&walks);
            let mut ends = (0..walks.len()).map(|index| walks.end(index));
            for found in found {
                all.push(found.map(|found| {
                    let whole: Vec<Frame> = stacks
                        .frames(ends.next().unwrap())
                        .map(|id| frames.get(id))
                        .collect();
                    let unmapped = whole
                        .first()
                        .is_some_and(|leaf| leaf.module == Modules::UNKNOWN);
                    assert_eq!(found.unmapped, unmapped);
                    assert_eq!(found.empty, whole.is_empty());
                    whole.iter().map(|frame| frame.address).collect()
                }));
            }
            walks.clear();
        }
        all
    }

    #[test]
    fn marks_switch_the_mode_and_are_no_frames() {
        let chain = [KERNEL, 1, 2, USER, 3, 4];
        assert_eq!(stacks_of(&[&chain], 1), [Some(vec![1001, 1002, 3, 4])]);
        assert_eq!(stacks_of(&[&[5, 6]], 1), [Some(vec![5, 6])]);
        assert_eq!(stacks_of(&[&[]], 1), [Some(vec![])]);
        assert_eq!(stacks_of(&[&[-3_i64 as u64, 1]], 1), [None]);
    }

    #[test]
    fn thunks_are_left_out_between_caller_and_callee() {
        for (chain, stack) in [
            (&[USER, 3, 101, 4, 103, 5][..], &[3, 4, 5][..]),
            (&[USER, 3, 101, 102, 4], &[3, 4]),
            (&[USER, 101, 4], &[101, 4]),
            (&[KERNEL, 1, USER, 101, 102, 4], &[1001, 101, 4]),
            (&[USER, 3, 101], &[3, 101]),
            (&[USER, 3, 102, 101], &[3, 101]),
            (&[101], &[101]),
        ] {
            assert_eq!(stacks_of(&[chain], 1), [Some(stack.to_vec())]);
        }
    }

    #[test]
    fn every_order_of_chains_gives_the_same_stacks() {
        let chains: [&[u64]; 13] = [
            &[USER, 3, 101, 4],
            &[USER, 101, 4],
            &[KERNEL, 1, USER, 101, 4],
            &[9, 4, 101],
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
            .map(|chain| stacks_of(&[chain], 1).remove(0))
            .collect();
        for (first, one) in chains.iter().enumerate() {
            for (second, two) in chains.iter().enumerate() {
                for at_once in 1..=3 {
                    let both = stacks_of(&[one, two, one], at_once);
                    let expected = [&alone[first], &alone[second], &alone[first]];
                    assert!(
                        both.iter().eq(expected),
                        "{one:?} {two:?}, {at_once}: {both:?}"
                    );
                }
            }
        }
    }
}
