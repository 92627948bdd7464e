//! The machine code of a module on disk.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;

use crate::address::{FileAddress, RelativeAddress};
use crate::cause::{IoCause, NoCodeCause};
use crate::elf::{Image, Segment};
use crate::kernel;
use crate::note::Note;
use crate::options::{ModuleKind, ModuleRequest};
use crate::symbolizer::{Symbolizer, open, recorded_image};
use crate::vdso;

/// An instruction set that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeMachine {
    /// x86-64.
    X86_64,
    /// The 32-bit x86.
    I386,
    /// 64-bit Arm, little-endian instructions as always.
    Aarch64,
}

impl CodeMachine {
    /// Returns the size of an absolute address in bytes.
    #[must_use]
    pub fn address_size(self) -> usize {
        match self {
            Self::I386 => 4,
            Self::X86_64 | Self::Aarch64 => 8,
        }
    }
}

/// An error of reading code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// The module's code could not be opened; its notes say why.
    #[error("the module's code can't be read here; see the module's notes")]
    NoCode,
    /// The range isn't in the part of the file that is loaded as code.
    #[error("{:#x}..{:#x} is no code of the module", .0.start, .0.end)]
    NotCode(Range<RelativeAddress>),
    /// The range is longer than functions are.
    #[error(
        "{:#x}..{:#x} is more than {} MiB, too long for a function; ask for a part of it",
        .0.start, .0.end, ModuleCode::MOST_BYTES >> 20
    )]
    TooLong(Range<RelativeAddress>),
    /// The file ends, or reading failed, before the range's end.
    #[error("reading code at {at:#x}: {why}")]
    Unreadable {
        /// The place where reading began.
        at: RelativeAddress,
        /// The reason.
        why: IoCause,
    },
}

/// The bytes of a range of code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CodeBytes {
    /// The instruction set.
    pub machine: CodeMachine,
    /// The address of the first byte in the file.
    pub virtual_address: FileAddress,
    /// The code.
    pub bytes: Vec<u8>,
}

/// The machine code of one module, read where it is asked for.
#[derive(Debug, Default)]
pub struct ModuleCode {
    source: Source,
    machine: Option<CodeMachine>,
    parts: Vec<Part>,
    kernel_file: Option<PathBuf>,
    notes: Vec<Note>,
}

/// A part of the file that is loaded as one piece.
#[derive(Debug)]
struct Part {
    /// As linked, with the first relative address in the place of the file offset.
    segment: Segment,
    /// Where it begins in the file.
    file_offset: u64,
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
    /// Only the headers are read now. The kernel has code where its `vmlinux` is found and the recording tells where
    /// the kernel lay; loadable modules of it have none.
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
                code.read_headers(&recorded_image(&cache, &path, request.build_id)?, &path)?;
                code.source = Source::File(file);
                Ok(())
            }
            ModuleKind::Vdso => {
                // The vdso belongs to the kernel: another kernel's vdso has other code.
                let recorded = self.options.recorded_kernel.as_ref();
                if let Some(note) = kernel::other_kernel(recorded, None) {
                    return Err(note);
                }
                let bytes = vdso::image().map_err(|error| Note::NoFile {
                    path: request.path.to_path_buf(),
                    reason: error.into(),
                })?;
                let image = recorded_image(&bytes[..], request.path, request.build_id)?;
                code.read_headers(&image, request.path)?;
                code.source = Source::Memory(bytes);
                Ok(())
            }
            ModuleKind::Kernel => self.open_kernel_code(request, code),
            ModuleKind::NotAFile => Err(Note::NotAFile {
                name: request.path.to_path_buf(),
            }),
        }
    }
}

impl Symbolizer {
    fn open_kernel_code(
        &self,
        request: &ModuleRequest<'_>,
        code: &mut ModuleCode,
    ) -> Result<(), Note> {
        let none = |why| Note::NoCode {
            path: request.path.to_path_buf(),
            why,
        };
        if !is_kernel_itself(request.path) {
            return Err(none(NoCodeCause::KernelModule));
        }
        let vmlinux = match self.vmlinux(request) {
            Ok(vmlinux) => vmlinux,
            Err(notes) => {
                // Where a file was refused, that is the reason.
                let was_found = notes.iter().any(Note::is_problem);
                code.notes.extend(notes);
                if was_found {
                    return Ok(());
                }
                return Err(Note::NoKernelFile {
                    path: request.path.to_path_buf(),
                });
            }
        };
        let (cache, file) = open(&vmlinux.path)?;
        let image = recorded_image(&cache, &vmlinux.path, vmlinux.build_id.as_deref())?;
        code.read_headers(&image, &vmlinux.path)?;
        for part in &mut code.parts {
            part.segment.offset = vmlinux.bias.in_memory(FileAddress(part.segment.address)).0;
        }
        code.source = Source::File(file);
        code.kernel_file = Some(vmlinux.path);
        Ok(())
    }
}

/// Whether a kernel module's name stands for the kernel's own code (`[kernel.kallsyms]`), not for a loadable module.
fn is_kernel_itself(name: &Path) -> bool {
    let name = name.as_os_str().as_encoded_bytes();
    name.starts_with(b"[kernel") || name.starts_with(b"[guest.kernel")
}

impl ModuleCode {
    /// Takes the machine and the places of an image's code.
    ///
    /// # Errors
    /// Reads the headers, and notes if the image has no code that can be decoded.
    fn read_headers<'d, R: ReadRef<'d>>(
        &mut self,
        image: &Image<'d, R>,
        path: &Path,
    ) -> Result<(), Note> {
        // A debug file has the headers of the program, and nothing where its code was.
        let has = |kind| {
            let mut sections = image.sections.iter();
            sections.any(|section| section.executable && section.kind == kind)
        };
        if has(elf::SHT_NOBITS) && !has(elf::SHT_PROGBITS) {
            return Err(Note::NoCode {
                path: path.to_path_buf(),
                why: NoCodeCause::DebugFile,
            });
        }
        self.machine = match image.machine {
            // The x32 ABI has 64-bit code in 32-bit files.
            elf::EM_X86_64 => Some(CodeMachine::X86_64),
            elf::EM_386 => Some(CodeMachine::I386),
            elf::EM_AARCH64 if image.endian() == Endianness::Little => Some(CodeMachine::Aarch64),
            _ => None,
        };
        if self.machine.is_none() {
            return Err(Note::NoCode {
                path: path.to_path_buf(),
                why: NoCodeCause::Machine,
            });
        }
        let loaded = |segment: &&Segment| segment.kind == elf::PT_LOAD;
        let parts = image.segments.iter().filter(loaded).map(|segment| Part {
            segment: *segment,
            file_offset: segment.offset,
        });
        self.parts = parts.collect();
        Ok(())
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

    /// Returns notes: the reasons why there is no code.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// For the kernel: the file its code comes from. What runs differs from it where the kernel patches itself:
    /// for the processor at hand, for static keys, and for tracing.
    #[must_use]
    pub fn kernel_file(&self) -> Option<&Path> {
        self.kernel_file.as_deref()
    }

    /// Returns the address in the file of a relative one; `None` if no code of the module lies there.
    #[must_use]
    pub fn virtual_address(&self, address: RelativeAddress) -> Option<FileAddress> {
        self.code_segments()
            .find_map(|segment| segment.address_of(address.0))
            .map(FileAddress)
    }

    /// Longest range that [`bytes`](Self::bytes) reads. Longer code is not one function, but a section that nobody
    /// divided into functions.
    pub const MOST_BYTES: u64 = 4 << 20;

    /// Reads the code at a range of relative addresses.
    ///
    /// # Errors
    /// If there is no code, the range lies outside it or is longer than [`MOST_BYTES`](Self::MOST_BYTES), or reading
    /// fails.
    pub fn bytes(&self, addresses: Range<RelativeAddress>) -> Result<CodeBytes, CodeError> {
        let machine = self.machine.ok_or(CodeError::NoCode)?;
        let length = addresses.end.checked_sub(addresses.start).unwrap_or(0);
        if length > Self::MOST_BYTES {
            return Err(CodeError::TooLong(addresses));
        }
        let mut segments = self.code_segments();
        let placed = segments.find_map(|segment| {
            let virtual_address = segment.address_of(addresses.start.0)?;
            (addresses.end.0 <= segment.end()).then_some(FileAddress(virtual_address))
        });
        let Some(virtual_address) = placed else {
            return Err(CodeError::NotCode(addresses));
        };
        let mut bytes = vec![0; length as usize];
        self.read_loaded(addresses.start.0, &mut bytes)
            .map_err(|error| CodeError::Unreadable {
                at: addresses.start,
                why: error.into(),
            })?;
        Ok(CodeBytes {
            machine,
            virtual_address,
            bytes,
        })
    }

    /// Returns the relative address of an address in the file; `None` if no code of the module lies there.
    #[must_use]
    pub fn relative(&self, virtual_address: FileAddress) -> Option<RelativeAddress> {
        self.code_segments()
            .find_map(|segment| segment.offset_of(virtual_address.0))
            .map(RelativeAddress)
    }

    /// Fills `into` with the bytes from an address in the file on; returns false if the module does not hold all of them.
    #[must_use]
    pub fn read(&self, virtual_address: FileAddress, into: &mut [u8]) -> bool {
        let virtual_address = virtual_address.0;
        let Some(last) = (into.len() as u64)
            .checked_sub(1)
            .and_then(|more| virtual_address.checked_add(more))
        else {
            return into.is_empty();
        };
        let placed = self.parts.iter().find_map(|part| {
            part.segment.offset_of(last)?;
            let inside = virtual_address.checked_sub(part.segment.address)?;
            part.file_offset.checked_add(inside)
        });
        placed.is_some_and(|offset| self.read_file(offset, into).is_ok())
    }

    fn code_segments(&self) -> impl Iterator<Item = &Segment> {
        let segments = self.parts.iter().map(|part| &part.segment);
        segments.filter(|segment| segment.executable)
    }

    /// Reads from a relative address on.
    fn read_loaded(&self, address: u64, into: &mut [u8]) -> std::io::Result<()> {
        let holds = |part: &&Part| part.segment.address_of(address).is_some();
        let part = self.parts.iter().find(holds);
        let offset = part.and_then(|part| {
            let inside = address.checked_sub(part.segment.offset)?;
            part.file_offset.checked_add(inside)
        });
        self.read_file(offset.unwrap_or(u64::MAX), into)
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
