//! The parts that make this crate a shared object of its own.

use crate::connect::{self, Failure};
use crate::exec;
use crate::sys::{self, Errno};
use crate::{arch, confined, frame_address, guarded, libc_calls, thread};
use dioptra_tracelayout::message::{FILTERS, RUNTIME, Reason, SOCKET};

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

/// Called when the shared object is loaded, before the program's `main`.
extern "C" fn start() {
    let is_glibc = libc_calls::is_glibc();
    let environment = libc_calls::environment();
    // SAFETY: the process's environment.
    let (socket, runtime) = unsafe {
        (
            exec::find(environment, SOCKET),
            exec::find(environment, RUNTIME),
        )
    };
    let (Some(socket), Some(runtime)) = (socket, runtime) else {
        return;
    };
    let Some(name) = exec::value(socket, SOCKET) else {
        return;
    };
    if !is_glibc {
        sys::complain(&[
            "dioptra: this program is not traced: its C library is not glibc (musl?)\n",
        ]);
        return;
    }
    // SAFETY: as above.
    let filters = unsafe { exec::find(environment, FILTERS) };
    let filters = filters.and_then(|text| exec::value(text, FILTERS));
    let filters = filters.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
    if confined::begins_confined(filters.unwrap_or(0)) {
        sys::complain(&[
            "dioptra: this program is not traced: it began under a system call filter (seccomp) that perhaps does not allow what the tracer does\n",
        ]);
        return;
    }
    exec::remember(socket, runtime);
    libc_calls::ask_page_size();
    libc_calls::create_key();
    libc_calls::watch_forks();
    frame_address::find_unwinder();
    let result = guarded::check()
        .and_then(|()| arch::prepare())
        .map_err(Failure::Processor)
        .and_then(|()| connect::connect(name, Reason::Start));
    if let Err(failure) = result {
        let what = match failure {
            Failure::Recorder(_) if connect::is_elsewhere(name) => {
                "it runs in a network namespace of its own, from which the recorder cannot be reached"
            }
            Failure::Recorder(Errno(libc::ETIMEDOUT)) => {
                "its recorder does not answer, perhaps since it is stopped"
            }
            // Another program's recorder may be long gone: a program that it started goes on untraced.
            Failure::Recorder(_) | Failure::Refused => return,
            Failure::Arena => "the memory for its records can't be mapped",
            Failure::Processor(what) => what,
        };
        sys::complain(&["dioptra: this program is not traced: ", what, "\n"]);
    }
}

/// Called by the start code of programs linked with `-pg`. The C library's function would begin to profile them.
#[unsafe(no_mangle)]
extern "C" fn __monstartup(_low: usize, _high: usize) {}

/// Called at the end of programs linked with `-pg`. The C library's function would write `gmon.out`.
#[unsafe(no_mangle)]
extern "C" fn _mcleanup() {}
