//! Talks to the recorder, and does what it says.

use crate::arch;
use crate::cyg;
use crate::debuggers;
use crate::libc_calls::{self, receive};
use crate::segments;
use crate::session;
use crate::shadow::{self, THREADS};
use crate::sys::{self, Errno};
use crate::unwind;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};
use core::{mem, ptr, slice};
use dioptra_tracelayout::VERSION;
use dioptra_tracelayout::message::{
    Applied, FunctionId, Hello, Next, PRESENCE_SIZE, Patch, Reason, RuntimeAddresses, Step,
    StepKind, Welcome,
};

/// Why a process is not traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The recorder can't be reached, or broke off.
    Recorder(Errno),
    /// The recorder does not want it.
    Refused,
    /// The arena can't be mapped.
    Arena,
    /// Something that the processor lacks.
    Processor(&'static str),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Recorder(errno)
    }
}

/// A connection; closed when dropped.
struct Socket(i32);

impl Drop for Socket {
    fn drop(&mut self) {
        close(self.0);
    }
}

fn close(fd: i32) {
    // SAFETY: a descriptor of ours.
    unsafe { arch::syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

impl Socket {
    /// To the abstract address `name`.
    fn connect(name: &[u8]) -> Result<Socket, Errno> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: numbers only.
        let fd = unsafe {
            arch::syscall(
                libc::SYS_socket,
                [libc::AF_UNIX as usize, kind as usize, 0, 0, 0, 0],
            )
        };
        if fd < 0 {
            return Err(Errno(-fd as i32));
        }
        let socket = Socket(fd as i32);
        let mut address = [0_u8; 110];
        address[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        let Some(place) = address.get_mut(3..3 + name.len()) else {
            return Err(Errno(libc::ENAMETOOLONG));
        };
        place.copy_from_slice(name);
        // SAFETY: the address outlives the call.
        let result = unsafe {
            arch::syscall(
                libc::SYS_connect,
                [
                    socket.0 as usize,
                    address.as_ptr().expose_provenance(),
                    3 + name.len(),
                    0,
                    0,
                    0,
                ],
            )
        };
        if result < 0 {
            return Err(Errno(-result as i32));
        }
        Ok(socket)
    }

    fn send<T: Copy>(&self, message: &T) -> Result<(), Errno> {
        // SAFETY: messages are integers without padding; MSG_NOSIGNAL, since the program may not expect SIGPIPE.
        let sent = unsafe {
            arch::syscall(
                libc::SYS_sendto,
                [
                    self.0 as usize,
                    ptr::from_ref(message).expose_provenance(),
                    mem::size_of::<T>(),
                    libc::MSG_NOSIGNAL as usize,
                    0,
                    0,
                ],
            )
        };
        if sent == mem::size_of::<T>() as isize {
            Ok(())
        } else {
            Err(Errno(if sent < 0 { -sent as i32 } else { libc::EPIPE }))
        }
    }

    /// A message, and the descriptors that came with its first byte.
    fn receive<T: Copy>(&self) -> Result<(T, [i32; 2]), Errno> {
        let mut message = mem::MaybeUninit::<T>::zeroed();
        // SAFETY: zeroed memory of the message's size.
        let bytes = unsafe {
            slice::from_raw_parts_mut(message.as_mut_ptr().cast::<u8>(), mem::size_of::<T>())
        };
        let mut descriptors = [-1; 2];
        let mut used = receive(self.0, bytes, &mut descriptors)?;
        while let Some(rest) = bytes.get_mut(used..).filter(|rest| !rest.is_empty()) {
            used += receive(self.0, rest, &mut [-1; 2])?;
        }
        // SAFETY: messages are integers, for which all bytes are valid.
        Ok((unsafe { message.assume_init() }, descriptors))
    }
}

/// Whether the recorder's socket, whose name ends with the number of its network namespace, is in another one than we.
pub fn is_elsewhere(name: &[u8]) -> bool {
    let digits = name.rsplit(|byte| *byte == b'-').next();
    let recorders = digits.and_then(|digits| str::from_utf8(digits).ok()?.parse::<u64>().ok());
    let ours = sys::inode(c"/proc/self/ns/net");
    matches!((recorders, ours), (Some(recorders), Some(ours)) if recorders != 0 && recorders != ours)
}

/// Connects to the recorder at the abstract address `name`, and does what it says.
///
/// # Errors
/// [`Failure`]
pub fn connect(name: &[u8], reason: Reason) -> Result<(), Failure> {
    // SAFETY: the block of this thread.
    let block = unsafe { &mut *arch::block() };
    let before = core::mem::replace(&mut block.busy, shadow::OWN_WORK);
    let result = talk(name, reason);
    block.busy = before;
    result
}

fn talk(name: &[u8], reason: Reason) -> Result<(), Failure> {
    let socket = Socket::connect(name)?;
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
        let is_present = sys::map_file(presence, PRESENCE_SIZE, true).is_ok();
        close(arena);
        close(presence);
        if !is_present {
            return Err(Failure::Arena);
        }
        let base = mapped.map_err(|_| Failure::Arena)?;
        // SAFETY: just mapped, for good.
        if !unsafe { session::set_arena(base, size) } {
            return Err(Failure::Arena);
        }
    }
    let mut next = Next {
        applied: Applied::Nothing as u32,
        error: 0,
    };
    loop {
        socket.send(&next)?;
        let (step, descriptors) = socket.receive::<Step>()?;
        if step.kind == StepKind::Done as u32 {
            return Ok(());
        }
        let (applied, error) = apply(&step, descriptors);
        for descriptor in descriptors {
            if descriptor >= 0 {
                close(descriptor);
            }
        }
        next = Next {
            applied: applied as u32,
            error: error as u32,
        };
    }
}

fn learn(step: &Step, functions: i32) -> (Applied, i32) {
    let size = step.patches as usize * mem::size_of::<FunctionId>();
    match sys::map_file(functions, size, false) {
        // SAFETY: the recorder has written that many; the bytes are integers.
        Ok(list) => unsafe {
            cyg::learn(slice::from_raw_parts(list.cast(), step.patches as usize));
            sys::unmap(list, size);
            (Applied::Done, 0)
        },
        Err(errno) => (Applied::NoPatch, errno.0),
    }
}

/// How many pools were loaded.
static POOLS: AtomicU32 = AtomicU32::new(0);

/// Room for a pool's path.
const PATH_SIZE: usize = 80;

/// A path of a descriptor: a new one each time, since the dynamic linker knows modules by the paths they were loaded
/// with. The bits of `number` are written with what means nothing in a path.
///
/// It names this process: a debugger opens it too while the pool is loaded, and in its own process the descriptor is
/// something else, perhaps a pipe that it would read from forever.
fn pool_path(path: &mut [u8; PATH_SIZE], number: u32, descriptor: i32) {
    let mut used = 0;
    let mut put = |word: &[u8]| {
        path[used..used + word.len()].copy_from_slice(word);
        used += word.len();
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

fn apply(step: &Step, [pool, patches]: [i32; 2]) -> (Applied, i32) {
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
    // SAFETY: the recorder has written that many; the bytes are integers.
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

/// Writes the patches, which are sorted: pages are made writable for as many of them as lie together.
///
/// # Safety
/// They are right, and no other thread executes what is patched.
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
        let (now, later) = patches.split_at(together);
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
                ptr::with_exposed_provenance_mut::<u8>(patch.address as usize)
                    .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                arch::publish(patch.address, bytes.len() as u64);
            }
            sys::protect(start as usize, size, i32::from(first.protection))?;
        }
        patches = later;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
