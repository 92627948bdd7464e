//! Which symbols a table needs when the addresses are known that it will be asked for.
//!
//! A program has a hundred thousand functions, its profile a thousand addresses: most symbols need not be named nor
//! sorted. Those that cover an address are kept, and all without a size, which reach as far as others let them. The
//! rest shows only in where such symbols end and in whether a label lies inside a function. Between two addresses that
//! are asked for, two nameless symbols stand for all of it: one at the first start among them, where what has no size
//! and starts before them ends; one at the last start, reaching as far as the functions among them do.

use crate::table::{Entry, NewSymbol};

/// Sorted addresses, and what was left out before each of them.
pub(crate) struct WantedAddresses {
    addresses: Vec<u64>,
    /// By address: the symbols left out between the address before it and it; one more gap lies behind the last.
    gaps: Vec<Gap>,
    /// For each piece of `1 << shift` bytes from the first address on, the first address that lies in it or behind it.
    first: Vec<u32>,
    shift: u32,
}

/// Symbols that were left out. None of them has an address that is asked for.
#[derive(Clone, Copy, Default)]
struct Gap {
    /// Where the first one starts.
    first_start: u64,
    /// Where the last one starts, plus one; zero where there is none.
    last_start: u64,
    /// Where the last function among them ends.
    function_end: u64,
}

impl WantedAddresses {
    pub(crate) fn new(mut addresses: Vec<u64>) -> Self {
        addresses.sort_unstable();
        addresses.dedup();
        // More addresses than 32 bits can count do not come: each was sampled.
        addresses.truncate(u32::MAX as usize);
        let span = match (addresses.first(), addresses.last()) {
            (Some(first), Some(last)) => last - first,
            _ => 0,
        };
        // About as many pieces as addresses, so that most searches end at once.
        let pieces = addresses.len() as u64 + 1;
        let shift = (span / pieces).checked_ilog2().map_or(0, |bits| bits + 1);
        let mut first = Vec::with_capacity((span >> shift) as usize + 1);
        let base = addresses.first().copied().unwrap_or(0);
        for (index, address) in (0_u32..).zip(&addresses) {
            let piece = ((address - base) >> shift) as usize;
            while first.len() <= piece {
                first.push(index);
            }
        }
        Self {
            gaps: vec![Gap::default(); addresses.len() + 1],
            addresses,
            first,
            shift,
        }
    }

    /// The place of the first address at or behind `start`.
    fn index(&self, start: u64) -> usize {
        let Some(base) = self.addresses.first() else {
            return 0;
        };
        let Some(offset) = start.checked_sub(*base) else {
            return 0;
        };
        let Some(first) = self.first.get((offset >> self.shift) as usize) else {
            return self.addresses.len();
        };
        let first = *first as usize;
        let here = &self.addresses[first..];
        // Few lie in one piece, as a rule.
        match here.iter().take(8).position(|address| *address >= start) {
            Some(steps) => first + steps,
            None => first + here.partition_point(|address| *address < start),
        }
    }

    /// Whether the symbol has to be kept; if not, it is left out.
    pub(crate) fn wants(&mut self, symbol: &NewSymbol<'_>) -> bool {
        let start = symbol.start;
        let end = start.saturating_add(symbol.size).min(symbol.limit);
        if end <= start {
            return true;
        }
        let index = self.index(start);
        if self
            .addresses
            .get(index)
            .is_some_and(|address| *address < end)
        {
            return true;
        }
        let gap = &mut self.gaps[index];
        if gap.last_start == 0 || start < gap.first_start {
            gap.first_start = start;
        }
        gap.last_start = gap.last_start.max(start.saturating_add(1));
        if symbol.is_function {
            gap.function_end = gap.function_end.max(end);
        }
        false
    }

    /// Returns entries that stand for the symbols that were left out.
    pub(crate) fn stand_ins(&self) -> impl Iterator<Item = Entry> + '_ {
        let gaps = self.gaps.iter().filter(|gap| gap.last_start > 0);
        gaps.flat_map(|gap| {
            // Each has a byte at least.
            let (start, least) = (gap.last_start - 1, gap.last_start);
            let of_function = gap.function_end > start;
            let last = Entry::stand_in(start, least.max(gap.function_end), of_function);
            let first = Entry::stand_in(gap.first_start, gap.first_start + 1, false);
            [first, last]
        })
    }
}
