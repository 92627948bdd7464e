//! The routines that lead from generated code into Rust and back.
//!
//! A hook that gives up jumps to one of the routines here, with the stack as it has built it. The hook may have
//! interrupted anything. So the routine saves all registers that Rust's code may change, the vector and floating
//! point ones too (`xsave`), and calls Rust.

use super::thunk::BODY_OPERAND;
use crate::shadow::Caller;
use crate::{confined, observe, session, shadow, slow};
use core::arch::{asm, global_asm, x86_64};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use dioptra_tracelayout::arena::Arena;
use dioptra_tracelayout::message::thread::THUNK_VALUES;
use dioptra_tracelayout::values::{
    FLOAT_REGISTER, FLOAT_REGISTERS, INTEGER_REGISTERS, RETURN_REGISTER,
};

/// The content of the stack when a hook of an entry gives up.
#[repr(C)]
#[derive(Debug)]
pub struct EnterFrame {
    saved: [u64; 11],
    /// The address to which the hook returns, in the thunk.
    pub thunk: u64,
    /// The thunk's operand: the function id, shifted left by 16 if that fits.
    pub function: u64,
    /// The return address of the traced call; its address is the call's slot.
    pub return_address: u64,
}

/// The content of the stack when a hook of an exit gives up.
#[repr(C)]
#[derive(Debug)]
pub struct ExitFrame {
    saved: [u64; 11],
    /// The address to which the hook returns, in the thunk.
    pub thunk: u64,
    /// The return address. Rust stores it here.
    pub return_address: u64,
}

/// The content of the stack at the call of an observed function.
#[repr(C)]
#[derive(Debug)]
pub struct ObserveFrame {
    saved: [u64; 11],
    /// The address to which the hook returns, in the thunk.
    pub thunk: u64,
    /// The number of the observed function.
    pub function: u64,
    /// The return address of the call.
    pub return_address: u64,
}

impl EnterFrame {
    /// Returns the frame pointer.
    pub fn frame_pointer(&self) -> u64 {
        self.saved[0]
    }
}

impl ExitFrame {
    /// Returns the frame pointer.
    pub fn frame_pointer(&self) -> u64 {
        self.saved[0]
    }

    /// Returns the address of the call's entry: hooks of entries let the frame pointer lead there, and functions
    /// restore it.
    pub fn token(&self) -> Option<u64> {
        Some(self.saved[0])
    }

    /// Gives the caller's registers to the hook.
    pub fn give_back(&mut self, caller: Caller) {
        self.saved[0] = caller.frame;
        self.return_address = caller.return_address;
    }
}

/// The offset of the first vector register in the state that `xsave` stores, in bytes.
const VECTORS: usize = 160;
/// The size in bytes of a vector register there.
const VECTOR: usize = 16;

/// Returns the lower half of a vector register in the state at `vectors`.
fn vector(vectors: *const u8, number: u8) -> u64 {
    let offset = VECTORS + usize::from(number) * VECTOR;
    // SAFETY: the routines here pass the address of the state that they have saved.
    unsafe { vectors.add(offset).cast::<u64>().read_unaligned() }
}

impl EnterFrame {
    /// Returns the word in a register for arguments; `None` if the place is none.
    pub fn word(&self, place: u8, vectors: *const u8) -> Option<u64> {
        // In the order in which they were saved: rbp, rbx, r10, r9, r8, rdi, rsi, rcx, r11, rdx, rax.
        const ARGUMENTS: [usize; INTEGER_REGISTERS as usize] = [5, 6, 9, 7, 4, 3];
        if let Some(at) = ARGUMENTS.get(usize::from(place)) {
            return self.saved.get(*at).copied();
        }
        let number = place.checked_sub(FLOAT_REGISTER)?;
        (number < FLOAT_REGISTERS).then(|| vector(vectors, number))
    }

    /// Returns the address of the [`ValueNumbers`](dioptra_tracelayout::values::ValueNumbers) behind the thunk.
    pub fn value_numbers(&self) -> u64 {
        self.thunk.wrapping_add_signed(THUNK_VALUES)
    }
}

impl ExitFrame {
    /// Returns the word in a register for return values; `None` if the place is none.
    pub fn word_at_exit(&self, place: u8, vectors: *const u8) -> Option<u64> {
        match place {
            RETURN_REGISTER => self.saved.get(10).copied(),
            _ if place == RETURN_REGISTER + 1 => self.saved.get(9).copied(),
            _ => {
                let number = place.checked_sub(FLOAT_REGISTER)?;
                (number < 2).then(|| vector(vectors, number))
            }
        }
    }

    /// Returns the address of the [`ValueNumbers`](dioptra_tracelayout::values::ValueNumbers) behind the thunk.
    pub fn value_numbers_at_exit(&self) -> u64 {
        // Hooks of exits return to a later address in the thunk.
        const LATER: i64 = 20;
        self.thunk.wrapping_add_signed(THUNK_VALUES - LATER)
    }
}

impl ObserveFrame {
    /// Returns the first two arguments.
    pub fn arguments(&self) -> [u64; 2] {
        let [first, second, ..] = self.all_arguments();
        [first, second]
    }

    /// Returns the first four arguments.
    pub fn all_arguments(&self) -> [u64; 4] {
        // In the order in which they were saved: rbp, rbx, r10, r9, r8, rdi, rsi, rcx, r11, rdx, rax.
        [5, 6, 9, 7].map(|at| self.saved[at])
    }
}

/// Returns the stack pointer with which a context (`ucontext_t`) will be resumed.
///
/// # Safety
/// `context` is the address of a context.
pub unsafe fn resumed_with(context: u64) -> u64 {
    let context = ptr::with_exposed_provenance::<libc::ucontext_t>(context as usize);
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RSP as usize] as u64 }
}

/// Returns the words of a context's signal set.
///
/// # Safety
/// `context` is the address of a context (`ucontext_t`) that nobody else uses meanwhile.
pub unsafe fn signal_set<'a>(context: u64) -> &'a mut [u64] {
    let context = ptr::with_exposed_provenance_mut::<libc::ucontext_t>(context as usize);
    // SAFETY: the caller's promise; a signal set is an array of words.
    unsafe {
        let set = &raw mut (*context).uc_sigmask;
        core::slice::from_raw_parts_mut(set.cast(), size_of::<libc::sigset_t>() / 8)
    }
}

/// Returns the stack pointer with which a jump buffer (`jmp_buf`) will be resumed.
///
/// # Safety
/// `buffer` is the address of a jump buffer of glibc.
pub unsafe fn jumps_to(buffer: u64) -> u64 {
    /// The index of the stack pointer in the buffer, in words.
    const STACK_POINTER: usize = 6;
    let words = ptr::with_exposed_provenance::<u64>(buffer as usize);
    let guard: u64;
    // SAFETY: the caller's promise; the C library keeps its pointer guard there in the thread's control block.
    unsafe {
        asm!("mov {}, qword ptr fs:[0x30]", out(reg) guard, options(nostack, pure, readonly));
        words.add(STACK_POINTER).read_unaligned().rotate_right(17) ^ guard
    }
}

/// The components of the processor's state that are saved: x87, SSE, AVX and AVX-512.
const SAVED_STATE: u64 = 0xe7;

/// The number of bytes that `xsave` writes for these components.
static STATE_SIZE: AtomicU64 = AtomicU64::new(0);

global_asm!(
    // The thread's block: the address of its record (at first a dummy), and the busy word.
    ".pushsection .tdata, \"awT\", @progbits",
    ".balign 64",
    ".hidden dioptra_block",
    ".type dioptra_block, @tls_object",
    ".globl dioptra_block",
    "dioptra_block: .quad {dummy} + {dummy_record}",
    ".fill 7, 8, 0",
    ".size dioptra_block, 64",
    ".popsection",
    //
    // Saves what is left to save, and the vector state below; rbx points to the frame.
    ".macro dioptra_save",
    ".irp register, rcx, rsi, rdi, r8, r9, r10, rbx, rbp",
    "push \\register",
    ".cfi_adjust_cfa_offset 8",
    ".cfi_rel_offset \\register, 0",
    ".endr",
    "mov rbx, rsp",
    ".cfi_def_cfa_register rbx",
    "sub rsp, [rip + {state_size}]",
    "and rsp, -64",
    "xor eax, eax",
    "mov [rsp + 512], rax", "mov [rsp + 520], rax", "mov [rsp + 528], rax", "mov [rsp + 536], rax",
    "mov [rsp + 544], rax", "mov [rsp + 552], rax", "mov [rsp + 560], rax", "mov [rsp + 568], rax",
    "mov eax, {saved_state}",
    "xor edx, edx",
    "xsave64 [rsp]",
    "mov rdi, rbx",
    "mov rsi, rsp",
    "cld",
    ".endm",
    ".macro dioptra_restore",
    "mov rbp, rax",
    "mov eax, {saved_state}",
    "xor edx, edx",
    "xrstor64 [rsp]",
    "mov rsp, rbx",
    ".cfi_def_cfa_register rsp",
    "mov rax, rbp",
    ".irp register, rbp, rbx, r10, r9, r8, rdi, rsi, rcx",
    "dioptra_pop \\register",
    ".endr",
    ".endm",
    ".macro dioptra_pop register",
    "pop \\register",
    ".cfi_adjust_cfa_offset -8",
    ".cfi_same_value \\register",
    ".endm",
    //
    ".hidden dioptra_enter_slow",
    ".globl dioptra_enter_slow",
    ".type dioptra_enter_slow, @function",
    // A hook has pushed rax, rdx and r11.
    "dioptra_enter_slow:",
    ".cfi_startproc",
    ".cfi_def_cfa_offset 32",
    // Nothing is recorded any more: go to the body at once, whose distance the thunk has. Programs may outlive their
    // recorders for long.
    "mov rax, [rip + {arena}]",
    "test rax, rax",
    "jz 3f",
    "cmp dword ptr [rax + {stop}], 0",
    "jne 4f",
    "cmp dword ptr [rip + {quiet}], 0",
    "je 3f",
    "4:",
    "mov r11, [rsp + 24]",
    "movsxd rax, dword ptr [r11 + {body_operand}]",
    "lea rax, [rax + r11 + {body_operand} + 4]",
    "mov [rsp + 32], rax",
    "jmp 2f",
    "3:",
    "dioptra_save",
    "call {enter}",
    "dioptra_restore",
    "test rax, rax",
    "jz 2f",
    ".cfi_remember_state",
    "mov rbp, rax",
    // The caller's frame pointer lies where the frame pointer leads.
    ".cfi_escape 0x10, 6, 2, 0x76, 0",
    "pop r11",
    ".cfi_adjust_cfa_offset -8",
    "pop rdx",
    ".cfi_adjust_cfa_offset -8",
    "pop rax",
    ".cfi_adjust_cfa_offset -8",
    // The same return instruction as in hooks.
    ".byte 0xf3, 0xc3",
    // The body's address is in the place of the function id: go there as if there had been no thunk.
    ".cfi_restore_state",
    // LLVM's assembler continues with the offset of the other path.
    ".cfi_def_cfa_offset 32",
    "2: dioptra_pop r11",
    "dioptra_pop rdx",
    "dioptra_pop rax",
    "lea rsp, [rsp + 8]",
    ".cfi_def_cfa rsp, 16",
    ".cfi_offset rip, -8",
    "ret",
    ".cfi_endproc",
    ".size dioptra_enter_slow, . - dioptra_enter_slow",
    //
    ".hidden dioptra_exit_slow",
    ".globl dioptra_exit_slow",
    ".type dioptra_exit_slow, @function",
    "dioptra_exit_slow:",
    ".cfi_startproc",
    ".cfi_def_cfa_offset 32",
    "dioptra_save",
    "call {exit}",
    "dioptra_restore",
    "dioptra_pop r11",
    "dioptra_pop rdx",
    "dioptra_pop rax",
    "ret",
    ".cfi_endproc",
    ".size dioptra_exit_slow, . - dioptra_exit_slow",
    //
    ".hidden dioptra_observe",
    ".globl dioptra_observe",
    ".type dioptra_observe, @function",
    "dioptra_observe:",
    ".cfi_startproc",
    ".irp register, rax, rdx, r11",
    "push \\register",
    ".cfi_adjust_cfa_offset 8",
    ".endr",
    "dioptra_save",
    "call {observe}",
    "dioptra_restore",
    "dioptra_pop r11",
    "dioptra_pop rdx",
    "dioptra_pop rax",
    "ret",
    ".cfi_endproc",
    ".size dioptra_observe, . - dioptra_observe",
    arena = sym session::ARENA,
    quiet = sym confined::QUIET,
    stop = const core::mem::offset_of!(Arena, stop),
    body_operand = const BODY_OPERAND,
    dummy = sym shadow::DUMMY,
    dummy_record = const shadow::DUMMY_RECORD_OFFSET,
    state_size = sym STATE_SIZE,
    saved_state = const SAVED_STATE,
    enter = sym slow::enter,
    exit = sym slow::exit,
    observe = sym observe::observe,
);

unsafe extern "C" {
    fn dioptra_enter_slow();
    fn dioptra_exit_slow();
    fn dioptra_observe();
}

/// Returns the address to which hooks of entries jump.
pub fn enter_slow_address() -> u64 {
    dioptra_enter_slow as *const () as u64
}

/// Returns the address to which hooks of exits jump.
pub fn exit_slow_address() -> u64 {
    dioptra_exit_slow as *const () as u64
}

/// Returns the address that thunks of observed functions call.
pub fn observe_address() -> u64 {
    dioptra_observe as *const () as u64
}

/// Finds out the size of the processor's state. Called before the first hook runs.
///
/// # Errors
/// The feature that the processor lacks.
pub fn prepare() -> Result<(), &'static str> {
    // CPUID exists on all x86-64 processors.
    let has_xsave = x86_64::__cpuid(1).ecx & (1 << 27) != 0;
    if !has_xsave {
        return Err("the processor has no XSAVE");
    }
    // The legacy area and the header, then the components at the offsets that the processor states.
    let mut size = 512 + 64;
    for component in 2..8 {
        if SAVED_STATE & (1 << component) != 0 {
            let leaf = x86_64::__cpuid_count(0xd, component);
            size = size.max(leaf.eax + leaf.ebx);
        }
    }
    STATE_SIZE.store(u64::from(size), Ordering::Relaxed);
    Ok(())
}

/// Returns the address of glibc's `__register_atfork`; 0 with other C libraries.
pub fn register_atfork() -> u64 {
    let address: u64;
    // SAFETY: reads what the dynamic linker has stored for a symbol that may be missing.
    unsafe {
        asm!(
            ".weak __register_atfork",
            "mov {}, qword ptr [rip + __register_atfork@GOTPCREL]",
            out(reg) address,
            options(nostack, pure, readonly),
        );
    }
    address
}

/// Returns the address of the dynamic linker's `_r_debug`; 0 with other C libraries than glibc.
pub fn linker_debug() -> u64 {
    let address: u64;
    // SAFETY: reads what the dynamic linker has stored for a symbol that may be missing.
    unsafe {
        asm!(
            ".weak _r_debug",
            "mov {}, qword ptr [rip + _r_debug@GOTPCREL]",
            out(reg) address,
            options(nostack, pure, readonly),
        );
    }
    address
}

/// Returns the offset of a thread's block from the thread pointer, the same for all threads.
pub fn block_offset() -> i64 {
    let offset: i64;
    // SAFETY: reads the linker-made offset of a symbol defined above.
    unsafe {
        asm!("mov {}, qword ptr [rip + dioptra_block@GOTTPOFF]", out(reg) offset, options(nostack, pure, readonly));
    }
    offset
}

/// Returns this thread's block.
pub fn block() -> *mut shadow::ThreadBlock {
    let base: u64;
    // SAFETY: the word at the thread pointer is the thread pointer itself (the ABI of thread-local storage).
    unsafe {
        asm!("mov {}, qword ptr fs:[0]", out(reg) base, options(nostack, pure, readonly));
    }
    ptr::with_exposed_provenance_mut(base.wrapping_add_signed(block_offset()) as usize)
}

/// Reads the clock of the records.
#[inline]
pub fn clock() -> u64 {
    // SAFETY: the instruction exists on all x86-64 processors.
    unsafe { x86_64::_rdtsc() }
}

/// Adds to a word and returns its former value. A handler sees the word either before or after the addition.
///
/// # Safety
/// The word is this thread's.
#[inline]
pub unsafe fn add(word: *mut u64, number: u64) -> u64 {
    let mut before = number;
    // SAFETY: the caller's promise.
    unsafe {
        asm!("xadd qword ptr [{}], {}", in(reg) word, inout(reg) before, options(nostack));
    }
    before
}

/// Makes a system call. Negative results are error numbers.
///
/// # Safety
/// The system call's.
pub unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11 only, and memory as the caller has promised to be right.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}
