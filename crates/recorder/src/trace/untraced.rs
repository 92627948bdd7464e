//! Why the runtime was not loaded into a program.

use object::Endianness;
use object::elf::{ELFCLASS32, ELFMAG, EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader};
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// In words, as far as the program's file tells.
pub fn why(program: &OsStr) -> &'static str {
    const UNKNOWN: &str =
        "is it for another C library, or does it start with an environment of its own?";
    let Some(path) = find(program) else {
        return UNKNOWN;
    };
    let Ok(metadata) = std::fs::metadata(&path) else {
        return UNKNOWN;
    };
    // SAFETY: the calls have no arguments and can't fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mode = metadata.mode();
    let changes_user = mode & libc::S_ISUID != 0 && metadata.uid() != user;
    let changes_group = mode & libc::S_ISGID != 0 && metadata.gid() != group;
    if changes_user || changes_group {
        return "it runs as another user or group (set-uid), for whom nothing is preloaded; run a copy without that bit";
    }
    let Ok(data) = std::fs::read(&path) else {
        return UNKNOWN;
    };
    if is_narrow(&data) {
        return "it is a 32-bit program; build it for x86-64";
    }
    let Ok(elf) = ElfFile::<FileHeader64<Endianness>>::parse(&*data) else {
        return UNKNOWN;
    };
    let endian = elf.endian();
    if elf.elf_header().e_machine(endian) != EM_X86_64 {
        return "it is for another processor; build it for x86-64";
    }
    let mut headers = elf.elf_program_headers().iter();
    let Some(linker) = headers.find(|header| header.p_type(endian) == PT_INTERP) else {
        return "it is linked statically; link it dynamically";
    };
    let linker = linker.data(endian, elf.data()).unwrap_or_default();
    if memchr::memmem::find(linker, b"ld-musl").is_some() {
        return "its C library is musl; build it for glibc";
    }
    UNKNOWN
}

/// Whether a file is an ELF file of the 32-bit class.
fn is_narrow(data: &[u8]) -> bool {
    data.starts_with(&ELFMAG) && data.get(4) == Some(&ELFCLASS32.0)
}

/// The file that is executed for a word.
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
            why(path.as_os_str())
        };
        assert!(said(1, 3).starts_with("it is a 32-bit program"));
        assert!(said(2, 183).starts_with("it is for another processor"));
        assert!(said(2, 62).starts_with("it is linked statically"));
    }
}
