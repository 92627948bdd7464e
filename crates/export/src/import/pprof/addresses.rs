//! The places of a profile's locations in the recording.
//!
//! A location keeps its address if its mapping holds it, and if no other location is there in the same role. All others
//! get made-up addresses in their modules: those of interpreters, which have no addresses, and those that differ only in
//! their functions.

use super::tables::{Mapping, Tables};
use crate::import::error::ImportError;
use crate::import::names::{Location, Mapped, ModuleIndex, Part};
use crate::import::omitted::OmittedKind;
use crate::import::recording::{NO_MODULE, Recording};
use dioptra_perfdata::{ImportedFrame, ImportedRole};
use hashbrown::HashMap;
use std::io::{Seek, Write};

/// The first address of the kernel's half.
const KERNEL_HALF: u64 = 0xffff_8000_0000_0000;
/// The longest build id of a recording, in bytes.
const LONGEST_BUILD_ID: usize = 20;

/// The module of a mapping.
#[derive(Clone, Copy, Debug)]
struct Placed {
    /// `None` for the mapping of addresses that lie in no module.
    module: Option<ModuleIndex>,
    mapping: Mapping,
    is_kernel: bool,
}

/// The locations at one address.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    /// By role: the index of the location.
    by_role: [Option<u32>; 2],
    /// The function whose code it is.
    outermost: Option<u32>,
}

/// The places of all locations, found as they are met.
pub(super) struct Addresses {
    /// By mapping.
    placed: Vec<Placed>,
    no_module: Option<ModuleIndex>,
    /// By location and role.
    found: Vec<[Option<Location>; 2]>,
    claims: HashMap<(ModuleIndex, u64), Claim>,
    /// The number of locations that have lost their address.
    pub moved: u64,
}

impl Addresses {
    /// Adds the modules of all mappings.
    pub(super) fn new<W: Write + Seek>(
        tables: &Tables<'_>,
        recording: &mut Recording<'_, W>,
    ) -> Result<Addresses, ImportError> {
        let mut placed = Vec::with_capacity(tables.mappings.len());
        // By path: the build id of the mapping that was met first.
        let mut builds: HashMap<&str, &str> = HashMap::new();
        let mut ranges: Vec<Mapped> = Vec::new();
        for mapping in &tables.mappings {
            let path = tables.text(mapping.file)?;
            let build = tables.text(mapping.build_id)?;
            let is_kernel = path.starts_with("[kernel")
                || (path.starts_with('[') && mapping.offset >= KERNEL_HALF);
            if path == "[unknown]" {
                placed.push(Placed {
                    module: None,
                    mapping: *mapping,
                    is_kernel: false,
                });
                continue;
            }
            let range = Mapped {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
            };
            let overlaps = |other: &Mapped| other.start < range.end && range.start < other.end;
            let is_known_build = *builds.entry(path).or_insert(build) == build;
            let is_free = is_known_build
                && range.start < range.end
                && (is_kernel || !ranges.iter().any(overlaps));
            if is_free && !is_kernel {
                ranges.push(range);
            }
            let mapped = is_free.then(|| match is_kernel {
                // Addresses of the kernel are relative to nothing.
                true => Mapped {
                    start: range.offset,
                    end: range.offset.saturating_add(range.end - range.start),
                    offset: range.offset,
                },
                false => range,
            });
            let build_id = match build {
                "" => None,
                text => {
                    let id = from_hex(text);
                    let lost = u64::from(id.is_none());
                    recording.omissions.add_many(OmittedKind::BuildIds, lost);
                    id
                }
            };
            let path = if path.is_empty() { NO_MODULE } else { path };
            let module = recording
                .names
                .add_module(path, build_id, mapped, is_kernel);
            placed.push(Placed {
                module: Some(module),
                mapping: *mapping,
                is_kernel,
            });
        }
        Ok(Addresses {
            placed,
            no_module: None,
            found: vec![[None; 2]; tables.locations.len()],
            claims: HashMap::new(),
            moved: 0,
        })
    }

    /// Returns whether a location lies in the kernel.
    pub(super) fn in_kernel(&self, tables: &Tables<'_>, index: u32) -> bool {
        let mapping = tables.locations[index as usize].mapping;
        mapping.is_some_and(|mapping| self.placed[mapping as usize].is_kernel)
    }

    /// Returns the place of a location in a role, and names it when it is met first.
    pub(super) fn find<W: Write + Seek>(
        &mut self,
        tables: &Tables<'_>,
        recording: &mut Recording<'_, W>,
        index: u32,
        role: ImportedRole,
    ) -> Result<Location, ImportError> {
        let by_role = usize::from(role == ImportedRole::Calls);
        if let Some(known) = self.found[index as usize][by_role] {
            return Ok(known);
        }
        let location = tables.locations[index as usize];
        let lines = tables.lines(&location);
        let mut frames: Vec<ImportedFrame> = Vec::with_capacity(lines.len());
        for line in lines {
            let function = tables.functions[line.function as usize];
            let system_name = tables.text(function.system_name)?;
            let name = match tables.text(function.name)? {
                "" => system_name,
                name => name,
            };
            let link_name = if system_name.is_empty() {
                name
            } else {
                system_name
            };
            let file = tables.text(function.file)?;
            frames.push(ImportedFrame {
                function: recording.names.function(name, link_name),
                file: (!file.is_empty()).then(|| recording.names.text(file)),
                line: line.line,
            });
        }
        let found = match self.at_its_address(tables, recording, index, by_role, &frames) {
            Some(found) => found,
            None => {
                // Both roles share a made-up address.
                let other = self.found[index as usize][1 - by_role];
                match other.filter(|other| other.part == Part::MadeUp) {
                    Some(other) => other,
                    None => self.make_up(tables, recording, index),
                }
            }
        };
        recording.names.name(found, role, &frames);
        self.found[index as usize][by_role] = Some(found);
        Ok(found)
    }

    /// Returns the place of a location at its own address; `None` if it has none, or the address is another one's.
    fn at_its_address<W: Write + Seek>(
        &mut self,
        tables: &Tables<'_>,
        recording: &Recording<'_, W>,
        index: u32,
        role: usize,
        frames: &[ImportedFrame],
    ) -> Option<Location> {
        let location = tables.locations[index as usize];
        let is_unknown = |frame: &ImportedFrame| {
            let function = tables.lines(&location)[0].function;
            let name = tables.text(tables.functions[function as usize].name);
            frame.line.is_none() && name.is_ok_and(|name| name == "[unknown]")
        };
        let has_no_name = match frames {
            [] => true,
            [only] => is_unknown(only),
            _ => false,
        };
        let placed = location
            .mapping
            .map(|mapping| self.placed[mapping as usize]);
        let Some(placed) = placed else {
            return (has_no_name && location.address != 0)
                .then(|| Location::nowhere(location.address));
        };
        let from_start = location.address.wrapping_sub(placed.mapping.start);
        let relative = placed.mapping.offset.wrapping_add(from_start);
        let Some(module) = placed.module else {
            return has_no_name.then(|| Location::nowhere(relative));
        };
        let mapped = recording.names.module(module).mapped?;
        let address = match placed.is_kernel {
            true => relative,
            false => location.address,
        };
        if !(mapped.start..mapped.end).contains(&address) {
            return None;
        }
        let claim = self.claims.entry((module, address)).or_default();
        let outermost = frames.last().map(|frame| frame.function);
        let is_claimed = claim.by_role[role].is_some_and(|owner| owner != index);
        let has_other = claim.by_role[1 - role].is_some() && claim.outermost != outermost;
        if is_claimed || has_other {
            return None;
        }
        claim.by_role[role] = Some(index);
        claim.outermost = outermost;
        Some(Location {
            module,
            part: Part::Mapped,
            address,
            in_kernel: recording.names.module(module).is_kernel,
        })
    }

    fn make_up<W: Write + Seek>(
        &mut self,
        tables: &Tables<'_>,
        recording: &mut Recording<'_, W>,
        index: u32,
    ) -> Location {
        let location = tables.locations[index as usize];
        self.moved += u64::from(location.address != 0);
        let placed = location
            .mapping
            .map(|mapping| self.placed[mapping as usize]);
        let module = placed.and_then(|placed| placed.module);
        let module = module.or(self.no_module).unwrap_or_else(|| {
            let module = recording.names.add_module(NO_MODULE, None, None, false);
            *self.no_module.insert(module)
        });
        recording.names.make_up(module)
    }
}

/// Returns the bytes of a hexadecimal text; `None` for other texts, and those that are too long.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || text.len() > 2 * LONGEST_BUILD_ID || !text.is_ascii() {
        return None;
    }
    let digits = (0..text.len()).step_by(2);
    let bytes = digits.map(|at| u8::from_str_radix(&text[at..at + 2], 16));
    bytes.collect::<Result<_, _>>().ok()
}
