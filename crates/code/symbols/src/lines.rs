//! Source lines and inline frames of a module.

mod declared;
mod signature;
mod source_frames;

pub use signature::{FunctionSignature, Parameter, StructType, ValueType};
pub use source_frames::SourceFrame;

use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use addr2line::{Context, LookupResult};
use object::read::ReadRef;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::address::RelativeAddress;
use crate::debug_file::{self, DebugFileRequest};
use crate::demangle::demangle;
use crate::dwarf_sections::{DebugSections, Slice};
use crate::elf::{Image, Segment};
use crate::note::Note;
use crate::options::{ModuleKind, ModuleRequest, SymbolOptions};
use crate::split_dwarf::SplitFiles;
use crate::symbolizer::{Symbolizer, damaged, open, recorded_image};

/// More inline frames at one address than any compiler makes.
const MOST_FRAMES: usize = 1024;

/// The debug information of one module, which tells source lines and inline frames.
///
/// The value holds small and unpacked sections in memory (see [`heap_bytes`](Self::heap_bytes)), so drop it when
/// the module's addresses have been asked for. It may be shared; each thread asks through a
/// [`LineReader`] of its own.
#[derive(Debug, Default)]
pub struct ModuleLines {
    sections: Option<DebugSections>,
    supplementary: Option<DebugSections>,
    split: SplitFiles,
    /// The mapped file's code segments, which turn file offsets into addresses.
    segments: Vec<Segment>,
    /// The address in the debug file minus the address in the mapped file.
    moved: u64,
    /// The file that refers to split files.
    path: PathBuf,
    demangle: bool,
    notes: Vec<Note>,
}

/// A function that is executing at an address, and the line it is at.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The function, demangled if the options ask for it. `None` when only the line is known: then
    /// the symbol table may tell more.
    pub function: Option<Arc<str>>,
    /// The source file, with the directory it was compiled in.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
    /// Whether the compiler put this function's code into its caller, which is the next frame.
    pub is_inlined: bool,
}

/// A stretch of code that belongs to one source line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LineRange {
    /// Its addresses.
    pub addresses: Range<RelativeAddress>,
    /// The source file, with the directory it was compiled in.
    pub file: Option<Arc<str>>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1.
    pub column: Option<u32>,
}

impl Symbolizer {
    /// Reads a module's debug information: of the file, or of its separate debug file. Never fails:
    /// what went wrong is in [`ModuleLines::notes`].
    ///
    /// Packed sections are unpacked whole (a second for a gigabyte), large ones otherwise mapped. A
    /// [`ModuleKind::File`] has lines, and the kernel where its `vmlinux` is found.
    #[must_use]
    pub fn lines(&self, request: &ModuleRequest<'_>) -> ModuleLines {
        if request.kind == ModuleKind::Kernel {
            return self.kernel_lines(request);
        }
        let path = match request.kind {
            ModuleKind::File => self.locate(request),
            _ => request.path.to_path_buf(),
        };
        let mut lines = ModuleLines {
            demangle: self.options.demangle,
            path,
            ..ModuleLines::default()
        };
        if request.kind != ModuleKind::File {
            lines.notes.push(Note::NoLines {
                path: lines.path.clone(),
                build_id: None,
            });
        } else if let Err(note) = lines.read(&self.options, request) {
            lines.notes.push(note);
        }
        lines
    }
}

impl Symbolizer {
    /// The lines of the kernel, from its `vmlinux`; addresses are absolute.
    fn kernel_lines(&self, request: &ModuleRequest<'_>) -> ModuleLines {
        let mut lines = ModuleLines {
            demangle: self.options.demangle,
            path: request.path.to_path_buf(),
            ..ModuleLines::default()
        };
        match self.vmlinux(request) {
            Ok(vmlinux) => {
                lines.path.clone_from(&vmlinux.path);
                let file = ModuleRequest {
                    kind: ModuleKind::File,
                    path: &vmlinux.path,
                    build_id: vmlinux.build_id.as_deref(),
                };
                if let Err(note) = lines.read(&self.options, &file) {
                    lines.notes.push(note);
                }
                lines.segments = vmlinux.recorded_segments();
            }
            Err(notes) => {
                lines.notes = notes;
                lines.notes.push(Note::NoLines {
                    path: lines.path.clone(),
                    build_id: request.build_id.map(<[u8]>::to_vec),
                });
            }
        }
        lines
    }
}

impl ModuleLines {
    fn read(&mut self, options: &SymbolOptions, request: &ModuleRequest<'_>) -> Result<(), Note> {
        let path = self.path.clone();
        let (cache, file) = open(&path)?;
        let image = recorded_image(&cache, &path, request.build_id)?;
        self.segments = image.code_segments().copied().collect();
        if DebugSections::present(&image) {
            return self.read_sections(options, &file, &image, &path);
        }
        let build_id = image.build_id();
        let wanted = DebugFileRequest {
            path: &path,
            build_id,
            link: image.debug_link(),
        };
        let no_lines = || Note::NoLines {
            path: path.clone(),
            build_id: build_id.map(<[u8]>::to_vec),
        };
        let debug_path =
            debug_file::find(&wanted, options, &mut self.notes).ok_or_else(no_lines)?;
        let (cache, file) = open(&debug_path)?;
        let debug = Image::parse(&cache).map_err(|error| damaged(&debug_path, error))?;
        if !DebugSections::present(&debug) {
            return Err(no_lines());
        }
        if let (Some(here), Some(there)) = (image.base(), debug.base()) {
            // Not zero after prelinking.
            self.moved = there.wrapping_sub(here);
        }
        self.read_sections(options, &file, &debug, &debug_path)?;
        self.notes.push(Note::DebugFile { path: debug_path });
        Ok(())
    }

    fn read_sections<'d, R: ReadRef<'d>>(
        &mut self,
        options: &SymbolOptions,
        file: &File,
        image: &Image<'d, R>,
        path: &Path,
    ) -> Result<(), Note> {
        let sections = DebugSections::read(file, image).map_err(|error| damaged(path, error))?;
        if let Some(link) = image.supplementary_link() {
            self.supplementary =
                match debug_file::find_supplementary(path, link, options, &mut self.notes) {
                    Some(path) => Some(read_supplementary(&path)?),
                    None => {
                        self.notes.push(Note::NoSupplementaryFile {
                            path: path.to_path_buf(),
                            wanted: PathBuf::from(String::from_utf8_lossy(link.0).into_owned()),
                            build_id: link.1.to_vec(),
                        });
                        None
                    }
                };
        }
        self.sections = Some(sections);
        self.split = SplitFiles::of(&[&self.path, path], options.symfs.as_deref());
        Ok(())
    }

    /// Whether there is debug information at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sections.is_none()
    }

    /// Returns notes: problems with their remedy, debug files used. Split files that are
    /// missing are known only after the addresses were asked for.
    #[must_use]
    pub fn notes(&self) -> Vec<Note> {
        let mut notes = self.notes.clone();
        let missing = self.split.missing();
        if missing > 0 {
            notes.push(Note::NoSplitFiles {
                path: self.path.clone(),
                missing,
            });
        }
        notes
    }

    /// Heap memory the debug information holds, in bytes; readers hold more.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let own = self.sections.iter().chain(&self.supplementary);
        own.map(DebugSections::heap_bytes).sum::<usize>() + self.split.heap_bytes()
    }

    /// Something to ask with, for one thread.
    ///
    /// Making one reads the list of compilation units (milliseconds for a large program), asking one
    /// reads those units it meets. So let several threads ask for neighbouring addresses each.
    #[must_use]
    pub fn reader(&self) -> LineReader<'_> {
        let context = self.sections.as_ref().and_then(|sections| {
            let mut dwarf = sections.dwarf();
            if let Some(supplementary) = &self.supplementary {
                dwarf.set_sup(supplementary.dwarf());
            }
            // Damage in the list of units: nothing can be found.
            Context::from_dwarf(dwarf).ok()
        });
        LineReader {
            lines: self,
            context,
            package: self.split.package(),
            names: RefCell::default(),
            files: RefCell::default(),
            discriminators: RefCell::default(),
        }
    }

    /// Returns the debug information's address for a relative one.
    fn address_of(&self, address: RelativeAddress) -> Option<u64> {
        let mut segments = self.segments.iter();
        let address = segments.find_map(|segment| segment.address_of(address.0))?;
        Some(address.wrapping_add(self.moved))
    }
}

/// Answers for one thread; see [`ModuleLines::reader`].
pub struct LineReader<'a> {
    lines: &'a ModuleLines,
    context: Option<Context<Slice<'a>>>,
    package: Option<gimli::DwarfPackage<Slice<'a>>>,
    /// Names to show by names as they are: the same few functions are inlined everywhere.
    names: RefCell<FxHashMap<&'a [u8], Arc<str>>>,
    files: RefCell<FxHashSet<Arc<str>>>,
    /// By unit: the code that has discriminators.
    discriminators: RefCell<FxHashMap<Option<usize>, Rc<Vec<source_frames::DiscriminatorRow>>>>,
}

impl std::fmt::Debug for LineReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LineReader")
            .field("path", &self.lines.path)
            .field("has_context", &self.context.is_some())
            .finish_non_exhaustive()
    }
}

impl LineReader<'_> {
    /// The functions that are executing at an address, innermost first. All but the
    /// last are inlined into the next. Empty when the debug information tells nothing of it.
    ///
    /// For a return address ask for the byte before it, which lies in the call.
    #[must_use]
    pub fn frames(&self, address: RelativeAddress) -> Vec<Frame> {
        let mut frames = Vec::new();
        self.frames_into(address, &mut frames);
        frames
    }

    /// As [`LineReader::frames`], into a list that is emptied first.
    pub fn frames_into(&self, address: RelativeAddress, frames: &mut Vec<Frame>) {
        frames.clear();
        let (Some(context), Some(probe)) = (&self.context, self.lines.address_of(address)) else {
            return;
        };
        let mut lookup = context.find_frames(probe);
        let found = loop {
            lookup = match lookup {
                LookupResult::Output(found) => break found,
                LookupResult::Load { load, continuation } => {
                    let split = self.lines.split.load(&load, self.package.as_ref());
                    addr2line::LookupContinuation::resume(continuation, split)
                }
            };
        };
        // Damage inside a unit ends the list; the frames before it hold.
        let Ok(mut found) = found else {
            return;
        };
        while let Ok(Some(frame)) = found.next() {
            if let Some(inner) = frames.last_mut() {
                inner.is_inlined = true;
            }
            let location = frame.location;
            frames.push(Frame {
                function: frame.function.map(|function| self.name(function.name)),
                file: location.as_ref().and_then(|at| Some(self.file(at.file?))),
                line: location.as_ref().and_then(|at| at.line),
                column: location
                    .as_ref()
                    .and_then(|at| at.column)
                    .filter(|&at| at > 0),
                is_inlined: false,
            });
            if frames.len() == MOST_FRAMES {
                break;
            }
        }
    }

    /// The source lines of a range of addresses, by rising address. Addresses the debug
    /// information tells nothing of are left out.
    #[must_use]
    pub fn lines(&self, addresses: Range<RelativeAddress>) -> Vec<LineRange> {
        let (Some(context), Some(low)) = (&self.context, self.lines.address_of(addresses.start))
        else {
            return Vec::new();
        };
        let Range { start: first, end } = RelativeAddress::numbers(&addresses);
        let relative =
            |address: u64| RelativeAddress(address.wrapping_sub(low).wrapping_add(first));
        let high = low.saturating_add(end.saturating_sub(first));
        let Ok(found) = context.find_location_range(low, high) else {
            return Vec::new();
        };
        found
            .map(|(start, size, location)| LineRange {
                addresses: relative(start.max(low))..relative(start.saturating_add(size).min(high)),
                file: location.file.map(|file| self.file(file)),
                line: location.line,
                column: location.column.filter(|&at| at > 0),
            })
            .filter(|range| !range.addresses.is_empty())
            .collect()
    }
}

impl<'a> LineReader<'a> {
    fn name(&self, raw: Slice<'a>) -> Arc<str> {
        let raw = raw.slice();
        if let Some(name) = self.names.borrow().get(raw) {
            return name.clone();
        }
        let text = String::from_utf8_lossy(raw);
        let name: Arc<str> = if self.lines.demangle {
            demangle(&text).into()
        } else {
            text.into()
        };
        self.names.borrow_mut().insert(raw, name.clone());
        name
    }

    fn file(&self, path: &str) -> Arc<str> {
        if let Some(known) = self.files.borrow().get(path) {
            return known.clone();
        }
        let path: Arc<str> = path.into();
        self.files.borrow_mut().insert(path.clone());
        path
    }
}

fn read_supplementary(path: &Path) -> Result<DebugSections, Note> {
    let (cache, file) = open(path)?;
    let image = Image::parse(&cache).map_err(|error| damaged(path, error))?;
    DebugSections::read(&file, &image).map_err(|error| damaged(path, error))
}
