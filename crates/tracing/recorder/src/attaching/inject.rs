//! Brings the runtime into a running process.

use super::borrowed::{Borrowed, CallPage};
use super::detach::tracer_code;
use super::libraries::Libraries;
use super::safe_point::SafePoints;
use super::{AttachError, Attached, LoadedRuntime, Recorder, Unsafe};
use crate::program::runtime_file;
use crate::serving::maps::{Maps, page_size};
use crate::serving::stopping::{self, StoppedThreads};
use dioptra_processes::procfs;
use dioptra_tracelayout::message::{ATTACH, AttachResult, RELEASE, RUNTIME, SOCKET, UNLOAD};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSymbol};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The time for which the recorder waits until a thread comes to a safe place.
const PATIENCE: Duration = Duration::from_secs(5);

/// The time for `dlopen`.
const LOADING: Duration = Duration::from_secs(10);

/// The time for the conversation with the recorder, in which all modules are analysed.
const CONNECTING: Duration = Duration::from_secs(120);

/// The offsets in the data page of the texts; the first two words are the calls' results.
const SOCKET_AT: u64 = 64;
const RUNTIME_AT: u64 = 512;
const PATH_AT: u64 = 3072;

/// The longest path of the runtime that has room.
const LONGEST_PATH: usize = (PATH_AT - RUNTIME_AT) as usize - RUNTIME.len() - 2;

/// Lets a process load the runtime and connect to the recorder.
///
/// # Errors
/// [`AttachError`]. The process goes on as before, except after [`AttachError::Lost`] and later failures, which leave the
/// runtime in it.
pub fn inject(pid: u32, recorder: Recorder<'_>) -> Result<Attached, AttachError> {
    if pid == std::process::id() {
        return Err(AttachError::Ourselves);
    }
    let status =
        fs::read_to_string(format!("/proc/{pid}/status")).map_err(|_| AttachError::Gone)?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        value.trim().parse::<u32>().ok()
    };
    if let Some(tracer) = field("TracerPid:").filter(|tracer| *tracer != 0) {
        let name = procfs::comm(tracer, tracer).unwrap_or_default();
        return Err(AttachError::Debugged(format!(
            "{} (process {tracer})",
            String::from_utf8_lossy(&name)
        )));
    }
    if field("Seccomp:").is_some_and(|mode| mode != 0) {
        return Err(AttachError::Confined);
    }
    let maps = Maps::read(pid).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => AttachError::Refused { source: error },
        _ => AttachError::at("reading its memory map")(error),
    })?;
    let is_preloaded = |path: &[u8]| {
        path.rsplit(|byte| *byte == b'/')
            .next()
            .is_some_and(|name| name.starts_with(b"trace-runtime-"))
    };
    if maps.areas.iter().any(|area| is_preloaded(&area.path)) {
        return Err(AttachError::Traced);
    }
    if maps.areas.is_empty() {
        // A zombie: the process has ended, and its parent has not waited for it.
        return Err(AttachError::Gone);
    }
    let libraries = Libraries::read(pid, &maps).ok_or(AttachError::NoLibrary)?;
    let (mut thread, _) = safe_thread(pid, &maps, &libraries)?;
    let follows_programs = can_load(pid, recorder.runtime);
    let runtime = load(pid, &mut thread, &libraries, recorder, follows_programs)?;
    Ok(Attached {
        follows_programs,
        runtime,
    })
}

/// Stops a thread of a process that can load a library now. Returns the addresses of its frames, too.
fn safe_thread(
    pid: u32,
    maps: &Maps,
    libraries: &Libraries,
) -> Result<(Borrowed, Vec<u64>), AttachError> {
    let mut points = SafePoints::new(pid, maps, libraries).ok_or(AttachError::Unsupported)?;
    let end = Instant::now() + PATIENCE;
    let mut rest = Duration::from_micros(200);
    let mut why = Unsafe::Unstopped;
    loop {
        let threads = procfs::threads(pid);
        let alive = |tid: &&u32| !stopping::is_gone(pid, **tid);
        if !threads.iter().any(|tid| alive(&tid)) {
            return Err(AttachError::Gone);
        }
        for tid in threads.iter().filter(alive) {
            match Borrowed::stop(pid, *tid) {
                Ok(Some(thread)) => match points.examine(&thread) {
                    Ok(frames) => return Ok((thread, frames)),
                    Err(reason) => why = reason,
                },
                Ok(None) => {}
                // Threads that work for the kernel (`io_uring`) can't be stopped.
                Err(AttachError::Refused { .. }) if *tid != pid => {}
                Err(error) => return Err(error),
            }
            if Instant::now() > end {
                return Err(AttachError::NoSafePoint {
                    threads: threads.len(),
                    seconds: PATIENCE.as_secs(),
                    why,
                });
            }
        }
        sleep(rest);
        rest = (rest * 2).min(Duration::from_millis(5));
    }
}

/// Returns whether a process sees the runtime's file and may read it.
fn can_load(pid: u32, runtime: &Path) -> bool {
    let seen = format!("/proc/{pid}/root{}", runtime.display());
    let (Ok(ours), Ok(seen), Ok(process)) = (
        fs::metadata(runtime),
        fs::metadata(seen),
        fs::metadata(format!("/proc/{pid}")),
    ) else {
        return false;
    };
    let is_same = (ours.dev(), ours.ino()) == (seen.dev(), seen.ino());
    is_same
        && runtime.as_os_str().len() <= LONGEST_PATH
        && (process.uid() == ours.uid() || process.uid() == 0)
}

fn load(
    pid: u32,
    thread: &mut Borrowed,
    libraries: &Libraries,
    recorder: Recorder<'_>,
    follows_programs: bool,
) -> Result<LoadedRuntime, AttachError> {
    let instruction = system_call_instruction(thread, libraries)?;
    let call = |thread: &mut Borrowed, number: i64, arguments, what: &'static str| {
        checked(thread.system_call(instruction, number, arguments)?, what)
    };
    let page = page_size();
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let memory = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let code = call(
        thread,
        libc::SYS_mmap,
        [0, 2 * page, writable, memory, u64::MAX, 0],
        "letting it map memory",
    )?;
    let pages = CallPage {
        code,
        data: code + page,
    };
    thread
        .write_call_code(pages)
        .map_err(AttachError::at("writing to its memory"))?;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    call(
        thread,
        libc::SYS_mprotect,
        [code, page, executable, 0, 0, 0],
        "letting it make memory executable, which SELinux or systemd's MemoryDenyWriteExecute= forbid",
    )?;
    let put = |thread: &Borrowed, at: u64, text: &str| {
        let bytes = [text.as_bytes(), b"\0"].concat();
        thread
            .memory()
            .write_all_at(&bytes, pages.data + at)
            .map_err(AttachError::at("writing to its memory"))
    };
    put(thread, SOCKET_AT, &format!("{SOCKET}={}", recorder.socket))?;
    if follows_programs {
        let text = format!("{RUNTIME}={}", recorder.runtime.display());
        put(thread, RUNTIME_AT, &text)?;
    }
    put(thread, PATH_AT, "dioptra-runtime")?;
    let descriptor = call(
        thread,
        libc::SYS_memfd_create,
        [
            pages.data + PATH_AT,
            u64::from(libc::MFD_CLOEXEC),
            0,
            0,
            0,
            0,
        ],
        "letting it make a file in memory",
    )?;
    File::options()
        .write(true)
        .open(format!("/proc/{pid}/fd/{descriptor}"))
        .and_then(|mut file| file.write_all(runtime_file::BYTES))
        .map_err(AttachError::at(
            "writing the tracer's runtime to its memory",
        ))?;
    put(thread, PATH_AT, &path_of(pid, descriptor, recorder.socket))?;
    let loaded = open_runtime(thread, libraries, pages);
    let close = [descriptor, 0, 0, 0, 0, 0];
    call(thread, libc::SYS_close, close, "letting it close a file")?;
    let (handle, bias) = loaded?;
    let attach = bias + offset_of(ATTACH)?;
    let runtime = if follows_programs {
        pages.data + RUNTIME_AT
    } else {
        0
    };
    let result = thread.call(
        pages,
        (attach, "connecting to the recorder"),
        [pages.data + SOCKET_AT, runtime],
        CONNECTING,
    )?;
    // A C function's `int`: the upper half of the register means nothing.
    let result = AttachResult::ALL
        .into_iter()
        .find(|known| *known as i32 == result as i32);
    match result {
        Some(AttachResult::Connected) => Ok(LoadedRuntime {
            handle,
            bias,
            pages: code,
        }),
        Some(AttachResult::OtherLibrary) => Err(AttachError::NoLibrary),
        Some(AttachResult::Confined) => Err(AttachError::Confined),
        Some(AttachResult::Processor) => Err(AttachError::NotConnected(
            "the tracer needs a feature that its processor lacks",
        )),
        Some(AttachResult::Elsewhere) => Err(AttachError::NotConnected(
            "it runs in a network namespace of its own, from which the recorder cannot be reached; run dioptra there (nsenter -n)",
        )),
        Some(AttachResult::NoMemory) => Err(AttachError::NotConnected(
            "it could not map the memory for its records",
        )),
        Some(AttachResult::Refused) => Err(AttachError::NotConnected(
            "the recorder refused it: it runs in a pid namespace of its own, or as another user",
        )),
        Some(AttachResult::NoAnswer) | None => Err(AttachError::NotConnected(
            "it could not talk to the recorder",
        )),
    }
}

/// Returns the result of a system call, or the kernel's error.
fn checked(result: i64, what: &'static str) -> Result<u64, AttachError> {
    match result {
        -4095..0 => Err(AttachError::System {
            what,
            source: io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(0)),
        }),
        _ => Ok(result.cast_unsigned()),
    }
}

/// Unloads the runtime from a process whose code is its own again. Returns false if calls are open that will return
/// through the tracer's code, so that the runtime has to stay. `thread_block` is the offset of a thread's block from its
/// thread pointer.
///
/// # Errors
/// [`AttachError`]
pub fn unload(pid: u32, runtime: LoadedRuntime, thread_block: i64) -> Result<bool, AttachError> {
    let maps = Maps::read(pid).map_err(AttachError::at("reading its memory map"))?;
    let libraries = Libraries::read(pid, &maps).ok_or(AttachError::NoLibrary)?;
    let (mut thread, frames) = safe_thread(pid, &maps, &libraries)?;
    let instruction = system_call_instruction(&thread, &libraries)?;
    let page = page_size();
    let pages = CallPage {
        code: runtime.pages,
        data: runtime.pages + page,
    };
    let release = runtime.bias + offset_of(RELEASE)?;
    let kept = thread.call(pages, (release, "ending its records"), [0; 2], LOADING)?;
    if kept as i32 != 0 {
        return Ok(false);
    }
    // Threads may still execute a hook. Nothing leads there any more, so they come out.
    let tracer = tracer_code(&maps, thread_block);
    if frames.iter().any(|frame| tracer.holds(*frame)) {
        return Ok(false);
    }
    let are_out =
        StoppedThreads::stop(pid, thread.tid()).and_then(|mut stopped| stopped.come_out(&tracer));
    if !are_out.is_ok_and(|out| out) {
        return Ok(false);
    }
    let unload = runtime.bias + offset_of(UNLOAD)?;
    thread.call(pages, (unload, "unloading the tracer"), [0; 2], LOADING)?;
    let dlclose = libraries.dlclose().ok_or(AttachError::NoLibrary)?;
    let arguments = [runtime.handle, 0];
    thread.call(pages, (dlclose, "dlclose"), arguments, LOADING)?;
    let arguments = [runtime.pages, 2 * page, 0, 0, 0, 0];
    let unmapped = thread.system_call(instruction, libc::SYS_munmap, arguments)?;
    checked(unmapped, "letting it unmap memory")?;
    Ok(true)
}

/// Lets the thread load the runtime, and returns the handle and the load bias.
fn open_runtime(
    thread: &mut Borrowed,
    libraries: &Libraries,
    pages: CallPage,
) -> Result<(u64, u64), AttachError> {
    let (dlopen, flags) = libraries.dlopen().ok_or(AttachError::NoLibrary)?;
    let arguments = [pages.data + PATH_AT, flags];
    let handle = thread.call(pages, (dlopen, "dlopen"), arguments, LOADING)?;
    if handle != 0 {
        // A handle is the module's description (`struct link_map` of `link.h`), which begins with the load bias.
        let mut bias = [0; 8];
        return match thread.memory().read_exact_at(&mut bias, handle) {
            Ok(()) => Ok((handle, u64::from_ne_bytes(bias))),
            Err(error) => Err(AttachError::at("reading its memory")(error)),
        };
    }
    let mut text = vec![0; 512];
    if let Some(dlerror) = libraries.dlerror() {
        let at = thread.call(pages, (dlerror, "dlerror"), [0; 2], LOADING)?;
        let read = thread.memory().read_at(&mut text, at).unwrap_or(0);
        text.truncate(read);
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    Err(AttachError::NotLoaded(
        String::from_utf8_lossy(text).into_owned(),
    ))
}

/// Returns a path of the process's descriptor that no module was loaded by, because the dynamic linker recognises
/// modules by their paths: bits of the socket's name, which is random, are written as parts that mean nothing in a
/// path. The path names the process, because a debugger opens it too, in its own process.
fn path_of(pid: u32, descriptor: u64, socket: &str) -> String {
    let digits = socket.bytes().filter(u8::is_ascii_hexdigit).take(32);
    let fill: String = digits
        .map(|byte| if byte % 2 == 0 { "/" } else { "./" })
        .collect();
    format!("/proc/{pid}/fd/{fill}{descriptor}")
}

/// Returns the address of a function in the runtime's file.
fn offset_of(name: &str) -> Result<u64, AttachError> {
    let file = ElfFile64::<object::Endianness>::parse(runtime_file::BYTES)
        .map_err(|error| AttachError::NotLoaded(error.to_string()))?;
    let mut symbols = file.dynamic_symbols();
    let symbol = symbols.find(|symbol| symbol.name() == Ok(name));
    let symbol = symbol.ok_or(AttachError::Unsupported)?;
    Ok(symbol.address())
}

/// Returns the address of an instruction `syscall` in the C library.
fn system_call_instruction(thread: &Borrowed, libraries: &Libraries) -> Result<u64, AttachError> {
    const INSTRUCTION: [u8; 2] = [0x0f, 0x05];
    for name in ["syscall", "getpid", "write", "read"] {
        let Some((start, end)) = libraries.c.extent(name) else {
            continue;
        };
        let mut code = vec![0; (end - start) as usize];
        if thread.memory().read_exact_at(&mut code, start).is_err() {
            continue;
        }
        if let Some(at) = code.windows(2).position(|bytes| bytes == INSTRUCTION) {
            return Ok(start + at as u64);
        }
    }
    Err(AttachError::NoLibrary)
}
