//! Executions that are judged at their ends (`sample=pNN`). The records of an execution that was not slow are taken
//! back together with the records of the calls below it, as long as they are in the thread's chunk. Otherwise the
//! execution is marked for readers.

use crate::chunks::{RecordWriter, now};
use crate::parked;
use crate::sampling;
use crate::session::MappedArena;
use crate::shadow::{self, ShadowEntry, ThreadRecord};
use crate::slow::record_unwound;
use crate::values::Values;
use core::ops::Range;
use core::sync::atomic::Ordering;
use dioptra_filters::{SampleKind, Sampler, Tail};
use dioptra_tracelayout::Encoder;
use dioptra_tracelayout::message::thread::ENTRY_JUDGED;
use dioptra_tracelayout::record::UnwindCause;
use dioptra_tracelayout::sampling::{Judged, TAIL_WORDS, TAILS};

const _: () = assert!(size_of::<Tail>() == TAIL_WORDS * 8);

/// The largest number of bytes of a record of an end.
const END: usize = 24;

/// The counters of a judged function in a thread.
#[derive(Clone, Copy, Debug)]
pub struct JudgedCounters {
    state: *mut Judged,
    sampler: *mut Sampler,
    percentile: u64,
}

/// The outcome of a judged execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JudgedOutcome {
    /// The execution is shown.
    Kept,
    /// The execution's records are gone.
    TakenBack,
    /// The execution's records stay and must be marked.
    Discarded,
}

/// Returns the state of a judged function and its percentile.
fn state(writer: &mut RecordWriter, arena: &MappedArena, slot: u32) -> Option<(*mut Judged, u64)> {
    state_at(writer.record(), arena, slot)
}

/// Does the work of [`state`] for a record.
fn state_at(
    record: *mut ThreadRecord,
    arena: &MappedArena,
    slot: u32,
) -> Option<(*mut Judged, u64)> {
    let sampling = sampling::choice(arena, slot).filter(|s| s.kind == SampleKind::Tail)?;
    let is_known = (sampling.tail as usize) < TAILS;
    is_known.then(|| (shadow::judged(record, sampling.tail), sampling.parameter))
}

fn find(writer: &mut RecordWriter, arena: &MappedArena, slot: u32) -> Option<JudgedCounters> {
    let (state, percentile) = state(writer, arena, slot)?;
    let area = sampling::area(writer, arena)?;
    Some(JudgedCounters {
        state,
        sampler: sampling::sampler(area, slot),
        percentile,
    })
}

/// Returns the counters of a judged function for a call that begins; `None` if the call belongs to the execution
/// around it.
pub fn place(writer: &mut RecordWriter, arena: &MappedArena, slot: u32) -> Option<JudgedCounters> {
    let place = find(writer, arena, slot)?;
    // SAFETY: this thread's memory and area; hooks are kept away.
    let state = unsafe { &*place.state };
    (state.open == 0).then_some(place)
}

/// Marks an execution that a forked child's parent has begun as open in the child, too.
pub fn stays_open(writer: &mut RecordWriter, arena: &MappedArena, entry: &ShadowEntry) {
    if let Some((state, _)) = state(writer, arena, entry.flags >> 8) {
        // SAFETY: as above.
        unsafe { ((*state).open, (*state).stack) = (1, entry.slot as u32) };
    }
}

/// Records that an execution begins; `stack` is the address of its return address.
pub fn begin(
    writer: &mut RecordWriter,
    place: JudgedCounters,
    stack: u64,
    (time, function): (u64, u32),
    values: &Values,
) {
    let elsewhere = writer.record().interrupted.is_active();
    let sequence = writer.record().sequence;
    let (next, before) = (writer.cursor().next, writer.cursor().time);
    let is_written = writer.write(1, |to| {
        to.entry(time, function)?;
        values.write(to, Encoder::arguments)
    });
    let is_here = is_written && !elsewhere && writer.record().sequence == sequence;
    // SAFETY: as above.
    let state = unsafe { &mut *place.state };
    state.start = if is_here { writer.cursor().time } else { time };
    state.place = if is_here { next } else { 0 };
    state.before = before;
    state.stack = stack as u32;
    state.open = 1;
}

/// Records that a call returns. Returns false if the call is not judged, so that its end must still be recorded.
pub fn end(
    writer: &mut RecordWriter,
    arena: &MappedArena,
    entry: &ShadowEntry,
    values: &Values,
) -> bool {
    if entry.flags & ENTRY_JUDGED == 0 || !entry.is_open() {
        return false;
    }
    if !writer.has_room_for(values.size()) {
        writer.next_chunk();
    }
    let time = now(arena);
    match judge(writer, arena, entry, time) {
        JudgedOutcome::TakenBack => {}
        JudgedOutcome::Kept => {
            writer.write(1, |to| {
                values.write(to, Encoder::returned)?;
                to.exit(time)
            });
        }
        JudgedOutcome::Discarded => {
            writer.write(1, |to| to.discarded(time));
        }
    }
    true
}

/// Records that calls end without returning, `judged` of which are judged. Returns the number of outermost calls
/// whose ends must still be recorded.
pub fn leave(
    writer: &mut RecordWriter,
    arena: &MappedArena,
    left: Range<usize>,
    judged: usize,
    (time, cause): (u64, UnwindCause),
) -> usize {
    // A chunk's header lists the open calls, and the records before must not contradict it.
    if !writer.record().interrupted.is_active() && writer.room() < (2 * judged + 1) * END {
        writer.next_chunk();
    }
    let mut open = 0;
    for at in left.rev() {
        let Some(entry) = writer.entries().get(at).copied() else {
            continue;
        };
        if !entry.is_open() {
            continue;
        }
        if entry.flags & ENTRY_JUDGED == 0 {
            open += 1;
            continue;
        }
        match judge(writer, arena, &entry, time) {
            JudgedOutcome::Kept => open += 1,
            // The records of the calls below are gone with those of the execution.
            JudgedOutcome::TakenBack => open = 0,
            JudgedOutcome::Discarded => {
                record_unwound(writer, open, time, cause);
                open = 0;
                writer.write(1, |to| to.discarded(time));
            }
        }
    }
    open
}

/// Gives up the possibility to take back the open executions: their records are in another chunk, or another stack's
/// records follow.
pub fn keep_open(writer: &mut RecordWriter) {
    let arena = writer.arena();
    let record: *mut ThreadRecord = writer.record();
    // SAFETY: this thread's record, and its memory for what is judged.
    unsafe {
        parked::each_unparked(record, |entry| {
            if entry.flags & ENTRY_JUDGED != 0
                && let Some((state, _)) = state_at(record, &arena, entry.flags >> 8)
            {
                (*state).place = 0;
            }
            true
        });
    }
}

fn judge(
    writer: &mut RecordWriter,
    arena: &MappedArena,
    entry: &ShadowEntry,
    time: u64,
) -> JudgedOutcome {
    let Some(place) = find(writer, arena, entry.flags >> 8) else {
        return JudgedOutcome::Kept;
    };
    // SAFETY: as above.
    let (state, sampler) = unsafe { (&mut *place.state, &mut *place.sampler) };
    // A forked child's parent has begun the execution, or another thread that had this stack.
    if state.stack != entry.slot as u32 {
        return JudgedOutcome::Kept;
    }
    state.open = 0;
    if state.start == 0 {
        return JudgedOutcome::Kept;
    }
    let is_active = writer.record().interrupted.is_active();
    let last = if is_active { 0 } else { writer.cursor().time };
    let duration = time.max(last).saturating_sub(state.start);
    state.start = 0;
    let tail: *mut Tail = (&raw mut state.tail).cast();
    // SAFETY: words that are a percentile whatever their values.
    let slow = unsafe { (*tail).observe(duration, place.percentile) };
    sampler.judged(slow);
    if slow {
        return JudgedOutcome::Kept;
    }
    let has_it =
        state.place != 0 && writer.cursor().chunk != 0 && state.place <= writer.cursor().next;
    let header = arena.header();
    if header.marks != 0 {
        return JudgedOutcome::Discarded;
    }
    if !has_it || is_active {
        header.marked.fetch_add(1, Ordering::Relaxed);
        return JudgedOutcome::Discarded;
    }
    writer.take_back(state.place, state.before);
    JudgedOutcome::TakenBack
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Thread, call};
    use dioptra_tracelayout::message::thread::ENTRY_CHOSEN;

    /// The address of the judged function's return address.
    const STACK: u64 = 0x20_0000;
    const SECOND: u64 = 1_000_000_000;

    /// Returns a thread in which the slowest 10 % of the calls with a slot are shown. Each test has a slot of its
    /// own.
    fn judging(slot: u32) -> Thread {
        let thread = Thread::new();
        let choice = &thread.arena.choices()[slot as usize];
        let parameter = 9000 | u64::from(slot) << 32;
        choice.parameter.store(parameter, Ordering::Relaxed);
        choice
            .kind
            .store(SampleKind::Tail as u64, Ordering::Relaxed);
        thread
    }

    fn entry(slot: u32) -> ShadowEntry {
        ShadowEntry {
            flags: ENTRY_CHOSEN | ENTRY_JUDGED | slot << 8,
            ..call(7, STACK)
        }
    }

    /// Begins an execution that will have taken `duration` ticks if it ends at once.
    fn enter(thread: &mut Thread, slot: u32, duration: u64) {
        let mut writer = thread.writer();
        if !writer.has_room() {
            writer.next_chunk();
        }
        let arena = thread.arena;
        let place = place(&mut writer, &arena, slot).expect("none is open");
        let time = now(&arena);
        begin(&mut writer, place, STACK, (time, 7), &Values::NONE);
        // SAFETY: this thread's memory.
        unsafe { (*place.state).start -= duration };
        thread.push(entry(slot));
    }

    /// Records that the call calls another function, and ends the call.
    fn leave_now(thread: &mut Thread, slot: u32) {
        let arena = thread.arena;
        let mut writer = thread.writer();
        let time = now(&arena);
        writer.write(2, |to| to.entry(time, 8).and_then(|()| to.exit(time)));
        assert!(end(&mut writer, &arena, &entry(slot), &Values::NONE));
        thread.pop();
    }

    const SHOWN: [&str; 4] = ["+7", "+8", "-", "-"];

    #[test]
    fn quick_executions_are_taken_back() {
        let slot = 1;
        let mut thread = judging(slot);
        // Nothing is known before the first execution.
        enter(&mut thread, slot, SECOND);
        leave_now(&mut thread, slot);
        assert_eq!(thread.log(), SHOWN);
        let (next, time) = (thread.writer().cursor().next, thread.writer().cursor().time);
        for _ in 0..5 {
            enter(&mut thread, slot, 0);
            leave_now(&mut thread, slot);
            assert_eq!(thread.log(), SHOWN);
            let mut writer = thread.writer();
            assert_eq!((writer.cursor().next, writer.cursor().time), (next, time));
        }
        enter(&mut thread, slot, 100 * SECOND);
        leave_now(&mut thread, slot);
        assert_eq!(thread.log(), [SHOWN, SHOWN].concat());
    }

    #[test]
    fn what_can_not_be_taken_back_is_marked() {
        let slot = 2;
        let mut thread = judging(slot);
        enter(&mut thread, slot, SECOND);
        leave_now(&mut thread, slot);
        enter(&mut thread, slot, 0);
        // The execution's beginning is in a chunk that the recorder has.
        assert!(thread.writer().next_chunk());
        leave_now(&mut thread, slot);
        assert_eq!(thread.log(), ["+8", "-", "x"]);
    }

    #[test]
    fn an_execution_within_another_belongs_to_it() {
        let slot = 3;
        let mut thread = judging(slot);
        enter(&mut thread, slot, SECOND);
        let arena = thread.arena;
        assert!(place(&mut thread.writer(), &arena, slot).is_none());
        leave_now(&mut thread, slot);
        assert!(place(&mut thread.writer(), &arena, slot).is_some());
    }

    #[test]
    fn another_stacks_execution_is_kept() {
        let slot = 4;
        let mut thread = judging(slot);
        enter(&mut thread, slot, SECOND);
        leave_now(&mut thread, slot);
        enter(&mut thread, slot, 0);
        // A call of the same function that this thread has not begun.
        let others = ShadowEntry {
            slot: STACK + 4096,
            ..entry(slot)
        };
        let arena = thread.arena;
        assert!(end(&mut thread.writer(), &arena, &others, &Values::NONE));
        assert_eq!(thread.log()[4..], ["+7", "-"]);
    }

    #[test]
    fn executions_that_are_left_are_judged() {
        let slot = 5;
        let mut thread = judging(slot);
        enter(&mut thread, slot, SECOND);
        leave_now(&mut thread, slot);
        for (duration, open) in [(0, 0), (100 * SECOND, 2)] {
            enter(&mut thread, slot, duration);
            let arena = thread.arena;
            let mut writer = thread.writer();
            let time = now(&arena);
            writer.write(1, |to| to.entry(time, 8));
            thread.push(call(8, STACK - 64));
            let mut writer = thread.writer();
            let count = writer.entries().len();
            let cause = (now(&arena), UnwindCause::Jump);
            let left = leave(&mut writer, &arena, count - 2..count, 1, cause);
            assert_eq!(left, open, "{duration}");
            thread.pop();
            thread.pop();
        }
    }

    #[test]
    fn calls_that_are_not_judged_are_left_to_others() {
        let thread = Thread::new();
        let arena = thread.arena;
        assert!(!end(
            &mut thread.writer(),
            &arena,
            &call(7, STACK),
            &Values::NONE
        ));
    }
}
