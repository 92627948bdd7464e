//! Addresses of functions, and the files that map and name them.
//!
//! uftrace names an address by the module that lies there and the module's file of symbols. All programs of a trace
//! share one map here: a module lies where its first process had it. Calls of library functions get addresses of
//! entries of a linkage table: in front of the module's functions if there is room, else behind the module.

use super::super::loss::{Losses, UftraceLossKind};
use super::super::record::MAX_ADDRESS;
use dioptra_calls::FunctionNames;
use dioptra_tracedata::{Trace, TracedModule};
use dioptra_tracelayout::{FunctionKind, LIBRARY_CALL_SIZE};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The first address for modules that can't lie where they lay.
const ELSEWHERE: u64 = 0x6000_0000_0000;
/// The first address behind those.
const ELSEWHERE_END: u64 = 0x7000_0000_0000;
const PAGE: u64 = 4096;
/// The name of the module of functions whose own module is not known.
const UNKNOWN: &str = "unknown";

/// A module's place in memory.
#[derive(Debug)]
struct ModuleRegion {
    /// The first address; that of the file's first byte.
    start: u64,
    /// The first address behind it.
    end: u64,
    path: String,
    build_id: String,
    /// The name of its file of symbols.
    symbols: String,
    /// The ids of its functions.
    functions: Vec<u32>,
}

/// The addresses of all functions.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    regions: Vec<ModuleRegion>,
    /// The address of each function, by id; 0 for ids without one.
    of: Vec<u64>,
    /// The further addresses of library functions that execute another program, by id.
    failed: BTreeMap<u32, u64>,
}

/// The extent of a module's functions in its file, and its calls of library functions.
#[derive(Debug, Default)]
struct ModuleExtent {
    first: Option<u64>,
    end: u64,
    library_calls: Vec<u32>,
    /// Calls of functions that execute another program, which have a second address.
    executions: Vec<u32>,
}

impl Addresses {
    /// Returns addresses for the functions of a trace.
    pub fn new(trace: &Trace, losses: &mut Losses) -> Addresses {
        let mut addresses = Addresses {
            regions: Vec::new(),
            of: vec![0; trace.function_count()],
            failed: BTreeMap::new(),
        };
        let mut taken = BTreeMap::new();
        let mut names = BTreeSet::new();
        for module in trace.modules() {
            addresses.add_module(trace, module, &mut taken, &mut names, losses);
        }
        addresses.add_others(trace, &mut taken, &mut names);
        addresses
    }

    /// Adds the functions of no module, and those whose module is not known.
    fn add_others(
        &mut self,
        trace: &Trace,
        taken: &mut BTreeMap<u64, u64>,
        names: &mut BTreeSet<String>,
    ) {
        let mut others = Vec::new();
        for id in 0..trace.function_count() as u32 {
            let entry = trace.function(id);
            match entry.kind {
                _ if self.of(id) != 0 => {}
                FunctionKind::Address => self.set(id, entry.place),
                FunctionKind::Function | FunctionKind::LibraryCall => others.push(id),
                FunctionKind::None | FunctionKind::Event => {}
            }
        }
        if others.is_empty() {
            return;
        }
        // Each has room for a second address.
        let size = (others.len() as u64 * 2 * LIBRARY_CALL_SIZE).next_multiple_of(PAGE);
        let start = free_place(taken);
        taken.insert(start, start.saturating_add(size));
        for (place, id) in others.iter().enumerate() {
            let address = start.saturating_add(place as u64 * 2 * LIBRARY_CALL_SIZE);
            self.set(*id, address);
            if executes(trace, *id) {
                self.failed
                    .insert(*id, address.saturating_add(LIBRARY_CALL_SIZE));
            }
        }
        self.regions.push(ModuleRegion {
            start,
            end: start.saturating_add(size),
            path: UNKNOWN.to_owned(),
            build_id: String::new(),
            symbols: symbol_file(UNKNOWN, "", names),
            functions: others,
        });
    }

    fn add_module(
        &mut self,
        trace: &Trace,
        module: &TracedModule,
        taken: &mut BTreeMap<u64, u64>,
        names: &mut BTreeSet<String>,
        losses: &mut Losses,
    ) {
        let extent = extent(trace, module);
        if extent.first.is_none() && extent.library_calls.is_empty() {
            return;
        }
        let mut maps = trace.mappings().iter();
        let mapping = maps.find(|mapping| mapping.module == Some(module.module));
        let base = mapping.and_then(|mapping| mapping.start.checked_sub(mapping.offset));
        let base = base.filter(|base| base.is_multiple_of(PAGE));
        let mapped = mapping
            .zip(base)
            .map_or(0, |(mapping, base)| mapping.end.saturating_sub(base));
        let mut size = extent
            .end
            .max(mapped)
            .min(MAX_ADDRESS)
            .next_multiple_of(PAGE);
        let entries = extent.library_calls.len() + extent.executions.len();
        let table = entries as u64 * LIBRARY_CALL_SIZE;
        let is_in_front = extent.first.is_none_or(|first| first >= table);
        let table_start = if is_in_front { 0 } else { size };
        if !is_in_front || size < table {
            size = (table_start + table).next_multiple_of(PAGE);
        }
        let start = match base.filter(|base| is_free(taken, *base, size)) {
            Some(base) => base,
            None => {
                if mapping.is_some() {
                    losses.add(UftraceLossKind::MovedModules);
                }
                free_place(taken)
            }
        };
        taken.insert(start, start.saturating_add(size));
        for id in ids(trace, module) {
            let entry = trace.function(id);
            if entry.kind == FunctionKind::Function {
                self.set(id, start.saturating_add(entry.place));
            }
        }
        let table = extent.library_calls.iter().chain(&extent.executions);
        for (place, id) in table.enumerate() {
            let offset = table_start + place as u64 * LIBRARY_CALL_SIZE;
            let address = start.saturating_add(offset);
            match place < extent.library_calls.len() {
                true => self.set(*id, address),
                false => _ = self.failed.insert(*id, address),
            }
        }
        let path = without_blanks(&module.path, losses);
        self.regions.push(ModuleRegion {
            start,
            end: start.saturating_add(size),
            symbols: symbol_file(&path, &module.build_id, names),
            path,
            build_id: module.build_id.clone(),
            functions: ids(trace, module).collect(),
        });
    }

    fn set(&mut self, id: u32, address: u64) {
        if let Some(place) = self.of.get_mut(id as usize)
            && address <= MAX_ADDRESS
        {
            *place = address;
        }
    }

    /// Returns the addresses of all functions, by id; 0 for those that have none.
    pub fn into_all(self) -> Vec<u64> {
        self.of
    }

    /// Returns the address of a function; 0 if it has none.
    pub fn of(&self, function: u32) -> u64 {
        self.of.get(function as usize).copied().unwrap_or(0)
    }

    /// Returns the address of a function that executes another program for calls that end. uftrace takes a call of the
    /// function's other address for the end of all calls around it.
    pub fn of_failed(&self, function: u32) -> Option<u64> {
        self.failed.get(&function).copied()
    }

    /// Returns the text of the map of all modules, in the order of their addresses.
    pub fn map(&self) -> String {
        let mut regions: Vec<&ModuleRegion> = self.regions.iter().collect();
        regions.sort_by_key(|region| region.start);
        let mut text = String::new();
        for region in regions {
            let ModuleRegion {
                start,
                end,
                path,
                build_id,
                ..
            } = region;
            let _ = write!(
                text,
                "{start:x}-{end:x} r-xp 00000000 00:00 0{:26}{path}",
                ""
            );
            if !build_id.is_empty() {
                let _ = write!(text, " build-id:{build_id}");
            }
            text.push('\n');
        }
        // Addresses above the stack are the kernel's.
        text.push_str(
            "7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]\n",
        );
        text
    }

    /// Returns the build id of the module at a path; empty if it is not known.
    pub fn build_id(&self, path: &str) -> &str {
        let mut regions = self.regions.iter();
        let region = regions.find(|region| region.path == path);
        region.map_or("", |region| &region.build_id)
    }

    /// Returns the files of symbols, by name, with the functions of which `called` is true.
    pub fn symbols(
        &self,
        names: &FunctionNames<'_>,
        called: &[bool],
        losses: &mut Losses,
    ) -> Vec<(String, String)> {
        let trace = names.trace();
        let mut files = Vec::new();
        for region in &self.regions {
            let mut symbols: BTreeMap<u64, (char, String, u64)> = BTreeMap::new();
            let is_called = |id: &u32| called.get(*id as usize).copied().unwrap_or(false);
            for id in region.functions.iter().copied().filter(is_called) {
                let kind = match trace.function(id).kind {
                    FunctionKind::Function => 'T',
                    FunctionKind::LibraryCall => 'P',
                    _ => continue,
                };
                let address = self.of(id).saturating_sub(region.start);
                let name = jump_name(names.get(id), losses);
                let name = without_blanks(name, losses);
                let size = names.size(id).unwrap_or(0);
                if let Some(failed) = self.of_failed(id) {
                    let failed = failed.saturating_sub(region.start);
                    let end = failed.saturating_add(size);
                    symbols.insert(failed, (kind, format!("__{name}"), end));
                }
                symbols.insert(address, (kind, name, address.saturating_add(size)));
            }
            // Each run of symbols ends with a mark, so that nothing behind it gets the last one's name.
            let mut lines = Vec::new();
            let mut end = None;
            for (address, (kind, name, next)) in symbols {
                if let Some(end) = end.filter(|end| *end < address) {
                    lines.push(format!("{end:016x} ? __func_end\n"));
                }
                lines.push(format!("{address:016x} {kind} {name}\n"));
                end = Some(next).filter(|next| *next > address);
            }
            let end = end.unwrap_or(region.end - region.start);
            lines.push(format!("{end:016x} ? __sym_end\n"));
            let mut text = format!("# symbols: {}\n# path name: {}\n", lines.len(), region.path);
            if !region.build_id.is_empty() {
                let _ = writeln!(text, "# build-id: {}", region.build_id);
            }
            text.extend(lines);
            files.push((region.symbols.clone(), text));
        }
        files
    }
}

/// Returns the ids of a module's functions.
fn ids(trace: &Trace, module: &TracedModule) -> impl Iterator<Item = u32> + use<> {
    let end = u64::from(module.first) + u64::from(module.count);
    let end = end.min(trace.function_count() as u64) as u32;
    module.first..end
}

fn extent(trace: &Trace, module: &TracedModule) -> ModuleExtent {
    let mut extent = ModuleExtent::default();
    for id in ids(trace, module) {
        let entry = trace.function(id);
        match entry.kind {
            FunctionKind::Function => {
                let first = extent
                    .first
                    .map_or(entry.place, |first| first.min(entry.place));
                extent.first = Some(first);
                let end = entry.place.saturating_add(u64::from(entry.size.max(1)));
                extent.end = extent.end.max(end);
            }
            FunctionKind::LibraryCall => {
                extent.library_calls.push(id);
                if executes(trace, id) {
                    extent.executions.push(id);
                }
            }
            _ => {}
        }
    }
    extent
}

/// Returns whether uftrace takes a call for the execution of another program.
fn executes(trace: &Trace, id: u32) -> bool {
    let name = trace.library_call_name(&trace.function(id));
    name.is_some_and(|name| name.starts_with(b"exec"))
}

/// Returns whether nothing lies in the `size` bytes from `start` on. `taken` has the ends of regions by their starts.
fn is_free(taken: &BTreeMap<u64, u64>, start: u64, size: u64) -> bool {
    let Some(end) = start.checked_add(size).filter(|end| *end <= MAX_ADDRESS) else {
        return false;
    };
    let before = taken.range(..end).next_back();
    before.is_none_or(|(_, before)| *before <= start)
}

/// Returns a free address for a module that can't lie where it lay.
fn free_place(taken: &BTreeMap<u64, u64>) -> u64 {
    let last = taken.range(ELSEWHERE..ELSEWHERE_END).next_back();
    last.map_or(ELSEWHERE, |(_, end)| end.next_multiple_of(PAGE))
}

/// Returns the name of a module's file of symbols: the module's, with a part of the build id if another has that name.
fn symbol_file(path: &str, build_id: &str, names: &mut BTreeSet<String>) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut file = format!("{name}.sym");
    if names.contains(&file) {
        let part = build_id.get(..4).unwrap_or("0000");
        file = format!("{name}-{part}.sym");
    }
    let mut number = 1;
    while !names.insert(file.clone()) {
        number += 1;
        file = format!("{name}-{number}.sym");
    }
    file
}

/// Returns a name that uftrace does not take for a jump past the ends of calls. The C library has the same functions
/// under these names.
fn jump_name<'n>(name: &'n str, losses: &mut Losses) -> &'n str {
    let other = match name {
        "longjmp" | "siglongjmp" => "_longjmp",
        "__longjmp_chk" => "____longjmp_chk",
        name => return name,
    };
    losses.add(UftraceLossKind::JumpNames);
    other
}

/// Returns a name in which blanks and control characters, which end names in uftrace's files, are replaced.
pub(super) fn without_blanks(name: &str, losses: &mut Losses) -> String {
    let is_blank = |c: char| c.is_whitespace() || c.is_control();
    if !name.contains(is_blank) {
        return name.to_owned();
    }
    losses.add(UftraceLossKind::ChangedNames);
    name.replace(is_blank, "_")
}
