//! The memory that traced processes share with their recorder: a header, the states of chunks, and the chunks.
//!
//! It is one memfd that the recorder creates and all traced processes map (forked children inherit it), so that a
//! process needs no descriptor while it runs and nothing is lost when it is killed.
//!
//! A chunk is [`FREE`] (and zero), then [`BUSY`] while one thread fills it, then [`FULL`] until the recorder has written
//! it, zeroed it and made it free again. Threads take the free chunk with the lowest number, so that the same memory is
//! used again and again. The recorder takes busy chunks from threads that are gone.
//!
//! The file is sparse: [`Arena::budget`] bounds how many chunks may wait for the recorder, so memory is at most
//! `(budget + threads) * chunk_size`, and a little.

use crate::execs;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The first word of an arena.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DioArena");
/// Where the chunks' states begin.
pub const STATES_OFFSET: usize = 4096;

/// The largest pages that kernels for the processor have: what is given back to the kernel begins and ends with one.
pub const LARGEST_PAGE: usize = if cfg!(target_arch = "aarch64") {
    0x1_0000
} else {
    4096
};
/// The most chunks an arena has.
pub const MAX_CHUNKS: usize = 1 << 14;

/// A chunk's state: nobody's, and zero.
pub const FREE: u32 = 0;
/// A chunk's state: a thread fills it.
pub const BUSY: u32 = 1;
/// A chunk's state: closed, for the recorder.
pub const FULL: u32 = 2;

/// [`Arena::on_full`]: a thread waits until the recorder has made room.
pub const BLOCK: u32 = 0;
/// [`Arena::on_full`]: a thread goes on, and its records are counted but lost.
pub const DROP: u32 = 1;

/// [`Arena::clock`]: the time stamp counter.
pub const TSC: u32 = 0;
/// [`Arena::clock`]: `CLOCK_MONOTONIC`, in nanoseconds.
pub const MONOTONIC: u32 = 1;

/// The number of processes to which something has happened, and the first of them.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Processes {
    /// The number of times that it happened.
    pub count: AtomicU32,
    /// The process to which it happened first.
    pub first: AtomicU32,
}

impl Processes {
    /// Counts that it happens to a process.
    pub fn happens(&self, pid: u32) {
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first.store(pid, Ordering::Relaxed);
        }
    }

    /// Returns the process to which it happened first, and to how many others it happened; `None` if to none.
    pub fn get(&self) -> Option<(u32, u32)> {
        let others = self.count.load(Ordering::Relaxed).checked_sub(1)?;
        Some((self.first.load(Ordering::Relaxed), others))
    }
}

/// The header.
#[repr(C)]
#[derive(Debug)]
pub struct Arena {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`crate::VERSION`].
    pub version: u32,
    /// Bytes in a chunk, a multiple of the page size.
    pub chunk_size: u32,
    /// How many chunks there are, at most [`MAX_CHUNKS`].
    pub chunk_count: u32,
    /// How many chunks may be full at a time.
    pub budget: u32,
    /// What a thread does when too many are full: [`BLOCK`] or [`DROP`].
    pub on_full: u32,
    /// How many bits of the clock's readings records leave out.
    pub shift: u32,
    /// What records' times are read from: [`TSC`], or [`MONOTONIC`], which hooks leave to the slow path.
    pub clock: u32,
    /// A thread's [`BLOCK_HIDDEN`](crate::message::thread::BLOCK_HIDDEN) at its start: 0, or
    /// [`OUTSIDE`](crate::message::thread::OUTSIDE).
    pub hidden: u64,
    /// How many recorded calls may be around each other; 0: any number.
    pub levels: u32,
    /// Not 0: there are calls that hide what they call.
    pub mutes: u32,
    /// Timed calls that took less, in shifted ticks, are taken back by hooks that are not generated; 0: none.
    pub at_least: AtomicU64,
    /// The recorder, which a waiting thread checks to be alive.
    pub recorder: u32,
    /// Not 0: record no more.
    pub stop: AtomicU32,
    /// The number of the next stream, from 1.
    pub next_stream: AtomicU32,
    /// How many chunks are full.
    pub full: AtomicU32,
    /// Goes up with each chunk that becomes full; the recorder waits on it (futex).
    pub filled: AtomicU32,
    /// Goes up with each chunk that becomes free; threads wait on it (futex).
    pub freed: AtomicU32,
    /// How many threads wait for a free chunk.
    pub waiting: AtomicU32,
    /// The number of times that a thread waited for a free chunk.
    pub waits: AtomicU64,
    /// The time in ticks for which threads waited for free chunks, together.
    pub waited: AtomicU64,
    /// Records that were lost. Chunks tell where; of those that were lost at the end of a stream only this does.
    pub lost: AtomicU64,
    /// Calls in signal handlers that interrupted a hook. Both this and the next number only ever grow: the difference
    /// of one number that is counted up and down would pass below 0 where tasks share their thread-local memory.
    pub handler_calls: AtomicU64,
    /// The calls among these that were recorded, or that a filter leaves out.
    pub handler_calls_done: AtomicU64,
    /// Calls that were not recorded since the thread's shadow stack was full or could not be had.
    pub missed_no_memory: AtomicU64,
    /// Not 0: [counters of sampled functions](crate::sampling) follow the chunks.
    pub has_counters: u32,
    /// Not 0: executions that were judged not to be shown are recorded all the same, and marked.
    pub marks: u32,
    /// Chooses the random executions of sampled functions.
    pub seed: u64,
    /// Threads that have counted sampled calls where nobody reads it, for want of an area.
    pub uncounted_threads: AtomicU32,
    /// The number of [notices](crate::execs) of executed programs that were given.
    pub executed: AtomicU64,
    /// The number of notices that could not be given because the queue was full.
    pub executed_unseen: AtomicU64,
    /// Executions that were judged not to be shown, and are recorded all the same: they could not be taken back.
    pub marked: AtomicU64,
    /// The number of times that a process that had loaded or unloaded modules gave up waiting for the recorder's
    /// answer.
    pub unanswered: AtomicU32,
    /// Processes that record nothing any more since they have forbidden themselves system calls.
    pub confined: Processes,
    /// Processes that have forbidden themselves system calls with which they would tell of modules that they load.
    pub alone: Processes,
    /// Processes with a thread that records nothing any more since another task shares its thread-local memory.
    pub sharing: Processes,
    /// Processes that record nothing any more since a handler that had interrupted a hook exchanged call stacks.
    pub preempted: Processes,
}

impl Arena {
    /// Returns the offset of the [queue of executed programs](crate::execs).
    pub const fn execs_offset(chunk_count: usize) -> usize {
        (STATES_OFFSET + chunk_count * 4).next_multiple_of(4096)
    }

    /// Where the chunks begin.
    pub const fn chunks_offset(chunk_count: usize) -> usize {
        (Self::execs_offset(chunk_count) + execs::SIZE).next_multiple_of(4096)
    }

    /// The size of the whole arena in bytes, without counters: they lie behind it.
    pub const fn size(chunk_size: usize, chunk_count: usize) -> usize {
        let size = Self::chunks_offset(chunk_count) + chunk_size * chunk_count;
        size.next_multiple_of(LARGEST_PAGE)
    }

    /// Where the counters of sampled functions begin, if there are any.
    pub fn counters_offset(&self) -> Option<usize> {
        let size = Self::size(self.chunk_size as usize, self.chunk_count as usize);
        (self.has_counters != 0).then_some(size)
    }

    /// Returns the number of calls in signal handlers that interrupted a hook and were not recorded.
    pub fn missed_in_handlers(&self) -> u64 {
        // In this order: a call that is counted as done was counted before.
        let done = self.handler_calls_done.load(Ordering::Acquire);
        let calls = self.handler_calls.load(Ordering::Acquire);
        calls.saturating_sub(done)
    }

    /// Whether the sizes make sense and fit `bytes` of memory.
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

    /// Takes the first free chunk, unless too many are full.
    pub fn take(&self, states: &[AtomicU32]) -> Option<usize> {
        if self.full.load(Ordering::Relaxed) >= self.budget {
            return None;
        }
        Self::take_any(states)
    }

    /// Takes the first free chunk, however many are full.
    pub fn take_any(states: &[AtomicU32]) -> Option<usize> {
        states.iter().position(|state| {
            state.load(Ordering::Relaxed) == FREE
                && state
                    .compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })
    }

    /// Hands a chunk to the recorder, who then has to be woken (futex on [`Arena::filled`]).
    pub fn hand_over(&self, state: &AtomicU32) {
        self.full.fetch_add(1, Ordering::Relaxed);
        state.store(FULL, Ordering::Release);
        self.filled.fetch_add(1, Ordering::Release);
    }

    /// Makes a zeroed chunk free; `was_full` if it was handed over. Waiting threads then have to be woken (futex on
    /// [`Arena::freed`]) if [`Arena::waiting`] is not 0.
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
