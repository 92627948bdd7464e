//! Finds a module's functions, and where and how their calls can be traced.
//!
//! Addresses here are those of the ELF file (virtual addresses), before it is loaded.

use super::Aarch64;
use super::described::{Described, described};
use super::displace::{Instruction, instruction, landing, prologue};
use super::encode::{NOP, words_of};
use super::flow::{Flow, flow};
use super::imports::through_registers;
use crate::analysis::candidates::{Candidate, CandidateBody, ModuleCode, ScanOptions};
use crate::analysis::image::Image;
use crate::analysis::refusal::Refused;
use crate::analysis::sanitizers;
use crate::analysis::special::{is_silent, left_alone};
use crate::analysis::written;
use dioptra_tracelayout::message::Method;
use object::{Object, ObjectSymbol, SymbolFlags};
use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};

/// `mov REGISTER, x30`, without the register.
const TAKES_RETURN_ADDRESS: u32 = 0xaa1e_03e0;
/// `xpaclri`: takes the signature off a return address, to look at it.
const STRIPS_RETURN_ADDRESS: u32 = 0xd503_20ff;
/// A flag of a symbol: calls of the function pass and keep more than the ordinary registers.
const OTHER_CALLS: u8 = 0x80;

/// Finds the functions of an ELF file.
///
/// # Errors
/// If the bytes are no ELF file for this machine.
pub fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode<Aarch64>, object::Error> {
    let image = Image::linked::<Aarch64>(data)?;
    let described = described(&image);
    let scanner = Scanner {
        special: special(&image),
        patchable: image
            .listed("__patchable_function_entries")
            .into_iter()
            .collect(),
        cyg: image
            .slots
            .values()
            .any(|name| name == "__cyg_profile_func_enter"),
        flow: OnceCell::new(),
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
    let other_calls = image
        .elf
        .symbols()
        .chain(image.elf.dynamic_symbols())
        .filter(|symbol| {
            matches!(symbol.flags(), SymbolFlags::Elf { st_other, .. } if st_other.0 & OTHER_CALLS != 0)
        })
        .map(|symbol| (symbol.address(), Refused::Special));
    let local = sanitizers::local_functions(image).into_iter();
    image
        .named()
        .filter_map(|(address, _, name)| Some((address, left_alone(name)?)))
        .chain(other_calls)
        .chain(local.map(|address| (address, Refused::Sanitizer)))
        .collect()
}

struct Scanner<'s, 'a> {
    image: &'s Image<'a>,
    described: &'s [Described],
    flow: OnceCell<Flow>,
    options: ScanOptions,
    special: HashMap<u64, Refused>,
    /// Addresses at which compilers have left space for hooks.
    patchable: HashSet<u64>,
    /// Whether functions may call `__cyg_profile_func_enter` when they begin.
    cyg: bool,
}

impl Scanner<'_, '_> {
    fn functions(&self) -> ModuleCode<Aarch64> {
        let mut code = ModuleCode {
            segments: self.image.segments.clone(),
            ..ModuleCode::default()
        };
        let mut covered = HashSet::new();
        for site in &self.patchable {
            if let Some((candidate, behind)) = self.patchable(*site) {
                covered.extend([candidate.start, behind]);
                code.candidates.push(candidate);
            }
        }
        for function in self.described {
            if covered.contains(&function.start) {
                continue;
            }
            if let Some(why) = self.special.get(&function.start) {
                if self.options.plain {
                    code.refused.push((function.start, *why));
                }
                continue;
            }
            match self.candidate(function) {
                Some(Ok(candidate)) => code.candidates.push(candidate),
                Some(Err(refused)) => code.refused.push((function.start, refused)),
                None => {}
            }
        }
        if self.options.plain {
            self.undescribed(&mut code, &covered);
        }
        if self.options.library_calls {
            self.library_calls(&mut code);
        }
        code.candidates.sort_by_key(|candidate| candidate.site);
        code.candidates.dedup_by_key(|candidate| candidate.site);
        code
    }

    fn library_calls(&self, code: &mut ModuleCode<Aarch64>) {
        for (start, stub) in &self.image.stubs {
            let first = self.image.bytes(stub.jump, 4).unwrap_or_default();
            if is_silent(&stub.name) {
                continue;
            }
            if let Ok(prologue) = prologue(words_of(first), stub.jump) {
                code.candidates.push(Candidate {
                    start: *start,
                    size: 0,
                    method: Method::Plt,
                    site: stub.jump,
                    body: CandidateBody::Displaced(prologue),
                    neutral: None,
                    name: Some(stub.name.clone()),
                    calls: Vec::new(),
                });
            }
        }
        code.through_registers = through_registers(self.image);
    }

    /// Refuses functions that have names, but that no unwind tables describe.
    fn undescribed(&self, code: &mut ModuleCode<Aarch64>, covered: &HashSet<u64>) {
        let mut unknown: Vec<u64> = self
            .image
            .named()
            .filter(|(address, size, _)| *size > 0 && self.image.is_code(*address))
            .map(|(address, ..)| address)
            .filter(|address| !covered.contains(address))
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

    /// Returns the function with space for a hook at a listed address, and the address at which its unwind table
    /// begins, which may lie behind the space.
    fn patchable(&self, listed: u64) -> Option<(Candidate<Aarch64>, u64)> {
        let word = |address| words_of(self.image.bytes(address, 4)?).next();
        let site = listed + landing(word(listed)?);
        let mut behind = site;
        while word(behind) == Some(NOP) {
            behind += 4;
        }
        if behind == site {
            return None;
        }
        let is_pad = |address: u64| word(address).is_some_and(|word| landing(word) > 0);
        let start = match site.checked_sub(4).filter(|before| is_pad(*before)) {
            Some(before) => before,
            None => site,
        };
        if self.special.contains_key(&start) {
            return None;
        }
        let at = self.described.partition_point(|f| f.start <= behind);
        let around = at.checked_sub(1).and_then(|at| self.described.get(at));
        let around = around.filter(|function| function.contains(behind))?;
        let candidate = Candidate {
            start,
            size: around.start + around.size - start,
            method: Method::Patchable,
            site,
            body: CandidateBody::At(behind),
            neutral: None,
            name: None,
            calls: Vec::new(),
        };
        Some((candidate, around.start))
    }

    /// Returns the name of the function of another module that the instruction at an address calls.
    fn called(&self, word: u32, address: u64) -> Option<&str> {
        match instruction(word, address) {
            Instruction::Calls(target) => Some(&self.image.stubs.get(&target)?.name),
            _ => None,
        }
    }

    fn candidate(&self, function: &Described) -> Option<Result<Candidate<Aarch64>, Refused>> {
        let bytes = self.image.bytes(function.start, function.size)?;
        let words: Vec<u32> = words_of(bytes).collect();
        let skip = landing(*words.first()?);
        let site = function.start + skip;
        let code = words.get(skip as usize / 4..)?;
        let made = |method, body| {
            Some(Ok(Candidate {
                start: function.start,
                size: function.size,
                method,
                site,
                body,
                neutral: None,
                name: None,
                calls: Vec::new(),
            }))
        };
        let calls = |name: &'static str, most: usize| {
            let inside = code.iter().enumerate().take(most);
            inside
                .filter(|(at, word)| self.called(**word, site + 4 * *at as u64) == Some(name))
                .map(|(at, _)| at)
                .next()
        };

        // The calls of hooks lie behind the prologue, not far from the start.
        if self.cyg && calls("__cyg_profile_func_enter", 200).is_some() {
            return made(Method::Cygprof, CandidateBody::Itself);
        }
        let mcount = calls("_mcount", 64);
        if mcount.is_none() && !self.options.plain {
            return None;
        }
        if !function.entry || function.special {
            let why = if function.special {
                Refused::Special
            } else {
                Refused::NoEntry
            };
            // Parts that were split off from functions are no functions.
            let is_function = function.entry || mcount.is_some();
            return is_function.then_some(Err(why));
        }
        let prologue = match prologue(code.iter().copied(), site) {
            Ok(prologue) => prologue,
            Err(why) => return Some(Err(why)),
        };
        let flow = self.flow.get_or_init(|| flow(self.image, self.described));
        let looks = code.iter().enumerate().any(|(at, word)| {
            // Code in front of the call of `mcount` takes the return address as its argument, which does not matter.
            let is_told = mcount.is_some_and(|call| at < call);
            let looks = word & !31 == TAKES_RETURN_ADDRESS || *word == STRIPS_RETURN_ADDRESS;
            looks && !is_told
        });
        let why = [
            (
                prologue.size() > 4 && flow.enters(site + 4),
                Refused::Entered,
            ),
            (flow.loops(function.start), Refused::Loop),
            (looks, Refused::ReturnAddress),
            (flow.is_unwinding(function.start), Refused::Unwinder),
        ];
        if let Some((_, why)) = why.into_iter().find(|(is_so, _)| *is_so) {
            return Some(Err(why));
        }
        let method = if mcount.is_some() {
            Method::Mcount
        } else {
            Method::Plain
        };
        made(method, CandidateBody::Displaced(prologue))
    }
}
