//! The handler of SIGBUS, and the mappings that it knows.
//!
//! The handler runs between any two instructions of any thread: it takes no lock and allocates nothing. The mappings are a
//! list that only grows at its head. An entry whose mapping is gone is used again. Each entry has a version, which
//! is odd while the entry changes and another number afterwards. So the handler knows whether the fields that it has
//! read belong together.

use crate::{Truncation, remember};
use memmap2::Mmap;
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

/// No byte of a mapping was missing.
const NONE: usize = usize::MAX;

/// The smallest page that any kernel for Linux has: the kernel reports faults by pages of at least this size.
const SMALLEST_PAGE: usize = 4096;

/// A mapping, as the handler knows it.
#[derive(Debug)]
struct Entry {
    /// Odd while the other fields change.
    version: AtomicUsize,
    /// The first address; 0: there is no mapping.
    start: AtomicUsize,
    /// The address behind the last one.
    end: AtomicUsize,
    /// The lowest address at which a page was missing, or [`NONE`].
    missing: AtomicUsize,
    next: *const Entry,
    /// The mapped part of the file, at which the handler does not look.
    file: Mutex<Option<MappedPart>>,
}

// SAFETY: `next` is set before others know the entry, and never changes.
unsafe impl Sync for Entry {}
// SAFETY: as above.
unsafe impl Send for Entry {}

/// The part of a file that is mapped.
#[derive(Debug)]
struct MappedPart {
    path: PathBuf,
    device: u64,
    inode: u64,
    offset: u64,
    size: u64,
}

static HEAD: AtomicPtr<Entry> = AtomicPtr::new(ptr::null_mut());
/// Held while entries change.
static CHANGES: Mutex<()> = Mutex::new(());
/// The signal's action before the handler was installed; empty as long as the handler is not installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

fn entries() -> impl Iterator<Item = &'static Entry> {
    let mut next = HEAD.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: entries are never freed.
        let entry = unsafe { next.as_ref() }?;
        next = entry.next;
        Some(entry)
    })
}

impl Entry {
    fn file(&self) -> MutexGuard<'_, Option<MappedPart>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, start: usize, end: usize) {
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.end.store(end, Ordering::Relaxed);
        self.missing.store(NONE, Ordering::Relaxed);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the end of the mapping if `address` is in it.
    fn end_around(&self, address: usize) -> Option<usize> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let end = self.end.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let is_whole = version.is_multiple_of(2) && version == self.version.load(Ordering::Relaxed);
        // The kernel reports the address that was read, or its page.
        let first_page = start & !(SMALLEST_PAGE - 1);
        (is_whole && start != 0 && (first_page..end).contains(&address)).then_some(end)
    }

    fn truncation(&self) -> Option<Truncation> {
        let file = self.file();
        let file = file.as_ref()?;
        let missing = self.missing.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let mut offset =
            (missing != NONE).then(|| file.offset + missing.saturating_sub(start) as u64);
        // Missing bytes need not have faulted: the rest of a page behind the end reads as zeroes, and a page may not
        // have been read.
        let now = fs::metadata(&file.path).ok();
        if let Some(now) = now.filter(|now| (now.dev(), now.ino()) == (file.device, file.inode))
            && now.len() < file.offset + file.size
        {
            offset = Some(offset.unwrap_or(u64::MAX).min(now.len()));
        }
        let path = file.path.clone();
        offset.map(|offset| Truncation { path, offset })
    }
}

/// An entry of the list, as long as its mapping exists.
#[derive(Debug)]
pub(crate) struct Guard(Option<&'static Entry>);

impl Guard {
    /// Registers a mapping of a file from `offset` on.
    pub fn new(file: &File, offset: u64, map: &Mmap) -> Guard {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(install);
        let Ok(metadata) = file.metadata() else {
            return Guard(None);
        };
        if map.is_empty() {
            return Guard(None);
        }
        let descriptor = format!("/proc/self/fd/{}", file.as_raw_fd());
        let part = MappedPart {
            path: fs::read_link(descriptor).unwrap_or_else(|_| PathBuf::from("a mapped file")),
            device: metadata.dev(),
            inode: metadata.ino(),
            offset,
            size: map.len() as u64,
        };
        let start = map.as_ptr().addr();
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        let free = entries().find(|entry| entry.start.load(Ordering::Relaxed) == 0);
        let entry = free.unwrap_or_else(|| {
            let entry: &'static Entry = Box::leak(Box::new(Entry {
                version: AtomicUsize::new(0),
                start: AtomicUsize::new(0),
                end: AtomicUsize::new(0),
                missing: AtomicUsize::new(NONE),
                next: HEAD.load(Ordering::Relaxed),
                file: Mutex::new(None),
            }));
            HEAD.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
            entry
        });
        *entry.file() = Some(part);
        entry.change(start, start + map.len());
        Guard(Some(entry))
    }

    /// Whether somebody has read a page that is missing.
    pub fn has_faulted(&self) -> bool {
        self.0
            .is_some_and(|entry| entry.missing.load(Ordering::Acquire) != NONE)
    }

    /// Returns the first byte of the file that is missing.
    pub fn truncated_at(&self) -> Option<u64> {
        Some(self.0?.truncation()?.offset)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(entry) = self.0 else {
            return;
        };
        if let Some(truncation) = entry.truncation() {
            remember(&truncation.path, truncation.offset);
        }
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        entry.change(0, 0);
        *entry.file() = None;
    }
}

/// Returns the truncations of mappings that exist.
pub(crate) fn truncations() -> Vec<Truncation> {
    let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
    entries().filter_map(Entry::truncation).collect()
}

fn install() {
    // SAFETY: zero is a valid value of the structures' integers and sets; all outlive the calls. The handler keeps to what
    // handlers may do. It is installed after `BEFORE` is set, which it reads.
    unsafe {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), before.as_mut_ptr()) != 0
            || BEFORE.set(before.assume_init()).is_err()
        {
            return;
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handle as *const () as usize;
        // On the alternate stack, if there is one: handlers before may have been installed for stacks that are full.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&raw mut ours.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut());
    }
}

/// Puts zeroes in the place of missing pages, if they belong to one of our mappings.
extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over what it tells of the signal; `errno` is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        let is_fault = (*info).si_code == libc::BUS_ADRERR;
        if !(is_fault && fill((*info).si_addr().addr())) {
            pass_on(signal, info, context);
        }
        *libc::__errno_location() = errno;
    }
}

/// Puts zeroes in the place of a mapping's pages from an address on. Returns false if the address is in none of ours.
fn fill(address: usize) -> bool {
    let Some((entry, end)) = entries().find_map(|entry| Some((entry, entry.end_around(address)?)))
    else {
        return false;
    };
    // SAFETY: asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).unwrap_or(SMALLEST_PAGE);
    let from = address & !(page - 1);
    // Everything behind is missing, too: one fault is enough for all.
    // SAFETY: the pages are those of a mapping that is read only, and lives while it is read.
    let zeroes = unsafe {
        libc::mmap(
            ptr::with_exposed_provenance_mut(from),
            end - from,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if zeroes == libc::MAP_FAILED {
        return false;
    }
    entry.missing.fetch_min(from, Ordering::Release);
    true
}

/// Does what the signal would do without this handler.
///
/// # Safety
/// The arguments are those of a handler of the signal.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type Full = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
    type Short = extern "C" fn(i32);
    let before = BEFORE.get();
    let action = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    // SAFETY: the caller's promise; an action that is neither of the two constants is a function of the type that its flags
    // tell. A signal is sent to this thread, which gets it when the handler returns.
    unsafe {
        match (action, before) {
            (libc::SIG_IGN, _) if (*info).si_code <= 0 => {}
            (libc::SIG_DFL | libc::SIG_IGN, _) | (_, None) => {
                libc::signal(signal, libc::SIG_DFL);
                // A fault comes again when the handler returns.
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
            (action, Some(before)) if before.sa_flags & libc::SA_SIGINFO != 0 => {
                std::mem::transmute::<usize, Full>(action)(signal, info, context);
            }
            (action, _) => std::mem::transmute::<usize, Short>(action)(signal),
        }
    }
}
