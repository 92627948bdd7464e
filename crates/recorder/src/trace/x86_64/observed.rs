//! Functions of the C library and the dynamic linker that the runtime has to know of.

use super::displace::{JUMP, Prologue, padding, prologue};
use super::image::{ENDBR, Image, Segment};
use dioptra_tracelayout::message::Observed;
use object::{Object, ObjectSymbol};

/// A function of the C library or the dynamic linker that the runtime has to know of.
#[derive(Clone, Debug)]
pub struct FunctionHook {
    /// Where the jump goes.
    pub site: u64,
    /// What is moved away for it.
    pub prologue: Prologue,
    /// What happens there.
    pub work: HookWork,
}

/// What happens at a [`FunctionHook`].
#[derive(Clone, Copy, Debug)]
pub enum HookWork {
    /// The runtime is told.
    Observe(Observed),
    /// The runtime does it instead.
    Execve,
}

/// Whether this is the C library or the dynamic linker.
pub fn has_hooks<'d>(file: &impl Object<'d>) -> bool {
    file.dynamic_symbols().any(|symbol| {
        matches!(symbol.name(), Ok("__libc_start_main" | "_dl_debug_state"))
            && !symbol.is_undefined()
    })
}

/// They, by their names.
const HOOKED: [(&str, HookWork); 6] = [
    ("swapcontext", HookWork::Observe(Observed::SwapContext)),
    ("setcontext", HookWork::Observe(Observed::SetContext)),
    // `_longjmp` and `siglongjmp` are other names of it.
    ("longjmp", HookWork::Observe(Observed::Jump)),
    ("__longjmp_chk", HookWork::Observe(Observed::Jump)),
    ("execve", HookWork::Execve),
    (
        "_dl_debug_state",
        HookWork::Observe(Observed::ModulesChange),
    ),
];

/// How much of a function is looked at that has `size` bytes: some padding, too.
fn looked_at(size: u64) -> u64 {
    size.max(16)
}

/// Where their code lies in the file, for [`hooks`]: offsets and sizes.
pub fn hooked_code<'d>(file: &impl Object<'d>, segments: &[Segment]) -> Vec<(u64, u64)> {
    let is_hooked = |name| HOOKED.iter().any(|(hooked, _)| name == Ok(*hooked));
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

/// The functions of the C library or the dynamic linker that the runtime has to know of.
pub fn hooks(data: &[u8]) -> Vec<FunctionHook> {
    let Ok(image) = Image::new(data) else {
        return Vec::new();
    };
    let hook = |name: &str, work| {
        let symbol = image
            .elf
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(name) && !symbol.is_undefined())?;
        let bytes = image.bytes(symbol.address(), looked_at(symbol.size()))?;
        let skip = if bytes.starts_with(ENDBR) {
            ENDBR.len()
        } else {
            0
        };
        let site = symbol.address() + skip as u64;
        let size = (symbol.size() as usize).saturating_sub(skip);
        // A function that does nothing is shorter than a jump.
        let room = size + padding(bytes.get(skip + size..)?, u64::MAX);
        let code = bytes.get(skip..)?;
        let code = code
            .get(..size.max(1))
            .filter(|_| size < JUMP)
            .unwrap_or(code);
        let prologue = prologue(code, site, 0, room >= JUMP, |_| false).ok()?;
        Some(FunctionHook {
            site,
            prologue,
            work,
        })
    };
    HOOKED
        .into_iter()
        .filter_map(|(name, work)| hook(name, work))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::maps::Maps;
    use crate::trace::x86_64::glance::Glance;
    use crate::trace::x86_64::image::{read_some, segments};
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
