//! The text of source files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use thiserror::Error;

/// The size in bytes of the largest file that is read; larger ones are no source.
const MOST_BYTES: u64 = 16 << 20;

/// The folders in which source files are looked for.
#[derive(Clone, Debug, Default)]
pub struct SourceFiles {
    /// The folder below which recorded paths are looked for first.
    pub symfs: Option<PathBuf>,
    /// Beginnings of recorded paths, and their replacements; the first that fits is used.
    pub renamed: Vec<(String, String)>,
}

/// A source file.
#[derive(Clone, Debug, Default)]
pub struct SourceText {
    /// The path at which it was found.
    pub path: PathBuf,
    /// Its lines, with their tabs.
    pub lines: Vec<String>,
    /// The time of its last change.
    pub modified: Option<SystemTime>,
}

/// A source file that can't be read.
#[derive(Debug, Error)]
#[error("{}: {cause}", path.display())]
pub struct SourceError {
    /// The path at which it was looked for first.
    pub path: PathBuf,
    /// The reason.
    pub cause: SourceCause,
}

/// The reason why a source file can't be read.
#[derive(Debug, Error)]
pub enum SourceCause {
    /// A folder, a pipe or a device has its name.
    #[error("is no file")]
    NotAFile,
    /// The file is larger than source files are.
    #[error("is larger than {} MiB", limit >> 20)]
    TooLarge {
        /// The size of the largest file that is read, in bytes.
        limit: u64,
    },
    /// The system did not read it.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl SourceText {
    /// Returns a line by its number, which counts from 1.
    pub fn line(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.lines.get(index).map(String::as_str)
    }
}

impl SourceFiles {
    /// Returns the path at which a recorded file should lie, and another at which it may lie.
    fn candidates(&self, recorded: &str) -> (PathBuf, Option<PathBuf>) {
        let renamed = self.renamed.iter().find_map(|(old, new)| {
            let rest = recorded.strip_prefix(old.as_str())?;
            // `/src=/here` is not about `/src2`.
            let whole = old.ends_with('/') || rest.is_empty() || rest.starts_with('/');
            whole.then(|| {
                if old.ends_with('/') && !new.ends_with('/') {
                    format!("{new}/{rest}")
                } else {
                    format!("{new}{rest}")
                }
            })
        });
        // The user's own replacement is believed: no other path is tried.
        if let Some(renamed) = renamed {
            return (PathBuf::from(renamed), None);
        }
        let path = Path::new(recorded);
        match &self.symfs {
            Some(root) => (
                root.join(path.strip_prefix("/").unwrap_or(path)),
                Some(path.to_path_buf()),
            ),
            None => (path.to_path_buf(), None),
        }
    }

    /// Reads a file by its recorded name.
    ///
    /// # Errors
    /// The first path at which it was looked for, and the reason why it can't be read.
    pub fn read(&self, recorded: &str) -> Result<SourceText, SourceError> {
        let (path, other) = self.candidates(recorded);
        let failure = match read(&path) {
            Ok(text) => return Ok(text),
            Err(cause) => SourceError { path, cause },
        };
        match other.map(|path| read(&path)) {
            Some(Ok(text)) => Ok(text),
            _ => Err(failure),
        }
    }
}

fn read(path: &Path) -> Result<SourceText, SourceCause> {
    let data = fs::metadata(path)?;
    // Opening a pipe might wait for ever.
    if !data.is_file() {
        return Err(SourceCause::NotAFile);
    }
    if data.len() > MOST_BYTES {
        return Err(SourceCause::TooLarge { limit: MOST_BYTES });
    }
    let bytes = fs::read(path)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(SourceText {
        path: path.to_path_buf(),
        lines: text.lines().map(str::to_owned).collect(),
        modified: data.modified().ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_paths_are_whole_directories() {
        let files = SourceFiles {
            symfs: Some("/root".into()),
            renamed: vec![("/src".into(), "/here".into()), ("/b/".into(), "c".into())],
        };
        assert_eq!(files.candidates("/src/a.c"), ("/here/a.c".into(), None));
        assert_eq!(files.candidates("/b/a.c"), ("c/a.c".into(), None));
        assert_eq!(
            files.candidates("/src2/a.c"),
            ("/root/src2/a.c".into(), Some("/src2/a.c".into()))
        );
    }

    #[test]
    fn only_files_are_read() {
        let files = SourceFiles::default();
        let device = files.read("/dev/null").unwrap_err();
        assert!(matches!(device.cause, SourceCause::NotAFile), "{device}");
        assert_eq!(device.to_string(), "/dev/null: is no file");
        let missing = files.read("/nonexistent/x.c").unwrap_err();
        assert_eq!(missing.path, Path::new("/nonexistent/x.c"));
        let is_told = matches!(&missing.cause, SourceCause::Io(error) if error.kind() == io::ErrorKind::NotFound);
        assert!(is_told, "{missing}");
        let this = concat!(env!("CARGO_MANIFEST_DIR"), "/src/annotate/source.rs");
        let text = files.read(this).unwrap();
        assert_eq!(text.line(1), Some("//! The text of source files."));
        assert_eq!((text.line(0), text.line(u32::MAX)), (None, None));
    }
}
