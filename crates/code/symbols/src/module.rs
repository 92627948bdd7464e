//! A module's functions, ready to be asked.

use std::borrow::Cow;
use std::ops::Range;

use crate::address::RelativeAddress;
use crate::demangle::demangle;
use crate::extents::Extents;
use crate::note::Note;
use crate::table::{Symbol, SymbolTable};

/// The functions of one module.
#[derive(Debug, Default)]
pub struct ModuleSymbols {
    pub(crate) table: SymbolTable,
    pub(crate) notes: Vec<Note>,
    pub(crate) demangle: bool,
    /// The table's address minus the queried address (the kernel may have moved).
    pub(crate) shift: u64,
    /// Names of the owners that symbols refer to; index 0 is "none".
    pub(crate) owners: Vec<String>,
    /// Where functions of a stripped file lie.
    pub(crate) extents: Extents,
}

impl ModuleSymbols {
    /// The function that covers an address.
    ///
    /// For a file and the vdso the address is a **file offset**
    /// (`ip - mapping.start + mapping.pgoff`, see [`FileMapping`](crate::FileMapping)), for the kernel an absolute
    /// address. `None` when no symbol covers it.
    #[must_use]
    pub fn function(&self, address: RelativeAddress) -> Option<Function<'_>> {
        let symbol = self.table.find(address.0.wrapping_add(self.shift))?;
        Some(self.describe(symbol))
    }

    /// Where the function lies that covers an address, also one without a name: first address and the
    /// one behind the last.
    ///
    /// In a stripped file the unwind tables (`.eh_frame`) give this, so that code without a name
    /// can at least be grouped by function. A function that the compiler split has an extent for each
    /// part.
    #[must_use]
    pub fn extent(&self, address: RelativeAddress) -> Option<Range<RelativeAddress>> {
        match self.function(address) {
            Some(function) => Some(function.addresses()),
            None => self.extents.find(address.0).map(RelativeAddress::range),
        }
    }

    /// All functions by rising address, aliases left out.
    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        (0..self.table.len())
            .filter_map(|index| self.table.get(index))
            .map(|symbol| self.describe(symbol))
    }

    /// Returns notes about these names: problems with their remedy, debug files used.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Returns the number of functions with a name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no function has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.table.len() == 0
    }

    /// Heap memory the names and addresses hold, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.table.heap_bytes() + self.extents.heap_bytes()
    }

    fn describe<'a>(&'a self, symbol: Symbol<'a>) -> Function<'a> {
        Function {
            name: if self.demangle {
                demangle(symbol.name)
            } else {
                Cow::Borrowed(symbol.name)
            },
            raw_name: symbol.name,
            start: RelativeAddress(symbol.start.wrapping_sub(self.shift)),
            size: symbol.end - symbol.start,
            file: symbol.file,
            module: match symbol.owner {
                0 => None,
                owner => self.owners.get(usize::from(owner)).map(String::as_str),
            },
        }
    }
}

/// Returns a name for a function without one: its file and its address there, such as `<libz.so.1+0x1234>`.
pub fn place_name(file: &str, place: RelativeAddress) -> String {
    format!("<{file}+{place:#x}>")
}

/// A function and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function<'a> {
    /// The name to show: demangled if the options ask for it.
    pub name: Cow<'a, str>,
    /// The name as the symbol table has it.
    pub raw_name: &'a str,
    /// Its first address.
    pub start: RelativeAddress,
    /// Its length in bytes; for a symbol without a size, up to the next one or the section's end.
    pub size: u64,
    /// The source file's name without its folder, where the symbol table tells it: only local functions (`static` ones) have one,
    /// and a link editor or `strip` may have dropped it.
    pub file: Option<&'a str>,
    /// For the kernel: the loadable module it belongs to, such as `ext4`.
    pub module: Option<&'a str>,
}

impl Function<'_> {
    /// Returns its addresses, from the first one up to the one behind the last.
    #[must_use]
    pub fn addresses(&self) -> Range<RelativeAddress> {
        self.start..self.start + self.size
    }
}
