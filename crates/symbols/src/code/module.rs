//! The machine code of a module on disk.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;

use super::function::{CodeError, FunctionCode, MOST_BYTES};
use super::space::{CodeMachine, CodeSpace};
use crate::elf::{Image, Segment};
use crate::kernel;
use crate::note::Note;
use crate::options::{ModuleKind, ModuleRequest};
use crate::symbolizer::{Symbolizer, open, recorded_image};
use crate::vdso;

/// The machine code of one module, read where it is asked for.
#[derive(Debug, Default)]
pub struct ModuleCode {
    source: Source,
    machine: Option<CodeMachine>,
    segments: Vec<Segment>,
    notes: Vec<Note>,
}

#[derive(Debug, Default)]
enum Source {
    #[default]
    None,
    File(File),
    Memory(Vec<u8>),
}

impl Symbolizer {
    /// Opens a module's machine code. Never fails: what went wrong is in [`ModuleCode::notes`].
    ///
    /// Only the headers are read now. A kernel's code is not looked for.
    #[must_use]
    pub fn code(&self, request: &ModuleRequest<'_>) -> ModuleCode {
        let mut code = ModuleCode::default();
        if let Err(note) = self.open_code(request, &mut code) {
            code.notes.push(note);
        }
        code
    }

    fn open_code(&self, request: &ModuleRequest<'_>, code: &mut ModuleCode) -> Result<(), Note> {
        match request.kind {
            ModuleKind::File => {
                let path = self.locate(request);
                let (cache, file) = open(&path)?;
                code.read_headers(&recorded_image(&cache, &path, request.build_id)?);
                code.source = Source::File(file);
                code.say_unless_known(&path);
                Ok(())
            }
            ModuleKind::Vdso => {
                // It belongs to the kernel: another kernel's vdso has other code.
                let recorded = self.options.recorded_kernel.as_ref();
                if let Some(note) = kernel::other_kernel(recorded, None) {
                    return Err(note);
                }
                let bytes = vdso::image().map_err(|error| Note::NoFile {
                    path: request.path.to_path_buf(),
                    reason: error.to_string(),
                })?;
                code.read_headers(&recorded_image(&bytes[..], request.path, request.build_id)?);
                code.source = Source::Memory(bytes);
                code.say_unless_known(request.path);
                Ok(())
            }
            ModuleKind::Kernel => Err(Note::NoFile {
                path: request.path.to_path_buf(),
                reason: "the kernel's code is not read".into(),
            }),
            ModuleKind::NotAFile => Err(Note::NotAFile {
                name: request.path.to_path_buf(),
            }),
        }
    }
}

impl ModuleCode {
    fn read_headers<'d, R: ReadRef<'d>>(&mut self, image: &Image<'d, R>) {
        self.machine = match image.machine {
            // The x32 ABI has 64-bit code in 32-bit files.
            elf::EM_X86_64 => Some(CodeMachine::X86_64),
            elf::EM_386 => Some(CodeMachine::I386),
            elf::EM_AARCH64 if image.endian() == Endianness::Little => Some(CodeMachine::Aarch64),
            _ => None,
        };
        let loaded = |segment: &&Segment| segment.kind == elf::PT_LOAD;
        self.segments = image.segments.iter().filter(loaded).copied().collect();
    }

    fn say_unless_known(&mut self, path: &std::path::Path) {
        if self.machine.is_none() {
            self.notes.push(Note::Damaged {
                path: path.to_path_buf(),
                what: "its instructions are neither x86's nor 64-bit Arm's".into(),
            });
        }
    }

    /// Whether there is nothing to decode; then [`notes`](Self::notes) say why.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.machine.is_none()
    }

    /// The instruction set.
    #[must_use]
    pub fn machine(&self) -> Option<CodeMachine> {
        self.machine
    }

    /// What is worth telling: why there is no code.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The virtual address (`objdump`'s) of a relative one.
    #[must_use]
    pub fn virtual_address(&self, address: u64) -> Option<u64> {
        self.code_segments()
            .find_map(|segment| segment.address_of(address))
    }

    /// Decodes a range of relative addresses: a function's, as
    /// [`ModuleSymbols::function`](crate::ModuleSymbols::function) or
    /// [`extent`](crate::ModuleSymbols::extent) tells it.
    ///
    /// # Errors
    /// If there is no code, the range lies outside it or is longer than 4 MiB, or reading fails.
    pub fn function(&self, addresses: Range<u64>) -> Result<FunctionCode, CodeError> {
        let machine = self.machine.ok_or(CodeError::NoCode)?;
        let length = addresses.end.saturating_sub(addresses.start);
        if length > MOST_BYTES {
            return Err(CodeError::TooLong(addresses));
        }
        let placed = self
            .code_segments()
            .find(|segment| segment.address_of(addresses.start).is_some());
        let Some((segment, virtual_address)) =
            placed.and_then(|segment| Some((segment, segment.address_of(addresses.start)?)))
        else {
            return Err(CodeError::NotCode(addresses));
        };
        if addresses.end > segment.end() {
            return Err(CodeError::NotCode(addresses));
        }
        let mut bytes = vec![0; length as usize];
        self.read_file(addresses.start, &mut bytes)
            .map_err(|error| CodeError::Unreadable {
                at: addresses.start,
                why: error.to_string(),
            })?;
        FunctionCode::decode(machine, bytes, addresses.start, virtual_address, self)
    }

    fn code_segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.executable)
    }

    fn read_file(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let ends = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
        match &self.source {
            Source::None => Err(ends()),
            Source::File(file) => file.read_exact_at(into, offset),
            Source::Memory(bytes) => {
                let from = usize::try_from(offset).map_err(|_| ends())?;
                let found = bytes.get(from..).and_then(|tail| tail.get(..into.len()));
                into.copy_from_slice(found.ok_or_else(ends)?);
                Ok(())
            }
        }
    }
}

impl CodeSpace for ModuleCode {
    fn relative(&self, virtual_address: u64) -> Option<u64> {
        self.code_segments()
            .find_map(|segment| segment.offset_of(virtual_address))
    }

    fn read(&self, virtual_address: u64, into: &mut [u8]) -> bool {
        let Some(last) = (into.len() as u64)
            .checked_sub(1)
            .and_then(|more| virtual_address.checked_add(more))
        else {
            return into.is_empty();
        };
        let placed = self.segments.iter().find_map(|segment| {
            segment.offset_of(last)?;
            segment.offset_of(virtual_address)
        });
        placed.is_some_and(|offset| self.read_file(offset, into).is_ok())
    }
}
