//! Why the runtime was not loaded into a program.

use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{ElfFile, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol};
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
    let Ok(elf) = ElfFile::<FileHeader64<Endianness>>::parse(&*data) else {
        return UNKNOWN;
    };
    let endian = elf.endian();
    let mut headers = elf.elf_program_headers().iter();
    if !headers.any(|header| header.p_type(endian) == PT_INTERP) {
        return "it is linked statically; link it dynamically";
    }
    let starts_asan = elf
        .dynamic_symbols()
        .any(|s| s.name_bytes() == Ok(b"__asan_init"));
    if starts_asan {
        return "AddressSanitizer wants to be loaded first; set ASAN_OPTIONS=verify_asan_link_order=0";
    }
    UNKNOWN
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
