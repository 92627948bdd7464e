//! What is to be done in a process so that its calls are traced: pools and patches.

use super::arch::{
    ImportSite, JUMP, PoolError, Prologue, hooks, leaves, patch as site_patch, pool, scan,
    upper_bound,
};
use super::candidates::{Candidate, CandidateBody, ModuleCode, ScanOptions};
use super::glance::Glance;
use super::hooks::{HookKind, HookOptions};
use super::image::{FileBytes, map_program, read_needed, read_some, segments};
use super::maps::{MappedModule, Maps};
use super::observed::{FunctionHook, HookWork, has_hooks, hooked_code};
use super::select::{FunctionPlace, Gating, ModuleIdentity, Selector, SiteVariant};
use super::special::seeks_generated_code;
use super::wanted::{Body, Wanted, Work};
use crate::procfs;
use dioptra_filters::Sampling;
use dioptra_symbols::demangle;
use dioptra_tracedata::{JournalEntry, Module, Refusal, WriteError, Writer};
use dioptra_tracelayout::message::{FunctionId, Method, PATCH_SIZE, Patch, RuntimeAddresses};
use dioptra_tracelayout::{FunctionEntry, FunctionKind};
use object::read::elf::ElfFile64;
use object::{Endianness, Object};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// A module that was analysed.
#[derive(Debug)]
pub struct Prepared {
    /// Its number in the journal.
    pub number: Option<u32>,
    code: ModuleCode,
    /// Functions that the runtime has to know of.
    hooks: Vec<FunctionHook>,
    /// For each candidate: what happens there, and its function id.
    chosen: Vec<(SiteVariant, u32)>,
    /// Of those that are sampled with what they call: which call nothing.
    leaves: HashSet<u64>,
}

/// A module's file, while it is the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    is_program: bool,
}

/// Analyses modules, each once.
pub struct Planner {
    selector: Box<dyn Selector>,
    modules: HashMap<FileKey, Arc<Prepared>>,
    next_module: u32,
    notes: Vec<String>,
    sampled: Vec<SampledFunction>,
}

/// A function of which some calls are recorded.
#[derive(Clone, Copy, Debug)]
pub struct SampledFunction {
    /// Its id.
    pub function: u32,
    /// How they are chosen; times in nanoseconds.
    pub sampling: Sampling,
    /// With what they call.
    pub tree: bool,
    /// What the others go through.
    pub passing: Passing,
}

/// What calls of a sampled function go through that are not chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// Code that counts them.
    Counted,
    /// Such code, and hooks that hide what they call.
    Hidden,
    /// The runtime, which the function calls itself.
    Runtime,
}

impl Passing {
    /// Of a candidate; `hides`: what it calls is hidden, too.
    fn of(candidate: &Candidate, hides: bool) -> Passing {
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

/// A module of a process, made traceable.
#[derive(Debug)]
pub struct ModulePlan {
    /// The pool's file; empty if no thunk is needed.
    pub pool: Vec<u8>,
    /// Where it must lie.
    pub pool_address: u64,
    /// How large it is in memory.
    pub pool_size: u64,
    /// What is to be written, by address.
    pub patches: Vec<Patch>,
    /// Functions that call the runtime themselves.
    pub functions: Vec<FunctionId>,
}

impl Prepared {
    /// Whether it has functions that the runtime has to know of: the C library.
    pub fn is_runtimes_own(&self) -> bool {
        !self.hooks.is_empty()
    }
}

impl Planner {
    /// With this choice of functions.
    pub fn new(selector: Box<dyn Selector>) -> Planner {
        Planner {
            selector,
            modules: HashMap::new(),
            next_module: 0,
            notes: Vec::new(),
            sampled: Vec::new(),
        }
    }

    /// The sampled functions of the modules that were analysed since this was last asked.
    pub fn take_sampled(&mut self) -> Vec<SampledFunction> {
        std::mem::take(&mut self.sampled)
    }

    /// What hides calls.
    pub fn gating(&self) -> Gating {
        self.selector.gating()
    }

    /// What is to be said of the modules that were analysed since this was last asked.
    pub fn take_notes(&mut self) -> Vec<String> {
        self.notes.extend(self.selector.take_notes());
        std::mem::take(&mut self.notes)
    }

    /// What the selector says at the end.
    pub fn warnings(&mut self) -> Vec<String> {
        self.selector.warnings()
    }

    /// Analyses a module of a process, unless that was done before. `None` if its file can't be read, or is not what was
    /// mapped.
    ///
    /// # Errors
    /// If the trace can't be written.
    pub fn prepare(
        &mut self,
        pid: u32,
        module: &MappedModule,
        is_program: bool,
        writer: &mut Writer,
    ) -> Result<Option<Arc<Prepared>>, WriteError> {
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
        writer: &mut Writer,
    ) -> Result<Option<Prepared>, WriteError> {
        let nothing = Prepared {
            number: None,
            code: ModuleCode::default(),
            hooks: Vec::new(),
            chosen: Vec::new(),
            leaves: HashSet::new(),
        };
        // A glance reads only parts of files, which may be large and of no interest.
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
            Some("it loads the tracer")
        } else if has_hooks {
            Some("the tracer itself uses them")
        } else if seeks_generated_code(&identity.file_name()) {
            Some("its garbage collector finds generated code by return addresses")
        } else {
            None
        };
        if plain && let Some(why) = left_alone {
            self.notes.push(format!(
                "functions of {} are not traced: {why}; calls of them can be, as library calls",
                module.path.display()
            ));
            self.selector.leave_alone(&identity);
        }
        let options = ScanOptions {
            plain: plain && left_alone.is_none(),
            library_calls: self.selector.library_calls(&identity),
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
        let Ok(data) = data else {
            return Ok(None);
        };
        let hooks = match has_hooks {
            true => hooks(&data),
            false => Vec::new(),
        };
        if !is_wanted {
            return Ok(Some(Prepared {
                code: ModuleCode {
                    segments,
                    ..ModuleCode::default()
                },
                hooks,
                ..nothing
            }));
        }
        let Ok(code) = scan(&data, options) else {
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
        let mut variants = self.selector.choose(&identity, &places);
        variants.resize(places.len(), SiteVariant::Skip);
        let sampled = code.candidates.iter().zip(&variants);
        let sampled =
            sampled.filter(|(_, variant)| matches!(variant, SiteVariant::SampleFilter(_)));
        let leaves = leaves(&data, sampled.map(|(candidate, _)| candidate));

        let number = self.next_module;
        self.next_module += 1;
        let first = writer.next_function();
        let mut entries = Vec::new();
        let mut methods: BTreeMap<Method, u32> = BTreeMap::new();
        let mut chosen = Vec::with_capacity(places.len());
        // A library function may be called both by a stub and through a pointer.
        let mut known: HashMap<&str, (SiteVariant, u32)> = HashMap::new();
        for ((place, variant), candidate) in places.iter().zip(&variants).zip(&code.candidates) {
            if let Some(same) = place.name.and_then(|name| known.get(name)) {
                chosen.push(*same);
                continue;
            }
            if *variant == SiteVariant::Skip {
                chosen.push((SiteVariant::Skip, 0));
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
                .extend(variant.sampling().map(|sampling| SampledFunction {
                    function: id,
                    sampling,
                    tree: variant.samples_trees(),
                    passing: Passing::of(
                        candidate,
                        variant.samples_trees() && !leaves.contains(&candidate.start),
                    ),
                }));
            chosen.push((*variant, id));
            known.extend(place.name.map(|name| (name, (*variant, id))));
        }
        writer.functions(&entries)?;
        writer.journal(&JournalEntry::Module(Module {
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
        Ok(Some(Prepared {
            number: Some(number),
            code,
            hooks,
            chosen,
            leaves,
        }))
    }
}

fn entry(
    place: &FunctionPlace<'_>,
    module: u32,
    writer: &mut Writer,
) -> Result<FunctionEntry, WriteError> {
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

/// What is said of library functions that are called through registers.
fn through_registers(module: &MappedModule, names: &[String]) -> Option<String> {
    const EXAMPLES: usize = 5;
    if names.is_empty() {
        return None;
    }
    let mut examples: Vec<Cow<'_, str>> = names
        .iter()
        .take(EXAMPLES)
        .map(|name| demangle(name))
        .collect();
    if names.len() > EXAMPLES {
        examples.push(Cow::Borrowed("…"));
    }
    Some(format!(
        "{}: some calls of library functions ({}: {}) go through registers: they are not traced",
        module.path.display(),
        names.len(),
        examples.join(", ")
    ))
}

fn refusals(code: &ModuleCode) -> Vec<Refusal> {
    const EXAMPLES: usize = 10;
    let mut all: BTreeMap<&str, Refusal> = BTreeMap::new();
    for (start, refused) in &code.refused {
        let refusal = all.entry(refused.reason()).or_insert_with(|| Refusal {
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

/// Whether it is the dynamic linker, which is never traced: it loads the tracer.
pub fn is_linker(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("ld-linux"))
}

/// Whether a compiler has put hooks in the module, as far as a glance tells.
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

/// The path by which a mapped file can be read, if it is still there.
pub fn open(pid: u32, module: &MappedModule) -> Option<(PathBuf, fs::Metadata)> {
    procfs::path_for(pid, module.path.as_os_str().as_bytes())
        .into_iter()
        .find_map(|path| {
            let metadata = File::open(&path).ok()?.metadata().ok()?;
            (metadata.is_file() && metadata.ino() == module.file.1).then_some((path, metadata))
        })
}

/// Why a module can't be traced.
#[derive(Debug, Error)]
pub enum PlanError {
    /// Its segments are not where its file says.
    #[error("it is not mapped as its file says")]
    Mapping,
    /// No room for thunks.
    #[error("no memory is free near it")]
    Far,
    /// No thunks.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

/// What is to be done in a process for one of its modules; `None` if there is nothing.
///
/// # Errors
/// [`PlanError`]
pub fn plan(
    prepared: &Prepared,
    module: &MappedModule,
    maps: &Maps,
    runtime: RuntimeAddresses,
    options: &HookOptions,
) -> Result<Option<ModulePlan>, PlanError> {
    let code = &prepared.code;
    let bias = module.bias(
        code.segments
            .iter()
            .map(|segment| (segment.offset, segment.address)),
    );
    let bias = bias.ok_or(PlanError::Mapping)?;
    let mut wanted = Vec::new();
    let mut sites: Vec<Place<'_>> = Vec::new();
    let mut patches = Vec::new();
    let mut functions = Vec::new();
    for hook in &prepared.hooks {
        wanted.push(Wanted {
            work: match hook.work {
                HookWork::Observe(function) => Work::Observe(function),
                HookWork::Execve => Work::Replace(runtime.execve),
            },
            body: Body::Displaced(hook.prologue.rebase(bias)),
            is_leaf: false,
            places: Vec::new(),
        });
        sites.push(Place::At(hook.site, Some(&hook.prologue)));
    }
    // Functions' first instructions may call those that are called through pointers: these first.
    let is_called = |(candidate, _): &(&Candidate, _)| !candidate.calls.is_empty();
    let candidates = || code.candidates.iter().zip(&prepared.chosen);
    let others = candidates().filter(|candidate| !is_called(candidate));
    for (candidate, (variant, id)) in candidates().filter(is_called).chain(others) {
        if prepared
            .hooks
            .iter()
            .any(|hook| hook.site == candidate.site)
        {
            continue;
        }
        match variant {
            SiteVariant::Skip => {
                if let Some(bytes) = candidate.neutral {
                    patches.extend(patch(candidate.site.wrapping_add(bias), bytes, maps));
                }
            }
            _ if matches!(candidate.body, CandidateBody::Itself) => {
                let sampling = variant.sampling();
                let kind = match variant {
                    SiteVariant::Sample(_) => HookKind::CountCall,
                    SiteVariant::SampleFilter(_) => HookKind::CountTree,
                    SiteVariant::JudgeFilter(_) => HookKind::JudgeTree,
                    SiteVariant::Timed => HookKind::Timed,
                    SiteVariant::Filter => HookKind::Filter,
                    SiteVariant::Mute => HookKind::Mute,
                    SiteVariant::Record | SiteVariant::Skip => HookKind::Record,
                };
                functions.push(FunctionId {
                    address: candidate.start.wrapping_add(bias),
                    id: *id,
                    kind: kind.bits(options) as u32,
                    slot: sampling.map_or(0, |sampling| sampling.slot),
                    sample: sampling.map_or(0, |sampling| sampling.kind as u32),
                });
            }
            traced => {
                let kind = match traced {
                    SiteVariant::Timed => HookKind::Timed,
                    SiteVariant::Filter | SiteVariant::JudgeFilter(_) => HookKind::Filter,
                    SiteVariant::Mute => HookKind::Mute,
                    SiteVariant::SampleFilter(_) => HookKind::Chosen,
                    SiteVariant::Record | SiteVariant::Sample(_) | SiteVariant::Skip => {
                        HookKind::Record
                    }
                };
                wanted.push(Wanted {
                    work: match (traced, traced.sampling()) {
                        (SiteVariant::JudgeFilter(sampling), _) => Work::Judge(*id, *sampling),
                        (_, Some(sampling)) => Work::Sample(*id, kind, sampling),
                        (_, None) => Work::Trace(*id, kind),
                    },
                    body: match &candidate.body {
                        CandidateBody::At(address) => Body::At(address.wrapping_add(bias)),
                        CandidateBody::Displaced(prologue) => {
                            Body::Displaced(prologue.rebase(bias))
                        }
                        CandidateBody::Pointer(address) => {
                            Body::Pointer(address.wrapping_add(bias))
                        }
                        CandidateBody::Itself => continue,
                    },
                    is_leaf: prepared.leaves.contains(&candidate.start),
                    places: candidate
                        .calls
                        .iter()
                        .map(|call| call.rebase(bias).at)
                        .collect(),
                });
                sites.push(match candidate.calls.as_slice() {
                    [] => Place::At(
                        candidate.site,
                        match &candidate.body {
                            CandidateBody::Displaced(prologue) => Some(prologue),
                            _ => None,
                        },
                    ),
                    calls => Place::Calls(calls),
                });
            }
        }
    }
    let mut made = ModulePlan {
        pool: Vec::new(),
        pool_address: 0,
        pool_size: 0,
        patches: Vec::new(),
        functions: Vec::new(),
    };
    if !wanted.is_empty() {
        let (start, end) = module.range();
        made.pool_address = maps
            .room_near(start, end, upper_bound(&wanted))
            .ok_or(PlanError::Far)?;
        let pool = pool(made.pool_address, &wanted, runtime, *options)?;
        let places = || sites.iter().zip(&pool.thunks);
        for (place, thunk) in places() {
            let Place::At(site, prologue) = place else {
                continue;
            };
            let site = site.wrapping_add(bias);
            if let Some(bytes) = thunk.and_then(|thunk| site_patch(site, thunk, *prologue)) {
                patches.extend(patch(site, &bytes, maps));
            }
        }
        // What has been moved away is called from the pool.
        let mut moved: Vec<u64> = patches.iter().map(|patch| patch.address).collect();
        moved.sort_unstable();
        for (place, thunk) in places() {
            let (Place::Calls(calls), Some(thunk)) = (place, thunk) else {
                continue;
            };
            for call in calls.iter().map(|call| call.rebase(bias)) {
                let from = call.at.saturating_sub(PATCH_SIZE as u64);
                let at = moved.partition_point(|address| *address < from);
                let near = moved.get(at..).unwrap_or_default().iter();
                let mut near = near.take_while(|address| **address < call.at + PATCH_SIZE as u64);
                if near.any(|address| call.overlaps(*address, JUMP as u64)) {
                    continue;
                }
                if let Some(bytes) = call.direct(*thunk) {
                    patches.extend(patch(call.at, &bytes, maps));
                }
            }
        }
        made.pool = pool.file;
        made.pool_size = pool.size;
    }
    patches.sort_by_key(|patch| patch.address);
    made.patches = patches;
    made.functions = functions;
    let is_empty = made.patches.is_empty() && made.functions.is_empty();
    Ok((!is_empty).then_some(made))
}

/// Where a thunk is reached from.
enum Place<'a> {
    /// A jump, over what was moved away for it.
    At(u64, Option<&'a Prologue>),
    /// Calls.
    Calls(&'a [ImportSite]),
}

fn patch(address: u64, bytes: &[u8], maps: &Maps) -> Option<Patch> {
    let mut patch = Patch {
        address,
        length: u8::try_from(bytes.len()).ok()?,
        protection: maps.protection(address)?,
        reserved: [0; 6],
        bytes: [0; PATCH_SIZE],
    };
    patch.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(patch)
}
