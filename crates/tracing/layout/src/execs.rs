//! The queue of executed programs: notices in the arena that traced processes give when they call `execve`.
//!
//! A program connects to the recorder by itself if the runtime is loaded into it. The runtime is not loaded into
//! static programs and programs for another C library; only the process that executes such a program can report it.
//! The executing process may be the child of a `vfork`, which shares its parent's memory and must not change it. So
//! it writes to the arena only, without a lock.

use core::sync::atomic::{AtomicU64, Ordering};

/// The number of places in the queue.
pub const NOTICES: usize = 64;
/// The largest number of bytes of a path that a notice holds.
pub const MAX_PATH: usize = 992;

/// The process is about to execute the program.
pub const EXECUTES: u32 = 1;
/// The execution has failed: the process's last notice is void.
pub const FAILED: u32 = 2;

/// A place in the queue.
#[repr(C)]
#[derive(Debug)]
pub struct Notice {
    /// Twice the number of the lap in which the place is free, plus 1 if the place is full.
    pub turn: AtomicU64,
    /// The time, `CLOCK_MONOTONIC` in nanoseconds.
    pub time: AtomicU64,
    /// The process in the lower 32 bits, [`EXECUTES`] or [`FAILED`] in the upper ones.
    pub what: AtomicU64,
    /// The number of bytes in `path`.
    pub length: AtomicU64,
    /// The program's path.
    pub path: [u8; MAX_PATH],
}

const _: () = assert!(size_of::<Notice>() == 1024);

/// The size of the queue in bytes.
pub const SIZE: usize = NOTICES * size_of::<Notice>();

/// Takes the next place of the queue; `head` counts all notices. Returns the number of the place and the turn that
/// marks it as full, or `None` if the recorder is too far behind.
pub fn take(head: &AtomicU64, notices: &[Notice]) -> Option<(usize, u64)> {
    let mut next = head.load(Ordering::Relaxed);
    loop {
        let index = (next % NOTICES as u64) as usize;
        let free = next / NOTICES as u64 * 2;
        if notices.get(index)?.turn.load(Ordering::Acquire) != free {
            let now = head.load(Ordering::Relaxed);
            if now == next {
                return None;
            }
            next = now;
            continue;
        }
        match head.compare_exchange_weak(next, next + 1, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Some((index, free + 1)),
            Err(now) => next = now,
        }
    }
}

/// Returns notice number `tail` to the recorder; `None` if its place is not full.
pub fn next(tail: u64, notices: &[Notice]) -> Option<&Notice> {
    let notice = notices.get((tail % NOTICES as u64) as usize)?;
    let full = tail / NOTICES as u64 * 2 + 1;
    (notice.turn.load(Ordering::Acquire) == full).then_some(notice)
}

/// Frees the place of notice number `tail` for the next lap.
pub fn free(tail: u64, notices: &[Notice]) {
    if let Some(notice) = notices.get((tail % NOTICES as u64) as usize) {
        let free = (tail / NOTICES as u64 + 1) * 2;
        notice.turn.store(free, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_go_round() {
        let head = AtomicU64::new(0);
        let notices = [const {
            Notice {
                turn: AtomicU64::new(0),
                time: AtomicU64::new(0),
                what: AtomicU64::new(0),
                length: AtomicU64::new(0),
                path: [0; MAX_PATH],
            }
        }; NOTICES];
        let mut tail = 0;
        for round in 0..1000_u64 {
            assert!(next(tail, &notices).is_none(), "{round}");
            for number in 0..NOTICES as u64 {
                let (index, full) = take(&head, &notices).unwrap();
                notices[index]
                    .time
                    .store(round * 100 + number, Ordering::Relaxed);
                notices[index].turn.store(full, Ordering::Release);
            }
            assert!(take(&head, &notices).is_none());
            for number in 0..NOTICES as u64 {
                let notice = next(tail, &notices).unwrap();
                assert_eq!(notice.time.load(Ordering::Relaxed), round * 100 + number);
                free(tail, &notices);
                tail += 1;
            }
        }
    }
}
