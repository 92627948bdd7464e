//! x86-64.

mod cfi;
mod count;
mod described;
mod displace;
mod flow;
mod frame_pointer;
mod framed;
mod hot;
mod imports;
mod instructions;
mod judge;
mod leaves;
mod library;
mod loads;
mod marks;
mod pool;
mod registers;
mod scan;
mod stubs;
mod thunk;
mod work;

use super::Arch;
use crate::analysis::candidates::{Candidate, ImportSite, ModuleCode, ScanOptions};
use crate::analysis::image::{Image, Stub};
use crate::analysis::observed::FunctionHook;
use crate::pools::hooks::HookOptions;
use crate::pools::thunks::{Pool, PoolError, ThunkRequest};
use dioptra_tracelayout::message::RuntimeAddresses;
use object::elf::{R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE, RelocationType};
use std::collections::{BTreeMap, HashSet};

/// x86-64.
#[derive(Clone, Copy, Debug, Default)]
pub struct X86_64;

impl Arch for X86_64 {
    type Prologue = displace::Prologue;
    type Registers = registers::Registers;

    const JUMP: usize = displace::JUMP;
    const REACH: u64 = 0x7000_0000;
    const HIGHEST: u64 = 1 << 47;
    const RECORDS_VALUES: bool = true;
    const ROOM: &str = "-pg -mfentry or -fpatchable-function-entry=5";
    /// Intel's manuals ask that threads synchronise.
    const SEES_AT_ONCE: bool = false;
    const SYSTEM_CALLS: &[u16] = &[56, 157, 317];
    const POINTERS: [RelocationType; 2] = [R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT];
    const RELATIVE: RelocationType = R_X86_64_RELATIVE;

    fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode<X86_64>, object::Error> {
        scan::scan(data, options)
    }

    fn hooks(data: &[u8]) -> Vec<FunctionHook<X86_64>> {
        library::hooks(data)
    }

    fn stubs(image: &Image<'_>) -> BTreeMap<u64, Stub> {
        stubs::stubs(image)
    }

    fn leaves<'c>(
        data: &[u8],
        candidates: impl Iterator<Item = &'c Candidate<X86_64>>,
    ) -> HashSet<u64> {
        leaves::leaves(data, candidates)
    }

    fn direct(site: &ImportSite, target: u64) -> Option<Vec<u8>> {
        imports::direct(site, target)
    }

    fn patch(site: u64, thunk: u64, prologue: Option<&displace::Prologue>) -> Option<Vec<u8>> {
        thunk::patch(site, thunk, prologue)
    }

    fn upper_bound(wanted: &[ThunkRequest<X86_64>], page: u64) -> u64 {
        pool::upper_bound(wanted, page)
    }

    fn pool(
        address: u64,
        wanted: &[ThunkRequest<X86_64>],
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
