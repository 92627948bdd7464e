//! Messages of a traced process and its recorder over a stream socket.
//!
//! The socket is an abstract one, so that a changed root folder does not hide it. Its name is in the environment
//! variable [`SOCKET`]. A process connects when it starts, and again when it has loaded modules; no descriptor stays
//! open.
//!
//! ```text
//! process                                     recorder
//! Hello                                 ──▶
//!                                       ◀──   Welcome   (at a start: descriptors of the arena and the presence memory)
//! StepRequest, outcome of the last step ──▶
//!                                       ◀──   SetupStep (a pool and its patches, or function ids)
//!                    … until a step is StepKind::Done
//! ```
//!
//! A step makes the calls of one module's functions traceable. The recorder has analysed the module and made a
//! *pool*, a small ELF file with a thunk for each probe site, linked for one address near the module. The process
//! loads the pool (`dlopen` of the descriptor), checks where it lies, and then writes the [`Patch`]es.
//!
//! Both ends run on one machine and come from one build. So messages are the structs' memory, and a version guards
//! them.

/// The environment variable that holds the name of the recorder's socket (abstract, without its leading zero byte).
pub const SOCKET: &str = "DIOPTRA_TRACE_SOCKET";

/// The environment variable that holds the path of the runtime.
pub const RUNTIME: &str = "DIOPTRA_TRACE_RUNTIME";

/// An option of AddressSanitizer for the environment variable `ASAN_OPTIONS`: its library need not be loaded before
/// all others, such as the runtime.
pub const ASAN_LAST: &str = "verify_asan_link_order=0";

/// The environment variable with the number of system call filters (seccomp) under which a traced program may run:
/// the recorder's own filters, and others that are known to allow the runtime's system calls.
pub const FILTERS: &str = "DIOPTRA_TRACE_FILTERS";

/// The name of the runtime's function that connects a process which was already running when the runtime was loaded.
///
/// The recorder lets a thread of the process call it with two arguments, which must stay where they are: `NAME=VALUE`
/// with [`SOCKET`] as its name, and the same with [`RUNTIME`], or null if executed programs could not load the runtime's
/// file. The function returns an [`AttachResult`].
pub const ATTACH: &str = "dioptra_attach";

/// The name of the runtime's function that prepares a process to lose the runtime. Returns 0, or 1 if calls are open
/// that will return through it.
pub const RELEASE: &str = "dioptra_release";

/// The name of the runtime's function that unmaps all memory of the runtime but its own, after [`RELEASE`], while no
/// other thread executes its code or will return to it.
pub const UNLOAD: &str = "dioptra_unload";

/// The result of the runtime's function [`ATTACH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum AttachResult {
    /// The process is connected, and has carried out the recorder's steps.
    Connected = 0,
    /// The C library is not glibc.
    OtherLibrary = 1,
    /// The process runs under a system call filter (seccomp).
    Confined = 2,
    /// The processor lacks a feature.
    Processor = 3,
    /// The recorder's socket is in another network namespace.
    Elsewhere = 4,
    /// The recorder did not answer, or broke off.
    NoAnswer = 5,
    /// The recorder refused the process.
    Refused = 6,
    /// The memory for records could not be mapped.
    NoMemory = 7,
}

impl AttachResult {
    /// All results in the order of their numbers.
    pub const ALL: [AttachResult; 8] = [
        AttachResult::Connected,
        AttachResult::OtherLibrary,
        AttachResult::Confined,
        AttachResult::Processor,
        AttachResult::Elsewhere,
        AttachResult::NoAnswer,
        AttachResult::Refused,
        AttachResult::NoMemory,
    ];
}

/// The size in bytes of the presence memory, which every traced process maps shared and writable. The recorder sees
/// by it which processes are still there, even those whose parents were traced and who have closed all descriptors.
/// The memory holds nothing.
pub const PRESENCE_SIZE: usize = 4096;

/// The way in which calls of a function are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Method {
    /// Space that `-fpatchable-function-entry` left at the function's entry.
    Patchable = 1,
    /// A call of `__fentry__` at the function's entry, or the space for one.
    Fentry = 2,
    /// A call of `mcount` behind the function's prologue: the entry is patched like a plain function's.
    Mcount = 3,
    /// The function's first instructions, moved elsewhere.
    Plain = 4,
    /// Calls of `__cyg_profile_func_enter` and `…_exit`.
    Cygprof = 5,
    /// An XRay sled.
    Xray = 6,
    /// A stub of the procedure linkage table.
    Plt = 7,
    /// Calls through the pointer that the dynamic linker has filled.
    Got = 8,
}

impl Method {
    /// All methods in the order of their numbers.
    pub const ALL: [Method; 8] = [
        Method::Patchable,
        Method::Fentry,
        Method::Mcount,
        Method::Plain,
        Method::Cygprof,
        Method::Xray,
        Method::Plt,
        Method::Got,
    ];

    /// Returns the method's name, as users and files know it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Patchable => "patchable",
            Method::Fentry => "fentry",
            Method::Mcount => "mcount",
            Method::Plain => "plain",
            Method::Cygprof => "cygprof",
            Method::Xray => "xray",
            Method::Plt => "plt",
            Method::Got => "got",
        }
    }

    /// Returns true if the method finds library calls (calls of other modules' functions) rather than functions.
    pub fn finds_library_calls(self) -> bool {
        matches!(self, Method::Plt | Method::Got)
    }
}

/// Addresses in the traced process that generated code refers to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RuntimeAddresses {
    /// The offset of the thread's block from the thread pointer (x86-64: `%fs`, AArch64: `TPIDR_EL0`). See
    /// [`thread`].
    pub thread_block: i64,
    /// The head of the list of [thread records](thread).
    pub threads: u64,
    /// The head of the list of [spans of shadow stack memory](thread::SPAN_NEXT).
    pub spans: u64,
    /// A personality routine for the frames of thunks.
    pub personality: u64,
    /// The target of a hook of an entry that leaves the call to the slow path.
    pub enter_slow: u64,
    /// The target of a hook of an exit that leaves the call to the slow path.
    pub exit_slow: u64,
    /// The replacement of the C library's `execve`.
    pub execve: u64,
    /// The function that is called before [observed functions](Observed) do their work.
    pub observe: u64,
}

/// The operand of a thunk that reports a library call to the runtime and leaves the return address alone: the bits
/// here, and the function id below them. Other operands of such thunks are numbers of [`Observed`].
pub mod notified {
    /// The bit that every such operand has.
    pub const MARK: u32 = 1 << 30;
    /// The call may be hidden by its position on the stack.
    pub const GATED: u32 = 1 << 29;
    /// The call is a filter's: it is recorded even outside of other filters' calls.
    pub const FILTER: u32 = 1 << 28;
    /// The bits of the function id.
    pub const ID: u32 = FILTER - 1;
}

/// A function of the C library or the dynamic linker whose calls the runtime watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Observed {
    /// `swapcontext`: the thread goes on with another call stack.
    SwapContext = 1,
    /// `setcontext`: the thread goes on with another call stack and does not come back.
    SetContext = 2,
    /// `_dl_debug_state`, which the dynamic linker calls before and after it changes the list of modules.
    ModulesChange = 3,
    /// `longjmp` and its kin: calls below the target end without returning.
    Jump = 4,
    /// `clone`: another task begins, perhaps with the same thread-local memory.
    Clone = 5,
    /// `prctl`: the process may forbid itself system calls.
    Prctl = 6,
    /// `syscall`: the call may be a `clone` or a `prctl`.
    Syscall = 7,
}

/// The reason why a process connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// The process has begun to execute a program.
    Start = 1,
    /// The process has loaded modules, and no thread has run their code yet.
    Modules = 2,
    /// The process has loaded modules or is about to. Threads may already run the code of the modules that are found
    /// now.
    Found = 3,
}

/// The first message of a process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Hello {
    /// [`crate::VERSION`].
    pub version: u32,
    /// A [`Reason`].
    pub reason: u32,
    /// The process's id, as the process sees it.
    pub pid: u32,
    /// The id of the connecting thread, as the process sees it.
    pub tid: u32,
    /// The addresses of the process's runtime.
    pub addresses: RuntimeAddresses,
}

/// The recorder's answer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Welcome {
    /// [`crate::VERSION`].
    pub version: u32,
    /// 0 if all is well; else the process is not traced.
    pub refused: u32,
    /// The arena's size in bytes; its descriptor comes with this message if the reason was a start.
    pub arena_size: u64,
    /// The process's id in the recorder's pid namespace.
    pub pid: u32,
    /// Always 0.
    pub reserved: u32,
}

/// The process's request for a step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StepRequest {
    /// The outcome of the last step, an [`Applied`].
    pub applied: u32,
    /// The error number (errno) of the last step, or 0.
    pub error: u32,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Applied {
    /// There was no step.
    Nothing = 0,
    /// The step was carried out.
    Done = 1,
    /// The pool could not be loaded.
    NoPool = 2,
    /// The pool was loaded at another address.
    Misplaced = 3,
    /// The code could not be made writable.
    NoPatch = 4,
    /// There was no memory for the table of functions.
    NoMemory = 5,
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StepKind {
    /// There are no more steps.
    Done = 0,
    /// Load the pool of the first descriptor, apply the patches of the second.
    Module = 1,
    /// Learn the [`InstrumentedFunction`]s of the second descriptor, and forget those whose id is 0; `patches` is their number.
    Functions = 2,
}

/// A function that reports its own beginning and end (`-finstrument-functions`), and its id.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstrumentedFunction {
    /// The function's address.
    pub address: u64,
    /// The function's id; 0 if its calls are not wanted, or its module was unloaded.
    pub id: u32,
    /// The duty of the function's hook, bits of [`thread::kind`].
    pub kind: u32,
    /// The slot in which the function's calls are counted, if they are.
    pub slot: u32,
    /// The way in which the function's executions are chosen if they are counted, as in a
    /// [`SampledSlot`](crate::sampling::SampledSlot).
    pub sample: u32,
}

/// The recorder's answer to a [`StepRequest`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SetupStep {
    /// A [`StepKind`].
    pub kind: u32,
    /// The number of [`Patch`]es in the second descriptor.
    pub patches: u32,
    /// The address at which the pool must lie.
    pub pool_address: u64,
    /// The size of the pool in memory, in bytes.
    pub pool_size: u64,
}

/// The largest number of bytes that a patch writes.
pub const PATCH_SIZE: usize = 16;

/// Bytes to be written into code. Patches are sorted by address and do not overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub length: u8,
    /// The memory's protection before and after, as `mprotect` takes it.
    pub protection: u8,
    /// Always 0.
    pub reserved: [u8; 6],
    /// The bytes; those behind `length` are 0.
    pub bytes: [u8; PATCH_SIZE],
}

/// The part of a thread's memory that generated code knows: offsets in its *block*, its *cursor* and its *record*.
///
/// The block, 64 bytes of thread-local memory, points to the record. The cursor lies a page in front of the record,
/// in a page of its own. A forked child finds that page zeroed, so that it begins a stream of its own. The shadow
/// stack follows the record.
///
/// ```text
///            record - 4096 - sampling::FRONT              record - 4096    record
///            | u32 × SLOTS        | Judged × TAILS        | cursor, 1 page | record | floor | entry | entry | …
///              open executions      judged functions        CURSOR_…         RECORD_…        shadow stack ─▶ inner calls
/// ```
pub mod thread {
    /// In the block: the address of the thread's record.
    pub const BLOCK_RECORD: i64 = 0;
    /// In the block: the stack pointer of the hook that is at work, or 0.
    pub const BLOCK_BUSY: i64 = 8;
    /// In the block: calls whose stack slot lies below this address are not recorded; see [`kind`].
    pub const BLOCK_HIDDEN: i64 = 16;
    /// In the block: calls whose stack slot lies below this address pass without any work. Never above
    /// [`BLOCK_HIDDEN`].
    pub const BLOCK_MUTED: i64 = 24;
    /// In the block: the number of recorded calls around the current position, if levels are limited.
    pub const BLOCK_LEVEL: i64 = 32;

    /// In the cursor: the address at which the next record is written.
    pub const CURSOR_NEXT: i64 = -4096;
    /// In the cursor: the last address at which a record may begin.
    pub const CURSOR_END: i64 = -4096 + 8;
    /// In the cursor: the tick of the last record.
    pub const CURSOR_TIME: i64 = -4096 + 16;

    /// In the cursor: the address of the thread's [area](crate::sampling) of counters, or 0.
    pub const CURSOR_AREA: i64 = -4096 + 48;

    /// In the record: the address of the shadow stack's innermost entry.
    pub const RECORD_TOP: i64 = 0;
    /// In the record: the last address that an innermost entry may have.
    pub const RECORD_LIMIT: i64 = 8;
    /// In the record: the next record in the list, or 0.
    pub const RECORD_NEXT: i64 = 16;
    /// In the record: the address of the shadow stack's floor, the entry below all others.
    pub const RECORD_FLOOR: i64 = 24;

    /// In a span of shadow stack memory: the address of the next span in the list, or 0.
    pub const SPAN_NEXT: i64 = 0;
    /// In a span: its first address. All of the span is mapped.
    pub const SPAN_START: i64 = 8;
    /// In a span: the first address behind the span.
    pub const SPAN_END: i64 = 16;

    /// In an entry: the caller's frame pointer.
    ///
    /// ```text
    /// An entry of the shadow stack, 40 bytes:
    ///  0  ENTRY_FRAME     u64  caller's frame pointer  ┐ a frame record, as functions with a
    ///  8  ENTRY_RETURN    u64  return address          ┘ frame pointer keep it on the stack
    /// 16  ENTRY_SLOT      u64  stack slot of the return address
    /// 24  ENTRY_FUNCTION  u32  function id as in a thunk's operand
    /// 28  ENTRY_FLAGS     u32  ENTRY_… flags
    /// 32  ENTRY_SPARE     u64  for the rules; see the flags
    /// ```
    ///
    /// While the called function runs, its frame pointer first leads to the entry. So whoever follows frame pointers
    /// finds the caller.
    pub const ENTRY_FRAME: i64 = 0;
    /// In an entry: the return address.
    pub const ENTRY_RETURN: i64 = 8;
    /// In an entry: the stack slot, the address at which the return address lay on the stack.
    pub const ENTRY_SLOT: i64 = 16;
    /// In an entry: the function id in the form of a thunk's operand; see [`function_id`].
    pub const ENTRY_FUNCTION: i64 = 24;
    /// In an entry: the flags.
    pub const ENTRY_FLAGS: i64 = 28;
    /// In an entry: a word for the rules that decide what is recorded; see the flags.
    pub const ENTRY_SPARE: i64 = 32;
    /// The size of an entry in bytes.
    pub const ENTRY_SIZE: i64 = 40;

    /// A flag: the call was entered by a tail call. The entry below has the same stack slot, and this entry's return
    /// address is the thunk of that call.
    pub const ENTRY_TAIL: u32 = 1;
    /// A flag: an exception has ended the call, and the end is recorded. The entry stays until another call takes its
    /// place, because unwinders still ask for its return address.
    pub const ENTRY_UNWOUND: u32 = 2;
    /// A flag: entered by a hook that does not replace return addresses (`-finstrument-functions`).
    pub const ENTRY_NO_RETURN: u32 = 4;

    /// A flag: neither the call nor the calls below it are recorded.
    pub const ENTRY_MUTE: u32 = 8;
    /// A flag: the spare word holds the block's former [`BLOCK_HIDDEN`], and its former [`BLOCK_LEVEL`] from bit 48
    /// on.
    pub const ENTRY_SAVED: u32 = 16;
    /// A flag: the call is a chosen execution of a sampled filter; the upper bits of the flags are the filter's
    /// sampling slot.
    pub const ENTRY_CHOSEN: u32 = 32;
    /// A flag beside [`ENTRY_CHOSEN`]: the execution is judged at its end.
    pub const ENTRY_JUDGED: u32 = 64;
    /// A flag: the call is not recorded, and the entry has no other effect. It is there so that the call's end is not
    /// taken for the end of another call in the same frame.
    pub const ENTRY_SILENT: u32 = 128;
    /// The upper bits of the flags: the lower 24 bits of the address behind the call's entry record, or all ones if
    /// that is not known. Only calls that may be taken back have them.
    pub const ENTRY_POSITION: u32 = 0xffff_ff00;

    /// The [`BLOCK_HIDDEN`] of a thread that records nothing until a filter lets a call in: an address above all
    /// stacks.
    pub const OUTSIDE: u64 = (1 << 48) - 1;

    /// The duties of a hook of an entry: bits of the 8-byte word in front of its code.
    ///
    /// Calls are hidden by their position on the stack. A call that hides the calls below it writes its own stack
    /// slot into the block, and calls with a lower slot pass without a hook. So nothing has to be undone for the
    /// calls that pass, and a slot that a jump left behind is recognised because it lies below the stack pointer.
    pub mod kind {
        /// The call may be hidden by its position on the stack.
        pub const GATED: u64 = 1;
        /// Neither the call nor the calls below it are recorded.
        pub const MUTE: u64 = 2;
        /// The call and the calls below it are recorded.
        pub const FILTER: u64 = 4;
        /// The call takes a level, and the number of levels is limited.
        pub const LEVELS: u64 = 8;
        /// The call's records are taken back if it was short.
        pub const TIMED: u64 = 16;
        /// The call is a chosen execution of a sampled filter. The number of the sampling slot follows the thunk.
        pub const CHOSEN: u64 = 32;
        /// The runtime counts the call and chooses. The number of the sampling slot follows the thunk.
        pub const COUNTED: u64 = 64;
        /// The call is judged when it ends, together with the calls below it. [`JudgeNumbers`](super::JudgeNumbers)
        /// follow the thunk.
        pub const JUDGED: u64 = 128;
        /// The arguments of the call are recorded. [`ValueNumbers`](crate::values::ValueNumbers) follow the thunk.
        pub const ARGUMENTS: u64 = 256;
        /// The value with which the call returns is recorded. A bit in front of hooks of exits.
        pub const RETURNED: u64 = 512;
    }

    /// The stack slot in the floor of a shadow stack: larger than all addresses.
    pub const NO_SLOT: u64 = u64::MAX;
    /// The stack slot in a barrier, the entry above a group of parked entries: larger than all addresses, also as a
    /// signed number.
    pub const BARRIER_SLOT: u64 = i64::MAX as u64;
    /// Returns the function id of a thunk's operand. An id that fits 16 bits is shifted left by 16; a larger id is
    /// its own operand. Functions never get ids above 65535 whose lower 16 bits are 0.
    pub const fn function_id(operand: u32) -> u32 {
        if operand & 0xffff == 0 {
            operand >> 16
        } else {
            operand
        }
    }

    /// Returns the thunk's operand for a function id.
    pub const fn operand(id: u32) -> u32 {
        if id <= 0xffff { id << 16 } else { id }
    }

    /// The offset of a thunk's start from the address to which hooks of entries return.
    #[cfg(not(target_arch = "aarch64"))]
    pub const THUNK_START: i64 = -10;
    /// The offset of a thunk's start from the address to which hooks of entries return.
    #[cfg(target_arch = "aarch64")]
    pub const THUNK_START: i64 = -8;
    /// The size of a thunk in bytes.
    pub const THUNK_SIZE: i64 = 32;

    /// The offset of the sampling slot's number from the address to which hooks of entries return. The number follows
    /// the thunk.
    pub const THUNK_SLOT: i64 = THUNK_START + THUNK_SIZE;

    /// The offset of the [`ValueNumbers`](crate::values::ValueNumbers) of a function whose values are recorded from the
    /// address to which hooks of entries return.
    pub const THUNK_VALUES: i64 = THUNK_SLOT + size_of::<JudgeNumbers>() as i64;

    /// The numbers that follow the thunk of a function that is judged.
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    pub struct JudgeNumbers {
        /// The number of the function's sampling slot.
        pub slot: u32,
        /// The offset of the function's [`Judged`](crate::sampling::Judged) from the thread's record.
        pub judged: i32,
        /// The part of a step by which a slower execution raises the percentile, in units of 2⁻²⁴.
        pub raise: u32,
        /// The part of a step by which any other execution lowers the percentile, in units of 2⁻²⁴.
        pub lower: u32,
        /// The number of first executions that are compared with the slowest before them.
        pub early: u64,
    }

    /// The offset of the thunk for chosen calls from the address to which hooks return in a thunk that leaves the
    /// choice to the runtime.
    pub const COUNTED_TO_CHOSEN: i64 = THUNK_START - 2 * THUNK_SIZE;
    /// The offset of the thunk that hides a call and the calls below it, from the same address as in
    /// [`COUNTED_TO_CHOSEN`].
    pub const COUNTED_TO_MUTED: i64 = THUNK_START + 2 * THUNK_SIZE;

    /// The number of bytes of a chunk that stay free behind [`CURSOR_END`]: room for the largest record of the hot
    /// path, and for the records that close a chunk.
    pub const MARGIN: usize = 256;
}
