//! The directory of a trace that begins, and the older trace in its place.

use crate::writer::lock;
use dioptra_tracelayout::directory::{FUNCTIONS, INFO, JOURNAL, NAMES, RECORDS, SWITCHES};
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The file that becomes `info.json`.
pub(crate) const NEW_INFO: &str = ".info.json.new";

/// All files that a trace may have.
const FILES: [&str; 7] = [JOURNAL, FUNCTIONS, NAMES, RECORDS, SWITCHES, INFO, NEW_INFO];

/// The directory of a trace that begins. Unless it is [kept](TentativeDirectory::keep), the older trace comes back
/// when this is dropped: a recording that never began must not cost the trace before it.
#[derive(Debug)]
pub(crate) struct TentativeDirectory {
    folder: PathBuf,
    /// True if the directory did not exist and was made.
    is_made: bool,
    /// True if the trace before was moved to `FOLDER.old`.
    is_moved: bool,
    /// True if the trace before that was moved from `FOLDER.old` to `FOLDER.older`.
    is_older_moved: bool,
    is_ours: bool,
}

impl TentativeDirectory {
    /// Returns the directory `folder`. Nothing is changed yet.
    pub fn of(folder: &Path) -> TentativeDirectory {
        TentativeDirectory {
            folder: folder.to_owned(),
            is_made: false,
            is_moved: false,
            is_older_moved: false,
            is_ours: false,
        }
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut path = self.folder.as_os_str().to_owned();
        path.push(ending);
        PathBuf::from(path)
    }

    /// Makes the directory, empty.
    ///
    /// # Errors
    /// The error, with the path at which it happened.
    pub fn make(&mut self) -> Result<(), (PathBuf, io::Error)> {
        let folder = self.folder.clone();
        let at = |path: &Path| {
            let path = path.to_owned();
            |error| (path, error)
        };
        if folder.symlink_metadata().is_ok() {
            match contents(&folder).map_err(at(&folder))? {
                DirectoryContents::Nothing => {}
                DirectoryContents::Other => {
                    let error = "exists and is no trace";
                    let error = io::Error::new(io::ErrorKind::AlreadyExists, error);
                    return Err((folder, error));
                }
                DirectoryContents::Begun => {
                    let _lock = lock(&folder).map_err(at(&folder))?;
                    remove_files(&folder).map_err(at(&folder))?;
                }
                DirectoryContents::Trace => {
                    // Held until the older trace has been moved.
                    let _lock = lock(&folder).map_err(at(&folder))?;
                    let (old, older) = (self.beside(".old"), self.beside(".older"));
                    if old.join(INFO).exists() {
                        // An earlier recording was killed while it began, or while it removed this directory.
                        if older.exists() && has_only_ours(&older).map_err(at(&older))? {
                            fs::remove_dir_all(&older).map_err(at(&older))?;
                        }
                        fs::rename(&old, &older).map_err(at(&old))?;
                        self.is_older_moved = true;
                    }
                    fs::rename(&folder, &old).map_err(at(&old))?;
                    self.is_moved = true;
                }
            }
        }
        self.is_made = folder.symlink_metadata().is_err();
        make_private(&folder).map_err(at(&folder))?;
        self.is_ours = true;
        Ok(())
    }

    /// Leaves the directory to the new trace. Returns the directory of the trace that was `FOLDER.old` before. The
    /// caller removes that trace; otherwise the next recording does.
    pub fn keep(&mut self) -> Option<PathBuf> {
        let older = self.is_older_moved.then(|| self.beside(".older"));
        (self.is_ours, self.is_moved, self.is_older_moved) = (false, false, false);
        older
    }

    /// Removes the new trace and puts the older one back, unless the directory was kept.
    pub fn abandon(&mut self) {
        // Errors here are not reported, but the error that ended the recording is.
        if self.is_ours {
            let _ = remove_files(&self.folder);
            if self.is_made {
                let _ = fs::remove_dir(&self.folder);
            }
        }
        if self.is_moved {
            let _ = fs::rename(self.beside(".old"), &self.folder);
        }
        if self.is_older_moved {
            let _ = fs::rename(self.beside(".older"), self.beside(".old"));
        }
        (self.is_ours, self.is_moved, self.is_older_moved) = (false, false, false);
    }
}

impl Drop for TentativeDirectory {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Makes a directory for its owner alone, because a trace reveals what a program did (`perf.data` is a file for its
/// owner alone, too). The folders around it are made as usual; an existing folder keeps its mode.
fn make_private(folder: &Path) -> io::Result<()> {
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made,
    }
}

/// Makes or empties a file that its owner alone may read and write.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    let file = options.write(true).create(true).truncate(true);
    file.mode(0o600).open(path)
}

/// The content of a directory.
enum DirectoryContents {
    Nothing,
    Trace,
    /// Files of a recording that ended before it wrote `info.json`.
    Begun,
    Other,
}

/// Returns true if a directory holds nothing but files that traces have.
fn has_only_ours(folder: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if !FILES.iter().any(|file| name == OsStr::new(file)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contents(folder: &Path) -> io::Result<DirectoryContents> {
    let is_empty = fs::read_dir(folder)?.next().is_none();
    Ok(match () {
        () if is_empty => DirectoryContents::Nothing,
        () if folder.join(INFO).exists() => DirectoryContents::Trace,
        // The journal is the first file that a recording makes.
        () if folder.join(JOURNAL).exists() && has_only_ours(folder)? => DirectoryContents::Begun,
        () => DirectoryContents::Other,
    })
}

/// Removes the files of a trace.
fn remove_files(folder: &Path) -> io::Result<()> {
    for name in FILES {
        match fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            done => done?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceWriter;
    use crate::fixture::info;

    #[test]
    fn a_recording_that_never_began_leaves_everything_as_it_was() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("t");
        let old = parent.path().join("t.old");
        let names = || {
            let files = fs::read_dir(parent.path()).unwrap();
            let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
            names.sort();
            names
        };
        drop(TraceWriter::create_tentative(&folder, &info()).unwrap());
        assert!(names().is_empty());
        for text in ["first", "second"] {
            let mut writer = TraceWriter::create(&folder, &info()).unwrap();
            writer.names(text.as_bytes()).unwrap();
        }
        drop(TraceWriter::create_tentative(&folder, &info()).unwrap());
        assert_eq!(names(), ["t", "t.old"]);
        assert_eq!(fs::read(folder.join(NAMES)).unwrap(), b"second");
        assert_eq!(fs::read(old.join(NAMES)).unwrap(), b"first");
        // A directory that can't be written is an error before anything is lost, too.
        let mut broken = TentativeDirectory::of(&folder);
        broken.make().unwrap();
        fs::write(folder.join(RECORDS), "half").unwrap();
        drop(broken);
        assert_eq!(names(), ["t", "t.old"]);
        assert_eq!(fs::read(folder.join(NAMES)).unwrap(), b"second");
        // A recording that was killed while it removed the oldest trace.
        let older = parent.path().join("t.older");
        fs::create_dir(&older).unwrap();
        fs::write(older.join(RECORDS), "").unwrap();
        drop(TraceWriter::create(&folder, &info()).unwrap());
        assert_eq!(names(), ["t", "t.old"]);
        assert_eq!(fs::read(old.join(NAMES)).unwrap(), b"second");
    }

    #[test]
    fn what_a_killed_recording_has_begun_is_taken_over() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("t");
        fs::create_dir(&folder).unwrap();
        for name in [JOURNAL, FUNCTIONS] {
            fs::write(folder.join(name), "").unwrap();
        }
        drop(TraceWriter::create(&folder, &info()).unwrap());
        assert!(folder.join(INFO).exists());
        assert!(!parent.path().join("t.old").exists());
    }

    #[test]
    fn a_trace_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("new/t");
        let mut writer = TraceWriter::create(&folder, &info()).unwrap();
        writer.switches((1, 1), &[]).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().collect();
        assert!(files.len() >= 6);
        for file in files {
            let path = file.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        drop(writer);
        TraceWriter::create(&folder, &info()).unwrap();
        assert_eq!(mode(&parent.path().join("new/t.old")), 0o700);
    }

    #[test]
    fn an_empty_directory_stays() {
        let parent = tempfile::tempdir().unwrap();
        drop(TraceWriter::create_tentative(parent.path(), &info()).unwrap());
        assert!(fs::read_dir(parent.path()).unwrap().next().is_none());
    }
}
