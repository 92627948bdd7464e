//! Functions of the C library and the dynamic linker whose calls the runtime must see.

use super::image::{Image, Segment};
use crate::arch::{Code, Functions};
use dioptra_tracelayout::message::Observed;
use object::{Object, ObjectSymbol};

/// A function of the C library or the dynamic linker whose calls the runtime must see.
#[derive(Clone, Debug)]
pub struct FunctionHook<A: Code> {
    /// The address of the jump to its thunk.
    pub site: u64,
    /// The instructions that are moved away to make room for the jump.
    pub prologue: A::Prologue,
    /// The work that the thunk does.
    pub work: HookWork,
}

/// The work of the thunk of a [`FunctionHook`].
#[derive(Clone, Copy, Debug)]
pub enum HookWork {
    /// The thunk reports the call to the runtime.
    Observe(Observed),
    /// The thunk calls the runtime's own function in the place of this one.
    Execve,
}

/// Returns whether a file is the C library or the dynamic linker.
pub fn has_hooks<'d>(file: &impl Object<'d>) -> bool {
    file.dynamic_symbols().any(|symbol| {
        matches!(symbol.name(), Ok("__libc_start_main" | "_dl_debug_state"))
            && !symbol.is_undefined()
    })
}

/// The names of these functions, with the work of their thunks.
pub const OBSERVED: [(&str, HookWork); 9] = [
    ("swapcontext", HookWork::Observe(Observed::SwapContext)),
    ("setcontext", HookWork::Observe(Observed::SetContext)),
    // `_longjmp` and `siglongjmp` are other names of `longjmp`.
    ("longjmp", HookWork::Observe(Observed::Jump)),
    ("__longjmp_chk", HookWork::Observe(Observed::Jump)),
    ("execve", HookWork::Execve),
    ("clone", HookWork::Observe(Observed::Clone)),
    ("prctl", HookWork::Observe(Observed::Prctl)),
    ("syscall", HookWork::Observe(Observed::Syscall)),
    (
        "_dl_debug_state",
        HookWork::Observe(Observed::ModulesChange),
    ),
];

/// Returns the values of the first argument for which calls of a function are observed; empty if all calls are. Other
/// values cost no more than a comparison.
pub fn observed_for<A: Code>(function: Observed) -> &'static [u16] {
    /// The first argument of `prctl` that forbids system calls (`PR_SET_SECCOMP`).
    const FORBIDS_CALLS: u16 = 22;
    match function {
        Observed::Prctl => &[FORBIDS_CALLS],
        Observed::Syscall => A::SYSTEM_CALLS,
        _ => &[],
    }
}

/// Returns the functions of the C library or the dynamic linker that the runtime has to know of.
pub fn hooks<A: Functions>(data: &[u8]) -> Vec<FunctionHook<A>> {
    let Ok(image) = Image::new(data) else {
        return Vec::new();
    };
    let hook = |name: &str, work| {
        let symbol = image
            .elf
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(name) && !symbol.is_undefined())?;
        let bytes = image.bytes(symbol.address(), looked_at(symbol.size()))?;
        let skip = A::landing(bytes);
        let site = symbol.address() + skip as u64;
        let size = (symbol.size() as usize).saturating_sub(skip);
        Some(FunctionHook {
            site,
            prologue: A::library_prologue(bytes.get(skip..)?, site, size)?,
            work,
        })
    };
    let all = OBSERVED.into_iter();
    all.filter_map(|(name, work)| hook(name, work)).collect()
}

/// Returns the number of bytes to analyse of a function that has `size` bytes. A short function is analysed with some
/// of its padding.
pub fn looked_at(size: u64) -> u64 {
    size.max(16)
}

/// Returns the offsets and sizes in the file of the observed functions' code, for [`hooks`].
pub fn hooked_code<'d>(file: &impl Object<'d>, segments: &[Segment]) -> Vec<(u64, u64)> {
    let is_hooked = |name| OBSERVED.iter().any(|(hooked, _)| name == Ok(*hooked));
    file.dynamic_symbols()
        .filter(|symbol| !symbol.is_undefined() && is_hooked(symbol.name()))
        .filter_map(|symbol| {
            let inside = |s: &&Segment| symbol.address().wrapping_sub(s.address) < s.file_size;
            let segment = segments.iter().find(inside)?;
            let offset = symbol.address() - segment.address + segment.offset;
            Some((offset, looked_at(symbol.size())))
        })
        .collect()
}
