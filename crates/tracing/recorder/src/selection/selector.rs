//! The choice of functions that are traced: a [`Selector`] is asked once for each module.

use super::values::FunctionValues;
use super::warnings::SelectionWarning;
use crate::recording::notes::TraceNote;
use dioptra_filters::Probe;
use dioptra_tracelayout::message::Method;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

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

/// The conditions that hide calls of [`Probe::Record`] and [`Probe::Timed`] while the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gating {
    /// Whether only calls within a [`Probe::Filter`] call are recorded.
    pub opt_in: bool,
    /// Whether there are [`Probe::Mute`] calls.
    pub mutes: bool,
    /// The number of levels that are recorded, counted from the outermost call or from the last filter's; `None` for no
    /// limit.
    pub levels: Option<u16>,
    /// The duration in nanoseconds from which on [`Probe::Timed`] calls are kept; `None` for no limit.
    pub at_least: Option<u64>,
    /// Whether there may be sites that sample.
    pub samples: bool,
    /// Whether values of some functions' calls are recorded.
    pub values: bool,
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

    /// Returns the probe of each of the functions, in the same order.
    fn choose(&mut self, module: &ModuleIdentity, functions: &[FunctionPlace<'_>]) -> Vec<Probe>;

    /// Returns the values that are recorded with calls of the functions of the last [`Selector::choose`], in the same
    /// order; nothing if there are none.
    fn take_values(&mut self) -> Vec<Option<Arc<FunctionValues>>> {
        Vec::new()
    }

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

    fn choose(&mut self, _module: &ModuleIdentity, functions: &[FunctionPlace<'_>]) -> Vec<Probe> {
        vec![Probe::Record; functions.len()]
    }
}
