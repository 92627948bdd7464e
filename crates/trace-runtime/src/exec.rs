//! What takes the place of the C library's `execve`: an executed program is traced, too, whatever its environment.

use crate::{confined, sys};
use core::ffi::{CStr, c_char, c_int};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};
use dioptra_tracelayout::message::{ASAN_LAST, FILTERS, RUNTIME, Reason, SOCKET};

/// The environment of the process, as it was when the runtime was loaded, is where these point into.
static SOCKET_TEXT: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());
static RUNTIME_TEXT: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

const PRELOAD: &str = "LD_PRELOAD";

/// Where AddressSanitizer finds what it may not insist on: that its library is loaded before all others.
const ASAN: &str = "ASAN_OPTIONS";
const ASAN_OPTION: &[u8] = ASAN_LAST.as_bytes();

/// Looks for a variable in an environment; the whole `NAME=VALUE`.
///
/// # Safety
/// A null-terminated array of C strings.
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

/// The value, if a `NAME=VALUE` has that name.
pub fn value<'a>(text: &'a CStr, name: &str) -> Option<&'a [u8]> {
    text.to_bytes()
        .strip_prefix(name.as_bytes())?
        .strip_prefix(b"=")
}

/// Keeps what executed programs are to find in their environment.
pub fn remember(socket: &'static CStr, runtime: &'static CStr) {
    SOCKET_TEXT.store(socket.as_ptr().cast_mut(), Ordering::Relaxed);
    RUNTIME_TEXT.store(runtime.as_ptr().cast_mut(), Ordering::Relaxed);
}

/// Tells the recorder that modules were loaded or unloaded, and does what it says.
pub fn reconnect() {
    let socket = SOCKET_TEXT.load(Ordering::Relaxed);
    if socket.is_null() || confined::is_alone() {
        return;
    }
    // SAFETY: a string that was remembered.
    let text = unsafe { CStr::from_ptr(socket) };
    if let Some(name) = value(text, SOCKET) {
        // A recorder that is gone has set `stop`, or will be missed when the next chunk is full.
        let _ = crate::connect::connect(name, Reason::Modules);
    }
}

/// Executes a program, with our variables in its environment.
///
/// It may be called in the child of a `vfork`, which shares its parent's memory: no state is changed.
///
/// # Safety
/// That of `execve`.
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise; memory that was mapped here is given back if nothing was executed.
    unsafe {
        tell_if_hidden(path);
        let (changed, size) = with_ours(environment);
        let result = crate::arch::syscall(
            libc::SYS_execve,
            [path.addr(), arguments.addr(), changed.addr(), 0, 0, 0],
        );
        if size > 0 {
            sys::unmap(changed.cast_mut().cast(), size);
        }
        *libc::__errno_location() = -result as c_int;
    }
    -1
}

/// Says that a program will not be traced because our file can't be seen from where it runs, after a `chroot`.
///
/// # Safety
/// That of `execve`.
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

/// An environment with our variables, and the size of its memory; the same one and 0 if nothing is to be changed or
/// there is no memory.
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
        // The memory is zero: each text is followed by its end.
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
