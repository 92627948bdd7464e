//! Recordings by perf, to compare with.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::machine::{need_sampling, need_tool};
use crate::skip::Skip;

/// A recording in a folder of its own, which goes with it.
#[derive(Debug)]
pub struct Recorded {
    /// The folder; also perf's home, where it keeps copies of what it recorded.
    pub folder: TempDir,
    /// The `perf.data` file in it.
    pub file: PathBuf,
}

/// Lets perf record a command that runs in the new folder: `perf record -q OPTIONS -- COMMAND`.
///
/// # Errors
/// [`Skip`] where perf is missing or sampling is not allowed.
///
/// # Panics
/// If there is no recording afterwards. The command's own status, which perf passes on, does not matter.
pub fn perf_record<S: AsRef<OsStr>>(options: &[&str], command: &[S]) -> Result<Recorded, Skip> {
    let perf = need_tool("perf")?;
    need_sampling()?;
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => panic!("no folder for a recording: {error}"),
    };
    let file = folder.path().join("perf.data");
    let output = Command::new(perf)
        .args(["record", "-q"])
        .args(options)
        .arg("-o")
        .arg(&file)
        .arg("--")
        .args(command)
        .env("HOME", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output();
    match output {
        Ok(output) if !file.exists() => panic!(
            "perf record wrote nothing: {}",
            String::from_utf8_lossy(&output.stderr)
        ),
        Ok(_) => Ok(Recorded { folder, file }),
        Err(error) => panic!("perf record: {error}"),
    }
}
