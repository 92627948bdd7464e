//! Whatever depends on the processor: [`Arch`], and a folder for each processor.
//!
//! All processors are always compiled, so their tests run on any machine.

mod aarch64;
mod x86_64;

pub use aarch64::Aarch64;
pub use x86_64::X86_64;

use crate::analysis::candidates::{Candidate, ImportSite, ModuleCode, ScanOptions};
use crate::analysis::image::{Image, Stub};
use crate::analysis::observed::FunctionHook;
use crate::pools::hooks::HookOptions;
use crate::pools::thunks::{Pool, PoolError, ThunkRequest};
use dioptra_tracelayout::message::RuntimeAddresses;
use object::elf::RelocationType;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Debug;

/// A processor whose code can be patched.
pub trait Arch: Copy + Debug + Default + Send + Sync + 'static {
    /// The first instructions of a function, which move to a pool.
    type Prologue: Prologue;
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
    /// The numbers of the system calls `clone`, `prctl` and `seccomp`.
    const SYSTEM_CALLS: &[u16];
    /// The relocations of pointers to functions.
    const POINTERS: [RelocationType; 2];
    /// The relocation of a word by the load address.
    const RELATIVE: RelocationType;

    /// Finds the functions of an ELF file, and the places where their calls can be traced.
    ///
    /// # Errors
    /// If the bytes are no ELF file for this machine.
    fn scan(data: &[u8], options: ScanOptions) -> Result<ModuleCode<Self>, object::Error>;

    /// Returns the functions of the C library or the dynamic linker that the runtime has to know of.
    fn hooks(data: &[u8]) -> Vec<FunctionHook<Self>>;

    /// Returns the stubs of an image whose relocations are known, by their addresses.
    fn stubs(image: &Image<'_>) -> BTreeMap<u64, Stub>;

    /// Returns the first addresses of the functions that surely call nothing, and do not go on in other functions.
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
    fn upper_bound(wanted: &[ThunkRequest<Self>], page: u64) -> u64;

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
