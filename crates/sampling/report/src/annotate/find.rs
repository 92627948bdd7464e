//! The choice of the function to annotate.

pub(super) mod by_id;

use super::counts::FrameCounts;
use dioptra_profile::{FrameId, Module, ModuleId, Names, Profile, UNKNOWN};
use dioptra_symbols::{
    FileAddress, FileOffset, ModuleKind, ModuleRequest, ModuleSymbols, RelativeAddress, Symbolizer,
    demangle, is_jit_dump,
};
use dioptra_tables::Facts;
use dioptra_tables::Severity;
use std::collections::BTreeMap;
use std::ops::Range;

/// The most names in a suggestion, or in a fact on functions of the same name.
const MOST_TOLD: usize = 6;
/// The most functions that are listed where a part of a name fits several.
const MOST_LISTED: usize = 20;

/// The function to annotate, and its samples.
#[derive(Clone, Debug)]
pub struct FoundFunction {
    /// Its module.
    pub module: ModuleId,
    /// Its name as the symbol table has it; [`UNKNOWN`] for code without a name.
    pub raw_name: String,
    /// Its relative addresses; `None` where its extent is unknown and only its frames are known.
    pub addresses: Option<Range<u64>>,
    /// The function's frames that have samples.
    pub frames: Vec<FrameId>,
    /// Facts on the choice, such as other functions of the same name.
    pub facts: Facts,
}

/// The reason why there is no function to annotate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The profile has no samples of the events.
    #[error(
        "the profile has no samples of these events, so there is no hottest function; name one"
    )]
    NoSamples,
    /// No function has this name.
    #[error("no function `{wanted}` in the profile's modules{}", suggestion(.similar))]
    NoFunction {
        /// The name that was asked for.
        wanted: String,
        /// Functions whose names begin alike, the hottest first.
        similar: Vec<String>,
    },
    /// Several functions with samples have names that contain the wanted text.
    #[error(
        "`{wanted}` is a part of the names of several functions with samples: {}; give more of the name, or MODULE:0xADDRESS",
        .matches.join(", ")
    )]
    SeveralFunctions {
        /// The part of a name that was asked for.
        wanted: String,
        /// The functions, the hottest first.
        matches: Vec<String>,
    },
    /// There is no function at this address.
    #[error(
        "neither a function nor samples at {address:#x} of {}; addresses are those of objdump, or relative to the module",
        module.as_deref().unwrap_or("any module with samples")
    )]
    NoAddress {
        /// The module, if one was named.
        module: Option<String>,
        /// The address.
        address: u64,
    },
}

fn suggestion(similar: &[String]) -> String {
    if similar.is_empty() {
        return String::new();
    }
    format!("; did you mean {}?", similar.join(", "))
}

/// A function that may have samples.
#[derive(Clone, Debug)]
struct Candidate {
    module: ModuleId,
    raw_name: String,
    frames: Vec<FrameId>,
    /// Samples of all events.
    samples: u64,
    /// Weight of the first event.
    weight: u64,
}

/// A search for a function of a profile.
struct Search<'a> {
    profile: &'a Profile,
    symbolizer: &'a Symbolizer,
    /// A candidate for each function of the names, by [`dioptra_profile::FunctionId`].
    sampled: Vec<Candidate>,
}

/// Finds the function that `wanted` describes: by its name as shown or as the linker knows it, by a part of a name
/// that only one function with samples has, or by an address in it (`0x1234`). The module may stand before each of
/// them (`libm.so.6:exp`, `libm.so.6:0x1234`). Without `wanted`, the function with most weight of the first event is
/// found.
///
/// `names` must be the linker's names: found with [`dioptra_symbols::SymbolOptions::demangle`] unset.
///
/// # Errors
/// [`FindError`] if there is no such function.
pub fn find_function(
    profile: &Profile,
    names: &Names,
    symbolizer: &Symbolizer,
    events: &[usize],
    wanted: Option<&str>,
) -> Result<FoundFunction, FindError> {
    let mut sampled: Vec<Candidate> = names
        .functions()
        .iter()
        .map(|function| Candidate {
            module: function.module,
            raw_name: function.name.clone(),
            frames: Vec::new(),
            samples: 0,
            weight: 0,
        })
        .collect();
    let counts = FrameCounts::of(profile, events);
    for (frame, counts) in counts.iter() {
        let candidate = &mut sampled[names.of_frame(frame) as usize];
        candidate.frames.push(frame);
        candidate.samples += counts.iter().map(|count| count.count.samples).sum::<u64>();
        candidate.weight += counts.first().map_or(0, |count| count.count.weight);
    }
    let search = Search {
        profile,
        symbolizer,
        sampled,
    };
    match wanted {
        None => search.hottest(),
        Some(wanted) => search.named(wanted),
    }
}

/// Returns a request for a module's symbols or code.
pub(super) fn request(module: &Module) -> ModuleRequest<'_> {
    ModuleRequest {
        kind: module.kind,
        path: module.path(),
        build_id: module.build_id.as_deref(),
    }
}

impl Search<'_> {
    fn module(&self, id: ModuleId) -> &Module {
        self.profile.modules().get(id)
    }

    fn hottest(&self) -> Result<FoundFunction, FindError> {
        let sampled = self.sampled.iter().filter(|one| one.samples > 0);
        let best = sampled.max_by_key(|one| (one.weight, one.samples));
        Ok(self.found(best.ok_or(FindError::NoSamples)?.clone(), Facts::new()))
    }

    fn named(&self, wanted: &str) -> Result<FoundFunction, FindError> {
        // A name may hold colons, so every division is tried.
        let divisions = wanted
            .match_indices(':')
            .map(|(at, _)| (Some(&wanted[..at]), &wanted[at + 1..]));
        let divisions: Vec<(Option<&str>, &str)> = std::iter::once((None, wanted))
            .chain(divisions)
            .filter(|(module, function)| {
                !function.is_empty() && module.is_none_or(|module| self.has_module(module))
            })
            .collect();
        for (module, function) in &divisions {
            if let Some(address) = address(function) {
                return self.at_address(*module, address);
            }
            // The better match comes first: the whole name, then the name without its parameters.
            for is_match in [is_name, is_name_without_parameters] {
                let chosen = |one: &&Candidate| {
                    one.samples > 0
                        && is_match(&one.raw_name, function)
                        && module.is_none_or(|module| self.is_module(one.module, module))
                };
                let mut matches: Vec<&Candidate> = self.sampled.iter().filter(chosen).collect();
                matches.sort_by_key(|one| std::cmp::Reverse((one.weight, one.samples)));
                if let Some((best, others)) = matches.split_first() {
                    let mut facts = Facts::new();
                    self.tell_others(others, &mut facts);
                    return Ok(self.found((*best).clone(), facts));
                }
            }
        }
        for (module, function) in &divisions {
            if let Some(found) = self.without_samples(*module, function) {
                return Ok(found);
            }
        }
        self.by_part(wanted, &divisions)
    }

    /// Finds the only function with samples whose name contains the wanted text, as it is written or else in any
    /// case.
    fn by_part(
        &self,
        wanted: &str,
        divisions: &[(Option<&str>, &str)],
    ) -> Result<FoundFunction, FindError> {
        for is_exact in [true, false] {
            for (module, function) in divisions {
                let case = |text: &str| match is_exact {
                    true => text.to_owned(),
                    false => text.to_lowercase(),
                };
                let part = case(function);
                let contains = |one: &&Candidate| {
                    one.samples > 0
                        && module.is_none_or(|module| self.is_module(one.module, module))
                        && case(&demangle(&one.raw_name)).contains(&part)
                };
                let mut found: Vec<&Candidate> = self.sampled.iter().filter(contains).collect();
                found.sort_by_key(|one| std::cmp::Reverse((one.weight, one.samples)));
                let Some((only, others)) = found.split_first() else {
                    continue;
                };
                if others.is_empty() {
                    let name = dioptra_tables::escape(&demangle(&only.raw_name));
                    let mut facts = Facts::new();
                    facts.add(
                        Severity::Info,
                        "part_of_name",
                        format!("`{wanted}` is a part of the name of {name} only"),
                        name,
                    );
                    return Ok(self.found((*only).clone(), facts));
                }
                return Err(FindError::SeveralFunctions {
                    wanted: wanted.to_owned(),
                    matches: self.listed(&found),
                });
            }
        }
        Err(self.no_function(wanted, divisions))
    }

    /// Returns the first functions as `module:name`, the form in which a user asks for them, and the number of
    /// further ones.
    fn listed(&self, found: &[&Candidate]) -> Vec<String> {
        let mut list: Vec<String> = found
            .iter()
            .take(MOST_LISTED)
            .map(|one| {
                let name = dioptra_tables::escape(&demangle(&one.raw_name));
                let module = dioptra_tables::escape(&self.module(one.module).label);
                format!("{module}:{name} ({} samples)", one.samples)
            })
            .collect();
        if let Some(more @ 1..) = found.len().checked_sub(MOST_LISTED) {
            list.push(format!("and {more} more"));
        }
        list
    }

    /// Returns the error for an unknown name. Its suggestions are functions with samples whose names contain the
    /// beginning of the wanted text.
    fn no_function(&self, wanted: &str, divisions: &[(Option<&str>, &str)]) -> FindError {
        let mut similar: Vec<&Candidate> = Vec::new();
        for (_, function) in divisions.iter().rev() {
            let own = function.to_lowercase();
            let length = own.chars().count();
            for kept in (length.div_ceil(2).max(3)..length).rev() {
                let part: String = own.chars().take(kept).collect();
                let contains = |one: &&Candidate| {
                    one.samples > 0 && demangle(&one.raw_name).to_lowercase().contains(&part)
                };
                similar = self.sampled.iter().filter(contains).collect();
                if !similar.is_empty() {
                    break;
                }
            }
            if !similar.is_empty() {
                break;
            }
        }
        similar.sort_by_key(|one| std::cmp::Reverse((one.weight, one.samples)));
        let mut similar: Vec<String> = similar
            .into_iter()
            .map(|one| dioptra_tables::escape(&demangle(&one.raw_name)))
            .collect();
        similar.dedup();
        similar.truncate(MOST_TOLD);
        FindError::NoFunction {
            wanted: wanted.to_owned(),
            similar,
        }
    }

    fn is_module(&self, id: ModuleId, name: &str) -> bool {
        let module = self.module(id);
        module.label == name || module.path == name.as_bytes()
    }

    fn has_module(&self, name: &str) -> bool {
        let mut modules = self.profile.modules().iter();
        modules.any(|module| module.label == name || module.path == name.as_bytes())
    }

    /// Returns the modules that may hold the function: those of this name, or all of them.
    fn modules<'b>(
        &'b self,
        name: Option<&'b str>,
    ) -> impl Iterator<Item = (ModuleId, &'b Module)> {
        (0..)
            .zip(self.profile.modules().iter())
            .filter(move |(id, _)| name.is_none_or(|name| self.is_module(*id, name)))
    }

    /// Adds a fact on other functions of the same name.
    fn tell_others(&self, others: &[&Candidate], facts: &mut Facts) {
        if others.is_empty() {
            return;
        }
        let list: Vec<String> = others
            .iter()
            .map(|one| {
                let module = self.module(one.module);
                let frame = one
                    .frames
                    .first()
                    .map(|frame| self.profile.frames().get(*frame));
                let address = frame.map_or(0, |frame| {
                    let code = self.symbolizer.code(&request(module));
                    let virtual_address = code.virtual_address(RelativeAddress(frame.address));
                    virtual_address.map_or(frame.address, |address| address.0)
                });
                format!("{}:{address:#x} ({} samples)", module.label, one.samples)
            })
            .collect();
        let shown = &list[..list.len().min(MOST_TOLD)];
        let more = if list.len() > shown.len() {
            ", …"
        } else {
            ""
        };
        facts.add(
            Severity::Info,
            "same_name",
            format!(
                "{} more function{} of this name with samples, reached by {}{more}",
                list.len(),
                if list.len() == 1 { "" } else { "s" },
                shown.join(", ")
            ),
            list.clone(),
        );
    }

    /// Finds a function in the symbol tables of modules where no sample lies in it.
    fn without_samples(&self, module: Option<&str>, function: &str) -> Option<FoundFunction> {
        for is_match in [is_name, is_name_without_parameters] {
            for (id, module) in self.modules(module) {
                if module.kind == ModuleKind::NotAFile {
                    continue;
                }
                let symbols = self.symbolizer.load(&request(module));
                let found = symbols
                    .functions()
                    .find(|one| is_match(one.raw_name, function));
                if let Some(found) = found {
                    let mut facts = Facts::new();
                    facts.add(
                        Severity::Info,
                        "no_samples",
                        format!("no sample lies in {}", dioptra_tables::escape(&found.name)),
                        true,
                    );
                    return Some(FoundFunction {
                        module: id,
                        raw_name: found.raw_name.to_owned(),
                        addresses: Some(RelativeAddress::numbers(&found.addresses())),
                        frames: Vec::new(),
                        facts,
                    });
                }
            }
        }
        None
    }

    /// Finds the function at an address of a module, or of any module with samples there.
    fn at_address(&self, module: Option<&str>, address: u64) -> Result<FoundFunction, FindError> {
        let mut best: Option<(u64, FoundFunction)> = None;
        for (id, of_module) in self.modules(module) {
            if !self.sampled.iter().any(|one| one.module == id) && module.is_none() {
                continue;
            }
            for found in self.readings(id, of_module, address) {
                let samples = self.samples_of(&found);
                if (module.is_some() || samples > 0)
                    && best.as_ref().is_none_or(|(most, _)| samples > *most)
                {
                    best = Some((samples, found));
                }
                // The first reading is objdump's address, which is preferred whatever the samples.
                if module.is_some() {
                    break;
                }
            }
            if module.is_some() && best.is_some() {
                break;
            }
        }
        let Some((_, found)) = best else {
            return Err(FindError::NoAddress {
                module: module.map(str::to_owned),
                address,
            });
        };
        Ok(found)
    }

    fn samples_of(&self, found: &FoundFunction) -> u64 {
        let chosen = |one: &&Candidate| {
            one.module == found.module
                && one.frames.iter().any(|frame| found.frames.contains(frame))
        };
        self.sampled
            .iter()
            .filter(chosen)
            .map(|one| one.samples)
            .sum()
    }

    /// Returns the functions that an address of a module may mean: read as objdump's address, then as a relative one.
    fn readings(&self, id: ModuleId, module: &Module, address: u64) -> Vec<FoundFunction> {
        let code = self.symbolizer.code(&request(module));
        let symbols = self.symbolizer.load(&request(module));
        let mut meant: Vec<RelativeAddress> =
            code.relative(FileAddress(address)).into_iter().collect();
        if !meant.contains(&RelativeAddress(address)) {
            meant.push(RelativeAddress(address));
        }
        let mut found: Vec<FoundFunction> = Vec::new();
        for relative in meant {
            let one = self.at_relative(id, relative, &symbols);
            found.extend(one);
        }
        if let [first, second] = &mut found[..]
            && first.addresses != second.addresses
        {
            let other = dioptra_tables::escape(&demangle(&second.raw_name));
            first.facts.add(
                Severity::Info,
                "address_reading",
                format!(
                    "{address:#x} is taken as objdump's address; as one relative to the module it lies in {other}"
                ),
                other.clone(),
            );
        }
        found
    }

    fn at_relative(
        &self,
        id: ModuleId,
        relative: RelativeAddress,
        symbols: &ModuleSymbols,
    ) -> Option<FoundFunction> {
        let at = |frame: &&FrameId| self.profile.frames().get(**frame).address == relative.0;
        let of_module = || self.sampled.iter().filter(|one| one.module == id);
        let Some(extent) = symbols.extent(relative) else {
            // No symbol covers the address, but a frame with samples may lie there.
            let one = of_module().find(|one| one.frames.iter().find(at).is_some())?;
            return Some(self.found(one.clone(), Facts::new()));
        };
        let extent = RelativeAddress::numbers(&extent);
        let raw_name = match symbols.function(relative) {
            Some(function) => function.raw_name.to_owned(),
            // The profile's names call a function without a name so.
            None => format!("[{:#x}]", extent.start),
        };
        let frames = of_module()
            .filter(|one| one.raw_name == raw_name)
            .flat_map(|one| &one.frames)
            .filter(|frame| extent.contains(&self.profile.frames().get(**frame).address));
        let frames = frames.copied().collect();
        Some(FoundFunction {
            module: id,
            raw_name,
            addresses: Some(extent),
            frames,
            facts: Facts::new(),
        })
    }

    /// Makes a found function of a candidate: adds its addresses.
    fn found(&self, one: Candidate, mut facts: Facts) -> FoundFunction {
        let module = self.module(one.module);
        let first = one.frames.first();
        let first = first.map(|frame| self.profile.frames().get(*frame).address);
        let mut frames = one.frames;
        let addresses = match (module.kind, first) {
            (ModuleKind::NotAFile, _) if is_jit_dump(module.path()) => {
                self.jit_version(module, &mut frames, &mut facts)
            }
            // Frames without a name may belong to many functions, so they have no extent.
            (ModuleKind::File | ModuleKind::Vdso | ModuleKind::Kernel, Some(address))
                if one.raw_name != UNKNOWN =>
            {
                let address = RelativeAddress(address);
                let symbols = self.symbolizer.load_for(&request(module), [address]);
                let extent = symbols.extent(address);
                extent.map(|extent| RelativeAddress::numbers(&extent))
            }
            _ => None,
        };
        FoundFunction {
            module: one.module,
            raw_name: one.raw_name,
            addresses,
            frames,
            facts,
        }
    }

    /// Returns the addresses of the version with most places, and reduces `frames` to it. A JIT compiler may make a
    /// function several times.
    fn jit_version(
        &self,
        module: &Module,
        frames: &mut Vec<FrameId>,
        facts: &mut Facts,
    ) -> Option<Range<u64>> {
        let symbols = self.symbolizer.jit_dump(module.path());
        let mut versions: BTreeMap<(u64, u64), Vec<FrameId>> = BTreeMap::new();
        for frame in frames.iter() {
            let address = self.profile.frames().get(*frame).address;
            let function = symbols.function_in_file(FileOffset(address))?;
            let version = (function.start.0, function.size);
            versions.entry(version).or_default().push(*frame);
        }
        if versions.len() > 1 {
            facts.add(
                Severity::Loss,
                "versions",
                format!(
                    "the function was made {} times while the program ran; this is the version with most places",
                    versions.len()
                ),
                versions.len(),
            );
        }
        let ((start, size), best) = versions.into_iter().max_by_key(|(_, list)| list.len())?;
        *frames = best;
        Some(start..start.checked_add(size)?)
    }
}

/// Parses an address such as `0x1234`.
fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn is_name(raw: &str, wanted: &str) -> bool {
    raw == wanted || demangle(raw) == wanted
}

/// Returns whether `wanted` is the demangled name without its parameters: `name` of `name(int)`, `name<T>` of
/// `name<T>(T)`.
fn is_name_without_parameters(raw: &str, wanted: &str) -> bool {
    let name = demangle(raw);
    let Some(rest) = name.strip_prefix(wanted) else {
        // The demangled names of template functions begin with the return type.
        return name.contains('<')
            && name
                .split_once(' ')
                .and_then(|(_, name)| name.strip_prefix(wanted))
                .is_some_and(|rest| rest.starts_with('('));
    };
    rest.starts_with('(')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_with_and_without_parameters() {
        let raw = "_ZN4work3addEii";
        assert!(is_name(raw, raw) && is_name(raw, "work::add(int, int)"));
        assert!(is_name_without_parameters(raw, "work::add"));
        assert!(!is_name_without_parameters(raw, "work::ad"));
        assert!(is_name_without_parameters("_Z3sumIiET_S0_", "sum<int>"));
        assert_eq!(address("0x1f"), Some(31));
        assert_eq!(address("1f"), None);
    }
}
