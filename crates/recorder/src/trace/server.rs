//! Answers traced processes.

use super::clock::TraceClock;
use super::counters::{Counters, how};
use super::maps::{MappedModule, Maps};
use super::memory::ArenaMemory;
use super::plan::{ModulePlan, Planner, Prepared, SampledFunction, plan};
use super::select::Gating;
use super::x86_64::hot::HookOptions;
use crate::procfs;
use dioptra_tracedata::{
    ClockPair, JournalEntry, Mapping, ProcessCause, SampledFunctions, WriteError, Writer,
};
use dioptra_tracelayout::VERSION;
use dioptra_tracelayout::message::{Applied, Hello, Next, Reason, Step, StepKind, Welcome};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the threads of a recording share.
#[derive(Debug)]
pub struct Shared {
    /// Where records come from.
    pub arena: ArenaMemory,
    /// What records' times are read from.
    pub clock: TraceClock,
    /// Both clocks at the start.
    pub start: ClockPair,
    /// The runtime's path.
    pub runtime: PathBuf,
    /// The rest, one at a time.
    pub state: Mutex<State>,
}

/// A module in a process: where it begins, and its file.
pub type Planned = (u64, (String, u64));

/// What changes.
#[derive(Debug)]
pub struct State {
    /// The trace.
    pub writer: Writer,
    /// Modules.
    pub planner: Planner,
    /// Processes that have connected.
    pub processes: HashSet<u32>,
    /// Processes that have executed another program, and the first stream that may be the new one's: nobody fills the
    /// chunks of earlier ones any more.
    pub executed: Vec<(u32, u32)>,
    /// What has been done in each process.
    pub planned: HashMap<u32, HashSet<Planned>>,
    /// What is counted of sampled functions.
    pub counters: Counters,
    /// How many have connected at all.
    pub connected: u64,
    /// The first thing that went wrong.
    pub failure: Option<WriteError>,
    told: HashSet<String>,
}

impl State {
    /// Of a recording that begins.
    pub fn new(writer: Writer, planner: Planner) -> State {
        State {
            writer,
            planner,
            processes: HashSet::new(),
            executed: Vec::new(),
            planned: HashMap::new(),
            counters: Counters::default(),
            connected: 0,
            failure: None,
            told: HashSet::new(),
        }
    }

    /// Writes a journal entry, and remembers if that fails.
    pub fn journal(&mut self, entry: &JournalEntry) {
        if let Err(error) = self.writer.journal(entry) {
            self.failure.get_or_insert(error);
        }
    }

    /// Tells something once.
    pub fn note(&mut self, text: String) {
        if self.told.insert(text.clone()) {
            self.journal(&JournalEntry::Note {
                time: monotonic(),
                text,
            });
        }
    }

    /// What was told.
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.told.iter().cloned().collect();
        notes.sort();
        notes
    }
}

impl Shared {
    /// The state; what a thread that panicked has left is whole.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// A socket, and the name that processes find it by.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    /// The name.
    pub name: String,
}

impl Listener {
    /// A new one, with a name that cannot be guessed.
    ///
    /// # Errors
    /// Of the system calls.
    pub fn new() -> io::Result<Listener> {
        let mut random = [0_u8; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let name = format!("dioptra-{:032x}", u128::from_ne_bytes(random));
        let address = SocketAddr::from_abstract_name(name.as_bytes())?;
        Ok(Listener {
            listener: UnixListener::bind_addr(&address)?,
            name,
        })
    }

    /// Answers, each process in a thread of its own, until the end is announced by [`Listener::end`].
    pub fn serve(&self, shared: &Arc<Shared>) {
        while let Ok((stream, _)) = self.listener.accept() {
            if shared
                .arena
                .header()
                .stop
                .load(std::sync::atomic::Ordering::Relaxed)
                != 0
            {
                return;
            }
            let shared = Arc::clone(shared);
            std::thread::spawn(move || {
                if let Err(error) = answer(&stream, &shared) {
                    shared.state().note(format!(
                        "a process that was to be traced broke off: {error}"
                    ));
                }
            });
        }
    }

    /// Lets [`Listener::serve`] return, after `stop` was set in the arena.
    pub fn end(&self) {
        if let Ok(address) = SocketAddr::from_abstract_name(self.name.as_bytes()) {
            let _ = UnixStream::connect_addr(&address);
        }
    }
}

/// The process and the user at the other end, as this process calls them.
fn peer(stream: &UnixStream) -> io::Result<(u32, u32)> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: 0,
        gid: 0,
    };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the structure and its size outlive the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut size,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((peer.pid.unsigned_abs(), peer.uid))
}

fn answer(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (pid, user) = peer(stream)?;
    let hello: Hello = receive(stream)?;
    // SAFETY: the call has no arguments and can't fail.
    let us = unsafe { libc::geteuid() };
    let is_ours = user == us || us == 0;
    // In another pid namespace the ids in chunks would be others' here.
    let same_ids = hello.pid == pid;
    let refused = hello.version != u32::from(VERSION) || !is_ours || !same_ids;
    let is_start = hello.reason == Reason::Start as u32;
    if refused && is_start {
        let why = if same_ids {
            "it belongs to another user, or to another version of dioptra"
        } else {
            "it runs in a pid namespace of its own"
        };
        shared
            .state()
            .note(format!("process {pid} is not traced: {why}"));
    }
    let welcome = Welcome {
        version: u32::from(VERSION),
        refused: u32::from(refused),
        arena_size: shared.arena.size() as u64,
        pid,
        reserved: 0,
    };
    if refused || !is_start {
        send(stream, &welcome, &[])?;
    } else {
        send(stream, &welcome, &[shared.arena.file().as_raw_fd()])?;
    }
    if refused {
        return Ok(());
    }
    // It has mapped the arena now: what is free from here on stays so, as far as it is up to the runtime.
    let _: Next = receive(stream)?;
    for planned in plans(pid, &hello, shared)? {
        carry_out(stream, pid, &hello, planned, shared)?;
    }
    let done = Step {
        kind: StepKind::Done as u32,
        patches: 0,
        pool_address: 0,
        pool_size: 0,
    };
    send(stream, &done, &[])
}

/// A module of a process, and what is to be done there.
struct PlannedModule {
    module: MappedModule,
    prepared: Arc<Prepared>,
    plan: ModulePlan,
}

/// Lets the process do what is planned for a module.
fn carry_out(
    stream: &UnixStream,
    pid: u32,
    hello: &Hello,
    planned: PlannedModule,
    shared: &Shared,
) -> io::Result<()> {
    /// How often a place near the module is looked for: other threads may take it before the process does.
    const TRIES: u32 = 4;
    let path = &planned.module.path;
    let mut plan_now = planned.plan;
    for attempt in 1.. {
        if plan_now.patches.is_empty() {
            break;
        }
        let pool = memory_file(&plan_now.pool)?;
        let patches = memory_file(bytes_of_slice(&plan_now.patches))?;
        let step = Step {
            kind: StepKind::Module as u32,
            patches: plan_now.patches.len() as u32,
            pool_address: plan_now.pool_address,
            pool_size: plan_now.pool_size,
        };
        send(stream, &step, &[pool.as_raw_fd(), patches.as_raw_fd()])?;
        let next: Next = receive(stream)?;
        if next.applied == Applied::Misplaced as u32 && attempt < TRIES {
            let maps = Maps::read(pid)?;
            let hooks = hook_options(shared.state().planner.gating(), shared);
            let again = plan(
                &planned.prepared,
                &planned.module,
                &maps,
                hello.addresses,
                &hooks,
            );
            if let Ok(Some(again)) = again {
                plan_now = again;
                continue;
            }
        }
        applied(&next, pid, path, shared);
        break;
    }
    if !plan_now.functions.is_empty() {
        let functions = memory_file(bytes_of_slice(&plan_now.functions))?;
        let step = Step {
            kind: StepKind::Functions as u32,
            patches: plan_now.functions.len() as u32,
            pool_address: 0,
            pool_size: 0,
        };
        let descriptor = functions.as_raw_fd();
        send(stream, &step, &[descriptor, descriptor])?;
        applied(&receive(stream)?, pid, path, shared);
    }
    Ok(())
}

/// A process image begins.
fn begin(state: &mut State, pid: u32, time: u64, program: &Path, shared: &Shared) {
    state.connected += 1;
    state.planned.remove(&pid);
    if !state.processes.insert(pid) {
        let first = shared
            .arena
            .header()
            .next_stream
            .load(std::sync::atomic::Ordering::Relaxed);
        state.executed.push((pid, first));
    }
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    state.journal(&JournalEntry::Process {
        time,
        pid,
        parent: procfs::parents(pid).map_or(0, |parents| parents.parent),
        cause: ProcessCause::Exec,
        executable: program.to_string_lossy().into_owned(),
        arguments: arguments
            .split(|&byte| byte == 0)
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .filter(|word| !word.is_empty())
            .collect(),
    });
}

/// Says so if a step went wrong.
fn applied(next: &Next, pid: u32, path: &Path, shared: &Shared) {
    if next.applied == Applied::Done as u32 {
        return;
    }
    let why = match next.applied {
        n if n == Applied::NoPool as u32 => "the tracer's code could not be loaded",
        n if n == Applied::Misplaced as u32 => {
            "the tracer's code was not loaded where it has to be"
        }
        _ => "its code could not be made writable",
    };
    let error = match next.error {
        0 => String::new(),
        errno => format!(" ({})", io::Error::from_raw_os_error(errno.cast_signed())),
    };
    shared.state().note(format!(
        "process {pid}: {} is not traced: {why}{error}",
        path.display()
    ));
}

fn plans(pid: u32, hello: &Hello, shared: &Shared) -> io::Result<Vec<PlannedModule>> {
    let mut maps = Maps::read(pid)?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let mut guard = shared.state();
    let state = &mut *guard;
    let time = monotonic();
    let is_start = hello.reason == Reason::Start as u32;
    if is_start {
        begin(state, pid, time, &program, shared);
    } else if !state.planned.contains_key(&pid) {
        // A forked child has what its parent had.
        let parent = procfs::parents(pid).map_or(0, |parents| parents.parent);
        let inherited = state.planned.get(&parent).cloned().unwrap_or_default();
        state.planned.insert(pid, inherited);
    }
    let modules = maps.modules();
    let planned = state.planned.entry(pid).or_default();
    let present: HashSet<Planned> = modules
        .iter()
        .map(|module| (module.range().0, module.file.clone()))
        .collect();
    let gone: Vec<u64> = planned
        .iter()
        .filter(|known| !present.contains(known))
        .map(|(start, _)| *start)
        .collect();
    planned.retain(|known| present.contains(known));
    for start in gone {
        state.journal(&JournalEntry::Unmapping { time, pid, start });
    }
    let hooks = hook_options(state.planner.gating(), shared);
    let mut plans = Vec::new();
    for module in modules {
        if is_ours(&module.path, &shared.runtime) {
            continue;
        }
        let key = (module.range().0, module.file.clone());
        if !state.planned.entry(pid).or_default().insert(key) {
            continue;
        }
        let is_program = module.path == program;
        let prepared = state
            .planner
            .prepare(pid, &module, is_program, &mut state.writer)
            .map_err(io::Error::other)?;
        for note in state.planner.take_notes() {
            state.note(note);
        }
        let sampled = state.planner.take_sampled();
        if !sampled.is_empty() {
            let rate = clock_rate(shared);
            let ticks = |nanoseconds| (nanoseconds as f64 * rate).round().max(1.0) as u64;
            state.counters.add(&sampled, &shared.arena, ticks);
            for entry in sampled_functions(&sampled) {
                state.journal(&entry);
            }
        }
        for area in &module.areas {
            if area.protection & libc::PROT_EXEC as u8 != 0 {
                state.journal(&JournalEntry::Mapping(Mapping {
                    time,
                    pid,
                    module: prepared.as_ref().and_then(|prepared| prepared.number),
                    path: module.path.to_string_lossy().into_owned(),
                    start: area.start,
                    end: area.end,
                    offset: area.offset,
                }));
            }
        }
        let Some(prepared) = prepared else {
            continue;
        };
        match plan(&prepared, &module, &maps, hello.addresses, &hooks) {
            Ok(Some(plan)) => {
                maps.take(plan.pool_address, plan.pool_size);
                plans.push(PlannedModule {
                    module,
                    prepared,
                    plan,
                });
            }
            Ok(None) => {}
            Err(error) => state.note(format!(
                "process {pid}: {} is not traced: {error}",
                module.path.display()
            )),
        }
    }
    Ok(plans)
}

/// Ticks of the clock, unshifted, in a nanosecond.
fn clock_rate(shared: &Shared) -> f64 {
    let now = clock_pair_later(shared);
    let ticks = now.ticks.saturating_sub(shared.start.ticks);
    let time = now.monotonic.saturating_sub(shared.start.monotonic);
    ticks as f64 / time.max(1) as f64
}

/// Both clocks, long enough after the start to compare them.
fn clock_pair_later(shared: &Shared) -> ClockPair {
    let now = shared.clock.pair();
    if now.monotonic - shared.start.monotonic >= 1_000_000 {
        return now;
    }
    std::thread::sleep(Duration::from_millis(1));
    shared.clock.pair()
}

/// Says how functions are sampled: one entry for all that are sampled alike.
fn sampled_functions(functions: &[SampledFunction]) -> Vec<JournalEntry> {
    let mut alike: BTreeMap<(String, bool), Vec<u32>> = BTreeMap::new();
    for function in functions {
        let key = (how(&function.sampling), function.tree);
        alike.entry(key).or_default().push(function.function);
    }
    let entry = |((how, tree), functions)| {
        JournalEntry::Sampled(SampledFunctions {
            how,
            tree,
            functions,
        })
    };
    alike.into_iter().map(entry).collect()
}

/// What hooks do, in units of the records' clock.
fn hook_options(gating: Gating, shared: &Shared) -> HookOptions {
    let now = match gating.at_least {
        Some(_) => clock_pair_later(shared),
        None => shared.clock.pair(),
    };
    let ticks = u128::from(now.ticks.saturating_sub(shared.start.ticks));
    let time = u128::from(now.monotonic.saturating_sub(shared.start.monotonic)).max(1);
    let at_least = gating.at_least.map(|nanoseconds| {
        // A little less: readers, who know the clock better, decide about what is near.
        let exact = (u128::from(nanoseconds) * ticks / time) >> shared.clock.shift();
        u64::try_from(exact - exact / 1000)
            .unwrap_or(u64::MAX)
            .saturating_sub(2)
    });
    HookOptions {
        shift: shared.clock.shift(),
        hides: gating.hides(),
        levels: gating.levels,
        at_least,
        samples: gating.samples,
        other_clock: shared.clock != TraceClock::Tsc,
    }
}

/// The runtime itself, and pools.
fn is_ours(path: &Path, runtime: &Path) -> bool {
    path == runtime || path.as_os_str().as_bytes().starts_with(b"/memfd:")
}

fn memory_file(bytes: &[u8]) -> io::Result<File> {
    // SAFETY: the name outlives the call; the descriptor is checked and ours.
    let mut file = unsafe {
        let fd = libc::memfd_create(c"dioptra".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        File::from(OwnedFd::from_raw_fd(fd))
    };
    file.write_all(bytes)?;
    Ok(file)
}

fn bytes_of<T: Copy>(message: &T) -> &[u8] {
    bytes_of_slice(std::slice::from_ref(message))
}

fn bytes_of_slice<T: Copy>(messages: &[T]) -> &[u8] {
    // SAFETY: messages are `repr(C)` structures of integers without padding.
    unsafe { std::slice::from_raw_parts(messages.as_ptr().cast(), size_of_val(messages)) }
}

fn from_bytes<T: Copy>(read: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<T> {
    let mut message = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: zeroed memory of the message's size.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut(message.as_mut_ptr().cast(), size_of::<T>()) };
    read(bytes)?;
    // SAFETY: messages are structures of integers, for which all bytes are valid.
    Ok(unsafe { message.assume_init() })
}

fn receive<T: Copy>(mut stream: &UnixStream) -> io::Result<T> {
    from_bytes(|bytes| stream.read_exact(bytes))
}

/// Sends a message, and descriptors with its first byte.
fn send<T: Copy>(stream: &UnixStream, message: &T, descriptors: &[i32]) -> io::Result<()> {
    #[repr(C, align(8))]
    struct Control([u8; 64]);
    let bytes = bytes_of(message);
    let mut control = Control([0; 64]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: zero is a valid value of all its fields; buffers outlive the call; the control buffer is large enough for
    // the two descriptors that are sent at most.
    let sent = unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !descriptors.is_empty() {
            let size = size_of_val(descriptors) as u32;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(size) as usize;
            let first = libc::CMSG_FIRSTHDR(&raw const header);
            (*first).cmsg_level = libc::SOL_SOCKET;
            (*first).cmsg_type = libc::SCM_RIGHTS;
            (*first).cmsg_len = libc::CMSG_LEN(size) as usize;
            libc::CMSG_DATA(first)
                .cast::<i32>()
                .copy_from_nonoverlapping(descriptors.as_ptr(), descriptors.len());
        }
        libc::sendmsg(stream.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL)
    };
    match sent {
        -1 => Err(io::Error::last_os_error()),
        n if n as usize == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
