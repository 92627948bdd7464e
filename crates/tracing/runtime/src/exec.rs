//! The replacement of the C library's `execve`: an executed program is traced, too, whatever its environment.

use crate::{confined, linker, loadable, session, sys};
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use dioptra_tracelayout::execs::{self, EXECUTES, FAILED};
use dioptra_tracelayout::message::{ASAN_LAST, FILTERS, RUNTIME, SOCKET};

/// The texts of the two variables in the environment that the process had when the runtime was loaded.
static SOCKET_TEXT: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
static RUNTIME_TEXT: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

const PRELOAD: &str = "LD_PRELOAD";

/// The environment variable of AddressSanitizer's options, one of which lets other libraries be loaded before its
/// own.
const ASAN: &str = "ASAN_OPTIONS";
const ASAN_OPTION: &[u8] = ASAN_LAST.as_bytes();

/// Finds a variable in an environment and returns the whole `NAME=VALUE`.
///
/// # Safety
/// `environment` is a null-terminated array of C strings.
pub unsafe fn find(mut environment: *const *const c_char, name: &str) -> Option<&'static CStr> {
    // SAFETY: the caller's promise; strings of the environment are not freed here.
    unsafe {
        while !environment.is_null() && !(*environment).is_null() {
            let text = CStr::from_ptr(*environment);
            if value(text, name).is_some() {
                return Some(text);
            }
            environment = environment.add(1);
        }
    }
    None
}

/// Returns the value of a `NAME=VALUE` with this name.
pub fn value<'a>(text: &'a CStr, name: &str) -> Option<&'a [u8]> {
    text.to_bytes()
        .strip_prefix(name.as_bytes())?
        .strip_prefix(b"=")
}

/// Remembers the texts for the environments of executed programs. Without the runtime's, executed programs are not
/// traced.
pub fn remember(socket: &'static CStr, runtime: Option<&'static CStr>) {
    let runtime = runtime.map_or(ptr::null(), CStr::as_ptr);
    SOCKET_TEXT.store(socket.as_ptr().cast_mut(), Ordering::Relaxed);
    RUNTIME_TEXT.store(runtime.cast_mut(), Ordering::Relaxed);
}

/// Reports to the recorder that modules were loaded or unloaded, and carries out its steps.
pub fn reconnect() {
    let socket = SOCKET_TEXT.load(Ordering::Relaxed);
    if socket.is_null() || confined::is_alone() {
        return;
    }
    // SAFETY: a string that was remembered.
    let text = unsafe { CStr::from_ptr(socket) };
    if let Some(name) = value(text, SOCKET) {
        // A recorder that is gone has set `stop`, or is found missing when the next chunk is full.
        let _ = crate::connect::connect(name, linker::reason());
    }
}

/// Executes a program with the runtime's variables in its environment.
///
/// The function changes no state, because the child of a `vfork`, which shares its parent's memory, may call it.
///
/// # Safety
/// `execve`'s.
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise; memory that was mapped here is unmapped if nothing was executed.
    unsafe {
        tell_if_hidden(path);
        let is_told = tell(path);
        let (changed, size) = match loadable::is_loadable(path) {
            true => with_ours(environment),
            false => without_ours(environment),
        };
        let result = crate::arch::syscall(
            libc::SYS_execve,
            [path.addr(), arguments.addr(), changed.addr(), 0, 0, 0],
        );
        if size > 0 {
            sys::unmap(changed.cast_mut().cast(), size);
        }
        if is_told {
            notice(FAILED, |_| 0);
        }
        *libc::__errno_location() = -result as c_int;
    }
    -1
}

/// Reports to the recorder that a program is about to be executed, if there is such a file: `execvp` tries many.
/// Returns true if it did so.
///
/// # Safety
/// `execve`'s.
unsafe fn tell(path: *const c_char) -> bool {
    if session::arena().is_none() || !sys::is_there(path) {
        return false;
    }
    // SAFETY: the kernel has just read the string.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    notice(EXECUTES, |place| {
        let mut used = 0;
        if !path.starts_with(b"/") {
            used = sys::current_folder(place);
            if let Some(byte) = place.get_mut(used) {
                *byte = b'/';
                used += 1;
            }
        }
        match place.get_mut(used..used + path.len()) {
            Some(rest) => {
                rest.copy_from_slice(path);
                used + path.len()
            }
            // The path is too long: the recorder learns only the process.
            None => 0,
        }
    })
}

/// Puts a notice into the recorder's queue, if that has room; `write` writes the path and returns its length.
fn notice(kind: u32, write: impl FnOnce(&mut [u8]) -> usize) -> bool {
    let Some(arena) = session::arena() else {
        return false;
    };
    let (header, notices) = (arena.header(), arena.notices());
    let Some((index, full)) = execs::take(&header.executed, notices) else {
        header.executed_unseen.fetch_add(1, Ordering::Relaxed);
        return false;
    };
    let Some(notice) = notices.get(index) else {
        return false;
    };
    let path = notice.path.as_ptr().cast_mut();
    // SAFETY: shared memory that may be written to. The place was taken, and no one else uses it until it is full.
    let length = write(unsafe { core::slice::from_raw_parts_mut(path, execs::MAX_PATH) });
    notice.time.store(sys::monotonic(), Ordering::Relaxed);
    let what = u64::from(sys::pid()) | u64::from(kind) << 32;
    notice.what.store(what, Ordering::Relaxed);
    notice.length.store(length as u64, Ordering::Relaxed);
    notice.turn.store(full, Ordering::Release);
    true
}

/// Warns that a program will not be traced because the runtime's file can't be seen from where the program runs,
/// after a `chroot`.
///
/// # Safety
/// `execve`'s.
unsafe fn tell_if_hidden(path: *const c_char) {
    let runtime = RUNTIME_TEXT.load(Ordering::Relaxed);
    if runtime.is_null() || !sys::is_there(path) {
        return;
    }
    // SAFETY: a string that was remembered; the path is the caller's, and was just read by the kernel.
    unsafe {
        let file = runtime.add(RUNTIME.len() + 1).cast_const();
        if !sys::is_there(file) {
            let text = |text| CStr::from_ptr(text).to_str().unwrap_or("a program");
            sys::complain(&[
                "dioptra: ",
                text(path),
                " is not traced: ",
                text(file),
                " can't be seen from there; copy that file to the same place below the new root\n",
            ]);
        }
    }
}

/// Returns an environment with the runtime's variables, and the size of its memory in bytes. Returns the same
/// environment and 0 if nothing must be changed or there is no memory.
unsafe fn with_ours(environment: *const *const c_char) -> (*const *const c_char, usize) {
    let socket = SOCKET_TEXT.load(Ordering::Relaxed);
    let runtime = RUNTIME_TEXT.load(Ordering::Relaxed);
    if socket.is_null() || runtime.is_null() {
        return (environment, 0);
    }
    // SAFETY: null-terminated strings that were remembered; the environment is the caller's.
    unsafe {
        let path = value(CStr::from_ptr(runtime), RUNTIME).unwrap_or_default();
        let theirs = find(environment, PRELOAD)
            .and_then(|text| value(text, PRELOAD))
            .unwrap_or_default();
        let has_path = theirs
            .split(|&byte| byte == b':' || byte == b' ')
            .any(|word| word == path);
        let options = find(environment, ASAN).and_then(|text| value(text, ASAN));
        let options = options.unwrap_or_default();
        let has_option = options
            .windows(ASAN_OPTION.len())
            .any(|window| window == ASAN_OPTION);
        let mut count = 0;
        while !environment.is_null() && !(*environment.add(count)).is_null() {
            count += 1;
        }
        let preload_size = PRELOAD.len() + path.len() + theirs.len() + 3;
        let options_size = ASAN.len() + options.len() + ASAN_OPTION.len() + 3;
        let mut digits = [0; 10];
        let filters = sys::decimal(&mut digits, confined::known_filters());
        let text_size = preload_size + options_size + FILTERS.len() + filters.len() + 2;
        let pointers = (count + 6) * size_of::<*const c_char>();
        let size = pointers + text_size;
        let Ok(memory) = sys::map_private(size) else {
            return (environment, 0);
        };
        let array = memory.cast::<*const c_char>();
        let mut used = 0;
        let mut put = |text: *const c_char| {
            array.add(used).write(text);
            used += 1;
        };
        for at in 0..count {
            let text = CStr::from_ptr(*environment.add(at));
            let ours = value(text, SOCKET).is_some()
                || value(text, RUNTIME).is_some()
                || value(text, FILTERS).is_some()
                || value(text, PRELOAD).is_some() && !has_path
                || value(text, ASAN).is_some() && !has_option;
            if !ours {
                put(text.as_ptr());
            }
        }
        put(socket);
        put(runtime);
        // The memory is zero, so that each text is followed by its end.
        let write = |text: *mut u8, parts: [&[u8]; 5]| {
            let mut at = 0;
            for part in parts {
                text.add(at)
                    .copy_from_nonoverlapping(part.as_ptr(), part.len());
                at += part.len();
            }
        };
        let separator =
            |theirs: &[u8]| -> &'static [u8] { if theirs.is_empty() { b"" } else { b":" } };
        if !has_path {
            let text = memory.add(pointers);
            let parts = [PRELOAD.as_bytes(), b"=", path, separator(theirs), theirs];
            write(text, parts);
            put(text.cast());
        }
        if !has_option {
            let text = memory.add(pointers + preload_size);
            let parts = [
                ASAN.as_bytes(),
                b"=",
                options,
                separator(options),
                ASAN_OPTION,
            ];
            write(text, parts);
            put(text.cast());
        }
        let text = memory.add(pointers + preload_size + options_size);
        write(text, [FILTERS.as_bytes(), b"=", filters, b"", b""]);
        put(text.cast());
        (array, size)
    }
}

/// Returns the words of a list in the form of `LD_PRELOAD`.
fn words(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = list.split(|&byte| byte == b':' || byte == b' ');
    words.filter(|word| !word.is_empty())
}

/// Returns an environment in which the runtime is not preloaded, in the form of [`with_ours`]. The runtime's other
/// variables stay, since they do no harm.
unsafe fn without_ours(environment: *const *const c_char) -> (*const *const c_char, usize) {
    let runtime = RUNTIME_TEXT.load(Ordering::Relaxed);
    if runtime.is_null() {
        return (environment, 0);
    }
    // SAFETY: as in `with_ours`.
    unsafe {
        let path = value(CStr::from_ptr(runtime), RUNTIME).unwrap_or_default();
        let Some(theirs) = find(environment, PRELOAD).and_then(|text| value(text, PRELOAD)) else {
            return (environment, 0);
        };
        if !words(theirs).any(|word| word == path) {
            return (environment, 0);
        }
        let mut count = 0;
        while !(*environment.add(count)).is_null() {
            count += 1;
        }
        let pointers = (count + 1) * size_of::<*const c_char>();
        let size = pointers + PRELOAD.len() + theirs.len() + 3;
        let Ok(memory) = sys::map_private(size) else {
            return (environment, 0);
        };
        let array = memory.cast::<*const c_char>();
        let text = memory.add(pointers);
        let mut length = 0;
        let mut put = |part: &[u8]| {
            text.add(length)
                .copy_from_nonoverlapping(part.as_ptr(), part.len());
            length += part.len();
        };
        put(PRELOAD.as_bytes());
        let mut separator = &b"="[..];
        for word in words(theirs).filter(|word| *word != path) {
            put(separator);
            put(word);
            separator = b":";
        }
        let is_empty = separator == b"=";
        let mut used = 0;
        for at in 0..count {
            let one = *environment.add(at);
            if value(CStr::from_ptr(one), PRELOAD).is_none() {
                array.add(used).write(one);
                used += 1;
            } else if !is_empty {
                array.add(used).write(text.cast());
                used += 1;
            }
        }
        (array.cast_const(), size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::vec::Vec;

    /// Returns the environment that the runtime makes of one.
    fn changed(
        change: unsafe fn(*const *const c_char) -> (*const *const c_char, usize),
        variables: &[&str],
    ) -> Vec<std::string::String> {
        let texts: Vec<CString> = variables
            .iter()
            .map(|text| CString::new(*text).unwrap())
            .collect();
        let mut pointers: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(ptr::null());
        // SAFETY: a null-terminated array of strings, in and out.
        unsafe {
            let (mut list, _) = change(pointers.as_ptr());
            let mut found = Vec::new();
            while !(*list).is_null() {
                found.push(CStr::from_ptr(*list).to_str().unwrap().into());
                list = list.add(1);
            }
            found
        }
    }

    #[test]
    fn the_runtime_comes_and_goes_among_what_is_preloaded() {
        remember(
            c"DIOPTRA_TRACE_SOCKET=s",
            Some(c"DIOPTRA_TRACE_RUNTIME=/r.so"),
        );
        let ours = |preload| {
            [
                "A=1",
                "DIOPTRA_TRACE_SOCKET=s",
                "DIOPTRA_TRACE_RUNTIME=/r.so",
                preload,
                "ASAN_OPTIONS=verify_asan_link_order=0",
                "DIOPTRA_TRACE_FILTERS=0",
            ]
        };
        let with = |variables: &[&str]| changed(with_ours, variables);
        let without = |variables: &[&str]| changed(without_ours, variables);
        assert_eq!(with(&["A=1"]), ours("LD_PRELOAD=/r.so"));
        assert_eq!(
            with(&["LD_PRELOAD=x.so", "A=1"]),
            ours("LD_PRELOAD=/r.so:x.so")
        );
        assert_eq!(without(&["A=1"]), ["A=1"]);
        assert_eq!(
            without(&["LD_PRELOAD=x.so", "A=1"]),
            ["LD_PRELOAD=x.so", "A=1"]
        );
        assert_eq!(without(&["LD_PRELOAD=/r.so", "A=1"]), ["A=1"]);
        assert_eq!(
            without(&["B=", "LD_PRELOAD=x.so:/r.so y.so", "A=1"]),
            ["B=", "LD_PRELOAD=x.so:y.so", "A=1"]
        );
    }
}
