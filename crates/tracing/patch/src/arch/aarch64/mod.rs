//! 64-bit Arm.

mod cfi;
mod described;
mod displace;
mod encode;
mod flow;
mod hot;
mod imports;
mod instructions;
mod library;
mod pool;
mod registers;
mod scan;
mod stubs;
#[cfg(test)]
mod tests;
mod thunk;

use super::Arch;
use crate::analysis::candidates::{ModuleCode, ScanOptions};
use crate::analysis::image::{Image, Stub};
use crate::analysis::observed::FunctionHook;
use crate::pools::hooks::HookOptions;
use crate::pools::thunks::{Pool, PoolError, ThunkRequest};
use dioptra_tracelayout::message::RuntimeAddresses;
use object::elf::{R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_RELATIVE, RelocationType};
use std::collections::BTreeMap;

/// 64-bit Arm.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aarch64;

impl Arch for Aarch64 {
    type Prologue = displace::Prologue;
    type Registers = registers::Registers;

    const JUMP: usize = 4;
    const REACH: u64 = 0x07f0_0000;
    const HIGHEST: u64 = 1 << 48;
    const RECORDS_VALUES: bool = false;
    const ROOM: &str = "-fpatchable-function-entry=2";
    /// All instructions have the same size, and are fetched whole.
    const SEES_AT_ONCE: bool = true;
    const SYSTEM_CALLS: &[u16] = &[220, 167, 277];
    const POINTERS: [RelocationType; 2] = [R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT];
    const RELATIVE: RelocationType = R_AARCH64_RELATIVE;

    fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode<Aarch64>, object::Error> {
        scan::scan(data, options)
    }

    fn hooks(data: &[u8]) -> Vec<FunctionHook<Aarch64>> {
        library::hooks(data)
    }

    fn stubs(image: &Image<'_>) -> BTreeMap<u64, Stub> {
        stubs::stubs(image)
    }

    fn patch(site: u64, thunk: u64, prologue: Option<&displace::Prologue>) -> Option<Vec<u8>> {
        thunk::patch(site, thunk, prologue)
    }

    fn upper_bound(wanted: &[ThunkRequest<Aarch64>], page: u64) -> u64 {
        pool::upper_bound(wanted, page)
    }

    fn pool(
        address: u64,
        wanted: &[ThunkRequest<Aarch64>],
        runtime: RuntimeAddresses,
        options: HookOptions,
        page: u64,
    ) -> Result<Pool, PoolError> {
        pool::pool(address, wanted, runtime, options, page)
    }

    fn is_one_instruction(original: &[u8]) -> bool {
        instructions::is_one_instruction(original)
    }

    fn is_nothing(bytes: &[u8]) -> bool {
        instructions::is_nothing(bytes)
    }
}
