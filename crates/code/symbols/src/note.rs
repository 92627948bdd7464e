//! Notes for the user about a module's names.

use std::fmt;
use std::path::PathBuf;

use crate::cause::{DebugFileRefusal, DebuginfodCause, FileDamage, IoCause, NoCodeCause};

/// Something worth telling about a module's names; its [`Display`](fmt::Display) is one sentence
/// with a remedy where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Note {
    /// The file is not there (any more), or can't be read.
    NoFile {
        /// Where it was looked for.
        path: PathBuf,
        /// The reason why it can't be read.
        reason: IoCause,
    },
    /// The mapping has no file behind it.
    NotAFile {
        /// The mapping's name.
        name: PathBuf,
    },
    /// The file on disk is not the one that was recorded. No names are taken from it.
    BuildIdMismatch {
        /// The file.
        path: PathBuf,
        /// The build id in the recording.
        recorded: Vec<u8>,
        /// The build id of the file, if it has one.
        found: Option<Vec<u8>>,
    },
    /// The recording has no build id for the file and was made under another kernel: names are taken from the file that
    /// lies there now, which may be another.
    Unverified {
        /// The file.
        path: PathBuf,
        /// The recorded kernel's release.
        recorded: String,
        /// This machine's release.
        running: String,
    },
    /// The file has no `.symtab`, and no debug file was found: only functions that it exports or
    /// imports have names.
    NoSymbols {
        /// The file.
        path: PathBuf,
        /// Its build id, which names its debug file.
        build_id: Option<Vec<u8>>,
        /// The number of symbols that name functions nevertheless, several of one function among them.
        named: usize,
    },
    /// The file is not an ELF file.
    NotElf {
        /// The file.
        path: PathBuf,
    },
    /// The file is an ELF file, but broken; what could be read is used.
    Damaged {
        /// The file.
        path: PathBuf,
        /// The broken part.
        what: FileDamage,
    },
    /// A debug file was used.
    DebugFile {
        /// The debug file.
        path: PathBuf,
    },
    /// A debug file was found, but belongs to another build.
    DebugFileRefused {
        /// The debug file.
        path: PathBuf,
        /// The reason why it was not used.
        why: DebugFileRefusal,
    },
    /// Neither the file nor a debug file tells source lines.
    NoLines {
        /// The file.
        path: PathBuf,
        /// Its build id, which names its debug file.
        build_id: Option<Vec<u8>>,
    },
    /// The module's machine code can't be had.
    NoCode {
        /// The file, or the module's name.
        path: PathBuf,
        /// The reason.
        why: NoCodeCause,
    },
    /// The kernel's file, which has its machine code, was not found.
    NoKernelFile {
        /// The kernel's name in the recording.
        path: PathBuf,
    },
    /// The file that holds what several debug files have in common was not found: some names and
    /// lines are missing.
    NoSupplementaryFile {
        /// The debug file that refers to it.
        path: PathBuf,
        /// The name by which it is referred to.
        wanted: PathBuf,
        /// Its build id.
        build_id: Vec<u8>,
    },
    /// Split debug files (`.dwo`) were not found: inline frames and names of some functions are
    /// missing.
    NoSplitFiles {
        /// The file that refers to them.
        path: PathBuf,
        /// The number of files that were wanted so far and not found.
        missing: usize,
    },
    /// A debuginfod server could not be asked, or failed; it isn't asked again.
    Debuginfod {
        /// The server.
        server: String,
        /// The cause.
        why: DebuginfodCause,
    },
    /// A process made code while it ran and left no list of it.
    NoJitMap {
        /// Where the list would be.
        path: PathBuf,
    },
    /// The list of a process's code may be anybody's.
    JitMapRefused {
        /// The list.
        path: PathBuf,
        /// The number of the user to whom it belongs.
        owner: u32,
    },
    /// The kernel hides its addresses from this user.
    KernelRestricted {
        /// The file that should have told them.
        path: PathBuf,
    },
    /// The recording comes from another kernel release.
    KernelReleaseDiffers {
        /// The recorded release.
        recorded: String,
        /// This machine's release.
        running: String,
    },
    /// The recording comes from another build of the kernel.
    KernelBuildIdDiffers {
        /// The recorded build id.
        recorded: Vec<u8>,
        /// This machine's.
        running: Vec<u8>,
    },
    /// The recorded reference symbol is unknown here, so the kernel's base can't be found.
    KernelReferenceMissing {
        /// The symbol.
        symbol: String,
    },
    /// The kernel's file is there, but the recording does not tell where the kernel lay.
    KernelNotPlaced {
        /// The file.
        path: PathBuf,
    },
    /// The kernel was loaded at another address than when recorded: names were shifted, and those
    /// of kernel modules left out, because modules move on their own.
    KernelMoved {
        /// The distance: running address minus recorded address.
        by: i64,
    },
}

impl Note {
    /// Whether the note tells of missing names (rather than where names came from).
    #[must_use]
    pub fn is_problem(&self) -> bool {
        !matches!(
            self,
            Self::DebugFile { .. } | Self::NotAFile { .. } | Self::Unverified { .. }
        )
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFile { path, reason } => write!(
                f,
                "{}: {reason}; no names. Put the recorded file back, or give a copy of the recorded machine's files",
                path.display()
            ),
            Self::NotAFile { name } => {
                write!(
                    f,
                    "{}: memory without a file has no symbols",
                    name.display()
                )
            }
            Self::BuildIdMismatch {
                path,
                recorded,
                found,
            } => {
                write!(f, "{}: the file has ", path.display())?;
                match found {
                    Some(id) => write!(f, "build id {}", Hex(id))?,
                    None => write!(f, "no build id")?,
                }
                write!(
                    f,
                    ", the recording has {}: it is another build, so its names are not used. Give the recorded file, or record again",
                    Hex(recorded)
                )
            }
            Self::Unverified {
                path,
                recorded,
                running,
            } => write!(
                f,
                "{}: recorded on kernel {recorded} without a build id, this is {running}; if it is another file here, its names are wrong. Give a copy of the recorded machine's files",
                path.display()
            ),
            Self::NoSymbols {
                path,
                build_id,
                named,
            } => {
                write!(
                    f,
                    "{}: stripped; only {named} symbols name functions. Install its debug package",
                    path.display()
                )?;
                match build_id {
                    Some(id) => write!(f, " (build id {})", Hex(id)),
                    None => Ok(()),
                }
            }
            Self::NoJitMap { path } => write!(
                f,
                "{}: there is none, so code made at run time has no names. Record the program so that it writes one (node --perf-basic-prof, python3 -X perf)",
                path.display()
            ),
            Self::JitMapRefused { path, owner } => write!(
                f,
                "{}: not used, since it belongs to user {owner}, neither to you nor to root. If you trust it, make it yours (chown)",
                path.display()
            ),
            Self::NotElf { path } => {
                write!(
                    f,
                    "{}: not an ELF file, so it has no symbols",
                    path.display()
                )
            }
            Self::Damaged { path, what } => write!(
                f,
                "{}: damaged ({what}); names may be missing. Replace the file by an intact copy",
                path.display()
            ),
            Self::DebugFile { path } => write!(f, "names from the debug file {}", path.display()),
            Self::DebugFileRefused { path, why } => write!(
                f,
                "{}: debug file not used ({why}). Install the debug package of the same build",
                path.display()
            ),
            Self::NoLines { path, build_id } => {
                let remedy = if path.as_os_str().as_encoded_bytes().starts_with(b"[kernel") {
                    "Give the kernel's vmlinux, or install its debug package"
                } else {
                    "Build it with -g, or install its debug package"
                };
                write!(f, "{}: no source lines. {remedy}", path.display())?;
                match build_id {
                    Some(id) => write!(f, " (build id {})", Hex(id)),
                    None => Ok(()),
                }
            }
            Self::NoCode { path, why } => write!(f, "{}: {why}", path.display()),
            Self::NoKernelFile { path } => write!(
                f,
                "{}: the kernel's file was not found. Give its vmlinux, or install its debug package",
                path.display()
            ),
            Self::NoSupplementaryFile {
                path,
                wanted,
                build_id,
            } => write!(
                f,
                "{}: it refers to {} (build id {}), which is not there; some names and lines are missing. Install the debug package whole",
                path.display(),
                wanted.display(),
                Hex(build_id)
            ),
            Self::NoSplitFiles { path, missing } => write!(
                f,
                "{}: {missing} of its .dwo files are not there; inline frames and function names are missing. Put them back, or a .dwp file (made by dwp) beside the program",
                path.display()
            ),
            Self::Debuginfod { server, why } => write!(
                f,
                "debuginfod server {server}: {why}; not asked again. Correct its address, or install the debug packages"
            ),
            Self::KernelRestricted { path } => write!(
                f,
                "{}: the kernel hides its addresses; no kernel names. Run as root, or set kernel.kptr_restrict=0 and kernel.perf_event_paranoid=1 with sysctl (either hides them)",
                path.display()
            ),
            Self::KernelReleaseDiffers { recorded, running } => write!(
                f,
                "recorded on kernel {recorded}, this is {running}; no kernel names. Analyse it on the recorded machine, or give a copy of its /proc/kallsyms"
            ),
            Self::KernelBuildIdDiffers { recorded, running } => write!(
                f,
                "recorded on the kernel with build id {}, this one has {}; no kernel names. Analyse it on the recorded machine, or give a copy of its /proc/kallsyms",
                Hex(recorded),
                Hex(running)
            ),
            Self::KernelReferenceMissing { symbol } => write!(
                f,
                "the recording places the kernel by its symbol {symbol}, which is unknown here; no kernel names. Give a copy of the recorded machine's /proc/kallsyms"
            ),
            Self::KernelNotPlaced { path } => write!(
                f,
                "{}: not used, since the recording does not tell where the kernel lay in memory. Record as root, or with kernel.kptr_restrict=0",
                path.display()
            ),
            Self::KernelMoved { by } => write!(
                f,
                "the kernel lies {:#x} bytes {} than in the recording; its names were shifted, those of its modules left out. Give a copy of the recorded machine's /proc/kallsyms",
                by.unsigned_abs(),
                if *by < 0 { "lower" } else { "higher" }
            ),
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_the_thing_and_a_remedy() {
        let note = Note::BuildIdMismatch {
            path: "/bin/x".into(),
            recorded: vec![0xab, 1],
            found: Some(vec![2]),
        };
        let text = note.to_string();
        for part in ["/bin/x", "ab01", "02", "recorded file"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(note.is_problem());
        let refused = Note::DebugFileRefused {
            path: "/lib/x.debug".into(),
            why: DebugFileRefusal::OtherChecksum {
                found: 1,
                wanted: 0xab,
            },
        };
        let text = refused.to_string();
        for part in ["/lib/x.debug", "is 00000001, not 000000ab", "debug package"] {
            assert!(text.contains(part), "{text}");
        }
        let moved = Note::KernelMoved { by: -0x1000 }.to_string();
        assert!(moved.contains("0x1000 bytes lower"), "{moved}");
    }
}
