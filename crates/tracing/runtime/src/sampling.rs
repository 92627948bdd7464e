//! Counts calls of sampled functions where generated code does not: the first ones, and those at the ends of gaps.

use crate::arch;
use crate::chunks::Writer;
use crate::judged;
use crate::session::MappedArena;
use crate::shadow::{self, Entry, Record};
use crate::sys;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use dioptra_filters::{Pace, SampleKind, Sampler, Sampling, thread_seed};
use dioptra_tracelayout::arena::MONOTONIC;
use dioptra_tracelayout::message::{FunctionId, thread as layout};
use dioptra_tracelayout::sampling::{self, AREA_SIZE, AREAS, AreaHeader, BUSY, ENDED, FREE, SLOTS};

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It is recorded.
    Chosen,
    /// It is not; a filter's call is hidden with what it calls.
    Skipped,
}

/// How calls of a slot's function are chosen; `None` if it is not known, and all are.
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

/// Counts a call; `tree`: of a filter.
pub fn count(writer: &mut Writer, arena: &MappedArena, slot: u32, tree: bool) -> Counted {
    let stream = writer.record().stream;
    let (Some(sampling), Some(area)) = (choice(arena, slot), area(writer, arena)) else {
        return Counted::Chosen;
    };
    // SAFETY: this thread's memory, which has all slots that there are choices for; busy keeps hooks away.
    if tree && unsafe { *shadow::open(writer.record(), slot) } > 0 {
        // It belongs to the execution around it.
        return Counted::Chosen;
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
        // Below 0 it is if a handler has counted while a gap was ended.
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
        Counted::Chosen
    } else {
        Counted::Skipped
    }
}

/// Counts a call without keeping signals away, as generated code does: handlers may count meanwhile. `None` if that can't be
/// done, and nothing has been: at the end of a gap that is to be drawn, and if there is no room for the record of a chosen call.
///
/// # Safety
/// The record is this thread's, or the dummy.
#[inline]
pub unsafe fn count_fast(
    record: *mut Record,
    function: &FunctionId,
    arena: &MappedArena,
    tree: bool,
    has_room: bool,
) -> Option<Counted> {
    // SAFETY: the caller's promise; the area is this thread's, and there are words for all slots that functions have.
    unsafe {
        let area = (&raw const (*shadow::cursor(record)).area).read_volatile();
        if area == 0 {
            return None;
        }
        let slot = function.slot;
        if tree && *shadow::open(record, slot) > 0 {
            return has_room.then_some(Counted::Chosen);
        }
        let word = word(area, slot);
        let field = |at: usize| sampler(area, slot).cast::<u8>().add(at).cast::<u64>();
        if function.sample == SampleKind::Rate as u32 {
            if arena.header().clock == MONOTONIC || arch::clock() >= word.read_volatile() {
                return None;
            }
            arch::add(field(Sampler::FINISHED), 1);
            return Some(Counted::Skipped);
        }
        if arch::add(word, u64::MAX) != 0 {
            return Some(Counted::Skipped);
        }
        let is_constant = function.sample == SampleKind::Every as u32;
        if !is_constant || !has_room || *field(Sampler::GAP) == 0 {
            arch::add(word, 1);
            return None;
        }
        let choice = arena.choices().get(slot as usize);
        let gap = choice.map_or(1, |choice| choice.parameter.load(Ordering::Relaxed));
        // Adding keeps what a handler has counted meanwhile.
        arch::add(word, gap);
        arch::add(field(Sampler::FINISHED), gap);
        arch::add(field(Sampler::SHOWN), 1);
    }
    Some(Counted::Chosen)
}

/// A hook of a forked child may be about to count: it must find an area.
pub fn prepare(writer: &mut Writer, arena: &MappedArena) {
    if !arena.choices().is_empty() {
        area(writer, arena);
    }
}

/// A chosen execution of a filter begins.
#[inline]
pub fn begin(record: &mut Record, slot: u32) {
    if (slot as usize) < SLOTS {
        let open = shadow::open(record, slot);
        // SAFETY: this thread's memory.
        unsafe { *open = (*open).saturating_add(1) };
    }
}

/// Calls have ended, or are left. In a forked child those that its parent has begun are none that are open.
///
/// # Safety
/// The record is this thread's and no dummy.
pub unsafe fn leave(record: *mut Record, left: &[Entry]) {
    let is_chosen = |entry: &&Entry| {
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

/// An execution was chosen whose cost matters: what was recorded since the last one is charged to that.
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

/// Areas that are other processes', by their numbers: what is at their places here is private.
static OTHERS: [AtomicU64; AREAS / 64] = [const { AtomicU64::new(0) }; AREAS / 64];

/// The word and the bit of an area in it.
fn bit(index: usize) -> Option<(&'static AtomicU64, u64)> {
    Some((OTHERS.get(index / 64)?, 1 << (index % 64)))
}

/// In a forked child: what its handler has interrupted is perhaps about to count where its parent does. From now on that is
/// nobody's here, and says that the first gap is still to be drawn.
pub fn leave_parents(record: &mut Record, arena: &MappedArena) {
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

/// The thread ends: the recorder reads what it has counted.
pub fn end(writer: &mut Writer) {
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
        // SAFETY: mapped by `area`, and nobody's any more.
        unsafe { sys::unmap(ptr::with_exposed_provenance_mut(area as usize), AREA_SIZE) };
    }
}

fn word(area: u64, slot: u32) -> *mut u64 {
    ptr::with_exposed_provenance_mut(area as usize + sampling::word(slot))
}

/// A slot's sampler.
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

/// This thread's area, taken now if it has none.
pub fn area(writer: &mut Writer, arena: &MappedArena) -> Option<u64> {
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
    // What a forked child's parent has begun is open here, too.
    for at in 0..writer.entries().len() {
        let entry = writer.entries().get(at).copied();
        let is_it = |entry: &Entry| entry.flags & layout::ENTRY_JUDGED != 0 && entry.is_open();
        if let Some(entry) = entry.filter(is_it) {
            judged::stays_open(writer, arena, &entry);
        }
    }
    Some(area)
}
