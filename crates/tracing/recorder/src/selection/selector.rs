//! The choice of functions that are traced: a [`Selector`] is asked once for each module.

use super::warnings::SelectionWarning;
use crate::recording::notes::TraceNote;
use dioptra_filters::Sampling;
use dioptra_tracelayout::message::Method;
use std::borrow::Cow;
use std::path::PathBuf;

/// A module whose functions are to be chosen from.
#[derive(Clone, Debug)]
pub struct ModuleIdentity {
    /// Its path, as the process sees it.
    pub path: PathBuf,
    /// A path by which it can be opened here.
    pub readable: PathBuf,
    /// Its build id; empty if it has none.
    pub build_id: Vec<u8>,
    /// Whether it is the program itself, not a library.
    pub is_program: bool,
    /// Whether a compiler has prepared it for tracing.
    pub is_instrumented: bool,
}

impl ModuleIdentity {
    /// Returns the last part of its path.
    pub fn file_name(&self) -> Cow<'_, str> {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy()
    }
}

/// A function that can be traced.
#[derive(Clone, Copy, Debug)]
pub struct FunctionPlace<'a> {
    /// The file offset of its first byte.
    pub offset: u64,
    /// Its size in bytes, 0 if it is not known.
    pub size: u64,
    /// The way in which its calls would be found.
    pub method: Method,
    /// The name of a library call; `None` for a function, whose name is not known here.
    pub name: Option<&'a str>,
}

/// The treatment of calls at a probe site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteVariant {
    /// The site is not patched, and its calls cost nothing.
    Skip,
    /// Each call is recorded, unless its place among the open calls hides it.
    Record,
    /// As [`SiteVariant::Record`]. A call that was too short ([`Gating::at_least`]) and has no recorded calls in it is
    /// taken back.
    Timed,
    /// Neither the call nor any call in it is recorded.
    Mute,
    /// The call and the calls in it are recorded, also outside of other such calls and at any level.
    Filter,
    /// As [`SiteVariant::Record`], for chosen calls.
    Sample(Sampling),
    /// As [`SiteVariant::Filter`], for chosen calls. Other calls are treated as [`SiteVariant::Mute`].
    SampleFilter(Sampling),
    /// As [`SiteVariant::Filter`]. Executions are judged at their ends, and kept or dropped with the calls in them.
    JudgeFilter(Sampling),
}

impl SiteVariant {
    /// Returns whether a call that is not chosen is left out with the calls in it.
    pub fn samples_trees(self) -> bool {
        matches!(
            self,
            SiteVariant::SampleFilter(_) | SiteVariant::JudgeFilter(_)
        )
    }

    /// Returns the variant for a call of which only the beginning is recorded: no calls lie in it, and it is not
    /// counted.
    pub fn told(self) -> SiteVariant {
        match self {
            SiteVariant::Mute | SiteVariant::Skip => SiteVariant::Skip,
            SiteVariant::Record | SiteVariant::Timed | SiteVariant::Sample(_) => {
                SiteVariant::Record
            }
            SiteVariant::Filter | SiteVariant::SampleFilter(_) | SiteVariant::JudgeFilter(_) => {
                SiteVariant::Filter
            }
        }
    }

    /// Returns the way in which calls are chosen; `None` if all are treated alike.
    pub fn sampling(self) -> Option<Sampling> {
        match self {
            SiteVariant::Sample(sampling)
            | SiteVariant::SampleFilter(sampling)
            | SiteVariant::JudgeFilter(sampling) => Some(sampling),
            _ => None,
        }
    }
}

/// The conditions that hide calls of [`SiteVariant::Record`] and [`SiteVariant::Timed`] while the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gating {
    /// Whether only calls within a [`SiteVariant::Filter`] call are recorded.
    pub opt_in: bool,
    /// Whether there are [`SiteVariant::Mute`] calls.
    pub mutes: bool,
    /// The number of levels that are recorded, counted from the outermost call or from the last filter's; `None` for no
    /// limit.
    pub levels: Option<u16>,
    /// The duration in nanoseconds from which on [`SiteVariant::Timed`] calls are kept; `None` for no limit.
    pub at_least: Option<u64>,
    /// Whether there may be sites that sample.
    pub samples: bool,
}

impl Gating {
    /// Returns whether calls may be hidden by their place.
    pub fn hides(&self) -> bool {
        self.opt_in || self.mutes || self.levels.is_some()
    }
}

/// A choice of functions.
pub trait Selector: Send {
    /// Returns whether functions of the module that were not instrumented by a compiler may be wanted.
    fn plain(&mut self, module: &ModuleIdentity) -> bool;

    /// Returns whether the library calls of the module may be wanted.
    fn library_calls(&mut self, module: &ModuleIdentity) -> bool;

    /// Returns the variant of each of the functions, in the same order.
    fn choose(
        &mut self,
        module: &ModuleIdentity,
        functions: &[FunctionPlace<'_>],
    ) -> Vec<SiteVariant>;

    /// Receives the functions of the module that can't be patched, before [`Selector::choose`]: their file offsets and
    /// the reasons.
    fn refuse(&mut self, _module: &ModuleIdentity, _functions: &[(u64, &'static str)]) {}

    /// Notes that functions of the module are left alone. The recorder gives the user the reason.
    fn leave_alone(&mut self, _module: &ModuleIdentity) {}

    /// Returns the conditions that hide calls. They are the same at all times.
    fn gating(&self) -> Gating {
        Gating::default()
    }

    /// Returns the notes for the user about the modules that were seen since the last call.
    fn take_notes(&mut self) -> Vec<TraceNote> {
        Vec::new()
    }

    /// Returns the warnings for the user at the end.
    fn warnings(&mut self) -> Vec<SelectionWarning> {
        Vec::new()
    }
}

/// The choice of everything, in modules that are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Everything {
    /// Whether functions of the program that were not instrumented are wanted.
    pub plain: bool,
    /// Whether functions of libraries that were not instrumented are wanted.
    pub plain_libraries: bool,
    /// Whether library calls of the program are wanted.
    pub library_calls: bool,
}

impl Selector for Everything {
    fn plain(&mut self, module: &ModuleIdentity) -> bool {
        if module.is_program {
            self.plain
        } else {
            self.plain_libraries
        }
    }

    fn library_calls(&mut self, module: &ModuleIdentity) -> bool {
        self.library_calls && module.is_program
    }

    fn choose(
        &mut self,
        _module: &ModuleIdentity,
        functions: &[FunctionPlace<'_>],
    ) -> Vec<SiteVariant> {
        vec![SiteVariant::Record; functions.len()]
    }
}
