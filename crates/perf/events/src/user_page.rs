//! Reads of a counter without a system call: the page that the kernel shares (`struct perf_event_mmap_page`) and `rdpmc`.
//!
//! The protocol is that of `perf_event_open(2)`: the kernel makes `lock` odd while it changes the page, so a reader
//! repeats until `lock` was even and the same before and after.
//!
//! The CPU's counter belongs to whichever thread runs on that CPU, so only the thread that opened the event may read
//! it. A forked child has no such page: the kernel leaves the mapping out.

use crate::sys::Mapping;
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Offsets of the fields in the page, in bytes.
mod offset {
    pub(super) const LOCK: usize = 8;
    pub(super) const INDEX: usize = 12;
    pub(super) const OFFSET: usize = 16;
    pub(super) const TIME_ENABLED: usize = 24;
    pub(super) const TIME_RUNNING: usize = 32;
    pub(super) const CAPABILITIES: usize = 40;
    pub(super) const PMC_WIDTH: usize = 48;
    pub(super) const TIME_SHIFT: usize = 50;
    pub(super) const TIME_MULT: usize = 52;
    pub(super) const TIME_OFFSET: usize = 56;
}

/// `cap_user_rdpmc`.
const CAN_READ_COUNTER: u64 = 1 << 2;
/// `cap_user_time`.
const CAN_READ_TIME: u64 = 1 << 3;

/// Tries before a read gives up: the kernel changes the page at context switches, which are rare against a read.
const TRIES: u32 = 16;

/// The shared page of one event.
pub(crate) struct UserPage {
    mapping: Mapping,
    /// The thread that opened the event, by [`thread_key`].
    thread: u64,
}

// SAFETY: the page is only read, and its words atomically. The instruction that reads the CPU's counter runs on the
// thread that opened the event only.
unsafe impl Sync for UserPage {}

impl std::fmt::Debug for UserPage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserPage").finish_non_exhaustive()
    }
}

/// A count read in user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UserRead {
    pub(crate) value: u64,
    /// Nanoseconds enabled and running; `None` where the kernel offers no conversion of the CPU's clock.
    pub(crate) times: Option<(u64, u64)>,
}

impl UserPage {
    /// Maps the page of an event of the calling thread. `None` where that is refused or can never be of use.
    pub(crate) fn map(fd: BorrowedFd<'_>) -> Option<UserPage> {
        let thread = thread_key();
        if !cfg!(target_arch = "x86_64") || thread == NO_KEY || process_mark().is_none() {
            return None;
        }
        let mapping = Mapping::new(fd, 0).ok()?;
        Some(UserPage { mapping, thread })
    }

    /// Reads the count; `None` where only the kernel can: the event is not on a counter now, or the caller is another
    /// thread or a forked child.
    pub(crate) fn read(&self) -> Option<UserRead> {
        let is_ours = thread_key() == self.thread
            && process_mark().is_some_and(|mark| mark.load(Ordering::Relaxed) == OURS);
        if !is_ours {
            return None;
        }
        self.page().read(read_counter, read_clock)
    }

    fn page(&self) -> Page {
        Page(self.mapping.base())
    }
}

/// A page at an address that is mapped for as long as the value is used.
#[derive(Clone, Copy)]
struct Page(*mut u8);

impl Page {
    fn u64(self, offset: usize) -> u64 {
        // SAFETY: the page is mapped, the offset is one of ours and aligned; the kernel writes the words whole.
        unsafe { AtomicU64::from_ptr(self.0.add(offset).cast()) }.load(Ordering::Relaxed)
    }

    fn u32(self, offset: usize) -> u32 {
        // SAFETY: as in `u64`.
        unsafe { AtomicU32::from_ptr(self.0.add(offset).cast()) }.load(Ordering::Relaxed)
    }

    fn u16(self, offset: usize) -> u16 {
        // SAFETY: as in `u64`.
        unsafe { AtomicU16::from_ptr(self.0.add(offset).cast()) }.load(Ordering::Relaxed)
    }

    /// Reads the count by the protocol of the page, with the CPU's counter of a number and the CPU's clock.
    fn read(self, counter: impl Fn(u32) -> u64, clock: impl Fn() -> u64) -> Option<UserRead> {
        for _ in 0..TRIES {
            let sequence = self.u32(offset::LOCK);
            fence(Ordering::Acquire);
            let capabilities = self.u64(offset::CAPABILITIES);
            let index = self.u32(offset::INDEX);
            // Without an index the event is on no counter of this CPU.
            if capabilities & CAN_READ_COUNTER == 0 || index == 0 {
                return None;
            }
            let width = u32::from(self.u16(offset::PMC_WIDTH)).clamp(1, 64);
            let base = self.u64(offset::OFFSET);
            let raw = counter(index - 1);
            let times = (capabilities & CAN_READ_TIME != 0).then(|| {
                let passed = self.passed(clock());
                let enabled = self.u64(offset::TIME_ENABLED).wrapping_add(passed);
                let running = self.u64(offset::TIME_RUNNING).wrapping_add(passed);
                (enabled, running)
            });
            fence(Ordering::Acquire);
            if sequence.is_multiple_of(2) && self.u32(offset::LOCK) == sequence {
                let value = base.wrapping_add(sign_extended(raw, width));
                return Some(UserRead { value, times });
            }
        }
        None
    }

    /// Converts the CPU's clock to the nanoseconds that passed since the kernel wrote the page's times.
    fn passed(self, cycles: u64) -> u64 {
        let shift = u32::from(self.u16(offset::TIME_SHIFT)).min(63);
        let mult = u64::from(self.u32(offset::TIME_MULT));
        let (whole, rest) = (cycles >> shift, cycles & ((1 << shift) - 1));
        self.u64(offset::TIME_OFFSET)
            .wrapping_add(whole.wrapping_mul(mult))
            .wrapping_add(rest.wrapping_mul(mult) >> shift)
    }
}

/// Takes the low `width` bits of a counter as a signed number, as the kernel's offset expects.
fn sign_extended(raw: u64, width: u32) -> u64 {
    let unused = 64 - width;
    ((raw << unused).cast_signed() >> unused).cast_unsigned()
}

#[cfg(target_arch = "x86_64")]
fn read_counter(index: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the kernel set `cap_user_rdpmc` and an index, so the instruction is allowed on this CPU. It changes no
    // memory. If the thread is moved to a CPU where it is not, the kernel has changed the page's `lock` before.
    unsafe {
        std::arch::asm!("rdpmc", in("ecx") index, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(target_arch = "x86_64")]
fn read_clock() -> u64 {
    // SAFETY: the kernel set `cap_user_time`, which stands for a usable time stamp counter.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Never called: [`UserPage::map`] maps no page on these CPUs.
#[cfg(not(target_arch = "x86_64"))]
fn read_counter(_: u32) -> u64 {
    0
}

/// Never called, as `read_counter`.
#[cfg(not(target_arch = "x86_64"))]
fn read_clock() -> u64 {
    0
}

/// The key of a thread that is being torn down.
const NO_KEY: u64 = 0;

/// Returns a number that no other thread of this process has or had.
fn thread_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static KEY: Cell<u64> = const { Cell::new(NO_KEY) };
    }
    // A thread that is being torn down has no key, and reads through the kernel.
    let key = KEY.try_with(|key| {
        if key.get() == NO_KEY {
            key.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        key.get()
    });
    key.unwrap_or(NO_KEY)
}

/// The value of the mark in the process that made it.
const OURS: u8 = 1;

/// Returns a byte that holds [`OURS`] here and that the kernel clears in every forked child. Asking for the process id
/// instead would cost a system call, which is what these reads avoid. `None` before Linux 4.14.
fn process_mark() -> Option<&'static AtomicU8> {
    static MARK: OnceLock<Option<&'static AtomicU8>> = OnceLock::new();
    *MARK.get_or_init(|| {
        let mark = crate::sys::page_wiped_on_fork()?;
        mark.store(OURS, Ordering::Relaxed);
        Some(mark)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of ours in the kernel's layout.
    #[repr(C, align(8))]
    struct Fake([u8; 128]);

    impl Fake {
        fn new(capabilities: u64, index: u32, base: i64, width: u16) -> Fake {
            let mut fake = Fake([0; 128]);
            fake.put(offset::CAPABILITIES, &capabilities.to_ne_bytes());
            fake.put(offset::INDEX, &index.to_ne_bytes());
            fake.put(offset::OFFSET, &base.to_ne_bytes());
            fake.put(offset::PMC_WIDTH, &width.to_ne_bytes());
            fake
        }

        fn put(&mut self, at: usize, bytes: &[u8]) {
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn page(&mut self) -> Page {
            Page(self.0.as_mut_ptr())
        }
    }

    #[test]
    fn counters_are_signed_numbers_of_their_width() {
        let mut fake = Fake::new(CAN_READ_COUNTER, 3, 1000, 48);
        let asked = Cell::new(u32::MAX);
        let read = fake.page().read(
            |index| {
                asked.set(index);
                // -10 in 48 bits, with noise above them.
                0xabcd_ffff_ffff_fff6
            },
            || unreachable!("no time was offered"),
        );
        let expected = UserRead {
            value: 990,
            times: None,
        };
        assert_eq!((read, asked.get()), (Some(expected), 2));
    }

    #[test]
    fn times_go_on_by_the_clock_of_the_cpu() {
        let mut fake = Fake::new(CAN_READ_COUNTER | CAN_READ_TIME, 1, 0, 64);
        fake.put(offset::TIME_ENABLED, &500_u64.to_ne_bytes());
        fake.put(offset::TIME_RUNNING, &200_u64.to_ne_bytes());
        // Half a nanosecond a cycle.
        fake.put(offset::TIME_SHIFT, &10_u16.to_ne_bytes());
        fake.put(offset::TIME_MULT, &512_u32.to_ne_bytes());
        fake.put(offset::TIME_OFFSET, &(-40_i64).to_ne_bytes());
        let read = fake.page().read(|_| 7, || 4100);
        let expected = UserRead {
            value: 7,
            times: Some((500 + 2010, 200 + 2010)),
        };
        assert_eq!(read, Some(expected));
    }

    #[test]
    fn an_event_on_no_counter_is_left_to_the_kernel() {
        let none = |fake: &mut Fake| fake.page().read(|_| unreachable!("no index"), || 0);
        assert_eq!(none(&mut Fake::new(CAN_READ_COUNTER, 0, 5, 48)), None);
        assert_eq!(none(&mut Fake::new(0, 1, 5, 48)), None);
    }

    /// The page changes during the first read, and is being changed during a read that never ends.
    #[test]
    fn a_read_repeats_until_the_page_stood_still() {
        let mut fake = Fake::new(CAN_READ_COUNTER, 1, 0, 64);
        let page = fake.page();
        let reads = Cell::new(0);
        let change = |sequence: u32| {
            // SAFETY: the page is ours, and lives through the test.
            unsafe { AtomicU32::from_ptr(page.0.add(offset::LOCK).cast()) }
                .store(sequence, Ordering::Relaxed);
        };
        let read = page.read(
            |_| {
                reads.set(reads.get() + 1);
                if reads.get() == 1 {
                    change(2);
                }
                reads.get()
            },
            || 0,
        );
        assert_eq!(read.map(|read| read.value), Some(2));
        change(3);
        assert_eq!(page.read(|_| 1, || 0), None, "the kernel never finished");
    }

    #[test]
    fn threads_have_keys_of_their_own() {
        let own = thread_key();
        assert_eq!(own, thread_key());
        let other = std::thread::spawn(thread_key).join().expect("a thread");
        assert_ne!(own, other);
    }
}
