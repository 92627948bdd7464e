//! The test whether the runtime can be loaded into a program that is about to be executed.
//!
//! The dynamic linker of a 32-bit program complains on the program's standard error about an object of 64 bits, and
//! musl's may refuse to start a program with an object made for glibc. Such programs are executed without the
//! runtime. The dynamic linkers of all other programs load the runtime or ignore it in silence.

use crate::arch::syscall;
use core::ffi::c_char;

/// The number of bytes of a file that are read: its header, and as a rule its program headers and its interpreter's
/// name.
const START: usize = 1024;
/// The number of bytes of an interpreter's name that are read.
const NAME: usize = 64;
/// The largest number of interpreters of interpreters that are looked at.
const MOST: u32 = 4;

const PT_INTERP: u32 = 3;
const CLASS_64: u8 = 2;

/// A file that is open.
struct OpenFile(usize);

impl OpenFile {
    /// Opens a file for reading.
    ///
    /// # Safety
    /// The path is a string, or unmapped.
    unsafe fn open(path: *const c_char) -> Option<OpenFile> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK) as usize;
        let at = libc::AT_FDCWD as isize as usize;
        // SAFETY: the kernel checks the address.
        let file = unsafe {
            syscall(
                libc::SYS_openat,
                [at, path.expose_provenance(), flags, 0, 0, 0],
            )
        };
        usize::try_from(file).ok().map(OpenFile)
    }

    /// Reads at an offset, and returns the bytes that are there.
    fn read<'b>(&self, bytes: &'b mut [u8], offset: u64) -> &'b [u8] {
        let place = bytes.as_mut_ptr().expose_provenance();
        // SAFETY: the buffer outlives the call.
        let read = unsafe {
            syscall(
                libc::SYS_pread64,
                [self.0, place, bytes.len(), offset as usize, 0, 0],
            )
        };
        bytes
            .get(..usize::try_from(read).unwrap_or(0))
            .unwrap_or_default()
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // SAFETY: the file's own descriptor.
        unsafe { syscall(libc::SYS_close, [self.0, 0, 0, 0, 0, 0]) };
    }
}

/// Returns true if the runtime may be preloaded into a program. A file that can't be read counts as an ordinary
/// program.
///
/// This function may be called in the child of a `vfork`, which shares its parent's memory, so it changes no state.
///
/// # Safety
/// The path is a string, or unmapped.
pub unsafe fn is_loadable(path: *const c_char) -> bool {
    let mut interpreter = [0; NAME];
    let mut path = path;
    for _ in 0..MOST {
        // SAFETY: the caller's promise; the interpreter's name ends with a zero byte.
        let Some(file) = (unsafe { OpenFile::open(path) }) else {
            return true;
        };
        let mut bytes = [0; START];
        let start = file.read(&mut bytes, 0);
        if let Some(line) = start.strip_prefix(b"#!") {
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let is_space = |byte: &u8| *byte == b' ' || *byte == b'\t';
            let mut words = line.split(is_space);
            let Some(word) = words.find(|word| !word.is_empty()) else {
                return true;
            };
            let place = interpreter.get_mut(..=word.len());
            let Some((end, place)) = place.and_then(<[u8]>::split_last_mut) else {
                return true;
            };
            place.copy_from_slice(word);
            *end = 0;
            path = interpreter.as_ptr().cast();
            continue;
        }
        let mut name = [0; NAME];
        return is_for_us(start, |offset, size| {
            let size = (size as usize).min(NAME);
            file.read(name.get_mut(..size).unwrap_or_default(), offset)
                .windows(7)
                .any(|part| part == b"ld-musl")
        });
    }
    true
}

/// Returns true if a program with this beginning has 64 bits and a dynamic linker that is not musl's, or none.
fn is_for_us(start: &[u8], mut is_musl: impl FnMut(u64, u64) -> bool) -> bool {
    if !start.starts_with(b"\x7fELF") {
        return true;
    }
    if start.get(4) != Some(&CLASS_64) {
        return false;
    }
    let number = |offset: usize, size: usize| {
        let bytes = start.get(offset..offset + size)?;
        Some(
            bytes
                .iter()
                .rev()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    };
    let headers = (number(32, 8), number(54, 2), number(56, 2));
    let (Some(table), Some(size @ 56..), Some(count)) = headers else {
        return true;
    };
    for index in 0..count {
        let Some(at) = usize::try_from(table).ok().and_then(|table| {
            let distance = usize::try_from(index * size).ok()?;
            table.checked_add(distance).filter(|at| *at < START)
        }) else {
            return true;
        };
        if number(at, 4) == Some(u64::from(PT_INTERP))
            && let (Some(offset), Some(size)) = (number(at + 8, 8), number(at + 32, 8))
        {
            return !is_musl(offset, size);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::vec::Vec;

    fn is(bytes: &[u8]) -> bool {
        let folder = std::env::temp_dir().join(std::format!(
            "loadable-{}-{}",
            std::process::id(),
            bytes.len()
        ));
        std::fs::write(&folder, bytes).unwrap();
        let path = CString::new(folder.to_str().unwrap()).unwrap();
        // SAFETY: a string.
        let is = unsafe { is_loadable(path.as_ptr()) };
        std::fs::remove_file(folder).unwrap();
        is
    }

    /// Returns a program with three program headers, the last of which names the interpreter, at an offset.
    fn program(interpreter: &str, offset: usize) -> Vec<u8> {
        let mut bytes = std::vec![0; offset];
        bytes[..5].copy_from_slice(b"\x7fELF\x02");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 3;
        let header = 64 + 2 * 56;
        bytes[header] = 3;
        bytes[header + 8..header + 12].copy_from_slice(&(offset as u32).to_le_bytes());
        bytes[header + 32] = interpreter.len() as u8 + 1;
        bytes.extend(interpreter.as_bytes());
        bytes.push(0);
        bytes
    }

    #[test]
    fn programs_of_other_kinds_are_known() {
        assert!(is(&program("/lib64/ld-linux-x86-64.so.2", 300)));
        assert!(!is(&program("/lib/ld-musl-x86_64.so.1", 400)));
        assert!(!is(&program("/lib/ld-musl-x86_64.so.1", 4000)));
        assert!(!is(b"\x7fELF\x01 and what follows"));
        for anything in [
            &b""[..],
            b"\x7fELF\x02",
            b"text",
            b"#!",
            b"#!   \n",
            b"#!/no/such/interpreter -x\n",
        ] {
            assert!(is(anything));
        }
        let cut = program("/lib/ld-musl-x86_64.so.1", 400);
        for length in 5..cut.len() {
            is(&cut[..length]);
        }
        // SAFETY: unmapped.
        assert!(unsafe { is_loadable(core::ptr::without_provenance(1)) });
    }

    #[test]
    fn scripts_are_what_their_interpreter_is() {
        let folder = std::env::temp_dir().join(std::format!("loadable-{}", std::process::id()));
        std::fs::write(&folder, program("/lib/ld-musl-x86_64.so.1", 400)).unwrap();
        assert!(!is(
            std::format!("#! {} -e\necho", folder.display()).as_bytes()
        ));
        assert!(is(b"#!/bin/sh\necho"));
        std::fs::remove_file(folder).unwrap();
    }
}
