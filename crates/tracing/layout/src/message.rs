//! What a traced process and its recorder say to each other, over a stream socket.
//!
//! The socket is an abstract one, whose name is in the environment variable [`SOCKET`], so that a changed root folder
//! does not hide it. The process connects when it starts, and again when it has loaded modules; no descriptor stays
//! open. It says [`Hello`]; the recorder answers [`Welcome`], to a starting process with the descriptor of the
//! [arena](crate::arena), and with that of [other memory](PRESENCE_SIZE), by which it is seen to be there. Then the process says [`Next`] (and how the step before went) and the recorder answers with
//! the next [`Step`], until one is [`StepKind::Done`].
//!
//! A step makes calls of one module's functions traceable: the recorder has analysed the module and made a *pool*, a small
//! ELF file with a thunk for each probe site, linked for one address near the module. The process loads it
//! (`dlopen` of the descriptor), checks where it lies, and then writes the [`Patch`]es.
//!
//! Both ends run on one machine, from one build: messages are the structs' memory, and a version guards them.

/// The environment variable that holds the name of the recorder's socket (abstract, without its leading zero byte).
pub const SOCKET: &str = "DIOPTRA_TRACE_SOCKET";

/// The environment variable that holds the path of the runtime.
pub const RUNTIME: &str = "DIOPTRA_TRACE_RUNTIME";

/// An option that AddressSanitizer takes from the environment variable `ASAN_OPTIONS`: it does not insist on its library being
/// loaded before all others, such as the runtime.
pub const ASAN_LAST: &str = "verify_asan_link_order=0";

/// The environment variable with the number of system call filters (seccomp) under which a traced program may run: the
/// filters of the recorder, and others that are known to allow the runtime's system calls.
pub const FILTERS: &str = "DIOPTRA_TRACE_FILTERS";

/// The size in bytes of the memory that traced processes have mapped, shared and writable, to be seen to be there: also
/// those whose parents were traced, and who have closed all descriptors. Nothing is in it.
pub const PRESENCE_SIZE: usize = 4096;

/// How calls of a function are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Method {
    /// Space that `-fpatchable-function-entry` left at the function's entry.
    Patchable = 1,
    /// A call of `__fentry__` at the function's entry, or the space for one.
    Fentry = 2,
    /// A call of `mcount` behind the function's prologue: the entry is patched like a plain function's.
    Mcount = 3,
    /// The first instructions moved elsewhere.
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
    /// All, in the order of their numbers.
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

    /// Its name, as users and files know it.
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

    /// Whether it finds calls of other modules' functions, not functions.
    pub fn finds_library_calls(self) -> bool {
        matches!(self, Method::Plt | Method::Got)
    }
}

/// Where things of the runtime are in the process, which generated code refers to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RuntimeAddresses {
    /// Of the thread's block, from the thread pointer (x86-64: `%fs`, AArch64: `TPIDR_EL0`). See [`thread`].
    pub thread_block: i64,
    /// The head of the list of [thread records](thread).
    pub threads: u64,
    /// The head of the list of [spans of shadow stack memory](thread::SPAN_NEXT).
    pub spans: u64,
    /// A personality routine for the frames of thunks.
    pub personality: u64,
    /// Jumped to by a hook of an entry that can't go on by itself.
    pub enter_slow: u64,
    /// Jumped to by a hook of an exit that can't go on by itself.
    pub exit_slow: u64,
    /// What takes the place of the C library's `execve`.
    pub execve: u64,
    /// Called before [observed functions](Observed) do their work.
    pub observe: u64,
}

/// The operand of a thunk that tells the runtime of a library call and leaves its return address alone: the bits here, and
/// the function id below them. The other operands are numbers of [`Observed`].
pub mod told {
    /// The bit that all of them have.
    pub const MARK: u32 = 1 << 30;
    /// The call may be hidden by its place.
    pub const GATED: u32 = 1 << 29;
    /// The call is a filter's: it is recorded outside of other such calls, too.
    pub const FILTER: u32 = 1 << 28;
    /// The function id.
    pub const ID: u32 = FILTER - 1;
}

/// A function of the C library or the dynamic linker that the runtime has to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Observed {
    /// `swapcontext`: the thread goes on with another stack.
    SwapContext = 1,
    /// `setcontext`: the same, and does not come back.
    SetContext = 2,
    /// `_dl_debug_state` of the dynamic linker, which it calls before and after it changes the list of modules.
    ModulesChange = 3,
    /// `longjmp` and its kin: calls below the target are left.
    Jump = 4,
    /// `clone`: another task begins, perhaps with the same thread-local memory.
    Clone = 5,
    /// `prctl`: the process perhaps forbids itself system calls.
    Prctl = 6,
    /// `syscall`: perhaps one of the two.
    Syscall = 7,
}

/// Why a process connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Reason {
    /// It has begun to execute a program.
    Start = 1,
    /// The process has loaded modules, and nobody has run their code yet.
    Modules = 2,
    /// The process has loaded modules, or will; threads may run the code of modules that are found now.
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
    /// Its own id, as it sees it.
    pub pid: u32,
    /// The connecting thread's.
    pub tid: u32,
    /// Of its runtime.
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
    /// The process as the recorder calls it.
    pub pid: u32,
    /// Always 0.
    pub reserved: u32,
}

/// The process asks for a step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Next {
    /// How the last one went, an [`Applied`].
    pub applied: u32,
    /// What the system said about it (errno), or 0.
    pub error: u32,
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Applied {
    /// There was none.
    Nothing = 0,
    /// Done.
    Done = 1,
    /// The pool could not be loaded.
    NoPool = 2,
    /// The pool was loaded elsewhere.
    Misplaced = 3,
    /// The code could not be made writable.
    NoPatch = 4,
    /// There was no memory for the table of functions.
    NoMemory = 5,
}

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum StepKind {
    /// There are no more.
    Done = 0,
    /// Load the pool of the first descriptor, apply the patches of the second.
    Module = 1,
    /// Learn the [`FunctionId`]s of the second descriptor, and forget those whose id is 0; `patches` is their number.
    Functions = 2,
}

/// The id of a function that says itself when it begins and ends.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionId {
    /// Its address.
    pub address: u64,
    /// The function's id; 0 if its calls are not wanted, or its module was unloaded.
    pub id: u32,
    /// What its hook does: [`thread::kind`].
    pub kind: u32,
    /// The number of the slot that its calls are counted in, if they are.
    pub slot: u32,
    /// How they are chosen then, as in a [`Choice`](crate::sampling::Choice).
    pub sample: u32,
}

/// A step.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// A [`StepKind`].
    pub kind: u32,
    /// How many [`Patch`]es the second descriptor holds.
    pub patches: u32,
    /// Where the pool must lie.
    pub pool_address: u64,
    /// How large it is in memory.
    pub pool_size: u64,
}

/// The most bytes that a patch writes.
pub const PATCH_SIZE: usize = 16;

/// Bytes to be written. Patches are sorted by address and do not overlap.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Where.
    pub address: u64,
    /// How many.
    pub length: u8,
    /// The memory's protection, as `mprotect` wants it, before and after.
    pub protection: u8,
    /// Always 0.
    pub reserved: [u8; 6],
    /// What.
    pub bytes: [u8; PATCH_SIZE],
}

/// What generated code knows of a thread: offsets in its *block* (thread-local), its *cursor* and its *record*.
///
/// The block, 64 bytes of thread-local memory, points to the record. The cursor lies a page in front of the record, in a
/// page that a forked child finds zeroed, so that it begins a stream of its own. The shadow stack follows the record.
pub mod thread {
    /// In the block: the address of the thread's record.
    pub const BLOCK_RECORD: i64 = 0;
    /// In the block: the stack pointer of the hook that is at work, or 0.
    pub const BLOCK_BUSY: i64 = 8;
    /// In the block: calls whose slot lies below this address are not recorded; see [`kind`].
    pub const BLOCK_HIDDEN: i64 = 16;
    /// In the block: calls whose slot lies below this address are not even looked at. Never above the former.
    pub const BLOCK_MUTED: i64 = 24;
    /// In the block: how many recorded calls are around, as far as levels are limited.
    pub const BLOCK_LEVEL: i64 = 32;

    /// In the cursor: where the next record goes.
    pub const CURSOR_NEXT: i64 = -4096;
    /// In the cursor: the last place where a record may begin.
    pub const CURSOR_END: i64 = -4096 + 8;
    /// In the cursor: the tick of the last record.
    pub const CURSOR_TIME: i64 = -4096 + 16;

    /// In the cursor: the address of the thread's [area](crate::sampling) of counters, or 0.
    pub const CURSOR_AREA: i64 = -4096 + 48;

    /// In the record: the address of the shadow stack's innermost entry.
    pub const RECORD_TOP: i64 = 0;
    /// In the record: the last address that may become the innermost entry's.
    pub const RECORD_LIMIT: i64 = 8;
    /// In the record: the next record in the list, or 0.
    pub const RECORD_NEXT: i64 = 16;
    /// In the record: the address of the shadow stack's floor, the entry below all others.
    pub const RECORD_FLOOR: i64 = 24;

    /// In a span of shadow stack memory: the address of the next span in the list, or 0.
    pub const SPAN_NEXT: i64 = 0;
    /// In a span: its first address. All of the span is mapped.
    pub const SPAN_START: i64 = 8;
    /// In a span: the first address behind it.
    pub const SPAN_END: i64 = 16;

    /// In an entry: the caller's frame pointer. With the return address behind it this is a frame record, as functions
    /// with a frame pointer have one on the stack; while the function runs that the call is of, its frame pointer (at
    /// first) leads here, so that who follows frame pointers finds the caller.
    pub const ENTRY_FRAME: i64 = 0;
    /// In an entry: the return address.
    pub const ENTRY_RETURN: i64 = 8;
    /// In an entry: where it lay.
    pub const ENTRY_SLOT: i64 = 16;
    /// In an entry: the function id as thunks have it, see [`function_id`].
    pub const ENTRY_FUNCTION: i64 = 24;
    /// In an entry: flags.
    pub const ENTRY_FLAGS: i64 = 28;
    /// In an entry: for whoever decides what is recorded.
    pub const ENTRY_SPARE: i64 = 32;
    /// The size of an entry.
    pub const ENTRY_SIZE: i64 = 40;

    /// A flag: entered by a tail call; the entry below has the same slot, and this one's return address is its thunk.
    pub const ENTRY_TAIL: u32 = 1;
    /// A flag: an exception has gone through, and the end is recorded. The entry stays until something else takes its
    /// place: unwinders still ask for its return address.
    pub const ENTRY_UNWOUND: u32 = 2;
    /// A flag: entered by a hook that does not replace return addresses (`-finstrument-functions`).
    pub const ENTRY_NO_RETURN: u32 = 4;

    /// A flag: the call is not recorded, and nothing below it is.
    pub const ENTRY_MUTE: u32 = 8;
    /// A flag: the spare word holds what was in the block before: [`BLOCK_HIDDEN`], and [`BLOCK_LEVEL`] from bit 48 on.
    pub const ENTRY_SAVED: u32 = 16;
    /// A flag: a chosen execution of a sampled filter; the upper bits of the flags are its slot.
    pub const ENTRY_CHOSEN: u32 = 32;
    /// A flag: besides, the execution is judged at its end.
    pub const ENTRY_JUDGED: u32 = 64;
    /// A flag: the call is not recorded, and that is all. It is only there so that its end is not taken for that of another call
    /// in the same frame.
    pub const ENTRY_SILENT: u32 = 128;
    /// The upper bits of the flags: the lower 24 bits of the place behind the call's entry record, or all ones if it is not
    /// known. Only for calls that may be taken back.
    pub const ENTRY_POSITION: u32 = 0xffff_ff00;

    /// [`BLOCK_HIDDEN`] where nothing is recorded until a filter lets it in: above all stacks.
    pub const OUTSIDE: u64 = (1 << 48) - 1;

    /// What a hook of an entry does: bits of the word of 8 bytes in front of its code.
    ///
    /// Calls are hidden by their place: a call that hides what it calls notes its own slot in the block, and calls with a
    /// slot below pass without a hook. So nothing has to be undone for calls that pass, and what a jump leaves behind
    /// is seen to be above.
    pub mod kind {
        /// The call may be hidden by its place.
        pub const GATED: u64 = 1;
        /// It and what it calls are not recorded.
        pub const MUTE: u64 = 2;
        /// It is recorded, and what it calls.
        pub const FILTER: u64 = 4;
        /// It takes a level, of which there are not more than a number.
        pub const LEVELS: u64 = 8;
        /// It is taken back if it was short.
        pub const TIMED: u64 = 16;
        /// It is a chosen execution of a sampled filter. The slot's number follows the thunk.
        pub const CHOSEN: u64 = 32;
        /// The runtime counts it, and chooses. The slot's number follows the thunk.
        pub const COUNTED: u64 = 64;
        /// It is judged when it ends, with what it called. [`JudgeNumbers`](super::JudgeNumbers) follow the thunk.
        pub const JUDGED: u64 = 128;
    }

    /// The slot of the floor of a shadow stack: larger than all addresses.
    pub const NO_SLOT: u64 = u64::MAX;
    /// The slot of a barrier, the entry above a group of parked entries: larger than all addresses, also as a signed number.
    pub const BARRIER_SLOT: u64 = i64::MAX as u64;
    /// The function id that a thunk's operand means: an id that fits 16 bits is shifted left by 16, a larger one is itself
    /// (ids larger than 65535 whose lower 16 bits are 0 are never given to functions).
    pub const fn function_id(operand: u32) -> u32 {
        if operand & 0xffff == 0 {
            operand >> 16
        } else {
            operand
        }
    }

    /// The thunk's operand for a function id.
    pub const fn operand(id: u32) -> u32 {
        if id <= 0xffff { id << 16 } else { id }
    }

    /// From where hooks of entries return to in a thunk, to its start.
    #[cfg(not(target_arch = "aarch64"))]
    pub const THUNK_START: i64 = -10;
    /// From where hooks of entries return to in a thunk, to its start.
    #[cfg(target_arch = "aarch64")]
    pub const THUNK_START: i64 = -8;
    /// The size of a thunk.
    pub const THUNK_SIZE: i64 = 32;

    /// Where the number of a slot lies, from where hooks of entries return to in its thunk: behind it.
    pub const THUNK_SLOT: i64 = THUNK_START + THUNK_SIZE;

    /// What follows the thunk of a function that is judged.
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    pub struct JudgeNumbers {
        /// The number of its slot.
        pub slot: u32,
        /// From a thread's record to its [`Judged`](crate::sampling::Judged).
        pub judged: i32,
        /// By how much of a step, in units of 2⁻²⁴, an execution raises the percentile that is slower, ...
        pub raise: u32,
        /// ... and lowers it one that is not.
        pub lower: u32,
        /// So many executions are compared with the slowest before.
        pub early: u64,
    }

    /// From where hooks of entries return to in a thunk that leaves the choice to the runtime, to the thunk of chosen calls.
    pub const COUNTED_TO_CHOSEN: i64 = THUNK_START - 2 * THUNK_SIZE;
    /// The same, to the thunk that hides a call with what it calls.
    pub const COUNTED_TO_MUTED: i64 = THUNK_START + 2 * THUNK_SIZE;

    /// How many bytes of a chunk stay free behind [`CURSOR_END`]: room for the largest record of the hot path, and for
    /// what has to be said when a chunk is closed.
    pub const MARGIN: usize = 64;
}
