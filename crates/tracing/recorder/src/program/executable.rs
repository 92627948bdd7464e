//! The file that a command executes, checked before an older trace makes room for a new one.

use dioptra_processes::command::{CommandError, CommandStatus};
use object::elf::{ELFMAG, FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, ReadCache};
use rustix::fs::{Access, access};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The number of bytes of a file that the kernel reads to find the interpreter of a script.
const HEAD: usize = 256;

/// A command whose program was found.
#[derive(Debug, Default)]
pub struct Located {
    /// The program as a path or a name that `PATH` leads to, and its arguments.
    pub command: Vec<OsString>,
    /// A file of the same name that `PATH` leads to, which is not the one that is executed.
    pub hidden: Option<PathBuf>,
}

/// Finds the program of a command, and checks that it can be executed.
///
/// A name without a slash is looked for in the current folder first, and then in `PATH`, as uftrace does.
///
/// # Errors
/// [`CommandError`] if the file does not exist, may not be executed, or is no program.
pub fn locate(mut command: Vec<OsString>) -> Result<Located, CommandError> {
    let word = command.first_mut().ok_or(CommandError::Empty)?;
    if word.as_bytes().contains(&b'/') {
        check(Path::new(word), word)?;
        let hidden = None;
        return Ok(Located { command, hidden });
    }
    let here = Path::new(".").join(&*word);
    let others = in_path(word);
    let executable = others.iter().find(|path| is_executable(path));
    let hidden = if !word.is_empty() && is_executable(&here) {
        check(&here, word)?;
        *word = here.into_os_string();
        executable.cloned()
    } else {
        match executable.or(others.first()) {
            Some(path) => check(path, word)?,
            // The user means the file in the current folder, although nobody may execute it.
            None if !word.is_empty() && here.exists() => check(&here, word)?,
            None => return Err(CommandError::NotFound(PathBuf::from(&*word))),
        }
        None
    };
    Ok(Located { command, hidden })
}

/// Returns the files of this name in the folders of `PATH`.
fn in_path(word: &OsStr) -> Vec<PathBuf> {
    let Some(folders) = std::env::var_os("PATH").filter(|_| !word.is_empty()) else {
        return Vec::new();
    };
    std::env::split_paths(&folders)
        .map(|folder| folder.join(word))
        .filter(|path| path.is_file())
        .collect()
}

/// Returns whether a path is that of a file that this process may execute.
fn is_executable(path: &Path) -> bool {
    path.is_file() && access(path, Access::EXEC_OK).is_ok()
}

/// Checks a file as far as possible before it is executed. Formats that the kernel may know (`binfmt_misc`) pass.
fn check(path: &Path, word: &OsStr) -> Result<(), CommandError> {
    let refuse = |source| CommandError::NotExecutable {
        program: PathBuf::from(word),
        source,
    };
    let errno = |errno| Err(refuse(io::Error::from_raw_os_error(errno)));
    match path.metadata() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Err(refuse(error)),
        Err(_) => return Err(CommandError::NotFound(PathBuf::from(word))),
        Ok(_) if is_executable(path) => {}
        Ok(_) => return errno(libc::EACCES),
    }
    // A file may be executable and not readable.
    let Ok(file) = File::open(path) else {
        return Ok(());
    };
    let mut start = [0; HEAD];
    let size = file.read_at(&mut start, 0).unwrap_or(0);
    let start = start.get(..size).unwrap_or_default();
    if start.starts_with(b"#!") {
        if interpreter(start).is_some_and(|interpreter| !interpreter.exists()) {
            return Err(CommandError::NoInterpreter(PathBuf::from(word)));
        }
    } else if start.starts_with(&ELFMAG) && is_cut_off(&file) {
        return errno(libc::ENOEXEC);
    }
    Ok(())
}

/// Returns the interpreter of a script that begins with these bytes, at most [`HEAD`]. Returns `None` for a longer path: the
/// kernel does not know its end either.
fn interpreter(start: &[u8]) -> Option<&Path> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = start.strip_prefix(b"#!")?;
    let newline = line.iter().position(|byte| *byte == b'\n');
    let is_whole = newline.is_some() || start.len() < HEAD;
    let line = line.get(..newline.unwrap_or(line.len()))?;
    let first = line.iter().position(|byte| !is_space(byte));
    let words = line.get(first.unwrap_or(line.len())..)?;
    let end = words.iter().position(is_space);
    let word = words.get(..end.unwrap_or(words.len()))?;
    (is_whole || end.is_some()).then(|| Path::new(OsStr::from_bytes(word)))
}

/// Returns whether a 64-bit ELF file ends before its segments do: the kernel starts such a program, which then dies.
fn is_cut_off(file: &File) -> bool {
    let Ok(size) = file.metadata().map(|metadata| metadata.len()) else {
        return false;
    };
    let data = &ReadCache::new(file);
    let mut class = [0; 5];
    let is_wide = file.read_exact_at(&mut class, 0).is_ok() && class[4] == 2;
    if size >= 64 && !is_wide {
        return false;
    }
    let Ok(header) = FileHeader64::<Endianness>::parse(data) else {
        return true;
    };
    let Ok(endian) = header.endian() else {
        return true;
    };
    let Ok(segments) = header.program_headers(endian, data) else {
        return true;
    };
    segments.iter().any(|segment| {
        let (offset, length) = segment.file_range(endian);
        segment.p_type(endian) == PT_LOAD && offset.saturating_add(length) > size
    })
}

/// Returns whether a command ended as one that did not start: with the status of a dynamic linker or a shell that can't
/// start it, or by a signal that the kernel sends where a program's file is damaged.
pub fn looks_unstarted(status: CommandStatus) -> bool {
    match status {
        CommandStatus::Exited(status) => matches!(status, 126 | 127),
        CommandStatus::Signaled(signal) => {
            matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGKILL)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn scripts_of_any_length_need_their_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let located = |first: &str, length: usize| {
            let path = folder.path().join("script");
            let mut text = format!("#!{first}\n");
            text.push_str(&"#".repeat(length.saturating_sub(text.len())));
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
            locate(vec![path.into_os_string()])
        };
        for length in [0, 255, 256, 5000] {
            for first in ["/no/such/interpreter", " \t/no/such/interpreter -x"] {
                let refused = located(first, length);
                assert!(
                    matches!(refused, Err(CommandError::NoInterpreter(_))),
                    "{first} {length}: {refused:?}"
                );
            }
            assert!(located("/bin/sh -e", length).is_ok(), "{length}");
        }
        // The kernel cuts off long arguments, and knows the interpreter all the same.
        let long = "x".repeat(300);
        let refused = located(&format!("/no/such/interpreter {long}"), 0);
        assert!(matches!(refused, Err(CommandError::NoInterpreter(_))));
        assert!(located(&format!("/bin/sh {long}"), 0).is_ok());
        // The end of this path is beyond the bytes that the kernel reads.
        assert!(located(&format!("/no/{long}"), 0).is_ok());
    }
}
