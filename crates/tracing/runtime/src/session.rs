//! The process's recording: the arena, and the key with which threads' ends are noticed.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use dioptra_tracelayout::arena::{Arena, STATES_OFFSET};
use dioptra_tracelayout::execs::{NOTICES, Notice};
use dioptra_tracelayout::sampling::{AREA_SIZE, AREAS, CHOICES, FIRST_AREA, SLOTS, SampledSlot};

/// The size of the arena in bytes, and the address of the presence memory.
static SIZE: AtomicUsize = AtomicUsize::new(0);
static PRESENCE: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
/// The address of the arena; null before the process is connected.
pub static ARENA: AtomicPtr<u8> = AtomicPtr::new(ptr::null_mut());
static KEY: AtomicUsize = AtomicUsize::new(0);

/// The arena at its address in this process.
#[derive(Clone, Copy, Debug)]
pub struct MappedArena {
    base: *mut u8,
}

/// Returns the arena once the process is connected.
pub fn arena() -> Option<MappedArena> {
    let base = ARENA.load(Ordering::Acquire);
    (!base.is_null()).then_some(MappedArena { base })
}

/// Makes memory of `size` bytes the arena. Returns false if the memory is no arena.
///
/// # Safety
/// The memory is mapped and shared, and stays so.
pub unsafe fn set_arena(base: *mut u8, size: usize) -> bool {
    // SAFETY: the mapping is at least a page; the header holds integers only.
    let valid = size >= STATES_OFFSET && unsafe { (*base.cast::<Arena>()).is_valid(size) };
    if valid {
        SIZE.store(size, Ordering::Relaxed);
        ARENA.store(base, Ordering::Release);
    }
    valid
}

/// Remembers the presence memory, which this process has mapped.
pub fn set_presence(presence: *mut u8) {
    PRESENCE.store(presence, Ordering::Relaxed);
}

/// Forgets the recording. Returns the arena, its size in bytes, and the presence memory.
pub fn close() -> (*mut u8, usize, *mut u8) {
    let arena = ARENA.swap(ptr::null_mut(), Ordering::AcqRel);
    let presence = PRESENCE.swap(ptr::null_mut(), Ordering::Relaxed);
    (arena, SIZE.load(Ordering::Relaxed), presence)
}

impl MappedArena {
    /// Returns the arena's header.
    pub fn header(&self) -> &'static Arena {
        // SAFETY: checked when it was mapped, and never unmapped.
        unsafe { &*self.base.cast() }
    }

    /// Returns the states of the arena's chunks.
    pub fn states(&self) -> &'static [AtomicU32] {
        // SAFETY: as above; is_valid has checked that they fit.
        unsafe {
            core::slice::from_raw_parts(
                self.base.add(STATES_OFFSET).cast(),
                self.header().chunk_count as usize,
            )
        }
    }

    /// Returns the queue of notices of executed programs.
    pub fn notices(&self) -> &'static [Notice] {
        let offset = Arena::execs_offset(self.header().chunk_count as usize);
        // SAFETY: as above; they lie before the chunks.
        unsafe { core::slice::from_raw_parts(self.base.add(offset).cast(), NOTICES) }
    }

    /// Returns the ways in which calls of sampled functions are chosen, by slot.
    pub fn choices(&self) -> &'static [SampledSlot] {
        match self.header().counters_offset() {
            // SAFETY: is_valid has checked that they fit; they are atomics.
            Some(offset) => unsafe {
                core::slice::from_raw_parts(self.base.add(offset + CHOICES).cast(), SLOTS)
            },
            None => &[],
        }
    }

    /// Returns the states of the areas of counters.
    pub fn area_states(&self) -> &'static [AtomicU32] {
        match self.header().counters_offset() {
            // SAFETY: as above.
            Some(offset) => unsafe {
                core::slice::from_raw_parts(self.base.add(offset).cast(), AREAS)
            },
            None => &[],
        }
    }

    /// Returns the address of an area of counters.
    pub fn area(&self, index: usize) -> Option<u64> {
        let offset = self.header().counters_offset()? + FIRST_AREA + index * AREA_SIZE;
        let area = (index < AREAS).then(|| self.base.wrapping_add(offset))?;
        Some(area.expose_provenance() as u64)
    }

    /// Returns the number of the area at an address; `None` if it is not the arena's.
    pub fn area_index(&self, area: u64) -> Option<usize> {
        let distance = area.checked_sub(self.area(0)?)?;
        let index = distance as usize / AREA_SIZE;
        (index < AREAS).then_some(index)
    }

    /// Returns the address of a chunk.
    pub fn chunk(&self, index: usize) -> *mut u8 {
        let header = self.header();
        let count = header.chunk_count as usize;
        // There is always a chunk; a program that overwrites the header must not end here.
        let index = index.checked_rem(count).unwrap_or(0);
        let offset = Arena::chunks_offset(count) + index * header.chunk_size as usize;
        self.base.wrapping_add(offset)
    }
}

/// Returns the key of the threads' destructors, if there is one.
pub fn key() -> Option<libc::pthread_key_t> {
    KEY.load(Ordering::Relaxed)
        .checked_sub(1)
        .map(|key| key as libc::pthread_key_t)
}

/// Forgets the key, and returns it.
pub fn take_key() -> Option<libc::pthread_key_t> {
    let key = KEY.swap(0, Ordering::Relaxed).checked_sub(1)?;
    Some(key as libc::pthread_key_t)
}

/// Sets the key.
pub fn set_key(key: libc::pthread_key_t) {
    KEY.store(key as usize + 1, Ordering::Relaxed);
}
