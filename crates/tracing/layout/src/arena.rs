//! The arena: memory that traced processes share with their recorder.
//!
//! The arena is one memfd. The recorder creates it and every traced process maps it; forked children inherit the
//! mapping. So a process needs no descriptor while it runs, and nothing is lost when it is killed.
//!
//! ```text
//! 0              STATES_OFFSET        execs_offset        chunks_offset             counters_offset
//! | Arena, 4096 B | u32 × chunk_count  | queue of notices  | chunk_size × chunk_count | counters, if any |
//!     header        states of chunks     crate::execs        crate::chunk               crate::sampling
//! ```
//!
//! A chunk is [`FREE`] and all zero, then [`BUSY`] while one thread fills it, then [`FULL`] until the recorder has
//! written it to the trace. The recorder zeroes the chunk before it makes it free again. Threads take the free chunk
//! with the lowest number, so that the same memory is used again and again. The recorder takes busy chunks from
//! threads that are gone.
//!
//! The file is sparse. [`Arena::budget`] bounds how many chunks may wait for the recorder, so the memory in use is at
//! most about `(budget + threads) * chunk_size`.

use crate::execs;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The first word of an arena.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DioArena");
/// The offset of the chunks' states in bytes.
pub const STATES_OFFSET: usize = 4096;

/// The size in bytes of the largest pages that kernels for this processor have. Memory that is given back to the
/// kernel begins and ends at a multiple of it.
pub const LARGEST_PAGE: usize = if cfg!(target_arch = "aarch64") {
    0x1_0000
} else {
    4096
};
/// The largest number of chunks in an arena.
pub const MAX_CHUNKS: usize = 1 << 14;

/// A chunk's state: no thread owns the chunk, and all of its bytes are zero.
pub const FREE: u32 = 0;
/// A chunk's state: a thread fills it.
pub const BUSY: u32 = 1;
/// A chunk's state: the chunk is closed and waits for the recorder.
pub const FULL: u32 = 2;

/// [`Arena::on_full`]: a thread waits until the recorder has freed a chunk.
pub const BLOCK: u32 = 0;
/// [`Arena::on_full`]: a thread goes on; the records that it would have written are lost and counted.
pub const DROP: u32 = 1;

/// [`Arena::clock`]: the time stamp counter.
pub const TSC: u32 = 0;
/// [`Arena::clock`]: `CLOCK_MONOTONIC`, in nanoseconds.
pub const MONOTONIC: u32 = 1;

/// A counter of processes to which something has happened. It remembers the first of them.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Processes {
    /// The number of times that the event happened.
    pub count: AtomicU32,
    /// The process to which the event happened first.
    pub first: AtomicU32,
}

impl Processes {
    /// Counts the event for a process.
    pub fn happens(&self, pid: u32) {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first.store(pid, Ordering::Relaxed);
        }
    }

    /// Returns the process to which the event happened first and the number of other times; `None` if it never
    /// happened.
    pub fn get(&self) -> Option<(u32, u32)> {
        let others = self.count.load(Ordering::Relaxed).checked_sub(1)?;
        Some((self.first.load(Ordering::Relaxed), others))
    }
}

/// The header of the shared memory.
#[repr(C)]
#[derive(Debug)]
pub struct Arena {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// The size of a chunk in bytes, a multiple of the page size.
    pub chunk_size: u32,
    /// The number of chunks, at most [`MAX_CHUNKS`].
    pub chunk_count: u32,
    /// The largest number of chunks that may be full at a time.
    pub budget: u32,
    /// The behaviour of a thread when too many chunks are full: [`BLOCK`] or [`DROP`].
    pub on_full: u32,
    /// The number of low bits of the clock's readings that records leave out.
    pub shift: u32,
    /// The clock of records' times: [`TSC`], or [`MONOTONIC`], which hooks leave to the slow path.
    pub clock: u32,
    /// The initial [`BLOCK_HIDDEN`](crate::message::thread::BLOCK_HIDDEN) of a thread: 0, or
    /// [`OUTSIDE`](crate::message::thread::OUTSIDE).
    pub hidden: u64,
    /// The largest nesting depth of recorded calls; 0 for no limit.
    pub levels: u32,
    /// Not 0 if the rules have calls that hide the calls below them.
    pub mutes: u32,
    /// The minimum duration of timed calls in shifted ticks; 0 for none. Hooks that are not generated take the
    /// records of shorter calls back.
    pub at_least: AtomicU64,
    /// The recorder's process id. A waiting thread checks that the process is alive.
    pub recorder: u32,
    /// Not 0 if nothing is recorded any more.
    pub stop: AtomicU32,
    /// The number of the next stream, from 1.
    pub next_stream: AtomicU32,
    /// The number of full chunks.
    pub full: AtomicU32,
    /// A counter that grows with each chunk that becomes full. The recorder waits on it (futex).
    pub filled: AtomicU32,
    /// A counter that grows with each chunk that becomes free. Threads wait on it (futex).
    pub freed: AtomicU32,
    /// The number of threads that wait for a free chunk.
    pub waiting: AtomicU32,
    /// The number of times that a thread waited for a free chunk.
    pub waits: AtomicU64,
    /// The total time in ticks for which threads waited for free chunks.
    pub waited: AtomicU64,
    /// The number of lost records. Chunk headers say where records are missing; records lost at the end of a stream
    /// are counted only here.
    pub lost: AtomicU64,
    /// The number of calls in signal handlers that interrupted a hook. This number and the next only ever grow. A
    /// single number that is counted up and down would pass below 0 where tasks share their thread-local memory.
    pub handler_calls: AtomicU64,
    /// The number of those calls that were recorded or that a filter leaves out.
    pub handler_calls_done: AtomicU64,
    /// The number of calls that were not recorded because the thread's shadow stack was full or could not be
    /// allocated.
    pub missed_no_memory: AtomicU64,
    /// Not 0 if [counters of sampled functions](crate::sampling) follow the chunks.
    pub has_counters: u32,
    /// Not 0 if executions that the percentile rejected stay in the records, marked as discarded.
    pub marks: u32,
    /// The seed of the random choices of sampled functions.
    pub seed: u64,
    /// The number of threads whose sampled calls are counted nowhere because no area was free.
    pub uncounted_threads: AtomicU32,
    /// The number of [notices](crate::execs) of executed programs that were given.
    pub executed: AtomicU64,
    /// The number of notices that could not be given because the queue was full.
    pub executed_unseen: AtomicU64,
    /// The number of executions that the percentile rejected and that are recorded all the same, because their
    /// records could not be taken back.
    pub marked: AtomicU64,
    /// The number of times that a process that had loaded or unloaded modules gave up waiting for the recorder's
    /// answer.
    pub unanswered: AtomicU32,
    /// Processes that record nothing any more since they have forbidden themselves system calls (seccomp).
    pub confined: Processes,
    /// Processes that have forbidden themselves the system calls with which they would report modules that they load.
    pub alone: Processes,
    /// Processes with a thread that records nothing any more since another task shares its thread-local memory.
    pub sharing: Processes,
    /// Processes that record nothing any more since a signal handler that had interrupted a hook exchanged call
    /// stacks.
    pub preempted: Processes,
}

impl Arena {
    /// Returns the offset of the [queue of executed programs](crate::execs).
    pub const fn execs_offset(chunk_count: usize) -> usize {
        (STATES_OFFSET + chunk_count * 4).next_multiple_of(4096)
    }

    /// Returns the offset of the first chunk in bytes.
    pub const fn chunks_offset(chunk_count: usize) -> usize {
        (Self::execs_offset(chunk_count) + execs::SIZE).next_multiple_of(4096)
    }

    /// Returns the size of the arena in bytes without the counters, which follow it.
    pub const fn size(chunk_size: usize, chunk_count: usize) -> usize {
        let size = Self::chunks_offset(chunk_count) + chunk_size * chunk_count;
        size.next_multiple_of(LARGEST_PAGE)
    }

    /// Returns the offset of the counters of sampled functions in bytes, if the arena has any.
    pub fn counters_offset(&self) -> Option<usize> {
        let size = Self::size(self.chunk_size as usize, self.chunk_count as usize);
        (self.has_counters != 0).then_some(size)
    }

    /// Returns the number of calls in signal handlers that interrupted a hook and were not recorded.
    pub fn missed_in_handlers(&self) -> u64 {
        // In this order, because a call is counted before it is counted as done.
        let done = self.handler_calls_done.load(Ordering::Acquire);
        let calls = self.handler_calls.load(Ordering::Acquire);
        calls.saturating_sub(done)
    }

    /// Returns true if the sizes are within their limits and fit `bytes` of memory.
    pub fn is_valid(&self, bytes: usize) -> bool {
        let (size, count) = (self.chunk_size as usize, self.chunk_count as usize);
        self.magic == MAGIC
            && self.version == u32::from(crate::VERSION)
            && size.is_multiple_of(4096)
            && (4096..=crate::chunk::MAX_CHUNK).contains(&size)
            && (1..=MAX_CHUNKS).contains(&count)
            && Self::size(size, count) + self.counters_size() <= bytes
    }

    fn counters_size(&self) -> usize {
        if self.has_counters != 0 {
            crate::sampling::SIZE
        } else {
            0
        }
    }

    /// Takes the first free chunk. Returns `None` if too many chunks are full.
    pub fn take(&self, states: &[AtomicU32]) -> Option<usize> {
        if self.full.load(Ordering::Relaxed) >= self.budget {
            return None;
        }
        Self::take_any(states)
    }

    /// Takes the first free chunk, however many chunks are full.
    pub fn take_any(states: &[AtomicU32]) -> Option<usize> {
        states.iter().position(|state| {
            state.load(Ordering::Relaxed) == FREE
                && state
                    .compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Hands a chunk to the recorder. The caller then wakes the recorder (futex on [`Arena::filled`]).
    pub fn hand_over(&self, state: &AtomicU32) {
        self.full.fetch_add(1, Ordering::Relaxed);
        state.store(FULL, Ordering::Release);
        self.filled.fetch_add(1, Ordering::Release);
    }

    /// Makes a zeroed chunk free; `was_full` is true if the chunk had been handed over. The caller then wakes waiting
    /// threads (futex on [`Arena::freed`]) if [`Arena::waiting`] is not 0.
    pub fn free(&self, state: &AtomicU32, was_full: bool) {
        state.store(FREE, Ordering::Release);
        if was_full {
            self.full.fetch_sub(1, Ordering::Relaxed);
        }
        self.freed.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_goes_round() {
        let arena = Arena {
            magic: MAGIC,
            version: u32::from(crate::VERSION),
            chunk_size: 65536,
            chunk_count: 3,
            budget: 1,
            on_full: BLOCK,
            shift: 2,
            clock: TSC,
            hidden: 0,
            levels: 0,
            mutes: 0,
            at_least: AtomicU64::new(0),
            recorder: 1,
            stop: AtomicU32::new(0),
            next_stream: AtomicU32::new(1),
            full: AtomicU32::new(0),
            filled: AtomicU32::new(0),
            freed: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            waits: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            handler_calls: AtomicU64::new(0),
            handler_calls_done: AtomicU64::new(0),
            missed_no_memory: AtomicU64::new(0),
            has_counters: 0,
            marks: 0,
            seed: 0,
            uncounted_threads: AtomicU32::new(0),
            executed: AtomicU64::new(0),
            executed_unseen: AtomicU64::new(0),
            marked: AtomicU64::new(0),
            unanswered: AtomicU32::new(0),
            confined: Processes::default(),
            alone: Processes::default(),
            sharing: Processes::default(),
            preempted: Processes::default(),
        };
        assert_eq!(arena.missed_in_handlers(), 0);
        arena.handler_calls.fetch_add(3, Ordering::Relaxed);
        arena.handler_calls_done.fetch_add(1, Ordering::Relaxed);
        assert_eq!(arena.missed_in_handlers(), 2);
        // Two tasks with one block have copied the same records.
        arena.handler_calls_done.fetch_add(4, Ordering::Relaxed);
        assert_eq!(arena.missed_in_handlers(), 0);
        assert!(arena.is_valid(Arena::size(65536, 3)));
        assert!(!arena.is_valid(Arena::size(65536, 3) - 1));
        let states = [const { AtomicU32::new(FREE) }; 3];
        assert_eq!(arena.take(&states), Some(0));
        assert_eq!(arena.take(&states), Some(1));
        arena.hand_over(&states[0]);
        assert_eq!(arena.take(&states), None, "the budget is spent");
        assert_eq!(Arena::take_any(&states), Some(2));
        arena.free(&states[2], false);
        arena.free(&states[0], true);
        assert_eq!(arena.take(&states), Some(0));
        assert_eq!(arena.take(&states), Some(2));
        assert_eq!(arena.take(&states), None);
    }
}
