//! Threads of a traced process, stopped while its code is written to.
//!
//! A patch replaces several instructions by a jump. A thread that has executed the first of them and not the last would
//! go on in the middle of the jump. Such threads exist where a library's constructor has started them before the
//! tracer's own constructor ran, and where a module is found that has been mapped for a while. So all threads but the
//! one that writes are stopped meanwhile, as debuggers do it (`PTRACE_SEIZE` and `PTRACE_INTERRUPT`, which send no
//! signal), and none of them may be inside the instructions that are overwritten:
//!
//! - its program counter, where it will go on;
//! - a program counter that a signal handler will return to. The kernel keeps it on the handler's stack. All words of
//!   the stacks are compared, so a word that has the same value by chance counts, too;
//! - a return address is never inside: a call among displaced instructions is the last of them.
//!
//! A thread that is inside goes on for a moment and is stopped again. A function whose first instructions a thread does
//! not leave stays as it is, and is not traced.
//!
//! Rejected: an `int3` with a handler for SIGTRAP, and signals that stop threads, since both are visible to the
//! program; and jumps that lead to themselves while the bytes behind them are written, since they say nothing of the
//! threads that are inside, and since a thread with a real-time priority would spin where the one that writes gets no
//! CPU.
//!
//! A program can notice that a waiting system call is interrupted. The kernel restarts most of them. Those that would
//! end with EINTR instead (`restart`) are restarted, too, on x86-64; their time limit begins again.

use super::maps::Maps;
use crate::processor::Registers;
use dioptra_processes::procfs;
use dioptra_trace_patch::Registers as _;
use dioptra_tracelayout::message::thread::BLOCK_BUSY;
use std::collections::{BTreeSet, HashSet};
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The time that threads may take to stop: on a busy machine each must be given a CPU.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time for which threads are let go on again and again, so that they leave the code that will be overwritten. On a
/// busy machine a thread that may go on gets no CPU for some milliseconds.
const LEAVING: Duration = Duration::from_millis(400);
/// The time for which threads are let go on so that they come out of the tracer's code.
const COMING_OUT: Duration = Duration::from_secs(2);
/// The longest time for which threads are let go on before they are stopped again.
const TURN: Duration = Duration::from_millis(16);
/// The most bytes of a stack that are searched for program counters.
const STACK_SEARCHED: u64 = 64 << 20;
/// `PTRACE_EVENT_STOP`: a stop that no signal has caused.
const EVENT_STOP: i32 = 128;

/// The reason why the threads of a process are not stopped.
#[derive(Debug, Error)]
pub enum CannotStop {
    /// The system does not permit it.
    #[error("they can't be stopped: {0}")]
    Refused(#[from] io::Error),
    /// A thread did not stop in time.
    #[error("one of them could not be stopped in time")]
    Late,
    /// A process that is no thread of this one has the same memory.
    #[error("a process shares its memory")]
    SharedMemory,
}

/// The stopped threads of a process; they go on when this is dropped.
///
/// Only the thread that made this value can use it: the kernel takes requests from no other thread, and lets all
/// stopped threads go on when that one ends.
pub struct StoppedThreads {
    pid: u32,
    /// The thread that is not stopped.
    spared: u32,
    threads: Vec<Stopped>,
    /// Threads that can't execute the program's code.
    others: HashSet<u32>,
    memory: File,
}

struct Stopped {
    tid: u32,
    /// The stop of the thread; `None` as long as the thread runs.
    stop: Option<Stop>,
}

/// The stop of a thread.
#[derive(Clone, Copy)]
pub struct Stop {
    /// The signal that the thread has not received yet because of the stop, or 0.
    pub signal: i32,
    /// Whether the whole process is stopped by a signal: then the thread would be stopped without the recorder, too.
    pub is_groups: bool,
}

/// Returns whether a process has threads besides one, or shares its memory with another process.
pub fn has_others(pid: u32, spared: u32) -> bool {
    procfs::threads(pid).iter().any(|tid| *tid != spared) || shares_memory(pid)
}

impl StoppedThreads {
    /// Stops all threads of a process but one.
    ///
    /// # Errors
    /// [`CannotStop`]
    pub fn stop(pid: u32, spared: u32) -> Result<StoppedThreads, CannotStop> {
        let mut stopped = StoppedThreads {
            pid,
            spared,
            threads: Vec::new(),
            others: HashSet::new(),
            memory: File::open(format!("/proc/{pid}/mem"))?,
        };
        stopped.stop_all()?;
        Ok(stopped)
    }

    /// Stops all running threads, until none is left that could start another one.
    fn stop_all(&mut self) -> Result<(), CannotStop> {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut is_new = false;
            for tid in procfs::threads(self.pid) {
                let is_known = self.threads.iter().any(|thread| thread.tid == tid);
                if tid == self.spared || is_known || self.others.contains(&tid) {
                    continue;
                }
                is_new = true;
                match seize(tid) {
                    Ok(()) => self.threads.push(Stopped { tid, stop: None }),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                    Err(_) if is_idle(self.pid, tid) => {
                        self.others.insert(tid);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.wait(end)?;
            if !is_new && !shares_memory(self.pid) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(CannotStop::SharedMemory);
            }
            if !is_new {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Waits until all threads that were told to stop have done so.
    fn wait(&mut self, end: Instant) -> Result<(), CannotStop> {
        let mut rest = Duration::from_micros(10);
        loop {
            for thread in &mut self.threads {
                if thread.stop.is_none() {
                    thread.stop = stop_of(thread.tid);
                    if thread.stop.is_some_and(|stop| stop.signal == 0) {
                        let _ = restart_system_call(thread.tid);
                    }
                }
            }
            let pid = self.pid;
            self.threads
                .retain(|thread| thread.stop.is_some() || !is_gone(pid, thread.tid));
            if self.threads.iter().all(|thread| thread.stop.is_some()) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(CannotStop::Late);
            }
            thread::sleep(rest);
            rest = (rest * 2).min(Duration::from_millis(1));
        }
    }

    /// Lets threads leave these ranges of addresses, which are sorted: afterwards no thread goes on behind a range's
    /// first address and before its end. Returns the numbers of the ranges that threads did not leave.
    ///
    /// # Errors
    /// [`CannotStop`]
    pub fn leave(&mut self, ranges: &[Range<u64>]) -> Result<BTreeSet<usize>, CannotStop> {
        let mut held = BTreeSet::new();
        self.let_go(LEAVING, |stopped, maps| {
            held.clear();
            let mut inside = Vec::new();
            for (number, thread) in stopped.threads.iter().enumerate() {
                let found = stopped.found(thread, maps, ranges)?;
                if !found.is_empty() {
                    inside.push(number);
                    held.extend(found);
                }
            }
            Ok(inside)
        })?;
        Ok(held)
    }

    /// Lets threads come out of the tracer's code. Returns whether all have.
    ///
    /// # Errors
    /// [`CannotStop`]
    pub fn come_out(&mut self, tracer: &TracerCode) -> Result<bool, CannotStop> {
        self.let_go(COMING_OUT, |stopped, maps| {
            let mut inside = Vec::new();
            for (number, thread) in stopped.threads.iter().enumerate() {
                if stopped.is_on_the_way(thread, maps, tracer)? {
                    inside.push(number);
                }
            }
            Ok(inside)
        })
    }

    /// Lets threads go on, again and again, until `examine` returns no more numbers of threads, or time has passed.
    /// Returns whether none is left.
    fn let_go(
        &mut self,
        time: Duration,
        mut examine: impl FnMut(&StoppedThreads, &Maps) -> io::Result<Vec<usize>>,
    ) -> Result<bool, CannotStop> {
        let end = Instant::now() + time;
        // At first only as long as an instruction takes, later so long that a handler can return.
        let mut turn = Duration::from_micros(1);
        loop {
            let maps = match has_handlers(self.pid) {
                true => Maps::read(self.pid)?,
                false => Maps::default(),
            };
            let inside = examine(self, &maps)?;
            if inside.is_empty() || Instant::now() > end {
                return Ok(inside.is_empty());
            }
            for number in &inside {
                self.threads[*number].go_on();
            }
            thread::sleep(turn);
            turn = (turn * 2).min(TURN);
            for number in inside {
                // A thread that a signal has stopped would be stopped again as soon as it may go on.
                let tid = self.threads[number].tid;
                if stop_of(tid).is_none() {
                    let _ = request(libc::PTRACE_INTERRUPT, tid, 0, 0);
                }
            }
            self.stop_all()?;
        }
    }

    /// Returns whether a thread executes the tracer's code, or will do so when a signal handler returns.
    fn is_on_the_way(
        &self,
        thread: &Stopped,
        maps: &Maps,
        tracer: &TracerCode,
    ) -> io::Result<bool> {
        let registers = registers(thread.tid)?;
        if tracer.holds(registers.program_counter()) {
            return Ok(true);
        }
        let block = registers
            .thread_pointer()
            .wrapping_add_signed(tracer.thread_block);
        let mut busy = [0; 8];
        let at = block.wrapping_add_signed(BLOCK_BUSY);
        // A thread that has just begun or is ending may have no thread pointer.
        if self.memory.read_exact_at(&mut busy, at).is_ok() && busy != [0; 8] {
            return Ok(true);
        }
        let mut is_interrupted = false;
        for stack in stacks(&registers, thread.tid == self.pid, maps) {
            each_interrupted(&self.memory, stack, |address| {
                is_interrupted |= tracer.holds(address);
            })?;
        }
        Ok(is_interrupted)
    }

    /// Returns the numbers of the ranges that a thread may go on in the middle of.
    fn found(
        &self,
        thread: &Stopped,
        maps: &Maps,
        ranges: &[Range<u64>],
    ) -> io::Result<BTreeSet<usize>> {
        let registers = registers(thread.tid)?;
        let mut found = BTreeSet::new();
        found.extend(range_around(registers.program_counter(), ranges));
        for stack in stacks(&registers, thread.tid == self.pid, maps) {
            self.search(stack, ranges, &mut found)?;
        }
        Ok(found)
    }

    /// Looks for program counters on a stack.
    fn search(
        &self,
        stack: Range<u64>,
        ranges: &[Range<u64>],
        found: &mut BTreeSet<usize>,
    ) -> io::Result<()> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Ok(());
        };
        let all = first.start..last.end;
        let mut bytes = vec![0; 1 << 16];
        let mut at = stack.start;
        while at < stack.end {
            let size = (stack.end - at).min(bytes.len() as u64) as usize;
            let part = &mut bytes[..size];
            self.memory.read_exact_at(part, at)?;
            let (words, _) = part.as_chunks::<8>();
            let words = words.iter().map(|word| u64::from_ne_bytes(*word));
            for word in words.filter(|word| all.contains(word)) {
                found.extend(range_around(word, ranges));
            }
            at += size as u64;
        }
        Ok(())
    }
}

impl Drop for StoppedThreads {
    fn drop(&mut self) {
        for thread in &self.threads {
            let signal = thread.stop.map_or(0, |stop| stop.signal);
            // This fails for a thread that is gone or does not stop: the kernel lets it go when this thread ends.
            let _ = request(libc::PTRACE_DETACH, thread.tid, 0, signal as usize);
        }
    }
}

impl Stopped {
    /// Lets the thread go on, unless it would be stopped without the recorder.
    fn go_on(&mut self) {
        if let Some(stop) = self.stop.filter(|stop| !stop.is_groups) {
            self.stop = None;
            let _ = request(libc::PTRACE_CONT, self.tid, 0, stop.signal as usize);
        }
    }
}

/// The tracer's code in a process.
#[derive(Clone, Debug)]
pub struct TracerCode {
    /// The ranges of addresses: the runtime's, the pools', and those of patches with more than one instruction.
    pub ranges: Vec<Range<u64>>,
    /// The offset of a thread's block from its thread pointer.
    pub thread_block: i64,
}

impl TracerCode {
    /// Returns whether an address lies in the tracer's code.
    pub fn holds(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }
}

/// Returns the parts in use of the stacks on which a thread's interrupted program counters lie; none without maps.
fn stacks(registers: &Registers, is_main: bool, maps: &Maps) -> Vec<Range<u64>> {
    let area = |address: u64| {
        let mut areas = maps.areas.iter();
        areas.find(|area| (area.start..area.end).contains(&address))
    };
    let Some(stack) = area(registers.stack_pointer()) else {
        // No handler is at work in a process without handlers.
        return Vec::new();
    };
    let from = registers.stack_pointer() & !7;
    let used = from..stack.end.min(from.saturating_add(STACK_SEARCHED));
    // A handler with a stack of its own may have interrupted another one that has none: the thread's first stack
    // holds the C library's description of the thread, or is the process's.
    let first = match is_main {
        true => maps.areas.iter().find(|area| area.path == b"[stack]"),
        false => area(registers.thread_pointer()),
    };
    let first = first.filter(|first| first.start != stack.start);
    let first = first.map(|first| {
        let searched = first.end.saturating_sub(STACK_SEARCHED);
        first.start.max(searched)..first.end
    });
    std::iter::once(used).chain(first).collect()
}

/// The code to which signal handlers return on x86-64: `mov rax, 15` (`rt_sigreturn`), `syscall`.
const SIGNAL_RETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];

/// The distance, in words, from a handler's return address to the program counter of what it has interrupted: the
/// general registers of the signal frame's `ucontext_t` (`sigaltstack(2)`, `sys/ucontext.h`).
const INTERRUPTED: usize = 22;

/// Calls `visit` with the program counters that signal handlers on a stack will return to.
fn each_interrupted(
    memory: &File,
    stack: Range<u64>,
    mut visit: impl FnMut(u64),
) -> io::Result<()> {
    let mut bytes = vec![0; (stack.end - stack.start) as usize];
    memory.read_exact_at(&mut bytes, stack.start)?;
    let (words, _) = bytes.as_chunks::<8>();
    let word = |at: usize| words.get(at).map(|word| u64::from_ne_bytes(*word));
    // Most words are no addresses of code, and few functions are returned to from so many places.
    let mut returns: Option<u64> = None;
    for at in 0..words.len() {
        let (Some(address), Some(interrupted)) = (word(at), word(at + INTERRUPTED)) else {
            continue;
        };
        let is_return = match returns {
            Some(known) => known == address,
            None => {
                let mut code = [0; SIGNAL_RETURN.len()];
                let is_code = address >= 0x1_0000
                    && memory.read_exact_at(&mut code, address).is_ok()
                    && code == SIGNAL_RETURN;
                if is_code {
                    returns = Some(address);
                }
                is_code
            }
        };
        if is_return {
            visit(interrupted);
        }
    }
    Ok(())
}

/// Returns the number of the range that an address is inside of: behind its first address.
fn range_around(address: u64, ranges: &[Range<u64>]) -> Option<usize> {
    let number = ranges.partition_point(|range| range.start < address);
    let number = number.checked_sub(1)?;
    (address < ranges.get(number)?.end).then_some(number)
}

/// Makes a request of ptrace. `address` and `data` may be addresses of memory of the request's kind.
///
/// # Errors
/// The system call's.
pub fn request(what: libc::c_uint, tid: u32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: addresses are of memory of the request's kind that outlives the call; see the callers.
    match unsafe { libc::ptrace(what, tid as libc::pid_t, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Tells a thread to stop.
///
/// # Errors
/// The system call's.
pub fn seize(tid: u32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, 0)?;
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// Returns the stop of a thread; `None` if it runs.
///
/// Does not wait for one: the thread that waits for the command could take a notice away.
pub fn stop_of(tid: u32) -> Option<Stop> {
    let mut information = MaybeUninit::<libc::siginfo_t>::zeroed();
    let place = information.as_mut_ptr().expose_provenance();
    let information = match request(libc::PTRACE_GETSIGINFO, tid, 0, place) {
        // SAFETY: the kernel has filled it.
        Ok(()) => unsafe { information.assume_init() },
        // A stop of the whole process, about which the kernel tells nothing more.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            return Some(Stop {
                signal: 0,
                is_groups: true,
            });
        }
        Err(_) => return None,
    };
    let is_event = information.si_code >> 8 == EVENT_STOP;
    Some(Stop {
        signal: if is_event { 0 } else { information.si_signo },
        is_groups: is_event && information.si_signo != libc::SIGTRAP,
    })
}

fn registers(tid: u32) -> io::Result<Registers> {
    let mut registers = MaybeUninit::<Registers>::zeroed();
    let mut part = libc::iovec {
        iov_base: registers.as_mut_ptr().cast(),
        iov_len: size_of::<Registers>(),
    };
    let place = (&raw mut part).expose_provenance();
    request(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, place)?;
    // SAFETY: integers, of which the kernel has written some.
    Ok(unsafe { registers.assume_init() })
}

/// The set of general registers.
const NT_PRSTATUS: usize = 1;

/// Restarts a system call that the stop has interrupted, if the kernel does not do so.
fn restart_system_call(tid: u32) -> io::Result<()> {
    let Some(mut registers) = registers(tid)?.restart() else {
        return Ok(());
    };
    let mut part = libc::iovec {
        iov_base: (&raw mut registers).cast(),
        iov_len: size_of::<Registers>(),
    };
    let place = (&raw mut part).expose_provenance();
    request(libc::PTRACE_SETREGSET, tid, NT_PRSTATUS, place)
}

/// Returns the state of a thread, as `/proc/PID/stat` has it, and its name.
fn state(pid: u32, tid: u32) -> Option<(u8, Vec<u8>)> {
    let text = fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    let begin = text.iter().position(|byte| *byte == b'(')?;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    let name = text.get(begin + 1..end)?.to_vec();
    Some((*text.get(end + 2)?, name))
}

/// Returns whether a thread has ended.
pub fn is_gone(pid: u32, tid: u32) -> bool {
    state(pid, tid).is_none_or(|(state, _)| matches!(state, b'Z' | b'X'))
}

/// Returns whether a thread can't execute the program's code: it has ended, or works for the kernel (`io_uring`).
fn is_idle(pid: u32, tid: u32) -> bool {
    is_gone(pid, tid) || state(pid, tid).is_some_and(|(_, name)| name.starts_with(b"iou-"))
}

/// Returns whether a process has signal handlers.
fn has_handlers(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut lines = status.lines();
    let caught = lines.find_map(|line| line.strip_prefix("SigCgt:"));
    caught.is_none_or(|caught| u64::from_str_radix(caught.trim(), 16) != Ok(0))
}

/// Returns whether a child shares the memory of a process, such as that of `vfork` before it executes a program.
fn shares_memory(pid: u32) -> bool {
    const KCMP_VM: i32 = 1;
    let is_same = |child: &u32| {
        let (pid, child) = (pid as libc::pid_t, *child as libc::pid_t);
        // SAFETY: numbers only.
        unsafe { libc::syscall(libc::SYS_kcmp, pid, child, KCMP_VM, 0, 0) == 0 }
    };
    procfs::threads(pid).iter().any(|tid| {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
        let children = children.unwrap_or_default();
        let mut children = children
            .split_whitespace()
            .filter_map(|word| word.parse().ok());
        children.any(|child| is_same(&child))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_range_is_inside() {
        let ranges = [10..15, 20..25, 25..30];
        for (address, around) in [
            (9, None),
            (10, None),
            (11, Some(0)),
            (14, Some(0)),
            (15, None),
            (20, None),
            (24, Some(1)),
            (25, None),
            (26, Some(2)),
            (30, None),
        ] {
            assert_eq!(range_around(address, &ranges), around, "{address}");
        }
        assert_eq!(range_around(1, &[]), None);
    }
}
