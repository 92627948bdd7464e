//! Remedies: the ways in which a user can get what a fact says is missing.

/// A way to get what a [`Fact`](crate::Fact) says is missing. Libraries name it; the program that shows the fact knows the
/// flag, the command or the button, and spells it ([`Facts::spell_remedies`](crate::Facts::spell_remedies)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Record call chains.
    RecordCallChains,
    /// Record call chains by frame pointers.
    RecordFramePointers,
    /// Record larger copies of the stack.
    RecordLargerStacks,
    /// Record with a larger ring buffer.
    RecordWithLargerBuffer,
    /// Record fewer samples a second.
    RecordLessOften,
    /// Record more samples a second.
    RecordMoreOften,
    /// Record all CPUs instead of a program.
    RecordAllCpus,
    /// Record with the times of the monotonic clock.
    RecordOnMonotonicClock,
    /// Record the events of this metric set over windows, as far as the machine can count them.
    RecordWindows(String),
    /// Record the events of this metric set, as far as the machine can count them.
    RecordMetrics(String),
    /// Show the callers that branch records know.
    ShowBranchCallers,
    /// Show the metrics that were read over windows.
    ShowWindows,
    /// Show rows of another kind, in which windows fit better.
    ShowBy(String),
    /// Read the recorded machine's files from a copy of them.
    GiveRecordedFiles,
    /// Read source files from another folder.
    GiveSources,
    /// Read the kernel's code and lines from its file.
    GiveKernelFile,
    /// Fetch the debug file of the recorded build from a server.
    FetchDebugFile,
    /// Show everything that is known about the trace.
    ShowTraceInfo,
    /// Show the errors of numbers that are scaled from sampled calls.
    ShowCallErrors,
    /// Trace fewer functions, give the tracer more memory, or let records go.
    TraceLess,
}
