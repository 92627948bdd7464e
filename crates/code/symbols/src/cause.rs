//! The causes that notes give: why a file was not read, not used, or not read whole.

use std::fmt;
use std::io;

use crate::note::Hex;

/// The reason why the system did not read or write something.
///
/// [`io::Error`] can be neither cloned nor compared, which [`Note`](crate::Note) can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoCause {
    kind: io::ErrorKind,
    text: Box<str>,
}

impl IoCause {
    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.kind
    }
}

impl From<io::Error> for IoCause {
    fn from(error: io::Error) -> Self {
        Self {
            kind: error.kind(),
            text: error.to_string().into(),
        }
    }
}

impl fmt::Display for IoCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for IoCause {}

/// The broken part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileDamage {
    /// The file, or the one packed into it, does not begin as an ELF file does.
    #[error("not an ELF file")]
    NotElf,
    /// The ELF header names neither the 32-bit nor the 64-bit class.
    #[error("its class is neither 32 nor 64 bits")]
    Class,
    /// A header of the ELF file makes no sense.
    #[error("its ELF header, program headers or section headers point outside the file")]
    Headers,
    /// The section headers are missing, as in a file that was cut short.
    #[error("its section headers lie outside the file")]
    SectionHeaders,
    /// A part of the ELF file is not there.
    #[error("{0} outside the file")]
    Outside(FilePart),
    /// No section holds the names of a symbol table.
    #[error("a symbol table has no string table")]
    NoStringTable,
    /// Symbols have more bytes of names than their string table can hold without overlaps.
    #[error("its symbols' names overlap more than any linker makes them")]
    OverlappingNames,
    /// The system could not read a debug section.
    #[error("a debug section can't be read")]
    UnreadSection,
    /// The system could not map a debug section.
    #[error("a debug section can't be mapped")]
    UnmappedSection,
    /// A debug section is not packed as its header says.
    #[error("a compressed debug section {0}")]
    DebugSection(PackedDamage),
    /// `.gnu_debugdata` is not packed with xz, or holds no symbols.
    #[error(".gnu_debugdata {0}")]
    MiniDebugInfo(PackedDamage),
    /// The file does not begin as a jitdump file does.
    #[error("it doesn't start as a jitdump file")]
    NotJitDump,
    /// A jitdump file of another version.
    #[error("jitdump version {version} with a header of {header} bytes is unknown")]
    JitDumpVersion {
        /// The version in the header; this crate knows 1.
        version: u32,
        /// The length of the header, in bytes.
        header: u64,
    },
    /// A record of a jitdump file is shorter than its own header.
    #[error("the record at byte {at} has {size} bytes")]
    JitRecordSize {
        /// Where the record begins in the file.
        at: u64,
        /// Its length, in bytes.
        size: u64,
    },
    /// A jitdump file ends before its last record does.
    #[error("it ends inside the record at byte {at}")]
    JitDumpEnd {
        /// Where the record begins in the file.
        at: u64,
    },
    /// The times of a jitdump file are not those of a recording.
    #[error("its times are of the CPU's counter, so code that was replaced can't be told apart")]
    JitDumpTimes,
    /// Lines of a perf map are no functions.
    #[error("{count} lines are not START SIZE NAME")]
    JitMapLines {
        /// The number of such lines.
        count: usize,
    },
}

impl From<object::read::Error> for FileDamage {
    fn from(error: object::read::Error) -> Self {
        // The message is all the crate gives, and it is static only inside the crate.
        let _ = error;
        Self::Headers
    }
}

/// A part of an ELF file that its headers refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilePart {
    /// Any section.
    Section,
    /// A section with symbols.
    SymbolTable,
    /// A section with relocations.
    Relocations,
    /// A section with debug information.
    DebugSection,
}

impl fmt::Display for FilePart {
    /// Writes the part and its verb.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Section => "a section lies",
            Self::SymbolTable => "a symbol table lies",
            Self::Relocations => "relocations lie",
            Self::DebugSection => "a debug section lies",
        })
    }
}

/// The reason why packed bytes can't be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PackedDamage {
    /// The bytes are too few for a header.
    NoHeader,
    /// The header names a method that this crate does not know.
    Method,
    /// The data unpack to far more than real data of their kind.
    Expansion,
    /// The data are not of the method that the header names.
    Data,
}

impl fmt::Display for PackedDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoHeader => "has no header",
            Self::Method => "uses a method that is neither zlib nor zstd",
            Self::Expansion => "unpacks to far more than real ones do",
            Self::Data => "can't be unpacked",
        })
    }
}

/// The reason why a debug file was not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DebugFileRefusal {
    /// The file is broken.
    #[error(transparent)]
    Damaged(#[from] FileDamage),
    /// The file could not be read to its end.
    #[error(transparent)]
    Unreadable(#[from] IoCause),
    /// The file has another build id than the program.
    #[error("its build id is {}, not {}", Hex(.found), Hex(.wanted))]
    OtherBuild {
        /// The debug file's build id.
        found: Vec<u8>,
        /// The program's build id.
        wanted: Vec<u8>,
    },
    /// The file has no build id, and the program has one.
    #[error("it has no build id, and {} is wanted", Hex(.wanted))]
    NoBuildId {
        /// The program's build id.
        wanted: Vec<u8>,
    },
    /// The file has another checksum than the program's `.gnu_debuglink` asks for.
    #[error("its checksum is {found:08x}, not {wanted:08x}")]
    OtherChecksum {
        /// The CRC-32 of the debug file.
        found: u32,
        /// The CRC-32 in `.gnu_debuglink`.
        wanted: u32,
    },
    /// Neither a build id nor a checksum connects the file with the program.
    #[error("nothing shows that it belongs to the file")]
    Unproven,
}

/// The reason why a module has no machine code to decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCodeCause {
    /// The module is a loadable module of the kernel.
    #[error("code of loadable kernel modules is not read")]
    KernelModule,
    /// The file is a separate debug file.
    #[error("it has debug information only, no code. Give the file that it was taken from")]
    DebugFile,
    /// The code is for a processor whose instructions are not decoded.
    #[error("its instructions are neither x86's nor 64-bit Arm's")]
    Machine,
}

/// The reason why a debuginfod server gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DebuginfodCause {
    /// The server's address can't be asked.
    #[error("its address is not http(s)://HOST[:PORT][/PATH]")]
    Address,
    /// The server answered with a failure of its own.
    #[error("it answered with status {0}")]
    Status(u16),
    /// The debug file is larger than any that is fetched.
    #[error("its file is larger than {} GiB", limit >> 30)]
    TooLarge {
        /// The size of the largest file that is fetched, in bytes.
        limit: u64,
    },
    /// The answer ended before the file did.
    #[error("its answer was cut short")]
    CutShort,
    /// The connection failed, or the file could not be kept.
    #[error(transparent)]
    Io(#[from] IoCause),
    /// This program was built without an HTTP client.
    #[error("this program was built without dioptra-symbols's feature `debuginfod`")]
    NotBuilt,
}

impl From<io::Error> for DebuginfodCause {
    fn from(error: io::Error) -> Self {
        Self::Io(error.into())
    }
}
