//! Stubs of sampled functions, which their probe sites jump to: a stub counts calls, and lets calls pass that are not
//! chosen.
//!
//! A trigger chooses single calls (`tree` is false). Its stub:
//!
//! ```text
//!     cmp rsp, fs:[HIDDEN]            hidden by its place: not counted
//!     jb BODY
//!     je slow                         a tail call of what hides, perhaps: the runtime finds out
//!     mov [rsp - 8], rax              below the stack, where handlers leave room
//!     mov rax, fs:[RECORD]
//!     mov rax, [rax + CURSOR_AREA]
//!     test rax, rax
//!     jz restore_slow                 a thread's first call
//!     sub qword [rax + word], 1       so many are still to be skipped
//!     jb end_of_gap
//!     mov rax, [rsp - 8]
//!     jmp BODY
//! ```
//!
//! A filter chooses calls together with the calls below them. Its stub sends calls that are not chosen to a thunk that
//! hides the calls below them, unless the function calls nothing. It does not count calls within a chosen call. At the
//! end of a gap of constant length, the stub begins the next gap; other gaps are drawn by the runtime. The stub of a
//! rate reads the clock and compares it with the moment in the word.

use super::X86_64;
use super::thunk::distance;
use crate::pools::hooks::HookOptions;
use crate::pools::pool::{Front, Places, THUNK_SIZE};
use crate::pools::thunks::{ThunkRequest, Work};
use dioptra_filters::{Probe, SampleKind, Sampler, Sampling};
use dioptra_tracelayout::message::RuntimeAddresses;
use dioptra_tracelayout::message::thread::{BLOCK_HIDDEN, BLOCK_MUTED, BLOCK_RECORD, CURSOR_AREA};
use dioptra_tracelayout::sampling::{self, Judged};

/// The largest size in bytes of a stub's ordinary way.
pub const MAX_WAY: u64 = 144;
/// The largest size in bytes of a stub's code aside.
pub const MAX_ASIDE: u64 = 96;
/// The size in bytes of a jump to the body, with which the ordinary way ends.
const JUMP: u64 = 5;

/// The addresses at which calls go on.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// The function itself.
    pub body: u64,
    /// The address for calls that are not chosen: the function, or a thunk that hides the calls below.
    pub skipped: u64,
    /// The thunk of a chosen call.
    pub chosen: u64,
    /// Whether a call is chosen together with the calls below it.
    pub tree: bool,
    /// The thunk that leaves the choice to the runtime.
    pub counted: u64,
}

/// A place in the code that jumps lead to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    EndOfGap,
    FirstGap,
    FirstCall,
    RestoreSlow,
    Slow,
    Within,
}

/// Code under construction.
struct Code {
    places: Places,
    /// The offset in `bytes` at which the code aside begins.
    aside: Option<usize>,
    bytes: Vec<u8>,
    jumps: Vec<(usize, Mark)>,
    marks: Vec<(usize, Mark)>,
    /// Whether all branches reach their targets.
    fits: bool,
    goes_on: bool,
}

impl Code {
    fn at(places: Places) -> Code {
        Code {
            places,
            aside: None,
            bytes: Vec::with_capacity((MAX_WAY + MAX_ASIDE) as usize),
            jumps: Vec::new(),
            marks: Vec::new(),
            fits: true,
            goes_on: false,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Ends the ordinary way: the code that follows lies aside.
    fn aside(&mut self) {
        self.aside = Some(self.bytes.len());
    }

    /// Returns the address of an offset in `bytes`.
    fn address(&self, at: usize) -> u64 {
        match self.aside {
            Some(aside) if at >= aside => self.places.aside + (at - aside) as u64,
            _ => self.places.way + at as u64,
        }
    }

    /// Adds an instruction with an offset of 32 bits, and the bytes behind that offset.
    fn with_offset(&mut self, code: &[u8], offset: i64, rest: &[u8]) {
        self.put(code);
        match i32::try_from(offset) {
            Ok(offset) => self.put(&offset.to_le_bytes()),
            Err(_) => self.fits = false,
        }
        self.put(rest);
    }

    /// Adds a branch out of this code.
    fn branch(&mut self, code: &[u8], target: u64) {
        self.put(code);
        let behind = self.address(self.bytes.len()) + 4;
        match distance(behind, target) {
            Some(bytes) => self.put(&bytes),
            None => self.fits = false,
        }
    }

    /// Adds a branch to a mark in this code.
    fn inner(&mut self, code: &[u8], mark: Mark) {
        self.put(code);
        self.put(&[0; 4]);
        self.jumps.push((self.bytes.len(), mark));
    }

    fn mark(&mut self, mark: Mark) {
        self.marks.push((self.bytes.len(), mark));
    }

    fn finish(mut self) -> Option<Front> {
        for (behind, mark) in std::mem::take(&mut self.jumps) {
            let (target, _) = self.marks.iter().find(|(_, other)| *other == mark)?;
            let operand = behind - 4;
            let bytes = distance(self.address(operand) + 4, self.address(*target))?;
            self.bytes[operand..behind].copy_from_slice(&bytes);
        }
        let aside = self.bytes.split_off(self.aside?);
        let fits = self.bytes.len() as u64 <= MAX_WAY && aside.len() as u64 <= MAX_ASIDE;
        (self.fits && fits).then_some(Front {
            way: self.bytes,
            aside,
            jump: self.goes_on.then_some(JUMP),
        })
    }

    fn save(&mut self) {
        self.put(&[0x48, 0x89, 0x44, 0x24, 0xf8]);
    }

    fn restore(&mut self) {
        self.put(&[0x48, 0x8b, 0x44, 0x24, 0xf8]);
    }
}

const JMP: &[u8] = &[0xe9];
const JB: &[u8] = &[0x0f, 0x82];
const JAE: &[u8] = &[0x0f, 0x83];
const JE: &[u8] = &[0x0f, 0x84];
const JNE: &[u8] = &[0x0f, 0x85];

/// Returns the stub of a sampled function whose thunks begin at `at`; `None` if there is none, or something is too far
/// away.
pub fn stub(
    wanted: &ThunkRequest<X86_64>,
    places: Places,
    at: u64,
    body: u64,
    runtime: &RuntimeAddresses,
    options: HookOptions,
) -> Option<Front> {
    let Work::Trace(_, probe) = wanted.work else {
        return None;
    };
    match probe {
        // The runtime finds out itself which calls are hidden.
        Probe::Sample(sampling) | Probe::SampleFilter(sampling)
            if options.other_clock && sampling.kind == SampleKind::Rate =>
        {
            None
        }
        Probe::Sample(sampling) | Probe::SampleFilter(sampling) => {
            let tree = probe.samples_trees();
            let ways = Ways {
                body,
                skipped: match tree && !wanted.is_leaf {
                    true => at + 4 * THUNK_SIZE,
                    false => body,
                },
                chosen: at,
                counted: at + 2 * THUNK_SIZE,
                tree,
            };
            count(places, sampling, options.hides, &ways, runtime)
        }
        Probe::JudgeFilter(sampling) => {
            let thunks = (at + THUNK_SIZE, at);
            judge(places, sampling.tail, body, thunks, runtime)
        }
        _ => None,
    }
}

/// Returns the stub at these places; `None` if something is too far away. `hides` says whether calls may be hidden by
/// their place.
pub fn count(
    places: Places,
    sampling: Sampling,
    hides: bool,
    ways: &Ways,
    runtime: &RuntimeAddresses,
) -> Option<Front> {
    let word = sampling::word(sampling.slot) as i64;
    let sampler = |field: usize| (sampling::sampler(sampling.slot) + field) as i64;
    let block = |cell: i64| runtime.thread_block + cell;
    let mut code = Code::at(places);
    if hides {
        let cell = match ways.tree {
            true => BLOCK_MUTED,
            false => BLOCK_HIDDEN,
        };
        code.with_offset(&[0x64, 0x48, 0x3b, 0x24, 0x25], block(cell), &[]);
        code.branch(JB, ways.body);
        code.inner(JE, Mark::Slow);
    }
    code.save();
    let is_rate = sampling.kind == SampleKind::Rate;
    let is_tree = ways.tree;
    if is_tree || !is_rate {
        // mov rax, fs:[RECORD]
        code.with_offset(&[0x64, 0x48, 0x8b, 0x04, 0x25], block(BLOCK_RECORD), &[]);
    }
    if is_tree {
        // cmp qword [rax + CURSOR_AREA], 0; cmp dword [rax + open], 0
        code.with_offset(&[0x48, 0x83, 0xb8], CURSOR_AREA, &[0]);
        code.inner(JE, Mark::FirstCall);
        code.with_offset(&[0x83, 0xb8], sampling::open(sampling.slot), &[0]);
        code.inner(JNE, Mark::Within);
    }
    if is_rate {
        // mov [rsp - 16], rdx; rdtsc; shl rdx, 32; or rax, rdx
        code.put(&[0x48, 0x89, 0x54, 0x24, 0xf0]);
        code.put(&[0x0f, 0x31, 0x48, 0xc1, 0xe2, 0x20, 0x48, 0x09, 0xd0]);
        // mov rdx, fs:[RECORD]; mov rdx, [rdx + CURSOR_AREA]; test rdx, rdx
        code.with_offset(&[0x64, 0x48, 0x8b, 0x14, 0x25], block(BLOCK_RECORD), &[]);
        code.with_offset(&[0x48, 0x8b, 0x92], CURSOR_AREA, &[0x48, 0x85, 0xd2]);
    } else {
        // mov rax, [rax + CURSOR_AREA]; test rax, rax
        code.with_offset(&[0x48, 0x8b, 0x80], CURSOR_AREA, &[0x48, 0x85, 0xc0]);
    }
    code.inner(JE, Mark::RestoreSlow);
    if is_rate {
        // cmp rax, [rdx + word]; inc qword [rdx + finished]
        code.with_offset(&[0x48, 0x3b, 0x82], word, &[]);
        code.inner(JAE, Mark::RestoreSlow);
        code.with_offset(&[0x48, 0xff, 0x82], sampler(Sampler::FINISHED), &[]);
        code.put(&[0x48, 0x8b, 0x54, 0x24, 0xf0]);
    } else {
        // sub qword [rax + word], 1
        code.with_offset(&[0x48, 0x83, 0xa8], word, &[1]);
        code.inner(JB, Mark::EndOfGap);
    }
    code.restore();
    code.branch(JMP, ways.skipped);
    code.goes_on = ways.skipped == ways.body;
    // A body that follows needs no jump.
    if code.goes_on && ways.body + JUMP == code.address(code.bytes.len()) {
        code.bytes.truncate(code.bytes.len() - JUMP as usize);
    }
    code.aside();

    let constant = i32::try_from(sampling.parameter)
        .ok()
        .filter(|_| sampling.kind == SampleKind::Every);
    if !is_rate {
        code.mark(Mark::EndOfGap);
        if let Some(gap) = constant {
            // An addition, unlike a store, keeps the count of a handler that has run meanwhile.
            code.with_offset(&[0x48, 0x83, 0xb8], sampler(Sampler::GAP), &[0]);
            code.inner(JE, Mark::FirstGap);
            let gap = gap.to_le_bytes();
            code.with_offset(&[0x48, 0x81, 0x80], word, &gap);
            code.with_offset(&[0x48, 0x81, 0x80], sampler(Sampler::FINISHED), &gap);
            code.with_offset(&[0x48, 0xff, 0x80], sampler(Sampler::SHOWN), &[]);
            code.restore();
            code.branch(JMP, ways.chosen);
            code.mark(Mark::FirstGap);
        }
        // add qword [rax + word], 1
        code.with_offset(&[0x48, 0x83, 0x80], word, &[1]);
    }
    code.mark(Mark::RestoreSlow);
    if is_rate {
        code.put(&[0x48, 0x8b, 0x54, 0x24, 0xf0]);
    }
    code.mark(Mark::FirstCall);
    code.restore();
    code.mark(Mark::Slow);
    code.branch(JMP, ways.counted);
    if is_tree {
        code.mark(Mark::Within);
        code.restore();
        code.branch(JMP, ways.chosen);
    }
    code.finish()
}

/// Returns the stub at these places of a filter whose executions are judged at their ends; `None` if something is too
/// far away.
///
/// `number` is the function's number among those that are judged. Recursion within an execution belongs to it: such a
/// call goes on with the thunk at `within`, any other call with the thunk at `judged`.
pub fn judge(
    places: Places,
    number: u32,
    body: u64,
    (judged, within): (u64, u64),
    runtime: &RuntimeAddresses,
) -> Option<Front> {
    let block = |cell: i64| runtime.thread_block + cell;
    let mut code = Code::at(places);
    code.with_offset(&[0x64, 0x48, 0x3b, 0x24, 0x25], block(BLOCK_MUTED), &[]);
    code.branch(JB, body);
    code.inner(JE, Mark::Slow);
    code.save();
    code.with_offset(&[0x64, 0x48, 0x8b, 0x04, 0x25], block(BLOCK_RECORD), &[]);
    // cmp qword [rax + CURSOR_AREA], 0
    code.with_offset(&[0x48, 0x83, 0xb8], CURSOR_AREA, &[0]);
    code.inner(JE, Mark::RestoreSlow);
    let open = sampling::judged(number) + Judged::OPEN as i64;
    code.with_offset(&[0x83, 0xb8], open, &[0]);
    code.inner(JNE, Mark::Within);
    code.mark(Mark::RestoreSlow);
    code.restore();
    code.mark(Mark::Slow);
    code.branch(JMP, judged);
    code.aside();
    code.mark(Mark::Within);
    code.restore();
    code.branch(JMP, within);
    code.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

    fn text(sampling: Sampling, muted: Option<u64>) -> Vec<String> {
        let runtime = RuntimeAddresses {
            thread_block: -0x40,
            ..RuntimeAddresses::default()
        };
        let ways = Ways {
            body: 0x5000,
            skipped: muted.unwrap_or(0x5000),
            chosen: 0x6000,
            tree: muted.is_some(),
            counted: 0x7000,
        };
        all(count(PLACES, sampling, true, &ways, &runtime))
    }

    /// Returns the instructions of a stub: the ordinary way, and then the code aside.
    fn all(stub: Option<Front>) -> Vec<String> {
        let Front { way, aside, .. } = stub.expect("near");
        let mut code = instructions(PLACES.way, &way);
        code.extend(instructions(PLACES.aside, &aside));
        code
    }

    const PLACES: Places = Places {
        way: 0x4000,
        aside: 0x4800,
    };

    fn instructions(at: u64, bytes: &[u8]) -> Vec<String> {
        let mut formatter = IntelFormatter::new();
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE)
            .into_iter()
            .map(|instruction| {
                assert!(!instruction.is_invalid());
                let mut text = String::new();
                formatter.format(&instruction, &mut text);
                text
            })
            .collect()
    }

    #[test]
    fn the_bytes_are_the_instructions_that_are_meant() {
        let mut sampling = Sampling {
            kind: SampleKind::Every,
            parameter: 100,
            slot: 2,
            tail: 0,
        };
        let code = text(sampling, None);
        assert_eq!(code[0], "cmp rsp,fs:[0FFFFFFFFFFFFFFD0h]");
        assert_eq!(code[1], "jb 0000000000005000h");
        assert_eq!(code[3], "mov [rsp-8],rax");
        assert_eq!(code[4], "mov rax,fs:[0FFFFFFFFFFFFFFC0h]");
        assert_eq!(code[5], "mov rax,[rax-0FD0h]");
        assert_eq!(code[6], "test rax,rax");
        assert_eq!(code[8], "sub qword ptr [rax+50h],1");
        assert_eq!(code[9], "jb 0000000000004800h");
        assert_eq!(code[10], "mov rax,[rsp-8]");
        assert_eq!(code[11], "jmp 0000000000005000h");
        assert_eq!(code[12], "cmp qword ptr [rax+400C8h],0");
        assert_eq!(code[14], "add qword ptr [rax+50h],64h");
        assert_eq!(code[15], "add qword ptr [rax+400D0h],64h");
        assert_eq!(code[16], "inc qword ptr [rax+400D8h]");
        assert_eq!(code[18], "jmp 0000000000006000h");
        assert_eq!(
            code.last().map(String::as_str),
            Some("jmp 0000000000007000h")
        );

        let code = text(sampling, Some(0x8000));
        assert_eq!(code[0], "cmp rsp,fs:[0FFFFFFFFFFFFFFD8h]");
        assert_eq!(code[5], "cmp qword ptr [rax-0FD0h],0");
        assert_eq!(code[7], "cmp dword ptr [rax-60FF8h],0");
        assert_eq!(code[9], "mov rax,[rax-0FD0h]");
        assert!(code.contains(&"jmp 0000000000008000h".to_owned()));
        assert_eq!(
            code.last().map(String::as_str),
            Some("jmp 0000000000006000h")
        );

        sampling.kind = SampleKind::Rate;
        let code = text(sampling, Some(0x8000));
        assert_eq!(code[7], "cmp dword ptr [rax-60FF8h],0");
        assert_eq!(code[10..13], ["rdtsc", "shl rdx,20h", "or rax,rdx"]);
        assert_eq!(code[13], "mov rdx,fs:[0FFFFFFFFFFFFFFC0h]");
        assert_eq!(code[17], "cmp rax,[rdx+50h]");
        assert_eq!(code[19], "inc qword ptr [rdx+400D0h]");
        assert_eq!(code[20..22], ["mov rdx,[rsp-10h]", "mov rax,[rsp-8]"]);
    }

    #[test]
    fn recursion_within_an_execution_that_is_judged_takes_the_short_way() {
        let runtime = RuntimeAddresses {
            thread_block: -0x40,
            ..RuntimeAddresses::default()
        };
        let code = all(judge(PLACES, 2, 0x5000, (0x6000, 0x7000), &runtime));
        assert_eq!(code[0], "cmp rsp,fs:[0FFFFFFFFFFFFFFD8h]");
        assert_eq!(code[1], "jb 0000000000005000h");
        assert_eq!(code[3], "mov [rsp-8],rax");
        assert_eq!(code[5], "cmp qword ptr [rax-0FD0h],0");
        assert_eq!(code[8], "jne 0000000000004800h");
        assert_eq!(code[9..11], ["mov rax,[rsp-8]", "jmp 0000000000006000h"]);
        assert_eq!(code[11..], ["mov rax,[rsp-8]", "jmp 0000000000007000h"]);
    }

    #[test]
    fn a_body_that_follows_is_not_jumped_to() {
        let sampling = Sampling {
            kind: SampleKind::Every,
            parameter: 100,
            slot: 2,
            tail: 0,
        };
        let runtime = RuntimeAddresses::default();
        let way = |body| {
            let ways = Ways {
                body,
                skipped: body,
                chosen: 0x6000,
                tree: false,
                counted: 0x7000,
            };
            count(PLACES, sampling, false, &ways, &runtime)
                .expect("near")
                .way
        };
        let jumps = way(0x5000);
        assert!(jumps.len() <= 64);
        let follows = way(PLACES.way + jumps.len() as u64 - 5);
        assert_eq!(follows, jumps[..jumps.len() - 5]);
    }

    #[test]
    fn what_is_too_far_is_refused() {
        let sampling = Sampling {
            kind: SampleKind::Every,
            parameter: 2,
            slot: sampling::SLOTS as u32 - 1,
            tail: 0,
        };
        let ways = Ways {
            body: 1 << 40,
            skipped: 1 << 40,
            chosen: 0x6000,
            tree: false,
            counted: 0x7000,
        };
        let runtime = RuntimeAddresses::default();
        assert!(count(PLACES, sampling, true, &ways, &runtime).is_none());
    }
}
