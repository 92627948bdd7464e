//! Call chains of recordings in which the CPU keeps a stack of open calls (LBR: `--call-graph lbr`).
//!
//! The kernel writes its own part of such a sample's call chain. The user's part is the branch stack, newest call
//! first. The source of each branch is a call that has not returned, and so it is an address of the caller.

use crate::stacks::chain::FIRST_MARK;
use dioptra_perfrecords::record::{CpuMode, Sample};
use dioptra_perfrecords::{ByteOrder, U64s};

/// The mark before the user's part of a chain (`PERF_CONTEXT_USER`).
const USER_MARK: u64 = -512_i64 as u64;

/// Room for the call chain of one sample, reused.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallStack {
    bytes: Vec<u8>,
}

impl CallStack {
    /// Builds the call chain of a sample, innermost first: the kernel's part, the sampled address in user code, and its
    /// callers.
    pub(crate) fn of(&mut self, sample: &Sample<'_>, mode: CpuMode) {
        self.bytes.clear();
        let mut words = Words(&mut self.bytes);
        let mut leaf = None;
        let chain = sample.callchain.iter().flat_map(U64s::iter);
        let mut in_user = false;
        let mut has_kernel = false;
        for word in chain {
            if word == USER_MARK {
                in_user = true;
            } else if !in_user {
                has_kernel |= word < FIRST_MARK;
                words.push(word);
            } else if leaf.is_none() && word < FIRST_MARK {
                leaf = Some(word);
            }
        }
        let in_kernel = mode == CpuMode::Kernel || mode == CpuMode::Hypervisor;
        if in_kernel && !has_kernel {
            // Kernel chains were not recorded, so the sampled instruction replaces them.
            words.clear();
            words.push(KERNEL_MARK);
            words.push(sample.ip.unwrap_or(0));
        }
        let calls = || {
            let branches = sample.branches.iter().flat_map(|stack| stack.iter());
            branches.filter(|branch| branch.from != 0)
        };
        let leaf = match in_kernel {
            false => sample.ip.or(leaf),
            // The last call shows at least the function that entered the kernel.
            true => leaf.or(calls().next().map(|branch| branch.to)),
        };
        if !in_kernel && !has_kernel {
            words.clear();
        }
        if let Some(leaf) = leaf {
            words.push(USER_MARK);
            words.push(leaf);
        }
        calls().for_each(|call| words.push(call.from));
    }

    /// Returns the chain that was built last.
    pub(crate) fn chain(&self) -> U64s<'_> {
        U64s::new(&self.bytes, ByteOrder::NATIVE)
    }
}

/// The mark before the kernel's part of a chain (`PERF_CONTEXT_KERNEL`).
const KERNEL_MARK: u64 = -128_i64 as u64;

/// Appends words to bytes.
struct Words<'a>(&'a mut Vec<u8>);

impl Words<'_> {
    fn push(&mut self, word: u64) {
        self.0.extend(word.to_ne_bytes());
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
