//! The reasons why the runtime was not loaded into a program.

use crate::analysis::partial_file::Glance;
use object::elf::{ELFCLASS32, ELFMAG, EM_AARCH64, EM_X86_64, FileHeader64, Machine, PT_INTERP};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use object::{Endianness, Object, ReadRef};
use rustix::fs::getxattr_query;
use rustix::process::{getegid, geteuid};
use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The reason why a program is not traced, as far as its file shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UntracedReason {
    /// The file shows no reason.
    Unknown,
    /// The program runs as another user or group.
    SetUser,
    /// The file gives the program capabilities.
    Capabilities,
    /// The program is a 32-bit one.
    Narrow,
    /// The program is for another processor.
    OtherProcessor,
    /// The program is for another C library.
    Musl,
    /// The program is a Go program that is linked statically.
    StaticGo,
    /// The program is linked statically.
    Static,
}

impl fmt::Display for UntracedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UntracedReason::Unknown => {
                "it ended at once, is for another C library, or starts with an environment of its own"
            }
            UntracedReason::SetUser => {
                "it runs as another user or group (set-uid), for whom nothing is preloaded; run a copy without that bit"
            }
            UntracedReason::Capabilities => {
                "its file gives it capabilities, and nothing is preloaded into such programs; run a copy without them"
            }
            UntracedReason::Narrow => "it is a 32-bit program; build it for 64 bits",
            UntracedReason::OtherProcessor if cfg!(target_arch = "aarch64") => {
                "it is for another processor; build it for 64-bit Arm"
            }
            UntracedReason::OtherProcessor => "it is for another processor; build it for x86-64",
            UntracedReason::Musl => "it is for another C library (musl); build it for glibc",
            UntracedReason::StaticGo => "it is a Go program that is linked statically",
            UntracedReason::Static => "it is linked statically; link it dynamically",
        })
    }
}

/// Returns whether a program's dynamic linker complains about the runtime, or does not start the program with it.
pub fn is_disturbed(program: &OsStr) -> bool {
    matches!(why(program), UntracedReason::Narrow | UntracedReason::Musl)
}

/// The largest number of interpreters that are looked at: scripts may be interpreted by scripts.
const MOST_INTERPRETERS: u32 = 4;

/// The processor that this crate is built for.
const MACHINE: Machine = if cfg!(target_arch = "aarch64") {
    EM_AARCH64
} else {
    EM_X86_64
};

/// Returns the reason why a program is not traced, as far as its file shows it.
pub fn why(program: &OsStr) -> UntracedReason {
    let reason = find(program).and_then(|path| reason(&path, 0));
    reason.unwrap_or(UntracedReason::Unknown)
}

fn reason(path: &Path, depth: u32) -> Option<UntracedReason> {
    let file = File::open(path).ok();
    let metadata = std::fs::metadata(path).ok()?;
    let (user, group) = (geteuid(), getegid());
    let mode = metadata.mode();
    let changes_user = mode & libc::S_ISUID != 0 && metadata.uid() != user.as_raw();
    let changes_group = mode & libc::S_ISGID != 0 && metadata.gid() != group.as_raw();
    if changes_user || changes_group {
        return Some(UntracedReason::SetUser);
    }
    if !user.is_root() && has_capabilities(path) {
        return Some(UntracedReason::Capabilities);
    }
    let file = file?;
    let mut start = [0; 256];
    let size = file.read_at(&mut start, 0).ok()?;
    let start = start.get(..size)?;
    if let Some(line) = start.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next()?;
        let mut words = line.split(|byte| *byte == b' ' || *byte == b'\t');
        let interpreter = Path::new(OsStr::from_bytes(words.find(|word| !word.is_empty())?));
        return (depth < MOST_INTERPRETERS)
            .then(|| reason(interpreter, depth + 1))
            .flatten();
    }
    if is_narrow(start) {
        return Some(UntracedReason::Narrow);
    }
    let glance = Glance::new(&file).ok()?;
    let elf = ElfFile::<FileHeader64<Endianness>, _>::parse(&glance).ok()?;
    let endian = elf.endian();
    if elf.elf_header().e_machine(endian) != MACHINE {
        return Some(UntracedReason::OtherProcessor);
    }
    let mut headers = elf.elf_program_headers().iter();
    let Some(interpreter) = headers.find(|header| header.p_type(endian) == PT_INTERP) else {
        let is_go = elf.section_by_name(".go.buildinfo").is_some();
        return Some(match is_go {
            true => UntracedReason::StaticGo,
            false => UntracedReason::Static,
        });
    };
    let (offset, size) = interpreter.file_range(endian);
    let interpreter = (&glance).read_bytes_at(offset, size.min(4096)).ok()?;
    let is_musl = interpreter.windows(7).any(|part| part == b"ld-musl");
    if is_musl {
        return Some(UntracedReason::Musl);
    }
    None
}

/// Returns whether a program's file has capabilities (`capabilities(7)`).
fn has_capabilities(path: &Path) -> bool {
    getxattr_query(path, c"security.capability").is_ok_and(|size| size > 0)
}

/// Returns whether a file is an ELF file of the 32-bit class.
fn is_narrow(data: &[u8]) -> bool {
    data.starts_with(&ELFMAG) && data.get(4) == Some(&ELFCLASS32.0)
}

/// Returns the file that is executed for the first word of a command.
fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .map(|folder| folder.join(path))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_other_machines_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let said = |class: u8, machine: u16| {
            let path = folder.path().join(format!("{class}-{machine}"));
            let mut header = vec![0_u8; 64];
            header[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
            header[16..18].copy_from_slice(&2_u16.to_le_bytes());
            header[18..20].copy_from_slice(&machine.to_le_bytes());
            header[20] = 1;
            std::fs::write(&path, header).unwrap();
            why(path.as_os_str()).to_string()
        };
        assert!(said(1, 3).starts_with("it is a 32-bit program"));
        let other = if MACHINE == EM_X86_64 { 183 } else { 62 };
        assert!(said(2, other).starts_with("it is for another processor"));
        assert!(said(2, MACHINE.0).starts_with("it is linked statically"));
    }
}
