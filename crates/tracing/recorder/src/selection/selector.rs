//! Which functions are traced: asked of a [`Selector`] once for each module.

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
    /// The last part of its path.
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
    /// How its calls would be found.
    pub method: Method,
    /// The name of a library call; functions' names are not known here.
    pub name: Option<&'a str>,
}

/// What happens at a probe site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteVariant {
    /// Nothing: it is not patched, and costs nothing.
    Skip,
    /// Each call is recorded, unless it is hidden by what is around it.
    Record,
    /// The same; a call that was too short ([`Gating::at_least`]) and recorded nothing below it is taken back.
    Timed,
    /// Neither the call nor anything that it calls is recorded.
    Mute,
    /// The call is recorded, also outside of other such calls and at any level, and what it calls.
    Filter,
    /// As [`SiteVariant::Record`], of some calls.
    Sample(Sampling),
    /// As [`SiteVariant::Filter`], of some calls; others are as [`SiteVariant::Mute`].
    SampleFilter(Sampling),
    /// As [`SiteVariant::Filter`]; executions are judged at their ends, and kept or dropped with what they called.
    JudgeFilter(Sampling),
}

impl SiteVariant {
    /// Whether calls that are not chosen are not recorded with what they call.
    pub fn samples_trees(self) -> bool {
        matches!(
            self,
            SiteVariant::SampleFilter(_) | SiteVariant::JudgeFilter(_)
        )
    }

    /// Returns the variant for a call of which only the beginning is recorded: nothing is within it or counted of it.
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

    /// How calls are chosen; none if all are treated alike.
    pub fn sampling(self) -> Option<Sampling> {
        match self {
            SiteVariant::Sample(sampling)
            | SiteVariant::SampleFilter(sampling)
            | SiteVariant::JudgeFilter(sampling) => Some(sampling),
            _ => None,
        }
    }
}

/// What hides calls of [`SiteVariant::Record`] and [`SiteVariant::Timed`] while the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gating {
    /// Only calls within a [`SiteVariant::Filter`] call are recorded.
    pub opt_in: bool,
    /// There are [`SiteVariant::Mute`] calls.
    pub mutes: bool,
    /// Only so many levels are recorded, counted from the outermost call or from the last filter's.
    pub levels: Option<u16>,
    /// The duration in nanoseconds from which on [`SiteVariant::Timed`] calls are kept.
    pub at_least: Option<u64>,
    /// There may be sites that sample.
    pub samples: bool,
}

impl Gating {
    /// Whether calls may be hidden by their place.
    pub fn hides(&self) -> bool {
        self.opt_in || self.mutes || self.levels.is_some()
    }
}

/// Chooses.
pub trait Selector: Send {
    /// Whether functions of the module that were not instrumented by a compiler may be wanted.
    fn plain(&mut self, module: &ModuleIdentity) -> bool;

    /// Whether the library calls of the module may be wanted.
    fn library_calls(&mut self, module: &ModuleIdentity) -> bool;

    /// What happens at each of the functions; as many answers as functions.
    fn choose(
        &mut self,
        module: &ModuleIdentity,
        functions: &[FunctionPlace<'_>],
    ) -> Vec<SiteVariant>;

    /// Functions of the module that can't be patched: their file offsets and why. Before [`Selector::choose`].
    fn refuse(&mut self, _module: &ModuleIdentity, _functions: &[(u64, &'static str)]) {}

    /// Functions of the module are left alone; the user is told why.
    fn leave_alone(&mut self, _module: &ModuleIdentity) {}

    /// What hides calls; the same at all times.
    fn gating(&self) -> Gating {
        Gating::default()
    }

    /// What the user should know of the modules that were seen since this was last asked: sentences.
    fn take_notes(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// What the user should know at the end: sentences.
    fn warnings(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Chooses everything, of modules that are wanted.
#[derive(Clone, Copy, Debug)]
pub struct Everything {
    /// Functions of the program that were not instrumented.
    pub plain: bool,
    /// The same for libraries.
    pub plain_libraries: bool,
    /// Library calls of the program.
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
