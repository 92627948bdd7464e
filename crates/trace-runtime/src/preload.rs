//! What makes this crate a shared object of its own.

use crate::connect::{self, Failure};
use crate::exec;
use crate::sys::{self, Errno};
use crate::{arch, libc_calls, thread};
use core::ffi::{c_char, c_int};
use dioptra_tracelayout::message::{RUNTIME, Reason, SOCKET};

/// Ends the program. Nothing calls this: the build fails if something could.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    arch::refer_to_panic_mark();
    sys::complain(&["dioptra: the tracer in this program is defective and ends it\n"]);
    sys::abort()
}

/// What unwinding would ask about frames of this crate; it never does, but tables of `core` name it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = thread::process_ending;

/// Called when the shared object is loaded, before the program's `main`.
extern "C" fn start(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    // SAFETY: the dynamic linker hands over the process's environment.
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
    exec::remember(socket, runtime);
    libc_calls::ask_page_size();
    libc_calls::create_key();
    libc_calls::watch_forks();
    let result = arch::prepare()
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
            // Another program's recorder may be long gone: what it started goes on untraced.
            Failure::Recorder(_) | Failure::Refused => return,
            Failure::Arena => "the memory for its records can't be mapped",
            Failure::Processor(what) => what,
        };
        sys::complain(&["dioptra: this program is not traced: ", what, "\n"]);
    }
}

/// Called by the start code of programs linked with `-pg`: the C library's would begin to profile them.
#[unsafe(no_mangle)]
extern "C" fn __monstartup(_low: usize, _high: usize) {}

/// Called at the end of programs linked with `-pg`: the C library's would write `gmon.out`.
#[unsafe(no_mangle)]
extern "C" fn _mcleanup() {}
