//! x86-64.

mod count;
mod displace;
mod flow;
mod frame_pointer;
mod framed;
mod hot;
mod imports;
mod instructions;
mod judge;
mod leaves;
mod loads;
mod marks;
mod registers;
mod scan;
mod stubs;
mod thunk;

use super::{Arch, Code};
use crate::analysis::candidates::{Candidate, ImportSite, ModuleCode, ScanOptions};
use crate::analysis::scan::scan as find;
use crate::pools::hooks::HookOptions;
use crate::pools::pool;
use crate::pools::thunks::{Pool, PoolError, ThunkRequest};
use dioptra_tracelayout::message::RuntimeAddresses;
use displace::Prologue;
use gimli::Register;
use iced_x86::{Decoder, DecoderOptions};
use object::elf::{EM_X86_64, Machine};
use std::collections::HashSet;

/// x86-64.
#[derive(Clone, Copy, Debug, Default)]
pub struct X86_64;

/// The frame pointer, as a register of unwind tables.
const RBP: Register = Register(6);
/// The stack pointer, as a register of unwind tables.
const RSP: Register = Register(7);
/// The return address, as a register of unwind tables.
const RA: Register = Register(16);

impl Arch for X86_64 {
    type Registers = registers::Registers;

    const JUMP: usize = displace::JUMP;
    const REACH: u64 = 0x7000_0000;
    const HIGHEST: u64 = 1 << 47;
    const RECORDS_VALUES: bool = true;
    const ROOM: &str = "-pg -mfentry or -fpatchable-function-entry=5";
    /// Intel's manuals ask that threads synchronise.
    const SEES_AT_ONCE: bool = false;
    const HOOK_RETURN: i64 = thunk::HOOK_RETURN;

    fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode<X86_64>, object::Error> {
        find(data, options)
    }

    fn pool(
        address: u64,
        wanted: &[ThunkRequest<X86_64>],
        runtime: RuntimeAddresses,
        options: HookOptions,
        page: u64,
    ) -> Result<Pool, PoolError> {
        pool::pool((address, page), wanted, runtime, options)
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

    fn patch(site: u64, thunk: u64, prologue: Option<&Prologue>) -> Option<Vec<u8>> {
        let mut bytes = thunk::jump(site, thunk)?.to_vec();
        if let Some(prologue) = prologue {
            prologue.put_call(&mut bytes);
        }
        Some(bytes)
    }

    fn is_one_instruction(original: &[u8]) -> bool {
        let first = Decoder::new(64, original, DecoderOptions::NONE).decode();
        // An instruction that goes on behind the patch can't be decoded.
        first.is_invalid() || first.len() >= original.len()
    }

    fn is_nothing(bytes: &[u8]) -> bool {
        let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
        decoder.iter().all(|next| instructions::is_nop(next.code()))
    }
}

impl Code for X86_64 {
    type Prologue = Prologue;
    const MACHINE: Machine = EM_X86_64;
    const SYSTEM_CALLS: &[u16] = &[56, 157, 317];
    const STACK_POINTER: Register = RSP;
    const RETURN_ADDRESS: Register = RA;
}
