//! The contents of samples: their rate, call chains, branch stacks.

use dioptra_perfevents::windows::USER_INSTRUCTION_POINTER;
use dioptra_perfevents::{AttrFlags, EventSpec, SampleType, event_type};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The samples a second unless another rate is asked for.
pub const DEFAULT_FREQUENCY: u64 = 4000;

/// The bytes of user stack in a sample unless another size is asked for.
const DEFAULT_STACK: u32 = 8192;
/// The most bytes of user stack in a sample: a record's size is a 16-bit number, and other fields need room.
const LARGEST_STACK: u32 = 65_528;

/// `PERF_COUNT_SW_DUMMY`.
const DUMMY: u64 = 9;

/// The rate at which samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Samples a second; the kernel adapts the period.
    Frequency(u64),
    /// Events between two samples.
    Period(u64),
}

impl Default for Rate {
    fn default() -> Self {
        Rate::Frequency(DEFAULT_FREQUENCY)
    }
}

/// The method of finding call chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallGraph {
    /// The kernel follows frame pointers.
    FramePointer,
    /// Samples hold registers and this many bytes of the user stack, for unwinding by a reader.
    Dwarf {
        /// Bytes, a multiple of 8.
        stack: u32,
    },
    /// The hardware's stack of calls (Intel's LBR), for user space.
    Lbr,
}

impl FromStr for CallGraph {
    type Err = SampleOptionError;

    /// Parses `fp`, `dwarf`, `dwarf,SIZE` (rounded up to a multiple of 8) or `lbr`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (method, size) = match text.split_once(',') {
            Some((method, size)) => (method, Some(size)),
            None => (text, None),
        };
        match (method, size) {
            ("fp", None) => Ok(CallGraph::FramePointer),
            ("lbr", None) => Ok(CallGraph::Lbr),
            ("dwarf", None) => Ok(CallGraph::Dwarf {
                stack: DEFAULT_STACK,
            }),
            ("dwarf", Some(size)) => match size.parse::<u32>() {
                Ok(bytes @ 1..=LARGEST_STACK) => Ok(CallGraph::Dwarf {
                    stack: bytes.next_multiple_of(8),
                }),
                _ => Err(SampleOptionError::StackSize(size.to_owned())),
            },
            _ => Err(SampleOptionError::CallGraph(text.to_owned())),
        }
    }
}

impl fmt::Display for CallGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallGraph::FramePointer => f.write_str("fp"),
            CallGraph::Dwarf { stack } => write!(f, "dwarf,{stack}"),
            CallGraph::Lbr => f.write_str("lbr"),
        }
    }
}

/// The branches that a branch stack holds: a set of `PERF_SAMPLE_BRANCH_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchFilter(pub u64);

/// The names of branch filters, which are perf's, and their bits.
const BRANCH_FILTERS: [(&str, u64); 17] = [
    ("u", 1 << 0),
    ("k", 1 << 1),
    ("hv", 1 << 2),
    ("any", 1 << 3),
    ("any_call", 1 << 4),
    ("any_ret", 1 << 5),
    ("ind_call", 1 << 6),
    ("abort_tx", 1 << 7),
    ("in_tx", 1 << 8),
    ("no_tx", 1 << 9),
    ("cond", 1 << 10),
    ("stack", 1 << 11),
    ("ind_jmp", 1 << 12),
    ("call", 1 << 13),
    ("save_type", 1 << 16),
    ("hw_index", 1 << 17),
    ("priv", 1 << 18),
];

impl BranchFilter {
    /// All taken branches.
    pub const ANY: BranchFilter = BranchFilter(1 << 3);
    /// The bits that choose no branches: privilege levels, and the fields to store.
    const NO_KIND: u64 = 0b111 | 1 << 16 | 1 << 17 | 1 << 18;
    /// The user-space call stack, without flags and cycles.
    const CALL_STACK: u64 = 1 | 1 << 11 | 1 << 14 | 1 << 15;
}

impl FromStr for BranchFilter {
    type Err = SampleOptionError;

    /// Parses names separated by commas, such as `any_call,u`. Privilege levels alone mean any branch.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut bits = 0;
        for name in text.split(',') {
            let known = BRANCH_FILTERS.iter().find(|(known, _)| *known == name);
            bits |= known
                .ok_or_else(|| SampleOptionError::BranchFilter(name.to_owned()))?
                .1;
        }
        if bits & !Self::NO_KIND == 0 {
            bits |= Self::ANY.0;
        }
        Ok(BranchFilter(bits))
    }
}

/// The error of an argument that is no sample option.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SampleOptionError {
    /// The argument is no method of finding call chains.
    #[error("`{0}` is no way to find call chains; give fp, dwarf, dwarf,SIZE or lbr")]
    CallGraph(String),
    /// The argument is no size of a stack copy.
    #[error("`{0}` is no size of a stack copy; give a number of bytes from 1 to {LARGEST_STACK}")]
    StackSize(String),
    /// The argument is no branch filter.
    #[error(
        "`{0}` is no branch filter; give some of u, k, hv, any, any_call, any_ret, ind_call, ind_jmp, call, cond, stack, \
         in_tx, no_tx, abort_tx, save_type, hw_index, priv, separated by commas"
    )]
    BranchFilter(String),
}

/// The fields of samples besides ids, address, time and CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleOptions {
    /// The rate of events that do not state one themselves.
    pub rate: Rate,
    /// The method of finding call chains; `None` for no call chains.
    pub call_graph: Option<CallGraph>,
    /// The branches of branch stacks; `None` for no branch stacks.
    pub branches: Option<BranchFilter>,
    /// Whether samples in the kernel hold the address of the user code that entered it.
    pub kernel_entry: bool,
}

impl SampleOptions {
    /// Returns the fields that samples of groups read together hold, besides ids, address, time and counts.
    pub fn of_group_reads(&self) -> SampleType {
        let mut fields = SampleType::empty();
        if self.has_kernel_chains() {
            fields |= SampleType::CALLCHAIN;
        }
        if self.kernel_entry {
            fields |= SampleType::REGS_USER;
        }
        fields
    }

    /// Returns whether the kernel follows the frame pointers of each sample.
    pub fn has_kernel_chains(&self) -> bool {
        self.call_graph == Some(CallGraph::FramePointer)
    }

    /// Returns whether samples hold copies of stacks, which are unwound later.
    pub fn copies_stacks(&self) -> bool {
        matches!(self.call_graph, Some(CallGraph::Dwarf { .. }))
    }

    /// Applies the options to an event. A period or frequency that was typed with the event is kept; an event that
    /// counts nothing (`dummy`) is left as it is.
    pub fn apply(&self, event: &mut EventSpec) {
        if (event.attr.kind, event.attr.config) == (event_type::SOFTWARE, DUMMY) {
            return;
        }
        match self.rate {
            Rate::Period(period) => event.set_default_period(period),
            Rate::Frequency(frequency) => event.set_default_frequency(frequency),
        }
        let attr = &mut event.attr;
        attr.sample_type |= SampleType::IP | SampleType::TID | SampleType::TIME | SampleType::CPU;
        // A fixed period is in the attr already. Asking for it in samples makes the kernel sample every occurrence of
        // a software event, whatever its period.
        if attr.flags.contains(AttrFlags::FREQ) {
            attr.sample_type |= SampleType::PERIOD;
        }
        if attr.kind == event_type::TRACEPOINT {
            attr.sample_type |= SampleType::RAW;
        }
        match self.call_graph {
            None => {}
            Some(CallGraph::FramePointer) => attr.sample_type |= SampleType::CALLCHAIN,
            Some(CallGraph::Dwarf { stack }) => {
                attr.sample_type |=
                    SampleType::CALLCHAIN | SampleType::REGS_USER | SampleType::STACK_USER;
                attr.sample_regs_user = USER_REGISTERS;
                attr.sample_stack_user = stack;
                attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
            }
            Some(CallGraph::Lbr) => {
                attr.sample_type |= SampleType::CALLCHAIN | SampleType::BRANCH_STACK;
                attr.branch_sample_type = BranchFilter::CALL_STACK;
                attr.flags |= AttrFlags::EXCLUDE_CALLCHAIN_USER;
            }
        }
        if self.kernel_entry {
            attr.sample_type |= SampleType::REGS_USER;
            attr.sample_regs_user |= USER_INSTRUCTION_POINTER;
        }
        if let Some(BranchFilter(bits)) = self.branches {
            attr.sample_type |= SampleType::BRANCH_STACK;
            attr.branch_sample_type |= bits;
        }
    }
}

/// The registers that unwinding needs, a bit each, in the kernel's numbering (`asm/perf_regs.h`).
#[cfg(target_arch = "x86_64")]
const USER_REGISTERS: u64 = {
    // The kernel refuses the segment registers ds, es, fs and gs.
    let all = (1 << 24) - 1;
    all & !(0b1111 << 12)
};
#[cfg(target_arch = "aarch64")]
const USER_REGISTERS: u64 = (1 << 33) - 1;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the registers that unwinding needs are known for x86-64 and arm64 only");

#[cfg(test)]
mod tests {
    use super::*;
    use dioptra_perfevents::Attr;

    #[test]
    fn call_graphs_as_typed() {
        assert_eq!("fp".parse(), Ok(CallGraph::FramePointer));
        assert_eq!("dwarf".parse(), Ok(CallGraph::Dwarf { stack: 8192 }));
        assert_eq!("dwarf,4001".parse(), Ok(CallGraph::Dwarf { stack: 4008 }));
        assert_eq!("lbr".parse(), Ok(CallGraph::Lbr));
        for wrong in [
            "",
            "fp,1",
            "dwarf,",
            "dwarf,0",
            "dwarf,65529",
            "dwarf,x",
            "Dwarf",
        ] {
            assert!(wrong.parse::<CallGraph>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn branch_filters_as_typed() {
        assert_eq!("any,u".parse(), Ok(BranchFilter(0b1001)));
        assert_eq!("u,k".parse(), Ok(BranchFilter(0b1011)));
        assert_eq!("any_ret".parse(), Ok(BranchFilter(1 << 5)));
        assert!("any,".parse::<BranchFilter>().is_err());
        assert!(
            "sometimes"
                .parse::<BranchFilter>()
                .unwrap_err()
                .to_string()
                .contains("any_call")
        );
    }

    fn event(kind: u32, config: u64) -> EventSpec {
        EventSpec::new(
            "event",
            Attr {
                kind,
                config,
                ..Attr::default()
            },
        )
    }

    #[test]
    fn a_fixed_period_is_not_asked_for_in_samples() {
        let mut faults = event(event_type::SOFTWARE, 2);
        let options = SampleOptions {
            rate: Rate::Period(100),
            ..SampleOptions::default()
        };
        options.apply(&mut faults);
        assert_eq!(faults.attr.sample_period, 100);
        assert!(!faults.attr.flags.contains(AttrFlags::FREQ));
        assert!(!faults.attr.sample_type.contains(SampleType::PERIOD));
        assert!(
            faults
                .attr
                .sample_type
                .contains(SampleType::IP | SampleType::TIME)
        );
        let mut clock = event(event_type::SOFTWARE, 0);
        SampleOptions::default().apply(&mut clock);
        assert_eq!(clock.attr.sample_period, DEFAULT_FREQUENCY);
        assert!(clock.attr.sample_type.contains(SampleType::PERIOD));
    }

    #[test]
    fn what_the_event_says_itself_wins_and_every_tracepoint_is_a_sample() {
        let mut own = event(event_type::SOFTWARE, 0).with_period(7);
        SampleOptions::default().apply(&mut own);
        assert_eq!(
            (
                own.attr.sample_period,
                own.attr.flags.contains(AttrFlags::FREQ)
            ),
            (7, false)
        );
        let mut tracepoint = event(event_type::TRACEPOINT, 1);
        SampleOptions::default().apply(&mut tracepoint);
        assert_eq!(tracepoint.attr.sample_period, 1);
        assert!(
            tracepoint.attr.sample_type.contains(SampleType::RAW),
            "its fields"
        );
        let mut dummy = event(event_type::SOFTWARE, DUMMY);
        SampleOptions::default().apply(&mut dummy);
        assert!(!dummy.attr.samples());
    }

    #[test]
    fn dwarf_copies_the_stack_and_leaves_the_chain_to_the_kernel_part() {
        let options = SampleOptions {
            call_graph: Some(CallGraph::Dwarf { stack: 1024 }),
            ..SampleOptions::default()
        };
        let mut clock = event(event_type::SOFTWARE, 0);
        options.apply(&mut clock);
        let attr = clock.attr;
        assert_eq!(
            (attr.sample_stack_user, attr.sample_period),
            (1024, DEFAULT_FREQUENCY)
        );
        assert!(
            attr.flags
                .contains(AttrFlags::EXCLUDE_CALLCHAIN_USER | AttrFlags::FREQ)
        );
        #[cfg(target_arch = "x86_64")]
        assert_eq!(attr.sample_regs_user, 0xff_0fff);
    }
}
