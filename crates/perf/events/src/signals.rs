//! Samples that come as signals: a handler writes them into a queue, from which the reader makes records.
//!
//! The handlers touch nothing but atomics of one static queue, and call only what POSIX lets signal handlers call.

use crate::SampleType;
use crate::owner::Owner;
use crate::record::{HEADER_SIZE, RecordType};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The fields of a sample that came by a signal.
pub(crate) const FIELDS: SampleType = SampleType::IDENTIFIER
    .union(SampleType::IP)
    .union(SampleType::TID)
    .union(SampleType::TIME)
    .union(SampleType::ADDR)
    .union(SampleType::CPU);

/// Ids of events whose samples come by signals: the kernel's ids are small numbers.
pub(crate) fn id_of(index: usize) -> u64 {
    (1 << 63) | index as u64
}

/// Returns the word that an event's signals carry: the thread for which it was opened, and the event's index.
pub(crate) fn word(tid: u32, index: usize) -> u64 {
    u64::from(tid) << 32 | (index as u64 & 0xffff_ffff)
}

/// Samples that fit: a reader that looks ten times a second keeps up with 40,000 samples a second.
const SLOTS: usize = 4096;

/// One sample. `turn` says whose turn it is: the writer's of round n at 2n, the reader's at 2n + 1.
struct Slot {
    turn: AtomicU64,
    time: AtomicU64,
    ip: AtomicU64,
    address: AtomicU64,
    word: AtomicU64,
    tid: AtomicU32,
    cpu: AtomicU32,
}

/// A bounded queue with many writers and one reader.
struct Queue {
    slots: [Slot; SLOTS],
    tail: AtomicUsize,
    head: AtomicUsize,
    lost: AtomicU64,
    /// Handlers drop what comes while no session listens.
    open: AtomicBool,
    /// The thread that is not watched.
    reader: AtomicU32,
    /// The event that SIGPROF stands for.
    timer_word: AtomicU64,
}

static QUEUE: Queue = Queue {
    slots: [const {
        Slot {
            turn: AtomicU64::new(0),
            time: AtomicU64::new(0),
            ip: AtomicU64::new(0),
            address: AtomicU64::new(0),
            word: AtomicU64::new(0),
            tid: AtomicU32::new(0),
            cpu: AtomicU32::new(0),
        }
    }; SLOTS],
    tail: AtomicUsize::new(0),
    head: AtomicUsize::new(0),
    lost: AtomicU64::new(0),
    open: AtomicBool::new(false),
    reader: AtomicU32::new(0),
    timer_word: AtomicU64::new(0),
};

/// The process whose session listens, one at a time; 0 for none. A forked child copies the number of its parent, whose
/// session is none of the child's.
static TAKEN_BY: AtomicU32 = AtomicU32::new(0);

impl Queue {
    /// Adds a sample; called in signal handlers, so without locks.
    fn push(&self, ip: u64, address: u64, word: u64) {
        if !self.open.load(Ordering::Relaxed) {
            return;
        }
        let tid = crate::sys::thread_id();
        if tid == self.reader.load(Ordering::Relaxed) {
            return;
        }
        let mut at = self.tail.load(Ordering::Relaxed);
        let slot = loop {
            let slot = &self.slots[at % SLOTS];
            let round = 2 * (at / SLOTS) as u64;
            let turn = slot.turn.load(Ordering::Acquire);
            if turn < round {
                // The reader has not emptied it yet.
                self.lost.fetch_add(1, Ordering::Relaxed);
                return;
            }
            if turn == round {
                match self.tail.compare_exchange_weak(
                    at,
                    at + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => break slot,
                    Err(now) => at = now,
                }
            } else {
                at = self.tail.load(Ordering::Relaxed);
            }
        };
        slot.time.store(
            crate::sys::clock_now(libc::CLOCK_MONOTONIC),
            Ordering::Relaxed,
        );
        slot.ip.store(ip, Ordering::Relaxed);
        slot.address.store(address, Ordering::Relaxed);
        slot.word.store(word, Ordering::Relaxed);
        slot.tid.store(tid, Ordering::Relaxed);
        // SAFETY: no arguments; the kernel's -1 for an unknown CPU becomes the largest number.
        slot.cpu.store(
            unsafe { libc::sched_getcpu() }.cast_unsigned(),
            Ordering::Relaxed,
        );
        slot.turn
            .store(2 * (at / SLOTS) as u64 + 1, Ordering::Release);
    }

    /// Empties the queue in a forked child, whose copy may hold a place that a thread of the parent was writing to.
    fn reset(&self) {
        self.open.store(false, Ordering::Relaxed);
        for slot in &self.slots {
            slot.turn.store(0, Ordering::Relaxed);
        }
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Release);
    }

    /// Takes the oldest sample; one that a writer has claimed and not finished is not there yet.
    fn pop(&self) -> Option<Signalled> {
        let at = self.head.load(Ordering::Relaxed);
        let slot = &self.slots[at % SLOTS];
        let round = 2 * (at / SLOTS) as u64;
        if slot.turn.load(Ordering::Acquire) != round + 1 {
            return None;
        }
        let sample = Signalled {
            time: slot.time.load(Ordering::Relaxed),
            ip: slot.ip.load(Ordering::Relaxed),
            address: slot.address.load(Ordering::Relaxed),
            owner: (slot.word.load(Ordering::Relaxed) >> 32) as u32,
            index: (slot.word.load(Ordering::Relaxed) & 0xffff_ffff) as usize,
            tid: slot.tid.load(Ordering::Relaxed),
            cpu: slot.cpu.load(Ordering::Relaxed),
        };
        slot.turn.store(round + 2, Ordering::Release);
        self.head.store(at + 1, Ordering::Relaxed);
        Some(sample)
    }
}

/// A sample that came by a signal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signalled {
    time: u64,
    ip: u64,
    address: u64,
    /// The thread for which the event was opened; 0 for the timer.
    pub(crate) owner: u32,
    /// The event's index.
    pub(crate) index: usize,
    pub(crate) tid: u32,
    pub(crate) cpu: u32,
}

impl Signalled {
    /// Returns the sample as a record of the fields [`FIELDS`].
    pub(crate) fn record(&self) -> [u8; HEADER_SIZE + 48] {
        let mut bytes = [0; HEADER_SIZE + 48];
        // PERF_RECORD_MISC_USER.
        let misc = 2_u16;
        let size = (HEADER_SIZE + 48) as u16;
        bytes[..4].copy_from_slice(&RecordType::SAMPLE.0.to_ne_bytes());
        bytes[4..6].copy_from_slice(&misc.to_ne_bytes());
        bytes[6..8].copy_from_slice(&size.to_ne_bytes());
        let words = [
            id_of(self.index).to_ne_bytes(),
            self.ip.to_ne_bytes(),
            [0; 8],
            self.time.to_ne_bytes(),
            self.address.to_ne_bytes(),
            [0; 8],
        ];
        for (place, word) in bytes[HEADER_SIZE..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word);
        }
        bytes[HEADER_SIZE + 16..][..4].copy_from_slice(&std::process::id().to_ne_bytes());
        bytes[HEADER_SIZE + 20..][..4].copy_from_slice(&self.tid.to_ne_bytes());
        bytes[HEADER_SIZE + 40..][..4].copy_from_slice(&self.cpu.to_ne_bytes());
        bytes
    }
}

/// The receiving end: handlers stand while it lives, and for one signal at a time.
#[derive(Debug)]
pub(crate) struct SignalSource {
    signal: libc::c_int,
    lost_before: u64,
    owner: Owner,
    /// CPU time in nanoseconds of all threads but the reader when a timer was started; `None` for traps.
    cpu_before: Option<u64>,
}

/// `si_code` of a SIGTRAP that an event sent.
const TRAP_PERF: libc::c_int = 6;
/// Where `si_perf_data` stands in a `siginfo_t`, in bytes, on 64-bit systems.
const PERF_DATA: usize = 24;

impl SignalSource {
    /// Listens to events that send SIGTRAP.
    pub(crate) fn traps(reader: u32) -> io::Result<SignalSource> {
        Self::listen(libc::SIGTRAP, on_trap, reader)
    }

    /// Starts a timer that fires after each `period` nanoseconds of the process's CPU time.
    pub(crate) fn timer(reader: u32, index: usize, period: u64) -> io::Result<SignalSource> {
        QUEUE.timer_word.store(word(0, index), Ordering::Relaxed);
        let mut source = Self::listen(libc::SIGPROF, on_timer, reader)?;
        source.cpu_before = Some(cpu_of_others());
        set_timer(period)?;
        Ok(source)
    }

    fn listen(
        signal: libc::c_int,
        handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void),
        reader: u32,
    ) -> io::Result<SignalSource> {
        let process = std::process::id();
        let take = |by| (by != process).then_some(process);
        match TAKEN_BY.fetch_update(Ordering::Acquire, Ordering::Relaxed, take) {
            Ok(0) => {}
            Ok(_) => QUEUE.reset(),
            Err(_) => {
                let why = "another session of this process uses signals";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
            }
        }
        // From here on its drop gives the queue back.
        let source = SignalSource {
            signal,
            lost_before: QUEUE.lost.load(Ordering::Relaxed),
            owner: Owner::this_process(),
            cpu_before: None,
        };
        while QUEUE.pop().is_some() {}
        QUEUE.reader.store(reader, Ordering::Relaxed);
        // SAFETY: all zero is a valid action, filled below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: the action lives through the call, and the handler is safe in any thread at any time. It stays for
        // good: a signal may be on its way when the session ends, and its default is to kill the process.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        QUEUE.open.store(true, Ordering::Release);
        Ok(source)
    }

    /// Takes the oldest sample.
    pub(crate) fn next(&self) -> Option<Signalled> {
        QUEUE.pop()
    }

    /// Returns the CPU time in nanoseconds that the threads but the reader have used since a timer was started; `None` for traps.
    /// Called on the reader.
    pub(crate) fn cpu_time(&self) -> Option<u64> {
        Some(cpu_of_others().saturating_sub(self.cpu_before?))
    }

    /// Samples that found the queue full.
    pub(crate) fn lost(&self) -> u64 {
        QUEUE.lost.load(Ordering::Relaxed) - self.lost_before
    }
}

impl Drop for SignalSource {
    fn drop(&mut self) {
        if !self.owner.is_this_process() {
            return;
        }
        QUEUE.open.store(false, Ordering::Release);
        if self.signal == libc::SIGPROF {
            // A timer that can't be stopped has no listener any more.
            let _ = set_timer(0);
        }
        TAKEN_BY.store(0, Ordering::Release);
    }
}

/// Returns the CPU time of this process without that of the calling thread, the reader.
fn cpu_of_others() -> u64 {
    let all = crate::sys::clock_now(libc::CLOCK_PROCESS_CPUTIME_ID);
    all.saturating_sub(crate::sys::clock_now(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// Fires SIGPROF after each `nanoseconds` of CPU time; 0 stops.
fn set_timer(nanoseconds: u64) -> io::Result<()> {
    let microseconds = if nanoseconds == 0 {
        0
    } else {
        (nanoseconds / 1000).max(1)
    };
    let seconds = microseconds / 1_000_000;
    let time = libc::timeval {
        tv_sec: seconds.try_into().unwrap_or(libc::time_t::MAX),
        tv_usec: (microseconds % 1_000_000).try_into().unwrap_or(0),
    };
    let value = libc::itimerval {
        it_interval: time,
        it_value: time,
    };
    // SAFETY: the value lives through the call.
    if unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const value, std::ptr::null_mut()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Returns the address at which the thread was interrupted.
fn interrupted_at(context: *mut libc::c_void) -> u64 {
    let context = context.cast::<libc::ucontext_t>();
    if context.is_null() {
        return 0;
    }
    // SAFETY: the kernel hands a handler with SA_SIGINFO a valid context.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        return (*context).uc_mcontext.gregs[libc::REG_RIP as usize].cast_unsigned();
        #[cfg(target_arch = "aarch64")]
        return (*context).uc_mcontext.pc;
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        return 0;
    }
}

extern "C" fn on_trap(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a handler with SA_SIGINFO valid information.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    if code == TRAP_PERF && cfg!(target_pointer_width = "64") {
        // SAFETY: with this code the word stands there, inside the 128 bytes of the structure.
        let word = unsafe {
            info.cast::<u8>()
                .add(PERF_DATA)
                .cast::<u64>()
                .read_unaligned()
        };
        QUEUE.push(interrupted_at(context), address, word);
        return;
    }
    // A breakpoint instruction: what would have happened without us.
    // SAFETY: both calls are allowed in handlers.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

extern "C" fn on_timer(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    QUEUE.push(
        interrupted_at(context),
        0,
        QUEUE.timer_word.load(Ordering::Relaxed),
    );
}
