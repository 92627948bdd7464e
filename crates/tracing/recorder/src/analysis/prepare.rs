//! Modules, analysed once each: the functions that can be traced, and the selector's choice among them.

use super::left_alone::{LeftAlone, Unread};
use super::module_file::{FileBytes, map_program, read_needed, read_some};
use super::partial_file::Glance;
use crate::processor::Native;
use crate::recording::notes::TraceNote;
use crate::recording::shared::cpus;
use crate::selection::selector::{FunctionPlace, Gating, ModuleIdentity, Selector};
use crate::selection::values::FunctionValues;
use crate::selection::warnings::SelectionWarning;
use crate::serving::maps::MappedModule;
use dioptra_filters::{Probe, Sampling};
use dioptra_processes::procfs;
use dioptra_symbols::demangle;
use dioptra_trace_patch::{
    Arch, Candidate, CandidateBody, Fetches, FunctionHook, ModuleCode, ScanOptions,
    finds_frames_by_stack_pointer, has_hidden_sanitizer, has_hooks, hooked_code,
    is_sanitizers_library, seeks_generated_code, segments,
};
use dioptra_tracedata::{
    JournalEntry, RecordedValues, RefusedFunctions, TraceWriteError, TraceWriter, TracedModule,
};
use dioptra_tracelayout::message::Method;
use dioptra_tracelayout::{FunctionEntry, FunctionKind};
use object::read::elf::ElfFile64;
use object::{Endianness, Object};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A module that was analysed.
#[derive(Debug)]
pub struct Prepared {
    /// Its number in the journal; `None` if it was not searched for functions.
    pub number: Option<u32>,
    pub(crate) code: ModuleCode<Native>,
    /// Functions whose calls the runtime must see.
    pub(crate) hooks: Vec<FunctionHook<Native>>,
    /// The probe and the function id of each candidate, in the same order.
    pub(crate) chosen: Vec<(Probe, u32)>,
    /// The values that are recorded with calls, by function id.
    pub(crate) values: HashMap<u32, Arc<Fetches>>,
    /// The addresses of functions that call nothing, among those that are sampled with what they call.
    pub(crate) leaves: HashSet<u64>,
    /// Whether it is or contains LLVM's unwinder.
    pub finds_frames_by_stack_pointer: bool,
}

/// The identity of a file that was analysed. A file that was written to since has another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    is_program: bool,
}

/// The analysis of modules, each of which is analysed once.
pub struct Planner {
    selector: Box<dyn Selector>,
    modules: HashMap<FileKey, Arc<Prepared>>,
    next_module: u32,
    notes: Vec<TraceNote>,
    sampled: Vec<SampledFunction>,
}

/// A function of which only some calls are recorded.
#[derive(Clone, Copy, Debug)]
pub struct SampledFunction {
    /// Its function id.
    pub function: u32,
    /// The way in which its executions are chosen; times in nanoseconds.
    pub sampling: Sampling,
    /// Whether an execution is recorded or left out together with the calls in it.
    pub tree: bool,
    /// The code that executions run through if they are not chosen.
    pub passing: Passing,
}

/// The code that an execution of a sampled function runs through if it is not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Code that counts the execution.
    Counted,
    /// Code that counts the execution, and hooks that hide the calls in it.
    Hidden,
    /// The runtime, which the function calls itself.
    Runtime,
}

impl Passing {
    /// Returns the code for a candidate's executions that are not chosen. `hides` says whether the calls in them are
    /// hidden.
    fn of(candidate: &Candidate<Native>, hides: bool) -> Passing {
        match candidate.body {
            CandidateBody::Itself => Passing::Runtime,
            _ if hides => Passing::Hidden,
            _ => Passing::Counted,
        }
    }
}

impl std::fmt::Debug for Planner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planner")
            .field("modules", &self.modules.len())
            .finish_non_exhaustive()
    }
}

impl Prepared {
    /// Returns whether the module has functions whose calls the runtime must see, as the C library has.
    pub fn is_runtimes_own(&self) -> bool {
        !self.hooks.is_empty()
    }
}

impl Planner {
    /// Makes a planner with this choice of functions.
    pub fn new(selector: Box<dyn Selector>) -> Planner {
        Planner {
            selector,
            modules: HashMap::new(),
            next_module: 0,
            notes: Vec::new(),
            sampled: Vec::new(),
        }
    }

    /// Returns the sampled functions of the modules that were analysed since the last call.
    pub fn take_sampled(&mut self) -> Vec<SampledFunction> {
        std::mem::take(&mut self.sampled)
    }

    /// Returns the conditions under which hooks hide calls.
    pub fn gating(&self) -> Gating {
        self.selector.gating()
    }

    /// Returns the notes about the modules that were analysed since the last call.
    pub fn take_notes(&mut self) -> Vec<TraceNote> {
        self.notes.extend(self.selector.take_notes());
        std::mem::take(&mut self.notes)
    }

    /// Returns the selector's warnings at the end of the recording.
    pub fn warnings(&mut self) -> Vec<SelectionWarning> {
        self.selector.warnings()
    }

    /// Analyses a module of a process, unless that was done before. Returns `None` if its file can't be read, or is not
    /// the file that was mapped.
    ///
    /// # Errors
    /// If the trace can't be written.
    pub fn prepare(
        &mut self,
        pid: u32,
        module: &MappedModule,
        is_program: bool,
        writer: &mut TraceWriter,
    ) -> Result<Option<Arc<Prepared>>, TraceWriteError> {
        let Some((readable, metadata)) = open(pid, module) else {
            return Ok(None);
        };
        let key = FileKey {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            is_program,
        };
        if let Some(prepared) = self.modules.get(&key) {
            return Ok(Some(Arc::clone(prepared)));
        }
        let Ok(file) = File::open(&readable) else {
            return Ok(None);
        };
        let analysis = self.analyse(module, readable, &file, is_program, writer)?;
        let Some(prepared) = analysis.map(Arc::new) else {
            return Ok(None);
        };
        self.modules.insert(key, Arc::clone(&prepared));
        Ok(Some(prepared))
    }

    fn analyse(
        &mut self,
        module: &MappedModule,
        readable: PathBuf,
        file: &File,
        is_program: bool,
        writer: &mut TraceWriter,
    ) -> Result<Option<Prepared>, TraceWriteError> {
        let nothing = Prepared {
            number: None,
            code: ModuleCode::default(),
            hooks: Vec::new(),
            chosen: Vec::new(),
            values: HashMap::new(),
            leaves: HashSet::new(),
            finds_frames_by_stack_pointer: false,
        };
        // A glance reads only parts of the file, which may be large and of no interest.
        let Ok(glance) = Glance::new(file) else {
            return Ok(None);
        };
        let Ok(elf) = ElfFile64::<Endianness, _>::parse(&glance) else {
            return Ok(Some(nothing));
        };
        let identity = ModuleIdentity {
            path: module.path.clone(),
            readable,
            build_id: elf.build_id().ok().flatten().unwrap_or_default().to_vec(),
            is_program,
            is_instrumented: is_instrumented(&elf),
        };
        let is_linker = is_linker(&module.path);
        let has_hooks = has_hooks(&elf);
        // The tracer itself calls the C library while it works, and threads begin and end in it.
        let plain = self.selector.plain(&identity);
        let left_alone = if is_linker {
            Some(LeftAlone::Linker)
        } else if has_hooks {
            Some(LeftAlone::TracersOwn)
        } else if seeks_generated_code(&identity.file_name()) {
            Some(LeftAlone::GarbageCollector)
        } else if is_sanitizers_library(&identity.file_name()) {
            Some(LeftAlone::Sanitizer)
        } else if has_hidden_sanitizer(&elf) {
            Some(LeftAlone::HiddenSanitizer)
        } else {
            None
        };
        if plain && let Some(why) = left_alone {
            self.notes.push(TraceNote::ModuleLeftAlone {
                module: module.path.clone(),
                why,
            });
            self.selector.leave_alone(&identity);
        }
        let options = ScanOptions {
            plain: plain && left_alone.is_none(),
            library_calls: self.selector.library_calls(&identity),
            threads: cpus(),
        };
        let is_wanted = options.plain || options.library_calls || identity.is_instrumented;
        let is_wanted = is_wanted && !is_linker;
        let segments = segments(&elf);
        let mapped = (is_wanted && is_program)
            .then(|| map_program(file, &elf).ok())
            .flatten();
        let data = match (mapped, is_wanted, has_hooks) {
            (Some(mapped), ..) => Ok(FileBytes::Mapped(mapped)),
            (None, true, _) => read_needed(file, &elf).map(FileBytes::Read),
            (None, false, true) => {
                read_some(file, &elf, hooked_code(&elf, &segments)).map(FileBytes::Read)
            }
            (None, false, false) => Ok(FileBytes::Read(Vec::new())),
        };
        let unread = |why| TraceNote::ModuleUnread {
            module: module.path.clone(),
            why,
        };
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                let because = error.to_string();
                self.notes.push(unread(Unread::Failed { because }));
                return Ok(None);
            }
        };
        let finds_frames_by_stack_pointer =
            finds_frames_by_stack_pointer(&identity.file_name(), &elf, &data);
        let hooks = match has_hooks {
            true => Native::hooks(&data),
            false => Vec::new(),
        };
        if !is_wanted {
            return Ok(Some(Prepared {
                code: ModuleCode {
                    segments,
                    ..ModuleCode::default()
                },
                hooks,
                finds_frames_by_stack_pointer,
                ..nothing
            }));
        }
        let Ok(code) = Native::scan(&data, options) else {
            return Ok(Some(nothing));
        };
        let places: Vec<FunctionPlace<'_>> = code
            .candidates
            .iter()
            .map(|candidate| FunctionPlace {
                offset: code.file_offset(candidate.start).unwrap_or(0),
                size: candidate.size,
                method: candidate.method,
                name: candidate.name.as_deref(),
            })
            .collect();
        let refused: Vec<(u64, &'static str)> = code
            .refused
            .iter()
            .filter_map(|(start, refused)| Some((code.file_offset(*start)?, refused.reason())))
            .collect();
        self.selector.refuse(&identity, &refused);
        self.notes
            .extend(through_registers(module, &code.through_registers));
        let mut probes = self.selector.choose(&identity, &places);
        probes.resize(places.len(), Probe::Skip);
        let asked = self.selector.take_values();
        for (probe, candidate) in probes.iter_mut().zip(&code.candidates) {
            if candidate.is_told() {
                *probe = probe.of_beginnings();
            }
        }
        let sampled = code.candidates.iter().zip(&probes);
        let sampled = sampled.filter(|(_, probe)| matches!(probe, Probe::SampleFilter(_)));
        let leaves = Native::leaves(&data, sampled.map(|(candidate, _)| candidate));
        // The scan may have taken zeroes for code.
        if data.is_truncated() {
            self.notes.push(unread(Unread::Truncated));
            return Ok(None);
        }

        let number = self.next_module;
        self.next_module += 1;
        let first = writer.next_function();
        let mut entries = Vec::new();
        let mut methods: BTreeMap<Method, u32> = BTreeMap::new();
        let mut chosen = Vec::with_capacity(places.len());
        let mut values: HashMap<u32, Arc<FunctionValues>> = HashMap::new();
        let mut without_values = 0;
        // A library function may be called both by a stub and through a pointer.
        let mut known: HashMap<&str, (Probe, u32)> = HashMap::new();
        let asked = asked.iter().map(Option::as_ref).chain(iter::repeat(None));
        let candidates = code.candidates.iter().zip(asked);
        for ((place, probe), (candidate, asked)) in places.iter().zip(&probes).zip(candidates) {
            if let Some(same) = place.name.and_then(|name| known.get(name)) {
                chosen.push(*same);
                continue;
            }
            if *probe == Probe::Skip {
                chosen.push((Probe::Skip, 0));
                continue;
            }
            let mut id = first + entries.len() as u32;
            if id & 0xffff == 0 {
                entries.push(FunctionEntry::NONE);
                id += 1;
            }
            *methods.entry(place.method).or_default() += 1;
            entries.push(entry(place, number, writer)?);
            self.sampled
                .extend(probe.sampling().map(|sampling| SampledFunction {
                    function: id,
                    sampling,
                    tree: probe.samples_trees(),
                    passing: Passing::of(
                        candidate,
                        probe.samples_trees() && !leaves.contains(&candidate.start),
                    ),
                }));
            if let Some(asked) = asked {
                let has_registers = !matches!(candidate.body, CandidateBody::Itself);
                if Native::RECORDS_VALUES && has_registers && !candidate.is_told() {
                    values.insert(id, Arc::clone(asked));
                } else {
                    without_values += 1;
                }
            }
            chosen.push((*probe, id));
            known.extend(place.name.map(|name| (name, (*probe, id))));
        }
        writer.functions(&entries)?;
        writer.journal(&JournalEntry::Module(TracedModule {
            module: number,
            path: module.path.to_string_lossy().into_owned(),
            build_id: identity
                .build_id
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
            first,
            count: entries.len() as u32,
            methods: methods
                .iter()
                .map(|(method, count)| (method.name().to_owned(), *count))
                .collect(),
            refused: refusals(&code),
        }))?;
        let fetches = values.iter();
        let fetches = fetches
            .map(|(id, values)| (*id, Arc::clone(&values.fetches)))
            .collect();
        for described in described(&values) {
            writer.journal(&JournalEntry::Values(described))?;
        }
        if without_values > 0 {
            self.notes.push(TraceNote::NoValues {
                module: module.path.clone(),
                functions: without_values,
            });
        }
        Ok(Some(Prepared {
            number: Some(number),
            code,
            hooks,
            chosen,
            values: fetches,
            leaves,
            finds_frames_by_stack_pointer,
        }))
    }
}

/// Describes the values that are recorded, with one description for all functions that have the same ones.
fn described(values: &HashMap<u32, Arc<FunctionValues>>) -> Vec<RecordedValues> {
    let mut functions: Vec<(&u32, &Arc<FunctionValues>)> = values.iter().collect();
    functions.sort_unstable_by_key(|(function, _)| **function);
    let mut all: Vec<RecordedValues> = Vec::new();
    let mut places: HashMap<*const FunctionValues, usize> = HashMap::new();
    for (function, values) in functions {
        let key = Arc::as_ptr(values);
        let place = *places.entry(key).or_insert_with(|| {
            all.push(values.described.clone());
            all.len() - 1
        });
        all[place].functions.push(*function);
    }
    all
}

fn entry(
    place: &FunctionPlace<'_>,
    module: u32,
    writer: &mut TraceWriter,
) -> Result<FunctionEntry, TraceWriteError> {
    let (kind, at, size) = match place.name {
        Some(name) => (
            FunctionKind::LibraryCall,
            writer.names(name.as_bytes())?,
            name.len() as u64,
        ),
        None => (FunctionKind::Function, place.offset, place.size),
    };
    Ok(FunctionEntry {
        module,
        kind,
        method: place.method as u8,
        place: at,
        size: u32::try_from(size).unwrap_or(u32::MAX),
    })
}

/// Returns the note about library functions that are called through registers, if there are any.
fn through_registers(module: &MappedModule, names: &[String]) -> Option<TraceNote> {
    const EXAMPLES: usize = 5;
    let examples = names.iter().take(EXAMPLES);
    (!names.is_empty()).then(|| TraceNote::ThroughRegisters {
        module: module.path.clone(),
        functions: names.len(),
        examples: examples.map(|name| demangle(name).into_owned()).collect(),
    })
}

fn refusals(code: &ModuleCode<Native>) -> Vec<RefusedFunctions> {
    const EXAMPLES: usize = 10;
    let mut all: BTreeMap<&str, RefusedFunctions> = BTreeMap::new();
    for (start, refused) in &code.refused {
        let refusal = all
            .entry(refused.reason())
            .or_insert_with(|| RefusedFunctions {
                reason: refused.reason().to_owned(),
                count: 0,
                examples: Vec::new(),
            });
        refusal.count += 1;
        if refusal.examples.len() < EXAMPLES {
            refusal.examples.extend(code.file_offset(*start));
        }
    }
    all.into_values().collect()
}

/// Returns whether a file is the dynamic linker, which is never traced because it loads the tracer.
pub fn is_linker(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
}

/// Returns whether a compiler has put hooks in the module, as far as its sections and imports tell.
fn is_instrumented<'d>(file: &impl Object<'d>) -> bool {
    const HOOKS: [&[u8]; 5] = [
        b"mcount",
        b"_mcount",
        b"__fentry__",
        b"__cyg_profile_func_enter",
        b"__cyg_profile_func_exit",
    ];
    [
        "__patchable_function_entries",
        "__mcount_loc",
        "xray_instr_map",
    ]
    .iter()
    .any(|name| file.section_by_name(name).is_some())
        || file.imports().is_ok_and(|imports| {
            imports.flatten().any(|import| {
                matches!(import.name(), object::NameOrOrdinal::Name(name) if HOOKS.contains(&name))
            })
        })
}

/// Returns a path by which a mapped file can be read, and the file's metadata; `None` if the file is not there any
/// more.
pub fn open(pid: u32, module: &MappedModule) -> Option<(PathBuf, fs::Metadata)> {
    procfs::path_for(pid, module.path.as_os_str().as_bytes())
        .into_iter()
        .find_map(|path| {
            let metadata = File::open(&path).ok()?.metadata().ok()?;
            (metadata.is_file() && metadata.ino() == module.file.1).then_some((path, metadata))
        })
}
