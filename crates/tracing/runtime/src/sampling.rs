//! Counters of sampled functions where generated code does not count: the first calls, and those at the ends of gaps.

use crate::arch;
use crate::chunks::RecordWriter;
use crate::judged;
use crate::session::MappedArena;
use crate::shadow::{self, ShadowEntry, ThreadRecord};
use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dioptra_filters::{Pace, SampleKind, Sampler, Sampling, thread_seed};
use dioptra_tracelayout::arena::MONOTONIC;
use dioptra_tracelayout::message::{InstrumentedFunction, thread as layout};
use dioptra_tracelayout::sampling::{self, AREA_SIZE, AREAS, AreaHeader, BUSY, ENDED, FREE, SLOTS};

/// The choice for a counted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountChoice {
    /// The call is recorded.
    Chosen,
    /// The call is not recorded. If it is a filter's, the calls below it are hidden, too.
    Skipped,
}

/// Returns the way in which calls of a slot's function are chosen; `None` if it is not known, so that all calls are
/// recorded.
pub fn choice(arena: &MappedArena, slot: u32) -> Option<Sampling> {
    let choice = arena.choices().get(slot as usize)?;
    let kind = match choice.kind.load(Ordering::Relaxed) {
        1 => SampleKind::Every,
        2 => SampleKind::Random,
        3 => SampleKind::Rate,
        4 => SampleKind::Auto,
        5 => SampleKind::Tail,
        _ => return None,
    };
    let parameter = choice.parameter.load(Ordering::Relaxed);
    let (parameter, tail) = match kind {
        SampleKind::Tail => (parameter & u64::from(u32::MAX), (parameter >> 32) as u32),
        _ => (parameter, 0),
    };
    Some(Sampling {
        kind,
        parameter,
        slot,
        tail,
    })
}

/// Counts a call; `tree` is true for a filter's.
pub fn count(writer: &mut RecordWriter, arena: &MappedArena, slot: u32, tree: bool) -> CountChoice {
    let stream = writer.record().stream;
    let (Some(sampling), Some(area)) = (choice(arena, slot), area(writer, arena)) else {
        return CountChoice::Chosen;
    };
    // SAFETY: this thread's memory, which has every slot for which there are choices; busy keeps hooks away.
    if tree && unsafe { *shadow::open(writer.record(), slot) } > 0 {
        // The call belongs to the execution around it.
        return CountChoice::Chosen;
    }
    // SAFETY: as above.
    let (word, sampler) = unsafe { (&mut *word(area, slot), &mut *sampler(area, slot)) };
    let seed = thread_seed(arena.header().seed, u64::from(stream));
    let chosen = if sampling.kind == SampleKind::Rate {
        let clock = || match arena.header().clock {
            MONOTONIC => sys::monotonic(),
            _ => arch::clock(),
        };
        let chosen = sampler.count(sampling, seed, clock);
        *word = sampler.due();
        chosen
    } else {
        // The word is below 0 if a handler has counted while a gap was ended.
        sampler.left = if word.cast_signed() < 0 { 0 } else { *word };
        if sampling.kind == SampleKind::Auto {
            sampler.pace_ahead(Pace(sampling.parameter));
        }
        let chosen = sampler.count(sampling, seed, arch::clock);
        *word = sampler.left;
        chosen
    };
    if chosen && tree && sampling.kind == SampleKind::Auto {
        charge(area, slot, writer.written());
    }
    if chosen {
        CountChoice::Chosen
    } else {
        CountChoice::Skipped
    }
}

/// Counts a call without blocking signals, as generated code does: handlers may count meanwhile. Returns `None`, and
/// counts nothing, at the end of a gap that must be drawn, and if there is no room for the record of a chosen call.
///
/// # Safety
/// The record is this thread's, or the dummy.
#[inline]
pub unsafe fn count_fast(
    record: *mut ThreadRecord,
    function: &InstrumentedFunction,
    arena: &MappedArena,
    tree: bool,
    has_room: bool,
) -> Option<CountChoice> {
    // SAFETY: the caller's promise; the area is this thread's, and there are words for all slots that functions have.
    unsafe {
        let area = (&raw const (*shadow::cursor(record)).area).read_volatile();
        if area == 0 {
            return None;
        }
        let slot = function.slot;
        if tree && *shadow::open(record, slot) > 0 {
            return has_room.then_some(CountChoice::Chosen);
        }
        let word = word(area, slot);
        let field = |at: usize| sampler(area, slot).cast::<u8>().add(at).cast::<u64>();
        if function.sample == SampleKind::Rate as u32 {
            if arena.header().clock == MONOTONIC || arch::clock() >= word.read_volatile() {
                return None;
            }
            arch::add(field(Sampler::FINISHED), 1);
            return Some(CountChoice::Skipped);
        }
        if arch::add(word, u64::MAX) != 0 {
            return Some(CountChoice::Skipped);
        }
        let is_constant = function.sample == SampleKind::Every as u32;
        if !is_constant || !has_room || *field(Sampler::GAP) == 0 {
            arch::add(word, 1);
            return None;
        }
        let choice = arena.choices().get(slot as usize);
        let gap = choice.map_or(1, |choice| choice.parameter.load(Ordering::Relaxed));
        // An addition keeps the counts of handlers that interrupt it.
        arch::add(word, gap);
        arch::add(field(Sampler::FINISHED), gap);
        arch::add(field(Sampler::SHOWN), 1);
    }
    Some(CountChoice::Chosen)
}

/// Takes an area in a forked child, because a hook that goes on there may be about to count.
pub fn prepare(writer: &mut RecordWriter, arena: &MappedArena) {
    if !arena.choices().is_empty() {
        area(writer, arena);
    }
}

/// Counts the beginning of a chosen execution of a filter.
#[inline]
pub fn begin(record: &mut ThreadRecord, slot: u32) {
    if (slot as usize) < SLOTS {
        let open = shadow::open(record, slot);
        // SAFETY: this thread's memory.
        unsafe { *open = (*open).saturating_add(1) };
    }
}

/// Counts the ends of calls that have returned or were left. Executions that a forked child's parent has begun do not
/// count as open.
///
/// # Safety
/// The record is this thread's and no dummy.
pub unsafe fn leave(record: *mut ThreadRecord, left: &[ShadowEntry]) {
    let is_chosen = |entry: &&ShadowEntry| {
        let kinds = layout::ENTRY_CHOSEN | layout::ENTRY_JUDGED | layout::ENTRY_UNWOUND;
        entry.flags & kinds == layout::ENTRY_CHOSEN
    };
    for entry in left.iter().filter(is_chosen) {
        let slot = entry.flags >> 8;
        if (slot as usize) < SLOTS {
            let open = shadow::open(record, slot);
            // SAFETY: this thread's memory.
            unsafe { *open = (*open).saturating_sub(1) };
        }
    }
}

/// Charges the records since the last chosen execution to that execution's slot, and begins to charge `slot`.
fn charge(area: u64, slot: u32, written: u64) {
    let header = header(area);
    let last = header.charged.swap(slot + 1, Ordering::Relaxed);
    let before = header.written.swap(written, Ordering::Relaxed);
    if let Some(last) = last.checked_sub(1).filter(|last| (*last as usize) < SLOTS) {
        // SAFETY: this thread's area.
        let cost = unsafe { &mut *cost(area, last) };
        *cost = cost.wrapping_add(written.saturating_sub(before));
    }
}

/// The areas of other processes, by their numbers. The memory at their addresses is private in this process.
static OTHERS: [AtomicU64; AREAS / 64] = [const { AtomicU64::new(0) }; AREAS / 64];

/// Returns the word of an area and its bit in the word.
fn bit(index: usize) -> Option<(&'static AtomicU64, u64)> {
    Some((OTHERS.get(index / 64)?, 1 << (index % 64)))
}

/// Leaves the parent's area in a forked child. A hook that the handler has interrupted may be about to count in it.
/// From now on that memory is private to this process and says that the first gap must still be drawn.
pub fn leave_parents(record: &mut ThreadRecord, arena: &MappedArena) {
    let area = core::mem::take(&mut record.area);
    let Some(index) = arena.area_index(area) else {
        return;
    };
    // SAFETY: an area of the arena, which begins and ends with a page.
    let is_private = unsafe { sys::make_private(area, AREA_SIZE) }.is_ok();
    if let Some((word, bit)) = bit(index).filter(|_| is_private) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Ends the thread's area, so that the recorder reads the counts.
pub fn end(writer: &mut RecordWriter) {
    let arena = writer.arena();
    let area = core::mem::take(&mut writer.cursor().area);
    writer.record().area = 0;
    if area == 0 {
        return;
    }
    let index = arena.area_index(area);
    if let Some(state) = index.and_then(|index| arena.area_states().get(index)) {
        state.store(ENDED, Ordering::Release);
        sys::futex_wake(&arena.header().filled);
    } else {
        // SAFETY: mapped by `area`, and no thread uses it any more.
        unsafe { sys::unmap(ptr::with_exposed_provenance_mut(area as usize), AREA_SIZE) };
    }
}

fn word(area: u64, slot: u32) -> *mut u64 {
    ptr::with_exposed_provenance_mut(area as usize + sampling::word(slot))
}

/// Returns a slot's sampler.
pub fn sampler(area: u64, slot: u32) -> *mut Sampler {
    ptr::with_exposed_provenance_mut(area as usize + sampling::sampler(slot))
}

fn cost(area: u64, slot: u32) -> *mut u64 {
    ptr::with_exposed_provenance_mut(area as usize + sampling::cost(slot))
}

fn header<'a>(area: u64) -> &'a AreaHeader {
    // SAFETY: an area, which stays mapped; its header is atomics.
    unsafe { &*ptr::with_exposed_provenance(area as usize) }
}

/// Returns this thread's area. A thread that has none takes one.
pub fn area(writer: &mut RecordWriter, arena: &MappedArena) -> Option<u64> {
    if writer.cursor().area != 0 {
        return Some(writer.cursor().area);
    }
    let record = writer.record();
    let (stream, pid, tid) = (record.stream, record.pid, record.tid);
    let is_elsewhere = |index: usize| {
        bit(index).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    };
    let is_ours = |(index, state): (usize, &AtomicU32)| {
        let is_free = state.load(Ordering::Relaxed) == FREE && !is_elsewhere(index);
        is_free
            && state
                .compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    };
    let mut states = arena.area_states().iter().enumerate();
    let free = states.position(is_ours);
    let area = match free.and_then(|index| arena.area(index)) {
        Some(area) => area,
        None => {
            let memory = sys::map_private(AREA_SIZE).ok()?;
            arena
                .header()
                .uncounted_threads
                .fetch_add(1, Ordering::Relaxed);
            memory.expose_provenance() as u64
        }
    };
    let header = header(area);
    header.stream.store(stream, Ordering::Relaxed);
    header.pid.store(pid, Ordering::Relaxed);
    header.tid.store(tid, Ordering::Relaxed);
    writer.cursor().area = area;
    writer.record().area = area;
    // Executions that a forked child's parent has begun are open here, too.
    for at in 0..writer.entries().len() {
        let entry = writer.entries().get(at).copied();
        let is_it =
            |entry: &ShadowEntry| entry.flags & layout::ENTRY_JUDGED != 0 && entry.is_open();
        if let Some(entry) = entry.filter(is_it) {
            judged::stays_open(writer, arena, &entry);
        }
    }
    Some(area)
}
