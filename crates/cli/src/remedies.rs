//! Remedies: what a user can type to get what an error or a fact says is missing.
//!
//! Libraries know causes; only this crate knows flags and commands.

use crate::commands::trace::TRACE_LESS;
use dioptra_export::{ExportError, ImportError};
use dioptra_perfdata::OpenError as PerfDataError;
use dioptra_perfevents::{
    AttachError, EventSyntaxError, NoInheritance, OpenError, Refusal, SyntaxCause, Unavailable,
};
use dioptra_recorder::{RecordError, RecordNote};
use dioptra_report::FindError;
use dioptra_tables::{Facts, Remedy};
use dioptra_trace_recorder::{SelectionWarning, TraceNote};
use dioptra_tracedata::TraceOpenError;
use dioptra_windows::display::DisplayError;
use dioptra_windows::record::WindowRecordError;
use std::error::Error;
use std::io::ErrorKind;

/// Returns an error's text with its causes, and the first remedy for one of them.
pub fn of_chain(error: &anyhow::Error) -> String {
    match error.chain().find_map(of) {
        Some(remedy) => format!("{error:#}; {remedy}"),
        None => format!("{error:#}"),
    }
}

/// Returns an error's text, and the remedy if there is one.
pub fn with_remedy(error: &(dyn Error + 'static)) -> String {
    match of(error) {
        Some(remedy) => format!("{error}; {remedy}"),
        None => error.to_string(),
    }
}

/// Returns the remedy for an error, not for its causes.
fn of(error: &(dyn Error + 'static)) -> Option<&'static str> {
    const OTHER_OUTPUT: &str = "give another file with -o";
    if let Some(error) = error.downcast_ref::<PerfDataError>() {
        return match error {
            PerfDataError::Missing { .. } => {
                Some("record one with `dioptra record -- COMMAND`, or name another file")
            }
            PerfDataError::NotPerfData { .. } => {
                Some("name a file that `dioptra record` or `perf record` wrote")
            }
            PerfDataError::NotAPipe { .. } => Some("`dioptra report -i FILE` reads it"),
            _ => None,
        };
    }
    if let Some(ExportError::NoTimes) = error.downcast_ref::<ExportError>() {
        return Some("record with `dioptra record`, or with perf's --timestamp");
    }
    if let Some(error) = error.downcast_ref::<ImportError>() {
        return match error {
            ImportError::UnknownFormat { .. } => {
                Some("say which it is with --from collapsed, pprof or perf-script")
            }
            ImportError::IsRecording => Some("`dioptra report -i FILE` reads it"),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<TraceOpenError>() {
        return match error {
            TraceOpenError::Missing { .. } => Some(
                "record one with `dioptra trace record COMMAND`, or name its directory with -d",
            ),
            TraceOpenError::Uftrace { .. } => {
                Some("`dioptra import DIR -o dioptra.trace` makes a trace of it")
            }
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<FindError>() {
        return match error {
            FindError::NoFunction { similar, .. } if similar.is_empty() => {
                Some("`dioptra report` lists those with samples")
            }
            FindError::NoAddress { .. } => {
                Some("`dioptra report --by instruction` shows relative ones")
            }
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<RecordError>() {
        return match error {
            RecordError::Attach(AttachError::Open(error)) => of_refusal(error),
            RecordError::Create { source, .. } if source.kind() == ErrorKind::NotSeekable => {
                Some("use `-o -` and redirect that into the pipe")
            }
            RecordError::Create { .. } => Some(OTHER_OUTPUT),
            RecordError::Extension(error) => of(&**error),
            _ => None,
        };
    }
    if let Some(error) = error.downcast_ref::<DisplayError>() {
        return match error {
            DisplayError::NoWindows => Some(
                "record with `dioptra record --windows`, or read counters together with `-e '{cycles,instructions}:S'`",
            ),
            DisplayError::NoCallers => Some("record with -g"),
            _ => None,
        };
    }
    if let Some(WindowRecordError::SideFile { .. }) = error.downcast_ref() {
        return Some(OTHER_OUTPUT);
    }
    if let Some(error) = error.downcast_ref::<EventSyntaxError>() {
        return (error.cause == SyntaxCause::Unknown).then_some("see `dioptra list events`");
    }
    if let Some(error) = error.downcast_ref::<Unavailable>() {
        return match error {
            Unavailable::NoTracefs => Some("as root: mount -t tracefs tracefs /sys/kernel/tracing"),
            Unavailable::TracefsDenied => Some("run as root"),
            Unavailable::UprobesDenied => Some("run as root, or `setcap cap_perfmon+ep` dioptra"),
            _ => None,
        };
    }
    error.downcast_ref().and_then(of_refusal)
}

/// Returns the remedy for an event that the kernel refused.
fn of_refusal(error: &OpenError) -> Option<&'static str> {
    match &error.refusal {
        Refusal::NotSupported => Some("see `dioptra list events`"),
        Refusal::NoInheritance(NoInheritance::Groups | NoInheritance::Values) => {
            Some("use --no-inherit")
        }
        Refusal::NoBranchStacks => Some("use --call-graph fp or --call-graph dwarf"),
        _ => None,
    }
}

/// Returns the text of a note of a recording, with its remedy if there is one.
pub fn of_record_note(note: &RecordNote) -> String {
    match note {
        RecordNote::KernelNamesHidden => {
            format!("{note}: run as root, or `sysctl kernel.kptr_restrict=0`")
        }
        RecordNote::LateIds => format!("{note}; record to a file"),
        RecordNote::LateExtensionIds => {
            "windows of threads that came later have no event in a pipe; record to a file"
                .to_owned()
        }
        _ => note.to_string(),
    }
}

/// Returns the text of a note of a trace, with its remedy if there is one.
pub fn of_trace_note(note: &TraceNote) -> String {
    match note {
        TraceNote::EndedBySeccomp => format!("{note}; leave out functions with -U"),
        _ => note.to_string(),
    }
}

/// Returns the text of a warning about the choice of functions, with the flag that means the same.
pub fn of_selection(warning: &SelectionWarning) -> String {
    match warning {
        SelectionWarning::NotInstrumented { .. } => format!("{warning}, as with -P ."),
        _ => warning.to_string(),
    }
}

/// Spells the remedies of facts as flags and commands.
pub fn spell(facts: &mut Facts) {
    facts.spell_remedies(|remedy| match remedy {
        Remedy::RecordCallChains => "record with -g".to_owned(),
        Remedy::RecordFramePointers => "record with --call-graph fp".to_owned(),
        Remedy::RecordLargerStacks => "record with --call-graph dwarf,SIZE".to_owned(),
        Remedy::RecordWithLargerBuffer => "record with a larger buffer (-m)".to_owned(),
        Remedy::RecordLessOften => "record at a lower frequency (-F)".to_owned(),
        Remedy::RecordMoreOften => "record at a higher frequency (-F)".to_owned(),
        Remedy::RecordAllCpus => "record all CPUs (-a)".to_owned(),
        Remedy::RecordOnMonotonicClock => "record with -k mono".to_owned(),
        Remedy::RecordWindows(set) => format!(
            "`dioptra record --windows --metrics {set}` records what this machine can count"
        ),
        Remedy::RecordMetrics(set) => {
            format!("`dioptra record --metrics {set}` records what this machine can count")
        }
        Remedy::ShowBranchCallers => {
            "see the calls of the branch records with --tree callers".to_owned()
        }
        Remedy::ShowWindows => "`dioptra metrics` shows them".to_owned(),
        Remedy::ShowBy(rows) => format!("use --by {rows}"),
        Remedy::GiveRecordedFiles => "name their folder with --symfs".to_owned(),
        Remedy::GiveSources => "give its folder with --source-path OLD=NEW or --symfs".to_owned(),
        Remedy::GiveKernelFile => "name it with --vmlinux".to_owned(),
        Remedy::FetchDebugFile => "fetch it with --debuginfod".to_owned(),
        Remedy::ShowTraceInfo => "`dioptra trace info` tells more".to_owned(),
        Remedy::ShowCallErrors => "`dioptra trace report` shows their errors".to_owned(),
        Remedy::TraceLess => TRACE_LESS.to_owned(),
    });
}
