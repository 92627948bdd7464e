//! The function to annotate, by its number in the names of a profile.

use super::{Candidate, FoundFunction, Search, request};
use dioptra_profile::{FrameId, FunctionId, Names, Profile};
use dioptra_symbols::{ModuleKind, RelativeAddress, Symbolizer};
use dioptra_tables::Facts;

/// Returns what [`crate::annotate`] needs of the function with this number in `names`, whether they are demangled or not.
/// `None` if there is no such function, or if it stands for code inside of other functions.
///
/// Unlike [`crate::find_function`] this counts nothing.
pub fn function_with_id(
    profile: &Profile,
    names: &Names,
    symbolizer: &Symbolizer,
    function: FunctionId,
) -> Option<FoundFunction> {
    let named = names.functions().get(function as usize)?;
    if named.is_inlined {
        return None;
    }
    let frames: Vec<FrameId> = (0_u32..)
        .zip(profile.frames().iter())
        .filter(|(id, frame)| frame.module == named.module && names.of_frame(*id) == function)
        .map(|(id, _)| id)
        .collect();
    let module = profile.modules().get(named.module);
    let first = frames.first().map(|id| profile.frames().get(*id).address);
    let raw_name = match (module.kind, first) {
        (ModuleKind::File | ModuleKind::Vdso | ModuleKind::Kernel, Some(address))
            if !named.is_nameless() =>
        {
            let address = RelativeAddress(address);
            let symbols = symbolizer.load_for(&request(module), [address]);
            let symbol = symbols.function(address);
            symbol.map(|symbol| symbol.raw_name.to_owned())
        }
        _ => None,
    };
    // Ranges of places without names are many functions, whatever range it is.
    let unknown = || match named.is_unknown() {
        true => dioptra_profile::UNKNOWN.to_owned(),
        false => named.name.clone(),
    };
    let candidate = Candidate {
        module: named.module,
        raw_name: raw_name.unwrap_or_else(unknown),
        frames,
        samples: 0,
        weight: 0,
    };
    let search = Search {
        profile,
        symbolizer,
        sampled: Vec::new(),
    };
    Some(search.found(candidate, Facts::new()))
}
