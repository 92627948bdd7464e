//! Source lines and inlined functions of places, from debug information.
//!
//! Each distinct address is looked up once. The work runs on all cores: modules in parallel, and parts of a module with
//! many addresses in parallel.

use crate::hash::FxBuildHasher;
use crate::naming::inlined::{Chains, Inlined, Roles};
use crate::naming::names::{
    FunctionId, FunctionName, LineId, ModuleNote, Names, SourceLine, hash_of, places_by_module,
};
use crate::processes::modules::{ModuleId, UNKNOWN};
use crate::profile::Profile;
use crate::stacks::frames::FrameId;
use dioptra_perfdata::ImportedRole;
use dioptra_symbols::{
    FileOffset, ModuleKind, ModuleRequest, Note, RelativeAddress, SymbolOptions, Symbolizer,
    is_jit_dump,
};
use hashbrown::HashMap;
use rayon::prelude::*;
use std::sync::Arc;

/// The least number of addresses in a part of a module. Reading the list of the module's units costs as much as some
/// thousand look-ups.
const LEAST_PART: usize = 4096;

/// The kinds of debug information that are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugInfoWanted {
    /// The source line of each place; see [`Names::line_of`].
    pub lines: bool,
    /// The functions that the compiler inlined into others; see [`Names::chain_of`].
    pub inlined: bool,
}

/// One answer about a place.
struct Answer {
    frame: FrameId,
    kind: Kind,
    /// The start of its entries in the part's list (`start`), and their number (`count`); innermost first.
    start: usize,
    count: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The innermost and outermost line.
    Lines,
    /// The functions where the place executes (`Executing`) or calls (`Calling`).
    Executing,
    Calling,
}

/// The answers about a part of a module's places. Functions and lines are numbered within the part.
#[derive(Default)]
struct Part {
    answers: Vec<Answer>,
    entries: Vec<(u32, u32)>,
    functions: Vec<Arc<str>>,
    lines: Vec<(Option<Arc<str>>, Option<u32>)>,
    function_ids: HashMap<*const u8, u32, FxBuildHasher>,
    line_ids: HashMap<(*const u8, u32), u32, FxBuildHasher>,
}

/// The answers of one module's debug information.
struct Told {
    module: ModuleId,
    parts: Vec<PartDone>,
    notes: Vec<Note>,
}

/// A [`Part`] without the tables that only its making needs.
pub(super) struct PartDone {
    answers: Vec<Answer>,
    entries: Vec<(u32, u32)>,
    functions: Vec<Arc<str>>,
    lines: Vec<(Option<Arc<str>>, Option<u32>)>,
}

impl Names {
    /// Reads debug information of every place, on all cores. Needs the functions ([`Names::find`]) for inlined ones.
    pub fn find_debug_info(
        &mut self,
        profile: &Profile,
        options: SymbolOptions,
        wanted: DebugInfoWanted,
    ) {
        self.find_in(profile, places_by_module(profile), options, wanted);
    }

    /// Reads debug information as [`Names::find_debug_info`] does, of the places in the counted stacks alone. That is fast for
    /// a selection that has few of the profile's places.
    pub fn find_debug_info_of_counted(
        &mut self,
        profile: &Profile,
        options: SymbolOptions,
        wanted: DebugInfoWanted,
    ) {
        let mut counted = vec![false; profile.frames().len()];
        for event in profile.events() {
            profile.places(event, |place, count| {
                if count.is_zero() {
                    return;
                }
                counted[profile.leaf(place) as usize] = true;
                if profile.options().call_chains {
                    for frame in profile.stacks().frames(place) {
                        counted[frame as usize] = true;
                    }
                }
            });
        }
        let mut places = places_by_module(profile);
        for of_module in &mut places {
            of_module.retain(|(_, frame)| counted[*frame as usize]);
        }
        self.find_in(profile, places, options, wanted);
    }

    fn find_in(
        &mut self,
        profile: &Profile,
        places: Vec<Vec<(u64, FrameId)>>,
        mut options: SymbolOptions,
        wanted: DebugInfoWanted,
    ) {
        options
            .recorded_kernel
            .get_or_insert_with(|| profile.recorded_kernel().clone());
        let roles = Roles::of(profile);
        let symbolizer = Symbolizer::new(options);
        let told: Vec<Told> = places
            .into_par_iter()
            .enumerate()
            .with_max_len(1)
            .filter_map(|(index, places)| {
                let module = u32::try_from(index).ok()?;
                (!places.is_empty())
                    .then(|| ask_module(profile, module, places, &roles, &symbolizer, wanted))
            })
            .collect();
        let frames = profile.frames().len();
        if wanted.lines {
            self.line_of = vec![0; frames];
            self.outermost_line_of = vec![0; frames];
        }
        let mut inlined = wanted.inlined.then(|| Inlined {
            executing: Chains::new(frames),
            calling: Chains::new(frames),
            in_kernel: roles.in_kernel,
            undescribed: vec![true; frames],
            notes: Vec::new(),
        });
        let mut lines: HashMap<SourceLine, LineId, FxBuildHasher> = HashMap::default();
        for told in told {
            self.take(told, inlined.as_mut(), &mut lines);
        }
        if inlined.is_some() {
            self.inlined = inlined;
        }
    }

    fn take(
        &mut self,
        told: Told,
        mut inlined: Option<&mut Inlined>,
        lines: &mut HashMap<SourceLine, LineId, FxBuildHasher>,
    ) {
        let module = told.module;
        let mut functions: HashMap<Arc<str>, FunctionId, FxBuildHasher> = HashMap::default();
        for part in told.parts {
            // The number of functions and lines is at most the number of frames (32 bits) times their inlined
            // functions. Past 32 bits, the last ones share a number.
            let of_function: Vec<FunctionId> = part
                .functions
                .into_iter()
                .map(|name| {
                    *functions.entry(name).or_insert_with_key(|name| {
                        self.functions.push(FunctionName {
                            module,
                            name: name.to_string(),
                            start: None,
                            file: None,
                            link_name: hash_of(name),
                            is_inlined: true,
                        });
                        u32::try_from(self.functions.len() - 1).unwrap_or(u32::MAX - 1)
                    })
                })
                .collect();
            let of_line: Vec<LineId> = part
                .lines
                .into_iter()
                .map(|(file, line)| {
                    let line = SourceLine { module, file, line };
                    *lines.entry(line).or_insert_with_key(|line| {
                        self.lines.push(line.clone());
                        u32::try_from(self.lines.len() - 1).unwrap_or(u32::MAX - 1)
                    })
                })
                .collect();
            for answer in &part.answers {
                let entries = &part.entries[answer.start..][..answer.count];
                let frame = answer.frame;
                match (answer.kind, &mut inlined) {
                    (Kind::Lines, _) => {
                        // Lines were asked for, so the list has room and the answer has at least one entry.
                        self.line_of[frame as usize] = of_line[entries[0].1 as usize];
                        self.outermost_line_of[frame as usize] =
                            of_line[entries[entries.len() - 1].1 as usize];
                    }
                    (_, None) => {}
                    (kind, Some(inlined)) => {
                        if kind == Kind::Executing {
                            inlined.undescribed[frame as usize] = entries.is_empty();
                        }
                        if entries.len() < 2 {
                            continue;
                        }
                        let outermost = self.of_frame[frame as usize];
                        let last = entries.len() - 1;
                        let list = entries.iter().enumerate().map(|(index, (function, line))| {
                            // The function that holds the place keeps its name, whether from the symbol table or not.
                            let function = if index == last {
                                outermost
                            } else {
                                of_function[*function as usize]
                            };
                            (function, of_line[*line as usize])
                        });
                        let chains = match kind {
                            Kind::Executing => &mut inlined.executing,
                            _ => &mut inlined.calling,
                        };
                        if !chains.add(frame, list) {
                            inlined.undescribed[frame as usize] = true;
                        }
                    }
                }
            }
        }
        let notes = told
            .notes
            .into_iter()
            .map(|note| ModuleNote { module, note });
        match inlined {
            // These notes do not explain why a function has no name.
            Some(inlined) if !self.has_lines() => inlined.notes.extend(notes),
            _ => self.notes.extend(notes),
        }
    }
}

fn ask_module(
    profile: &Profile,
    id: ModuleId,
    mut places: Vec<(u64, FrameId)>,
    roles: &Roles,
    symbolizer: &Symbolizer,
    wanted: DebugInfoWanted,
) -> Told {
    places.sort_unstable();
    let module = profile.modules().get(id);
    let asking = Asking { roles, wanted };
    let mut told = Told {
        module: id,
        parts: Vec::new(),
        notes: Vec::new(),
    };
    let imported = profile.imported();
    if let Some((names, found)) =
        imported.and_then(|names| Some((names, names.module(&module.path)?)))
    {
        let part = super::imported::ask(names, found, &mut places, asking);
        told.parts.push(part);
        if places.is_empty() || module.kind == ModuleKind::NotAFile {
            told.parts.push(asking.ask(&places, |_, _| {}));
            return told;
        }
    }
    if module.kind == ModuleKind::NotAFile && is_jit_dump(module.path()) {
        // Naming the file's functions already reports what is wrong with the file.
        let symbols = symbolizer.jit_dump(module.path());
        let mut files: HashMap<String, Arc<str>, FxBuildHasher> = HashMap::default();
        told.parts.push(asking.ask(&places, |offset, found| {
            found.extend(
                symbols
                    .line_in_file(FileOffset(offset))
                    .map(|(file, line)| Seen {
                        function: None,
                        file: Some(files.entry_ref(file).or_insert_with(|| file.into()).clone()),
                        line: Some(line),
                    }),
            );
        }));
        return told;
    }
    if matches!(module.kind, ModuleKind::File | ModuleKind::Kernel) {
        let lines = symbolizer.lines(&ModuleRequest {
            kind: module.kind,
            path: module.path(),
            build_id: module.build_id.as_deref(),
        });
        if !lines.is_empty() {
            let parts: Vec<PartDone> = in_parts(&places)
                .map(|part| {
                    let reader = lines.reader();
                    let mut frames = Vec::new();
                    asking.ask(part, |address, found| {
                        reader.frames_into(RelativeAddress(address), &mut frames);
                        found.extend(frames.drain(..).map(|frame| Seen {
                            function: frame.function,
                            file: frame.file,
                            line: frame.line,
                        }));
                    })
                })
                .collect();
            told.parts.extend(parts);
            places.clear();
        }
        told.notes = lines.notes();
    }
    if !places.is_empty() {
        told.parts.push(asking.ask(&places, |_, _| {}));
    }
    told
}

/// Splits the places into one part for each thread, or into fewer parts where these would be smaller than
/// [`LEAST_PART`].
fn in_parts(places: &[(u64, FrameId)]) -> impl IndexedParallelIterator<Item = &[(u64, FrameId)]> {
    let even = places.len().div_ceil(rayon::current_num_threads());
    places.par_chunks(even.max(LEAST_PART))
}

/// A function at an address, and its line.
pub(super) struct Seen {
    pub(super) function: Option<Arc<str>>,
    pub(super) file: Option<Arc<str>>,
    pub(super) line: Option<u32>,
}

/// The questions to ask about each place.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    roles: &'a Roles,
    wanted: DebugInfoWanted,
}

impl Asking<'_> {
    /// Asks `look` about each place. `look` adds the functions at an address to a list, innermost first.
    fn ask(self, places: &[(u64, FrameId)], mut look: impl FnMut(u64, &mut Vec<Seen>)) -> PartDone {
        self.ask_with_roles(places, |address, role, found| match role {
            ImportedRole::Executes => look(address, found),
            // The byte before a return address lies in the call; the return address itself may lie in the next function.
            ImportedRole::Calls => look(address.wrapping_sub(1), found),
        })
    }

    /// Asks `look` about each place in each of its roles.
    pub(super) fn ask_with_roles(
        self,
        places: &[(u64, FrameId)],
        mut look: impl FnMut(u64, ImportedRole, &mut Vec<Seen>),
    ) -> PartDone {
        let mut part = Part::default();
        let mut found = Vec::new();
        for &(address, frame) in places {
            let executing = self.wanted.inlined && self.roles.executing[frame as usize];
            if executing || self.wanted.lines {
                found.clear();
                look(address, ImportedRole::Executes, &mut found);
                if self.wanted.lines {
                    part.answer_lines(frame, &found);
                }
                if executing {
                    part.answer(frame, Kind::Executing, &found);
                }
            }
            if self.wanted.inlined && self.roles.calling[frame as usize] {
                found.clear();
                look(address, ImportedRole::Calls, &mut found);
                if found.len() > 1 {
                    part.answer(frame, Kind::Calling, &found);
                }
            }
        }
        PartDone {
            answers: part.answers,
            entries: part.entries,
            functions: part.functions,
            lines: part.lines,
        }
    }
}

impl Part {
    /// Adds the innermost and the outermost line. Where nothing is known, both are the unknown line.
    fn answer_lines(&mut self, frame: FrameId, found: &[Seen]) {
        let start = self.entries.len();
        for seen in [found.first(), found.last()] {
            let line = self.line(seen);
            self.entries.push((0, line));
        }
        self.answers.push(Answer {
            frame,
            kind: Kind::Lines,
            start,
            count: 2,
        });
    }

    fn answer(&mut self, frame: FrameId, kind: Kind, found: &[Seen]) {
        let start = self.entries.len();
        for (index, seen) in found.iter().enumerate() {
            // The last function takes its name from the symbol table.
            let function = if index + 1 < found.len() {
                self.function(seen)
            } else {
                0
            };
            let line = self.line(Some(seen));
            self.entries.push((function, line));
        }
        self.answers.push(Answer {
            frame,
            kind,
            start,
            count: found.len(),
        });
    }

    fn function(&mut self, seen: &Seen) -> u32 {
        let key = pointer(seen.function.as_ref());
        *self.function_ids.entry(key).or_insert_with(|| {
            let name = seen.function.clone();
            self.functions.push(name.unwrap_or_else(|| UNKNOWN.into()));
            u32::try_from(self.functions.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn line(&mut self, seen: Option<&Seen>) -> u32 {
        let file = seen.and_then(|seen| seen.file.as_ref());
        let line = seen.and_then(|seen| seen.line).filter(|_| file.is_some());
        let key = (pointer(file), line.unwrap_or(0));
        *self.line_ids.entry(key).or_insert_with(|| {
            self.lines.push((file.cloned(), line));
            u32::try_from(self.lines.len() - 1).unwrap_or(u32::MAX)
        })
    }
}

/// Returns a key for a text. The reader gives out each text once, so its address identifies it.
fn pointer(text: Option<&Arc<str>>) -> *const u8 {
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}
