//! Made-up programs with many call stacks: each return must give back the caller with which the call was made.

use super::renew::{self, KEPT, RENEW_AT};
use super::*;
use crate::segments::{self, SegmentState};
use crate::shadow::{self, RECORD_SIZE, TO_RECORD};
use crate::{sys, testing};
use core::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::Vec;

/// Segments belong to the process, so one test runs at a time.
static ONE: Mutex<()> = Mutex::new(());

/// The distance between the made-up call stacks, in bytes.
const APART: u64 = 0x1_0000;

/// A thread, reduced to the parts that parking uses.
struct ParkingThread {
    record: *mut ThreadRecord,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// An open call: its entry's address, its slot, and its caller.
#[derive(Clone, Copy, Debug)]
struct OpenCall {
    token: u64,
    slot: u64,
    caller: Caller,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl ParkingThread {
    fn new(capacity: usize) -> ParkingThread {
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        renew::reset();
        ParkingThread {
            _turn: Some(turn),
            ..ParkingThread::another(capacity)
        }
    }

    /// Returns one more thread in the same test.
    fn another(capacity: usize) -> ParkingThread {
        let size = TO_RECORD + RECORD_SIZE + segments::size(capacity);
        let record: *mut ThreadRecord = sys::map_private(size)
            .unwrap()
            .wrapping_add(TO_RECORD)
            .cast();
        let segment = shadow::own_segment(record);
        // SAFETY: new memory, large enough, which stays mapped.
        unsafe {
            segments::add(&raw mut (*record).span, segment, capacity);
            (*segment).owner.store(record, Ordering::Relaxed);
            (*record).segment = segment;
            (*record).floor = segments::floor(segment);
            (*record).top = segments::floor(segment);
            (*record).limit = segments::limit(segment);
        }
        ParkingThread {
            record,
            _turn: None,
        }
    }

    /// Makes a call as the hook of an entry and its slow path do.
    fn call(&self, slot: u64) -> OpenCall {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let caller = Caller {
            frame: number,
            return_address: number << 20,
        };
        // SAFETY: this thread's record.
        unsafe {
            let mut stale = core::ptr::null_mut();
            each_unparked(self.record, |entry| {
                let is_stale = entry.slot <= slot;
                if is_stale {
                    stale = entry;
                }
                is_stale
            });
            if !stale.is_null() {
                leave(self.record, stale, false);
            }
            renew_if_wasteful(self.record);
            if (*self.record).top >= (*self.record).limit {
                assert!(make_room(self.record));
            }
            let top = (*self.record).top.add(1);
            top.write(ShadowEntry {
                frame: caller.frame,
                return_address: caller.return_address,
                slot,
                function: 1,
                flags: 0,
                spare: 0,
            });
            (*self.record).top = top;
            OpenCall {
                token: top.addr() as u64,
                slot,
                caller,
            }
        }
    }

    /// Ends a call as the slow path of the hook of an exit does. Returns true if the call was open until now.
    fn end(&self, call: OpenCall, with_token: bool) -> bool {
        // SAFETY: this thread's record.
        unsafe {
            let token = with_token.then_some(call.token);
            let found = find(self.record, token, call.caller.frame, call.slot);
            match found.unwrap_or_else(|| panic!("{call:?} is lost")) {
                FoundCall::Left(found) => {
                    assert_eq!(found, call.caller);
                    false
                }
                FoundCall::Open(entry) => {
                    if innermost(self.record) != entry {
                        leave(self.record, entry.add(1), false);
                    }
                    assert_eq!(caller(entry), call.caller);
                    remove(self.record, entry);
                    renew_if_wasteful(self.record);
                    true
                }
                FoundCall::Suspended(..) => panic!("nothing was suspended"),
            }
        }
    }

    /// Leaves the calls below an address by a jump that the runtime sees.
    fn jump(&self, target: u64) {
        // SAFETY: this thread's record.
        unsafe {
            let mut from = core::ptr::null_mut();
            each_unparked(self.record, |entry| {
                let is_left = entry.slot < target;
                if is_left {
                    from = entry;
                }
                is_left
            });
            if !from.is_null() {
                leave(self.record, from, true);
            }
            renew_if_wasteful(self.record);
        }
    }

    /// Returns the number of entries between the floor and the top.
    fn used(&self) -> usize {
        // SAFETY: this thread's record.
        unsafe {
            (*self.record)
                .top
                .offset_from((*self.record).floor)
                .unsigned_abs()
        }
    }
}

/// Returns a number below `below` that looks random.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn nothing_stays_of_calls_that_nest() {
    let thread = ParkingThread::new(64);
    let outer: Vec<OpenCall> = (0..50)
        .map(|depth| thread.call(APART - 16 * depth))
        .collect();
    for call in outer.into_iter().rev() {
        assert!(thread.end(call, true));
    }
    assert_eq!(thread.used(), 0);
}

#[test]
fn calls_on_many_stacks_return_in_any_order() {
    for (stacks, with_token, seed) in [(3, true, 1), (3, false, 2), (50, true, 3), (2000, true, 4)]
    {
        let thread = ParkingThread::new(1 << 12);
        let mut state = seed;
        let mut open: Vec<Vec<OpenCall>> = std::vec![Vec::new(); stacks];
        let mut stack = 0;
        for _ in 0..200_000 {
            if random(&mut state, 4) == 0 {
                stack = random(&mut state, stacks as u64) as usize;
            }
            let depth = open[stack].len() as u64;
            if random(&mut state, 8) * 3 > depth {
                let slot = APART * (stack as u64 + 1) - 16 * depth;
                open[stack].push(thread.call(slot));
            } else if let Some(call) = open[stack].pop() {
                thread.end(call, with_token);
            }
        }
        for call in open.into_iter().flat_map(|calls| calls.into_iter().rev()) {
            thread.end(call, with_token);
        }
        assert_eq!(thread.used(), 0, "{stacks} stacks");
    }
}

/// On a copied stack several suspended calls have the same slot: their entries distinguish them.
#[test]
fn calls_with_the_same_place_are_told_apart() {
    let thread = ParkingThread::new(1 << 12);
    let mut waiting = std::collections::VecDeque::new();
    for round in 0..50_000_u64 {
        waiting.push_back(thread.call(APART - 16 * (round % 3)));
        if waiting.len() > 500 {
            thread.end(waiting.pop_front().unwrap(), true);
        }
    }
    while let Some(call) = waiting.pop_front() {
        thread.end(call, true);
    }
    assert_eq!(thread.used(), 0);
}

/// Returns the number of segments in use.
fn taken() -> usize {
    let mut taken = 0;
    segments::all(|segment| {
        // SAFETY: a segment.
        taken += usize::from(unsafe { (*segment).state() } != SegmentState::Free);
        false
    });
    taken
}

/// Stacks that take turns leave holes everywhere: the memory in use follows the calls that may return.
#[test]
fn memory_follows_what_may_return() {
    // Other tests of a process leave segments in use, whose calls may return as well.
    if !testing::is_alone("parked::tests::memory_follows_what_may_return") {
        return;
    }
    let thread = ParkingThread::new(1 << 16);
    let mut waiting = std::collections::VecDeque::new();
    let mut most = 0;
    for round in 0..1_000_000_u64 {
        let stack = round % 100;
        if waiting.len() >= 100 {
            thread.end(waiting.pop_front().unwrap(), true);
        }
        waiting.push_back(thread.call(APART * (stack + 1)));
        most = most.max(thread.used());
    }
    assert!(most < 3 * RENEW_AT, "{most} entries");
    let taken = taken();
    assert!(taken < 100, "{taken} segments");
}

/// A jump leaves calls for good, again and again.
#[test]
fn calls_that_never_return_do_not_pile_up() {
    let thread = ParkingThread::new(1 << 16);
    let around = thread.call(2 * APART);
    let mut most = 0;
    for _ in 0..300_000 {
        thread.call(APART);
        thread.call(APART - 16);
        thread.jump(2 * APART);
        most = most.max(thread.used());
    }
    // The gone entries that are kept, and entries that have come since.
    assert!(most < 2 * KEPT[0] as usize, "{most} entries");
    assert!(thread.end(around, true), "the open call is still known");
}

/// A call that one thread has begun returns in another.
#[test]
fn calls_return_in_other_threads() {
    let (first, second) = (ParkingThread::new(1 << 12), ParkingThread::another(1 << 12));
    let around = first.call(9 * APART);
    let open = first.call(8 * APART);
    let parked = first.call(APART);
    let newer = first.call(2 * APART);
    assert!(!second.end(parked, true), "it was left");
    assert!(!second.end(newer, true), "it is open elsewhere");
    assert!(!second.end(open, true), "it is open elsewhere");
    // Entries of calls that have returned elsewhere are in nobody's way.
    let next = first.call(3 * APART);
    assert!(first.end(next, true));
    assert!(first.end(around, true));
}

/// A thread may use an entry for something else as soon as another thread has claimed it. So the claim changes the slot
/// and nothing else, and a stack that is resumed once more still finds the caller.
#[test]
fn other_threads_write_slots_only() {
    let (first, second) = (ParkingThread::new(1 << 12), ParkingThread::another(1 << 12));
    let around = first.call(9 * APART);
    // Other tests leave calls with all other slots.
    let parked = first.call(APART + 8);
    let newer = first.call(2 * APART);
    let entry: *mut ShadowEntry = ptr::with_exposed_provenance_mut(parked.token as usize);
    // SAFETY: an entry of the first thread's segment, which stays mapped.
    let before = unsafe { *entry };
    assert!(is_parked(&before));
    assert!(!second.end(parked, true), "it was left");
    // SAFETY: as above.
    let after = unsafe { *entry };
    assert!(is_hole(&after));
    assert_eq!((before.flags, before.spare), (after.flags, after.spare));
    assert!(!second.end(parked, true), "it returns once more");
    assert!(first.end(newer, true));
    assert!(first.end(around, true));
    assert_eq!(first.used(), 0);
}

/// Handlers that interrupt a hook may exchange stacks, too: entries that they leave parked are not overwritten.
#[test]
fn what_is_parked_above_an_interrupted_hook_stays() {
    let thread = ParkingThread::new(1 << 12);
    let around = thread.call(9 * APART);
    // SAFETY: this thread's record.
    unsafe {
        let record = thread.record;
        // The hook is about to write this entry.
        let next = (*record).top.add(1);
        next.write(ShadowEntry {
            slot: 7 * APART,
            flags: ENTRY_UNWOUND | ENTRY_NO_RETURN,
            ..ShadowEntry::BOTTOM
        });
        (*record).top = next;
        let handlers = thread.call(APART);
        leave(
            record,
            ptr::with_exposed_provenance_mut(handlers.token as usize),
            false,
        );
        assert!(hold(record, next));
        assert_eq!((*record).top.add(1), next);
        // The hook goes on.
        next.write(ShadowEntry {
            frame: 5,
            return_address: 6,
            slot: 7 * APART,
            function: 1,
            flags: 0,
            spare: 0,
        });
        (*record).top = next;
        assert!((*record).top >= (*record).limit, "the next hook gives up");
        assert!(make_room(record));
        let later = thread.call(6 * APART);
        assert_ne!(later.token, handlers.token);
        assert!(thread.end(later, true));
        assert!(!thread.end(handlers, true));
        let interrupted = OpenCall {
            token: next.addr() as u64,
            slot: 7 * APART,
            caller: Caller {
                frame: 5,
                return_address: 6,
            },
        };
        assert!(thread.end(interrupted, true));
        assert!(thread.end(around, true));
    }
    assert_eq!(thread.used(), 0);
}

/// Several threads of a process work at once: calls return in any thread, and none is lost or given twice.
#[test]
fn threads_hand_calls_on_at_once() {
    let _turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (sender, receiver) = std::sync::mpsc::channel::<OpenCall>();
    let receiver = std::sync::Arc::new(Mutex::new(receiver));
    let workers: Vec<_> = (0..4_u64)
        .map(|number| {
            let (sender, receiver) = (sender.clone(), receiver.clone());
            std::thread::spawn(move || {
                let thread = ParkingThread::another(1 << 12);
                let mut state = number;
                for round in 0..20_000_u64 {
                    let stack = (number * 20_000 + round) % 5_000 + 1;
                    sender.send(thread.call(APART * stack)).unwrap();
                    if random(&mut state, 3) > 0 {
                        let call = receiver.lock().unwrap().try_recv();
                        if let Ok(call) = call {
                            thread.end(call, true);
                        }
                    }
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
    drop(sender);
    let last = ParkingThread::another(1 << 12);
    for call in receiver.lock().unwrap().iter() {
        last.end(call, true);
    }
}
