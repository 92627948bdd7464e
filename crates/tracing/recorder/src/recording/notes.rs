//! Notes: the limits, fallbacks and losses of a recording.

use crate::analysis::left_alone::{LeftAlone, Unread};
use crate::processor::Native;
use crate::program::untraced::UntracedReason;
use crate::serving::debugged::BreakpointTrouble;
use crate::serving::greeting::{GreetingFault, PeerRefusal};
use crate::serving::patching::PatchObstacle;
use crate::serving::server::FailedStep;
use dioptra_filters::Warning;
use dioptra_trace_patch::Arch;
use std::fmt;
use std::path::PathBuf;

/// A limit, a fallback or a loss of a recording. Its text form is a sentence for users, without flags of a command.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum TraceNote {
    /// The ticks of the processor's counter are so long that short calls take none.
    CoarseClock {
        /// The counter's ticks a second.
        frequency: u64,
    },
    /// A program of the current folder was traced, and `PATH` leads to another one of the same name.
    HiddenProgram {
        /// The program that was traced.
        program: PathBuf,
        /// The program that `PATH` leads to.
        hidden: PathBuf,
    },
    /// Records that wait to be written take less memory than was asked for.
    LessMemory {
        /// The largest size in MiB.
        mebibytes: usize,
    },
    /// Only a part of some processes was recorded.
    Partly {
        /// One of the processes.
        pid: u32,
        /// The number of the others.
        others: u32,
        /// The reason.
        limit: PartLimit,
    },
    /// The command's own program was not traced.
    CommandUntraced {
        /// The program.
        program: PathBuf,
        /// The reason.
        why: UntracedReason,
    },
    /// Processes ran a program that was not traced.
    ProgramUntraced {
        /// The number of processes.
        processes: u64,
        /// The program; empty if its path is too long to be known.
        program: PathBuf,
        /// The reason.
        why: UntracedReason,
    },
    /// Processes ran programs that were not traced and have no note of their own.
    OtherProgramsUntraced {
        /// The number of processes.
        processes: u64,
    },
    /// So many programs were executed at once that some are not known.
    ExecutionsUnseen {
        /// The number of programs.
        programs: u64,
    },
    /// The command ended by a system call that it does not permit itself.
    EndedBySeccomp,
    /// Processes gave up waiting for the recorder's answer.
    Unanswered {
        /// The number of times.
        times: u64,
    },
    /// Functions of a module are not traced, because they could not be patched while the program ran.
    FunctionsUnpatched {
        /// The process.
        pid: u32,
        /// The module.
        module: PathBuf,
        /// The number of functions.
        functions: usize,
        /// The reason.
        obstacle: PatchObstacle,
    },
    /// A module of a process is not traced, because no patches could be made for it.
    ModuleUnplanned {
        /// The process.
        pid: u32,
        /// The module.
        module: PathBuf,
        /// The reason.
        because: String,
    },
    /// A module of a process is not traced, because a step in the process failed.
    ModuleStepFailed {
        /// The process.
        pid: u32,
        /// The module.
        module: PathBuf,
        /// The step.
        step: FailedStep,
        /// The error number of the system; 0 if there is none.
        errno: i32,
    },
    /// A process has loaded LLVM's unwinder after its functions were patched.
    LateUnwinder {
        /// The process.
        pid: u32,
    },
    /// Functions or events of a process are not traced, because a debugger runs it.
    Debugged {
        /// The debugger's name.
        debugger: String,
        /// The module.
        module: PathBuf,
        /// The reason.
        trouble: BreakpointTrouble,
    },
    /// A process that has connected is not traced.
    PeerRefused {
        /// The process, by its number and name, in words.
        process: String,
        /// The reason.
        why: PeerRefusal,
    },
    /// A process that has connected did not say what a traced program says, and is not traced.
    PeerSilent {
        /// The process, by its number and name, in words.
        process: String,
        /// The fault.
        fault: GreetingFault,
    },
    /// The system does not tell which process has connected.
    PeerUnknown {
        /// The error.
        because: String,
    },
    /// A process that was to be traced broke off its connection.
    BrokeOff {
        /// The process, by its number and name, in words.
        process: String,
        /// The error.
        because: String,
    },
    /// A traced program has overwritten memory that it shares with the recorder.
    Overwritten,
    /// Counting the calls of sampled functions alone costs more than the budget.
    CountingIsDear {
        /// The share of the program's time that counting took.
        share: f64,
        /// The share that was allowed.
        budget: f64,
    },
    /// No execution of some sampled functions was chosen, although they were called.
    NothingChosen {
        /// The number of functions.
        functions: u64,
        /// The number of their executions.
        executions: u64,
    },
    /// Events of the scheduler were not recorded.
    Unscheduled {
        /// Whether context switches are missing.
        switches: bool,
        /// Whether beginnings, ends and names of threads are missing.
        tasks: bool,
        /// The reason.
        because: String,
    },
    /// The functions of a module are left alone, and only calls of them can be traced.
    ModuleLeftAlone {
        /// The module.
        module: PathBuf,
        /// The reason.
        why: LeftAlone,
    },
    /// A module is not traced, because its file could not be read.
    ModuleUnread {
        /// The module.
        module: PathBuf,
        /// The reason.
        why: Unread,
    },
    /// Functions of a running program call the tracer themselves, and can't be traced.
    CallThemselves {
        /// The module of the functions.
        module: PathBuf,
        /// The number of functions.
        functions: usize,
    },
    /// Programs that a running process executes are not traced.
    ProgramsLost {
        /// The process.
        pid: u32,
    },
    /// A process keeps patches after the recording.
    Undetached {
        /// The process.
        pid: u32,
        /// The reason.
        because: String,
    },
    /// Somebody else has overwritten patches of a process, which stay as they are.
    OverwrittenCode {
        /// The process.
        pid: u32,
        /// The number of patches.
        patches: usize,
    },
    /// Values of some functions' calls were asked for, and are not recorded.
    NoValues {
        /// The module of the functions.
        module: PathBuf,
        /// The number of functions.
        functions: usize,
    },
    /// Some calls of library functions go through registers, and are not traced.
    ThroughRegisters {
        /// The module that calls.
        module: PathBuf,
        /// The number of library functions.
        functions: usize,
        /// The names of the first of them.
        examples: Vec<String>,
    },
    /// Functions are not sampled while the program runs, because of another rule.
    SampledLater {
        /// The words of the rule.
        words: &'static str,
    },
    /// More functions are sampled than can be counted.
    TooManySampled {
        /// The largest number of sampled functions.
        functions: usize,
        /// The largest number of functions that are sampled by their durations.
        tails: usize,
    },
    /// A trigger judges calls at their ends, which is done only when they are shown.
    JudgedLater,
    /// A rule has no effect.
    Rule(Warning),
}

impl TraceNote {
    /// Returns whether the note is about calls that are missing in the trace.
    pub fn is_loss(&self) -> bool {
        match self {
            TraceNote::Unanswered { .. }
            | TraceNote::FunctionsUnpatched { .. }
            | TraceNote::ModuleUnplanned { .. }
            | TraceNote::ModuleStepFailed { .. }
            | TraceNote::BrokeOff { .. } => true,
            TraceNote::PeerRefused { why, .. } => why.is_the_recorders(),
            _ => false,
        }
    }
}

/// The reason why only a part of a process was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartLimit {
    /// The process forbade itself system calls that the tracer needs.
    Confined,
    /// The process loaded modules after it forbade itself system calls.
    Alone,
    /// A signal handler exchanged call stacks that had interrupted the tracer.
    Preempted,
    /// A thread made a task that shares its thread-local memory.
    Sharing,
}

impl PartLimit {
    /// Returns the words behind "process 12 is".
    fn words(self) -> &'static str {
        match self {
            PartLimit::Confined => {
                "recorded up to where it forbade itself system calls (seccomp) that the tracer needs"
            }
            PartLimit::Alone => {
                "recorded without the modules that it loaded after it forbade itself system calls (seccomp)"
            }
            PartLimit::Preempted => {
                "recorded up to where a signal handler exchanged call stacks that had interrupted the tracer"
            }
            PartLimit::Sharing => {
                "recorded without a thread, from where that made a task that shares its thread-local memory (clone with CLONE_VM, without CLONE_SETTLS), and without that task"
            }
        }
    }
}

impl fmt::Display for TraceNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceNote::CoarseClock { frequency } => write!(
                f,
                "times are multiples of {:.1} ns, one tick of the processor's counter (cntvct_el0): shorter calls take \
                 none or one",
                1e9 / *frequency as f64
            ),
            TraceNote::HiddenProgram { program, hidden } => write!(
                f,
                "{} of the current folder was traced, not {}, which PATH leads to",
                program.display(),
                hidden.display()
            ),
            TraceNote::LessMemory { mebibytes } => write!(
                f,
                "records that are not written yet take {mebibytes} MiB of memory at most, not more"
            ),
            TraceNote::Partly { pid, others, limit } => {
                write!(f, "process {pid} is {}", limit.words())?;
                match others {
                    0 => Ok(()),
                    others => write!(f, "; so it is of {others} more"),
                }
            }
            TraceNote::CommandUntraced { program, why } => write!(
                f,
                "{} was not traced: the runtime was not loaded into it: {why}",
                program.display()
            ),
            TraceNote::ProgramUntraced {
                processes,
                program,
                why,
            } => {
                let several = if *processes == 1 { "" } else { "es" };
                write!(f, "{processes} process{several} of ")?;
                match program.as_os_str().is_empty() {
                    true => f.write_str("a program with a long path")?,
                    false => write!(f, "{}", program.display())?,
                }
                write!(f, " ran untraced: {why}")
            }
            TraceNote::OtherProgramsUntraced { processes } => {
                write!(f, "{processes} processes of other programs ran untraced")
            }
            TraceNote::ExecutionsUnseen { programs } => write!(
                f,
                "{programs} programs were executed while too many others were: whether they were traced is not known"
            ),
            TraceNote::EndedBySeccomp => f.write_str(
                "the command ended by a system call that it does not permit itself (seccomp): perhaps one of the tracer's, if it made its filter known to the kernel by code of its own, which the tracer can't see",
            ),
            TraceNote::Unanswered { times } => write!(
                f,
                "{times} times a process that had loaded or unloaded libraries gave up waiting for dioptra, which was stopped or too slow: what it loaded is traced only from the next time on that it loads or unloads one"
            ),
            TraceNote::FunctionsUnpatched {
                pid,
                module,
                functions,
                obstacle,
            } => write!(
                f,
                "process {pid}: {functions} functions of {} are not traced: {obstacle}",
                module.display()
            ),
            TraceNote::ModuleUnplanned {
                pid,
                module,
                because,
            } => write!(
                f,
                "process {pid}: {} is not traced: {because}",
                module.display()
            ),
            TraceNote::ModuleStepFailed {
                pid,
                module,
                step,
                errno,
            } => {
                write!(
                    f,
                    "process {pid}: {} is not traced: {step}",
                    module.display()
                )?;
                match errno {
                    0 => Ok(()),
                    errno => write!(f, " ({})", std::io::Error::from_raw_os_error(*errno)),
                }
            }
            TraceNote::LateUnwinder { pid } => write!(
                f,
                "process {pid} has loaded LLVM's unwinder after its functions were patched: an exception that this lets \
                 pass through them ends the program; link it to the program, or preload it"
            ),
            TraceNote::Debugged {
                debugger,
                module,
                trouble,
            } => trouble.write(f, debugger, module),
            TraceNote::PeerRefused { process, why } => write!(f, "{process} is not traced: {why}"),
            TraceNote::PeerSilent { process, fault } => {
                write!(
                    f,
                    "{process} {fault}: it was refused, and is not traced"
                )
            }
            TraceNote::PeerUnknown { because } => {
                write!(f, "a process can't be asked who it is: {because}")
            }
            TraceNote::BrokeOff { process, because } => {
                write!(f, "{process}, which was to be traced, broke off: {because}")
            }
            TraceNote::Overwritten => {
                f.write_str("a traced program has overwritten memory of its trace")
            }
            TraceNote::CountingIsDear { share, budget } => write!(
                f,
                "functions with sample=auto are called so often that counting their calls alone took about {:.0}% of the program's time, more than the allowed {}%; choose functions that are called less often: the trace states how often they were",
                share.min(1.0) * 100.0,
                budget * 100.0
            ),
            TraceNote::NothingChosen {
                functions,
                executions,
            } => write!(
                f,
                "{functions} functions of -F FUNCTION@sample=N were called, {executions} times in all, but in no thread N times: nothing of them is shown; calls within an execution (recursion) belong to it: -T FUNCTION@sample=N counts each"
            ),
            TraceNote::Unscheduled {
                switches,
                tasks,
                because,
            } => {
                let missing = match (switches, tasks) {
                    (true, true) => {
                        "when threads had no CPU is not recorded, nor when they began, ended and got names"
                    }
                    (true, false) => "when threads had no CPU is not recorded",
                    (false, _) => "when threads began, ended and got names is not recorded",
                };
                write!(f, "{missing}: {because}")
            }
            TraceNote::ModuleLeftAlone { module, why } => write!(
                f,
                "functions of {} are not traced: {why}; calls of them can be, as library calls",
                module.display()
            ),
            TraceNote::ModuleUnread { module, why } => {
                write!(f, "{} is not traced: {why}", module.display())
            }
            TraceNote::CallThemselves { module, functions } => write!(
                f,
                "{}: {functions} functions call the tracer themselves (-finstrument-functions): they can be traced only if \
                 the program is started by the recorder",
                module.display()
            ),
            TraceNote::ProgramsLost { pid } => write!(
                f,
                "programs that process {pid} executes are not traced: it may not read, or does not see, the file of the \
                 tracer's runtime"
            ),
            TraceNote::Undetached { pid, because } => write!(
                f,
                "process {pid} keeps the tracer's jumps in its code, which cost a little time at each call: {because}"
            ),
            TraceNote::OverwrittenCode { pid, patches } => write!(
                f,
                "process {pid}: {patches} of the tracer's jumps were overwritten by somebody else and stay as they are"
            ),
            TraceNote::NoValues { module, functions } => {
                let why = match Native::RECORDS_VALUES {
                    true => {
                        "they call the tracer themselves (-finstrument-functions), when registers have other values already, or \
                         they never return"
                    }
                    false => "they can be recorded on x86-64 only",
                };
                write!(
                    f,
                    "{}: arguments and return values are not recorded of {functions} of the functions: {why}",
                    module.display()
                )
            }
            TraceNote::ThroughRegisters {
                module,
                functions,
                examples,
            } => {
                let more = if *functions > examples.len() { ", …" } else { "" };
                write!(
                    f,
                    "{}: some calls of library functions ({functions}: {}{more}) go through registers: they are not traced",
                    module.display(),
                    examples.join(", ")
                )
            }
            TraceNote::SampledLater { words } => write!(
                f,
                "sample= has no effect while the program runs, for the sake of {words}: all its calls are recorded, and chosen when they are shown"
            ),
            TraceNote::TooManySampled { functions, tails } => write!(
                f,
                "more than {functions} functions are sampled, or {tails} by sample=pNN: calls of the others are all recorded, and chosen when they are shown"
            ),
            TraceNote::JudgedLater => f.write_str(
                "-T FUNCTION@sample=pNN judges calls at their ends, and what they call stays: all are recorded, and chosen when they are shown; -F records only what is chosen",
            ),
            TraceNote::Rule(warning) => warning.fmt(f),
        }
    }
}
