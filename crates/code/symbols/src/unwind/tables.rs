//! The unwind tables of one module.

use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use framehop::ExplicitModuleSectionInfo;
use framehop::Unwinder;
use framehop::aarch64::UnwinderAarch64;
use framehop::x86_64::UnwinderX86_64;
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};
use object::elf;
use object::read::ReadRef;

use super::signals;
use crate::address::{FileAddress, LoadBias, MemoryAddress};
use crate::cause::FileDamage;
use crate::debug_file::{self, DebugFileRequest};
use crate::dwarf_sections::{bytes_of, unpack};
use crate::elf::{Image, Section, Segment};
use crate::note::Note;
use crate::options::{ModuleKind, ModuleRequest};
use crate::symbolizer::{Symbolizer, damaged, open, recorded_image};
use crate::vdso;

/// Addresses above are the kernel's on every machine; sums of what is below can't overflow.
pub(super) const HIGHEST: u64 = 1 << 62;

/// Counts changes to framehop's unwinders, at least as fast as framehop's own counter.
static EDITION: AtomicU64 = AtomicU64::new(0);

/// framehop's unwinder of one module, or of code without tables.
///
/// The unwinder knows the module at the addresses that the file states, wherever processes map it. So one cache of it
/// serves all processes, and a mapping more or less changes nothing for the other modules.
pub(super) struct ModuleUnwinder<U> {
    pub unwinder: U,
    /// Tells it from others in caches; a larger one is younger.
    pub edition: u64,
}

impl<U> ModuleUnwinder<U>
where
    U: Unwinder<Module = framehop::Module<Arc<[u8]>>> + Default,
{
    /// One of code without tables: follows frame pointers.
    pub(super) fn without_tables() -> Self {
        ModuleUnwinder {
            unwinder: U::default(),
            edition: EDITION.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn of(sections: &ExplicitModuleSectionInfo<Arc<[u8]>>) -> Self {
        // The name would only serve debugging.
        let module = framehop::Module::new(
            String::new(),
            0..HIGHEST,
            sections.base_svma,
            sections.clone(),
        );
        let mut unwinder = U::default();
        unwinder.add_module(module);
        ModuleUnwinder {
            unwinder,
            // framehop counts the new unwinder and its module.
            edition: 1 + EDITION.fetch_add(2, Ordering::Relaxed),
        }
    }
}

/// By the module's machine.
pub(super) enum MachineUnwinder {
    X86_64(ModuleUnwinder<UnwinderX86_64<Arc<[u8]>>>),
    Aarch64(ModuleUnwinder<UnwinderAarch64<Arc<[u8]>>>),
}

/// The parts of a module that framehop needs, shared by all its mappings.
#[derive(Default)]
pub(super) struct UnwindTables {
    sections: ExplicitModuleSectionInfo<Arc<[u8]>>,
    /// `None` without tables, or for a machine that is not known.
    unwinder: Option<MachineUnwinder>,
    segments: Vec<Segment>,
    /// Code that signal handlers return to, as addresses in the file.
    trampolines: Vec<Range<u64>>,
    machine: Option<elf::Machine>,
    /// Where execution starts, if it does in this file.
    entry: Option<u64>,
    /// Why there are none, or not all.
    pub note: Option<Note>,
}

impl UnwindTables {
    /// Reads them. What went wrong is in `note`.
    pub(super) fn read(symbolizer: &Symbolizer, request: &ModuleRequest<'_>) -> Self {
        let mut tables = Self::default();
        let result = match request.kind {
            ModuleKind::File => tables.read_file(symbolizer, request),
            ModuleKind::Vdso => tables.read_vdso(symbolizer, request.path),
            ModuleKind::Kernel | ModuleKind::NotAFile => Ok(()),
        };
        tables.note = result.err();
        if tables.has_tables() {
            tables.unwinder = match tables.machine {
                Some(elf::EM_X86_64) => Some(MachineUnwinder::X86_64(ModuleUnwinder::of(
                    &tables.sections,
                ))),
                Some(elf::EM_AARCH64) => Some(MachineUnwinder::Aarch64(ModuleUnwinder::of(
                    &tables.sections,
                ))),
                _ => None,
            };
        }
        tables
    }

    fn read_file(
        &mut self,
        symbolizer: &Symbolizer,
        request: &ModuleRequest<'_>,
    ) -> Result<(), Note> {
        let path = symbolizer.locate(request);
        let (cache, file) = open(&path)?;
        let image = recorded_image(&cache, &path, request.build_id)?;
        self.read_image(&image, &|section| bytes_of(&file, section))
            .map_err(|error| damaged(&path, error))?;
        if self.has_tables() {
            return Ok(());
        }
        // Built without .eh_frame: the debug information may have the same.
        if let Some(frames) = debug_frame(&file, &image).map_err(|error| damaged(&path, error))? {
            self.sections.debug_frame = Some(frames);
            return Ok(());
        }
        let wanted = DebugFileRequest {
            path: &path,
            build_id: image.build_id(),
            link: image.debug_link(),
        };
        let Some(debug) = debug_file::find(&wanted, &symbolizer.options, &mut Vec::new()) else {
            return Ok(());
        };
        let (cache, file) = open(&debug)?;
        let image = Image::parse(&cache).map_err(|error| damaged(&debug, error))?;
        self.sections.debug_frame =
            debug_frame(&file, &image).map_err(|error| damaged(&debug, error))?;
        Ok(())
    }

    fn read_vdso(&mut self, symbolizer: &Symbolizer, path: &Path) -> Result<(), Note> {
        // The vdso belongs to the kernel: another kernel's vdso has other addresses.
        let recorded = symbolizer.options.recorded_kernel.as_ref();
        if let Some(note) = crate::kernel::other_kernel(recorded, None) {
            return Err(note);
        }
        let bytes = vdso::image().map_err(|error| Note::NoFile {
            path: path.to_path_buf(),
            reason: error.into(),
        })?;
        let image = Image::parse(&bytes[..]).map_err(|error| damaged(path, error))?;
        self.read_image(&image, &|section| image.bytes(section).map(<[u8]>::to_vec))
            .map_err(|error| damaged(path, error))
    }

    fn read_image<'d, R: ReadRef<'d>>(
        &mut self,
        image: &Image<'d, R>,
        bytes_of: &dyn Fn(&Section<'_>) -> Result<Vec<u8>, FileDamage>,
    ) -> Result<(), FileDamage> {
        self.segments = image
            .code_segments()
            .filter(|segment| segment.address < HIGHEST && segment.file_size < HIGHEST)
            .copied()
            .collect();
        self.machine = image.is_64().then_some(image.machine);
        self.entry = Some(image.entry).filter(|&entry| entry > 0 && entry < HIGHEST);
        let section = |name: &[u8]| {
            image.section_named(name).filter(|section| {
                section.kind != elf::SHT_NOBITS
                    && section.size > 0
                    && section.address < HIGHEST
                    && section.size < HIGHEST
            })
        };
        let range = |name: &[u8]| -> Option<Range<u64>> {
            section(name).map(|section| section.address..section.address + section.size)
        };
        let bytes = |name: &[u8]| -> Result<Option<Arc<[u8]>>, FileDamage> {
            match section(name) {
                Some(section) => Ok(Some(bytes_of(section)?.into())),
                None => Ok(None),
            }
        };
        self.sections = ExplicitModuleSectionInfo {
            base_svma: image.base().filter(|&base| base < HIGHEST).unwrap_or(0),
            text_svma: range(b".text"),
            got_svma: range(b".got"),
            eh_frame_svma: range(b".eh_frame"),
            eh_frame: bytes(b".eh_frame")?,
            eh_frame_hdr_svma: range(b".eh_frame_hdr"),
            eh_frame_hdr: bytes(b".eh_frame_hdr")?,
            ..ExplicitModuleSectionInfo::default()
        };
        if let Some(frames) = &self.sections.eh_frame {
            self.trampolines = signals::trampolines(frames, &self.bases());
        }
        Ok(())
    }

    /// Whether there is anything to unwind with.
    pub(super) fn has_tables(&self) -> bool {
        // Four bytes are the mark at the end of a table without entries.
        let some = |bytes: &Option<Arc<[u8]>>| bytes.as_ref().is_some_and(|bytes| bytes.len() > 4);
        some(&self.sections.eh_frame) || some(&self.sections.debug_frame)
    }

    /// Whether a file offset lies in the code where execution starts: it has no caller, and in the
    /// dynamic linker no entry in the tables to say so.
    pub(super) fn is_entry(&self, offset: u64) -> bool {
        /// Such code is a few instructions: it calls the first function and never returns.
        const LENGTH: u64 = 64;
        match (self.entry, self.address_of(offset)) {
            (Some(entry), Some(address)) => (entry..entry + LENGTH).contains(&address),
            _ => false,
        }
    }

    /// Whether the tables tell of the code at a file offset.
    pub(super) fn cover(&self, offset: u64) -> bool {
        let sections = &self.sections;
        let (Some(frames), Some(header)) = (&sections.eh_frame, &sections.eh_frame_hdr) else {
            return self.has_tables();
        };
        let bases = self.bases();
        let frames = EhFrame::new(frames, LittleEndian);
        let header = EhFrameHdr::new(header, LittleEndian).parse(&bases, 8);
        let table = header.as_ref().ok().and_then(|header| header.table());
        self.address_of(offset)
            .zip(table)
            .is_some_and(|(address, table)| {
                table
                    .fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset)
                    .is_ok()
            })
    }

    /// Returns the addresses that entries of the tables are relative to.
    fn bases(&self) -> BaseAddresses {
        let sections = &self.sections;
        let start = |range: &Option<Range<u64>>| range.as_ref().map_or(0, |range| range.start);
        BaseAddresses::default()
            .set_eh_frame_hdr(start(&sections.eh_frame_hdr_svma))
            .set_eh_frame(start(&sections.eh_frame_svma))
            .set_text(start(&sections.text_svma))
            .set_got(start(&sections.got_svma))
    }

    /// Returns the code that signal handlers return to, as addresses in the file.
    pub(super) fn trampolines(&self) -> &[Range<u64>] {
        &self.trampolines
    }

    fn address_of(&self, offset: u64) -> Option<u64> {
        self.segments
            .iter()
            .find_map(|segment| segment.address_of(offset))
    }

    /// Returns the unwinder of this module.
    pub(super) fn unwinder(&self) -> Option<&MachineUnwinder> {
        self.unwinder.as_ref()
    }

    /// Returns the load bias of a mapping. `None` when the mapping isn't of code of this file.
    pub(super) fn bias(&self, mapped: &Range<u64>, file_offset: u64) -> Option<LoadBias> {
        // A mapping starts on a page, perhaps before its segment.
        let size = mapped.end.checked_sub(mapped.start)?;
        let last = file_offset.checked_add(size)?;
        let segment = self
            .segments
            .iter()
            .find(|segment| segment.offset < last && file_offset < segment.end())?;
        let start = mapped.start.wrapping_sub(file_offset);
        let start = MemoryAddress(start.wrapping_add(segment.offset));
        Some(LoadBias::between(start, FileAddress(segment.address)))
    }

    /// Heap memory held, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let sections = &self.sections;
        [
            &sections.eh_frame,
            &sections.eh_frame_hdr,
            &sections.debug_frame,
        ]
        .into_iter()
        .flatten()
        .map(|bytes| bytes.len())
        .sum()
    }
}

/// `.debug_frame`, unpacked.
fn debug_frame<'d, R: ReadRef<'d>>(
    file: &File,
    image: &Image<'d, R>,
) -> Result<Option<Arc<[u8]>>, FileDamage> {
    let Some(section) = image.section_named(b".debug_frame") else {
        return Ok(None);
    };
    let bytes = bytes_of(file, section)?;
    let bytes = if section.compressed {
        unpack(&bytes, image)?
    } else {
        bytes
    };
    Ok((!bytes.is_empty()).then(|| bytes.into()))
}
