//! Things that one of the two kinds of traces has no place for.

use std::collections::BTreeMap;
use std::fmt;

/// A kind of data that the other tool's directory has no place for, or that is missing in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UftraceLossKind {
    /// Calls deeper than a record can state.
    DeepCalls,
    /// Call stacks beside a thread's first one, which became threads of their own.
    CallStacks,
    /// Causes of calls' ends: exceptions, jumps, the ends of threads.
    Endings,
    /// Calls whose ends nobody saw; they end where records go on.
    MissingEnds,
    /// Calls whose beginnings nobody saw; they begin where records go on.
    MissingBeginnings,
    /// Calls of functions that have no address.
    WithoutAddress,
    /// Modules that were moved to other addresses.
    MovedModules,
    /// Names and paths with characters that the format can't hold.
    ChangedNames,
    /// Names of functions that jump, which uftrace would take for jumps past the calls' ends that the trace has.
    JumpNames,
    /// Names of calls that execute another program and end nevertheless, because they failed or because a child made
    /// them in its parent's place. uftrace would forget the calls around them.
    FailedExecutions,
    /// Functions whose calls were sampled: the number of calls that were not chosen.
    SampledFunctions,
    /// Stretches of time in which a thread waited for the tracer, which became ordinary ones.
    TracerWaits,
    /// Remarks of the recorder.
    Notes,
    /// Functions that can't be traced.
    RefusedFunctions,
    /// Records whose time lies before that of the record in front of them.
    EarlyRecords,
    /// Arguments and return values of calls.
    Arguments,
    /// Events among the calls.
    Events,
    /// Files with records of the kernel's functions, or of other programs.
    KernelFiles,
    /// Bytes that are no records.
    DamagedBytes,
    /// Lines of text files that could not be read.
    Lines,
    /// Ends of calls that did not begin, such as the second return of `setjmp`.
    StrayEnds,
    /// Open calls whose functions are not known.
    UnknownCalls,
}

/// Things of one kind with their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UftraceLoss {
    /// The kind.
    pub kind: UftraceLossKind,
    /// Their number, in the unit that the text names.
    pub count: u64,
}

impl fmt::Display for UftraceLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.count;
        let many = |one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {many}"),
        };
        use UftraceLossKind as Kind;
        let text = match &self.kind {
            Kind::DeepCalls => many("call deeper than 1023", "calls deeper than 1023"),
            Kind::CallStacks => many(
                "call stack of a coroutine, which became a thread",
                "call stacks of coroutines, which became threads",
            ),
            Kind::Endings => format!(
                "the cause of the end of {} (exception, jump, end of thread)",
                many("call", "calls")
            ),
            Kind::MissingEnds => many(
                "call whose end is missing, which ends where records go on",
                "calls whose ends are missing, which end where records go on",
            ),
            Kind::MissingBeginnings => many(
                "call whose beginning is missing, which begins where records go on",
                "calls whose beginnings are missing, which begin where records go on",
            ),
            Kind::WithoutAddress => many(
                "call of a function without an address",
                "calls of functions without an address",
            ),
            Kind::MovedModules => format!(
                "the address of {}, where another lies",
                many("module", "modules")
            ),
            Kind::ChangedNames => format!(
                "blanks in {}, which were changed",
                many("name or path", "names or paths")
            ),
            Kind::JumpNames => format!(
                "the name of {}, such as longjmp, which became _longjmp",
                many("function that jumps", "functions that jump")
            ),
            Kind::FailedExecutions => format!(
                "the name of {} of execve and the like, which became __execve",
                many(
                    "call that did not end its program,",
                    "calls that did not end their program,"
                )
            ),
            Kind::SampledFunctions => format!(
                "the counts of {}, of which only chosen calls are recorded",
                many("sampled function", "sampled functions")
            ),
            Kind::TracerWaits => format!("the mark of {} for the tracer", many("wait", "waits")),
            Kind::Notes => many("note of the recorder", "notes of the recorder"),
            Kind::RefusedFunctions => format!(
                "the reasons why {} can't be traced",
                many("function", "functions")
            ),
            Kind::EarlyRecords => format!(
                "the time of {}, which lay before the record in front",
                many("record", "records")
            ),
            Kind::Arguments => format!(
                "the arguments or return values of {}",
                many("beginning or end of a call", "beginnings and ends of calls")
            ),
            Kind::Events => many("event among calls", "events among calls"),
            Kind::KernelFiles => many(
                "file of kernel functions or other data",
                "files of kernel functions or other data",
            ),
            Kind::DamagedBytes => many("byte that is no record", "bytes that are no records"),
            Kind::Lines => many(
                "line that can't be read, or has no meaning here",
                "lines that can't be read, or have no meaning here",
            ),
            Kind::StrayEnds => many(
                "end of a call that did not begin (setjmp returns twice)",
                "ends of calls that did not begin (setjmp returns twice)",
            ),
            Kind::UnknownCalls => many(
                "call that was open already, whose function is not known",
                "calls that were open already, whose functions are not known",
            ),
        };
        f.write_str(&text)
    }
}

/// Counters of losses.
#[derive(Debug, Default)]
pub(super) struct Losses {
    counts: BTreeMap<UftraceLossKind, u64>,
}

impl Losses {
    /// Counts one more thing.
    pub fn add(&mut self, kind: UftraceLossKind) {
        self.add_many(kind, 1);
    }

    /// Counts some more things.
    pub fn add_many(&mut self, kind: UftraceLossKind, count: u64) {
        if count > 0 {
            let sum = self.counts.entry(kind).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// Returns all counts.
    pub fn list(self) -> Vec<UftraceLoss> {
        let each = self.counts.into_iter();
        each.map(|(kind, count)| UftraceLoss { kind, count })
            .collect()
    }
}
