//! The kinds of addresses, each a type of its own, and the ways from one kind to another.
//!
//! Bare numbers of different kinds could be mixed up without an error, and would give wrong names. Code that computes takes
//! the number out (`.0`).

use std::fmt;
use std::ops::{Add, Range, Sub};

/// Makes a type for a kind of address.
macro_rules! address {
    ($(#[$docs:meta])* $name:ident) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// Returns a range of addresses by its numbers.
            #[inline]
            #[must_use]
            pub fn range(numbers: Range<u64>) -> Range<Self> {
                Self(numbers.start)..Self(numbers.end)
            }

            /// Returns the numbers of a range of addresses.
            #[inline]
            #[must_use]
            pub fn numbers(range: &Range<Self>) -> Range<u64> {
                range.start.0..range.end.0
            }

            /// Returns the address `bytes` further on; `None` beyond the largest number.
            #[inline]
            #[must_use]
            pub fn checked_add(self, bytes: u64) -> Option<Self> {
                self.0.checked_add(bytes).map(Self)
            }

            /// Returns the distance from another address to this one, in bytes; `None` if this one comes first.
            #[inline]
            #[must_use]
            pub fn checked_sub(self, other: Self) -> Option<u64> {
                self.0.checked_sub(other.0)
            }
        }

        impl Add<u64> for $name {
            type Output = Self;

            #[inline]
            fn add(self, bytes: u64) -> Self {
                Self(self.0 + bytes)
            }
        }

        impl Sub<u64> for $name {
            type Output = Self;

            #[inline]
            fn sub(self, bytes: u64) -> Self {
                Self(self.0 - bytes)
            }
        }

        impl Sub for $name {
            type Output = u64;

            #[inline]
            fn sub(self, other: Self) -> u64 {
                self.0 - other.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

address! {
    /// A distance from the start of a file, in bytes.
    FileOffset
}

address! {
    /// A virtual address in an ELF file, for which the linker laid the code out. `objdump` and `nm` print it.
    FileAddress
}

address! {
    /// An address in the memory of a process or of the kernel, as samples and call chains hold it.
    MemoryAddress
}

address! {
    /// An address in a module, the same in all processes: the key for names, lines and code.
    ///
    /// A relative address is a [`FileOffset`] for files and the vdso, and a [`MemoryAddress`] for the kernel, which all
    /// processes see at the same place. A file offset stays right when a segment's `p_offset` differs from its `p_vaddr`,
    /// and needs no load bias.
    RelativeAddress
}

impl RelativeAddress {
    /// Returns the relative address of the kernel's code at a place in memory.
    #[inline]
    #[must_use]
    pub fn of_kernel(address: MemoryAddress) -> Self {
        Self(address.0)
    }
}

impl From<FileOffset> for RelativeAddress {
    #[inline]
    fn from(offset: FileOffset) -> Self {
        Self(offset.0)
    }
}

/// A part of a file in the memory of a process: a mapping.
///
/// ```
/// use dioptra_symbols::{FileMapping, FileOffset, MemoryAddress};
///
/// // As `/proc/PID/maps` has it: 7f10_0000-7f20_0000 r-xp 00002000 … /usr/lib/libz.so
/// let mapping = FileMapping {
///     start: MemoryAddress(0x7f10_0000),
///     end: MemoryAddress(0x7f20_0000),
///     file_offset: FileOffset(0x2000),
/// };
/// assert_eq!(mapping.offset_of(MemoryAddress(0x7f10_0123)), Some(FileOffset(0x2123)));
/// assert_eq!(mapping.offset_of(MemoryAddress(0x7f20_0000)), None);
/// assert_eq!(mapping.address_of(FileOffset(0x2123)), Some(MemoryAddress(0x7f10_0123)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMapping {
    /// Its first address.
    pub start: MemoryAddress,
    /// The address behind its last.
    pub end: MemoryAddress,
    /// The place in the file from which the mapping starts.
    pub file_offset: FileOffset,
}

impl FileMapping {
    /// Returns the file offset of an address in memory; `None` outside of the mapping.
    #[inline]
    #[must_use]
    pub fn offset_of(&self, address: MemoryAddress) -> Option<FileOffset> {
        if address >= self.end {
            return None;
        }
        let inside = address.checked_sub(self.start)?;
        self.file_offset.checked_add(inside)
    }

    /// Returns the address in memory of a file offset; `None` outside of the mapping.
    #[inline]
    #[must_use]
    pub fn address_of(&self, offset: FileOffset) -> Option<MemoryAddress> {
        let inside = offset.checked_sub(self.file_offset)?;
        let address = self.start.checked_add(inside)?;
        (address < self.end).then_some(address)
    }
}

/// The load bias of an ELF file: the difference of its addresses in memory and in the file.
///
/// ```
/// use dioptra_symbols::{FileAddress, LoadBias, MemoryAddress};
///
/// // The kernel's file has `_text` at one address, and `/proc/kallsyms` at another.
/// let bias = LoadBias::between(MemoryAddress(0xffff_ffff_9a00_0000), FileAddress(0xffff_ffff_8100_0000));
/// assert_eq!(bias.in_file(MemoryAddress(0xffff_ffff_9a00_0150)), FileAddress(0xffff_ffff_8100_0150));
/// assert_eq!(bias.in_memory(FileAddress(0xffff_ffff_8100_0150)), MemoryAddress(0xffff_ffff_9a00_0150));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct LoadBias(u64);

impl LoadBias {
    /// Returns the bias of a file in which the code at an address in memory has an address of its own.
    #[inline]
    #[must_use]
    pub fn between(memory: MemoryAddress, file: FileAddress) -> Self {
        Self(memory.0.wrapping_sub(file.0))
    }

    /// Returns the address in the file of an address in memory.
    #[inline]
    #[must_use]
    pub fn in_file(self, address: MemoryAddress) -> FileAddress {
        FileAddress(address.0.wrapping_sub(self.0))
    }

    /// Returns the address in memory of an address in the file.
    #[inline]
    #[must_use]
    pub fn in_memory(self, address: FileAddress) -> MemoryAddress {
        MemoryAddress(address.0.wrapping_add(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const _: () = assert!(size_of::<RelativeAddress>() == size_of::<u64>());

    #[test]
    fn addresses_show_their_kind_and_hexadecimal_digits() {
        assert_eq!(format!("{:?}", FileOffset(0x1f)), "FileOffset(0x1f)");
        assert_eq!(
            format!("{:#x} {:x}", MemoryAddress(0x1f), FileAddress(10)),
            "0x1f a"
        );
        assert_eq!(format!("{:#010x}", RelativeAddress(0x1f)), "0x0000001f");
    }

    #[test]
    fn a_mapping_ends_where_it_ends() {
        let mapping = FileMapping {
            start: MemoryAddress(0x1000),
            end: MemoryAddress(0x3000),
            file_offset: FileOffset(0x5000),
        };
        for (address, offset) in [
            (0xfff, None),
            (0x1000, Some(0x5000)),
            (0x2fff, Some(0x6fff)),
            (0x3000, None),
        ] {
            let found = mapping.offset_of(MemoryAddress(address));
            assert_eq!(found, offset.map(FileOffset), "{address:x}");
        }
        for (offset, address) in [
            (0x4fff, None),
            (0x5000, Some(0x1000)),
            (0x6fff, Some(0x2fff)),
            (0x7000, None),
            (u64::MAX, None),
        ] {
            let found = mapping.address_of(FileOffset(offset));
            assert_eq!(found, address.map(MemoryAddress), "{offset:x}");
        }
        // Hostile records may claim offsets whose ends no number can hold.
        let hostile = FileMapping {
            start: MemoryAddress(0),
            end: MemoryAddress(u64::MAX),
            file_offset: FileOffset(u64::MAX),
        };
        assert_eq!(hostile.offset_of(MemoryAddress(1)), None);
    }
}
