//! The dynamic linker's notices of loaded modules: they reveal whether a thread can have run the modules' code yet.

use crate::{arch, sys};
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};
use dioptra_tracelayout::message::Reason;

/// The id of the process if the recorder knows of all its changes; 0 if the recorder has missed one. A forked child
/// has another id, and the recorder may know nothing of it.
static TOLD: AtomicU32 = AtomicU32::new(0);

/// The beginning of the structure that the dynamic linker keeps for debuggers (`struct r_debug` of `link.h`).
#[repr(C)]
struct Debug {
    version: i32,
    modules: usize,
    breakpoint: usize,
    state: i32,
}

/// `RT_CONSISTENT`: the modules that were to be loaded are mapped.
const CONSISTENT: i32 = 0;

/// Records that the recorder misses a change.
pub fn miss() {
    TOLD.store(0, Ordering::Relaxed);
}

/// Records that the recorder knows of all changes.
pub fn told() {
    TOLD.store(sys::pid(), Ordering::Relaxed);
}

/// Returns the reason for which the process connects now.
///
/// The dynamic linker announces loaded modules twice: before it maps them, and as soon as it has mapped them all,
/// before any of their code is executed. So no thread has run modules that the recorder finds at the second time and
/// not at the first.
pub fn reason() -> Reason {
    let debug = ptr::with_exposed_provenance::<Debug>(arch::linker_debug() as usize);
    // SAFETY: the dynamic linker's own, which is never unmapped, if it is there.
    let is_mapped =
        !debug.is_null() && unsafe { (&raw const (*debug).state).read_volatile() } == CONSISTENT;
    let has_told = TOLD.load(Ordering::Relaxed) == sys::pid();
    match is_mapped && has_told {
        true => Reason::Modules,
        false => Reason::Found,
    }
}
