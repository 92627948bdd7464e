//! Finds functions of the C library and the dynamic linker that the runtime has to know of.

use super::X86_64;
use super::displace::{JUMP, padding, prologue};
use super::stubs::ENDBR;
use crate::analysis::image::Image;
use crate::analysis::observed::{FunctionHook, OBSERVED, looked_at};

use object::{Object, ObjectSymbol};

/// Returns the functions of the C library or the dynamic linker that the runtime has to know of.
pub fn hooks(data: &[u8]) -> Vec<FunctionHook<X86_64>> {
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
    OBSERVED
        .into_iter()
        .filter_map(|(name, work)| hook(name, work))
        .collect()
}
