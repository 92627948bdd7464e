//! 64-bit Arm.

mod displace;
mod encode;
mod flow;
mod hot;
mod registers;
mod scan;
#[cfg(test)]
mod tests;
mod thunk;

use super::{Arch, Code};
use crate::analysis::candidates::{ModuleCode, ScanOptions};
use crate::analysis::scan::scan as find;
use crate::pools::hooks::HookOptions;
use crate::pools::pool;
use crate::pools::thunks::{Pool, PoolError, ThunkRequest};
use dioptra_tracelayout::message::RuntimeAddresses;
use displace::Prologue;
use encode::{BTI_C, NOP, b, bytes, words_of};
use gimli::Register;
use object::elf::{EM_AARCH64, Machine};

/// 64-bit Arm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aarch64;

impl Arch for Aarch64 {
    type Registers = registers::Registers;

    const JUMP: usize = 4;
    const REACH: u64 = 0x07f0_0000;
    const HIGHEST: u64 = 1 << 48;
    const RECORDS_VALUES: bool = false;
    const ROOM: &str = "-fpatchable-function-entry=2";
    /// All instructions have the same size, and are fetched whole.
    const SEES_AT_ONCE: bool = true;
    const HOOK_RETURN: i64 = 8;

    fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode<Aarch64>, object::Error> {
        find(data, options)
    }

    fn pool(
        address: u64,
        wanted: &[ThunkRequest<Aarch64>],
        runtime: RuntimeAddresses,
        options: HookOptions,
        page: u64,
    ) -> Result<Pool, PoolError> {
        pool::pool((address, page), wanted, runtime, options)
    }

    fn patch(site: u64, thunk: u64, prologue: Option<&Prologue>) -> Option<Vec<u8>> {
        match prologue.map(Prologue::size) {
            // The displaced `paciasp` or `pacibsp` was a landing pad, too, so a `bti c` takes its place.
            Some(8) => Some(bytes(&[BTI_C, b(site + 4, thunk)?])),
            _ => Some(bytes(&[b(site, thunk)?])),
        }
    }

    fn is_one_instruction(original: &[u8]) -> bool {
        original.len() <= size_of::<u32>()
    }

    fn is_nothing(bytes: &[u8]) -> bool {
        let whole = bytes.len().is_multiple_of(size_of::<u32>());
        whole && words_of(bytes).all(|word| word == NOP)
    }
}

impl Code for Aarch64 {
    type Prologue = Prologue;
    const MACHINE: Machine = EM_AARCH64;
    const SYSTEM_CALLS: &[u16] = &[220, 167, 277];
    const STACK_POINTER: Register = Register(31);
    const RETURN_ADDRESS: Register = Register(30);
}
