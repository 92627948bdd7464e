//! Finds functions of the C library and the dynamic linker that the runtime has to know of.

use super::Aarch64;
use super::displace::{landing, prologue};
use super::encode::words_of;
use crate::analysis::image::Image;
use crate::analysis::observed::{FunctionHook, OBSERVED, looked_at};
use object::{Object, ObjectSymbol};

/// Returns the functions of the C library or the dynamic linker that the runtime has to know of.
pub fn hooks(data: &[u8]) -> Vec<FunctionHook<Aarch64>> {
    let Ok(image) = Image::new(data) else {
        return Vec::new();
    };
    let hook = |name: &str, work| {
        let symbol = image
            .elf
            .dynamic_symbols()
            .find(|symbol| symbol.name() == Ok(name) && !symbol.is_undefined())?;
        let bytes = image.bytes(symbol.address(), looked_at(symbol.size()))?;
        let skip = landing(words_of(bytes).next()?);
        let site = symbol.address() + skip;
        let prologue = prologue(words_of(bytes.get(skip as usize..)?), site).ok()?;
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
