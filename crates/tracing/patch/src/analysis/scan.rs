//! Finds a module's functions, and where and how their calls can be traced.

use super::candidates::{Candidate, CandidateBody, ModuleCode, ScanOptions};
use super::described::{Described, described};
use super::image::Image;
use super::refusal::Refused;
use super::sanitizers;
use super::special::{is_silent, left_alone};
use super::work::{Share, share_out};
use super::written;
use crate::arch::Functions;
use dioptra_tracelayout::message::Method;
use object::{Object, ObjectSymbol, SymbolFlags};
use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::sync::Arc;

/// The facts about a module by which its functions are found.
pub struct Scanner<'s, A> {
    /// The module's file.
    pub image: &'s Image<'s>,
    /// The functions that unwind tables describe, sorted by address.
    pub described: &'s [Described],
    /// The kinds of functions that are looked for.
    pub options: ScanOptions,
    /// The functions that must be left alone, and the reasons.
    pub special: HashMap<u64, Refused>,
    /// Addresses at which compilers have left space for hooks, sorted.
    pub patchable: Vec<u64>,
    /// Addresses at which compilers have left space for calls of `__fentry__`.
    pub nop_sites: HashSet<u64>,
    /// Whether functions may call `__cyg_profile_func_enter` when they begin.
    pub cyg: bool,
    processor: PhantomData<A>,
}

/// Finds the functions of an ELF file.
///
/// # Errors
/// If the bytes are no ELF file for this machine.
pub fn scan<A: Functions>(
    data: &[u8],
    options: ScanOptions,
) -> Result<ModuleCode<A>, object::Error> {
    let image = Image::linked::<A>(data, options.threads)?;
    let described = described::<A>(&image);
    let mut slots = image.slots.values();
    let scanner = Scanner::<A> {
        special: special::<A>(&image),
        patchable: image.listed("__patchable_function_entries"),
        nop_sites: image.listed("__mcount_loc").into_iter().collect(),
        cyg: slots.any(|name| *name == "__cyg_profile_func_enter"),
        described: &described,
        image: &image,
        options,
        processor: PhantomData,
    };
    let mut code = scanner.functions();
    written::refuse(&mut code, written::is_relocated(&image.elf));
    Ok(code)
}

/// Returns the functions that must be left alone, and the reasons.
fn special<A: Functions>(image: &Image<'_>) -> HashMap<u64, Refused> {
    let symbols = image.elf.symbols().chain(image.elf.dynamic_symbols());
    let other_calls = symbols
        .filter(|symbol| {
            matches!(symbol.flags(), SymbolFlags::Elf { st_other, .. } if st_other.0 & A::OTHER_CALLS != 0)
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

/// The functions of a share that can be traced, and the refused ones with the reasons.
type Found<A> = (Vec<Candidate<A>>, Vec<(u64, Refused)>);

impl<A: Functions> Scanner<'_, A> {
    fn functions(&self) -> ModuleCode<A> {
        let flow = A::flow(self.image, self.described);
        if self.options.plain {
            A::prepare(&flow);
        }
        let mut covered = HashSet::new();
        let mut code = ModuleCode {
            candidates: A::listed(self, &mut covered),
            refused: Vec::new(),
            segments: self.image.segments.clone(),
            through_registers: Vec::new(),
        };
        let shares = share_out(self.described.len(), self.options.threads, |share| {
            self.some(&flow, share, &covered)
        });
        for (candidates, refused) in shares {
            code.candidates.extend(candidates);
            code.refused.extend(refused);
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

    fn some(&self, flow: &A::Flow<'_>, share: Share, covered: &HashSet<u64>) -> Found<A> {
        let mut candidates = Vec::new();
        let mut refusals = Vec::new();
        let shared = self.described.iter().enumerate();
        for (number, function) in shared.filter(|(number, _)| share.has(*number)) {
            // A stub is traced as a library call, if library calls are wanted.
            if covered.contains(&function.start) || self.image.stubs.contains_key(&function.start) {
                continue;
            }
            if let Some(why) = self.special.get(&function.start) {
                if self.options.plain {
                    refusals.push((function.start, *why));
                }
                continue;
            }
            let next = self.described.get(number + 1).map(|next| next.start);
            match A::candidate(self, flow, function, next) {
                Some(Ok(candidate)) => candidates.push(candidate),
                Some(Err(refused)) => refusals.push((function.start, refused)),
                None => {}
            }
        }
        (candidates, refusals)
    }

    /// Returns the refusal of a part of a module that is no ordinary function; `None` if it is one.
    ///
    /// The result is empty inside for parts that were split off from functions, which are no functions, and for those
    /// that are not wanted. `has_hook` says whether a compiler has put a call of a hook there.
    pub fn not_ordinary(&self, function: &Described, has_hook: bool) -> Option<Option<Refused>> {
        if !self.options.plain && !has_hook {
            return Some(None);
        }
        let why = match function.special {
            true => Refused::Special,
            false if !function.entry => Refused::NoEntry,
            false => return None,
        };
        Some((function.entry || has_hook).then_some(why))
    }

    fn library_calls(&self, code: &mut ModuleCode<A>) {
        // Names are shared: many stubs may lead to functions with one long name.
        let mut names: HashMap<&str, Arc<str>> = HashMap::new();
        let mut made = |start, method, site, body, name, calls| Candidate {
            calls,
            name: Some(Arc::clone(names.entry(name).or_insert_with(|| name.into()))),
            ..Candidate::new((start, 0), method, site, body)
        };
        for (start, stub) in &self.image.stubs {
            if let Some(body) = A::stub_body(self.image, stub).filter(|_| !is_silent(stub.name)) {
                let stub = made(*start, Method::Plt, stub.jump, body, stub.name, Vec::new());
                code.candidates.push(stub);
            }
        }
        let calls = A::import_calls(self.image, self.described);
        for (pointer, sites) in calls.sites {
            if let Some(name) = self.image.imports.get(&pointer).copied() {
                let body = CandidateBody::Pointer(pointer);
                let called = made(pointer, Method::Got, pointer, body, name, sites);
                code.candidates.push(called);
            }
        }
        code.through_registers = calls.through_registers.into_iter().collect();
    }

    /// Refuses functions that have names, but that no unwind tables describe.
    fn undescribed(&self, code: &mut ModuleCode<A>, covered: &HashSet<u64>) {
        let mut unknown: Vec<u64> = self
            .image
            .named()
            .filter(|(address, size, _)| *size > 0 && self.image.is_code(*address))
            .map(|(address, ..)| address)
            .filter(|address| !covered.contains(address))
            .filter(|address| self.around(*address).is_none())
            .collect();
        unknown.sort_unstable();
        unknown.dedup();
        let unknown = unknown.into_iter().map(|start| (start, Refused::NoTable));
        code.refused.extend(unknown);
    }

    /// Returns the function that an address lies in.
    pub fn around(&self, address: u64) -> Option<&Described> {
        around(self.described, address)
    }
}

/// Returns the function that an address lies in, of functions that are sorted by address.
pub fn around(described: &[Described], address: u64) -> Option<&Described> {
    let at = described.partition_point(|function| function.start <= address);
    let before = described.get(at.checked_sub(1)?)?;
    before.contains(address).then_some(before)
}
