//! Addresses to function ids: the maps of programs, and the symbols of their modules.

use super::super::loss::{Losses, UftraceLossKind};
use super::symbols::{Symbol, SymbolFiles};
use super::tasks::{Session, TaskTable};
use super::{UftraceImportError, read_text};
use dioptra_tracedata::{JournalEntry, ModuleMapping, TraceWriter, TracedModule};
use dioptra_tracelayout::message::Method;
use dioptra_tracelayout::{FunctionEntry, FunctionKind};
use object::read::ReadCache;
use object::{Object, ObjectSegment};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::path::Path;

/// The number of names in a line of the journal.
const NAMES: usize = 1000;

/// A module in a program.
#[derive(Clone, Debug)]
struct Region {
    start: u64,
    end: u64,
    path: String,
    build_id: String,
}

/// A module whose functions have ids.
#[derive(Debug)]
struct Module {
    number: u32,
    first: u32,
    symbols: Vec<Symbol>,
}

/// The programs of a recording.
#[derive(Debug)]
pub(super) struct Programs<'a> {
    tasks: &'a TaskTable,
    /// The modules of programs by session, in the order of their addresses.
    maps: HashMap<&'a str, Vec<Region>>,
    /// The mappings that are written: the program, and the module's place in its map.
    told: HashSet<(usize, usize)>,
    files: SymbolFiles,
    modules: BTreeMap<(String, String), Module>,
    /// The ids of functions by program and address.
    known: HashMap<(usize, u64), u32>,
    /// The ids of addresses without a function.
    unnamed: HashMap<u64, u32>,
}

impl<'a> Programs<'a> {
    /// Reads the maps of all programs.
    pub fn new(folder: &Path, tasks: &'a TaskTable, losses: &mut Losses) -> Programs<'a> {
        let mut maps: HashMap<&str, Vec<Region>> = HashMap::new();
        for session in tasks.sessions() {
            // Damaged lists may name a map several times.
            if !maps.contains_key(session.id.as_str()) {
                maps.insert(&session.id, regions(folder, session, losses));
            }
        }
        Programs {
            tasks,
            maps,
            told: HashSet::new(),
            files: SymbolFiles::new(folder),
            modules: BTreeMap::new(),
            known: HashMap::new(),
            unnamed: HashMap::new(),
        }
    }

    /// Returns whether a module lies at an address.
    pub fn is_mapped(&self, session: Option<usize>, address: u64) -> bool {
        self.region(session, address).is_some()
    }

    fn region(&self, session: Option<usize>, address: u64) -> Option<(usize, usize)> {
        let session = session?;
        let regions = self
            .maps
            .get(self.tasks.sessions().get(session)?.id.as_str())?;
        let place = regions
            .partition_point(|region| region.start <= address)
            .checked_sub(1)?;
        (address < regions.get(place)?.end).then_some((session, place))
    }

    /// Returns the id of the function at an address. The first call for a module gives ids to all its functions.
    pub fn function(
        &mut self,
        writer: &mut TraceWriter,
        losses: &mut Losses,
        session: Option<usize>,
        address: u64,
    ) -> Result<u32, UftraceImportError> {
        let key = (session.unwrap_or(usize::MAX), address);
        if let Some(id) = self.known.get(&key) {
            return Ok(*id);
        }
        let id = match self.region(session, address) {
            Some((session, place)) => self.named(writer, losses, (session, place), address)?,
            None => None,
        };
        let id = match id {
            Some(id) => id,
            None => self.unnamed(writer, address)?,
        };
        self.known.insert(key, id);
        Ok(id)
    }

    fn unnamed(
        &mut self,
        writer: &mut TraceWriter,
        address: u64,
    ) -> Result<u32, UftraceImportError> {
        if let Some(id) = self.unnamed.get(&address) {
            return Ok(*id);
        }
        let id = writer.next_function();
        writer.functions(&[FunctionEntry {
            kind: FunctionKind::Address,
            place: address,
            ..FunctionEntry::NONE
        }])?;
        self.unnamed.insert(address, id);
        Ok(id)
    }

    /// Returns the id of the function that has a name at an address in a module.
    fn named(
        &mut self,
        writer: &mut TraceWriter,
        losses: &mut Losses,
        (session, place): (usize, usize),
        address: u64,
    ) -> Result<Option<u32>, UftraceImportError> {
        let program = &self.tasks.sessions()[session];
        let Some(region) = self
            .maps
            .get(program.id.as_str())
            .and_then(|map| map.get(place))
        else {
            return Ok(None);
        };
        let key = (region.path.clone(), region.build_id.clone());
        if !self.modules.contains_key(&key) {
            let number = self.modules.len() as u32 + 1;
            let symbols = self.files.of(&region.path, losses);
            let module = module(writer, number, region, symbols)?;
            self.modules.insert(key.clone(), module);
        }
        let Some(module) = self.modules.get(&key) else {
            return Ok(None);
        };
        if self.told.insert((session, place)) {
            writer.journal(&JournalEntry::Mapping(ModuleMapping {
                time: program.time,
                pid: program.pid,
                module: Some(module.number),
                path: region.path.clone(),
                start: region.start,
                end: region.end,
                offset: 0,
            }))?;
        }
        let offset = address - region.start;
        let place = module
            .symbols
            .partition_point(|symbol| symbol.start <= offset);
        let Some(place) = place.checked_sub(1) else {
            return Ok(None);
        };
        let symbol = &module.symbols[place];
        Ok((offset < symbol.end).then(|| module.first + place as u32))
    }
}

/// Reads the map of a program, in the order of addresses.
fn regions(folder: &Path, session: &Session, losses: &mut Losses) -> Vec<Region> {
    let text = read_text(&folder.join(format!("sid-{}.map", session.id)));
    let mut regions = Vec::new();
    for line in text.unwrap_or_default().lines() {
        match region(line) {
            Some(region) if region.path.starts_with('[') => {}
            Some(region) => regions.push(region),
            None => losses.add(UftraceLossKind::Lines),
        }
    }
    regions.extend(session.libraries.iter().map(|(_, base, path)| Region {
        start: *base,
        end: u64::MAX,
        path: path.clone(),
        build_id: String::new(),
    }));
    regions.sort_by_key(|region| region.start);
    // A library that was loaded later has no known end.
    let starts: Vec<u64> = regions.iter().skip(1).map(|region| region.start).collect();
    for (region, next) in regions.iter_mut().zip(starts) {
        region.end = region.end.min(next);
    }
    regions
}

/// Writes a module with its functions.
fn module(
    writer: &mut TraceWriter,
    number: u32,
    region: &Region,
    symbols: Vec<Symbol>,
) -> Result<Module, UftraceImportError> {
    let first = writer.next_function();
    let segments = segments(&region.path, &region.build_id);
    let mut entries = Vec::with_capacity(symbols.len());
    let mut methods: BTreeMap<String, u32> = BTreeMap::new();
    for symbol in &symbols {
        let (kind, place, size) = match symbol.is_library_call {
            true => {
                let place = writer.names(symbol.name.as_bytes())?;
                (FunctionKind::LibraryCall, place, symbol.name.len() as u64)
            }
            false => {
                let size = symbol.end.saturating_sub(symbol.start);
                let size = if symbol.end == u64::MAX { 0 } else { size };
                (
                    FunctionKind::Function,
                    file_offset(&segments, symbol.start),
                    size,
                )
            }
        };
        let method = match kind {
            FunctionKind::LibraryCall => ("plt", Method::Plt as u8),
            _ => ("mcount", Method::Mcount as u8),
        };
        *methods.entry(method.0.to_owned()).or_default() += 1;
        entries.push(FunctionEntry {
            module: number,
            kind,
            method: method.1,
            place,
            size: u32::try_from(size).unwrap_or(0),
        });
    }
    writer.functions(&entries)?;
    writer.journal(&JournalEntry::Module(TracedModule {
        module: number,
        path: region.path.clone(),
        build_id: region.build_id.clone(),
        first,
        count: symbols.len() as u32,
        methods,
        refused: Vec::new(),
    }))?;
    for (part, symbols) in symbols.chunks(NAMES).enumerate() {
        let names = symbols.iter().map(|symbol| symbol.name.clone());
        writer.journal(&JournalEntry::Named {
            first: first + (part * NAMES) as u32,
            names: names.collect(),
        })?;
    }
    Ok(Module {
        number,
        first,
        symbols,
    })
}

/// A segment of a module's file: address, size, and offset in the file.
type Segment = (u64, u64, u64);

/// Returns the segments of a module's file, addresses relative to the first one; none if this machine has not the file
/// with that build id.
fn segments(path: &str, build_id: &str) -> Vec<Segment> {
    let read = || {
        let cache = ReadCache::new(File::open(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let found: String = file
            .build_id()
            .ok()??
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        if found != build_id {
            return None;
        }
        let segments = file.segments().map(|segment| {
            let (offset, _) = segment.file_range();
            (segment.address(), segment.size(), offset)
        });
        let segments: Vec<Segment> = segments.collect();
        let base = segments.iter().map(|(start, ..)| *start).min()? & !4095;
        let relative = segments
            .into_iter()
            .map(|(start, size, offset)| (start - base, size, offset));
        Some(relative.collect())
    };
    read().unwrap_or_default()
}

/// Returns the file offset of a relative address, which is equal to it where the segments are not known.
fn file_offset(segments: &[Segment], address: u64) -> u64 {
    let mut segments = segments.iter();
    let segment = segments.find(|(start, size, _)| {
        address
            .checked_sub(*start)
            .is_some_and(|within| within < *size)
    });
    segment.map_or(address, |(start, _, offset)| {
        offset.saturating_add(address - start)
    })
}

/// Parses a line `START-END PROT OFFSET DEVICE INODE PATH [build-id:ID]`.
fn region(line: &str) -> Option<Region> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let path = words.nth(4)?;
    // Paths may have blanks.
    let rest = &line[line.find(path)?..];
    let (path, build_id) = match rest.rsplit_once(" build-id:") {
        Some((path, build_id)) => (path.trim_end(), build_id.trim_end()),
        None => (rest.trim_end(), ""),
    };
    let is_id = build_id.bytes().all(|digit| digit.is_ascii_hexdigit());
    (start < end && is_id).then(|| Region {
        start,
        end,
        path: path.to_owned(),
        build_id: build_id.to_owned(),
    })
}
