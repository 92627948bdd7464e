//! The functions of a module, and where and how their calls can be traced.
//!
//! Addresses here are those of the ELF file (virtual addresses), before it is loaded.

use super::displace::{JUMP, Prologue, padding, prologue};
use super::flow::LazyFlow;
use super::framed::{framed, looks_at_return_address};
use super::imports::import_calls;
use super::instructions::is_nop;
use super::stubs::{called, landing};
use super::{RA, RBP, RSP, X86_64};
use crate::analysis::candidates::{Candidate, CandidateBody, ImportCalls};
use crate::analysis::described::{Described, Framed, Slot, Stretch};
use crate::analysis::image::{Image, Stub};
use crate::analysis::refusal::Refused;
use crate::analysis::scan;
use crate::arch::Functions;
use dioptra_tracelayout::message::Method;
use gimli::{CfaRule, Register, RegisterRule, UnwindTableRow};
use iced_x86::{Code as IcedCode, Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use object::elf::{R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_X86_64_RELATIVE, RelocationType};

/// The beginning of an XRay sled: `jmp` over nine bytes, which are a `nop`.
const XRAY_SLED: &[u8] = &[0xeb, 0x09, 0x66, 0x0f, 0x1f, 0x84];
const XRAY_SLED_SIZE: u64 = 11;

type Scanner<'s> = scan::Scanner<'s, X86_64>;

impl Functions for X86_64 {
    type Flow<'s> = LazyFlow<'s>;

    const POINTERS: [RelocationType; 2] = [R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT];
    const RELATIVE: RelocationType = R_X86_64_RELATIVE;
    const RULED_AT_ENTRY: Register = RA;
    const RESULTS: u16 = 2;

    fn slot(row: &UnwindTableRow<usize>) -> Slot {
        let is_ordinary = row.register(RA) == Some(RegisterRule::Offset(-8));
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } if is_ordinary => match *register {
                RSP => Slot::AboveStackPointer(offset.saturating_sub(8)),
                RBP => Slot::AboveFramePointer(offset.saturating_sub(8)),
                _ => Slot::Unknown,
            },
            _ => Slot::Unknown,
        }
    }

    fn framed(image: &Image<'_>, function: &Described, stretches: &[Stretch]) -> Option<Framed> {
        framed(image, function, stretches)
    }

    fn landing(code: &[u8]) -> usize {
        landing(code)
    }

    fn flow<'s>(image: &'s Image<'s>, described: &'s [Described]) -> LazyFlow<'s> {
        LazyFlow::new(image, described)
    }

    fn prepare(flow: &LazyFlow<'_>) {
        flow.get();
    }

    fn candidate(
        scanner: &Scanner<'_>,
        flow: &LazyFlow<'_>,
        function: &Described,
        next: Option<u64>,
    ) -> Option<Result<Candidate<X86_64>, Refused>> {
        if flow.copies_stacks(function.start) {
            return Some(Err(Refused::CopiesStacks));
        }
        let bytes = scanner.image.bytes(function.start, function.size)?;
        let skip = landing(bytes);
        let site = function.start + skip as u64;
        let code = bytes.get(skip..)?;
        let made = |method, site, body, neutral| {
            let place = (function.start, function.size);
            Some(Ok(Candidate {
                neutral,
                ..Candidate::new(place, method, site, body)
            }))
        };

        // Space for a hook: listed, and made of nops.
        let patchable = &scanner.patchable;
        let from =
            patchable.partition_point(|&address| address.saturating_add(64) < function.start);
        let is_listed = patchable
            .get(from..)
            .unwrap_or_default()
            .iter()
            .take_while(|&&address| address <= site)
            .any(|&address| address <= site);
        if is_listed && let Some(nops) = nops(code) {
            return made(
                Method::Patchable,
                site,
                CandidateBody::At(site + nops),
                None,
            );
        }
        if scanner.nop_sites.contains(&site)
            && let Some(nops) = nops(code)
        {
            return made(Method::Fentry, site, CandidateBody::At(site + nops), None);
        }

        // An XRay sled is a jump over nine bytes. Sleds at returns are left alone.
        if code.starts_with(XRAY_SLED) {
            let body = CandidateBody::At(site + XRAY_SLED_SIZE);
            return made(Method::Xray, site, body, None);
        }

        // A call of a hook is the first instruction, or behind the prologue.
        let mut decoder = Decoder::with_ip(64, code, site, DecoderOptions::NONE);
        let first = decoder.decode();
        let is_call = |instruction: &Instruction| {
            matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            )
        };
        if is_call(&first) && called(scanner.image, &first) == Some("__fentry__") {
            let neutral: &'static [u8] = if first.len() == 5 {
                &[0x0f, 0x1f, 0x44, 0, 0]
            } else {
                &[0x66, 0x0f, 0x1f, 0x44, 0, 0]
            };
            let body = CandidateBody::At(first.next_ip());
            return made(Method::Fentry, site, body, Some(neutral));
        }
        let is_mcount = |instruction: &Instruction| {
            is_call(instruction)
                && matches!(
                    called(scanner.image, instruction),
                    Some("mcount" | "_mcount")
                )
        };
        if scanner.cyg && scanner.calls_cyg(code, site) {
            return made(Method::Cygprof, site, CandidateBody::Itself, None);
        }
        let mut instruction = first;
        let mut mcount = None;
        let mut branches = false;
        // Functions with variable arguments branch over code that saves vector registers before they call `mcount`.
        for _ in 0..48 {
            if is_mcount(&instruction) {
                mcount = Some(instruction);
                break;
            }
            branches |= instruction.op0_kind() == OpKind::NearBranch64
                && (site..site + JUMP as u64).contains(&instruction.near_branch_target());
            if instruction.is_invalid()
                || !matches!(
                    instruction.flow_control(),
                    FlowControl::Next | FlowControl::ConditionalBranch
                )
                || !decoder.can_decode()
            {
                break;
            }
            instruction = decoder.decode();
        }
        if let Some(why) = scanner.not_ordinary(function, mcount.is_some()) {
            return why.map(Err);
        }
        let is_first = mcount.is_some_and(|call| call.next_ip() >= site + JUMP as u64);
        let framed = function.framed.filter(|_| {
            is_first && !branches && !flow.has_unwinders() && !looks_at_return_address(code)
        });
        let why = match framed {
            Some(framed) => framed.loops.then_some(Refused::Loop),
            None => scanner.refused(flow, function, site),
        };
        if let Some(why) = why {
            return Some(Err(why));
        }
        let end = function.end();
        let padding = || {
            let behind = scanner.image.bytes(end, 16).unwrap_or_default();
            let most = next.map_or(u64::MAX, |next| next.saturating_sub(end));
            padding(behind, most)
        };
        let padded = code.len() >= JUMP || code.len() + padding() >= JUMP;
        let until = mcount
            .map(|call| (call.next_ip() - site) as usize)
            .filter(|&until| until <= 48)
            .unwrap_or(0);
        let method = if mcount.is_some() {
            Method::Mcount
        } else {
            Method::Plain
        };
        match prologue(code, site, until, padded, is_mcount) {
            Ok(prologue) => made(method, site, CandidateBody::Displaced(prologue), None),
            Err(why) => Some(Err(why)),
        }
    }

    fn stubs(bytes: &[u8], address: u64) -> Vec<(u64, u64, u64)> {
        let mut stubs = Vec::new();
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let mut start = address;
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.code() == IcedCode::Endbr64 {
                start = instruction.ip();
                continue;
            }
            if instruction.code() == IcedCode::Jmp_rm64 && instruction.is_ip_rel_memory_operand() {
                let pointer = instruction.ip_rel_memory_address();
                stubs.push((start.min(instruction.ip()), instruction.ip(), pointer));
            }
            start = instruction.next_ip();
        }
        stubs
    }

    fn stub_body(_: &Image<'_>, stub: &Stub<'_>) -> Option<CandidateBody<X86_64>> {
        Some(CandidateBody::Pointer(stub.pointer))
    }

    fn import_calls(image: &Image<'_>, described: &[Described]) -> ImportCalls {
        import_calls(image, described)
    }

    fn library_prologue(code: &[u8], site: u64, size: usize) -> Option<Prologue> {
        // A function that does nothing is shorter than a jump.
        let room = size + padding(code.get(size..)?, u64::MAX);
        let code = code
            .get(..size.max(1))
            .filter(|_| size < JUMP)
            .unwrap_or(code);
        prologue(code, site, 0, room >= JUMP, |_| false).ok()
    }
}

impl Scanner<'_> {
    /// Returns whether a function calls `__cyg_profile_func_enter`. The call is behind its prologue, not far from its
    /// start.
    fn calls_cyg(&self, code: &[u8], site: u64) -> bool {
        Decoder::with_ip(64, code, site, DecoderOptions::NONE)
            .into_iter()
            .take(200)
            .any(|instruction| called(self.image, &instruction) == Some("__cyg_profile_func_enter"))
    }

    /// Returns the reason why a function's first instructions can't be moved, as far as it follows from the control
    /// flow.
    fn refused(&self, flow: &LazyFlow<'_>, function: &Described, site: u64) -> Option<Refused> {
        let flow = flow.get();
        let behind = site + JUMP as u64;
        let end = function.end().clamp(site + 1, behind);
        let why = [
            (flow.enters(site + 1..end), Refused::Entered),
            (flow.enters(end..behind), Refused::Short),
            (flow.loops(function.start), Refused::Loop),
            (
                flow.looks_at_return_address(function.start),
                Refused::ReturnAddress,
            ),
            (
                flow.uses_frame_pointer(function.start),
                Refused::FramePointer,
            ),
            (flow.is_unwinding(function.start), Refused::Unwinder),
        ];
        let found = why.into_iter().find(|(is_so, _)| *is_so);
        found.map(|(_, why)| why)
    }
}

/// Returns the size in bytes of the nops at the start of the code, if a jump fits in their place.
fn nops(code: &[u8]) -> Option<u64> {
    let window = code.get(..code.len().min(64))?;
    let mut decoder = Decoder::new(64, window, DecoderOptions::NONE);
    let mut size = 0;
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if !is_nop(instruction.code()) || size >= JUMP {
            break;
        }
        size += instruction.len();
    }
    (size >= JUMP).then_some(size as u64)
}
