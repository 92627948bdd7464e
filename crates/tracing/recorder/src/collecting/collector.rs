//! The collector, which takes chunks from the arena and writes them.

use super::arena_memory::ArenaMemory;
use super::counters;
use super::overhead::Overhead;
use crate::program::execs;
use crate::recording::notes::TraceNote;
use crate::recording::shared::{Shared, State};
use dioptra_processes::procfs;
use dioptra_tracedata::JournalEntry;
use dioptra_tracelayout::Decoder;
use dioptra_tracelayout::arena::{BUSY, FULL};
use dioptra_tracelayout::chunk::{self, ChunkHeader};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest sleep of the collector in milliseconds.
const NAP_MS: i64 = 20;
/// The time between two looks for threads that are gone.
const REAP_EVERY: Duration = Duration::from_millis(200);
/// The time between two readings of both clocks.
const CLOCK_EVERY: Duration = Duration::from_secs(1);

/// The limits of a recording that keeps only its last chunks.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// The age from which on calls are thrown away at the end, in ticks, shifted as in records; `None` for no limit.
    pub ticks: Option<u64>,
    /// The number of full chunks that are kept.
    pub chunks: usize,
}

/// The collector, which writes full chunks or keeps the last ones.
#[derive(Debug)]
pub struct Collector {
    ring: Option<Ring>,
    kept: VecDeque<(usize, u64)>,
    held: HashSet<usize>,
    discarded: u64,
    streams: HashSet<u32>,
    /// The number of the next chunk of each stream.
    next: HashMap<u32, u32>,
    /// Whether each thread existed when it was first looked for. Only a thread that did can be seen to be gone.
    seen: HashMap<(u32, u32), bool>,
    /// The number of executed programs at the last look.
    executed: u64,
    last_reap: Instant,
    last_clock: Instant,
    overhead: Overhead,
}

impl Collector {
    /// Makes a collector that writes everything, or with a ring only the last part.
    pub fn new(ring: Option<Ring>, overhead: Overhead) -> Collector {
        Collector {
            ring,
            kept: VecDeque::new(),
            held: HashSet::new(),
            discarded: 0,
            streams: HashSet::new(),
            next: HashMap::new(),
            seen: HashMap::new(),
            executed: 0,
            last_reap: Instant::now(),
            last_clock: Instant::now(),
            overhead,
        }
    }

    /// Returns the number of chunks that a ring threw away.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Collects until `stop` is set in the arena.
    pub fn run(&mut self, shared: &Shared) {
        let arena = &shared.arena;
        while arena.header().stop.load(Ordering::Relaxed) == 0 {
            let filled = arena.header().filled.load(Ordering::Acquire);
            if self.pass(shared) == 0 {
                ArenaMemory::wait(&arena.header().filled, filled, NAP_MS);
            }
            for area in counters::areas(arena).iter().filter(|area| area.has_ended) {
                shared.state().counters.take(arena, *area, true);
            }
            self.overhead.look(shared);
            let executed = arena.header().executed.load(Ordering::Relaxed);
            if std::mem::replace(&mut self.executed, executed) != executed {
                execs::look(shared);
            }
            if self.last_reap.elapsed() >= REAP_EVERY {
                self.reap(shared);
                execs::look(shared);
                self.last_reap = Instant::now();
            }
            if self.last_clock.elapsed() >= CLOCK_EVERY {
                shared
                    .state()
                    .journal(&JournalEntry::Clock(shared.clock.pair()));
                self.last_clock = Instant::now();
            }
        }
    }

    /// Takes all full chunks, and returns their number.
    fn pass(&mut self, shared: &Shared) -> usize {
        let arena = &shared.arena;
        let mut found: Vec<(u32, u32, usize)> = Vec::new();
        for (index, state) in arena.states().iter().enumerate() {
            if state.load(Ordering::Acquire) != FULL || self.held.contains(&index) {
                continue;
            }
            // A chunk whose header a program has overwritten sorts first, and is reported when it is written.
            let (stream, sequence) =
                header(arena, index).map_or((0, 0), |header| (header.stream, header.sequence));
            found.push((stream, sequence, index));
        }
        found.sort_unstable();
        let mut taken = 0;
        for (stream, sequence, index) in found {
            // During the loop a chunk may have become full, and then the chunk before it, whose place the loop had
            // passed.
            let next = self.next.entry(stream).or_default();
            if stream != 0 && sequence > *next {
                continue;
            }
            *next = sequence + 1;
            taken += 1;
            if self.ring.is_some() {
                self.keep(shared, index);
            } else {
                let used = self.write(shared, index);
                self.free(arena, index, used, true);
            }
        }
        taken
    }

    fn keep(&mut self, shared: &Shared, index: usize) {
        let Some(ring) = self.ring else { return };
        let last = header(&shared.arena, index).map_or(0, |header| header.last);
        self.kept.push_back((index, last));
        self.held.insert(index);
        while self.kept.len() > ring.chunks {
            if let Some((index, _)) = self.kept.pop_front() {
                self.discard(&shared.arena, index);
            }
        }
    }

    fn discard(&mut self, arena: &ArenaMemory, index: usize) {
        self.held.remove(&index);
        self.discarded += 1;
        self.free(arena, index, usize::MAX, true);
    }

    fn free(&self, arena: &ArenaMemory, index: usize, used: usize, was_full: bool) {
        arena.clear(index, used);
        if let Some(state) = arena.states().get(index) {
            arena.header().free(state, was_full);
        }
        if arena.header().waiting.load(Ordering::Relaxed) > 0 {
            ArenaMemory::wake(&arena.header().freed);
        }
    }

    /// Writes a chunk, and returns the number of its bytes that were used.
    fn write(&mut self, shared: &Shared, index: usize) -> usize {
        let Some(bytes) = shared.arena.chunk(index) else {
            return usize::MAX;
        };
        let Some(mut header) = header(&shared.arena, index) else {
            if bytes.get(..4) != Some(&[0; 4]) {
                shared.state().note(TraceNote::Overwritten);
            }
            return usize::MAX;
        };
        let start = chunk::records_offset(header.open as usize);
        let mut size = header.size as usize;
        let mut used = size;
        if size < start || size > bytes.len() {
            // The thread is gone and has not closed the chunk.
            let mut decoder = Decoder::new(bytes.get(start..).unwrap_or_default(), header.base);
            decoder.by_ref().take_while(Result::is_ok).for_each(drop);
            size = (start + decoder.offset()).next_multiple_of(8);
            header.last = decoder.time();
            // More bytes may lie behind an escape that the thread did not finish.
            used = usize::MAX;
        }
        let body = bytes.get(chunk::HEADER_SIZE..size).unwrap_or_default();
        let mut state = shared.state();
        self.announce(&mut state, &header);
        if let Err(error) = state.writer.chunk(header, body) {
            state.failure.get_or_insert(error);
        }
        used
    }

    fn announce(&mut self, state: &mut State, header: &ChunkHeader) {
        if !self.streams.insert(header.stream) {
            return;
        }
        let name = procfs::comm(header.pid, header.tid).unwrap_or_default();
        state.processes.insert(header.pid);
        state.journal(&JournalEntry::Thread {
            stream: header.stream,
            pid: header.pid,
            tid: header.tid,
            name: String::from_utf8_lossy(&name).into_owned(),
            parent: header.parent,
        });
    }

    /// Takes the chunks of threads that are gone.
    fn reap(&mut self, shared: &Shared) {
        let executed = std::mem::take(&mut shared.state().executed);
        let arena = &shared.arena;
        for (index, state) in arena.states().iter().enumerate() {
            if state.load(Ordering::Acquire) != BUSY {
                continue;
            }
            let Some(header) = header(arena, index) else {
                continue;
            };
            let thread = (header.pid, header.tid);
            if !self.streams.contains(&header.stream) {
                self.announce(&mut shared.state(), &header);
            }
            if self.is_gone(thread, header.stream, &executed) {
                self.take_busy(shared, index);
            }
        }
        for area in counters::areas(arena) {
            if !area.has_ended && self.is_gone(area.thread, area.stream, &executed) {
                shared.state().counters.take(arena, area, true);
            }
        }
    }

    /// Returns whether the thread that had a stream is gone, or has been replaced by another program.
    fn is_gone(&mut self, thread: (u32, u32), stream: u32, executed: &[(u32, u32)]) -> bool {
        let exists = exists(thread);
        let gone = !exists && *self.seen.entry(thread).or_insert(exists);
        let is_replaced = |(pid, first): &(u32, u32)| *pid == thread.0 && stream < *first;
        gone || executed.iter().any(is_replaced)
    }

    /// Treats a chunk whose thread is gone as full.
    fn take_busy(&self, shared: &Shared, index: usize) {
        let arena = &shared.arena;
        let Some(state) = arena.states().get(index) else {
            return;
        };
        let taken = state.compare_exchange(BUSY, FULL, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_err() {
            return;
        }
        arena.header().full.fetch_add(1, Ordering::Relaxed);
    }

    /// Writes everything that is left when the recording ends. Chunks of threads that still run are copied as they are.
    pub fn finish(&mut self, shared: &Shared) {
        execs::look(shared);
        while self.pass(shared) > 0 {}
        if let Some(note) = self.overhead.note() {
            shared.state().note(note);
        }
        let newest = shared.clock.ticks() >> shared.clock.shift();
        for (index, last) in std::mem::take(&mut self.kept) {
            let oldest = self
                .ring
                .and_then(|ring| ring.ticks)
                .map_or(0, |ticks| newest.saturating_sub(ticks));
            if last == 0 || last >= oldest {
                self.write(shared, index);
            } else {
                self.discarded += 1;
            }
        }
        let mut rest: Vec<(u32, u32, usize)> = shared
            .arena
            .states()
            .iter()
            .enumerate()
            .filter(|(index, state)| {
                state.load(Ordering::Acquire) == BUSY
                    || (state.load(Ordering::Acquire) == FULL
                        && self.ring.is_none()
                        && !self.held.contains(index))
            })
            .filter_map(|(index, _)| {
                let header = header(&shared.arena, index)?;
                Some((header.stream, header.sequence, index))
            })
            .collect();
        rest.sort_unstable();
        for (_, _, index) in rest {
            self.write(shared, index);
        }
        let mut state = shared.state();
        for area in counters::areas(&shared.arena) {
            state.counters.take(&shared.arena, area, false);
        }
        for entry in state.counters.journal().collect::<Vec<_>>() {
            state.journal(&entry);
        }
    }
}

/// Returns the header of a chunk in the arena, if the bytes are one.
fn header(arena: &ArenaMemory, index: usize) -> Option<ChunkHeader> {
    let mut bytes = [0; chunk::HEADER_SIZE];
    bytes.copy_from_slice(arena.chunk(index)?.get(..chunk::HEADER_SIZE)?);
    let mut header = ChunkHeader::from_bytes(&with_size(bytes)).ok()?;
    header.size = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let fits = chunk::records_offset(header.open as usize) <= arena.header().chunk_size as usize;
    fits.then_some(header)
}

/// Returns a header's bytes with a valid size, because a chunk that is still filled has none yet.
fn with_size(mut bytes: [u8; chunk::HEADER_SIZE]) -> [u8; chunk::HEADER_SIZE] {
    bytes[4..8].copy_from_slice(&(chunk::MAX_CHUNK as u32).to_le_bytes());
    bytes
}

/// Returns whether a thread exists, and is no zombie.
fn exists((pid, tid): (u32, u32)) -> bool {
    let Ok(text) = std::fs::read(format!("/proc/{pid}/task/{tid}/stat")) else {
        return false;
    };
    // The state follows the name, which is in parentheses and may hold parentheses itself.
    let behind = text.iter().rposition(|&byte| byte == b')');
    let state = behind.and_then(|at| text.get(at + 2));
    !matches!(state, Some(b'Z' | b'X'))
}

/// Returns whether a process exists, and is no zombie.
pub fn process_exists(pid: u32) -> bool {
    exists((pid, pid))
}
