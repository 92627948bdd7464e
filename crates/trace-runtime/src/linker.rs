//! What the dynamic linker says when modules are loaded: whether nobody can have run them yet.

use crate::arch;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use dioptra_tracelayout::message::Reason;

/// Whether the recorder was not told of a change.
static MISSED: AtomicBool = AtomicBool::new(false);

/// The beginning of what the dynamic linker keeps for debuggers (`struct r_debug` of `link.h`).
#[repr(C)]
struct Debug {
    version: i32,
    modules: usize,
    breakpoint: usize,
    state: i32,
}

/// `RT_CONSISTENT`: the modules that were to be loaded are mapped.
const CONSISTENT: i32 = 0;

/// The recorder is not told of a change.
pub fn miss() {
    MISSED.store(true, Ordering::Relaxed);
}

/// Why the recorder is told of a change now.
///
/// The dynamic linker says twice that modules are loaded: before it maps them, and as soon as it has mapped them all, before
/// anything of them is executed. What the recorder finds at the second time, and did not find at the first, nobody has run.
pub fn reason() -> Reason {
    let debug = ptr::with_exposed_provenance::<Debug>(arch::linker_debug() as usize);
    // SAFETY: the dynamic linker's own, which is never unmapped, if it is there.
    let is_mapped =
        !debug.is_null() && unsafe { (&raw const (*debug).state).read_volatile() } == CONSISTENT;
    let has_missed = MISSED.swap(false, Ordering::Relaxed);
    match is_mapped && !has_missed {
        true => Reason::Modules,
        false => Reason::Found,
    }
}
