//! The few facts of procfs that attaching needs.

use crate::errors::AttachError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Lists the threads of process `pid`, zombies included.
///
/// # Errors
/// [`AttachError::NoTarget`] where there is no such process, [`AttachError::Procfs`] where procfs does not answer.
pub(crate) fn threads(pid: u32) -> Result<Vec<u32>, AttachError> {
    let path = PathBuf::from(format!("/proc/{pid}/task"));
    let failed = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => AttachError::NoTarget { id: pid },
        _ => AttachError::Procfs {
            path: path.clone(),
            source,
        },
    };
    let mut tids = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        // An entry can vanish while the directory is read: a thread that has ended.
        let Ok(entry) = entry else { continue };
        if let Some(tid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        {
            tids.push(tid);
        }
    }
    Ok(tids)
}

/// The state and CPU of a thread, read from its `stat` file, which stays open.
#[derive(Debug)]
pub(crate) struct Whereabouts(File);

impl Whereabouts {
    /// Opens the `stat` file of thread `tid`.
    pub(crate) fn of(tid: u32) -> Option<Whereabouts> {
        // The process's own file would sum up all of its threads.
        let path = format!("/proc/{tid}/task/{tid}/stat");
        File::open(path).ok().map(Whereabouts)
    }

    /// Returns true with the CPU on which the thread ran last if the thread runs or waits for a CPU only; `None` if it has
    /// ended.
    pub(crate) fn now(&self) -> Option<(bool, u32)> {
        let mut bytes = [0; 1024];
        let length = self.0.read_at(&mut bytes, 0).ok()?;
        place_in(bytes.get(..length)?)
    }
}

/// Finds the state and the CPU in a `stat` file.
fn place_in(stat: &[u8]) -> Option<(bool, u32)> {
    // The name in parentheses may hold anything. The state follows it; the CPU is the 36th field after that.
    let behind = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = stat.get(behind..)?.split(|byte| *byte == b' ').skip(1);
    let runs = fields.next()? == b"R";
    let cpu = std::str::from_utf8(fields.nth(35)?).ok()?;
    Some((runs, cpu.trim_end().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_runs_on_a_cpu_on_which_it_may() {
        let own = Whereabouts::of(crate::sys::thread_id()).expect("procfs has it");
        let (runs, cpu) = own.now().expect("procfs has the state");
        assert!(runs && crate::cpus::CpuSet::affinity().contains(cpu));
    }

    #[test]
    fn names_may_hold_anything() {
        let fields: Vec<String> = (4..=52).map(|number| number.to_string()).collect();
        let stat = |state: &str| format!("12 (a) R (b) {state} {}\n", fields.join(" "));
        assert_eq!(place_in(stat("S").as_bytes()), Some((false, 39)));
        assert_eq!(place_in(stat("R").as_bytes()), Some((true, 39)));
        assert_eq!(place_in(b"12 (a) R 1 2"), None);
        assert_eq!(place_in(b""), None);
    }
}
