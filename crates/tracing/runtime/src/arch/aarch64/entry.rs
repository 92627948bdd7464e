//! The routines that lead from generated code into Rust and back.
//!
//! A hook that gives up jumps to one of the routines here, with all registers as it found them: the return address of
//! the traced call in `x17`, the address to which the hook returns in `x30`. The hook may have interrupted anything.
//! So the routine saves all registers that Rust's code may change, the vector registers too, and calls Rust. (Of the
//! registers of the scalable vector extension it saves the part that they share with the vector registers: functions
//! that pass more in them are not traced.)

use crate::shadow::Caller;
use crate::{observe, shadow, slow};
use core::arch::{asm, global_asm};
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};
use dioptra_tracelayout::message::thread::THUNK_VALUES;
use dioptra_tracelayout::values::{FLOAT_REGISTER, FLOAT_REGISTERS, RETURN_REGISTER};

/// The state of a hook, as the routines here lay it on the stack.
#[repr(C)]
#[derive(Debug)]
pub struct HookFrame {
    saved: [u64; 16],
    platform: u64,
    floating_point_status: u64,
    /// The address to which the hook returns, in the thunk.
    pub thunk: u64,
    /// The thunk's operand: the function id, shifted left by 16 if that fits. Rust replaces it by the address to go
    /// on at, if that is not in the thunk.
    pub function: u64,
    /// The return address of the traced call.
    pub return_address: u64,
    slot: u64,
    frame_pointer: u64,
    reserved: u64,
}

/// The state of a hook of an entry that gives up.
pub type EnterFrame = HookFrame;
/// The state of a hook of an exit that gives up. Rust stores the return address in it.
pub type ExitFrame = HookFrame;
/// The state at the call of an observed function.
pub type ObserveFrame = HookFrame;

impl HookFrame {
    /// Returns the call's slot: 8 bytes below its frame, where the return address would lie on the stack.
    pub fn slot(&self) -> u64 {
        self.slot
    }

    /// Returns the frame pointer.
    pub fn frame_pointer(&self) -> u64 {
        self.frame_pointer
    }

    /// Returns `None`: no register keeps the address of the call's entry here.
    pub fn token(&self) -> Option<u64> {
        None
    }

    /// Gives the caller's return address to the hook. The frame pointer is the caller's already.
    pub fn give_back(&mut self, caller: Caller) {
        self.return_address = caller.return_address;
    }

    /// Returns the word in a register for arguments; `None` if the place is none.
    pub fn word(&self, place: u8, vectors: *const u8) -> Option<u64> {
        if place < FLOAT_REGISTER {
            return self.saved.get(usize::from(place)).copied();
        }
        let number = place - FLOAT_REGISTER;
        // SAFETY: the routines here pass the address of the vector registers that they have saved.
        (number < FLOAT_REGISTERS)
            .then(|| unsafe { vectors.add(16 * usize::from(number)).cast::<u64>().read() })
    }

    /// Returns the word in a register for return values; `None` if the place is none.
    pub fn word_at_exit(&self, place: u8, vectors: *const u8) -> Option<u64> {
        match place.checked_sub(RETURN_REGISTER) {
            Some(number @ ..2) => self.word(number, vectors),
            Some(_) => None,
            None => self.word(place, vectors),
        }
    }

    /// Returns the address of the [`ValueNumbers`](dioptra_tracelayout::values::ValueNumbers) behind the thunk.
    pub fn value_numbers(&self) -> u64 {
        self.thunk.wrapping_add_signed(THUNK_VALUES)
    }

    /// Does the same as [`HookFrame::value_numbers`] for a hook of an exit. The recorder makes none with values on this
    /// processor.
    pub fn value_numbers_at_exit(&self) -> u64 {
        self.value_numbers()
    }

    /// Returns the first two arguments.
    pub fn arguments(&self) -> [u64; 2] {
        [self.saved[0], self.saved[1]]
    }

    /// Returns the first four arguments.
    pub fn all_arguments(&self) -> [u64; 4] {
        [0, 1, 2, 3].map(|at| self.saved[at])
    }
}

/// The size of a frame in bytes. The vector registers follow it.
const FRAME: usize = 192;
const SIZE: usize = FRAME + 32 * 16;

const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<HookFrame>() == FRAME);
    assert!(offset_of!(HookFrame, platform) == 128);
    assert!(offset_of!(HookFrame, thunk) == 144);
    assert!(offset_of!(HookFrame, return_address) == 160);
    assert!(offset_of!(HookFrame, frame_pointer) == 176);
};

/// Returns the stack pointer with which a context (`ucontext_t`) will be resumed.
///
/// # Safety
/// `context` is the address of a context.
pub unsafe fn resumed_with(context: u64) -> u64 {
    let context = ptr::with_exposed_provenance::<libc::ucontext_t>(context as usize);
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.sp }
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

/// The number with which the C library scrambles pointers that it stores. A jump buffer of the runtime's own reveals
/// it.
static GUARD: AtomicU64 = AtomicU64::new(0);

/// Returns the stack pointer with which a jump buffer (`jmp_buf`) will be resumed.
///
/// # Safety
/// `buffer` is the address of a jump buffer of glibc.
pub unsafe fn jumps_to(buffer: u64) -> u64 {
    /// The index of the stack pointer in the buffer, in words.
    const STACK_POINTER: usize = 13;
    let words = ptr::with_exposed_provenance::<u64>(buffer as usize);
    // SAFETY: the caller's promise.
    unsafe { words.add(STACK_POINTER).read_unaligned() ^ GUARD.load(Ordering::Relaxed) }
}

global_asm!(
    // The thread's block: the address of its record (at first a dummy), and the busy word.
    ".pushsection .tdata, \"awT\", @progbits",
    ".balign 64",
    ".hidden dioptra_block",
    ".type dioptra_block, @tls_object",
    ".globl dioptra_block",
    "dioptra_block: .xword {dummy} + {dummy_record}",
    ".fill 7, 8, 0",
    ".size dioptra_block, 64",
    ".popsection",
    //
    ".macro dioptra_vectors operation, first, second, at",
    "\\operation q\\first, q\\second, [sp, #{frame} + \\at]",
    ".endm",
    ".macro dioptra_all_vectors operation",
    "dioptra_vectors \\operation, 0, 1, 0",
    "dioptra_vectors \\operation, 2, 3, 32",
    "dioptra_vectors \\operation, 4, 5, 64",
    "dioptra_vectors \\operation, 6, 7, 96",
    "dioptra_vectors \\operation, 8, 9, 128",
    "dioptra_vectors \\operation, 10, 11, 160",
    "dioptra_vectors \\operation, 12, 13, 192",
    "dioptra_vectors \\operation, 14, 15, 224",
    "dioptra_vectors \\operation, 16, 17, 256",
    "dioptra_vectors \\operation, 18, 19, 288",
    "dioptra_vectors \\operation, 20, 21, 320",
    "dioptra_vectors \\operation, 22, 23, 352",
    "dioptra_vectors \\operation, 24, 25, 384",
    "dioptra_vectors \\operation, 26, 27, 416",
    "dioptra_vectors \\operation, 28, 29, 448",
    "dioptra_vectors \\operation, 30, 31, 480",
    ".endm",
    // The function, if the caller has loaded it, is in x16.
    // Unwinders find the thunk, and where it has the return address.
    ".macro dioptra_save",
    "sub sp, sp, #{size}",
    ".cfi_def_cfa_offset {size}",
    "stp x0, x1, [sp]",
    "stp x2, x3, [sp, #16]",
    "stp x4, x5, [sp, #32]",
    "stp x6, x7, [sp, #48]",
    "stp x8, x9, [sp, #64]",
    "stp x10, x11, [sp, #80]",
    "stp x12, x13, [sp, #96]",
    "stp x14, x15, [sp, #112]",
    "mrs x0, fpsr",
    "stp x18, x0, [sp, #128]",
    "stp x30, x16, [sp, #144]",
    ".cfi_offset x30, 144 - {size}",
    "add x0, sp, #{size} - 8",
    "stp x17, x0, [sp, #160]",
    ".cfi_offset x17, 160 - {size}",
    "str x29, [sp, #176]",
    "dioptra_all_vectors stp",
    "mov x0, sp",
    "add x1, sp, #{frame}",
    ".endm",
    ".macro dioptra_restore",
    "dioptra_all_vectors ldp",
    "ldp x18, x0, [sp, #128]",
    "msr fpsr, x0",
    "ldp x14, x15, [sp, #112]",
    "ldp x12, x13, [sp, #96]",
    "ldp x10, x11, [sp, #80]",
    "ldp x8, x9, [sp, #64]",
    "ldp x6, x7, [sp, #48]",
    "ldp x4, x5, [sp, #32]",
    "ldp x2, x3, [sp, #16]",
    "ldp x0, x1, [sp]",
    ".endm",
    ".macro dioptra_leave",
    "add sp, sp, #{size}",
    ".cfi_def_cfa_offset 0",
    ".cfi_same_value x30",
    ".cfi_same_value x17",
    ".endm",
    //
    ".hidden dioptra_enter_slow",
    ".globl dioptra_enter_slow",
    ".type dioptra_enter_slow, @function",
    ".balign 16",
    "dioptra_enter_slow:",
    ".cfi_startproc",
    "ldr w16, [x30, #{operand}]",
    "dioptra_save",
    "bl {enter}",
    "cbz x0, 2f",
    "dioptra_restore",
    "ldr x30, [sp, #144]",
    "ldr x17, [sp, #160]",
    ".cfi_remember_state",
    "dioptra_leave",
    "ret",
    // The address to go on at is in the place of the function id.
    "2: .cfi_restore_state",
    "dioptra_restore",
    "ldr x16, [sp, #152]",
    "ldr x30, [sp, #160]",
    "dioptra_leave",
    "br x16",
    ".cfi_endproc",
    ".size dioptra_enter_slow, . - dioptra_enter_slow",
    //
    ".hidden dioptra_exit_slow",
    ".globl dioptra_exit_slow",
    ".type dioptra_exit_slow, @function",
    ".balign 16",
    "dioptra_exit_slow:",
    ".cfi_startproc",
    "dioptra_save",
    "bl {exit}",
    "dioptra_restore",
    "ldr x30, [sp, #144]",
    "ldr x17, [sp, #160]",
    "dioptra_leave",
    "ret",
    ".cfi_endproc",
    ".size dioptra_exit_slow, . - dioptra_exit_slow",
    //
    ".hidden dioptra_observe",
    ".globl dioptra_observe",
    ".type dioptra_observe, @function",
    ".balign 16",
    "dioptra_observe:",
    ".cfi_startproc",
    "ldr w16, [x30, #{operand}]",
    "dioptra_save",
    "bl {observe}",
    "dioptra_restore",
    // To the thunk, which goes on as if it had not been there.
    "ldr x16, [sp, #144]",
    "ldr x30, [sp, #160]",
    "dioptra_leave",
    "br x16",
    ".cfi_endproc",
    ".size dioptra_observe, . - dioptra_observe",
    //
    // Returns the number with which the C library scrambles the stack pointer in a jump buffer.
    ".hidden dioptra_guard",
    ".globl dioptra_guard",
    ".type dioptra_guard, @function",
    ".balign 16",
    "dioptra_guard:",
    "stp x29, x30, [sp, #-16]!",
    "sub sp, sp, #512",
    "mov x0, sp",
    "bl _setjmp",
    "ldr x0, [sp, #13 * 8]",
    "mov x1, sp",
    "eor x0, x0, x1",
    "add sp, sp, #512",
    "ldp x29, x30, [sp], #16",
    "ret",
    ".size dioptra_guard, . - dioptra_guard",
    dummy = sym shadow::DUMMY,
    dummy_record = const shadow::DUMMY_RECORD_OFFSET,
    frame = const FRAME,
    size = const SIZE,
    // The offset of the thunk's operand from the address to which the hook returns.
    operand = const 20,
    enter = sym slow::enter,
    exit = sym slow::exit,
    observe = sym observe::observe,
);

unsafe extern "C" {
    fn dioptra_enter_slow();
    fn dioptra_exit_slow();
    fn dioptra_observe();
    fn dioptra_guard() -> u64;
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

/// Finds out how the C library stores stack pointers. Called before the first hook runs.
///
/// # Errors
/// None.
pub fn prepare() -> Result<(), &'static str> {
    // SAFETY: the buffer is larger than a jump buffer, and nobody jumps to it.
    GUARD.store(unsafe { dioptra_guard() }, Ordering::Relaxed);
    Ok(())
}

/// Returns the address of glibc's `__register_atfork`; 0 with other C libraries.
pub fn register_atfork() -> u64 {
    let address: u64;
    // SAFETY: reads what the dynamic linker has stored for a symbol that may be missing.
    unsafe {
        asm!(
            ".weak __register_atfork",
            "adrp {0}, :got:__register_atfork",
            "ldr {0}, [{0}, :got_lo12:__register_atfork]",
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
            "adrp {0}, :got:_r_debug",
            "ldr {0}, [{0}, :got_lo12:_r_debug]",
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
        asm!(
            "adrp {0}, :gottprel:dioptra_block",
            "ldr {0}, [{0}, :gottprel_lo12:dioptra_block]",
            out(reg) offset,
            options(nostack, pure, readonly),
        );
    }
    offset
}

/// Returns this thread's block.
pub fn block() -> *mut shadow::ThreadBlock {
    let base: u64;
    // SAFETY: reads the thread pointer.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) base, options(nostack, pure, readonly));
    }
    ptr::with_exposed_provenance_mut(base.wrapping_add_signed(block_offset()) as usize)
}

/// Reads the clock of the records: the counter of the system's timer.
#[inline]
pub fn clock() -> u64 {
    let ticks: u64;
    // SAFETY: the kernel lets all programs read it.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

/// Adds to a word and returns its former value. A handler sees the word either before or after the addition.
///
/// # Safety
/// The word is this thread's.
#[inline]
pub unsafe fn add(word: *mut u64, number: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(word) }.fetch_add(number, Ordering::Relaxed)
}

/// Makes a system call. Negative results are error numbers.
///
/// # Safety
/// The system call's.
pub unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the kernel changes x0 only, and memory as the caller has promised to be right.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack),
        );
    }
    result
}
