//! The kernel's own file, `vmlinux`: functions where kallsyms tells none, source lines, inline frames, instructions.
//!
//! A kernel is linked for one address and runs at another, chosen at each start: a symbol whose address was recorded
//! tells how far it was moved.

use std::path::{Path, PathBuf};

use memchr::memmem;
use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;

use crate::address::{FileAddress, LoadBias};
use crate::build_id::{build_id, same_build};
use crate::cause::FileDamage;
use crate::debug_file::{self, DebugFileRequest};
use crate::elf::{Image, Segment};
use crate::kernel;
use crate::module::ModuleSymbols;
use crate::note::Note;
use crate::options::{ModuleKind, ModuleRequest, SymbolOptions};
use crate::symbolizer::{Symbolizer, damaged, open, recorded_image};
use crate::table::{Binding, NewSymbol, TableBuilder};

/// The file of the recorded kernel, and where the kernel lay.
pub(crate) struct Vmlinux {
    pub path: PathBuf,
    pub build_id: Option<Vec<u8>>,
    /// The place where the kernel lay.
    pub bias: LoadBias,
    /// Its code, as linked.
    segments: Vec<Segment>,
}

impl Vmlinux {
    /// The code's places, with recorded addresses in the place of file offsets.
    pub(crate) fn recorded_segments(&self) -> Vec<Segment> {
        let segments = self.segments.iter();
        segments
            .map(|segment| Segment {
                offset: self.bias.in_memory(FileAddress(segment.address)).0,
                ..*segment
            })
            .collect()
    }
}

impl Symbolizer {
    /// Names from the kernel's file, if there are no others.
    pub(crate) fn or_vmlinux(
        &self,
        request: &ModuleRequest<'_>,
        mut symbols: ModuleSymbols,
    ) -> ModuleSymbols {
        if !symbols.is_empty() {
            return symbols;
        }
        let vmlinux = match self.vmlinux(request) {
            Ok(vmlinux) => vmlinux,
            Err(notes) => {
                symbols.notes.extend(notes);
                return symbols;
            }
        };
        let found = self.vmlinux_symbols(&vmlinux);
        if found.is_empty() {
            symbols.notes.extend(found.notes);
            return symbols;
        }
        found
    }

    fn vmlinux_symbols(&self, vmlinux: &Vmlinux) -> ModuleSymbols {
        // The path is one of this machine already.
        let here = Symbolizer::new(SymbolOptions {
            symfs: None,
            ..self.options.clone()
        });
        let of_file = here.load(&ModuleRequest {
            kind: ModuleKind::File,
            path: &vmlinux.path,
            build_id: vmlinux.build_id.as_deref(),
        });
        let budget = of_file
            .functions()
            .map(|function| function.raw_name.len() + function.file.map_or(0, str::len));
        let mut builder = TableBuilder::new(budget.sum());
        for function in of_file.functions() {
            let mut segments = vmlinux.segments.iter();
            let address = segments.find_map(|segment| segment.address_of(function.start.0));
            let Some(address) = address else { continue };
            let start = vmlinux.bias.in_memory(FileAddress(address)).0;
            builder.push(&NewSymbol {
                start,
                size: function.size,
                limit: start.saturating_add(function.size),
                binding: Binding::Global,
                is_function: true,
                source: 0,
                owner: 0,
                file: function.file.unwrap_or_default().as_bytes(),
                name: function.raw_name.as_bytes(),
            });
        }
        let mut notes = of_file.notes;
        notes.push(Note::DebugFile {
            path: vmlinux.path.clone(),
        });
        ModuleSymbols {
            table: builder.finish(),
            notes,
            demangle: self.options.demangle,
            ..ModuleSymbols::default()
        }
    }

    /// The file of the recorded kernel; else what to tell, which is nothing where nobody asked for a file and none is
    /// there.
    pub(crate) fn vmlinux(&self, request: &ModuleRequest<'_>) -> Result<Vmlinux, Vec<Note>> {
        let options = &self.options;
        let mut notes = Vec::new();
        let recorded = recorded_build(options, request.build_id);
        let path = match &options.vmlinux {
            Some(path) => Some(path.clone()),
            None => recorded
                .as_deref()
                .and_then(|id| find(options, id, &mut notes)),
        };
        let Some(path) = path else { return Err(notes) };
        match place(options, path, recorded.as_deref()) {
            Ok(vmlinux) => Ok(vmlinux),
            Err(note) => {
                notes.push(note);
                Err(notes)
            }
        }
    }
}

/// The build id of the recorded kernel: recorded, or this kernel's if it is the recorded one.
fn recorded_build(options: &SymbolOptions, of_request: Option<&[u8]>) -> Option<Vec<u8>> {
    let recorded = options.recorded_kernel.as_ref();
    let id = recorded.and_then(|kernel| kernel.build_id.as_deref());
    if let Some(id) = id.or(of_request) {
        return Some(id.to_vec());
    }
    let is_this = recorded.is_none_or(|kernel| kernel.release.is_some())
        && kernel::other_kernel(recorded, None).is_none();
    is_this.then(kernel::running_build_id)?
}

/// The kernel's file with this build id, where distributions and the kernel's own build put it.
fn find(options: &SymbolOptions, id: &[u8], notes: &mut Vec<Note>) -> Option<PathBuf> {
    let recorded = options.recorded_kernel.as_ref();
    let release = match recorded.and_then(|kernel| kernel.release.clone()) {
        Some(release) => Some(release),
        None if recorded.is_none() => std::fs::read_to_string("/proc/sys/kernel/osrelease").ok(),
        None => None,
    };
    // A release is a name; what has slashes would lead elsewhere.
    let release = release.filter(|release| !release.contains('/'));
    let mut names = Vec::new();
    if let Some(release) = release.as_deref().map(str::trim) {
        for dir in &options.debug_dirs {
            let dir = dir.strip_prefix("/").unwrap_or(dir);
            names.push(dir.join(format!("boot/vmlinux-{release}")));
            names.push(dir.join(format!("lib/modules/{release}/vmlinux")));
        }
        for name in [
            format!("boot/vmlinux-{release}"),
            format!("lib/modules/{release}/vmlinux"),
            format!("lib/modules/{release}/build/vmlinux"),
        ] {
            names.push(PathBuf::from(name));
        }
    }
    let roots = [options.symfs.as_deref(), Some(Path::new("/"))];
    let beside = roots
        .into_iter()
        .flatten()
        .flat_map(|root| names.iter().map(move |name| root.join(name)))
        .find(|path| {
            // Other builds of the same release lie there as often as not.
            let found = build_id(path).ok().flatten();
            found.is_some_and(|found| same_build(id, &found))
        });
    beside.or_else(|| {
        let wanted = DebugFileRequest {
            path: Path::new("vmlinux"),
            build_id: Some(id),
            link: None,
        };
        debug_file::find(&wanted, options, notes)
    })
}

/// Finds out where the kernel lay.
fn place(options: &SymbolOptions, path: PathBuf, recorded: Option<&[u8]>) -> Result<Vmlinux, Note> {
    let (cache, _) = open(&path)?;
    let image = recorded_image(&cache, &path, recorded)?;
    let reference = options.recorded_kernel.as_ref();
    let reference = reference.and_then(|kernel| kernel.reference_symbol.as_ref());
    // An address of zero means that the recorder wasn't allowed to know it.
    let Some((name, there)) = reference.filter(|(_, address)| address.0 != 0) else {
        return Err(Note::KernelNotPlaced { path });
    };
    let linked = address_of(&image, name.as_bytes()).map_err(|error| damaged(&path, error))?;
    let Some(linked) = linked else {
        return Err(Note::KernelReferenceMissing {
            symbol: name.clone(),
        });
    };
    Ok(Vmlinux {
        build_id: image.build_id().map(<[u8]>::to_vec),
        bias: LoadBias::between(*there, FileAddress(linked)),
        segments: image.code_segments().copied().collect(),
        path,
    })
}

/// The address of the symbol with this name.
fn address_of<'d, R: ReadRef<'d>>(
    image: &Image<'d, R>,
    name: &[u8],
) -> Result<Option<u64>, FileDamage> {
    let Some(table) = image.section_of_kind(elf::SHT_SYMTAB) else {
        return Ok(None);
    };
    let Some(strings) = image.sections.get(table.link as usize) else {
        return Ok(None);
    };
    let (symbols, strings) = (image.bytes(table)?, image.bytes(strings)?);
    let mut wanted = name.to_vec();
    wanted.push(0);
    // Linkers let a name be the end of a longer one, so that it may begin in the middle of another.
    let places: Vec<usize> = memmem::find_iter(strings, &wanted).collect();
    let number = |bytes: &[u8]| {
        let fold = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        match image.endian() {
            Endianness::Big => bytes.iter().fold(0, fold),
            Endianness::Little => bytes.iter().rev().fold(0, fold),
        }
    };
    let (size, value) = if image.is_64() {
        (24, 8..16)
    } else {
        (16, 4..8)
    };
    let found = symbols.chunks_exact(size).find(|entry| {
        let name = number(&entry[..4]) as usize;
        places.binary_search(&name).is_ok()
    });
    Ok(found.map(|entry| number(&entry[value])))
}
