//! Address spaces: the module at each address, at the time that reading has reached.

use crate::processes::modules::ModuleId;
use crate::stacks::frames::Frame;
use std::cell::Cell;
use std::rc::Rc;

/// A module, or a part of one, from one address until another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub start: u64,
    /// Exclusive.
    pub end: u64,
    /// The load bias: absolute address minus the module's relative address.
    pub bias: u64,
    pub module: ModuleId,
    /// The number of the process's image it belongs to, counted from the first exec; see [`Space::exec`].
    pub image: u32,
}

/// The largest number of mappings that copied spaces may hold together. Real machines stay far below it. A hostile file
/// of forks and mappings could otherwise demand the square of its size.
const COPIES: usize = 1 << 20;

/// Counts the mappings that were copied because one of the processes that shared them changed its space.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopyBudget {
    held: Rc<Cell<usize>>,
    refused: Rc<Cell<u64>>,
}

impl CopyBudget {
    /// Returns the number of spaces that were emptied because the budget was spent.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.get()
    }
}

/// Sorted mappings without overlaps, shared by the spaces of forked processes.
#[derive(Debug, Default)]
struct Shared {
    list: Vec<Mapping>,
    /// The number of mappings that count in `budget`.
    copied: usize,
    budget: CopyBudget,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let held = &self.budget.held;
        held.set(held.get().saturating_sub(self.copied));
    }
}

/// One process's mappings. A forked process shares its parent's mappings until one of both changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Space {
    mappings: Rc<Shared>,
    /// The number of the image that runs now.
    image: u32,
    /// The index of the mapping that held the last address. The next address is likely to lie there too.
    last: usize,
}

impl Space {
    /// Returns the mappings in a list that only this space owns.
    fn own(&mut self, budget: &CopyBudget) -> &mut Vec<Mapping> {
        if Rc::get_mut(&mut self.mappings).is_none() {
            let length = self.mappings.list.len();
            let mut own = Shared::default();
            if budget.held.get() + length > COPIES {
                budget.refused.set(budget.refused.get() + 1);
            } else {
                budget.held.set(budget.held.get() + length);
                own = Shared {
                    list: self.mappings.list.clone(),
                    copied: length,
                    budget: budget.clone(),
                };
            }
            self.mappings = Rc::new(own);
        }
        match Rc::get_mut(&mut self.mappings) {
            Some(shared) => &mut shared.list,
            None => unreachable!("the list was just made, nobody shares it"),
        }
    }

    /// Starts a new image. The previous image's mappings stay until new ones cover them, because samples within the
    /// exec itself still have callers there. Mappings of older images go.
    pub(crate) fn exec(&mut self, budget: &CopyBudget) {
        let image = self.image;
        self.own(budget).retain(|mapping| mapping.image == image);
        self.image = image.wrapping_add(1);
        self.last = 0;
    }

    /// Adds a mapping of the image that runs now. It replaces the mappings that it overlaps.
    pub(crate) fn insert(&mut self, new: Mapping, budget: &CopyBudget) {
        let new = Mapping {
            image: self.image,
            ..new
        };
        if new.start >= new.end {
            return;
        }
        let mappings = self.own(budget);
        let first = mappings.partition_point(|old| old.end <= new.start);
        let after = mappings.partition_point(|old| old.start < new.end);
        // The parts that remain of the cut mappings: a head of the first, a tail of the last.
        let head = mappings
            .get(first)
            .filter(|old| first < after && old.start < new.start)
            .map(|old| Mapping {
                end: new.start,
                ..*old
            });
        let tail = mappings[..after]
            .last()
            .filter(|old| first < after && old.end > new.end)
            .map(|old| Mapping {
                start: new.end,
                ..*old
            });
        let pieces = head.into_iter().chain([new]).chain(tail);
        mappings.splice(first..after.max(first), pieces);
        self.last = 0;
    }

    /// Returns the mapping that holds `address`.
    #[inline]
    pub(crate) fn find(&mut self, address: u64) -> Option<Mapping> {
        if let Some(mapping) = self.mappings.list.get(self.last)
            && (mapping.start..mapping.end).contains(&address)
        {
            return Some(*mapping);
        }
        let index = self
            .mappings
            .list
            .partition_point(|mapping| mapping.end <= address);
        let mapping = self.mappings.list.get(index)?;
        if address < mapping.start {
            return None;
        }
        self.last = index;
        Some(*mapping)
    }

    /// Returns the frame of an address in one of the mappings.
    #[inline]
    pub(crate) fn frame(&mut self, address: u64) -> Option<Frame> {
        let mapping = self.find(address)?;
        Some(Frame {
            module: mapping.module,
            address: address.wrapping_sub(mapping.bias),
        })
    }

    /// Returns all mappings by rising address.
    pub(crate) fn mappings(&self) -> &[Mapping] {
        &self.mappings.list
    }

    /// Returns the lowest mapped address.
    pub(crate) fn start(&self) -> Option<u64> {
        self.mappings.list.first().map(|mapping| mapping.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, end: u64, module: ModuleId) -> Mapping {
        Mapping {
            start,
            end,
            bias: start,
            module,
            image: 0,
        }
    }

    fn ranges(space: &Space) -> Vec<(u64, u64, ModuleId)> {
        space
            .mappings
            .list
            .iter()
            .map(|m| (m.start, m.end, m.module))
            .collect()
    }

    #[test]
    fn a_new_mapping_replaces_what_it_overlaps() {
        let mut space = Space::default();
        let budget = CopyBudget::default();
        let mut add = |start, end, module| {
            space.insert(mapping(start, end, module), &budget);
            ranges(&space)
        };
        add(10, 20, 1);
        add(30, 40, 2);
        assert_eq!(add(20, 30, 3), [(10, 20, 1), (20, 30, 3), (30, 40, 2)]);
        // Into the middle of a mapping.
        assert_eq!(
            add(22, 25, 4)[1..4],
            [(20, 22, 3), (22, 25, 4), (25, 30, 3)]
        );
        // Over several mappings, cutting the outer two.
        assert_eq!(add(15, 35, 5), [(10, 15, 1), (15, 35, 5), (35, 40, 2)]);
        // Exactly over one mapping, and over all mappings.
        assert_eq!(add(15, 35, 6), [(10, 15, 1), (15, 35, 6), (35, 40, 2)]);
        assert_eq!(add(0, 100, 7), [(0, 100, 7)]);
        // An empty mapping changes nothing.
        assert_eq!(add(5, 5, 8), [(0, 100, 7)]);
    }

    #[test]
    fn parts_keep_their_relative_addresses() {
        let mut space = Space::default();
        let budget = CopyBudget::default();
        space.insert(mapping(0x1000, 0x4000, 1), &budget);
        space.insert(mapping(0x2000, 0x3000, 2), &budget);
        assert_eq!(
            space.frame(0x3800),
            Some(Frame {
                module: 1,
                address: 0x2800
            })
        );
        assert_eq!(
            space.frame(0x2800),
            Some(Frame {
                module: 2,
                address: 0x800
            })
        );
        assert_eq!(space.frame(0x0fff), None);
        assert_eq!(space.frame(0x4000), None);
    }

    #[test]
    fn a_fork_shares_until_one_side_changes() {
        let budget = CopyBudget::default();
        let mut parent = Space::default();
        parent.insert(mapping(10, 20, 1), &budget);
        let mut child = parent.clone();
        child.insert(mapping(30, 40, 2), &budget);
        parent.insert(mapping(10, 20, 3), &budget);
        assert_eq!(ranges(&child), [(10, 20, 1), (30, 40, 2)]);
        assert_eq!(ranges(&parent), [(10, 20, 3)]);
        assert_eq!(budget.held.get(), 1);
        child = Space::default();
        assert_eq!(budget.held.get(), 0);
        assert_eq!(child.start(), None);
        assert_eq!(parent.start(), Some(10));
    }

    #[test]
    fn an_exec_keeps_the_image_before_where_the_new_one_is_not() {
        let budget = CopyBudget::default();
        let mut space = Space::default();
        space.insert(mapping(10, 20, 1), &budget);
        space.exec(&budget);
        space.insert(mapping(15, 30, 2), &budget);
        assert_eq!(ranges(&space), [(10, 15, 1), (15, 30, 2)]);
        space.exec(&budget);
        assert_eq!(ranges(&space), [(15, 30, 2)]);
    }

    #[test]
    fn copies_are_bounded() {
        let budget = CopyBudget::default();
        let mut parent = Space::default();
        for index in 0..1000 {
            parent.insert(mapping(10 * index, 10 * index + 10, 1), &budget);
        }
        let children: Vec<_> = (0..2000)
            .map(|_| {
                let mut child = parent.clone();
                child.insert(mapping(5, 6, 2), &budget);
                child
            })
            .collect();
        let held: usize = children.iter().map(|child| child.mappings.list.len()).sum();
        assert!(held < COPIES + 4 * children.len(), "{held}");
        assert!(budget.refused() > 0);
    }
}
