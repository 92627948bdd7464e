//! Finds a module's functions, and where and how their calls can be traced.
//!
//! Addresses here are those of the ELF file (virtual addresses), before it is loaded.

use super::X86_64;
use super::described::{Described, described};
use super::displace::{JUMP, padding, prologue};
use super::flow::LazyFlow;
use super::framed::looks_at_return_address;
use super::imports::import_calls;
use super::instructions::is_nop;
use super::stubs::{ENDBR, called};
use super::work::{Share, share_out};
use crate::analysis::candidates::{Candidate, CandidateBody, ModuleCode, ScanOptions};
use crate::analysis::image::Image;
use crate::analysis::refusal::Refused;
use crate::analysis::sanitizers;
use crate::analysis::special::{is_silent, left_alone};
use crate::analysis::written;
use dioptra_tracelayout::message::Method;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use std::collections::{HashMap, HashSet};

/// The beginning of an XRay sled: `jmp` over nine bytes, which are a `nop`.
const XRAY_SLED: &[u8] = &[0xeb, 0x09, 0x66, 0x0f, 0x1f, 0x84];
const XRAY_SLED_SIZE: u64 = 11;

/// Finds the functions of an ELF file.
///
/// # Errors
/// If the bytes are no ELF file for this machine.
pub fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode<X86_64>, object::Error> {
    let mut image = Image::linked::<X86_64>(data)?;
    image.threads = options.threads;
    let described = described(&image);
    let scanner = Scanner {
        special: special(&image),
        patchable: image.listed("__patchable_function_entries"),
        nop_sites: image.listed("__mcount_loc").into_iter().collect(),
        cyg: image
            .slots
            .values()
            .any(|name| name == "__cyg_profile_func_enter"),
        flow: LazyFlow::new(&image, &described),
        described: &described,
        image: &image,
        options,
    };
    let mut code = scanner.functions();
    written::refuse(&mut code, written::is_relocated(&image.elf));
    Ok(code)
}

/// Returns the functions that must be left alone, and the reasons.
fn special(image: &Image<'_>) -> HashMap<u64, Refused> {
    let local = sanitizers::local_functions(image).into_iter();
    image
        .named()
        .filter_map(|(address, _, name)| Some((address, left_alone(name)?)))
        .chain(local.map(|address| (address, Refused::Sanitizer)))
        .collect()
}

struct Scanner<'s, 'a> {
    image: &'s Image<'a>,
    described: &'s [Described],
    flow: LazyFlow<'s, 'a>,
    options: ScanOptions,
    /// The functions that must be left alone, and the reasons.
    special: HashMap<u64, Refused>,
    /// Addresses at which compilers have left space for hooks, sorted.
    patchable: Vec<u64>,
    /// Addresses at which compilers have left space for calls of `__fentry__`.
    nop_sites: HashSet<u64>,
    /// Whether functions may call `__cyg_profile_func_enter` when they begin.
    cyg: bool,
}

impl Scanner<'_, '_> {
    fn functions(&self) -> ModuleCode<X86_64> {
        let mut code = ModuleCode {
            segments: self.image.segments.clone(),
            ..ModuleCode::default()
        };
        if self.options.plain {
            self.flow.get();
        }
        for (candidates, refused) in
            share_out(self.described.len(), self.options.threads, |share| {
                self.some(share)
            })
        {
            code.candidates.extend(candidates);
            code.refused.extend(refused);
        }
        code.refused.sort_by_key(|(start, _)| *start);
        if self.options.plain {
            self.undescribed(&mut code);
        }
        if self.options.library_calls {
            self.library_calls(&mut code);
        }
        code.candidates.sort_by_key(|candidate| candidate.site);
        code.candidates.dedup_by_key(|candidate| candidate.site);
        code
    }

    /// Returns the functions of a share that can be traced, and the refused ones with the reasons.
    fn some(&self, share: Share) -> (Vec<Candidate<X86_64>>, Vec<(u64, Refused)>) {
        let mut candidates = Vec::new();
        let mut refusals = Vec::new();
        let shared = self.described.iter().enumerate();
        for (at, function) in shared.filter(|(at, _)| share.has(*at)) {
            let next = self.described.get(at + 1).map(|next| next.start);
            // A stub is traced as a library call, if library calls are wanted.
            if self.image.stubs.contains_key(&function.start) {
                continue;
            }
            if let Some(why) = self.special.get(&function.start) {
                if self.options.plain {
                    refusals.push((function.start, *why));
                }
                continue;
            }
            if self.flow.copies_stacks(function.start) {
                refusals.push((function.start, Refused::CopiesStacks));
                continue;
            }
            match self.candidate(function, next) {
                Some(Ok(candidate)) => candidates.push(candidate),
                Some(Err(refused)) => refusals.push((function.start, refused)),
                None => {}
            }
        }
        (candidates, refusals)
    }

    fn library_calls(&self, code: &mut ModuleCode<X86_64>) {
        let made = |start, method, site, pointer, name: &String, calls| Candidate {
            start,
            size: 0,
            method,
            site,
            body: CandidateBody::Pointer(pointer),
            neutral: None,
            name: Some(name.clone()),
            calls,
        };
        for (start, stub) in &self.image.stubs {
            if !is_silent(&stub.name) {
                let (site, pointer) = (stub.jump, stub.pointer);
                let stub = made(*start, Method::Plt, site, pointer, &stub.name, Vec::new());
                code.candidates.push(stub);
            }
        }
        let calls = import_calls(self.image, self.described);
        for (pointer, sites) in calls.sites {
            if let Some(name) = self.image.imports.get(&pointer) {
                let called = made(pointer, Method::Got, pointer, pointer, name, sites);
                code.candidates.push(called);
            }
        }
        code.through_registers = calls.through_registers.into_iter().collect();
    }

    /// Refuses functions that have names, but that no unwind tables describe.
    fn undescribed(&self, code: &mut ModuleCode<X86_64>) {
        let mut unknown: Vec<u64> = self
            .image
            .named()
            .filter(|(address, size, _)| *size > 0 && self.image.is_code(*address))
            .map(|(address, ..)| address)
            .filter(|address| {
                let at = self.described.partition_point(|f| f.start <= *address);
                let before = at.checked_sub(1).and_then(|at| self.described.get(at));
                before.is_none_or(|function| !function.contains(*address))
            })
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        let unknown = unknown.into_iter().map(|start| (start, Refused::NoTable));
        code.refused.extend(unknown);
    }

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
    fn refused(&self, function: &Described, site: u64) -> Option<Refused> {
        let flow = self.flow.get();
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

    fn candidate(
        &self,
        function: &Described,
        next: Option<u64>,
    ) -> Option<Result<Candidate<X86_64>, Refused>> {
        let bytes = self.image.bytes(function.start, function.size)?;
        let skip = if bytes.starts_with(ENDBR) { 4 } else { 0 };
        let site = function.start + skip as u64;
        let code = bytes.get(skip..)?;
        let made = |method, site, body, neutral| {
            Some(Ok(Candidate {
                start: function.start,
                size: function.size,
                method,
                site,
                body,
                neutral,
                name: None,
                calls: Vec::new(),
            }))
        };

        // Space for a hook: listed, and made of nops.
        let patchable = &self.patchable;
        let from = patchable.partition_point(|&address| address + 64 < function.start);
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
        if self.nop_sites.contains(&site)
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
        if is_call(&first) && called(self.image, &first) == Some("__fentry__") {
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
                && matches!(called(self.image, instruction), Some("mcount" | "_mcount"))
        };
        if self.cyg && self.calls_cyg(code, site) {
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
        if !function.entry || function.special {
            if !self.options.plain && mcount.is_none() {
                return None;
            }
            let why = if function.special {
                Refused::Special
            } else {
                Refused::NoEntry
            };
            // Parts that were split off from functions are no functions.
            let is_function = function.entry || mcount.is_some();
            return is_function.then_some(Err(why));
        }
        if mcount.is_none() && !self.options.plain {
            return None;
        }
        let is_first = mcount.is_some_and(|call| call.next_ip() >= site + JUMP as u64);
        let framed = function.framed.filter(|_| {
            is_first && !branches && !self.flow.has_unwinders() && !looks_at_return_address(code)
        });
        let why = match framed {
            Some(framed) => framed.loops.then_some(Refused::Loop),
            None => self.refused(function, site),
        };
        if let Some(why) = why {
            return Some(Err(why));
        }
        let end = function.end();
        let padding = || {
            let behind = self.image.bytes(end, 16).unwrap_or_default();
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
        Some(
            prologue(code, site, until, padded, is_mcount).map(|prologue| Candidate {
                start: function.start,
                size: function.size,
                method,
                site,
                body: CandidateBody::Displaced(prologue),
                neutral: None,
                name: None,
                calls: Vec::new(),
            }),
        )
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
