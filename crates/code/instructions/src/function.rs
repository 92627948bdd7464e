//! The decoded instructions of one function.

use std::ops::Range;

use super::instruction::{Instruction, InstructionKind, JumpTable, Packed, Target};
use super::space::CodeSpace;
use super::{aarch64, tables, x86};
use dioptra_symbols::{CodeError, CodeMachine, ModuleCode, RelativeAddress};

/// The instructions of one function, by rising address and without gaps.
///
/// The value owns a copy of the function's bytes, so it outlives the module it came from. *Relative* addresses are
/// those of the rest of this crate (file offsets), *virtual* ones those of `objdump`.
#[derive(Debug, Clone)]
pub struct FunctionCode {
    machine: CodeMachine,
    start: u64,
    virtual_start: u64,
    bytes: Vec<u8>,
    instructions: Vec<Packed>,
    /// By rising instruction number.
    targets: Vec<(u32, Target)>,
    /// By rising instruction number.
    tables: Vec<JumpTable>,
}

/// One instruction as a machine's decoder hands it over.
pub(crate) struct Decoded {
    pub length: u8,
    pub kind: InstructionKind,
    /// A virtual address.
    pub target: Option<u64>,
}

impl FunctionCode {
    /// Decodes a range of a module's relative addresses: a function's, as
    /// [`ModuleSymbols::function`](dioptra_symbols::ModuleSymbols::function) or
    /// [`extent`](dioptra_symbols::ModuleSymbols::extent) gives it.
    ///
    /// # Errors
    /// If the module has no code, the range lies outside it or is longer than 4 MiB, or reading fails.
    pub fn of_module(
        module: &ModuleCode,
        addresses: Range<RelativeAddress>,
    ) -> Result<Self, CodeError> {
        let start = addresses.start.0;
        let code = module.bytes(addresses)?;
        Self::decode(
            code.machine,
            code.bytes,
            start,
            code.virtual_address.0,
            module,
        )
    }

    /// Decodes bytes that lie at a relative and a virtual address.
    ///
    /// # Errors
    /// [`CodeError::TooLong`] for more than 4 MiB.
    pub fn decode(
        machine: CodeMachine,
        bytes: Vec<u8>,
        address: u64,
        virtual_address: u64,
        space: &dyn CodeSpace,
    ) -> Result<Self, CodeError> {
        if bytes.len() as u64 > ModuleCode::MOST_BYTES {
            let end = address.saturating_add(bytes.len() as u64);
            return Err(CodeError::TooLong(RelativeAddress::range(address..end)));
        }
        let mut code = Self {
            machine,
            start: address,
            virtual_start: virtual_address,
            bytes,
            // x86 instructions have four and a half bytes on average.
            instructions: Vec::new(),
            targets: Vec::new(),
            tables: Vec::new(),
        };
        code.instructions.reserve(code.bytes.len() / 4 + 1);
        let (mut instructions, mut targets) = (
            std::mem::take(&mut code.instructions),
            std::mem::take(&mut code.targets),
        );
        let mut offset = 0_u32;
        let mut each = |decoded: Decoded| {
            if let Some(to) = decoded.target {
                let address = match code.relative_inside(to) {
                    Some(address) => Some(address),
                    None => space.relative(to),
                };
                let target = Target {
                    address,
                    virtual_address: to,
                };
                targets.push((instructions.len() as u32, target));
            }
            instructions.push(Packed {
                offset,
                length: decoded.length,
                kind: decoded.kind,
            });
            offset += u32::from(decoded.length);
        };
        match machine {
            CodeMachine::X86_64 => x86::decode(64, &code.bytes, virtual_address, &mut each),
            CodeMachine::I386 => x86::decode(32, &code.bytes, virtual_address, &mut each),
            CodeMachine::Aarch64 => aarch64::decode(&code.bytes, virtual_address, &mut each),
        }
        code.instructions = instructions;
        code.targets = targets;
        code.tables = tables::resolve(&code, space);
        Ok(code)
    }

    /// The instruction set.
    #[must_use]
    pub fn machine(&self) -> CodeMachine {
        self.machine
    }

    /// The function's relative addresses.
    #[must_use]
    pub fn addresses(&self) -> Range<u64> {
        self.start..self.start.wrapping_add(self.bytes.len() as u64)
    }

    /// The virtual address of the first instruction; the others lie at the same distances.
    #[must_use]
    pub fn virtual_start(&self) -> u64 {
        self.virtual_start
    }

    /// The function's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the number of instructions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.instructions.len()
    }

    /// Whether there are no instructions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// An instruction by its number.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Instruction<'_>> {
        let packed = *self.instructions.get(index)?;
        Some(self.describe(index, packed))
    }

    /// All instructions by rising address.
    pub fn instructions(&self) -> impl ExactSizeIterator<Item = Instruction<'_>> {
        let mut targets = self.targets.iter().peekable();
        self.instructions
            .iter()
            .enumerate()
            .map(move |(index, &packed)| {
                let target = targets.next_if(|(at, _)| *at as usize == index);
                self.describe_with(index, packed, target.map(|(_, target)| *target))
            })
    }

    /// The number of the instruction that covers a relative address.
    #[must_use]
    pub fn index_of(&self, address: u64) -> Option<usize> {
        self.index_at(address.wrapping_sub(self.start))
    }

    /// Where calls are, with what they call if the instruction tells.
    pub fn calls(&self) -> impl Iterator<Item = Instruction<'_>> {
        self.instructions()
            .filter(|instruction| instruction.kind.is_call())
    }

    /// The tables of those indirect jumps for which one was found.
    #[must_use]
    pub fn tables(&self) -> &[JumpTable] {
        &self.tables
    }

    /// The table of an indirect jump, if its extent is certain.
    #[must_use]
    pub fn table_of(&self, index: usize) -> Option<&JumpTable> {
        let at = self
            .tables
            .binary_search_by_key(&index, |table| table.instruction);
        self.tables.get(at.ok()?)
    }

    /// Heap memory it holds, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        let entries: usize = self
            .tables
            .iter()
            .map(|table| table.targets.capacity())
            .sum();
        self.bytes.capacity()
            + self.instructions.capacity() * size_of::<Packed>()
            + self.targets.capacity() * size_of::<(u32, Target)>()
            + self.tables.capacity() * size_of::<JumpTable>()
            + entries * size_of::<Target>()
    }

    pub(crate) fn packed(&self) -> &[Packed] {
        &self.instructions
    }

    /// Instructions with a known target, by rising number.
    pub(crate) fn targets(&self) -> &[(u32, Target)] {
        &self.targets
    }

    /// The number of the instruction that covers a virtual address.
    pub(crate) fn index_of_virtual(&self, virtual_address: u64) -> Option<usize> {
        self.index_at(virtual_address.wrapping_sub(self.virtual_start))
    }

    /// The function's relative address for a virtual one inside it.
    pub(crate) fn relative_inside(&self, virtual_address: u64) -> Option<u64> {
        let inside = virtual_address.wrapping_sub(self.virtual_start);
        (inside < self.bytes.len() as u64).then(|| self.start.wrapping_add(inside))
    }

    fn index_at(&self, offset: u64) -> Option<usize> {
        if offset >= self.bytes.len() as u64 {
            return None;
        }
        let after = self
            .instructions
            .partition_point(|packed| u64::from(packed.offset) <= offset);
        after.checked_sub(1)
    }

    fn describe(&self, index: usize, packed: Packed) -> Instruction<'_> {
        let at = self
            .targets
            .binary_search_by_key(&index, |(at, _)| *at as usize);
        self.describe_with(index, packed, at.ok().map(|at| self.targets[at].1))
    }

    fn describe_with(
        &self,
        index: usize,
        packed: Packed,
        target: Option<Target>,
    ) -> Instruction<'_> {
        let from = packed.offset as usize;
        Instruction {
            index,
            address: self.start.wrapping_add(from as u64),
            virtual_address: self.virtual_start.wrapping_add(from as u64),
            bytes: &self.bytes[from..from + usize::from(packed.length)],
            kind: packed.kind,
            target,
        }
    }
}
