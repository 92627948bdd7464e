//! The place that decoded code comes from.

use dioptra_symbols::{FileAddress, ModuleCode};

/// Where code lies: turns the addresses that instructions speak of (*virtual* ones) into relative ones,
/// and reads jump tables.
///
/// `()` is a space that knows nothing: relative and virtual addresses are the same, and there are no tables
/// to read.
pub trait CodeSpace {
    /// The relative address of a virtual one; `None` if no code lies there.
    fn relative(&self, virtual_address: u64) -> Option<u64>;

    /// Fills `into` with the bytes from a virtual address on; false if they are not all there.
    fn read(&self, virtual_address: u64, into: &mut [u8]) -> bool;
}

impl CodeSpace for () {
    fn relative(&self, virtual_address: u64) -> Option<u64> {
        Some(virtual_address)
    }

    fn read(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

impl CodeSpace for ModuleCode {
    fn relative(&self, virtual_address: u64) -> Option<u64> {
        ModuleCode::relative(self, FileAddress(virtual_address)).map(|address| address.0)
    }

    fn read(&self, virtual_address: u64, into: &mut [u8]) -> bool {
        ModuleCode::read(self, FileAddress(virtual_address), into)
    }
}
