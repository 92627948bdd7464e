//! The abilities and limits of the machine that runs a test.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::limit::Limit;
use crate::skip::Skip;

/// The user and group `nobody` and `nogroup`.
const NOBODY: u32 = 65534;

/// The repository's root folder, as it was when this crate was built.
pub fn repository_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // crates/testprograms lies two folders below.
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// A file or folder of the inputs kept beside the repository (`../shared/data/NAME`), if it is there.
pub fn shared_data(name: &str) -> Option<PathBuf> {
    let path = repository_root().parent()?.join("shared/data").join(name);
    path.exists().then_some(path)
}

/// Returns the path that [`shared_data`] finds, for tests that need it.
///
/// # Errors
/// [`Skip`] if it is not there.
pub fn need_shared_data(name: &str) -> Result<PathBuf, Skip> {
    shared_data(name).ok_or_else(|| {
        if Limit::NoSharedData.holds() {
            Skip::for_limit(Limit::NoSharedData)
        } else {
            Skip::new(format!("../shared/data/{name} is not there"))
        }
    })
}

/// The path of an executable found on `PATH`.
pub fn tool(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return is_executable(&path).then_some(path);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|p| is_executable(p))
}

/// The path of a tool that a test needs.
///
/// # Errors
/// [`Skip`] if it is not on `PATH`, or if it is `perf` and does not run (some distributions install a script
/// that looks for the kernel's own).
pub fn need_tool(name: &str) -> Result<PathBuf, Skip> {
    let path = tool(name).ok_or_else(|| Skip::new(format!("{name} is not installed")))?;
    if name == "perf" {
        let runs = Command::new(&path)
            .arg("--version")
            .stdin(Stdio::null())
            .output();
        if !runs.is_ok_and(|o| o.status.success()) {
            return Err(Skip::new(format!("{} does not run here", path.display())));
        }
    }
    Ok(path)
}

/// Whether this process has the effective user id 0.
pub fn is_root() -> bool {
    // SAFETY: geteuid takes nothing, changes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Sends a signal to a process. Debian's smallest system has no `kill` command.
///
/// # Errors
/// The system's error, if there is no such process or it is another user's.
pub fn send_signal(pid: u32, signal: i32) -> std::io::Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::kill(pid.cast_signed(), signal) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// For tests that only root can run.
///
/// # Errors
/// [`Skip`] if this process isn't root.
pub fn need_root() -> Result<(), Skip> {
    if is_root() {
        Ok(())
    } else {
        Err(Skip::new("needs root"))
    }
}

/// The value of `/proc/sys/kernel/perf_event_paranoid`; `None` where the kernel has no perf events or the
/// file cannot be read.
pub fn paranoid() -> Option<i32> {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// For tests that sample: opens a user-space `cpu-clock` on this thread, the least that sampling needs.
///
/// # Errors
/// [`Skip`] with the system's error if that is refused (seccomp, a paranoid level of 3, no perf events).
pub fn need_sampling() -> Result<(), Skip> {
    const CPU_CLOCK: u64 = 0;
    open_event(perf_type::SOFTWARE, CPU_CLOCK, None)
        .map_err(|error| Skip::new(format!("perf_event_open is refused: {error}")))
}

/// Whether the kernel gives this user a hardware counter of cycles.
pub fn has_cycle_counter() -> bool {
    const CPU_CYCLES: u64 = 0;
    open_event(perf_type::HARDWARE, CPU_CYCLES, None).is_ok()
}

/// Whether the kernel gives this user records of branches.
pub fn has_branch_records() -> bool {
    const CPU_CYCLES: u64 = 0;
    const USER_AND_ANY: u64 = 1 | 1 << 3;
    open_event(perf_type::HARDWARE, CPU_CYCLES, Some(USER_AND_ANY)).is_ok()
}

/// `perf_type_id`.
mod perf_type {
    pub const HARDWARE: u32 = 0;
    pub const SOFTWARE: u32 = 1;
}

/// Opens an event of this thread in user space, with records of such branches, and closes it.
fn open_event(kind: u32, config: u64, branches: Option<u64>) -> io::Result<()> {
    // struct perf_event_attr as of its third version; the fields left out of it here are zero.
    #[repr(C)]
    struct Attr {
        kind: u32,
        size: u32,
        config: u64,
        sample_period: u64,
        sample_type: u64,
        read_format: u64,
        flags: u64,
        rest: [u64; 3],
        branch_sample_type: u64,
    }
    const SAMPLE_BRANCH_STACK: u64 = 1 << 11;
    const EXCLUDE_KERNEL_AND_HV: u64 = 1 << 5 | 1 << 6;
    const FLAG_FD_CLOEXEC: libc::c_ulong = 8;
    let attr = Attr {
        kind,
        size: size_of::<Attr>() as u32,
        config,
        sample_period: 1_000_000,
        sample_type: branches.map_or(0, |_| SAMPLE_BRANCH_STACK),
        read_format: 0,
        flags: EXCLUDE_KERNEL_AND_HV,
        rest: [0; 3],
        branch_sample_type: branches.unwrap_or(0),
    };
    let (this_thread, any_cpu, no_group): (libc::pid_t, libc::c_int, libc::c_int) = (0, -1, -1);
    // SAFETY: `attr` holds as many bytes as its size field names and outlives the call; a descriptor that
    // comes back is ours alone to close.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attr,
            this_thread,
            any_cpu,
            no_group,
            FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above returned this descriptor (which fits an int), and nobody else knows it.
    unsafe { libc::close(fd as libc::c_int) };
    Ok(())
}

/// A command that runs as `nobody`, without groups or capabilities, from the root folder; the start for tests of
/// what unprivileged users can do. Locked memory counts for that user as a whole, over all tests that run at once.
///
/// # Errors
/// [`Skip`] if this process isn't root, or if `nobody` could not reach the program (a folder closed to others).
pub fn as_nobody(program: impl AsRef<OsStr>) -> Result<Command, Skip> {
    let program = program.as_ref();
    if !is_root() {
        return Err(Skip::new("only root can become nobody"));
    }
    let path = tool(&program.to_string_lossy())
        .ok_or_else(|| Skip::new(format!("{} is not installed", program.to_string_lossy())))?;
    let real = path
        .canonicalize()
        .map_err(|e| Skip::new(format!("{}: {e}", path.display())))?;
    if let Some(closed) = closed_folder(&real) {
        // A program built here lies below the repository, whose place the user chose.
        return Err(if repository_root().starts_with(closed) {
            Skip::for_limit(Limit::ClosedFolder)
        } else {
            Skip::new(format!("nobody may not enter {}", closed.display()))
        });
    }
    let mut command = Command::new(path);
    // Changing from root to another user clears all capabilities; the standard library drops the groups.
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    Ok(command)
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Returns the folder on a path, or the path itself, that others may not enter.
pub fn closed_folder(path: &Path) -> Option<&Path> {
    path.ancestors().find(|part| !open_to_others(part))
}

fn open_to_others(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|m| m.permissions().mode() & 0o001 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::or_skip;

    #[test]
    fn root_of_the_repository_holds_the_programs() {
        assert!(repository_root().join("tests/programs/shares.c").is_file());
    }

    #[test]
    fn tools_are_found_on_the_path_only() {
        assert!(tool("sh").is_some_and(|p| p.is_absolute()));
        assert_eq!(tool("no-such-tool-anywhere"), None);
        assert_eq!(
            need_tool("no-such-tool-anywhere").map_err(|s| s.to_string()),
            Err("no-such-tool-anywhere is not installed".into())
        );
    }

    #[test]
    fn nobody_has_no_privileges() {
        let output = or_skip!(as_nobody("cat"))
            .arg("/proc/self/status")
            .output()
            .unwrap();
        let status = String::from_utf8(output.stdout).unwrap();
        let field = |name: &str| {
            let line = status.lines().find(|l| l.starts_with(name)).unwrap();
            line[name.len() + 1..]
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(field("Uid"), "65534 65534 65534 65534");
        assert_eq!(field("Gid"), "65534 65534 65534 65534");
        assert_eq!(field("Groups"), "");
        for set in ["CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(u64::from_str_radix(&field(set), 16), Ok(0), "{set}");
        }
    }
}
