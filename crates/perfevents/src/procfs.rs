//! The few facts of procfs that attaching needs.

use crate::errors::AttachError;
use std::io;
use std::path::PathBuf;

/// The threads of process `pid`, zombies included.
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

/// The CPU on which thread `tid` ran last.
pub(crate) fn last_cpu(tid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // The name in parentheses may hold anything. The CPU is the 39th field, the 37th behind it.
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(36)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_cpu_is_one_on_which_the_caller_may_run() {
        let cpu = last_cpu(crate::sys::thread_id()).expect("procfs tells it");
        assert!(crate::cpus::CpuSet::affinity().contains(cpu));
    }
}
