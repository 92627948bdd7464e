//! The conversation with the recorder, and the steps that it asks for.

use crate::arch;
use crate::cyg;
use crate::debuggers;
use crate::libc_calls;
use crate::linker;
use crate::segments;
use crate::session;
use crate::shadow::{self, THREADS};
use crate::socket::{Socket, close};
use crate::sys::{self, Errno};
use crate::unwind;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::{mem, ptr, slice};
use dioptra_tracelayout::VERSION;
use dioptra_tracelayout::message::{
    Applied, Hello, InstrumentedFunction, PRESENCE_SIZE, Patch, Reason, RuntimeAddresses,
    SetupStep, StepKind, StepRequest, Welcome,
};

/// The reason why a process is not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The recorder can't be reached, or broke the conversation off.
    Recorder(Errno),
    /// The recorder refuses the process.
    Refused,
    /// The arena can't be mapped.
    Arena,
    /// The processor lacks this feature.
    Processor(&'static str),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Recorder(errno)
    }
}

/// Returns true if the recorder's socket is in another network namespace than this process. The socket's name ends
/// with the number of its namespace.
pub fn is_elsewhere(name: &[u8]) -> bool {
    let digits = name.rsplit(|byte| *byte == b'-').next();
    let recorders = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse::<u64>().ok());
    let ours = sys::inode(c"/proc/self/ns/net");
    matches!((recorders, ours), (Some(recorders), Some(ours)) if recorders != 0 && recorders != ours)
}

/// Connects to the recorder at the abstract address `name` and carries out its steps.
///
/// # Errors
/// [`Failure`]
pub fn connect(name: &[u8], reason: Reason) -> Result<(), Failure> {
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    // No handler may run code that is just being patched, nor interrupt a system call.
    let signals = sys::BlockedSignals::new();
    let before = core::mem::replace(&mut block.busy, shadow::OWN_WORK);
    let result = talk(name, reason, &signals);
    match result {
        Ok(()) => linker::told(),
        Err(_) => linker::miss(),
    }
    block.busy = before;
    if let (Err(Failure::Recorder(Errno(libc::ETIMEDOUT))), Some(arena)) =
        (result, session::arena())
    {
        let unanswered = &arena.header().unanswered;
        unanswered.fetch_add(1, Ordering::Relaxed);
    }
    result
}

fn talk(name: &[u8], reason: Reason, signals: &sys::BlockedSignals) -> Result<(), Failure> {
    let mut socket = Socket::connect(name, signals)?;
    let addresses = RuntimeAddresses {
        thread_block: arch::block_offset(),
        threads: THREADS.as_ptr().expose_provenance() as u64,
        spans: segments::SPANS.as_ptr().expose_provenance() as u64,
        personality: unwind::personality as *const () as u64,
        enter_slow: arch::enter_slow_address(),
        exit_slow: arch::exit_slow_address(),
        execve: crate::exec::execve as *const () as u64,
        observe: arch::observe_address(),
    };
    socket.send(&Hello {
        version: u32::from(VERSION),
        reason: reason as u32,
        pid: sys::pid(),
        tid: sys::tid(),
        addresses,
    })?;
    let (welcome, descriptors) = socket.receive::<Welcome>()?;
    if welcome.version != u32::from(VERSION) || welcome.refused != 0 {
        return Err(Failure::Refused);
    }
    if reason == Reason::Start {
        let size = welcome.arena_size as usize;
        let [arena, presence] = descriptors;
        let mapped = sys::map_file(arena, size, true);
        let present = sys::map_file(presence, PRESENCE_SIZE, true);
        close(arena);
        close(presence);
        session::set_presence(present.map_err(|_| Failure::Arena)?);
        let base = mapped.map_err(|_| Failure::Arena)?;
        // SAFETY: just mapped, for good.
        if !unsafe { session::set_arena(base, size) } {
            return Err(Failure::Arena);
        }
    }
    let mut next = StepRequest {
        applied: Applied::Nothing as u32,
        error: 0,
    };
    loop {
        socket.send(&next)?;
        let (step, descriptors) = socket.receive::<SetupStep>()?;
        if step.kind == StepKind::Done as u32 {
            return Ok(());
        }
        let (applied, error) = apply(&step, descriptors);
        for descriptor in descriptors {
            if descriptor >= 0 {
                close(descriptor);
            }
        }
        next = StepRequest {
            applied: applied as u32,
            error: error as u32,
        };
    }
}

fn learn(step: &SetupStep, functions: i32) -> (Applied, i32) {
    let size = step.patches as usize * mem::size_of::<InstrumentedFunction>();
    match sys::map_file(functions, size, false) {
        // SAFETY: the recorder has written that many; any bytes are valid integers.
        Ok(list) => unsafe {
            let learned = cyg::learn(slice::from_raw_parts(list.cast(), step.patches as usize));
            sys::unmap(list, size);
            match learned {
                Ok(()) => (Applied::Done, 0),
                Err(errno) => (Applied::NoMemory, errno.0),
            }
        },
        Err(errno) => (Applied::NoPatch, errno.0),
    }
}

/// The number of pools that were loaded.
static POOLS: AtomicU32 = AtomicU32::new(0);

/// The size of the buffer for a pool's path in bytes.
const PATH_SIZE: usize = 80;

/// Writes a path of a descriptor, a new one each time, because the dynamic linker recognises modules by the paths
/// they were loaded with. The bits of `number` are written as parts that mean nothing in a path.
///
/// The path names this process. A debugger opens the path too while the pool is loaded, and in the debugger's own
/// process the descriptor is something else, perhaps a pipe that it would read from forever.
fn pool_path(path: &mut [u8; PATH_SIZE], number: u32, descriptor: i32) {
    // The last byte stays 0. A longer path is cut off, and then leads nowhere.
    let mut rest = path.iter_mut().take(PATH_SIZE - 1);
    let mut put = |word: &[u8]| {
        // In this order `zip` takes no byte of the rest when the word ends.
        for (from, to) in word.iter().zip(rest.by_ref()) {
            *to = *from;
        }
    };
    let mut digits = [0; 10];
    put(b"/proc/");
    put(sys::decimal(&mut digits, sys::pid()));
    put(b"/fd/");
    for bit in 0..16 {
        put(if number >> bit & 1 == 1 { b"./" } else { b"/" });
    }
    put(sys::decimal(&mut digits, descriptor.unsigned_abs()));
}

fn apply(step: &SetupStep, [pool, patches]: [i32; 2]) -> (Applied, i32) {
    if step.kind == StepKind::Functions as u32 {
        return learn(step, patches);
    }
    if step.pool_size > 0 {
        let mut path = [0; PATH_SIZE];
        pool_path(&mut path, POOLS.fetch_add(1, Ordering::Relaxed), pool);
        let path = CStr::from_bytes_until_nul(&path).unwrap_or_default();
        if !libc_calls::load(path) {
            return (Applied::NoPool, 0);
        }
        const ELF: u64 = u32::from_le_bytes(*b"\x7fELF") as u64;
        if sys::peek(sys::pid(), step.pool_address).is_none_or(|word| word & 0xffff_ffff != ELF) {
            return (Applied::Misplaced, 0);
        }
        debuggers::tell(step.pool_address, step.pool_size);
    }
    let size = step.patches as usize * mem::size_of::<Patch>();
    if size == 0 {
        return (Applied::Done, 0);
    }
    let list = match sys::map_file(patches, size, false) {
        Ok(list) => list,
        Err(errno) => return (Applied::NoPatch, errno.0),
    };
    // SAFETY: the recorder has written that many; any bytes are valid integers.
    let result = unsafe {
        let result = patch(slice::from_raw_parts(
            list.cast::<Patch>(),
            step.patches as usize,
        ));
        sys::unmap(list, size);
        result
    };
    match result {
        Ok(()) => (Applied::Done, 0),
        Err(errno) => (Applied::NoPatch, errno.0),
    }
}

/// Writes the patches, which are sorted. Pages are made writable for all patches that lie together. The pages stay
/// executable, because threads run other functions there.
///
/// # Safety
/// The patches are right, and no other thread executes the code that they replace, unless a patch is one instruction
/// within 8 aligned bytes.
unsafe fn patch(mut patches: &[Patch]) -> Result<(), Errno> {
    let page = sys::page_size() as u64;
    let pages = |patch: &Patch| {
        (
            patch.address & !(page - 1),
            (patch.address + u64::from(patch.length)).next_multiple_of(page),
        )
    };
    while let Some(first) = patches.first() {
        let (start, mut end) = pages(first);
        let together = patches
            .iter()
            .take_while(|patch| {
                let (from, to) = pages(patch);
                let near = from <= end && patch.protection == first.protection;
                if near {
                    end = end.max(to);
                }
                near
            })
            .count();
        let Some((now, later)) = patches.split_at_checked(together) else {
            return Ok(());
        };
        let size = (end - start) as usize;
        let writable = i32::from(first.protection) | libc::PROT_WRITE;
        // SAFETY: the caller's promise; the protection is put back.
        unsafe {
            sys::protect(start as usize, size, writable)?;
            for patch in now {
                let bytes = patch
                    .bytes
                    .get(..usize::from(patch.length))
                    .unwrap_or_default();
                write(patch.address, bytes);
                arch::publish(patch.address, bytes.len() as u64);
            }
            sys::protect(start as usize, size, i32::from(first.protection))?;
        }
        patches = later;
    }
    Ok(())
}

/// Writes bytes, in one store if they lie within 8 aligned bytes.
///
/// # Safety
/// The bytes may be written there, and no other thread writes there.
unsafe fn write(address: u64, bytes: &[u8]) {
    let within = (address % 8) as usize;
    let first = ptr::with_exposed_provenance_mut::<u8>(address as usize);
    let word = first.wrapping_sub(within).cast::<u64>();
    // SAFETY: the caller's promise; a word does not reach into another page.
    unsafe {
        if within + bytes.len() > size_of::<u64>() {
            first.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            return;
        }
        let mut now = word.read_volatile().to_ne_bytes();
        for (place, byte) in now.iter_mut().skip(within).zip(bytes) {
            *place = *byte;
        }
        AtomicU64::from_ptr(word).store(u64::from_ne_bytes(now), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_where_they_belong() {
        for at in 0..8 {
            for size in [1, 4, 5, 8, 16] {
                let mut memory = [0x1111_1111_1111_1111_u64; 5];
                let patch: std::vec::Vec<u8> = (1..=size).collect();
                let start = memory.as_mut_ptr().cast::<u8>().wrapping_add(8 + at);
                // SAFETY: inside of the memory.
                unsafe { write(start.expose_provenance() as u64, &patch) };
                let bytes: std::vec::Vec<u8> =
                    memory.iter().flat_map(|word| word.to_ne_bytes()).collect();
                let end = 8 + at + usize::from(size);
                assert_eq!(bytes[8 + at..end], patch);
                let others = bytes[..8 + at].iter().chain(&bytes[end..]);
                assert!(others.copied().all(|byte| byte == 0x11), "{at} {size}");
            }
        }
    }

    #[test]
    fn paths_of_pools_name_the_process_and_differ() {
        let path = |number, descriptor| {
            let mut path = [0; PATH_SIZE];
            pool_path(&mut path, number, descriptor);
            let text = CStr::from_bytes_until_nul(&path).unwrap();
            std::string::String::from(text.to_str().unwrap())
        };
        let all = [
            path(0, 0),
            path(0, 12),
            path(5, 7),
            path(u32::MAX, i32::MAX),
        ];
        for (text, descriptor) in all.iter().zip([0, 12, 7, i32::MAX]) {
            let start = std::format!("/proc/{}/fd/", std::process::id());
            let rest = text.strip_prefix(&start).unwrap();
            assert_eq!(
                rest.trim_start_matches(['/', '.']),
                std::format!("{descriptor}")
            );
        }
        assert_ne!(path(1, 7), path(2, 7));
    }
}
