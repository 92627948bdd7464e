//! The user code that entered the kernel.
//!
//! A sample in the kernel shows that code in two ways. Its call chain goes on in user mode, or it holds the user's
//! instruction pointer as the kernel saved it on entry (`PERF_SAMPLE_REGS_USER`). Kernel threads have no such code, and
//! their samples stay where they are.

use dioptra_perfdata::PerfData;
use dioptra_perfrecords::record::{RawRecord, RecordLayout};
use dioptra_perfrecords::{Attr, SampleType, U64s};

/// The mark before a chain's part in user mode (`PERF_CONTEXT_USER`).
const USER: u64 = -512_i64 as u64;
/// Chain entries from this value on are marks.
const FIRST_MARK: u64 = -4095_i64 as u64;

/// Finds the user code that entered the kernel, for the samples of one event.
#[derive(Clone, Debug)]
pub(crate) struct KernelEntry {
    layout: RecordLayout,
    /// The number of the instruction pointer among the recorded user registers.
    register: Option<u32>,
}

/// User code: its address, and the chain of its callers where the sample has one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct UserCode<'a> {
    pub address: u64,
    pub chain: Option<U64s<'a>>,
}

impl KernelEntry {
    /// Makes the finder for an event; `None` where the event's samples show no user code.
    pub(crate) fn of(data: &PerfData, attr: &Attr, layout: &RecordLayout) -> Option<KernelEntry> {
        let arch = data.features().arch.as_deref();
        let number = instruction_pointer(arch.unwrap_or(std::env::consts::ARCH));
        let recorded = |number: &u32| attr.sample_regs_user >> number & 1 == 1;
        let register = number
            .filter(recorded)
            .filter(|_| attr.sample_type.contains(SampleType::REGS_USER));
        let tells = register.is_some() || attr.sample_type.contains(SampleType::CALLCHAIN);
        tells.then(|| KernelEntry {
            layout: layout.clone(),
            register,
        })
    }

    /// Returns the user code that entered the kernel before a sample was taken there. `unwound` replaces the sample's
    /// own chain.
    pub(crate) fn user_code<'a>(
        &self,
        raw: &RawRecord<'a>,
        unwound: Option<U64s<'a>>,
    ) -> Option<UserCode<'a>> {
        let sample = self.layout.sample(raw).ok()?;
        let chain = unwound
            .or(sample.callchain)
            .and_then(|chain| self.user_part(&chain));
        let of_chain = chain.and_then(|chain| {
            let mut addresses = chain.iter();
            let address = addresses.find(|address| *address < FIRST_MARK)?;
            let chain = Some(chain);
            Some(UserCode { address, chain })
        });
        of_chain.or_else(|| {
            let registers = sample.regs_user.filter(|registers| registers.abi != 0)?;
            let address = registers.get(self.register?)?;
            let chain = None;
            Some(UserCode { address, chain })
        })
    }

    /// Returns the part of a chain from the mark of user mode on.
    fn user_part<'a>(&self, chain: &U64s<'a>) -> Option<U64s<'a>> {
        let mark = chain.iter().position(|address| address == USER)?;
        Some(U64s::new(
            &chain.as_bytes()[8 * mark..],
            self.layout.order(),
        ))
    }
}

/// Returns the kernel's number of the instruction pointer (`asm/perf_regs.h`) on a machine, named as `uname -m` does.
fn instruction_pointer(machine: &str) -> Option<u32> {
    match machine {
        "x86_64" | "i386" | "i486" | "i586" | "i686" | "x86" => Some(8),
        "aarch64" | "arm64" => Some(32),
        _ => None,
    }
}
