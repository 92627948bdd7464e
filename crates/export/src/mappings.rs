//! One mapping for each module.
//!
//! The format has one address space, while a recording may have thousands of processes. Each module therefore gets one
//! mapping: the place where the first process had it, unless another module's mapping lies there already.

use crate::source::Source;
use dioptra_profile::{Frame, MappedSpan, Module, ModuleId};
use dioptra_symbols::ModuleKind;

/// The mapping of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The number in the file, from 1. Number 1 is the main program, if it has locations.
    pub id: u64,
    pub module: ModuleId,
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub end: u64,
    /// The module's relative address at `start`.
    pub offset: u64,
    /// Whether a location lies in it.
    is_used: bool,
}

/// The mappings of all modules.
pub(crate) struct Mappings {
    list: Vec<Mapping>,
    /// By module: its place in `list`.
    of_module: Vec<Option<usize>>,
}

/// The size to which mappings are rounded.
const PAGE: u64 = 4096;
/// The address from which on mappings are put that have no place of their own. No process has memory there.
const FREE: u64 = 1 << 56;

/// The largest size of a mapping: a process's whole memory. Addresses of one file are closer together; those of `[unknown]`,
/// which stands for all addresses outside of known mappings, may be anywhere.
const LARGEST: u64 = 1 << 47;

impl Mappings {
    pub(crate) fn of(source: &Source<'_>) -> Mappings {
        let profile = source.profile;
        let modules = profile.modules().len();
        // By module: the lowest and the highest relative address.
        let mut extents: Vec<Option<(u64, u64)>> = vec![None; modules];
        for frame in profile.frames().iter() {
            let extent = &mut extents[frame.module as usize];
            let (low, high) = extent.unwrap_or((frame.address, frame.address));
            *extent = Some((low.min(frame.address), high.max(frame.address)));
        }
        let spans = spans(source, &extents);
        let mut order: Vec<usize> = (0..modules).filter(|id| extents[*id].is_some()).collect();
        let main = main_module(source);
        order.sort_by_key(|id| Some(*id) != main.map(|main| main as usize));
        Mappings::place(&order, &extents, &spans)
    }

    /// Places modules in this order, each with the lowest and the highest of its relative addresses. A module whose
    /// addresses lie farther apart than a process's memory is large overlaps the others: nothing else has room for it.
    fn place(
        order: &[usize],
        extents: &[Option<(u64, u64)>],
        spans: &[Option<MappedSpan>],
    ) -> Mappings {
        let mut mappings = Mappings {
            list: Vec::new(),
            of_module: vec![None; extents.len()],
        };
        let mut free = FREE;
        for &module in order {
            let Some((low, high)) = extents[module] else {
                continue;
            };
            let mut mapping = Mapping {
                id: mappings.list.len() as u64 + 1,
                module: ModuleId::try_from(module).unwrap_or(ModuleId::MAX),
                is_used: false,
                ..placed(low, high, spans[module])
            };
            let size = mapping.end - mapping.start;
            let is_wide = |mapping: &Mapping| mapping.end - mapping.start > LARGEST;
            let overlaps = |other: &Mapping| {
                !is_wide(other) && other.start < mapping.end && mapping.start < other.end
            };
            if !is_wide(&mapping) && mappings.list.iter().any(overlaps) {
                mapping.start = free;
                mapping.end = free.saturating_add(size);
                free = mapping.end.saturating_add(PAGE).next_multiple_of(PAGE);
            }
            mappings.of_module[module] = Some(mappings.list.len());
            mappings.list.push(mapping);
        }
        mappings
    }

    /// Returns the number of a frame's mapping, and the frame's address in it.
    pub(crate) fn address(&mut self, frame: Frame) -> (u64, u64) {
        match self.of_module[frame.module as usize] {
            Some(place) => {
                let mapping = &mut self.list[place];
                mapping.is_used = true;
                let from_start = frame.address.wrapping_sub(mapping.offset);
                (mapping.id, mapping.start.wrapping_add(from_start))
            }
            None => (0, frame.address),
        }
    }

    /// Returns a module's mapping.
    pub(crate) fn of_module(&self, module: ModuleId) -> Option<Mapping> {
        let place = self.of_module[module as usize]?;
        Some(self.list[place])
    }

    /// Returns the mappings in which locations lie, and always the main program's.
    pub(crate) fn used(&self) -> Vec<Mapping> {
        let used = self.list.iter();
        let used = used.filter(|mapping| mapping.is_used || mapping.id == 1);
        used.copied().collect()
    }
}

/// Returns a module's path, or the name in tables of a module that is no file.
pub(crate) fn file_name(module: &Module) -> &[u8] {
    match module.kind {
        ModuleKind::File if !module.path.is_empty() => &module.path,
        _ => module.label.as_bytes(),
    }
}

/// Returns the place of a module whose relative addresses go from `low` to `high`: that of `span`, made larger where
/// addresses lie beyond it; or the relative addresses themselves.
fn placed(low: u64, high: u64, span: Option<MappedSpan>) -> Mapping {
    let mapping = |start: u64, end: u64, offset: u64| Mapping {
        id: 0,
        module: 0,
        start,
        end,
        offset,
        is_used: false,
    };
    let Some(span) = span else {
        let start = low - low % PAGE;
        let end = high
            .checked_add(1)
            .and_then(|end| end.checked_next_multiple_of(PAGE));
        return mapping(start, end.unwrap_or(u64::MAX), start);
    };
    let before = span
        .offset
        .saturating_sub(low)
        .next_multiple_of(PAGE)
        .min(span.start);
    let size = (span.end - span.start).max(high.saturating_sub(span.offset).saturating_add(1));
    mapping(
        span.start - before,
        span.start.saturating_add(size),
        span.offset.wrapping_sub(before),
    )
}

/// Returns for each module the span that holds all its addresses, or the first span there is.
fn spans(source: &Source<'_>, extents: &[Option<(u64, u64)>]) -> Vec<Option<MappedSpan>> {
    let mut found: Vec<Option<MappedSpan>> = vec![None; extents.len()];
    let mut complete = vec![false; extents.len()];
    let mut missing = extents.iter().flatten().count();
    for process in 0..source.profile.tasks().processes().len() {
        let Ok(process) = u32::try_from(process) else {
            break;
        };
        for span in source.profile.mappings(process) {
            let module = span.module as usize;
            let Some((low, high)) = extents.get(module).copied().flatten() else {
                continue;
            };
            if complete[module] {
                continue;
            }
            let holds = |address: u64| {
                let inside = address.checked_sub(span.offset);
                inside.is_some_and(|inside| inside < span.end - span.start)
            };
            if holds(low) && holds(high) {
                complete[module] = true;
                missing -= 1;
                found[module] = Some(span);
            } else {
                found[module].get_or_insert(span);
            }
        }
        if missing == 0 {
            break;
        }
    }
    found
}

/// Returns the executable that has most samples of the first event.
fn main_module(source: &Source<'_>) -> Option<ModuleId> {
    let profile = source.profile;
    let mut samples = vec![0_u64; profile.modules().len()];
    let event = source.event(*source.events.first()?);
    profile.counts(event, |key, _, count| {
        let image = profile.sample_keys().get(key).image;
        let image = image.map(|image| &profile.tasks().images()[image as usize]);
        if let Some(module) = image.and_then(|image| image.executable) {
            samples[module as usize] += count.samples;
        }
    });
    let most = samples
        .iter()
        .enumerate()
        .max_by_key(|(_, samples)| **samples)?;
    (*most.1 > 0).then(|| ModuleId::try_from(most.0).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, end: u64, offset: u64) -> MappedSpan {
        MappedSpan {
            start,
            end,
            offset,
            module: 1,
            from: None,
            until: None,
        }
    }

    fn range(mapping: Mapping) -> (u64, u64, u64) {
        (mapping.start, mapping.end, mapping.offset)
    }

    #[test]
    fn a_module_lies_where_it_was_mapped() {
        let mapped = span(0x7f00_0000, 0x7f01_0000, 0x1000);
        let inside = placed(0x1200, 0x1300, Some(mapped));
        assert_eq!(range(inside), (0x7f00_0000, 0x7f01_0000, 0x1000));
        // Addresses beyond both ends make it larger.
        let beyond = placed(0x800, 0x2_0000, Some(mapped));
        assert_eq!(range(beyond), (0x7eff_f000, 0x7f01_f001, 0));
        // Without a mapping, relative addresses are addresses.
        assert_eq!(
            range(placed(0x1234, 0x1fff, None)),
            (0x1000, 0x2000, 0x1000)
        );
        assert_eq!(range(placed(0, u64::MAX, None)), (0, u64::MAX, 0));
    }
    #[test]
    fn addresses_from_everywhere_overlap_all_modules() {
        let extents = [
            Some((0x1000, 0x2000)),
            Some((0, 0xffff_bbb4_ffff_bc2c)),
            None,
            Some((0x1800, 0x1900)),
        ];
        let placed = Mappings::place(&[0, 1, 2, 3], &extents, &[None; 4]);
        let places: Vec<_> = (0..4).map(|id| placed.of_module(id).map(range)).collect();
        assert_eq!(
            places,
            [
                Some((0x1000, 0x3000, 0x1000)),
                Some((0, 0xffff_bbb4_ffff_c000, 0)),
                None,
                // The first module lies there already.
                Some((FREE, FREE + 0x1000, 0x1000)),
            ]
        );
    }
}
