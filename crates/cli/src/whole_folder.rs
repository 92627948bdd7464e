//! Directories that appear under their names when they are complete.

use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes a directory that appears under its name when it is complete. An existing one of which `is_ours` is true
/// becomes `PATH.old` and replaces an older one of that name; an empty one is replaced. Everything else is left alone,
/// and an error.
pub fn write_whole_folder<T>(
    path: &Path,
    is_ours: impl Fn(&Path) -> bool,
    write: impl FnOnce(&Path) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let failed = || {
        format!(
            "{}: cannot be written; give another directory with -o",
            path.display()
        )
    };
    let old = beside(path, ".old");
    let is_there = path.symlink_metadata().is_ok();
    let is_empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    let is_replaced = is_there && is_empty();
    if is_there && !is_replaced {
        if !is_ours(path) {
            bail!(
                "{}: exists and is something else; give another directory with -o",
                path.display()
            );
        }
        if old.symlink_metadata().is_ok() && !is_ours(&old) {
            bail!(
                "{}: exists and is something else; move it away, or give another directory with -o",
                old.display()
            );
        }
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let place = tempfile::Builder::new()
        .prefix(".dioptra-")
        .tempdir_in(parent.unwrap_or(Path::new(".")))
        .with_context(failed)?;
    let result = write(place.path())?;
    if is_replaced {
        fs::remove_dir(path).with_context(failed)?;
    } else if is_there {
        if old.symlink_metadata().is_ok() {
            fs::remove_dir_all(&old).with_context(failed)?;
        }
        fs::rename(path, &old).with_context(failed)?;
    }
    fs::rename(place.path(), path).with_context(failed)?;
    // The directory is not under its temporary name any more.
    let _ = place.keep();
    Ok(result)
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name: OsString = path.components().as_path().as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_directories_are_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("d");
        let is_ours = |folder: &Path| folder.join("ours").exists();
        let write = |text: &'static str| {
            write_whole_folder(&path, is_ours, |place| {
                Ok(fs::write(place.join("ours"), text)?)
            })
        };
        for text in ["first", "second", "third"] {
            write(text).unwrap();
        }
        let read = |name: &str| fs::read_to_string(parent.path().join(name)).unwrap();
        assert_eq!(
            (read("d/ours"), read("d.old/ours")),
            ("third".into(), "second".into())
        );
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 2);
        fs::remove_file(path.join("ours")).unwrap();
        write("fourth").unwrap();
        fs::rename(path.join("ours"), path.join("other")).unwrap();
        let error = write("fifth").unwrap_err();
        assert!(error.to_string().contains("is something else"), "{error}");
        assert_eq!(read("d/other"), "fourth");
    }
}
