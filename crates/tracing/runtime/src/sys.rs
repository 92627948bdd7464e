//! The system calls that the runtime makes, without `errno`.

use crate::shadow::PAGE;
use crate::{arch, confined};
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The size of pages in bytes; 0 before it is known.
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(0);

/// Sets the size of pages, which the kernel has passed to the program.
pub fn set_page_size(size: usize) {
    PAGE_SIZE.store(size, Ordering::Relaxed);
}

/// Returns the size of pages in bytes.
pub fn page_size() -> usize {
    PAGE_SIZE.load(Ordering::Relaxed).max(PAGE)
}

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Makes a system call. In a quiet process ([`confined`]) it makes none, and hooks do without.
///
/// # Safety
/// The system call's.
unsafe fn syscall(number: i64, arguments: [usize; 6]) -> isize {
    if confined::is_quiet() {
        return -(libc::ENOSYS as isize);
    }
    // SAFETY: the caller's promise.
    unsafe { arch::syscall(number, arguments) }
}

fn check(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| Errno(i32::try_from(-result).unwrap_or(libc::EINVAL)))
}

/// Maps private memory of `size` bytes that reads as zero and is not charged before it is touched.
///
/// # Errors
/// `mmap`'s.
pub fn map_private(size: usize) -> Result<*mut u8, Errno> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: new memory at a place that the kernel chooses.
    let address = unsafe { syscall(libc::SYS_mmap, [0, size, protection, flags, usize::MAX, 0]) };
    check(address).map(ptr::with_exposed_provenance_mut)
}

/// Maps `size` bytes of a file, shared if `write`, else private and read-only.
///
/// # Errors
/// `mmap`'s.
pub fn map_file(fd: i32, size: usize, write: bool) -> Result<*mut u8, Errno> {
    let (protection, flags) = if write {
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED)
    } else {
        (libc::PROT_READ, libc::MAP_PRIVATE)
    };
    // SAFETY: new memory at a place that the kernel chooses.
    let address = unsafe {
        syscall(
            libc::SYS_mmap,
            [0, size, protection as usize, flags as usize, fd as usize, 0],
        )
    };
    check(address).map(ptr::with_exposed_provenance_mut)
}

/// Replaces a mapping by private zeroes.
///
/// # Errors
/// `mmap`'s.
///
/// # Safety
/// The pages are a mapping of the runtime, and nobody has references to their content.
pub unsafe fn make_private(pages: u64, size: usize) -> Result<(), Errno> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let pages = pages as usize;
    let arguments = [pages, size, protection, flags as usize, usize::MAX, 0];
    // SAFETY: the caller's promise.
    check(unsafe { syscall(libc::SYS_mmap, arguments) }).map(drop)
}

/// Unmaps memory.
///
/// # Safety
/// The memory is a mapping of the runtime, and nothing refers to it.
pub unsafe fn unmap(address: *mut u8, size: usize) {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_munmap, [address.addr(), size, 0, 0, 0, 0]) };
}

/// Makes forked children find pages zeroed. Returns false if the kernel can't.
pub fn wipe_on_fork(pages: *mut u8, size: usize) -> bool {
    // SAFETY: changes only a child's view of the runtime's own pages.
    unsafe { advise(pages.addr(), size, libc::MADV_WIPEONFORK) }
}

/// Zeroes memory. Whole pages are given back to the kernel.
///
/// # Safety
/// The memory is private and the runtime's, and nothing refers to its content.
pub unsafe fn wipe(pages: *mut u8, size: usize) {
    let is_whole = (pages.addr() | size).is_multiple_of(page_size());
    // SAFETY: the caller's promise.
    unsafe {
        if !is_whole || !advise(pages.addr(), size, libc::MADV_DONTNEED) {
            pages.write_bytes(0, size);
        }
    }
}

/// Gives the kernel advice about pages. Returns false if the kernel refuses it.
///
/// # Safety
/// The advice's.
unsafe fn advise(pages: usize, size: usize, advice: i32) -> bool {
    // SAFETY: the caller's promise.
    unsafe { syscall(libc::SYS_madvise, [pages, size, advice as usize, 0, 0, 0]) == 0 }
}

/// Changes the protection of pages.
///
/// # Safety
/// The caller makes sure that the memory can still be used as before.
pub unsafe fn protect(start: usize, size: usize, protection: i32) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    check(unsafe {
        syscall(
            libc::SYS_mprotect,
            [start, size, protection as usize, 0, 0, 0],
        )
    })
    .map(|_| ())
}

/// Returns this process's id; 0 in a quiet process.
pub fn pid() -> u32 {
    // SAFETY: no arguments.
    unsafe { check(syscall(libc::SYS_getpid, [0; 6])).unwrap_or(0) as u32 }
}

/// Returns this thread's id; 0 in a quiet process.
pub fn tid() -> u32 {
    // SAFETY: no arguments.
    unsafe { check(syscall(libc::SYS_gettid, [0; 6])).unwrap_or(0) as u32 }
}

/// Returns true if a thread of this process exists.
pub fn thread_exists(pid: u32, tid: u32) -> bool {
    // SAFETY: signal 0 has no effect.
    unsafe { syscall(libc::SYS_tgkill, [pid as usize, tid as usize, 0, 0, 0, 0]) == 0 }
}

/// Returns true if a process exists.
pub fn process_exists(pid: u32) -> bool {
    // SAFETY: signal 0 has no effect.
    let killed = unsafe { syscall(libc::SYS_kill, [pid as usize, 0, 0, 0, 0, 0]) };
    // The process may have ended without its parent having waited for it.
    killed != -(libc::ESRCH as isize) && !matches!(state(pid), Some(b'Z' | b'X'))
}

/// Returns the kernel's letter for the state of a process, if it can be known.
pub fn state(pid: u32) -> Option<u8> {
    let mut path = [0_u8; 24];
    let mut digits = [0; 10];
    for (place, byte) in path.iter_mut().zip(
        [b"/proc/", decimal(&mut digits, pid), b"/stat"]
            .into_iter()
            .flatten(),
    ) {
        *place = *byte;
    }
    // The name, in parentheses, has 15 bytes at most (threads of the kernel: 64); the state follows.
    let mut text = [0_u8; 128];
    let path = core::ffi::CStr::from_bytes_until_nul(&path).unwrap_or_default();
    let read = read_file(path, &mut text);
    let text = text.get(..read).unwrap_or_default();
    let behind = text.iter().rposition(|&byte| byte == b')');
    text.get(behind? + 2).copied()
}

/// Reads the beginning of a file, as far as there is room. Returns the number of bytes, 0 if the file can't be read.
pub fn read_file(path: &core::ffi::CStr, text: &mut [u8]) -> usize {
    // SAFETY: both buffers outlive the calls, and the descriptor is ours.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let place = path.as_ptr().expose_provenance();
        let at = libc::AT_FDCWD as isize as usize;
        let file = syscall(libc::SYS_openat, [at, place, flags as usize, 0, 0, 0]);
        let Ok(file) = usize::try_from(file) else {
            return 0;
        };
        let buffer = text.as_mut_ptr().expose_provenance();
        let read = syscall(libc::SYS_read, [file, buffer, text.len(), 0, 0, 0]);
        syscall(libc::SYS_close, [file, 0, 0, 0, 0, 0]);
        usize::try_from(read).unwrap_or(0)
    }
}

/// Writes a number in decimal digits and returns them.
pub fn decimal(digits: &mut [u8; 10], mut number: u32) -> &[u8] {
    let mut used = 0;
    // Ten digits are enough for all numbers of 32 bits.
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
        used += 1;
        if number == 0 {
            break;
        }
    }
    let first = digits.len().saturating_sub(used);
    digits.get(first..).unwrap_or_default()
}

/// Returns the number of a file's inode.
pub fn inode(path: &core::ffi::CStr) -> Option<u64> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let (path, place) = (
        path.as_ptr().expose_provenance(),
        status.as_mut_ptr().expose_provenance(),
    );
    // SAFETY: the kernel writes to a structure that outlives the call; zero is a valid value of it.
    unsafe {
        let asked = syscall(
            libc::SYS_newfstatat,
            [libc::AT_FDCWD as usize, path, place, 0, 0, 0],
        );
        (asked == 0).then(|| status.assume_init().st_ino)
    }
}

/// Writes the path of the current folder to `place` and returns its length in bytes; 0 if it can't be known.
pub fn current_folder(place: &mut [u8]) -> usize {
    let buffer = place.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel writes to the buffer only.
    let size = unsafe { syscall(libc::SYS_getcwd, [buffer, place.len(), 0, 0, 0, 0]) };
    // With the zero byte at its end.
    usize::try_from(size).unwrap_or(0).saturating_sub(1)
}

/// Returns true if a path leads to a file.
pub fn is_there(path: *const core::ffi::c_char) -> bool {
    // SAFETY: the kernel checks the address.
    unsafe {
        syscall(
            libc::SYS_faccessat,
            [
                libc::AT_FDCWD as usize,
                path.expose_provenance(),
                libc::F_OK as usize,
                0,
                0,
                0,
            ],
        ) == 0
    }
}

/// Waits until the word changes from `value`, another thread wakes this one, or some milliseconds have passed.
pub fn futex_wait(word: &AtomicU32, value: u32, milliseconds: u64) {
    let timeout = [
        (milliseconds / 1000) as i64,
        (milliseconds % 1000 * 1_000_000) as i64,
    ];
    // SAFETY: the word and the time outlive the call.
    unsafe {
        syscall(
            libc::SYS_futex,
            [
                word.as_ptr().addr(),
                libc::FUTEX_WAIT as usize,
                value as usize,
                timeout.as_ptr().expose_provenance(),
                0,
                0,
            ],
        )
    };
}

/// Waits until a descriptor is ready for some events, if there is one; at most for some nanoseconds, and until a
/// signal arrives that is not in `mask`. If there is a mask, it is the thread's signal mask during the wait.
pub fn poll(descriptor: Option<(i32, i16)>, nanoseconds: u64, mask: Option<u64>) {
    let (fd, events) = descriptor.unwrap_or((-1, 0));
    let mut polled = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut timeout = [nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000];
    let place = mask
        .as_ref()
        .map_or(0, |mask| ptr::from_ref(mask).expose_provenance());
    let arguments = [
        (&raw mut polled).expose_provenance(),
        1,
        (&raw mut timeout).expose_provenance(),
        place,
        8,
        0,
    ];
    // SAFETY: all of it outlives the call; the kernel's sets have 64 bits.
    unsafe { syscall(libc::SYS_ppoll, arguments) };
}

/// Wakes one waiter of a word.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: the kernel only looks up the waiters.
    unsafe {
        syscall(
            libc::SYS_futex,
            [word.as_ptr().addr(), libc::FUTEX_WAKE as usize, 1, 0, 0, 0],
        )
    };
}

/// Returns `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let mut time = [0_u64; 2];
    // SAFETY: the two words outlive the call.
    unsafe {
        syscall(
            libc::SYS_clock_gettime,
            [
                libc::CLOCK_MONOTONIC as usize,
                time.as_mut_ptr().expose_provenance(),
                0,
                0,
                0,
                0,
            ],
        )
    };
    time[0] * 1_000_000_000 + time[1]
}

/// The number of threads that have blocked signals for the runtime's work, in which they make system calls.
static WORKING: AtomicU32 = AtomicU32::new(0);

/// Waits, while signals are blocked here, until no other thread does the runtime's work. The wait is bounded.
pub fn wait_for_others() {
    // Longer than a thread waits for a free chunk.
    const TRIES: u32 = 300;
    for _ in 0..TRIES {
        if WORKING.load(Ordering::SeqCst) <= 1 {
            return;
        }
        let millisecond = [0_i64, 1_000_000];
        let place = millisecond.as_ptr().expose_provenance();
        // SAFETY: the time outlives the call.
        unsafe { arch::syscall(libc::SYS_nanosleep, [place, 0, 0, 0, 0, 0]) };
    }
}

/// Forgets the other threads in a forked child, where they do not exist. Signals are blocked.
pub fn forget_others() {
    WORKING.store(1, Ordering::SeqCst);
}

/// A guard that blocks all signals while it lives.
#[derive(Debug)]
pub struct BlockedSignals {
    /// The signals that were blocked before; `None` if nothing was changed.
    before: Option<u64>,
}

impl BlockedSignals {
    /// Blocks all signals.
    pub fn new() -> BlockedSignals {
        WORKING.fetch_add(1, Ordering::SeqCst);
        if confined::is_quiet() {
            WORKING.fetch_sub(1, Ordering::SeqCst);
            return BlockedSignals { before: None };
        }
        let mut before = 0;
        set_mask(&u64::MAX, &mut before);
        BlockedSignals {
            before: Some(before),
        }
    }

    /// Returns the signals that were blocked before.
    pub fn before(&self) -> u64 {
        self.before.unwrap_or(0)
    }
}

impl Default for BlockedSignals {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            set_mask(&before, &mut 0);
            WORKING.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn set_mask(mask: &u64, before: &mut u64) {
    // SAFETY: both sets outlive the call; the kernel's sets have 64 bits.
    unsafe {
        arch::syscall(
            libc::SYS_rt_sigprocmask,
            [
                libc::SIG_SETMASK as usize,
                ptr::from_ref(mask).expose_provenance(),
                ptr::from_mut(before).expose_provenance(),
                8,
                0,
                0,
            ],
        )
    };
}

/// Returns the word at an address that may not be mapped.
pub fn peek(pid: u32, address: u64) -> Option<u64> {
    let mut word = [0];
    read_memory(pid, address, &mut word).first().copied()
}

/// Returns the words from an address on, as far as they are mapped; less than a page of them.
pub fn read_memory(pid: u32, address: u64, words: &mut [u64]) -> &[u64] {
    let size = size_of_val(words);
    // SAFETY: the slice's bytes; any bytes are words.
    let bytes = unsafe { core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size) };
    let read = read_bytes(pid, address, bytes).len() / size_of::<u64>();
    words.get(..read).unwrap_or_default()
}

/// Returns the bytes from an address on, as far as they are mapped; less than a page of them.
pub fn read_bytes(pid: u32, address: u64, bytes: &mut [u8]) -> &[u8] {
    let size = bytes.len();
    let local = [bytes.as_mut_ptr().expose_provenance(), size];
    let address = address as usize;
    // The kernel reads no range in part, so the words on the first page are a range of their own.
    let first = size.min(PAGE - address % PAGE);
    let remote = [address, first, address.wrapping_add(first), size - first];
    // SAFETY: the kernel checks the remote addresses, the local ones are the slice's.
    let read = unsafe {
        syscall(
            libc::SYS_process_vm_readv,
            [
                pid as usize,
                local.as_ptr().expose_provenance(),
                1,
                remote.as_ptr().expose_provenance(),
                2,
                0,
            ],
        )
    };
    let read = usize::try_from(read).unwrap_or(0);
    bytes.get(..read).unwrap_or_default()
}

/// Returns the alternate stack of this thread's signal handlers, as the kernel reports it.
fn alternate_stack() -> Option<libc::stack_t> {
    // SAFETY: zero is a valid value; the kernel fills it.
    unsafe {
        let mut stack: libc::stack_t = core::mem::zeroed();
        let place = (&raw mut stack).expose_provenance();
        (syscall(libc::SYS_sigaltstack, [0, place, 0, 0, 0, 0]) == 0).then_some(stack)
    }
}

/// Returns true if a signal handler runs on a stack of its own.
pub fn on_alternate_stack() -> bool {
    alternate_stack().is_some_and(|stack| stack.ss_flags & libc::SS_ONSTACK != 0)
}

/// A cut of the stack, which decides whether calls are left. An alternate stack of signal handlers may lie anywhere,
/// and is always entered last.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    target: u64,
    alternate: (u64, u64),
}

impl Cut {
    /// Returns the cut that sets the stack pointer to `target`.
    pub fn at(target: u64) -> Cut {
        let stack = alternate_stack().filter(|stack| stack.ss_flags & libc::SS_DISABLE == 0);
        let alternate = stack.map_or((0, 0), |stack| {
            let start = stack.ss_sp.addr() as u64;
            (start, start.saturating_add(stack.ss_size as u64))
        });
        Cut { target, alternate }
    }

    /// Returns true if the cut leaves a call with this slot.
    pub fn leaves(&self, slot: u64) -> bool {
        let is_alternate = |place: u64| self.alternate.0 <= place && place < self.alternate.1;
        match (is_alternate(slot), is_alternate(self.target)) {
            (true, false) => true,
            (false, true) => false,
            _ => slot < self.target,
        }
    }
}

/// Writes to standard error.
pub fn complain(parts: &[&str]) {
    for part in parts {
        // SAFETY: the text outlives the call.
        unsafe {
            arch::syscall(
                libc::SYS_write,
                [2, part.as_ptr().expose_provenance(), part.len(), 0, 0, 0],
            )
        };
    }
}

/// Ends the process at once, as a failed assertion would.
pub fn abort() -> ! {
    loop {
        // SAFETY: the signal is the point.
        unsafe {
            let default = [0_u64; 4];
            arch::syscall(
                libc::SYS_rt_sigaction,
                [
                    libc::SIGABRT as usize,
                    default.as_ptr().expose_provenance(),
                    0,
                    8,
                    0,
                    0,
                ],
            );
            arch::syscall(
                libc::SYS_tgkill,
                [
                    pid() as usize,
                    tid() as usize,
                    libc::SIGABRT as usize,
                    0,
                    0,
                    0,
                ],
            );
            arch::syscall(libc::SYS_exit_group, [134, 0, 0, 0, 0, 0]);
        }
    }
}
