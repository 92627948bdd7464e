//! A thread of another process that is stopped and made to call functions.

use super::AttachError;
use crate::serving::stopping::{self, Stop};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use libc::user_regs_struct as Registers;

/// The time in which a thread must stop. A thread that the kernel holds in a disk's or network's work takes longer, and
/// another one is tried.
const PATIENCE: Duration = Duration::from_millis(100);

/// The number of bytes below the stack pointer that code may use without moving the stack pointer (System V ABI).
const RED_ZONE: u64 = 128;

/// A set of registers in the form of the kernel's: general ones.
const NT_PRSTATUS: usize = 1;
/// The state of vector and floating point registers (`xsave`).
const NT_X86_XSTATE: usize = 0x202;

/// The flag bits of the processor that a function must find clear: the direction of string instructions, and single
/// steps.
const CLEARED_FLAGS: u64 = 1 << 10 | 1 << 8;

/// Code that calls a function and tells the result, with the function's address in rax, its arguments in rdi and rsi, and
/// the address of two words in rbx: `1` goes to the first, and the result to the second. Then the thread waits in
/// `pause` until the recorder stops it.
const CALL_CODE: [u8; 22] = [
    0xff, 0xd0, // call rax
    0x48, 0x89, 0x43, 0x08, // mov [rbx + 8], rax
    0xc7, 0x03, 0x01, 0x00, 0x00, 0x00, // mov dword [rbx], 1
    0xb8, 0x22, 0x00, 0x00, 0x00, // mov eax, 34 (pause)
    0x0f, 0x05, // syscall
    0xeb, 0xf7, // jmp to the mov
    0x90,
];

/// The memory in the process that [`Borrowed::call`] needs.
#[derive(Clone, Copy, Debug)]
pub struct CallPage {
    /// The address of the page with the code, which the process can execute.
    pub code: u64,
    /// The address of the page with the result, which the process can write.
    pub data: u64,
}

/// A stopped thread of another process. When this is dropped, the thread goes on where it was.
///
/// Only the thread that made this value can use it, because the kernel takes requests from no other thread.
#[derive(Debug)]
pub struct Borrowed {
    pid: u32,
    tid: u32,
    /// The general registers at the stop.
    registers: Registers,
    /// The vector and floating point registers, read before the first call.
    vectors: Option<Vec<u8>>,
    /// The blocked signals, read before the first call.
    mask: Option<u64>,
    /// A signal that the thread has not received yet because of the stop, or 0.
    signal: i32,
    memory: File,
}

fn registers(tid: u32) -> io::Result<Registers> {
    // SAFETY: zero is a valid value of integers.
    let mut registers: Registers = unsafe { std::mem::zeroed() };
    let mut part = libc::iovec {
        iov_base: (&raw mut registers).cast(),
        iov_len: size_of::<Registers>(),
    };
    let place = (&raw mut part).expose_provenance();
    stopping::request(libc::PTRACE_GETREGSET, tid, NT_PRSTATUS, place)?;
    Ok(registers)
}

fn set_registers(tid: u32, mut registers: Registers) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: (&raw mut registers).cast(),
        iov_len: size_of::<Registers>(),
    };
    let place = (&raw mut part).expose_provenance();
    stopping::request(libc::PTRACE_SETREGSET, tid, NT_PRSTATUS, place)
}

fn vectors(tid: u32) -> io::Result<Vec<u8>> {
    // AMX's tiles take 8 KiB.
    let mut state = vec![0_u8; 1 << 16];
    let mut part = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: state.len(),
    };
    let place = (&raw mut part).expose_provenance();
    stopping::request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, place)?;
    state.truncate(part.iov_len);
    Ok(state)
}

fn set_vectors(tid: u32, state: &mut [u8]) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: state.as_mut_ptr().cast(),
        iov_len: state.len(),
    };
    let place = (&raw mut part).expose_provenance();
    stopping::request(libc::PTRACE_SETREGSET, tid, NT_X86_XSTATE, place)
}

/// Waits until a thread has stopped; returns `None` if it does not in time.
fn wait_for_stop(tid: u32, patience: Duration) -> Option<Stop> {
    let end = Instant::now() + patience;
    let mut rest = Duration::from_micros(10);
    loop {
        if let Some(stop) = stopping::stop_of(tid) {
            return Some(stop);
        }
        if Instant::now() > end {
            return None;
        }
        sleep(rest);
        rest = (rest * 2).min(Duration::from_millis(1));
    }
}

impl Borrowed {
    /// Stops a thread. Returns `None` if it does not stop in time, or has ended.
    ///
    /// The kernel lets a thread that was told to stop too late go on when the calling thread ends.
    ///
    /// # Errors
    /// [`AttachError::Refused`], [`AttachError::Stopped`], and those of reading its state.
    pub fn stop(pid: u32, tid: u32) -> Result<Option<Borrowed>, AttachError> {
        match stopping::seize(tid) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(AttachError::Refused { source: error }),
        }
        let Some(stop) = wait_for_stop(tid, PATIENCE) else {
            return Ok(None);
        };
        let read = || -> io::Result<Borrowed> {
            Ok(Borrowed {
                pid,
                tid,
                registers: registers(tid)?,
                vectors: None,
                mask: None,
                signal: stop.signal,
                memory: File::options()
                    .read(true)
                    .write(true)
                    .open(format!("/proc/{pid}/mem"))?,
            })
        };
        let read = read().map_err(AttachError::at("reading a thread's registers"));
        if read.is_err() || stop.is_groups {
            let _ = stopping::request(libc::PTRACE_DETACH, tid, 0, 0);
        }
        if stop.is_groups {
            return Err(AttachError::Stopped);
        }
        read.map(Some)
    }

    /// Returns the thread's id.
    pub fn tid(&self) -> u32 {
        self.tid
    }

    /// Returns the general registers at the stop.
    pub fn registers(&self) -> &Registers {
        &self.registers
    }

    /// Returns the process's memory.
    pub fn memory(&self) -> &File {
        &self.memory
    }

    /// Reads the rest of the thread's state, and blocks its signals: a handler could leave a call by a jump.
    fn prepare(&mut self) -> io::Result<()> {
        if self.vectors.is_some() {
            return Ok(());
        }
        let vectors = vectors(self.tid)?;
        let mut mask = 0_u64;
        let place = (&raw mut mask).expose_provenance();
        stopping::request(libc::PTRACE_GETSIGMASK, self.tid, size_of::<u64>(), place)?;
        (self.vectors, self.mask) = (Some(vectors), Some(mask));
        self.set_mask(u64::MAX)
    }

    fn set_mask(&self, mut mask: u64) -> io::Result<()> {
        let place = (&raw mut mask).expose_provenance();
        stopping::request(libc::PTRACE_SETSIGMASK, self.tid, size_of::<u64>(), place)
    }

    /// Returns the registers at the stop, changed so that the thread executes other code on its stack. The kernel must
    /// not restart a system call that the stop has interrupted, so its number is taken away.
    fn elsewhere(&self, code: u64) -> Registers {
        let mut registers = self.registers;
        registers.rip = code;
        registers.rsp = (registers.rsp - RED_ZONE) & !0xf;
        registers.orig_rax = u64::MAX;
        registers.eflags &= !CLEARED_FLAGS;
        registers
    }

    /// Lets the thread make a system call, at an address where the process has the instruction for it. Returns its
    /// result, which is negative for an error.
    ///
    /// # Errors
    /// The errors of ptrace; [`AttachError::Lost`].
    pub fn system_call(
        &mut self,
        instruction: u64,
        number: i64,
        arguments: [u64; 6],
    ) -> Result<i64, AttachError> {
        let error = AttachError::at("letting a thread make a system call");
        self.prepare().map_err(&error)?;
        let mut registers = self.elsewhere(instruction);
        registers.rax = number.cast_unsigned();
        [
            registers.rdi,
            registers.rsi,
            registers.rdx,
            registers.r10,
            registers.r8,
            registers.r9,
        ] = arguments;
        set_registers(self.tid, registers).map_err(&error)?;
        // Once to the call's beginning, once to its end.
        for _ in 0..2 {
            stopping::request(libc::PTRACE_SYSCALL, self.tid, 0, 0).map_err(&error)?;
            if wait_for_stop(self.tid, PATIENCE * 10).is_none() {
                return Err(AttachError::Lost("a system call"));
            }
        }
        Ok(self::registers(self.tid).map_err(&error)?.rax.cast_signed())
    }

    /// Writes the code for [`Borrowed::call`] to its page.
    ///
    /// # Errors
    /// The system call's.
    pub fn write_call_code(&self, page: CallPage) -> io::Result<()> {
        self.memory.write_all_at(&CALL_CODE, page.code)
    }

    /// Lets the thread call a function with two arguments, and returns the result. `name` says which function that is.
    ///
    /// # Errors
    /// The errors of ptrace; [`AttachError::Lost`] if the function does not return within `patience`; [`AttachError::Gone`] if
    /// the process ends meanwhile.
    pub fn call(
        &mut self,
        page: CallPage,
        (function, name): (u64, &'static str),
        [first, second]: [u64; 2],
        patience: Duration,
    ) -> Result<u64, AttachError> {
        let error = AttachError::at("letting a thread call a function");
        self.prepare().map_err(&error)?;
        let write = |words: [u64; 2]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            self.memory.write_all_at(&bytes, page.data)
        };
        write([0; 2]).map_err(&error)?;
        let mut registers = self.elsewhere(page.code);
        (registers.rax, registers.rbx) = (function, page.data);
        (registers.rdi, registers.rsi) = (first, second);
        // Nothing below this frame: unwinders stop here.
        registers.rbp = 0;
        set_registers(self.tid, registers).map_err(&error)?;
        stopping::request(libc::PTRACE_CONT, self.tid, 0, 0).map_err(&error)?;
        let end = Instant::now() + patience;
        let mut rest = Duration::from_micros(20);
        let result = loop {
            let mut words = [0; 16];
            if self.memory.read_exact_at(&mut words, page.data).is_err() {
                return Err(AttachError::Gone);
            }
            let (words, _) = words.as_chunks::<8>();
            if let [1, result] = *words
                .iter()
                .map(|word| u64::from_ne_bytes(*word))
                .collect::<Vec<_>>()
            {
                break Ok(result);
            }
            if stopping::is_gone(self.pid, self.tid) {
                return Err(AttachError::Gone);
            }
            if Instant::now() > end {
                break Err(AttachError::Lost(name));
            }
            // A stop signal for the process: it waits for SIGCONT, as it would without the recorder.
            if stopping::stop_of(self.tid).is_some_and(|stop| stop.is_groups) {
                let _ = stopping::request(PTRACE_LISTEN, self.tid, 0, 0);
            }
            sleep(rest);
            rest = (rest * 2).min(Duration::from_millis(2));
        };
        stopping::request(libc::PTRACE_INTERRUPT, self.tid, 0, 0).map_err(&error)?;
        if wait_for_stop(self.tid, PATIENCE * 10).is_none() {
            return Err(AttachError::Lost(name));
        }
        result
    }
}

/// Lets a thread that a stop signal has stopped stay so (`linux/ptrace.h`).
const PTRACE_LISTEN: libc::c_uint = 0x4208;

impl Drop for Borrowed {
    fn drop(&mut self) {
        // A failure means that the thread is gone.
        if let Some(state) = &mut self.vectors {
            let _ = set_vectors(self.tid, state);
            let _ = set_registers(self.tid, self.registers);
        }
        if let Some(mask) = self.mask {
            let _ = self.set_mask(mask);
        }
        let _ = stopping::request(libc::PTRACE_DETACH, self.tid, 0, self.signal as usize);
    }
}
