//! Moments at which a thread can call `dlopen` in place of its own work.
//!
//! `dlopen` takes the dynamic linker's locks and allocates memory. A thread that is stopped inside of the linker or of
//! an allocator holds such a lock, and would wait for itself. So the thread's whole call stack is unwound, and must be of
//! one of two forms: in code outside of the C library, or in a function of the C library that waits for something
//! ([`WAITING`]), called from outside of it. No frame may be the dynamic linker's, and none may be a function for
//! memory ([`is_of_allocator`]), wherever that is defined.

use super::Unsafe;
use super::borrowed::{Borrowed, Registers};
use super::libraries::{Libraries, Library};
use crate::analysis::prepare::open;
use crate::serving::maps::{MappedModule, Maps};
use dioptra_symbols::{
    AddressSpace, FileMapping, FileOffset, MemoryAddress, ModuleKind, ModuleRequest, StackEnd,
    StackUnwinder, SymbolOptions, UnwindCache, UnwindMachine, UnwindMapping, UserRegisters,
};
use object::{Object, ObjectSegment, ObjectSymbol};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The largest stack that is read, in bytes.
const LARGEST_STACK: u64 = 64 << 20;

/// The largest number of frames of the C library from which a thread begins: `_start`'s callee and its caller of
/// `main`, or `clone3` and `start_thread`. With more the thread is ending, in functions that hold locks.
const STARTING_FRAMES: usize = 2;

/// The C library's functions that wait, and hold nothing meanwhile that `dlopen` needs. Streams' functions hold the lock
/// of their stream.
const WAITING: &[&str] = &[
    "accept",
    "accept4",
    "clock_nanosleep",
    "__clock_nanosleep",
    "cnd_timedwait",
    "cnd_wait",
    "connect",
    "__connect",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "fdatasync",
    "fgetc",
    "fgets",
    "flock",
    "fread",
    "fsync",
    "futimens",
    "getc",
    "getchar",
    "getdelim",
    "getline",
    "__getdelim",
    "io_getevents",
    "lockf",
    "mq_receive",
    "mq_timedreceive",
    "msgrcv",
    "msgsnd",
    "nanosleep",
    "__nanosleep",
    "pause",
    "poll",
    "__poll",
    "ppoll",
    "__poll_chk",
    "pread",
    "pread64",
    "__pread64",
    "preadv",
    "pselect",
    "pthread_barrier_wait",
    "pthread_clockjoin_np",
    "pthread_cond_clockwait",
    "pthread_cond_timedwait",
    "pthread_cond_wait",
    "pthread_join",
    "pthread_mutex_lock",
    "__pthread_mutex_lock",
    "pthread_mutex_timedlock",
    "pthread_rwlock_rdlock",
    "pthread_rwlock_wrlock",
    "pthread_timedjoin_np",
    "pwrite",
    "pwrite64",
    "read",
    "__read",
    "readv",
    "recv",
    "__recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sched_yield",
    "__sched_yield",
    "select",
    "__select",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "semop",
    "semtimedop",
    "send",
    "__send",
    "sendmsg",
    "sendto",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "syscall",
    "thrd_join",
    "thrd_sleep",
    "thrd_yield",
    "usleep",
    "wait",
    "wait3",
    "wait4",
    "__wait4",
    "waitid",
    "waitpid",
    "__waitpid",
    "write",
    "__write",
    "writev",
];

/// Returns whether a function, by its name, hands out memory or takes it back.
fn is_of_allocator(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "malloc",
        "calloc",
        "realloc",
        "free",
        "cfree",
        "memalign",
        "aligned_alloc",
        "posix_memalign",
        "valloc",
        "pvalloc",
        "reallocarray",
        "malloc_usable_size",
        "malloc_trim",
        "sdallocx",
        "__libc_malloc",
        "__libc_free",
        "__libc_calloc",
        "__libc_realloc",
        "__libc_memalign",
    ];
    // The operators `new` and `delete`, and what Rust makes of the global allocator.
    const BEGINNINGS: &[&str] = &[
        "_Znw",
        "_Zna",
        "_ZdlPv",
        "_ZdaPv",
        "__rust_alloc",
        "__rust_dealloc",
        "__rust_realloc",
        "__rdl_",
        "__rg_",
        "je_",
        "mi_",
        "tc_",
    ];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|begin| name.starts_with(begin))
}

/// The functions for memory of a module other than the C library: first addresses in memory, and those behind them.
type AllocatorRanges = Vec<(u64, u64)>;

/// Examines the stopped threads of a process.
pub struct SafePoints<'a> {
    pid: u32,
    maps: &'a Maps,
    libraries: &'a Libraries,
    space: AddressSpace,
    cache: UnwindCache,
    allocators: HashMap<PathBuf, AllocatorRanges>,
}

impl<'a> SafePoints<'a> {
    /// Reads the unwind tables of a process's modules. Returns `None` on a processor that is not known.
    pub fn new(pid: u32, maps: &'a Maps, libraries: &'a Libraries) -> Option<SafePoints<'a>> {
        let mut space = AddressSpace::new(UnwindMachine::native()?);
        let unwinder = StackUnwinder::new(SymbolOptions::default());
        for module in maps.modules() {
            let Some((path, _)) = open(pid, &module) else {
                continue;
            };
            for area in &module.areas {
                if area.protection & libc::PROT_EXEC as u8 == 0 {
                    continue;
                }
                space.map(
                    &unwinder,
                    &UnwindMapping {
                        mapping: FileMapping {
                            start: MemoryAddress(area.start),
                            end: MemoryAddress(area.end),
                            file_offset: FileOffset(area.offset),
                        },
                        module: ModuleRequest {
                            kind: ModuleKind::File,
                            path: &path,
                            build_id: None,
                        },
                    },
                );
            }
        }
        Some(SafePoints {
            pid,
            maps,
            libraries,
            space,
            cache: UnwindCache::default(),
            allocators: HashMap::new(),
        })
    }

    /// Examines a stopped thread, and returns the addresses of its frames, the innermost first.
    ///
    /// # Errors
    /// The reason why it can't load a library now.
    pub fn examine(&mut self, thread: &Borrowed) -> Result<Vec<u64>, Unsafe> {
        let frames = self.frames(thread).ok_or(Unsafe::Unknown)?;
        // The byte before a return address belongs to the call.
        let addresses: Vec<u64> = frames
            .iter()
            .enumerate()
            .map(|(at, frame)| frame.0.wrapping_sub(u64::from(at > 0)))
            .collect();
        if addresses.iter().any(|at| self.libraries.linker.holds(*at)) {
            return Err(Unsafe::Linker);
        }
        if addresses.iter().any(|at| self.is_in_allocator(*at)) {
            return Err(Unsafe::Memory);
        }
        let parts: Vec<Option<&Library>> = addresses
            .iter()
            .map(|at| self.libraries.part_at(*at))
            .collect();
        let mut at = 0;
        while at < parts.len() {
            let run = parts[at..].iter().take_while(|part| part.is_some()).count();
            if run == 0 {
                at += 1;
                continue;
            }
            let outermost = at + run - 1;
            let names = parts[outermost]
                .map(|part| part.names_at(addresses[outermost]))
                .unwrap_or_default();
            // `_start` of the program stands outside of the functions that call `main`.
            let is_beginning = outermost + 2 >= parts.len() && run <= STARTING_FRAMES && at > 0;
            let waits = at == 0 && names.iter().any(|name| WAITING.contains(name));
            if !is_beginning && !waits {
                let name = names.first().copied().unwrap_or_default();
                return Err(Unsafe::Library(name.to_owned()));
            }
            at += run;
        }
        Ok(addresses)
    }

    /// Returns the thread's call stack, the innermost frame first; `None` if it can't be unwound to its end.
    fn frames(&mut self, thread: &Borrowed) -> Option<Vec<MemoryAddress>> {
        let Registers { rip, rsp, rbp, .. } = *thread.registers();
        let mut areas = self.maps.areas.iter();
        let area = areas.find(|area| (area.start..area.end).contains(&rsp));
        // The main thread's stack may have grown since the maps were read.
        let end = match area {
            Some(area) => area.end,
            None => {
                let maps = Maps::read(self.pid).ok()?;
                let mut areas = maps.areas.into_iter();
                areas
                    .find(|area| (area.start..area.end).contains(&rsp))?
                    .end
            }
        };
        let mut stack = vec![0; (end - rsp).min(LARGEST_STACK) as usize];
        thread.memory().read_exact_at(&mut stack, rsp).ok()?;
        let registers = UserRegisters::X86_64 {
            ip: rip,
            sp: rsp,
            bp: rbp,
        };
        let mut frames = Vec::new();
        let ended = self
            .space
            .unwind(&registers, &stack, &mut self.cache, &mut frames);
        (ended == StackEnd::Complete).then_some(frames)
    }

    fn is_in_allocator(&mut self, address: u64) -> bool {
        if let Some(part) = self.libraries.part_at(address) {
            return part.names_at(address).into_iter().any(is_of_allocator);
        }
        let modules = self.maps.modules();
        let module = modules.into_iter().find(|module| {
            let (start, end) = module.range();
            (start..end).contains(&address)
        });
        let Some(module) = module else {
            return false;
        };
        let pid = self.pid;
        let ranges = self
            .allocators
            .entry(module.path.clone())
            .or_insert_with(|| allocator(pid, &module));
        ranges
            .iter()
            .any(|(start, end)| (*start..*end).contains(&address))
    }
}

/// Returns the functions for memory of a module, in memory.
fn allocator(pid: u32, module: &MappedModule) -> AllocatorRanges {
    let read = || {
        let (path, _) = open(pid, module)?;
        let bytes = fs::read(path).ok()?;
        let file = object::File::parse(&*bytes).ok()?;
        let segments = file.segments().map(|segment| {
            let (offset, _) = segment.file_range();
            (offset, segment.address())
        });
        let bias = module.bias(segments)?;
        let functions = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
            .filter(|symbol| symbol.name().is_ok_and(is_of_allocator));
        let at = |address: u64| address.wrapping_add(bias);
        Some(
            functions
                .map(|symbol| (at(symbol.address()), at(symbol.address() + symbol.size())))
                .collect(),
        )
    };
    read().unwrap_or_default()
}
