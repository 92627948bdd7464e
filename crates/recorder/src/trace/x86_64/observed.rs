//! Functions of the C library and the dynamic linker that the runtime has to know of.

use super::displace::{JUMP, Prologue, padding, prologue};
use super::image::{ENDBR, Image};

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
        let bytes = image.bytes(symbol.address(), symbol.size().max(16))?;
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
    [
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
    ]
    .into_iter()
    .filter_map(|(name, work)| hook(name, work))
    .collect()
}
