//! The functions of a module, and where and how their calls can be traced.
//!
//! Addresses here are those of the ELF file (virtual addresses), before it is loaded.

use super::Aarch64;
use super::displace::{Instruction, Prologue, instruction, landing, prologue};
use super::encode::{NOP, X16, words_of};
use super::flow::{Flow, flow};
use crate::analysis::candidates::{Candidate, CandidateBody, ImportCalls};
use crate::analysis::described::{Described, Slot};
use crate::analysis::image::{Image, Stub};
use crate::analysis::refusal::Refused;
use crate::analysis::scan;
use crate::analysis::special::is_silent;
use crate::arch::{Code, Functions};
use dioptra_tracelayout::message::Method;
use gimli::{CfaRule, Register, UnwindTableRow};
use object::elf::{R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_AARCH64_RELATIVE, RelocationType};
use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

/// `mov REGISTER, x30`, without the register.
const TAKES_RETURN_ADDRESS: u32 = 0xaa1e_03e0;
/// `xpaclri`: takes the signature off a return address, to look at it.
const STRIPS_RETURN_ADDRESS: u32 = 0xd503_20ff;

/// The largest space for a hook in bytes.
const MOST_SPACE: u64 = 1 << 12;

type Scanner<'s> = scan::Scanner<'s, Aarch64>;

impl Functions for Aarch64 {
    type Flow<'s> = OnceFlow<'s>;

    const POINTERS: [RelocationType; 2] = [R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT];
    const RELATIVE: RelocationType = R_AARCH64_RELATIVE;
    const OTHER_CALLS: u8 = 0x80;
    /// The pseudo-register that says whether the return address is signed.
    const RULED_AT_ENTRY: Register = Register(34);
    const RESULTS: u16 = 4;

    fn slot(row: &UnwindTableRow<usize>) -> Slot {
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } if *register == Self::STACK_POINTER => {
                Slot::AboveStackPointer(*offset)
            }
            _ => Slot::Unknown,
        }
    }

    fn landing(code: &[u8]) -> usize {
        words_of(code).next().map_or(0, landing) as usize
    }

    fn flow<'s>(image: &'s Image<'s>, described: &'s [Described]) -> OnceFlow<'s> {
        OnceFlow {
            image,
            described,
            flow: OnceLock::new(),
        }
    }

    fn listed(scanner: &Scanner<'_>, covered: &mut HashSet<u64>) -> Vec<Candidate<Self>> {
        let found = scanner.patchable.iter().filter_map(|site| {
            let (candidate, behind) = scanner.patchable(*site)?;
            covered.extend([candidate.start, behind]);
            Some(candidate)
        });
        found.collect()
    }

    fn candidate(
        scanner: &Scanner<'_>,
        flow: &OnceFlow<'_>,
        function: &Described,
        _: Option<u64>,
    ) -> Option<Result<Candidate<Aarch64>, Refused>> {
        let bytes = scanner.image.bytes(function.start, function.size)?;
        let words: Vec<u32> = words_of(bytes).collect();
        let skip = landing(*words.first()?);
        let site = function.start + skip;
        let code = words.get(skip as usize / 4..)?;
        let made = |method, body| {
            let place = (function.start, function.size);
            Some(Ok(Candidate::new(place, method, site, body)))
        };
        let calls = |name: &'static str, most: usize| {
            let inside = code.iter().enumerate().take(most);
            inside
                .filter(|(at, word)| scanner.called(**word, site + 4 * *at as u64) == Some(name))
                .map(|(at, _)| at)
                .next()
        };

        // The calls of hooks lie behind the prologue, not far from the start.
        if scanner.cyg && calls("__cyg_profile_func_enter", 200).is_some() {
            return made(Method::Cygprof, CandidateBody::Itself);
        }
        let mcount = calls("_mcount", 64);
        if let Some(why) = scanner.not_ordinary(function, mcount.is_some()) {
            return why.map(Err);
        }
        let prologue = match prologue(code.iter().copied(), site) {
            Ok(prologue) => prologue,
            Err(why) => return Some(Err(why)),
        };
        let flow = flow.get();
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

    /// A stub may begin with a landing pad. It puts the address of its pointer's page in `x16`, loads the pointer into
    /// `x17`, and branches to that.
    fn stubs(bytes: &[u8], address: u64) -> Vec<(u64, u64, u64)> {
        /// `ldr x17, [x16, …]`.
        const LOAD: u32 = 0xf940_0211;
        let words: Vec<u32> = words_of(bytes).collect();
        let stub = |(at, pair): (usize, &[u32])| {
            let jump = address.wrapping_add(4 * at as u64);
            let [first, load] = *pair else { return None };
            let Instruction::Makes(X16, page) = instruction(first, jump) else {
                return None;
            };
            if load & 0xffc0_03ff != LOAD {
                return None;
            }
            let pointer = page.wrapping_add(u64::from(load >> 10 & 0xfff) * 8);
            let before = at.checked_sub(1).and_then(|at| words.get(at));
            let pad = before.map_or(0, |word| landing(*word));
            Some((jump.wrapping_sub(pad), jump, pointer))
        };
        words.windows(2).enumerate().filter_map(stub).collect()
    }

    /// A stub's first instruction is displaced.
    fn stub_body(image: &Image<'_>, stub: &Stub<'_>) -> Option<CandidateBody<Aarch64>> {
        let first = image.bytes(stub.jump, 4)?;
        let prologue = prologue(words_of(first), stub.jump).ok()?;
        Some(CandidateBody::Displaced(prologue))
    }

    /// Calls through registers are not looked for on this processor. Users get the names of functions that have
    /// pointers, but no stubs: these may be called so.
    fn import_calls(image: &Image<'_>, _: &[Described]) -> ImportCalls {
        let stubs: HashSet<&str> = image.stubs.values().map(|stub| stub.name).collect();
        let through_registers = image
            .imports
            .values()
            .filter(|name| !stubs.contains(*name) && !is_silent(name))
            // The code that starts and ends programs only looks at the pointers of these functions.
            .filter(|name| !name.starts_with("_ITM_") && **name != "abort")
            .map(|name| (*name).to_owned())
            .collect();
        ImportCalls {
            sites: BTreeMap::new(),
            through_registers,
        }
    }

    fn library_prologue(code: &[u8], site: u64, _: usize) -> Option<Prologue> {
        prologue(words_of(code), site).ok()
    }
}

impl Scanner<'_> {
    /// Returns the function with space for a hook at a listed address, and the address at which its unwind table
    /// begins, which may lie behind the space.
    pub fn patchable(&self, listed: u64) -> Option<(Candidate<Aarch64>, u64)> {
        let word = |address| words_of(self.image.bytes(address, 4)?).next();
        let site = listed + landing(word(listed)?);
        let mut behind = site;
        while behind - site < MOST_SPACE && word(behind) == Some(NOP) {
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
        let around = self.around(behind)?;
        let size = around.start + around.size - start;
        let body = CandidateBody::At(behind);
        let candidate = Candidate::new((start, size), Method::Patchable, site, body);
        Some((candidate, around.start))
    }

    /// Returns the name of the function of another module that the instruction at an address calls.
    fn called(&self, word: u32, address: u64) -> Option<&str> {
        match instruction(word, address) {
            Instruction::Calls(target) => Some(self.image.stubs.get(&target)?.name),
            _ => None,
        }
    }
}

/// The control flow of a module, found when it is first asked for.
pub struct OnceFlow<'s> {
    image: &'s Image<'s>,
    described: &'s [Described],
    flow: OnceLock<Flow>,
}

impl OnceFlow<'_> {
    fn get(&self) -> &Flow {
        self.flow.get_or_init(|| flow(self.image, self.described))
    }
}
