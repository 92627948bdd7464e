//! The file beside a recording that keeps its bursts while it runs, and becomes a section of the recording at the end.
//!
//! So a recording of any length takes little memory, and one whose recorder was killed leaves its bursts behind.

use crate::section::SIDE_FILE;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file to which bytes are appended, and which is read again at the end.
#[derive(Debug)]
pub(super) struct SideFile {
    file: File,
    /// The path; `None` for a file that has been unlinked.
    path: Option<PathBuf>,
    /// Whether the file stays if the recorder is killed.
    is_worth_keeping: bool,
}

/// Returns the name of the side file of the recording `output`.
pub(super) fn beside(output: &Path) -> PathBuf {
    let mut name = OsString::from(output);
    name.push(SIDE_FILE);
    PathBuf::from(name)
}

impl SideFile {
    /// Creates the file beside `output`; for a recording into a pipe (`None`), an unlinked one.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn create(output: Option<&Path>) -> io::Result<SideFile> {
        let unseen =
            || std::env::temp_dir().join(format!("dioptra-windows-{}", std::process::id()));
        let path = output.map_or_else(unseen, beside);
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)?;
        let path = if output.is_some() {
            Some(path)
        } else {
            fs::remove_file(&path)?;
            None
        };
        Ok(SideFile {
            file,
            path,
            is_worth_keeping: false,
        })
    }

    /// Keeps the file in its folder when this is dropped, until [`SideFile::remove`].
    pub fn keep(&mut self) {
        self.is_worth_keeping = true;
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Reads all bytes that were appended.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file.rewind()?;
        self.file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Removes the file.
    pub fn remove(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for SideFile {
    fn drop(&mut self) {
        if let (Some(path), false) = (&self.path, self.is_worth_keeping) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_is_there_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("perf.data");
        let mut side = SideFile::create(Some(&output)).unwrap();
        side.append(b"one").unwrap();
        side.append(b"two").unwrap();
        side.keep();
        assert_eq!(fs::read(beside(&output)).unwrap(), b"onetwo");
        assert_eq!(side.read().unwrap(), b"onetwo");
        side.remove();
        assert!(!beside(&output).exists());
        drop(SideFile::create(Some(&output)).unwrap());
        assert!(!beside(&output).exists(), "nothing was worth keeping");
        let mut unseen = SideFile::create(None).unwrap();
        unseen.append(b"x").unwrap();
        assert_eq!(unseen.read().unwrap(), b"x");
    }
}
