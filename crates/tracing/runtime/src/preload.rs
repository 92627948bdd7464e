//! The parts that make this crate a shared object of its own.

use crate::connect::{self, Failure};
use crate::exec;
use crate::sys::{self, Errno};
use crate::{arch, confined, frame_address, guarded, libc_calls, thread, unload};
use core::ffi::{CStr, c_char, c_int};
use dioptra_tracelayout::message::{AttachResult, FILTERS, RUNTIME, Reason, SOCKET};

/// Ends the program. Nothing calls this: the build fails if something could.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    arch::refer_to_panic_mark();
    sys::complain(&["dioptra: the tracer in this program is defective and ends it\n"]);
    sys::abort()
}

/// Stands for the personality routine that tables of `core` name. No frame of this crate is ever unwound.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = thread::process_ending;

/// The reason why this process can't be traced.
enum Untraceable {
    /// The C library is not glibc.
    OtherLibrary,
    /// The process runs under system call filters that are not known.
    Confined,
    /// The conversation with the recorder failed.
    Failed(Failure),
}

/// Connects to the recorder. The texts are `NAME=VALUE` of [`SOCKET`] and [`RUNTIME`]; `filters` is the number of
/// system call filters that are known to allow the runtime's system calls.
fn begin(
    socket: &'static CStr,
    runtime: Option<&'static CStr>,
    filters: u32,
) -> Result<(), Untraceable> {
    if !libc_calls::is_glibc() {
        return Err(Untraceable::OtherLibrary);
    }
    if confined::begins_confined(filters) {
        return Err(Untraceable::Confined);
    }
    exec::remember(socket, runtime);
    libc_calls::ask_page_size();
    libc_calls::create_key();
    libc_calls::watch_forks();
    frame_address::find_unwinder();
    let name = exec::value(socket, SOCKET).unwrap_or_default();
    guarded::check()
        .and_then(|()| arch::prepare())
        .map_err(Failure::Processor)
        .and_then(|()| connect::connect(name, Reason::Start))
        .map_err(Untraceable::Failed)
}

/// Called when the shared object is loaded: if it is preloaded, before the program's `main`.
extern "C" fn start() {
    let environment = libc_calls::environment();
    // SAFETY: the process's environment.
    let (socket, runtime, filters) = unsafe {
        (
            exec::find(environment, SOCKET),
            exec::find(environment, RUNTIME),
            exec::find(environment, FILTERS),
        )
    };
    // A recorder that attaches loads the object and then calls `dioptra_attach`. The variables of a traced program that
    // was not traced itself mean nothing then.
    let (Some(socket), Some(runtime)) = (socket, runtime) else {
        return;
    };
    let filters = filters.and_then(|text| exec::value(text, FILTERS));
    let filters = filters.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
    let Err(why) = begin(socket, Some(runtime), filters.unwrap_or(0)) else {
        return;
    };
    let name = exec::value(socket, SOCKET).unwrap_or_default();
    let what = match why {
        Untraceable::OtherLibrary => "its C library is not glibc (musl?)",
        Untraceable::Confined => {
            "it began under a system call filter (seccomp) that perhaps does not allow what the tracer does"
        }
        Untraceable::Failed(Failure::Recorder(_)) if connect::is_elsewhere(name) => {
            "it runs in a network namespace of its own, from which the recorder cannot be reached"
        }
        Untraceable::Failed(Failure::Recorder(Errno(libc::ETIMEDOUT))) => {
            "its recorder does not answer, perhaps since it is stopped"
        }
        // Another program's recorder may be long gone: a program that it started goes on untraced.
        Untraceable::Failed(Failure::Recorder(_) | Failure::Refused) => return,
        Untraceable::Failed(Failure::Arena) => "the memory for its records can't be mapped",
        Untraceable::Failed(Failure::Processor(what)) => what,
    };
    sys::complain(&["dioptra: this program is not traced: ", what, "\n"]);
}

/// Connects a process that was already running when this object was loaded; see
/// [`ATTACH`](dioptra_tracelayout::message::ATTACH).
///
/// # Safety
/// The arguments are C strings that stay where they are, or the second is null.
#[unsafe(no_mangle)]
unsafe extern "C" fn dioptra_attach(socket: *const c_char, runtime: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let (socket, runtime) = unsafe {
        let runtime = (!runtime.is_null()).then(|| CStr::from_ptr(runtime));
        (CStr::from_ptr(socket), runtime)
    };
    let name = exec::value(socket, SOCKET).unwrap_or_default();
    let result = match begin(socket, runtime, 0) {
        Ok(()) => AttachResult::Connected,
        Err(Untraceable::OtherLibrary) => AttachResult::OtherLibrary,
        Err(Untraceable::Confined) => AttachResult::Confined,
        Err(Untraceable::Failed(why)) => match why {
            Failure::Recorder(_) if connect::is_elsewhere(name) => AttachResult::Elsewhere,
            Failure::Recorder(_) => AttachResult::NoAnswer,
            Failure::Refused => AttachResult::Refused,
            Failure::Arena => AttachResult::NoMemory,
            Failure::Processor(_) => AttachResult::Processor,
        },
    };
    result as c_int
}

/// Prepares the process for [`dioptra_unload`]; see [`RELEASE`](dioptra_tracelayout::message::RELEASE).
#[unsafe(no_mangle)]
extern "C" fn dioptra_release() -> c_int {
    c_int::from(!unload::release())
}

/// Closes the pools and unmaps the memory; see [`UNLOAD`](dioptra_tracelayout::message::UNLOAD).
///
/// # Safety
/// [`unload::unload`]'s.
#[unsafe(no_mangle)]
unsafe extern "C" fn dioptra_unload() {
    // SAFETY: the caller's promise.
    unsafe { unload::unload() }
}

/// Called by the start code of programs linked with `-pg`. The C library's function would begin to profile them.
#[unsafe(no_mangle)]
extern "C" fn __monstartup(_low: usize, _high: usize) {}

/// Called at the end of programs linked with `-pg`. The C library's function would write `gmon.out`.
#[unsafe(no_mangle)]
extern "C" fn _mcleanup() {}
