//! Counters of sampled functions: what probe sites count, and the recorder reads.
//!
//! A sampled function has a *slot*, the same in all processes. Behind its chunks an [arena](crate::arena) has the states of
//! *areas*, a table of [`Choice`]s, by slot, which the recorder writes, and the areas. A thread that calls a sampled function takes an area and
//! counts in it; what it counted is there whatever becomes of the thread. A forked child takes another one.
//!
//! An area is an [`AreaHeader`], a word of 8 bytes for each slot (executions still to be skipped, or when the next one is
//! due), and 64 bytes for each slot: the sampler of `dioptra-filters`, of which that word is a part. Then a word of 8 bytes
//! for each slot: bytes of records that chosen executions of `sample=auto` have taken, about.
//!
//! Which executions of a thread are open is of no interest to others, and of none to a forked child, which may be about to say
//! so in a hook that its handler has interrupted: it lies in the thread's memory in front of the page with its cursor. Next to
//! that page are 64 bytes for each function that is judged (`sample=pNN`), by its number among these: [`Judged`]. In front of
//! them a word of 4 bytes for each slot: how many chosen executions of a filter are open.

use crate::arena::LARGEST_PAGE;
use crate::message::thread::CURSOR_NEXT;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The most sampled functions; others are recorded in full, and sampled by readers.
pub const SLOTS: usize = 1 << 15;
/// The most threads that have areas at a time; what others count is not known.
pub const AREAS: usize = 512;
/// Where the slots' words begin.
pub const WORDS: usize = 64;
/// Where the slots' samplers begin.
pub const SAMPLERS: usize = WORDS + SLOTS * 8;
/// The size of a sampler.
pub const SAMPLER_SIZE: usize = 64;
/// Where the slots' costs begin.
pub const COSTS: usize = SAMPLERS + SLOTS * SAMPLER_SIZE;
/// The most functions that are judged; others are recorded in full, and judged by readers.
pub const TAILS: usize = 1 << 12;
/// The size of a [`Judged`].
pub const JUDGED_SIZE: usize = 64;
/// The size of an area.
pub const AREA_SIZE: usize = (COSTS + SLOTS * 8).next_multiple_of(LARGEST_PAGE);
/// Where the table of choices begins, behind the areas' states, words of 4 bytes.
pub const CHOICES: usize = (AREAS * 4).next_multiple_of(4096);
/// Where the first area begins.
pub const FIRST_AREA: usize =
    (CHOICES + SLOTS * size_of::<Choice>()).next_multiple_of(LARGEST_PAGE);
/// What an arena with counters has behind its chunks.
pub const SIZE: usize = FIRST_AREA + AREAS * AREA_SIZE;

/// An area's state: nobody's, and zero.
pub const FREE: u32 = 0;
/// An area's state: a thread counts in it.
pub const BUSY: u32 = 1;
/// An area's state: its thread has ended; for the recorder.
pub const ENDED: u32 = 2;

/// How executions of a slot's function are chosen.
#[repr(C)]
#[derive(Debug)]
pub struct Choice {
    /// A `SampleKind` of `dioptra-filters`; 0: the slot is not used.
    pub kind: AtomicU64,
    /// Its parameter, times in unshifted ticks of the clock; for a percentile hundredths of a percent, and from bit 32 on
    /// the function's number among those that are judged.
    pub parameter: AtomicU64,
}

/// How many words the percentile of `dioptra-filters` takes.
pub const TAIL_WORDS: usize = 4;

/// A function that is judged, in a thread. All zero is its beginning.
#[repr(C)]
#[derive(Debug)]
pub struct Judged {
    /// Its running percentile, of `dioptra-filters`.
    pub tail: [u64; TAIL_WORDS],
    /// The tick at which the open execution began; 0 if none is open.
    pub start: u64,
    /// Where its records begin in the thread's chunk; 0 if they can't be taken back.
    pub place: u64,
    /// The tick of the record before.
    pub before: u64,
    /// Where its return address lies; the lower half.
    pub stack: u32,
    /// Not 0: an execution is open.
    pub open: u32,
}

impl Judged {
    /// Where [`Judged::start`] lies, in bytes.
    pub const START: usize = core::mem::offset_of!(Self, start);
    /// Where [`Judged::place`] lies.
    pub const PLACE: usize = core::mem::offset_of!(Self, place);
    /// Where [`Judged::before`] lies.
    pub const BEFORE: usize = core::mem::offset_of!(Self, before);
    /// Where [`Judged::stack`] lies.
    pub const STACK: usize = core::mem::offset_of!(Self, stack);
    /// Where [`Judged::open`] lies.
    pub const OPEN: usize = core::mem::offset_of!(Self, open);
}

/// With which an area begins.
#[repr(C)]
#[derive(Debug)]
pub struct AreaHeader {
    /// The stream that counts.
    pub stream: AtomicU32,
    /// Its process.
    pub pid: AtomicU32,
    /// Its thread.
    pub tid: AtomicU32,
    /// The slot plus one to which records are charged just now, or 0.
    pub charged: AtomicU32,
    /// How many bytes of records there were when it was chosen.
    pub written: AtomicU64,
}

/// Where a slot's word lies in an area.
pub const fn word(slot: u32) -> usize {
    WORDS + slot as usize * 8
}

/// Where a slot's sampler lies in an area.
pub const fn sampler(slot: u32) -> usize {
    SAMPLERS + slot as usize * SAMPLER_SIZE
}

/// From a thread's record to what it knows of a function that is judged, by its number.
pub const fn judged(number: u32) -> i64 {
    CURSOR_NEXT - ((TAILS - number as usize) * JUDGED_SIZE) as i64
}

/// From a thread's record to its number of open chosen executions of a filter, by the slot.
pub const fn open(slot: u32) -> i64 {
    judged(0) - ((SLOTS - slot as usize) * 4) as i64
}

/// How much of a thread's memory lies in front of the page with its cursor.
pub const FRONT: usize = TAILS * JUDGED_SIZE + SLOTS * 4;

/// Where a slot's cost lies in an area.
pub const fn cost(slot: u32) -> usize {
    COSTS + slot as usize * 8
}

const _: () = assert!(size_of::<Judged>() == JUDGED_SIZE);
const _: () = assert!(size_of::<AreaHeader>() <= WORDS && SAMPLERS.is_multiple_of(64));
