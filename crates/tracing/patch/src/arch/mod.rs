//! Whatever depends on the processor: [`Arch`] and [`Code`], and a folder for each processor.
//!
//! All processors are always compiled, so their tests run on any machine.

mod aarch64;
mod x86_64;

pub use aarch64::Aarch64;
pub use x86_64::X86_64;

use crate::analysis::candidates::{
    Candidate, CandidateBody, ImportCalls, ImportSite, ModuleCode, ScanOptions,
};
use crate::analysis::described::{Described, Framed, Slot, Stretch};
use crate::analysis::image::{Image, Stub};
use crate::analysis::observed::{self, FunctionHook};
use crate::analysis::refusal::Refused;
use crate::analysis::scan::Scanner;
use crate::pools::hooks::{HookKind, HookOptions, HookSet, HotCode, Parameters};
use crate::pools::pool::{self, Front, Places, numbers};
use crate::pools::thunks::{Pool, PoolError, ThunkRequest};
use dioptra_filters::Sampling;
use dioptra_tracelayout::message::RuntimeAddresses;
use gimli::write::{CallFrameInstruction, Expression};
use gimli::{Register, UnwindTableRow};
use object::elf::{Machine, RelocationType};
use std::collections::HashSet;
use std::fmt::Debug;
use std::ops::Range;

/// A processor whose code can be patched.
///
/// `scan` and `pool` are the same for all processors, and yet no default methods. So the compiler makes their code in this
/// crate, where it can merge them with the small functions that they call often.
pub trait Arch: Functions + Thunks {
    /// The registers of a stopped thread.
    type Registers: Registers;

    /// The size in bytes of the jump that takes the place of a function's first instructions.
    const JUMP: usize;
    /// The reach of a branch in bytes, with room to spare.
    const REACH: u64;
    /// An address behind all addresses of programs that do not ask for higher ones.
    const HIGHEST: u64;
    /// Whether hooks record values of calls.
    const RECORDS_VALUES: bool;
    /// The compiler options that leave room for a patch.
    const ROOM: &str;
    /// Whether an instruction may be overwritten while threads run.
    const SEES_AT_ONCE: bool;
    /// The offset in a thunk of the address to which hooks of entries return.
    const HOOK_RETURN: i64;

    /// Finds the functions of an ELF file, and the places where their calls can be traced.
    ///
    /// # Errors
    /// If the bytes are no ELF file for this machine.
    fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode<Self>, object::Error>;

    /// Returns the functions of the C library or the dynamic linker that the runtime has to know of.
    fn hooks(data: &[u8]) -> Vec<FunctionHook<Self>> {
        observed::hooks(data)
    }

    /// Returns the first addresses of the functions that surely call nothing, and do not go on in other functions.
    /// Nothing is returned for a processor on which the runtime counts sampled calls itself.
    fn leaves<'c>(
        _data: &[u8],
        _candidates: impl Iterator<Item = &'c Candidate<Self>>,
    ) -> HashSet<u64> {
        HashSet::new()
    }

    /// Returns an instruction that takes the place of a call through a pointer, and uses `target` itself; `None` if
    /// `target` is out of reach.
    fn direct(_site: &ImportSite, _target: u64) -> Option<Vec<u8>> {
        None
    }

    /// Returns the bytes that lead a site to a thunk; `None` if the thunk is out of reach. `prologue` holds the
    /// instructions that are moved away.
    fn patch(site: u64, thunk: u64, prologue: Option<&Self::Prologue>) -> Option<Vec<u8>>;

    /// Returns the largest size in bytes of the address space that a pool with these thunks takes. `page` is the size of
    /// a page in bytes.
    fn upper_bound(wanted: &[ThunkRequest<Self>], page: u64) -> u64 {
        pool::upper_bound(wanted, page)
    }

    /// Makes the pool for these thunks at `address`. `page` is the size of a page in bytes.
    ///
    /// # Errors
    /// [`PoolError`]
    fn pool(
        address: u64,
        wanted: &[ThunkRequest<Self>],
        runtime: RuntimeAddresses,
        options: HookOptions,
        page: u64,
    ) -> Result<Pool, PoolError>;

    /// Returns whether the overwritten bytes are one instruction.
    fn is_one_instruction(original: &[u8]) -> bool;

    /// Returns whether these are instructions that do nothing.
    fn is_nothing(bytes: &[u8]) -> bool;

    /// Returns whether the overwritten bytes are one instruction, or do nothing. Breakpoints are set where an
    /// instruction begins.
    fn is_whole(original: &[u8]) -> bool {
        Self::is_one_instruction(original) || Self::is_nothing(original)
    }
}

/// The code of a processor.
pub trait Code: Copy + Debug + Default + Send + Sync + 'static {
    /// The first instructions of a function, which move to a pool.
    type Prologue: Prologue;

    /// The machine, as ELF files name it.
    const MACHINE: Machine;
    /// The numbers of the system calls `clone`, `prctl` and `seccomp`.
    const SYSTEM_CALLS: &[u16];
    /// The stack pointer, as a register of unwind tables.
    const STACK_POINTER: Register;
    /// The return address, as a register of unwind tables.
    const RETURN_ADDRESS: Register;
}

/// The search for functions, as far as it depends on the processor.
pub trait Functions: Code {
    /// The control flow of a module, found when it is first asked for.
    type Flow<'s>: Sync;

    /// The relocations of pointers to functions.
    const POINTERS: [RelocationType; 2];
    /// The relocation of a word by the load address.
    const RELATIVE: RelocationType;
    /// The flags of a symbol whose function passes and keeps more than the ordinary registers.
    const OTHER_CALLS: u8 = 0;
    /// The only register for which unwind tables may have a rule where a function begins.
    const RULED_AT_ENTRY: Register;
    /// The number of registers, from the first one on, that hold results. Only functions that resume after exceptions
    /// save them.
    const RESULTS: u16;

    /// Returns the place of the return address in a row of unwind tables.
    fn slot(row: &UnwindTableRow<usize>) -> Slot;

    /// Returns the frame of a function, if it is framed.
    fn framed(_: &Image<'_>, _: &Described, _: &[Stretch]) -> Option<Framed> {
        None
    }

    /// Returns the size in bytes of a landing pad at a function's start, which can stay where it is; 0 if there is none.
    fn landing(code: &[u8]) -> usize;

    /// Creates the control flow of the functions of an image, without finding it yet.
    fn flow<'s>(image: &'s Image<'s>, described: &'s [Described]) -> Self::Flow<'s>;

    /// Returns the candidates that a section lists, whatever unwind tables say of them, and adds the addresses at which
    /// the tables say that they begin.
    fn listed(_: &Scanner<'_, Self>, _covered: &mut HashSet<u64>) -> Vec<Candidate<Self>> {
        Vec::new()
    }

    /// Returns a function as a candidate, or the reason why it is refused; `None` if it is not wanted. `next` is the
    /// first address of the function behind it.
    fn candidate(
        scanner: &Scanner<'_, Self>,
        flow: &Self::Flow<'_>,
        function: &Described,
        next: Option<u64>,
    ) -> Option<Result<Candidate<Self>, Refused>>;

    /// Finds out what all code must be decoded for, before threads share the work.
    fn prepare(_flow: &Self::Flow<'_>) {}

    /// Returns the stubs in the bytes of a section: for each its first address, the address of its jump, and that of the
    /// pointer.
    fn stubs(bytes: &[u8], address: u64) -> Vec<(u64, u64, u64)>;

    /// Returns the code of a stub's thunk; `None` if its calls can't be traced.
    fn stub_body(image: &Image<'_>, stub: &Stub<'_>) -> Option<CandidateBody<Self>>;

    /// Finds the calls of library functions that bypass the stubs.
    fn import_calls(image: &Image<'_>, described: &[Described]) -> ImportCalls;

    /// Returns the instructions that a jump at a library function would overwrite; `size` is the function's.
    fn library_prologue(code: &[u8], site: u64, size: usize) -> Option<Self::Prologue>;
}

/// The code and the unwind tables of pools, as far as they depend on the processor.
pub trait Thunks: Code {
    /// The largest size of the hooks in bytes. A pool is laid out before their size is known.
    const HOT_SIZE: u64;
    /// The bytes of a filler of gaps.
    const FILL: &[u8];
    /// The alignment of the code in front of thunks.
    const FRONT_ALIGN: usize;
    /// The largest size in bytes of the gate of a thunk, with its alignment.
    const GATE_SIZE: u64;
    /// The size in bytes of a gate that its body follows; `None` if no gate is made so.
    const SHORT_GATE_SIZE: Option<u64> = None;
    /// The largest size in bytes of the code of a sampled function that lies aside, and of all its code.
    const STUB_SIZE: (u64, u64) = (0, 0);
    /// The largest size of displaced instructions in bytes.
    const MAX_DISPLACED: u64;

    /// Generates the hooks.
    ///
    /// # Errors
    /// [`PoolError`]
    fn hot_code(parameters: &Parameters) -> Result<HotCode, PoolError>;

    /// Returns the rows of unwind tables at a function's first instruction.
    fn first_rows() -> Vec<CallFrameInstruction>;

    /// Returns the registers of a thunk's caller that shadow stacks hold, with the expressions that find them.
    fn callers(runtime: &RuntimeAddresses) -> Vec<(Register, Expression)>;

    /// Returns the rows of a thunk, by offset.
    fn thunk_rows() -> Vec<(u32, CallFrameInstruction)>;

    /// Returns displaced instructions for the place `at`, with a jump to the rest of the function behind them, and the
    /// offset of the first instruction; `None` if something is out of reach. `thunk` returns the thunk that takes the
    /// place of an instruction that calls a library function.
    fn displace(
        prologue: &Self::Prologue,
        at: u64,
        pool: &Range<u64>,
        thunk: impl Fn(u64) -> Option<u64>,
    ) -> Option<(Vec<u8>, u64)>;

    /// Returns whether code may run into displaced instructions from in front of them.
    fn may_follow(_prologue: &Self::Prologue) -> bool {
        false
    }

    /// Returns a jump through a pointer; `None` if that is out of reach, or calls through pointers are not traced.
    fn through_pointer(_at: u64, _pointer: u64) -> Option<Vec<u8>> {
        None
    }

    /// Returns the thunk at `at` with these hooks for the function with this id, whose body is at `body`; `None` if
    /// something is out of reach.
    fn thunk(at: u64, id: u32, hooks: HookSet, body: u64) -> Option<Vec<u8>>;

    /// Returns the numbers behind the thunk of a function that is judged; `None` if its memory is too far from the
    /// record. Where the runtime judges, it needs the slot only.
    fn judge_numbers(sampling: Sampling) -> Option<Vec<u8>> {
        Some(numbers::<Self>(sampling.slot))
    }

    /// Returns the code of a sampled function's site; `None` if there is none, or something is out of reach.
    fn stub(
        _wanted: &ThunkRequest<Self>,
        _places: Places,
        _thunks: u64,
        _body: u64,
        _runtime: &RuntimeAddresses,
        _options: HookOptions,
    ) -> Option<Front> {
        None
    }

    /// Returns the gate at `at`: a call that is hidden by its place goes on with `body`, any other call with the thunk.
    /// Returns `None` if something is out of reach.
    fn gate(
        at: u64,
        kind: HookKind,
        thunk: u64,
        body: u64,
        runtime: &RuntimeAddresses,
    ) -> Option<Vec<u8>>;

    /// Returns the thunk at `at` that reports a call of `function` to the runtime, through the code at `observer`, and
    /// then goes on with `body`; `None` if something is out of reach.
    fn observer(at: u64, function: u32, observer: u64, body: u64) -> Option<Vec<u8>>;

    /// Returns the code at `at` that goes on with `thunk` if the call's first argument is one of `values`, and else with
    /// `body`. Returns `None` if all values are wanted, or something is out of reach.
    fn asks(at: u64, values: &[u16], thunk: u64, body: u64) -> Option<Vec<u8>>;

    /// Returns a jump to a target at any distance.
    fn far_jump(target: u64) -> Vec<u8>;
}

/// The first instructions of a function, which move to a pool.
pub trait Prologue: Clone + Debug + Send + Sync {
    /// Returns a copy with all addresses moved by the distance at which the module was loaded.
    #[must_use]
    fn rebase(&self, bias: u64) -> Self;
}

/// The general registers of a stopped thread, as the kernel hands them over.
pub trait Registers: Copy {
    /// Returns the address at which the thread goes on.
    fn program_counter(&self) -> u64;

    /// Returns the stack pointer.
    fn stack_pointer(&self) -> u64;

    /// Returns the address of the C library's description of the thread, or the stack pointer if no general register
    /// holds that address.
    fn thread_pointer(&self) -> u64 {
        self.stack_pointer()
    }

    /// Returns the registers with which a system call begins again that the stop has ended with EINTR; `None` if the
    /// stop has not done so, or nothing is known of the call.
    fn restart(self) -> Option<Self> {
        None
    }
}
