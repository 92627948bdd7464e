//! The text of source files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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

impl SourceText {
    /// Returns a line by its number, which counts from 1.
    pub fn line(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.lines.get(index).map(String::as_str)
    }
}

impl SourceFiles {
    /// Returns the paths at which a recorded file may lie, the best first.
    fn candidates(&self, recorded: &str) -> Vec<PathBuf> {
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
            return vec![PathBuf::from(renamed)];
        }
        let path = Path::new(recorded);
        match &self.symfs {
            Some(root) => vec![
                root.join(path.strip_prefix("/").unwrap_or(path)),
                path.to_path_buf(),
            ],
            None => vec![path.to_path_buf()],
        }
    }

    /// Reads a file by its recorded name.
    ///
    /// # Errors
    /// The first path at which it was looked for, and why it can't be read.
    pub fn read(&self, recorded: &str) -> Result<SourceText, String> {
        let mut failure = String::new();
        for path in self.candidates(recorded) {
            match read(&path) {
                Ok(text) => return Ok(text),
                Err(why) if failure.is_empty() => failure = format!("{}: {why}", path.display()),
                Err(_) => {}
            }
        }
        Err(failure)
    }
}

fn read(path: &Path) -> Result<SourceText, String> {
    let data = fs::metadata(path).map_err(|error| error.to_string())?;
    // Opening a pipe might wait for ever.
    if !data.is_file() {
        return Err("is no file".to_owned());
    }
    if data.len() > MOST_BYTES {
        return Err(format!("is larger than {} MiB", MOST_BYTES >> 20));
    }
    let bytes = fs::read(path).map_err(|error| error.to_string())?;
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
        assert_eq!(files.candidates("/src/a.c"), [PathBuf::from("/here/a.c")]);
        assert_eq!(files.candidates("/b/a.c"), [PathBuf::from("c/a.c")]);
        assert_eq!(
            files.candidates("/src2/a.c"),
            [PathBuf::from("/root/src2/a.c"), PathBuf::from("/src2/a.c")]
        );
    }

    #[test]
    fn only_files_are_read() {
        let files = SourceFiles::default();
        assert!(files.read("/dev/null").unwrap_err().contains("no file"));
        assert!(
            files
                .read("/nonexistent/x.c")
                .unwrap_err()
                .starts_with("/nonexistent/x.c: ")
        );
        let this = concat!(env!("CARGO_MANIFEST_DIR"), "/src/annotate/source.rs");
        let text = files.read(this).unwrap();
        assert_eq!(text.line(1), Some("//! The text of source files."));
        assert_eq!((text.line(0), text.line(u32::MAX)), (None, None));
    }
}
