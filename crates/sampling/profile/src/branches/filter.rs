//! The branches that an event's samples hold, and the quantity that the event counts.

use super::BranchClass;
use dioptra_perfrecords::{Attr, AttrFlags, event_type};

/// Which branches were recorded: the attr's `branch_sample_type` (`PERF_SAMPLE_BRANCH_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchFilter(pub u64);

impl BranchFilter {
    const USER: u64 = 1 << 0;
    const KERNEL: u64 = 1 << 1;
    const LEVELS: u64 = Self::USER | Self::KERNEL | 1 << 2;
    const ANY: u64 = 1 << 3;
    /// ABORT_TX, IN_TX, NO_TX.
    const TRANSACTIONS: u64 = 1 << 7 | 1 << 8 | 1 << 9;
    const CALL_STACK: u64 = 1 << 11;

    /// Returns whether the CPU kept a stack of open calls, from which each return removes its call. Such a stack gives
    /// no counts of branches.
    pub fn is_call_stack(self) -> bool {
        self.0 & Self::CALL_STACK != 0
    }

    /// Returns whether every taken branch was recorded, so that the code between two of them ran straight.
    pub fn is_complete(self) -> bool {
        self.0 & Self::ANY != 0 && self.0 & (Self::TRANSACTIONS | Self::CALL_STACK) == 0
    }

    /// Returns the class of all branches, where only one class was recorded.
    pub(super) fn only_class(self) -> Option<BranchClass> {
        const CALLS: u64 = 1 << 4 | 1 << 6 | 1 << 13;
        const RETURNS: u64 = 1 << 5;
        const JUMPS: u64 = 1 << 10 | 1 << 12;
        match self.0 & (Self::ANY | CALLS | RETURNS | JUMPS) {
            0 => None,
            bits if bits & !CALLS == 0 => Some(BranchClass::Call),
            RETURNS => Some(BranchClass::Return),
            bits if bits & !JUMPS == 0 => Some(BranchClass::Jump),
            _ => None,
        }
    }

    /// Returns whether the filter records the privilege levels at which the event counts. Without level bits it does.
    fn same_levels(self, flags: AttrFlags) -> bool {
        let levels = self.0 & Self::LEVELS;
        let records = |level| levels & level != 0;
        levels == 0
            || (records(Self::USER) != flags.contains(AttrFlags::EXCLUDE_USER)
                && records(Self::KERNEL) != flags.contains(AttrFlags::EXCLUDE_KERNEL))
    }
}

/// The quantity that an event counts, as far as it helps to scale branches; see [`super::BranchProfile::counted`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Taken branches, the same that are recorded: a sample of `period` with `n` branches stands for `period / n` of
    /// each.
    TakenBranches,
    /// Core cycles, which the branch records hold too: a sample of `period` whose branches took `c` cycles stands for
    /// `period / c` of each.
    Cycles,
    /// Any other quantity: the number of executions is known only relative to other code.
    Other,
}

impl Counted {
    /// Classifies an event by its name, or by the event numbers that Intel and AMD publish. `cpuid` is the recording's.
    pub(super) fn of(name: &str, attr: &Attr, cpuid: &str) -> Counted {
        let filter = BranchFilter(attr.branch_sample_type);
        if !filter.is_complete() || !filter.same_levels(attr.flags) {
            return Counted::Other;
        }
        let name = name.to_ascii_lowercase().replace([':', '_'], ".");
        let is = |part: &&str| name.contains(*part);
        if ["near.taken", "lbr.inserts", "ex.ret.brn.tkn"]
            .iter()
            .any(is)
            || is_raw_taken(attr, cpuid)
        {
            return Counted::TakenBranches;
        }
        let begins = |part: &&str| name.trim_start_matches("cpu/").starts_with(*part);
        let cycles = [
            "cycles",
            "cpu-cycles",
            "cpu.cycles",
            "cpu.clk.unhalted.thread",
            "cpu.clk.unhalted.core",
            "ls.not.halted.cyc",
        ];
        // The upper half of a hardware event's number names a core type on machines with several types of cores.
        let is_cycles = attr.kind == event_type::HARDWARE && attr.config & 0xffff_ffff == 0;
        if is_cycles || (attr.kind != event_type::SOFTWARE && cycles.iter().any(begins)) {
            return Counted::Cycles;
        }
        Counted::Other
    }
}

/// Returns whether the event is Intel's `BR_INST_RETIRED.NEAR_TAKEN` or AMD's `EX_RET_BRN_TKN`, given as a number.
fn is_raw_taken(attr: &Attr, vendor: &str) -> bool {
    attr.kind == event_type::RAW
        && ((vendor.starts_with("GenuineIntel") && attr.config == 0x20c4)
            || (vendor.starts_with("AuthenticAMD") && attr.config == 0xc4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_known_by_name_or_number() {
        let raw = |config| Attr {
            kind: event_type::RAW,
            config,
            branch_sample_type: BranchFilter::ANY,
            ..Attr::default()
        };
        let (intel, amd) = ("GenuineIntel,6,85,7", "AuthenticAMD,25,17,1");
        assert_eq!(
            Counted::of("br_inst_retired.near_taken:u", &raw(0), ""),
            Counted::TakenBranches
        );
        assert_eq!(
            Counted::of("BR_INST_RETIRED:NEAR_TAKEN:period=400009", &raw(0), ""),
            Counted::TakenBranches
        );
        assert_eq!(
            Counted::of("r20c4", &raw(0x20c4), intel),
            Counted::TakenBranches
        );
        assert_eq!(Counted::of("rc4", &raw(0xc4), amd), Counted::TakenBranches);
        // On Intel, this one counts branches that were not taken as well.
        assert_eq!(Counted::of("rc4", &raw(0xc4), intel), Counted::Other);
        assert_eq!(
            Counted::of("cpu/cycles/u", &raw(0x3c), intel),
            Counted::Cycles
        );
        assert_eq!(
            Counted::of("ref-cycles", &raw(0x300), intel),
            Counted::Other
        );
        let levels = Attr {
            branch_sample_type: BranchFilter::ANY | BranchFilter::USER,
            ..raw(0x20c4)
        };
        assert_eq!(Counted::of("r20c4", &levels, intel), Counted::Other);
        let user = Attr {
            flags: AttrFlags::EXCLUDE_KERNEL,
            ..levels.clone()
        };
        assert_eq!(Counted::of("r20c4", &user, intel), Counted::TakenBranches);
        let user = Attr {
            flags: AttrFlags::EXCLUDE_KERNEL,
            ..raw(0x20c4)
        };
        assert_eq!(Counted::of("r20c4", &user, intel), Counted::TakenBranches);
        let calls = Attr {
            branch_sample_type: 1 << 4,
            ..raw(0x20c4)
        };
        assert_eq!(Counted::of("r20c4", &calls, intel), Counted::Other);
    }
}
