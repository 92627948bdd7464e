//! From a module as recorded to its functions.

use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf;
use object::read::{ReadCache, ReadRef};

use crate::address::RelativeAddress;
use crate::build_id::{open_regular, same_build};
use crate::cause::FileDamage;
use crate::debug_file::{self, DebugFileRequest};
use crate::elf::{CodeSymbol, Image, Segment, TakeSymbols};
use crate::extents::Extents;
use crate::module::ModuleSymbols;
use crate::note::Note;
use crate::options::{ModuleKind, ModuleRequest, SymbolOptions};
use crate::plt::{self, Callee, PltEntry};
use crate::table::{NewSymbol, TableBuilder};
use crate::{kernel, mini_debug_info, vdso};

/// Finds modules and reads their symbols. Holds no state but its options, so one may serve many
/// threads.
#[derive(Debug, Clone, Default)]
pub struct Symbolizer {
    pub(crate) options: SymbolOptions,
}

impl Symbolizer {
    /// A symbolizer that looks where the options say.
    #[must_use]
    pub fn new(options: SymbolOptions) -> Self {
        Self { options }
    }

    /// Reads a module's symbols. Never fails: what went wrong is in [`ModuleSymbols::notes`].
    ///
    /// This reads files (tens of milliseconds for a large program); keep the result.
    #[must_use]
    pub fn load(&self, request: &ModuleRequest<'_>) -> ModuleSymbols {
        self.load_wanted(request, None)
    }

    /// Reads the symbols that cover some addresses of a module, a fraction of the cost of [`Symbolizer::load`].
    ///
    /// [`ModuleSymbols::function`] answers for these addresses as after [`Symbolizer::load`]; what it and the other
    /// methods tell of the rest of the module is incomplete.
    #[must_use]
    pub fn load_for(
        &self,
        request: &ModuleRequest<'_>,
        addresses: impl IntoIterator<Item = RelativeAddress>,
    ) -> ModuleSymbols {
        let addresses: Vec<u64> = addresses.into_iter().map(|address| address.0).collect();
        self.load_wanted(request, Some(&addresses))
    }

    fn load_wanted(&self, request: &ModuleRequest<'_>, wanted: Option<&[u64]>) -> ModuleSymbols {
        match request.kind {
            ModuleKind::Kernel => {
                let symbols = kernel::load(&self.options, request.build_id, wanted);
                // The kernel's symbols were read, they only have nothing at these addresses.
                if wanted.is_some() && !symbols.owners.is_empty() {
                    return symbols;
                }
                self.or_vmlinux(request, symbols)
            }
            ModuleKind::File => self.load_file(request, wanted),
            ModuleKind::Vdso => self.load_vdso(request, wanted),
            ModuleKind::NotAFile => ModuleSymbols {
                notes: vec![Note::NotAFile {
                    name: request.path.to_path_buf(),
                }],
                ..ModuleSymbols::default()
            },
        }
    }

    fn load_file(&self, request: &ModuleRequest<'_>, wanted: Option<&[u64]>) -> ModuleSymbols {
        let mut loading = Loading::new(&self.options, wanted);
        let path = self.locate(request);
        match open_regular(&path) {
            Ok(file) => {
                let cache = ReadCache::new(file);
                loading.read(&cache, &path, request);
            }
            Err(error) => loading.notes.push(Note::NoFile {
                path: path.clone(),
                reason: error.into(),
            }),
        }
        let mut symbols = loading.finish();
        if !symbols.is_empty() {
            symbols.notes.extend(self.unverified(request, &path));
        }
        symbols
    }

    /// A note if nothing tells that a file is the recorded one, and it may well be another.
    fn unverified(&self, request: &ModuleRequest<'_>, path: &Path) -> Option<Note> {
        if request.build_id.is_some() || self.options.symfs.is_some() {
            return None;
        }
        match kernel::other_kernel(self.options.recorded_kernel.as_ref(), None)? {
            Note::KernelReleaseDiffers { recorded, running } => Some(Note::Unverified {
                path: path.to_path_buf(),
                recorded,
                running,
            }),
            _ => None,
        }
    }

    fn load_vdso(&self, request: &ModuleRequest<'_>, wanted: Option<&[u64]>) -> ModuleSymbols {
        let mut loading = Loading::new(&self.options, wanted);
        // The vdso belongs to the kernel: another kernel's vdso has other addresses.
        if let Some(note) = kernel::other_kernel(self.options.recorded_kernel.as_ref(), None) {
            loading.notes.push(note);
            return loading.finish();
        }
        match vdso::image() {
            Ok(image) => loading.read(&image[..], request.path, request),
            Err(error) => loading.notes.push(Note::NoFile {
                path: request.path.to_path_buf(),
                reason: error.into(),
            }),
        }
        loading.finish()
    }

    /// A path of the recorded machine on this one.
    pub(crate) fn here(&self, path: &Path) -> PathBuf {
        match &self.options.symfs {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_path_buf(),
        }
    }

    /// Where the recorded file lies on this machine.
    pub(crate) fn locate(&self, request: &ModuleRequest<'_>) -> PathBuf {
        let path = self.here(request.path);
        // The kernel marks a file that was replaced while in use. What lies there now is the recorded
        // one only if its build id says so.
        if request.build_id.is_some()
            && !path.exists()
            && let Some(name) = request
                .path
                .to_str()
                .and_then(|name| name.strip_suffix(" (deleted)"))
        {
            return self.here(Path::new(name));
        }
        path
    }
}

/// Opens a file for its headers, read as needed, and for whole sections.
pub(crate) fn open(path: &Path) -> Result<(ReadCache<File>, File), Note> {
    let failed = |error: std::io::Error| Note::NoFile {
        path: path.to_path_buf(),
        reason: error.into(),
    };
    let file = open_regular(path).map_err(failed)?;
    let headers = file.try_clone().map_err(failed)?;
    Ok((ReadCache::new(headers), file))
}

pub(crate) fn damaged(path: &Path, what: FileDamage) -> Note {
    Note::Damaged {
        path: path.to_path_buf(),
        what,
    }
}

/// The image, if it is the recorded one.
pub(crate) fn recorded_image<'d, R: ReadRef<'d>>(
    data: R,
    path: &Path,
    recorded: Option<&[u8]>,
) -> Result<Image<'d, R>, Note> {
    let image = Image::parse(data).map_err(|error| match error {
        FileDamage::NotElf => Note::NotElf {
            path: path.to_path_buf(),
        },
        error => damaged(path, error),
    })?;
    let found = image.build_id();
    match recorded {
        Some(recorded) if !found.is_some_and(|found| same_build(recorded, found)) => {
            Err(Note::BuildIdMismatch {
                path: path.to_path_buf(),
                recorded: recorded.to_vec(),
                found: found.map(<[u8]>::to_vec),
            })
        }
        _ => Ok(image),
    }
}

/// A module's symbols while they are collected.
struct Loading<'a> {
    options: &'a SymbolOptions,
    /// The addresses that will be asked for; `None` for all.
    wanted: Option<&'a [u64]>,
    notes: Vec<Note>,
    builder: TableBuilder,
    /// The name budget was spent.
    overflowed: bool,
    /// The file, with its build id, if it has no full symbol table and no other was found.
    stripped: Option<(PathBuf, Option<Vec<u8>>)>,
    extents: Extents,
}

impl<'a> Loading<'a> {
    fn new(options: &'a SymbolOptions, wanted: Option<&'a [u64]>) -> Self {
        Self {
            options,
            wanted,
            notes: Vec::new(),
            builder: TableBuilder::new(0),
            overflowed: false,
            stripped: None,
            extents: Extents::default(),
        }
    }

    fn finish(mut self) -> ModuleSymbols {
        let named = self.builder.offered();
        let table = self.builder.finish();
        if let Some((path, build_id)) = self.stripped {
            self.notes.push(Note::NoSymbols {
                path,
                build_id,
                named,
            });
        }
        ModuleSymbols {
            table,
            notes: self.notes,
            demangle: self.options.demangle,
            extents: self.extents,
            ..ModuleSymbols::default()
        }
    }

    /// Takes the names of an image, if it is the recorded one, and of its debug file.
    fn read<'d, R: ReadRef<'d>>(&mut self, data: R, path: &Path, request: &ModuleRequest<'_>) {
        let image = match recorded_image(data, path, request.build_id) {
            Ok(image) => image,
            Err(note) => return self.notes.push(note),
        };
        let build_id = image.build_id();
        if let Some(what) = image.damage {
            self.damaged(path, what);
        }
        let segments: Vec<Segment> = image.code_segments().copied().collect();
        let target = Target {
            segments: &segments,
            base: image.base(),
        };
        let entries = plt::entries(&image).unwrap_or_else(|error| {
            self.damaged(path, error);
            Vec::new()
        });
        if let Some(wanted) = self.wanted {
            // An entry may be named after the function that chooses what it calls.
            let choosers = entries
                .iter()
                .filter_map(|entry| target.chooser(entry.callee));
            let wanted = wanted.iter().copied().chain(choosers);
            self.builder.want_only(wanted.collect());
        }
        self.add(&image, elf::SHT_SYMTAB, target, path);
        // A vdso has no other names.
        let is_stripped = image.section_of_kind(elf::SHT_SYMTAB).is_none()
            && request.kind == ModuleKind::File
            && {
                let wanted = DebugFileRequest {
                    path,
                    build_id,
                    link: image.debug_link(),
                };
                !self.read_debug_file(&wanted, target)
                    && !self.read_mini_debug_info(&image, target, path)
            };
        self.add(&image, elf::SHT_DYNSYM, target, path);
        self.add_plt(&entries, target);
        if self.overflowed {
            self.damaged(path, FileDamage::OverlappingNames);
        }
        if is_stripped {
            // Translates the wanted addresses to those of the file.
            let wanted = self.wanted.map(|wanted| {
                let addresses = wanted.iter().filter_map(|offset| {
                    let mut segments = segments.iter();
                    segments.find_map(|segment| segment.address_of(*offset))
                });
                addresses.collect::<Vec<u64>>()
            });
            self.extents = Extents::read(&image, wanted.as_deref(), |address| {
                target.place(address).map(|(_, offset)| offset)
            });
            if image.damage.is_none() {
                self.stripped = Some((path.to_path_buf(), build_id.map(<[u8]>::to_vec)));
            }
        }
    }

    /// Takes the names of the debug file; false when there is none.
    fn read_debug_file(&mut self, wanted: &DebugFileRequest<'_>, target: Target<'_>) -> bool {
        let Some(path) = debug_file::find(wanted, self.options, &mut self.notes) else {
            return false;
        };
        let Ok(file) = open_regular(&path) else {
            return false;
        };
        let cache = ReadCache::new(file);
        let image = match Image::parse(&cache) {
            Ok(image) => image,
            Err(error) => {
                self.damaged(&path, error);
                return false;
            }
        };
        if image.section_of_kind(elf::SHT_SYMTAB).is_none() {
            return false;
        }
        self.add(&image, elf::SHT_SYMTAB, target, &path);
        self.notes.push(Note::DebugFile { path });
        true
    }

    /// Takes the names of functions that aren't exported from `.gnu_debugdata`; false when there are
    /// none.
    fn read_mini_debug_info<'d, R: ReadRef<'d>>(
        &mut self,
        outer: &Image<'d, R>,
        target: Target<'_>,
        path: &Path,
    ) -> bool {
        let unpacked = match mini_debug_info::unpack(outer) {
            Ok(Some(unpacked)) => unpacked,
            Ok(None) => return false,
            Err(error) => {
                self.damaged(path, error);
                return false;
            }
        };
        match Image::parse(&unpacked[..]) {
            Ok(image) => {
                self.add(&image, elf::SHT_SYMTAB, target, path);
                image.section_of_kind(elf::SHT_SYMTAB).is_some()
            }
            Err(error) => {
                self.damaged(path, error);
                false
            }
        }
    }

    /// Adds one symbol table of an image.
    fn add<'d, R: ReadRef<'d>>(
        &mut self,
        image: &Image<'d, R>,
        kind: elf::SectionType,
        target: Target<'_>,
        path: &Path,
    ) {
        let Some(table) = image.section_of_kind(kind) else {
            return;
        };
        // Linkers share the tails of names but do not overlap them otherwise; a hostile table may.
        let strings = image
            .sections
            .get(table.link as usize)
            .map_or(0, |section| section.size);
        let budget = strings.saturating_mul(4).saturating_add(table.size);
        self.builder
            .allow(usize::try_from(budget).unwrap_or(usize::MAX));
        let few = self.wanted.is_some();
        let mut adding = Adding {
            moved: target.moved(image.base()),
            source: u8::from(kind == elf::SHT_DYNSYM),
            target,
            loading: self,
        };
        let result = image.code_symbols(table, few, &mut adding);
        if let Err(error) = result {
            self.damaged(path, error);
        }
    }

    /// Adds the procedure linkage table; after all symbols, since an entry may be named after one.
    fn add_plt(&mut self, entries: &[PltEntry<'_>], target: Target<'_>) {
        let mut choosers: Vec<u64> = entries
            .iter()
            .filter_map(|entry| target.chooser(entry.callee))
            .collect();
        choosers.sort_unstable();
        choosers.dedup();
        let known = self.builder.names_at(&choosers);
        let names: Vec<String> = entries
            .iter()
            .map(|entry| match entry.callee {
                Callee::Named(name) => format!("{}@plt", String::from_utf8_lossy(name)),
                Callee::ChosenBy(address) => {
                    let at = target
                        .chooser(entry.callee)
                        .and_then(|offset| choosers.binary_search(&offset).ok());
                    match at.and_then(|at| known[at]) {
                        Some(name) => format!("{name}@plt"),
                        // As binutils call it.
                        None => format!("*ABS*+{address:#x}@plt"),
                    }
                }
            })
            .collect();
        self.builder.allow(names.iter().map(String::len).sum());
        let mut adding = Adding {
            moved: 0,
            source: 2,
            target,
            loading: self,
        };
        for (entry, name) in entries.iter().zip(&names) {
            let symbol = entry.symbol(name.as_bytes());
            if adding.wants(&symbol) {
                adding.take(&symbol);
            }
        }
    }

    fn damaged(&mut self, path: &Path, what: FileDamage) {
        self.notes.push(damaged(path, what));
    }
}

/// Symbols of one table on their way into a builder, each at the file offset of its address.
struct Adding<'l, 'a, 't> {
    loading: &'l mut Loading<'a>,
    moved: u64,
    source: u8,
    target: Target<'t>,
}

impl Adding<'_, '_, '_> {
    /// The symbol as the builder takes it; `None` for one that isn't in a code segment.
    fn placed<'n>(&self, symbol: &CodeSymbol<'n>) -> Option<NewSymbol<'n>> {
        let (segment, start) = self.target.place(symbol.address.wrapping_add(self.moved))?;
        let left_in_section = symbol.section_end.saturating_sub(symbol.address);
        Some(NewSymbol {
            start,
            size: symbol.size,
            limit: start.saturating_add(left_in_section).min(segment.end()),
            binding: symbol.binding,
            is_function: symbol.is_function,
            source: self.source,
            owner: 0,
            file: symbol.file,
            name: symbol.name,
        })
    }
}

impl TakeSymbols for Adding<'_, '_, '_> {
    fn wants(&mut self, symbol: &CodeSymbol<'_>) -> bool {
        let placed = self.placed(symbol);
        placed.is_some_and(|symbol| self.loading.builder.wants(&symbol))
    }

    fn take(&mut self, symbol: &CodeSymbol<'_>) {
        if let Some(symbol) = self.placed(symbol) {
            self.loading.overflowed |= !self.loading.builder.push(&symbol);
        }
    }
}

/// The image that was mapped, whose file offsets are wanted.
#[derive(Clone, Copy)]
struct Target<'a> {
    segments: &'a [Segment],
    base: Option<u64>,
}

impl Target<'_> {
    /// The code segment that holds an address, and the address's file offset.
    fn place(&self, address: u64) -> Option<(&Segment, u64)> {
        self.segments
            .iter()
            .find_map(|segment| Some((segment, segment.offset_of(address)?)))
    }

    /// The file offset of the function that chooses what an entry calls.
    fn chooser(&self, callee: Callee<'_>) -> Option<u64> {
        match callee {
            Callee::ChosenBy(address) => self.place(address).map(|(_, offset)| offset),
            Callee::Named(_) => None,
        }
    }

    /// Returns the difference to an address of another image of the same build; not zero after prelinking.
    fn moved(&self, other: Option<u64>) -> u64 {
        match (self.base, other) {
            (Some(here), Some(other)) => here.wrapping_sub(other),
            _ => 0,
        }
    }
}
