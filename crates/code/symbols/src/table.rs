//! Symbols held compactly: sorted columns and one arena of names.

use std::cmp::Reverse;
use std::mem::size_of_val;

use crate::wanted_addresses::WantedAddresses;

/// No enclosing symbol.
const NONE: u32 = u32::MAX;

/// The rank of a symbol's name among aliases at the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Binding {
    Local,
    Weak,
    Global,
}

/// A symbol on its way into a [`SymbolTable`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewSymbol<'a> {
    pub start: u64,
    /// Zero when unknown: it then reaches to the next symbol or to `limit`.
    pub size: u64,
    /// Where the section (or whatever holds the symbol) ends; no symbol reaches past it.
    pub limit: u64,
    pub binding: Binding,
    /// Declared a function, in contrast to a mere label.
    pub is_function: bool,
    /// The rank of the table that it comes from; the lowest wins among equals.
    pub source: u8,
    /// Index of the owner in the caller's own list (kernel module); zero if there is none.
    pub owner: u16,
    /// The source file's name, for a local symbol whose table tells it; else empty.
    pub file: &'a [u8],
    pub name: &'a [u8],
}

pub(crate) struct Entry {
    start: u64,
    end: u64,
    limit: u64,
    name_at: u32,
    name_len: u32,
    /// One more than the index of the source file's name; zero if none is known.
    file: u32,
    owner: u16,
    binding: Binding,
    is_function: bool,
    source: u8,
    underscores: u8,
}

impl Entry {
    /// A nameless symbol in place of others that nobody asks for: they bound the ones before.
    pub(crate) fn stand_in(start: u64, end: u64, is_function: bool) -> Self {
        Self {
            start,
            end,
            limit: end,
            name_at: 0,
            name_len: 0,
            file: 0,
            owner: 0,
            binding: Binding::Local,
            is_function,
            source: 0,
            underscores: 0,
        }
    }

    fn sized(&self) -> bool {
        self.end > self.start
    }

    /// By address; among aliases the best first: a known size, a declared function, the better
    /// table, then as the linker would bind; of equals the longer name (`memmove`, not `memcpy`), which is
    /// what perf shows.
    fn rank(&self) -> impl Ord + use<> {
        let kind = (
            Reverse(self.sized()),
            Reverse(self.is_function),
            self.source,
        );
        (
            self.start,
            kind,
            Reverse(self.binding),
            Reverse(self.end),
            self.underscores,
            Reverse(self.name_len),
        )
    }
}

/// Collects symbols in any order.
pub(crate) struct TableBuilder {
    entries: Vec<Entry>,
    names: String,
    /// The names of source files; symbols of one file follow each other.
    files: Vec<String>,
    name_budget: usize,
    /// The addresses that will be asked for; `None` for all.
    wanted: Option<WantedAddresses>,
    /// The number of symbols that were offered.
    offered: usize,
}

impl TableBuilder {
    /// A builder that takes at most `name_budget` bytes of names: overlapping names in a hostile
    /// string table could otherwise ask for the square of the file's size.
    pub(crate) fn new(name_budget: usize) -> Self {
        Self {
            entries: Vec::new(),
            names: String::new(),
            files: Vec::new(),
            name_budget: name_budget.min(u32::MAX as usize - 1),
            wanted: None,
            offered: 0,
        }
    }

    /// Only these addresses will be asked for. To be called before any symbol is offered.
    pub(crate) fn want_only(&mut self, addresses: Vec<u64>) {
        self.wanted = Some(WantedAddresses::new(addresses));
    }

    /// Whether the table has to have this symbol, whose name needs not be known yet, for the answers to be those of a
    /// table of all symbols.
    pub(crate) fn wants(&mut self, symbol: &NewSymbol<'_>) -> bool {
        self.offered += 1;
        match &mut self.wanted {
            Some(wanted) => wanted.wants(symbol),
            None => true,
        }
    }

    /// Returns the number of symbols that were offered, aliases and unwanted ones among them.
    pub(crate) fn offered(&self) -> usize {
        self.offered
    }

    /// Adds a symbol; false when the budget for names is spent and it was left out.
    pub(crate) fn push(&mut self, symbol: &NewSymbol<'_>) -> bool {
        if symbol.name.is_empty() || symbol.start >= symbol.limit {
            return true;
        }
        let name = String::from_utf8_lossy(symbol.name);
        let name_at = self.names.len();
        if name_at + name.len() > self.name_budget || self.entries.len() >= NONE as usize {
            return false;
        }
        self.names.push_str(&name);
        let file = self.file(symbol.file);
        let underscores = name
            .bytes()
            .take_while(|&byte| byte == b'_')
            .take(255)
            .count();
        self.entries.push(Entry {
            start: symbol.start,
            end: symbol.start.saturating_add(symbol.size).min(symbol.limit),
            limit: symbol.limit,
            // Both fit: the budget is below u32::MAX.
            name_at: name_at as u32,
            name_len: name.len() as u32,
            file,
            owner: symbol.owner,
            binding: symbol.binding,
            is_function: symbol.is_function,
            source: symbol.source,
            underscores: underscores as u8,
        });
        true
    }

    /// One more than the index of a file's name; zero for an empty one, or one beyond the budget for names.
    fn file(&mut self, name: &[u8]) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let name = String::from_utf8_lossy(name);
        if self.files.last().is_none_or(|last| *last != name) {
            if self.names.len() + name.len() > self.name_budget {
                return 0;
            }
            self.name_budget -= name.len();
            self.files.push(name.into_owned());
        }
        // There are no more files than symbols, whose number fits.
        self.files.len() as u32
    }

    /// Raises the budget for names.
    pub(crate) fn allow(&mut self, more: usize) {
        self.name_budget = self
            .name_budget
            .saturating_add(more)
            .min(u32::MAX as usize - 1);
    }

    /// The best names so far of symbols that start at these (sorted) addresses.
    pub(crate) fn names_at(&self, starts: &[u64]) -> Vec<Option<&str>> {
        let mut best: Vec<Option<&Entry>> = vec![None; starts.len()];
        for entry in &self.entries {
            if let Ok(at) = starts.binary_search(&entry.start)
                && best[at].is_none_or(|known| entry.rank() < known.rank())
            {
                best[at] = Some(entry);
            }
        }
        best.into_iter()
            .map(|entry| entry.map(|entry| self.name(entry)))
            .collect()
    }

    fn name(&self, entry: &Entry) -> &str {
        let at = entry.name_at as usize;
        &self.names[at..at + entry.name_len as usize]
    }

    /// Sorts, chooses among aliases and gives every symbol its end.
    pub(crate) fn finish(mut self) -> SymbolTable {
        let mut entries = std::mem::take(&mut self.entries);
        if let Some(wanted) = &self.wanted {
            entries.extend(wanted.stand_ins());
        }
        // The name makes the choice the same in every run.
        entries.sort_by(|a, b| {
            a.rank()
                .cmp(&b.rank())
                .then_with(|| self.name(a).cmp(self.name(b)))
        });

        let kept = choose(entries);
        let names_len: usize = kept.iter().map(|entry| entry.name_len as usize).sum();
        let mut table = SymbolTable {
            starts: Vec::with_capacity(kept.len()),
            ends: Vec::with_capacity(kept.len()),
            name_ends: Vec::with_capacity(kept.len()),
            enclosing: Vec::with_capacity(kept.len()),
            owners: Vec::new(),
            files_of: Vec::new(),
            files: std::mem::take(&mut self.files),
            names: String::with_capacity(names_len),
        };
        if kept.iter().any(|entry| entry.file != 0) {
            table.files_of = kept.iter().map(|entry| entry.file).collect();
        }
        if kept.iter().any(|entry| entry.owner != 0) {
            table.owners = kept.iter().map(|entry| entry.owner).collect();
        }
        let mut open: Vec<u32> = Vec::new();
        for (index, entry) in kept.iter().enumerate() {
            while open
                .last()
                .is_some_and(|&top| table.ends[top as usize] <= entry.end)
            {
                open.pop();
            }
            table.starts.push(entry.start);
            table.ends.push(entry.end);
            table.enclosing.push(open.last().copied().unwrap_or(NONE));
            table.names.push_str(self.name(entry));
            table.name_ends.push(table.names.len() as u32);
            open.push(index as u32);
        }
        table
    }
}

/// Chooses among aliases; `entries` are sorted by start, best first. The result is sorted by start,
/// and where several start together the longest comes first, so that the last one is the best.
fn choose(entries: Vec<Entry>) -> Vec<Entry> {
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    // The end of the declared functions so far: a label inside one is no function of its own.
    let mut covered_to = 0u64;
    let mut entries = entries.into_iter().peekable();
    while let Some(best) = entries.next() {
        let start = best.start;
        let group = kept.len();
        let best_is_sized = best.sized();
        let mut reach = best.end;
        let inside = !best_is_sized && !best.is_function && start < covered_to;
        if best_is_sized && best.is_function {
            covered_to = covered_to.max(best.end);
        }
        if !inside {
            kept.push(best);
        }
        while let Some(alias) = entries.next_if(|entry| entry.start == start) {
            // A longer alias names what lies behind the end of the better one.
            if alias.sized() && alias.end > reach {
                reach = alias.end;
                if alias.is_function {
                    covered_to = covered_to.max(alias.end);
                }
                kept.push(alias);
            }
        }
        kept[group..].reverse();
    }
    for index in 0..kept.len() {
        if !kept[index].sized() {
            // The only one of its group, so the next entry starts elsewhere.
            let next = kept.get(index + 1).map_or(u64::MAX, |next| next.start);
            kept[index].end = next.min(kept[index].limit);
        }
    }
    kept
}

/// Symbols sorted by address, found by binary search.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    starts: Vec<u64>,
    ends: Vec<u64>,
    /// Where each name ends in `names`; it starts where the one before ends.
    name_ends: Vec<u32>,
    /// The innermost earlier symbol that reaches past this one's end.
    enclosing: Vec<u32>,
    /// Empty when no symbol has an owner.
    owners: Vec<u16>,
    /// Each symbol's file, one more than its index in `files`; empty when no file is known.
    files_of: Vec<u32>,
    files: Vec<String>,
    names: String,
}

/// One symbol of a [`SymbolTable`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol<'a> {
    pub start: u64,
    pub end: u64,
    pub owner: u16,
    pub file: Option<&'a str>,
    pub name: &'a str,
}

impl SymbolTable {
    /// The innermost symbol that covers `address`.
    pub(crate) fn find(&self, address: u64) -> Option<Symbol<'_>> {
        let mut index = self
            .starts
            .partition_point(|&start| start <= address)
            .checked_sub(1)?;
        while address >= self.ends[index] {
            match self.enclosing[index] {
                NONE => return None,
                outer => index = outer as usize,
            }
        }
        self.get(index)
    }

    /// The symbol at a place in address order; of a table for some addresses it may have no name.
    pub(crate) fn get(&self, index: usize) -> Option<Symbol<'_>> {
        let name_start = match index {
            0 => 0,
            _ => *self.name_ends.get(index - 1)? as usize,
        };
        Some(Symbol {
            start: *self.starts.get(index)?,
            end: *self.ends.get(index)?,
            owner: self.owners.get(index).copied().unwrap_or(0),
            file: self.file(index),
            name: self
                .names
                .get(name_start..*self.name_ends.get(index)? as usize)?,
        })
    }

    fn file(&self, index: usize) -> Option<&str> {
        let file = self.files_of.get(index)?.checked_sub(1)?;
        self.files.get(file as usize).map(String::as_str)
    }

    /// Returns the number of symbols.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// Heap memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&self.starts[..])
            + size_of_val(&self.ends[..])
            + size_of_val(&self.name_ends[..])
            + size_of_val(&self.enclosing[..])
            + size_of_val(&self.owners[..])
            + size_of_val(&self.files_of[..])
            + self.files.iter().map(String::len).sum::<usize>()
            + self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, size: u64, name: &str) -> NewSymbol<'_> {
        NewSymbol {
            start,
            size,
            limit: 0x1000,
            binding: Binding::Global,
            is_function: true,
            source: 0,
            owner: 0,
            file: &[],
            name: name.as_bytes(),
        }
    }

    fn table(symbols: &[NewSymbol<'_>]) -> SymbolTable {
        let mut builder = TableBuilder::new(1 << 20);
        for symbol in symbols {
            assert!(builder.push(symbol));
        }
        builder.finish()
    }

    fn name(table: &SymbolTable, address: u64) -> Option<&str> {
        table.find(address).map(|symbol| symbol.name)
    }

    #[test]
    fn ends_are_exclusive_and_gaps_have_no_name() {
        let t = table(&[symbol(0x20, 0x10, "b"), symbol(0x10, 8, "a")]);
        assert_eq!(name(&t, 0xf), None);
        assert_eq!(name(&t, 0x10), Some("a"));
        assert_eq!(name(&t, 0x17), Some("a"));
        assert_eq!(name(&t, 0x18), None);
        assert_eq!(name(&t, 0x2f), Some("b"));
        assert_eq!(name(&t, 0x30), None);
        assert_eq!(name(&SymbolTable::default(), 0), None);
    }

    #[test]
    fn unknown_sizes_reach_to_the_next_symbol_or_the_limit() {
        let t = table(&[symbol(0x10, 0, "a"), symbol(0x40, 0, "last")]);
        assert_eq!(name(&t, 0x3f), Some("a"));
        assert_eq!(name(&t, 0xfff), Some("last"));
        assert_eq!(name(&t, 0x1000), None);
    }

    #[test]
    fn aliases_are_ranked() {
        let local = NewSymbol {
            binding: Binding::Local,
            ..symbol(0x10, 8, "local")
        };
        let weak = NewSymbol {
            binding: Binding::Weak,
            ..symbol(0x10, 8, "weak")
        };
        let global = symbol(0x10, 8, "__global");
        assert_eq!(name(&table(&[local, weak, global]), 0x10), Some("__global"));
        assert_eq!(
            name(&table(&[global, symbol(0x10, 8, "_global")]), 0x10),
            Some("_global")
        );
        assert_eq!(name(&table(&[weak, local]), 0x10), Some("weak"));
        assert_eq!(
            name(&table(&[symbol(0x10, 0, "sizeless"), local]), 0x10),
            Some("local")
        );
        // The longer alias still names what lies behind the better one.
        let longer = NewSymbol {
            binding: Binding::Local,
            ..symbol(0x10, 0x20, "longer")
        };
        let t = table(&[global, longer]);
        assert_eq!(name(&t, 0x17), Some("__global"));
        assert_eq!(name(&t, 0x18), Some("longer"));
    }

    #[test]
    fn nested_symbols_give_way_to_what_encloses_them() {
        let t = table(&[
            symbol(0x10, 0x50, "outer"),
            symbol(0x20, 0x20, "inner"),
            symbol(0x28, 4, "innermost"),
        ]);
        let names: Vec<_> = [0x10, 0x20, 0x28, 0x2c, 0x40, 0x5f, 0x60]
            .map(|a| name(&t, a))
            .into();
        let expected = [
            Some("outer"),
            Some("inner"),
            Some("innermost"),
            Some("inner"),
            Some("outer"),
            Some("outer"),
            None,
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_label_inside_a_function_is_no_function() {
        let label = NewSymbol {
            is_function: false,
            ..symbol(0x18, 0, "label")
        };
        let t = table(&[symbol(0x10, 0x10, "f"), label]);
        assert_eq!(name(&t, 0x1a), Some("f"));
        let free = NewSymbol {
            is_function: false,
            ..symbol(0x20, 0, "free")
        };
        assert_eq!(
            name(&table(&[symbol(0x10, 0x10, "f"), free]), 0x30),
            Some("free")
        );
    }

    /// A table for some addresses answers for them as the whole table does: over many small tables of aliases, nested and
    /// overlapping symbols, and labels.
    #[test]
    fn wanted_addresses_get_the_same_answer() {
        const NAMES: [&str; 6] = ["a", "_b", "__c", "dd", "e", "ff"];
        const BINDINGS: [Binding; 3] = [Binding::Local, Binding::Weak, Binding::Global];
        let mut state = 1_u64;
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % limit
        };
        let mut left_out = 0;
        for round in 0..20_000 {
            let symbols: Vec<NewSymbol<'_>> = (0..below(24))
                .map(|_| {
                    let start = below(40);
                    NewSymbol {
                        start,
                        size: below(8),
                        limit: start + below(20),
                        binding: BINDINGS[below(3) as usize],
                        is_function: below(2) == 0,
                        source: below(3) as u8,
                        owner: 0,
                        file: &[],
                        name: NAMES[below(6) as usize].as_bytes(),
                    }
                })
                .collect();
            let wanted: Vec<u64> = (0..below(10)).map(|_| below(64)).collect();
            let whole = table(&symbols);
            let mut builder = TableBuilder::new(1 << 20);
            builder.want_only(wanted.clone());
            for symbol in &symbols {
                if builder.wants(symbol) {
                    assert!(builder.push(symbol));
                } else {
                    left_out += 1;
                }
            }
            let part = builder.finish();
            for address in wanted {
                let (part, whole) = (part.find(address), whole.find(address));
                assert_eq!(part, whole, "at {address}, round {round}: {symbols:?}");
            }
        }
        assert!(left_out > 1000, "{left_out}");
    }

    #[test]
    fn names_are_bounded() {
        let mut builder = TableBuilder::new(5);
        assert!(builder.push(&symbol(1, 1, "abc")));
        assert!(!builder.push(&symbol(2, 1, "def")));
        assert_eq!(builder.finish().len(), 1);
    }
}
