//! The file that a recording goes to: an older one is kept under another name.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Creates `path`, empty, open for reading and writing, and readable by its owner only: samples may hold copies of a
/// program's memory. A file that was there is renamed to `path` with `.old` behind it, which replaces what had that
/// name. A special file, such as `/dev/null`, is written to as it is.
///
/// # Errors
/// Of the system calls.
pub fn create(path: &Path) -> io::Result<(File, Undo)> {
    let mut replaced = false;
    let mut is_regular = true;
    // Through links: what they lead to is written to, as by any other program.
    if let Ok(found) = fs::metadata(path) {
        if found.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::EISDIR));
        }
        is_regular = found.is_file();
        // An empty file, as mktemp makes, is no recording that should be kept.
        if is_regular && found.len() > 0 {
            fs::rename(path, old(path))?;
            replaced = true;
        }
    }
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    Ok((
        file,
        Undo {
            path: path.to_owned(),
            is_regular,
            replaced,
        },
    ))
}

/// Standard output as a file, to be written from where it stands.
///
/// # Errors
/// Of the system call.
pub fn stdout() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// The way back from a creation.
#[derive(Debug)]
pub struct Undo {
    path: PathBuf,
    is_regular: bool,
    replaced: bool,
}

impl Undo {
    /// Removes the file again and brings the older one back: there is no recording after all. As far as it goes.
    pub fn undo(self) {
        if self.is_regular {
            let _ = fs::remove_file(&self.path);
        }
        if self.replaced {
            let _ = fs::rename(old(&self.path), &self.path);
        }
    }
}

/// The name that an older recording gets.
pub fn old(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".old");
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
            let _ = create(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"");
            fs::write(&path, content).unwrap();
        }
        assert_eq!(fs::read(old(&path)).unwrap(), b"second");
        // An empty file does not push out the one kept.
        fs::write(&path, "").unwrap();
        let _ = create(&path).unwrap();
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
        let (_, undo) = create(&path).unwrap();
        undo.undo();
        assert!(!path.exists());
        fs::write(&path, "kept").unwrap();
        let (_, undo) = create(&path).unwrap();
        undo.undo();
        assert_eq!(fs::read(&path).unwrap(), b"kept");
        assert!(!old(&path).exists());
        create(Path::new("/dev/null")).unwrap().1.undo();
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
