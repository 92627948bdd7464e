//! The file of a recording. An older file is kept under another name.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Creates a file for the recording `path`: empty, open for reading and writing, and readable by its owner only,
/// since samples may hold copies of a program's memory. Where an older recording has that name, the file gets another
/// name until [`Created::publish`]. A special file, such as `/dev/null`, is written to as it is.
///
/// # Errors
/// The errors of the system calls; [`io::ErrorKind::NotSeekable`] for a pipe, into which no file can be written.
pub fn create(path: &Path) -> io::Result<(File, Created)> {
    let mut written = path.to_owned();
    let mut is_regular = true;
    // `metadata` follows links: a link's target is written to, as by any other program.
    if let Ok(found) = fs::metadata(path) {
        if found.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        is_regular = found.is_file();
        if found.file_type().is_fifo() {
            return Err(io::Error::new(
                io::ErrorKind::NotSeekable,
                "it is a pipe, and a file's head is written last",
            ));
        }
        // An empty file, as mktemp makes it, is no recording to be kept.
        if is_regular && found.len() > 0 {
            written = with_end(path, ".new");
        }
    }
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&written)?;
    Ok((
        file,
        Created {
            path: path.to_owned(),
            written,
            is_removed: is_regular,
        },
    ))
}

/// Returns standard output as a file, to be written from its current position.
///
/// # Errors
/// The error of the system call.
pub fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// A created file, before it is known whether there will be a recording. Dropping it removes the file and leaves
/// older recordings as they were.
#[derive(Debug)]
pub struct Created {
    path: PathBuf,
    /// The name under which it is written.
    written: PathBuf,
    /// Whether a drop removes the file.
    is_removed: bool,
}

impl Created {
    /// Gives the file its name. An older recording of that name is renamed to the name with `.old` behind it, and
    /// replaces a file that had this name.
    ///
    /// # Errors
    /// The errors of renaming. The older recording then has its own name, or the name with `.old`.
    pub fn publish(mut self) -> io::Result<()> {
        self.is_removed = false;
        if self.written == self.path {
            return Ok(());
        }
        fs::rename(&self.path, old(&self.path))?;
        fs::rename(&self.written, &self.path)
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if self.is_removed {
            let _ = fs::remove_file(&self.written);
        }
    }
}

/// Returns the name that an older recording gets.
pub fn old(path: &Path) -> PathBuf {
    with_end(path, ".old")
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_older_recording_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        for content in ["first", "second", "third"] {
            create(&path).unwrap().1.publish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"");
            fs::write(&path, content).unwrap();
        }
        assert_eq!(fs::read(old(&path)).unwrap(), b"second");
        // An empty file does not push out the kept one.
        fs::write(&path, "").unwrap();
        create(&path).unwrap().1.publish().unwrap();
        assert_eq!(fs::read(old(&path)).unwrap(), b"second");
    }

    #[test]
    fn only_its_owner_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        let (file, _) = create(&path).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0);
    }

    #[test]
    fn what_was_created_in_vain_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        drop(create(&path).unwrap());
        assert!(!path.exists());
        fs::write(&path, "kept").unwrap();
        drop(create(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        assert!(!old(&path).exists());
        fs::write(old(&path), "older").unwrap();
        drop(create(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        assert_eq!(fs::read(old(&path)).unwrap(), b"older");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        drop(create(Path::new("/dev/null")).unwrap());
        assert!(Path::new("/dev/null").exists());
    }

    #[test]
    fn a_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            create(folder.path()).unwrap_err().kind(),
            io::ErrorKind::IsADirectory
        );
        assert!(create(Path::new("/dev/null")).is_ok());
    }
}
