//! Programs that forbid themselves system calls (seccomp). A hook that made a forbidden one would end the program.
//!
//! Before the program installs a filter, the runtime executes the filter, as the kernel would, for the system calls
//! that hooks make. If the filter forbids one, the process becomes *quiet*: nothing is recorded any more, and hooks
//! make no system call. If the filter only forbids system calls by which the process talks to its recorder, later
//! modules are not traced.
//!
//! A program that begins under a filter of its starter is not traced at all, unless the filter was seen and found to
//! allow everything.

use crate::chunks::RecordWriter;
use crate::session::MappedArena;
use crate::shadow::{self, ThreadBlock};
use crate::sys;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use dioptra_tracelayout::message::Observed;

/// Not 0 if this process is quiet. [`crate::arch`]'s routines read this, too.
pub static QUIET: AtomicU32 = AtomicU32::new(0);

/// True if this process may not connect to its recorder any more.
static ALONE: AtomicBool = AtomicBool::new(false);

/// The number of filters under which this process runs. All of them are known to allow the runtime's system calls.
static FILTERS: AtomicU32 = AtomicU32::new(0);

/// The largest number of instructions of a filter.
const MOST_INSTRUCTIONS: u32 = 4096;

/// The architecture (`AUDIT_ARCH_…`) that the kernel passes to filters.
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// `SECCOMP_RET_ALLOW`.
const ALLOW: u32 = 0x7fff_0000;
/// `SECCOMP_RET_LOG`.
const LOG: u32 = 0x7ffc_0000;
/// The bits of a filter's result that name the action (`SECCOMP_RET_ACTION_FULL`).
const ACTION: u32 = 0xffff_0000;

/// The system calls that hooks make while they record.
const RECORDING: [i64; 14] = [
    libc::SYS_rt_sigprocmask,
    libc::SYS_sigaltstack,
    libc::SYS_process_vm_readv,
    libc::SYS_futex,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_kill,
    libc::SYS_openat,
    libc::SYS_read,
    libc::SYS_close,
    libc::SYS_clock_gettime,
];

/// The system calls that the runtime makes when modules are loaded, and when a program is executed.
const CONNECTING: [i64; 9] = [
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_sendto,
    libc::SYS_recvmsg,
    libc::SYS_mprotect,
    libc::SYS_newfstatat,
    libc::SYS_faccessat,
    libc::SYS_write,
    libc::SYS_tgkill,
];

/// Returns true if this process is quiet: it records nothing, and the runtime makes no system call.
#[inline]
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed) != 0
}

/// Returns true if this process can't connect to its recorder any more.
pub fn is_alone() -> bool {
    is_quiet() || ALONE.load(Ordering::Relaxed)
}

/// Returns the number of filters that an executed program inherits and that allow the runtime's system calls.
pub fn known_filters() -> u32 {
    FILTERS.load(Ordering::Relaxed)
}

/// Returns true if this process, which begins, runs under more filters than `known`. The others may forbid anything.
pub fn begins_confined(known: u32) -> bool {
    FILTERS.store(known, Ordering::Relaxed);
    let (filters, is_strict) = own_filters();
    is_strict || filters > known
}

/// Returns the number of this process's filters, and true if it is in the strict mode. Reads a file, as the dynamic
/// linker has just done.
fn own_filters() -> (u32, bool) {
    let mut text = [0_u8; 4096];
    let used = sys::read_file(c"/proc/self/status", &mut text);
    let text = text.get(..used).unwrap_or_default();
    let number = |name: &[u8]| {
        let line = text
            .split(|&byte| byte == b'\n')
            .find_map(|line| line.strip_prefix(name))?;
        let digits = line.iter().filter(|byte| byte.is_ascii_digit());
        Some(digits.fold(0_u32, |number, digit| {
            number
                .wrapping_mul(10)
                .wrapping_add(u32::from(digit - b'0'))
        }))
    };
    let mode = number(b"Seccomp:").unwrap_or(0);
    // Kernels before 5.9 do not count them.
    let filters = number(b"Seccomp_filters:").unwrap_or(u32::from(mode == 2));
    (filters, mode == 1)
}

/// The restriction that a call of `prctl` or `syscall` installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Installed {
    /// Only reading, writing and ending are allowed.
    Strict,
    /// The filter that is described at an address.
    Filter(u64),
}

/// Returns the restriction that a call of the C library's function with these arguments installs.
fn installed(function: Observed, arguments: [u64; 4]) -> Option<Installed> {
    let is = |value: u64, number: i64| value as i64 == number;
    let set = |[option, mode, program]: [u64; 3]| {
        // The kernel looks at 32 bits of these arguments at most.
        match (option as i32, mode as u32) {
            (libc::PR_SET_SECCOMP, 1) => Some(Installed::Strict),
            (libc::PR_SET_SECCOMP, 2) => Some(Installed::Filter(program)),
            _ => None,
        }
    };
    let [first, second, third, fourth] = arguments;
    match function {
        Observed::Prctl => set([first, second, third]),
        Observed::Syscall if is(first, libc::SYS_prctl) => set([second, third, fourth]),
        Observed::Syscall if is(first, libc::SYS_seccomp) => match second as u32 {
            0 => Some(Installed::Strict),
            1 => Some(Installed::Filter(fourth)),
            _ => None,
        },
        _ => None,
    }
}

/// Examines a call of a function that may install a filter, before the function does its work.
pub fn observe(
    block: &mut ThreadBlock,
    arena: MappedArena,
    function: Observed,
    arguments: [u64; 4],
) {
    let Some(installed) = installed(function, arguments) else {
        return;
    };
    if is_quiet() {
        return;
    }
    let allowed = match installed {
        Installed::Strict => Some([false; 2]),
        Installed::Filter(program) => allowed(program),
    };
    match allowed {
        // The kernel can't read it either.
        None => {}
        Some([true, true]) => {
            FILTERS.fetch_add(1, Ordering::Relaxed);
        }
        Some([true, false]) => {
            ALONE.store(true, Ordering::Relaxed);
            arena.header().alone.happens(sys::pid());
        }
        Some([false, _]) => {
            arena.header().confined.happens(sys::pid());
            be_quiet(block, arena);
        }
    }
}

/// Ends the recording of this process. The chunks that other threads have begun stay as they are.
pub fn be_quiet(block: &mut ThreadBlock, arena: MappedArena) {
    let _signals = sys::BlockedSignals::new();
    if !shadow::is_dummy(block.record) && block.busy == 0 {
        block.busy = shadow::OWN_WORK;
        // SAFETY: this thread's record; busy keeps hooks away.
        unsafe { RecordWriter::new(block.record, arena).close() };
        block.busy = 0;
    }
    QUIET.store(1, Ordering::SeqCst);
    // A filter may be for all threads.
    sys::wait_for_others();
}

/// Returns whether the filter described at an address (`sock_fprog`) allows [`RECORDING`] and whether it allows
/// [`CONNECTING`]; `None` if the filter can't be read.
fn allowed(description: u64) -> Option<[bool; 2]> {
    let pid = sys::pid();
    let mut words = [0; 2];
    let [count, start] = *sys::read_memory(pid, description, &mut words) else {
        return None;
    };
    let count = u32::from(count as u16);
    // Reads each instruction when it is executed.
    let fetch = |at: u32| {
        if at >= count {
            return None;
        }
        sys::peek(pid, start.wrapping_add(u64::from(at) * 8))
    };
    if count == 0 || count > MOST_INSTRUCTIONS {
        return None;
    }
    fetch(count - 1)?;
    let all = |numbers: &[i64]| numbers.iter().all(|&number| is_allowed(number, fetch));
    Some([all(&RECORDING), all(&CONNECTING)])
}

/// Returns true if a filter is known to allow a system call, whatever its arguments are.
fn is_allowed(number: i64, fetch: impl Fn(u32) -> Option<u64>) -> bool {
    let result = execute([number as u32, ARCHITECTURE], fetch);
    result.is_some_and(|result| matches!(result & ACTION, ALLOW | LOG))
}

/// Executes a filter (classic BPF, `linux/filter.h`), and returns its result. `data` holds the system call's number and
/// the architecture. `None` if an instruction is invalid, or if the filter looks at the call's address or arguments.
fn execute(data: [u32; 2], fetch: impl Fn(u32) -> Option<u64>) -> Option<u32> {
    /// The size of the data that a filter reads (`seccomp_data`), in bytes.
    const SIZE: u32 = 64;
    let (mut a, mut x) = (0_u32, 0_u32);
    let mut memory = [0_u32; 16];
    let mut at = 0_u32;
    // Filters only jump forwards.
    loop {
        let instruction = fetch(at)?;
        at = at.checked_add(1)?;
        let code = instruction as u16;
        let [if_true, if_false] = [(instruction >> 16) as u8, (instruction >> 24) as u8];
        let k = (instruction >> 32) as u32;
        let operand = if code & 0x08 != 0 { x } else { k };
        match code & 0x07 {
            // ld, ldx: a constant, memory, or the size of the data; ld: also the data.
            class @ (0 | 1) => {
                let value = match code & 0xe0 {
                    0x00 => k,
                    0x60 => *memory.get(k as usize)?,
                    0x80 => SIZE,
                    0x20 if class == 0 && k < SIZE && k.is_multiple_of(4) => match k {
                        0 => data[0],
                        4 => data[1],
                        // The instruction's address, and the arguments, which are not known.
                        _ => return None,
                    },
                    _ => return None,
                };
                if class == 0 { a = value } else { x = value }
            }
            2 => *memory.get_mut(k as usize)? = a,
            3 => *memory.get_mut(k as usize)? = x,
            4 => {
                a = match code & 0xf0 {
                    0x00 => a.wrapping_add(operand),
                    0x10 => a.wrapping_sub(operand),
                    0x20 => a.wrapping_mul(operand),
                    0x30 => a.checked_div(operand)?,
                    0x40 => a | operand,
                    0x50 => a & operand,
                    0x60 => a.checked_shl(operand)?,
                    0x70 => a.checked_shr(operand)?,
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ operand,
                    _ => return None,
                }
            }
            5 => {
                let holds = match code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k)?;
                        continue;
                    }
                    0x10 => a == operand,
                    0x20 => a > operand,
                    0x30 => a >= operand,
                    0x40 => a & operand != 0,
                    _ => return None,
                };
                at += u32::from(if holds { if_true } else { if_false });
            }
            6 => return Some(if code & 0x18 == 0x10 { a } else { k }),
            _ => match code & 0xf8 {
                0x00 => x = a,
                0x80 => a = x,
                _ => return None,
            },
        }
    }
}

/// Tests of the interpreter of filters, and of the calls that install filters.
#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn instruction(code: u16, jumps: [u8; 2], k: u32) -> u64 {
        u64::from(code) | u64::from(jumps[0]) << 16 | u64::from(jumps[1]) << 24 | u64::from(k) << 32
    }

    fn run(program: &[u64], number: i64) -> bool {
        is_allowed(number, |at| program.get(at as usize).copied())
    }

    const KILL: u32 = 0x8000_0000;
    const LOAD_NUMBER: u64 = 0x20;

    /// Returns a filter that allows some system calls and kills for all others, as sandboxes do.
    fn only(numbers: &[i64]) -> Vec<u64> {
        let mut program = Vec::from([
            instruction(0x20, [0; 2], 4),
            instruction(0x15, [1, 0], ARCHITECTURE),
            instruction(0x06, [0; 2], KILL),
            LOAD_NUMBER,
        ]);
        for &number in numbers {
            program.push(instruction(0x15, [0, 1], number as u32));
            program.push(instruction(0x06, [0; 2], ALLOW));
        }
        program.push(instruction(0x06, [0; 2], KILL));
        program
    }

    #[test]
    fn filters_are_executed_as_the_kernel_does() {
        let program = only(&[libc::SYS_write, libc::SYS_read]);
        assert!(run(&program, libc::SYS_read) && run(&program, libc::SYS_write));
        assert!(!run(&program, libc::SYS_futex));
        // All but one, by a comparison with a register, behind a jump and memory.
        let program = [
            LOAD_NUMBER,
            instruction(0x02, [0; 2], 3),
            instruction(0x01, [0; 2], libc::SYS_futex as u32),
            instruction(0x05, [0; 2], 1),
            instruction(0x06, [0; 2], KILL),
            instruction(0x60, [0; 2], 3),
            instruction(0x1d, [0, 1], 0),
            instruction(0x06, [0; 2], 0x0005_0001),
            instruction(0x06, [0; 2], LOG),
        ];
        assert!(!run(&program, libc::SYS_futex) && run(&program, libc::SYS_mmap));
        // Arithmetic: even numbers only.
        let program = [
            LOAD_NUMBER,
            instruction(0x54, [0; 2], 1),
            instruction(0x15, [0, 1], 0),
            instruction(0x06, [0; 2], ALLOW),
            instruction(0x06, [0; 2], KILL),
        ];
        assert!(run(&program, 8) && !run(&program, 9));
    }

    #[test]
    fn what_is_not_known_is_not_allowed() {
        // The first argument decides.
        let program = [
            instruction(0x20, [0; 2], 16),
            instruction(0x06, [0; 2], ALLOW),
        ];
        assert!(!run(&program, 0));
        // A filter without an end, a division by 0, no instruction, memory that is not there.
        assert!(!run(&[LOAD_NUMBER], 0));
        assert!(!run(
            &[
                instruction(0x34, [0; 2], 0),
                instruction(0x06, [0; 2], ALLOW)
            ],
            0
        ));
        assert!(!run(&[instruction(0xff, [0; 2], 0)], 0));
        assert!(!run(
            &[
                instruction(0x02, [0; 2], 16),
                instruction(0x06, [0; 2], ALLOW)
            ],
            0
        ));
    }

    #[test]
    fn calls_that_install_filters_are_known() {
        let prctl = |arguments| installed(Observed::Prctl, arguments);
        let option = libc::PR_SET_SECCOMP as u64;
        assert_eq!(prctl([option, 2, 7, 0]), Some(Installed::Filter(7)));
        assert_eq!(prctl([option, 1, 0, 0]), Some(Installed::Strict));
        assert_eq!(prctl([libc::PR_GET_SECCOMP as u64, 2, 7, 0]), None);
        let syscall = |arguments| installed(Observed::Syscall, arguments);
        let seccomp = libc::SYS_seccomp as u64;
        assert_eq!(syscall([seccomp, 1, 0, 9]), Some(Installed::Filter(9)));
        assert_eq!(syscall([seccomp, 0, 0, 0]), Some(Installed::Strict));
        // This call asks whether the kernel knows an action.
        assert_eq!(syscall([seccomp, 2, 0, 9]), None);
        let prctl = libc::SYS_prctl as u64;
        assert_eq!(syscall([prctl, option, 2, 5]), Some(Installed::Filter(5)));
        assert_eq!(syscall([libc::SYS_futex as u64, 1, 0, 9]), None);
    }

    #[test]
    fn this_process_has_no_strict_filters() {
        assert!(!own_filters().1);
    }
}
