//! Names for places, found once for each after reading.

use crate::hash::FxBuildHasher;
use crate::naming::debug_info::DebugInfoWanted;
use crate::naming::inlined::Inlined;
use crate::processes::jit::JitNames;
use crate::processes::modules::{HOOKS, Module, ModuleId, UNKNOWN};
use crate::profile::Profile;
use crate::stacks::frames::FrameId;
use dioptra_perfdata::ImportedNames;
use dioptra_symbols::{
    ModuleKind, ModuleRequest, ModuleSymbols, Note, RelativeAddress, SymbolOptions, Symbolizer,
    demangle,
};
use hashbrown::HashMap;
use rayon::prelude::*;
use std::hash::BuildHasher;
use std::sync::Arc;

/// The index of a [`FunctionName`] in [`Names`].
pub type FunctionId = u32;

/// A function's name and its module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// The module.
    pub module: ModuleId,
    /// The name. A function without a name is called `[0x1234]`, after its start in its module. [`UNKNOWN`] names all
    /// places of the module whose function's start is not known either.
    pub name: String,
    /// The first relative address; `None` for inlined functions, code made at run time and places without any name.
    pub start: Option<u64>,
    /// The source file's name without its folder, for a local (`static`) function whose symbol table states it.
    pub file: Option<Arc<str>>,
    /// A hash of the name as the linker knows it. It distinguishes functions whose demangled names are equal.
    pub link_name: u64,
    /// Whether this entry stands for the function's code where the compiler inlined it into others. The function's own
    /// code has another entry.
    pub is_inlined: bool,
}

impl FunctionName {
    /// Returns whether it stands for the places of its module that have no name.
    pub fn is_unknown(&self) -> bool {
        let rest = self.name.strip_prefix(UNKNOWN);
        // A range of addresses may follow the name: see `Names::split_unknown`.
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(" 0x"))
    }

    /// Returns whether it has no name: its places are unknown, or only its start is known.
    pub fn is_nameless(&self) -> bool {
        self.is_unknown() || self.name.starts_with(NAMELESS)
    }
}

/// The beginning of the name of a function of which only the start is known.
const NAMELESS: &str = "[0x";

/// The index of a [`SourceLine`] in [`Names`].
pub type LineId = u32;

/// A line of a source file, in one module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceLine {
    /// The module.
    pub module: ModuleId,
    /// The file with the directory it was compiled in; `None` for all places of the module whose line is not known.
    pub file: Option<Arc<str>>,
    /// The line, from 1; `None` where only the file is known.
    pub line: Option<u32>,
}

/// A note of the symbolizer about a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleNote {
    /// The module.
    pub module: ModuleId,
    /// The note.
    pub note: Note,
}

/// The functions of all places of a [`Profile`].
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(crate) functions: Vec<FunctionName>,
    /// By frame.
    pub(crate) of_frame: Vec<FunctionId>,
    pub(crate) notes: Vec<ModuleNote>,
    pub(crate) lines: Vec<SourceLine>,
    /// By frame; empty until lines were asked for.
    pub(crate) line_of: Vec<LineId>,
    pub(crate) outermost_line_of: Vec<LineId>,
    /// The inlined functions; `None` until they were asked for.
    pub(crate) inlined: Option<Inlined>,
}

/// The form in which names are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    pub(super) demangled: bool,
}

/// A function's name within its module.
#[derive(Clone, Debug)]
pub(super) struct OwnName {
    pub(super) name: String,
    pub(super) start: Option<u64>,
    pub(super) file: Option<Arc<str>>,
    pub(super) link_name: u64,
}

impl OwnName {
    /// Makes a name without a known start or file.
    fn only(name: String) -> OwnName {
        OwnName {
            start: None,
            file: None,
            link_name: hash_of(&name),
            name,
        }
    }
}

/// Returns a hash that is the same in every run.
pub(crate) fn hash_of(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}

/// The names of one module's places.
#[derive(Clone, Debug, Default)]
pub(super) struct ModuleNames {
    pub(super) names: Vec<OwnName>,
    /// Each place with the index of its name.
    pub(super) places: Vec<(FrameId, u32)>,
    pub(super) notes: Vec<Note>,
}

impl ModuleNames {
    /// Adds a name, and returns its index.
    pub(super) fn push(&mut self, name: OwnName) -> u32 {
        self.names.push(name);
        // The number of names is at most the number of frames, which fits.
        u32::try_from(self.names.len() - 1).unwrap_or(u32::MAX)
    }

    /// Adds the names of other places.
    fn append(&mut self, other: ModuleNames) {
        let first = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.extend(other.names);
        let places = other.places.into_iter();
        self.places
            .extend(places.map(|(frame, name)| (frame, first + name)));
        self.notes.extend(other.notes);
    }
}

impl Names {
    /// Names every place of `profile`, on all cores. If the options have no recorded kernel, the profile's is used.
    pub fn find(profile: &Profile, mut options: SymbolOptions) -> Names {
        let shown = Shown {
            demangled: options.demangle,
        };
        // Demangling happens once for each name, not for each place.
        options.demangle = false;
        options
            .recorded_kernel
            .get_or_insert_with(|| profile.recorded_kernel().clone());
        let symbolizer = Symbolizer::new(options);
        let named: Vec<Option<ModuleNames>> = places_by_module(profile)
            .into_par_iter()
            .enumerate()
            .with_max_len(1)
            .map(|(index, places)| {
                let module = u32::try_from(index).ok()?;
                (!places.is_empty()).then(|| {
                    let module = profile.modules().get(module);
                    name_module(module, places, &symbolizer, shown, profile.imported())
                })
            })
            .collect();
        let mut names = Names {
            of_frame: vec![0; profile.frames().len()],
            ..Names::default()
        };
        for (module, of_module) in (0_u32..).zip(named) {
            if let Some(of_module) = of_module {
                names.append(module, of_module);
            }
        }
        names
    }

    pub(super) fn append(&mut self, module: ModuleId, named: ModuleNames) {
        // The number of functions is at most the number of frames, which fits.
        let base = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        self.functions
            .extend(named.names.into_iter().map(|own| FunctionName {
                module,
                name: own.name,
                start: own.start,
                file: own.file,
                link_name: own.link_name,
                is_inlined: false,
            }));
        for (frame, name) in named.places {
            self.of_frame[frame as usize] = base.saturating_add(name);
        }
        self.notes.extend(
            named
                .notes
                .into_iter()
                .map(|note| ModuleNote { module, note }),
        );
    }

    /// Returns all functions in the order of their ids. The functions of a module follow each other.
    pub fn functions(&self) -> &[FunctionName] {
        &self.functions
    }

    /// Returns the function of a place.
    ///
    /// # Panics
    /// On a frame that is none of the profile for which the names were found.
    #[inline]
    pub fn of_frame(&self, frame: FrameId) -> FunctionId {
        self.of_frame[frame as usize]
    }

    /// Returns the functions at a place, innermost first. The functions that were inlined there come first, and the
    /// function whose code it is, [`Names::of_frame`], comes last. The place executes itself, or has called `callee`.
    /// The list has only the last function unless inlined functions were asked for ([`Names::find_debug_info`]).
    ///
    /// # Panics
    /// On frames that are none of the profile for which the names were found.
    #[inline]
    pub fn chain_of(&self, frame: FrameId, callee: Option<FrameId>) -> &[FunctionId] {
        if let Some(inlined) = &self.inlined {
            let functions = inlined.of(frame, callee).functions(frame);
            if !functions.is_empty() {
                return functions;
            }
        }
        std::slice::from_ref(&self.of_frame[frame as usize])
    }

    /// Returns [`Names::chain_of`] for a frame that has made a call and was not interrupted by the kernel.
    #[inline]
    pub(crate) fn chain_of_caller(&self, frame: FrameId) -> &[FunctionId] {
        // No frame interrupts itself.
        self.chain_of(frame, Some(frame))
    }

    /// Returns whether the kernel interrupted `caller`, so that it executes although it has a callee. Always false
    /// unless inlined functions were asked for.
    ///
    /// # Panics
    /// As [`Names::chain_of`].
    #[inline]
    pub fn is_interrupted(&self, caller: FrameId, callee: FrameId) -> bool {
        let inlined = self.inlined.as_ref();
        inlined.is_some_and(|inlined| inlined.is_interrupted(caller, callee))
    }

    /// Returns the lines that go with [`Names::chain_of`]. The first is the line of the place; each further line is
    /// that of the call which the compiler replaced. Empty where the place has only one function; see
    /// [`Names::line_of`].
    ///
    /// # Panics
    /// As [`Names::chain_of`].
    pub fn chain_lines(&self, frame: FrameId, callee: Option<FrameId>) -> &[LineId] {
        self.inlined
            .as_ref()
            .map_or(&[], |inlined| inlined.of(frame, callee).lines(frame))
    }

    /// Returns whether inlined functions were asked for.
    pub fn has_inlined(&self) -> bool {
        self.inlined.is_some()
    }

    /// Returns the symbolizer's notes about debug information that was read for inlined functions only.
    pub fn inlined_notes(&self) -> &[ModuleNote] {
        self.inlined
            .as_ref()
            .map_or(&[], |inlined| inlined.notes.as_slice())
    }

    /// Returns whether debug information, read for inlined functions, says nothing about a place where samples were
    /// taken.
    pub(crate) fn is_undescribed(&self, frame: FrameId) -> bool {
        let inlined = self.inlined.as_ref();
        inlined.is_some_and(|inlined| inlined.undescribed[frame as usize])
    }

    /// Finds the source line of every place, on all cores.
    pub fn find_lines(&mut self, profile: &Profile, options: SymbolOptions) {
        let wanted = DebugInfoWanted {
            lines: true,
            inlined: false,
        };
        self.find_debug_info(profile, options, wanted);
    }

    /// Returns all lines in the order of their ids; none before [`Names::find_debug_info`].
    pub fn lines(&self) -> &[SourceLine] {
        &self.lines
    }

    /// Returns whether the lines of places were asked for.
    pub fn has_lines(&self) -> bool {
        !self.line_of.is_empty()
    }

    /// Returns the line of a place. Where the place has several functions, the line is that of the innermost one.
    ///
    /// # Panics
    /// On a frame that is none of the profile for which lines were found.
    #[inline]
    pub fn line_of(&self, frame: FrameId) -> LineId {
        self.line_of[frame as usize]
    }

    /// Returns the line in the function whose code the place is. For inlined code it is the line of the call which the
    /// compiler replaced.
    ///
    /// # Panics
    /// As [`Names::line_of`].
    #[inline]
    pub fn outermost_line_of(&self, frame: FrameId) -> LineId {
        self.outermost_line_of[frame as usize]
    }

    /// Returns the symbolizer's notes about the modules that have places.
    pub fn notes(&self) -> &[ModuleNote] {
        &self.notes
    }
}

/// Returns the address and id of each place, by module.
pub(crate) fn places_by_module(profile: &Profile) -> Vec<Vec<(u64, FrameId)>> {
    let mut by_module: Vec<Vec<(u64, FrameId)>> = vec![Vec::new(); profile.modules().len()];
    for (id, frame) in (0_u32..).zip(profile.frames().iter()) {
        if let Some(places) = by_module.get_mut(frame.module as usize) {
            places.push((frame.address, id));
        }
    }
    by_module
}

fn name_module(
    module: &Module,
    mut places: Vec<(u64, FrameId)>,
    symbolizer: &Symbolizer,
    shown: Shown,
    imported: Option<&ImportedNames>,
) -> ModuleNames {
    places.sort_unstable();
    let mut result = ModuleNames::default();
    if let Some(names) = imported.filter(|_| !module.is_unknown()) {
        let named = super::imported::name_places(names, module, &mut places, &mut result);
        // No file of this machine belongs to a profile's memory without a file.
        if named && (places.is_empty() || module.kind == ModuleKind::NotAFile) {
            name_unknown(&places, &mut result);
            return result;
        }
    }
    let named = name_without_file(module, &places, symbolizer, shown);
    result.append(named.unwrap_or_else(|| {
        let addresses = places.iter().map(|(address, _)| RelativeAddress(*address));
        let symbols = symbolizer.load_for(&request(module), addresses);
        name_by_symbols(&symbols, &places, shown)
    }));
    result
}

/// Returns the request for a module's symbols.
pub(super) fn request(module: &Module) -> ModuleRequest<'_> {
    ModuleRequest {
        kind: module.kind,
        path: module.path(),
        build_id: module.build_id.as_deref(),
    }
}

/// Names the places of the unknown module, of a tracer's hooks, or of code that was made at run time; `None` for other
/// modules.
pub(super) fn name_without_file(
    module: &Module,
    places: &[(u64, FrameId)],
    symbolizer: &Symbolizer,
    shown: Shown,
) -> Option<ModuleNames> {
    let mut result = ModuleNames::default();
    if module.is_unknown() {
        name_unknown(places, &mut result);
        return Some(result);
    }
    if module.holds_thunks() {
        let name = result.push(OwnName::only(HOOKS.to_owned()));
        result
            .places
            .extend(places.iter().map(|(_, frame)| (*frame, name)));
        return Some(result);
    }
    let symbols = crate::processes::jit::symbols_of(module, symbolizer)?;
    name_jit_module(symbols, places, shown, &mut result);
    Some(result)
}

/// Names places, in rising order, by a module's symbols.
pub(super) fn name_by_symbols(
    symbols: &ModuleSymbols,
    places: &[(u64, FrameId)],
    shown: Shown,
) -> ModuleNames {
    let mut result = ModuleNames {
        names: Vec::new(),
        places: Vec::with_capacity(places.len()),
        notes: symbols.notes().to_vec(),
    };
    let mut ids: HashMap<(u64, &str), u32, FxBuildHasher> = HashMap::default();
    // Functions of one file follow each other.
    let mut last_file: Option<Arc<str>> = None;
    for (address, frame) in places {
        let address = RelativeAddress(*address);
        let function = symbols.function(address);
        // Two functions may share a name, such as static functions of two sources; their start distinguishes them.
        let symbol = match &function {
            Some(function) => (function.start.0, function.raw_name),
            // The unwind tables of a stripped file show at least where the function starts.
            None => match symbols.extent(address) {
                Some(extent) => (extent.start.0, NAMELESS),
                None => (0, UNKNOWN),
            },
        };
        let id = *ids.entry(symbol).or_insert_with(|| {
            let name = match symbol {
                (start, NAMELESS) => format!("{NAMELESS}{start:x}]"),
                (_, name) if shown.demangled => demangle(name).into_owned(),
                (_, name) => name.to_owned(),
            };
            let file = function.as_ref().and_then(|function| function.file);
            let file = file.map(|file| match &last_file {
                Some(last) if **last == *file => last.clone(),
                _ => last_file.insert(file.into()).clone(),
            });
            result.push(OwnName {
                name,
                start: (symbol.1 != UNKNOWN).then_some(symbol.0),
                file,
                link_name: hash_of(symbol.1),
            })
        });
        result.places.push((*frame, id));
    }
    result
}

/// Calls all places unknown.
fn name_unknown(places: &[(u64, FrameId)], result: &mut ModuleNames) {
    if places.is_empty() {
        return;
    }
    let id = result.push(OwnName::only(UNKNOWN.to_owned()));
    let places = places.iter().map(|(_, frame)| (*frame, id));
    result.places.extend(places);
}

/// Names code that was made at run time.
fn name_jit_module(
    symbols: JitNames,
    places: &[(u64, FrameId)],
    shown: Shown,
    result: &mut ModuleNames,
) {
    result.notes = symbols.notes().to_vec();
    let mut ids: HashMap<String, u32, FxBuildHasher> = HashMap::default();
    for (address, frame) in places {
        // A function that was compiled again is the same function.
        let name = match symbols.name(*address) {
            Some(name) if shown.demangled => demangle(&name).into_owned(),
            Some(name) => name.into_owned(),
            None => UNKNOWN.to_owned(),
        };
        let id = *ids
            .entry(name)
            .or_insert_with_key(|name| result.push(OwnName::only(name.clone())));
        result.places.push((*frame, id));
    }
}
