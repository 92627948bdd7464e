//! Names for places, found once for each after reading.

use crate::frames::FrameId;
use crate::hash::FxBuildHasher;
use crate::modules::{Module, ModuleId, Modules, UNKNOWN};
use crate::profile::Profile;
use dioptra_symbols::{ModuleKind, ModuleRequest, Note, SymbolOptions, Symbolizer, demangle};
use hashbrown::HashMap;
use rayon::prelude::*;
use std::sync::Arc;

/// The index of a [`FunctionName`] in [`Names`].
pub type FunctionId = u32;

/// A function's name and its module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// The module.
    pub module: ModuleId,
    /// The name, or [`UNKNOWN`] for all places of the module that have none.
    pub name: String,
}

impl FunctionName {
    /// Whether it stands for the places of its module that have no name.
    pub fn is_unknown(&self) -> bool {
        self.name == UNKNOWN
    }
}

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

/// What the symbolizer told of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleNote {
    /// The module.
    pub module: ModuleId,
    /// What to know.
    pub note: Note,
}

/// The functions of all places of a [`Profile`].
#[derive(Clone, Debug, Default)]
pub struct Names {
    functions: Vec<FunctionName>,
    /// By frame.
    of_frame: Vec<FunctionId>,
    notes: Vec<ModuleNote>,
    lines: Vec<SourceLine>,
    /// By frame; empty until lines were asked for.
    line_of: Vec<LineId>,
}

/// How names are shown.
#[derive(Clone, Copy)]
struct Shown {
    demangled: bool,
}

/// The names of one module's places.
struct ModuleNames {
    names: Vec<String>,
    /// Each place with the index of its name.
    places: Vec<(FrameId, u32)>,
    notes: Vec<Note>,
}

impl Names {
    /// Names every place of `profile`, on all cores. The options' recorded kernel is taken from the profile where
    /// they have none.
    pub fn find(profile: &Profile, mut options: SymbolOptions) -> Names {
        let shown = Shown {
            demangled: options.demangle,
        };
        // Each name is demangled once, not with each place.
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
                (!places.is_empty())
                    .then(|| name_module(profile.modules().get(module), places, &symbolizer, shown))
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

    fn append(&mut self, module: ModuleId, named: ModuleNames) {
        // There are no more functions than frames, whose number fits.
        let base = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        self.functions.extend(
            named
                .names
                .into_iter()
                .map(|name| FunctionName { module, name }),
        );
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

    /// All functions in the order of their ids, those of a module one after the other.
    pub fn functions(&self) -> &[FunctionName] {
        &self.functions
    }

    /// The function of a place.
    ///
    /// # Panics
    /// On a frame that is none of the profile for which the names were found.
    #[inline]
    pub fn of_frame(&self, frame: FrameId) -> FunctionId {
        self.of_frame[frame as usize]
    }

    /// Finds the source line of every place, on all cores. With inlining, a place is at the line of the inlined code.
    pub fn find_lines(&mut self, profile: &Profile, options: SymbolOptions) {
        let symbolizer = Symbolizer::new(options);
        let found: Vec<_> = places_by_module(profile)
            .into_par_iter()
            .enumerate()
            .with_max_len(1)
            .filter_map(|(index, places)| {
                let module = u32::try_from(index).ok()?;
                (!places.is_empty())
                    .then(|| (module, lines_of(profile, module, places, &symbolizer)))
            })
            .collect();
        self.line_of = vec![0; profile.frames().len()];
        let mut ids: HashMap<SourceLine, LineId, FxBuildHasher> = HashMap::default();
        for (module, (places, notes)) in found {
            for (frame, line) in places {
                let id = *ids.entry(line).or_insert_with_key(|line| {
                    self.lines.push(line.clone());
                    // There are no more lines than frames, whose number fits.
                    u32::try_from(self.lines.len() - 1).unwrap_or(u32::MAX)
                });
                self.line_of[frame as usize] = id;
            }
            let notes = notes.into_iter().map(|note| ModuleNote { module, note });
            self.notes.extend(notes);
        }
    }

    /// All lines in the order of their ids; none before [`Names::find_lines`].
    pub fn lines(&self) -> &[SourceLine] {
        &self.lines
    }

    /// The line of a place.
    ///
    /// # Panics
    /// On a frame that is none of the profile for which lines were found.
    #[inline]
    pub fn line_of(&self, frame: FrameId) -> LineId {
        self.line_of[frame as usize]
    }

    /// What the symbolizer told of the modules that have places.
    pub fn notes(&self) -> &[ModuleNote] {
        &self.notes
    }
}

/// The address and id of each place, by module.
fn places_by_module(profile: &Profile) -> Vec<Vec<(u64, FrameId)>> {
    let mut by_module: Vec<Vec<(u64, FrameId)>> = vec![Vec::new(); profile.modules().len()];
    for (id, frame) in (0_u32..).zip(profile.frames().iter()) {
        if let Some(places) = by_module.get_mut(frame.module as usize) {
            places.push((frame.address, id));
        }
    }
    by_module
}

/// The line of each place of a module.
fn lines_of(
    profile: &Profile,
    id: ModuleId,
    mut places: Vec<(u64, FrameId)>,
    symbolizer: &Symbolizer,
) -> (Vec<(FrameId, SourceLine)>, Vec<Note>) {
    let nowhere = SourceLine {
        module: id,
        file: None,
        line: None,
    };
    let module = profile.modules().get(id);
    if module.kind != ModuleKind::File {
        let places = places
            .into_iter()
            .map(|(_, frame)| (frame, nowhere.clone()));
        return (places.collect(), Vec::new());
    }
    let lines = symbolizer.lines(&ModuleRequest {
        kind: module.kind,
        path: module.path(),
        build_id: module.build_id.as_deref(),
    });
    places.sort_unstable();
    let reader = lines.reader();
    let found = places
        .into_iter()
        .map(|(address, frame)| {
            let line = reader
                .frames(address)
                .into_iter()
                .next()
                .filter(|place| place.file.is_some())
                .map(|place| SourceLine {
                    module: id,
                    file: place.file,
                    line: place.line,
                });
            (frame, line.unwrap_or_else(|| nowhere.clone()))
        })
        .collect();
    (found, lines.notes())
}

fn name_module(
    module: &Module,
    mut places: Vec<(u64, FrameId)>,
    symbolizer: &Symbolizer,
    shown: Shown,
) -> ModuleNames {
    let mut result = ModuleNames {
        names: Vec::new(),
        places: Vec::with_capacity(places.len()),
        notes: Vec::new(),
    };
    if module.is_unknown() {
        result.names.push(UNKNOWN.to_owned());
        result
            .places
            .extend(places.iter().map(|(_, frame)| (*frame, 0)));
        return result;
    }
    let request = ModuleRequest {
        kind: module.kind,
        path: module.path(),
        build_id: module.build_id.as_deref(),
    };
    let symbols = symbolizer.load(&request);
    result.notes = symbols.notes().to_vec();
    places.sort_unstable();
    let mut ids: HashMap<(u64, &str), u32, FxBuildHasher> = HashMap::default();
    for (address, frame) in places {
        // Two functions may share a name, such as static ones of two sources: their start tells them apart.
        let symbol = match symbols.function(address) {
            Some(function) => (function.start, function.raw_name),
            None => (0, UNKNOWN),
        };
        let id = *ids.entry(symbol).or_insert_with(|| {
            result.names.push(if shown.demangled {
                demangle(symbol.1).into_owned()
            } else {
                symbol.1.to_owned()
            });
            // There are no more names than frames, whose number fits.
            u32::try_from(result.names.len() - 1).unwrap_or(u32::MAX)
        });
        result.places.push((frame, id));
    }
    result
}

impl Modules {
    /// Whether the module's places can have names at all.
    pub fn can_have_names(&self, id: ModuleId) -> bool {
        self.get(id).kind != ModuleKind::NotAFile
    }
}
