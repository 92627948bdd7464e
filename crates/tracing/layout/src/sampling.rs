//! Counters of sampled functions: probe sites count, the recorder reads.
//!
//! A sampled function has a *slot*, the same in all processes. An [arena](crate::arena) with counters has them behind
//! its chunks. The recorder writes the table; each thread that calls a sampled function takes an *area* and counts in
//! it. The counts are there whatever becomes of the thread. A forked child takes another area.
//!
//! ```text
//! 0               CHOICES                     FIRST_AREA
//! | u32 × AREAS   | SampledSlot × SLOTS       | area | area | …   (AREAS of them)
//!   areas' states   choice of each slot
//!
//! An area, AREA_SIZE bytes:
//! 0               WORDS                       SAMPLERS            COSTS
//! | AreaHeader    | u64 × SLOTS               | 64 B × SLOTS      | u64 × SLOTS
//!                   executions still to be      samplers of         bytes of records of chosen executions
//!                   skipped, or time of the     dioptra-filters     of sample=auto, about
//!                   next one
//! ```
//!
//! The word of a slot belongs to its sampler.
//!
//! Two more tables lie in the thread's own memory, in front of the page with its [cursor](crate::message::thread):
//! the numbers of open chosen executions of filters, by slot, and [`Judged`] for each function with `sample=pNN`, by
//! its number among these. Nobody else is interested in a thread's open executions. A forked child isn't either: it
//! may be about to write them, in a hook that its handler has interrupted.

use crate::arena::LARGEST_PAGE;
use crate::message::thread::CURSOR_NEXT;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The largest number of sampled functions. Further ones are recorded in full and sampled by readers.
pub const SLOTS: usize = 1 << 15;
/// The largest number of threads that have areas at a time. The counts of further threads are not known.
pub const AREAS: usize = 512;
/// The offset of the slots' words in an area, in bytes.
pub const WORDS: usize = 64;
/// The offset of the slots' samplers in an area, in bytes.
pub const SAMPLERS: usize = WORDS + SLOTS * 8;
/// The size of a sampler in bytes.
pub const SAMPLER_SIZE: usize = 64;
/// The offset of the slots' costs in an area, in bytes.
pub const COSTS: usize = SAMPLERS + SLOTS * SAMPLER_SIZE;
/// The largest number of functions that are judged. Further ones are recorded in full and judged by readers.
pub const TAILS: usize = 1 << 12;
/// The size of a [`Judged`] in bytes.
pub const JUDGED_SIZE: usize = 64;
/// The size of an area in bytes.
pub const AREA_SIZE: usize = (COSTS + SLOTS * 8).next_multiple_of(LARGEST_PAGE);
/// The offset of the table of choices in bytes. It follows the areas' states, words of 4 bytes.
pub const CHOICES: usize = (AREAS * 4).next_multiple_of(4096);
/// The offset of the first area in bytes.
pub const FIRST_AREA: usize =
    (CHOICES + SLOTS * size_of::<SampledSlot>()).next_multiple_of(LARGEST_PAGE);
/// The size in bytes of the counters behind an arena's chunks.
pub const SIZE: usize = FIRST_AREA + AREAS * AREA_SIZE;

/// An area's state: no thread owns the area, and all of its bytes are zero.
pub const FREE: u32 = 0;
/// An area's state: a thread counts in it.
pub const BUSY: u32 = 1;
/// An area's state: its thread has ended, and the recorder may read and free the area.
pub const ENDED: u32 = 2;

/// The way in which executions of a slot's function are chosen.
#[repr(C)]
#[derive(Debug)]
pub struct SampledSlot {
    /// A `SampleKind` of `dioptra-filters`; 0 if the slot is not used.
    pub kind: AtomicU64,
    /// The parameter of the kind. Times are in unshifted ticks of the clock. For a percentile: hundredths of a
    /// percent, and from bit 32 on the function's number among those that are judged.
    pub parameter: AtomicU64,
}

/// The number of 8-byte words of the running percentile of `dioptra-filters`.
pub const TAIL_WORDS: usize = 4;

/// The state of a judged function in one thread. All zero is its beginning.
#[repr(C)]
#[derive(Debug)]
pub struct Judged {
    /// The running percentile, a `Tail` of `dioptra-filters`.
    pub tail: [u64; TAIL_WORDS],
    /// The tick at which the open execution began; 0 if none is open.
    pub start: u64,
    /// The address of the execution's records in the thread's chunk; 0 if they can't be taken back.
    pub place: u64,
    /// The tick of the record before.
    pub before: u64,
    /// The lower half of the stack slot, the address of the execution's return address.
    pub stack: u32,
    /// Not 0 if an execution is open.
    pub open: u32,
}

impl Judged {
    /// The offset of [`Judged::start`] in bytes.
    pub const START: usize = core::mem::offset_of!(Self, start);
    /// The offset of [`Judged::place`] in bytes.
    pub const PLACE: usize = core::mem::offset_of!(Self, place);
    /// The offset of [`Judged::before`] in bytes.
    pub const BEFORE: usize = core::mem::offset_of!(Self, before);
    /// The offset of [`Judged::stack`] in bytes.
    pub const STACK: usize = core::mem::offset_of!(Self, stack);
    /// The offset of [`Judged::open`] in bytes.
    pub const OPEN: usize = core::mem::offset_of!(Self, open);
}

/// The beginning of an area.
#[repr(C)]
#[derive(Debug)]
pub struct AreaHeader {
    /// The stream whose calls are counted.
    pub stream: AtomicU32,
    /// The process id of the stream.
    pub pid: AtomicU32,
    /// The thread id of the stream.
    pub tid: AtomicU32,
    /// The slot plus one to which records are charged just now, or 0.
    pub charged: AtomicU32,
    /// The number of bytes of records when the charged execution was chosen.
    pub written: AtomicU64,
}

/// Returns the offset of a slot's word in an area.
pub const fn word(slot: u32) -> usize {
    WORDS + slot as usize * 8
}

/// Returns the offset of a slot's sampler in an area.
pub const fn sampler(slot: u32) -> usize {
    SAMPLERS + slot as usize * SAMPLER_SIZE
}

/// Returns the offset from a thread's record to the [`Judged`] with this number.
pub const fn judged(number: u32) -> i64 {
    CURSOR_NEXT - ((TAILS - number as usize) * JUDGED_SIZE) as i64
}

/// Returns the offset from a thread's record to a slot's number of open chosen executions of a filter.
pub const fn open(slot: u32) -> i64 {
    judged(0) - ((SLOTS - slot as usize) * 4) as i64
}

/// The size in bytes of a thread's memory in front of the page with its cursor.
pub const FRONT: usize = TAILS * JUDGED_SIZE + SLOTS * 4;

/// Returns the offset of a slot's cost in an area.
pub const fn cost(slot: u32) -> usize {
    COSTS + slot as usize * 8
}

const _: () = assert!(size_of::<Judged>() == JUDGED_SIZE);
const _: () = assert!(size_of::<AreaHeader>() <= WORDS && SAMPLERS.is_multiple_of(64));
