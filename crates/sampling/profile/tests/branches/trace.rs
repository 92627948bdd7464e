//! Every instruction that a program runs between its two marks, by stepping through it with ptrace(2).

use dioptra_testprograms::Skip;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The most steps that a program may take.
const MOST: usize = 4_000_000;

/// The instructions that a program ran between its marks.
pub struct Trace {
    pub pid: u32,
    /// The program's executable mapping: start, length, offset in the file.
    pub mapping: (u64, u64, u64),
    pub path: PathBuf,
    /// Addresses in the file of the instructions in the order in which they ran.
    pub steps: Vec<u64>,
}

/// Steps through a program from its first mark to its second one.
pub fn step_through(program: &Path) -> Result<Trace, Skip> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    // SAFETY: ptrace is a system call and may run between fork and exec; it touches no memory of ours.
    unsafe {
        command.pre_exec(|| check(libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0)));
    }
    let child = command
        .spawn()
        .map_err(|error| Skip::new(format!("ptrace is not permitted: {error}")))?;
    let pid = child.id() as libc::pid_t;
    // The guard kills the program if the test panics.
    let _guard = Guard(child);
    expect_trap(pid, "the exec");
    request(libc::PTRACE_CONT, pid);
    expect_trap(pid, "the first mark");
    let mapping = executable_mapping(pid, program);
    let mut steps = Vec::new();
    loop {
        let address = instruction_pointer(pid);
        if peek(pid, address) & 0xff == 0xcc {
            break;
        }
        let (start, length, offset) = mapping;
        assert!(
            (start..start + length).contains(&address),
            "{address:x} is not the program's code"
        );
        steps.push(address - start + offset);
        assert!(steps.len() < MOST, "the second mark does not come");
        request(libc::PTRACE_SINGLESTEP, pid);
        expect_trap(pid, "a step");
    }
    Ok(Trace {
        pid: pid as u32,
        mapping,
        path: program.to_path_buf(),
        steps,
    })
}

struct Guard(std::process::Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // The program is stopped, so it dies at once.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn request(what: libc::c_uint, pid: libc::pid_t) {
    // SAFETY: these requests take no memory; the process is our own stopped child.
    check(unsafe { libc::ptrace(what, pid, 0, 0) }).expect("a traced child");
}

fn expect_trap(pid: libc::pid_t, what: &str) {
    let mut status = 0;
    // SAFETY: the status is ours, the child too.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid, "{what}");
    assert!(
        libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP,
        "{what}: status {status:x}"
    );
}

fn instruction_pointer(pid: libc::pid_t) -> u64 {
    const OFFSET: usize =
        std::mem::offset_of!(libc::user, regs) + std::mem::offset_of!(libc::user_regs_struct, rip);
    // SAFETY: reads a word of the stopped child's registers.
    unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, pid, OFFSET, 0) as u64 }
}

fn peek(pid: libc::pid_t, address: u64) -> u64 {
    // SAFETY: reads a word of the stopped child's memory, not of ours.
    unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, pid, address, 0) as u64 }
}

fn executable_mapping(pid: libc::pid_t, program: &Path) -> (u64, u64, u64) {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let name = program.to_str().unwrap();
    let line = maps
        .lines()
        .find(|line| line.ends_with(name) && line.contains(" r-xp "))
        .unwrap_or_else(|| panic!("{name} in {maps}"));
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next().unwrap().split_once('-').unwrap();
    let offset = fields.nth(1).unwrap();
    (hex(start), hex(end) - hex(start), hex(offset))
}

/// An instruction as objdump prints it.
pub struct Listed {
    pub length: u64,
    pub mnemonic: String,
    pub operands: String,
    pub function: String,
}

/// Returns objdump's listing of a program, with addresses that are offsets in the file.
pub fn listing(program: &Path) -> BTreeMap<u64, Listed> {
    let output = Command::new("objdump")
        .args(["-d", "--wide", "--no-show-raw-insn"])
        .arg(program)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut list: BTreeMap<u64, Listed> = BTreeMap::new();
    let mut function = String::new();
    let mut last = None;
    for line in text.lines() {
        if let Some((address, name)) = line.split_once(" <")
            && let Some(name) = name.strip_suffix(">:")
        {
            function = name.to_owned();
            end_at(&mut list, last, u64::from_str_radix(address, 16).unwrap());
            last = None;
            continue;
        }
        let Some((address, rest)) = line.trim_start().split_once(":\t") else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else {
            continue;
        };
        end_at(&mut list, last, address);
        let mut words = rest.split_whitespace().filter(|word| *word != "notrack");
        let mnemonic = words.next().unwrap_or_default().to_owned();
        list.insert(
            address,
            Listed {
                length: 0,
                mnemonic,
                operands: words.next().unwrap_or_default().to_owned(),
                function: function.clone(),
            },
        );
        last = Some(address);
    }
    list
}

/// Ends the instruction at `last` at `address`.
fn end_at(list: &mut BTreeMap<u64, Listed>, last: Option<u64>, address: u64) {
    if let Some(listed) = last.and_then(|last| list.get_mut(&last)) {
        listed.length = address - last.unwrap_or(0);
    }
}
