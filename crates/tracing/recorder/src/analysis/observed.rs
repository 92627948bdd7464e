//! Functions of the C library and the dynamic linker whose calls the runtime must see.

use super::image::Segment;
use crate::arch::Prologue;
use dioptra_tracelayout::message::Observed;
use object::{Object, ObjectSymbol};

/// A function of the C library or the dynamic linker whose calls the runtime must see.
#[derive(Clone, Debug)]
pub struct FunctionHook {
    /// The address of the jump to its thunk.
    pub site: u64,
    /// The instructions that are moved away to make room for the jump.
    pub prologue: Prologue,
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
pub fn observed_for(function: Observed) -> &'static [u16] {
    const SYSCALLS: [u16; 3] = [
        libc::SYS_clone as u16,
        libc::SYS_prctl as u16,
        libc::SYS_seccomp as u16,
    ];
    match function {
        Observed::Prctl => &[libc::PR_SET_SECCOMP as u16],
        Observed::Syscall => &SYSCALLS,
        _ => &[],
    }
}

/// Returns the number of bytes to analyse of a function that has `size` bytes. A short function is analysed with some
/// of its padding.
pub fn looked_at(size: u64) -> u64 {
    size.max(16)
}

/// Returns the offsets and sizes in the file of the observed functions' code, for [`hooks`](crate::arch::hooks).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::image::{read_some, segments};
    use crate::analysis::partial_file::Glance;
    use crate::arch::hooks;
    use crate::serving::maps::Maps;
    use object::read::elf::ElfFile64;
    use std::fs::{self, File};

    #[test]
    fn hooks_need_little_of_a_file() {
        let maps = Maps::read(std::process::id()).unwrap();
        let mut found = 0;
        for module in maps.modules() {
            let file = File::open(&module.path).unwrap();
            let glance = Glance::new(&file).unwrap();
            let elf = ElfFile64::<object::Endianness, _>::parse(&glance).unwrap();
            if !has_hooks(&elf) {
                continue;
            }
            let some = read_some(&file, &elf, hooked_code(&elf, &segments(&elf))).unwrap();
            let whole = fs::read(&module.path).unwrap();
            let all = hooks(&whole);
            assert_eq!(format!("{:?}", hooks(&some)), format!("{all:?}"));
            found += all.len();
        }
        assert!(found >= 4, "a C library and a dynamic linker");
    }
}
