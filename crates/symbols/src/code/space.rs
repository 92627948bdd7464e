//! What decoding asks of the place the code comes from.

/// An instruction set that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CodeMachine {
    /// x86-64.
    X86_64,
    /// The 32-bit x86.
    I386,
    /// 64-bit Arm, little-endian instructions as always.
    Aarch64,
}

impl CodeMachine {
    /// Bytes of an absolute address in a jump table.
    pub(crate) fn address_size(self) -> usize {
        match self {
            Self::I386 => 4,
            Self::X86_64 | Self::Aarch64 => 8,
        }
    }
}

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
