//! The system calls that this crate stands on, each as a safe function. Nothing here decides anything.

use crate::Attr;
use crate::owner::Owner;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

/// `PERF_FLAG_FD_CLOEXEC`.
const FLAG_CLOEXEC: libc::c_ulong = 1 << 3;
/// `PERF_FLAG_PID_CGROUP`.
const FLAG_PID_CGROUP: libc::c_ulong = 1 << 2;

/// `PERF_EVENT_IOC_*`: the requests of `perf_event_open(2)`, which need no argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Enable,
    Disable,
    Reset,
}

/// Computes `_IO('$', number)`, the same on all architectures but those with another direction encoding.
const fn io(number: u32) -> libc::Ioctl {
    ioctl_code(IOC_NONE, number, 0)
}

/// Computes `_IOW('$', number, size)`.
const fn iow(number: u32, size: u32) -> libc::Ioctl {
    ioctl_code(IOC_WRITE, number, size)
}

/// Computes `_IOR('$', number, size)`.
const fn ior(number: u32, size: u32) -> libc::Ioctl {
    ioctl_code(IOC_READ, number, size)
}

// PowerPC, MIPS and SPARC number the directions differently and have one bit less of size.
const OTHER_IOC: bool = cfg!(any(
    target_arch = "powerpc",
    target_arch = "powerpc64",
    target_arch = "mips",
    target_arch = "mips64",
    target_arch = "sparc",
    target_arch = "sparc64"
));
const IOC_NONE: u32 = if OTHER_IOC { 1 } else { 0 };
const IOC_WRITE: u32 = if OTHER_IOC { 4 } else { 1 };
const IOC_READ: u32 = 2;
const IOC_DIRECTION_SHIFT: u32 = if OTHER_IOC { 29 } else { 30 };

const fn ioctl_code(direction: u32, number: u32, size: u32) -> libc::Ioctl {
    ((direction << IOC_DIRECTION_SHIFT) | (size << 16) | (0x24 << 8) | number) as libc::Ioctl
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Opens an event on thread `pid` (0: the caller, -1: all) and `cpu` (-1: all), closed on exec.
///
/// With `cgroup`, `pid` is the descriptor of a cgroup's directory. `size` is the attr's size in bytes, as stated; with
/// a `tail`, what follows the attr as it is known here, that is the size.
pub(crate) fn perf_event_open(
    attr: &Attr,
    size: u32,
    tail: &[u8],
    pid: i32,
    cpu: i32,
    group: Option<BorrowedFd<'_>>,
    cgroup: bool,
) -> io::Result<OwnedFd> {
    let mut bytes = attr.to_bytes(size.max(u32::try_from(Attr::MAX_SIZE).unwrap_or(u32::MAX)));
    bytes.extend_from_slice(tail);
    let size = match tail {
        [] => size,
        _ => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
    };
    bytes[4..8].copy_from_slice(&size.to_ne_bytes());
    let group = group.map_or(-1, |fd| fd.as_raw_fd());
    let mut flags = FLAG_CLOEXEC;
    if cgroup {
        flags |= FLAG_PID_CGROUP;
    }
    // SAFETY: the attr is a live buffer of at least `size` bytes; the kernel may write its own size into bytes 4..8.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            bytes.as_mut_ptr(),
            pid,
            cpu,
            group,
            flags,
        )
    };
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    check(fd)?;
    // SAFETY: the kernel has just handed this descriptor to us and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Asks with a size that no kernel accepts, so that only a call that reaches the kernel answers `E2BIG`, with the
/// size of the kernel's own attr in bytes.
pub(crate) fn attr_size_of_kernel() -> io::Result<u32> {
    let mut bytes = [0_u8; Attr::MAX_SIZE];
    bytes[4] = 1;
    // SAFETY: the buffer is as large as the largest attr; the stated size of 1 is refused before anything is read.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            bytes.as_mut_ptr(),
            0,
            -1,
            -1,
            FLAG_CLOEXEC,
        )
    };
    let error = io::Error::last_os_error();
    if fd < 0 && error.raw_os_error() == Some(libc::E2BIG) {
        return Ok(u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]));
    }
    Err(error)
}

/// Enables, disables or resets an event; with `group`, all events of its group.
pub(crate) fn control(fd: BorrowedFd<'_>, request: Request, group: bool) -> io::Result<()> {
    let code = match request {
        Request::Enable => io(0),
        Request::Disable => io(1),
        Request::Reset => io(3),
    };
    // SAFETY: these requests take a flag word, no pointer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), code, libc::c_ulong::from(group)) }).map(drop)
}

/// Adds `count` to the overflows after which the event disables itself.
pub(crate) fn refresh(fd: BorrowedFd<'_>, count: i32) -> io::Result<()> {
    // SAFETY: the request takes an integer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), io(2), libc::c_long::from(count)) }).map(drop)
}

/// Sets a new period, or frequency (`PERF_EVENT_IOC_PERIOD`).
pub(crate) fn set_period(fd: BorrowedFd<'_>, period: u64) -> io::Result<()> {
    // SAFETY: the request reads eight bytes, which live through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), iow(4, 8), &raw const period) }).map(drop)
}

/// Sends records of `fd` to the ring of `target`, or nowhere (`PERF_EVENT_IOC_SET_OUTPUT`).
pub(crate) fn set_output(fd: BorrowedFd<'_>, target: Option<BorrowedFd<'_>>) -> io::Result<()> {
    // The argument is a word: a 32-bit -1 would name a descriptor.
    let target = target.map_or(-1, |target| libc::c_long::from(target.as_raw_fd()));
    // SAFETY: the request takes an integer.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), io(5), target) }).map(drop)
}

/// Stops, or goes on, writing to the event's ring (`PERF_EVENT_IOC_PAUSE_OUTPUT`).
pub(crate) fn pause_output(fd: BorrowedFd<'_>, pause: bool) -> io::Result<()> {
    // SAFETY: the request takes a flag.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), iow(9, 4), libc::c_ulong::from(pause)) }).map(drop)
}

/// Sets a tracepoint's filter expression (`PERF_EVENT_IOC_SET_FILTER`).
pub(crate) fn set_filter(fd: BorrowedFd<'_>, filter: &std::ffi::CStr) -> io::Result<()> {
    let size = u32::try_from(size_of::<*const u8>()).unwrap_or(8);
    // SAFETY: the request reads a NUL-terminated string, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), iow(6, size), filter.as_ptr()) }).map(drop)
}

/// Asks for the event's id (`PERF_EVENT_IOC_ID`).
pub(crate) fn event_id(fd: BorrowedFd<'_>) -> io::Result<u64> {
    let mut id = 0_u64;
    let size = u32::try_from(size_of::<*const u64>()).unwrap_or(8);
    // SAFETY: the request writes eight bytes.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), ior(7, size), &raw mut id) })?;
    Ok(id)
}

/// Reads a descriptor into `buffer`; the number of bytes read.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is ours and as long as stated.
    let length = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// Waits until one of `fds` is ready: how many are. An interrupting signal counts as none.
pub(crate) fn poll(fds: &mut [libc::pollfd], timeout: Duration) -> io::Result<usize> {
    // Rounded up: a wait of half a millisecond must not become a busy loop.
    let milliseconds = timeout.as_nanos().div_ceil(1_000_000);
    let milliseconds = libc::c_int::try_from(milliseconds).unwrap_or(libc::c_int::MAX);
    let count = fds.len() as libc::nfds_t;
    // SAFETY: the array is ours and as long as stated.
    let ready = unsafe { libc::poll(fds.as_mut_ptr(), count, milliseconds) };
    match check(ready) {
        Ok(ready) => Ok(usize::try_from(ready).unwrap_or(0)),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

/// Makes a counter that wakes a poll; non-blocking, closed on exec.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Adds one to an eventfd. A full counter stays readable, which is all that is wanted.
pub(crate) fn eventfd_signal(fd: BorrowedFd<'_>) {
    let one = 1_u64.to_ne_bytes();
    // SAFETY: eight bytes of ours.
    unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Makes an epoll instance, closed on exec.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes an epoll instance readable when `fd` is.
pub(crate) fn epoll_add(epoll: BorrowedFd<'_>, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN.cast_unsigned(),
        u64: 0,
    };
    let (epoll, fd) = (epoll.as_raw_fd(), fd.as_raw_fd());
    // SAFETY: the kernel reads our struct.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }).map(drop)
}

/// Takes a descriptor, which may be closed, out of an epoll instance.
pub(crate) fn epoll_remove(epoll: BorrowedFd<'_>, fd: RawFd) -> io::Result<()> {
    let epoll = epoll.as_raw_fd();
    // SAFETY: removing reads no struct.
    check(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) })
        .map(drop)
}

/// Maps a page whose bytes are zero in every forked child (Linux 4.14), and returns its first byte. The page stays mapped.
pub(crate) fn page_wiped_on_fork() -> Option<&'static AtomicU8> {
    let length = page_size();
    // SAFETY: a fresh private mapping at an address of the kernel's choice, which is never unmapped unless the kernel
    // does not know the advice: then nobody else knows of it yet.
    unsafe {
        let base = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if base == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(base, length, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(base, length);
            return None;
        }
        Some(AtomicU8::from_ptr(base.cast()))
    }
}

/// Takes an eventfd's count back to zero.
pub(crate) fn eventfd_clear(fd: BorrowedFd<'_>) {
    // An empty counter answers EAGAIN: it is clear then as well.
    let _ = read(fd, &mut [0; 8]);
}

/// Makes a descriptor that becomes readable when process `pid` ends (Linux 5.3).
pub(crate) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0) };
    let fd = RawFd::try_from(fd).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    check(fd)?;
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin_to(cpu: u32) -> io::Result<()> {
    let bit = cpu as usize;
    let mut words = vec![0_u64; bit / 64 + 1];
    words[bit / 64] = 1 << (bit % 64);
    // SAFETY: the mask is ours and as long as stated.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            words.len() * 8,
            words.as_ptr(),
        )
    };
    check(libc::c_int::try_from(result).unwrap_or(-1)).map(drop)
}

/// Lets the calling thread run before all that have no real-time priority, and wake up without slack.
pub(crate) fn become_prompt() -> io::Result<()> {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: the slack is a number, and the kernel reads our struct.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
        check(libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO,
            &raw const parameter,
        ))
        .map(drop)
    }
}

/// Touches `pages` fresh pages, each of which faults. Where memory is refused nothing is touched.
pub(crate) fn touch_fresh_pages(pages: usize) {
    let length = pages * page_size();
    // SAFETY: a fresh private mapping at an address of the kernel's choice, written to within its length and unmapped
    // before anyone else knows of it.
    unsafe {
        let base = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if base == libc::MAP_FAILED {
            return;
        }
        libc::madvise(base, length, libc::MADV_NOHUGEPAGE);
        for page in 0..pages {
            base.cast::<u8>().add(page * page_size()).write_volatile(1);
        }
        libc::munmap(base, length);
    }
}

/// Returns the calling thread's id.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no arguments.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(tid).unwrap_or(0)
}

/// Bytes in a page of memory.
pub(crate) fn page_size() -> usize {
    // SAFETY: no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Reads the nanoseconds of `clock`, a `CLOCK_*` number.
pub(crate) fn clock_now(clock: i32) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills our struct; an unknown clock leaves it zero.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds * 1_000_000_000 + nanoseconds
}

/// Returns the soft and the hard limit of open descriptors.
pub(crate) fn descriptor_limit() -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills our struct.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Sets the soft and the hard limit of open descriptors.
pub(crate) fn set_descriptor_limit(soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: the kernel reads our struct.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}

/// Returns the soft and the hard limit of locked memory, in bytes.
pub(crate) fn locked_memory_limit() -> io::Result<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills our struct.
    check(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) })?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// Returns the CPUs on which thread `tid` may run (0: the caller), ascending.
pub(crate) fn affinity(tid: u32) -> io::Result<Vec<u32>> {
    // Machines may have more CPUs than the 1,024 of libc's set: grow until the kernel's mask fits.
    let mut words = vec![0_u64; 16];
    loop {
        let tid = libc::c_long::from(tid);
        // SAFETY: the mask is ours and as long as stated.
        let length = unsafe {
            libc::syscall(
                libc::SYS_sched_getaffinity,
                tid,
                words.len() * 8,
                words.as_mut_ptr(),
            )
        };
        if length >= 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() > 4096 {
            return Err(error);
        }
        words = vec![0; words.len() * 2];
    }
    let bits = words.iter().enumerate().flat_map(|(index, word)| {
        (0..64_u32)
            .filter(move |bit| word >> bit & 1 != 0)
            .map(move |bit| u32::try_from(index * 64).unwrap_or(u32::MAX) + bit)
    });
    Ok(bits.collect())
}

/// Reads a small file of procfs or sysfs whole.
pub(crate) fn read_file(path: &str) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// A shared mapping of an event's ring: the first page is the kernel's, the rest holds records.
pub(crate) struct Mapping {
    base: std::ptr::NonNull<u8>,
    length: usize,
    /// The kernel leaves the mapping out of forked children: there the addresses are free, or taken by others.
    owner: Owner,
}

// SAFETY: the mapping is plain memory of the process, bound to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps one page of control and `data` bytes of records.
    pub(crate) fn new(fd: BorrowedFd<'_>, data: usize) -> io::Result<Mapping> {
        let length = data
            .checked_add(page_size())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = std::ptr::NonNull::new(base.cast())
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Mapping {
            base,
            length,
            owner: Owner::this_process(),
        })
    }

    /// Returns whether the calling process has the mapping; a forked child doesn't.
    pub(crate) fn is_mapped(&self) -> bool {
        self.owner.is_this_process()
    }

    /// Returns the mapping's first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_mapped() {
            return;
        }
        // SAFETY: exactly what `new` mapped; views of it borrow `self` and are gone.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_codes_are_those_of_the_header() {
        // Numbers as `strace` prints them for x86-64 and arm64.
        if OTHER_IOC {
            return;
        }
        assert_eq!(u64::from(io(0) as u32), 0x2400);
        assert_eq!(u64::from(iow(4, 8) as u32), 0x4008_2404);
        assert_eq!(u64::from(ior(7, 8) as u32), 0x8008_2407);
    }

    #[test]
    fn the_caller_may_run_somewhere() {
        assert!(!affinity(0).expect("own affinity").is_empty());
        assert!(page_size() >= 4096);
        assert!(clock_now(libc::CLOCK_MONOTONIC) > 0);
    }
}
