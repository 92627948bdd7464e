//! The directory of segments that are not uploaded yet.
//!
//! A segment is recorded into `NAME.part`, and renamed to `NAME.perf.data` once it is complete. Names begin with the time, so
//! that the order of names is the order of time. One agent at a time uses a spool.

use anyhow::{Context, bail};
use dioptra_perfdata::PerfData;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The end of a complete segment's name.
const COMPLETE: &str = ".perf.data";
/// The end of the name of a segment that is still recorded.
const UNFINISHED: &str = ".part";
/// The directory of segments that the upload command does not take.
const REFUSED: &str = "refused";

/// A directory of segments.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    /// The most bytes that segments take.
    most: u64,
    /// Held as long as the agent runs.
    _lock: File,
}

/// A complete segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    pub path: PathBuf,
    /// The file's size in bytes.
    pub size: u64,
}

/// The segments that an agent which was killed has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Segments that were cut off, and can be read.
    pub complete: usize,
    /// Segments in which nothing can be read.
    pub deleted: usize,
}

impl Spool {
    /// Opens a spool, and makes its directory.
    pub fn open(directory: &Path, most: u64) -> anyhow::Result<Spool> {
        fs::create_dir_all(directory)
            .with_context(|| format!("making the spool {}", directory.display()))?;
        let path = directory.join("lock");
        let lock = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "{}: another agent uses this spool; give another directory with --spool",
                directory.display()
            );
        }
        Ok(Spool {
            directory: directory.to_owned(),
            most,
            _lock: lock,
        })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the file into which a segment is recorded.
    pub fn unfinished(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}{UNFINISHED}"))
    }

    /// Returns the name of a segment that begins now.
    pub fn new_name(&self) -> String {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        format!("{:014}", since.as_millis())
    }

    /// Makes a segment that was recorded into [`Spool::unfinished`] complete.
    pub fn complete_segment(&self, name: &str) -> anyhow::Result<()> {
        let (from, to) = (
            self.unfinished(name),
            self.directory.join(format!("{name}{COMPLETE}")),
        );
        fs::rename(&from, &to).with_context(|| format!("renaming {}", from.display()))
    }

    /// Completes the segments that an agent which was killed has left, as far as they can be read. Takes segments back that
    /// were set aside, since the upload command may be another one now.
    pub fn recover(&self) -> anyhow::Result<Recovered> {
        let mut recovered = Recovered::default();
        for refused in complete_in(&self.directory.join(REFUSED)).unwrap_or_default() {
            let to = self
                .directory
                .join(refused.path.file_name().unwrap_or_default());
            let taking = || format!("taking {} back", refused.path.display());
            fs::rename(&refused.path, to).with_context(taking)?;
        }
        for path in self.files(UNFINISHED)? {
            let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let name = name.trim_end_matches(UNFINISHED);
            if salvage(&path) {
                self.complete_segment(name)?;
                recovered.complete += 1;
            } else {
                fs::remove_file(&path).with_context(|| format!("deleting {}", path.display()))?;
                recovered.deleted += 1;
            }
        }
        Ok(recovered)
    }

    /// Returns the complete segments, the oldest first.
    pub fn complete(&self) -> anyhow::Result<Vec<Segment>> {
        complete_in(&self.directory)
    }

    /// Returns the most bytes that segments take.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Deletes the oldest complete segments until all files, with `headroom` bytes that are still to come, take no more than
    /// the most that is allowed. Returns the deleted ones.
    pub fn trim(&self, headroom: u64) -> anyhow::Result<Vec<Segment>> {
        let mut all = complete_in(&self.directory.join(REFUSED)).unwrap_or_default();
        all.extend(self.complete()?);
        let complete: u64 = all.iter().map(|segment| segment.size).sum();
        let unfinished = self.files(UNFINISHED)?.into_iter();
        let unfinished = unfinished.filter_map(|path| fs::metadata(path).ok());
        let unfinished: u64 = unfinished.map(|found| found.len()).sum();
        let mut total = complete.saturating_add(unfinished).saturating_add(headroom);
        let mut deleted = Vec::new();
        for segment in all {
            if total <= self.most {
                break;
            }
            // The upload may have deleted it meanwhile.
            let _ = fs::remove_file(&segment.path);
            total -= segment.size;
            deleted.push(segment);
        }
        Ok(deleted)
    }

    /// Returns the paths whose names have this end, in their order.
    fn files(&self, end: &str) -> anyhow::Result<Vec<PathBuf>> {
        files_in(&self.directory, end)
    }
}

/// Returns the complete segments of a directory, the oldest first.
pub fn complete_in(directory: &Path) -> anyhow::Result<Vec<Segment>> {
    let files = files_in(directory, COMPLETE)?.into_iter();
    Ok(files
        .filter_map(|path| {
            let size = fs::metadata(&path).ok()?.len();
            Some(Segment { path, size })
        })
        .collect())
}

/// Sets a segment aside that the upload command does not take.
pub fn refuse(segment: &Path) -> std::io::Result<PathBuf> {
    let directory = segment.with_file_name(REFUSED);
    fs::create_dir_all(&directory)?;
    let to = directory.join(segment.file_name().unwrap_or_default());
    fs::rename(segment, &to)?;
    Ok(to)
}

fn files_in(directory: &Path, end: &str) -> anyhow::Result<Vec<PathBuf>> {
    let reading = || format!("reading the spool {}", directory.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        let name = path.file_name().and_then(OsStr::to_str);
        if name.is_some_and(|name| name.ends_with(end)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Makes a recording that was cut off end with its last whole record. Returns whether it has samples that can be read.
pub fn salvage(path: &Path) -> bool {
    let summary = match PerfData::open(path) {
        Ok(data) => data.read(|_| std::ops::ControlFlow::Continue(())),
        Err(_) => return false,
    };
    if let Some(end) = summary.stopped_at {
        // Where that is refused, readers say that the file is cut off, and read what lies before.
        let file = File::options().write(true).open(path);
        let _ = file.and_then(|file| file.set_len(end));
    }
    summary.samples.iter().sum::<u64>() + summary.unknown_ids > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool(most: u64) -> (tempfile::TempDir, Spool) {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::open(folder.path(), most).unwrap();
        (folder, spool)
    }

    #[test]
    fn the_oldest_segments_are_deleted_first() {
        let (folder, spool) = spool(25);
        for name in ["3", "1", "2"] {
            fs::write(folder.path().join(format!("{name}.perf.data")), [0; 10]).unwrap();
        }
        fs::write(spool.unfinished("0"), [0; 3]).unwrap();
        let deleted = spool.trim(0).unwrap();
        assert_eq!(deleted.len(), 1);
        assert!(deleted[0].path.ends_with("1.perf.data"));
        let left = spool.complete().unwrap();
        assert_eq!(left.iter().map(|segment| segment.size).sum::<u64>(), 20);
        // Refused segments go before all others.
        refuse(&left[1].path).unwrap();
        fs::write(folder.path().join("4.perf.data"), [0; 10]).unwrap();
        let deleted = spool.trim(0).unwrap();
        assert_eq!(deleted.len(), 1);
        assert!(deleted[0].path.ends_with("refused/3.perf.data"));
    }

    #[test]
    fn refused_segments_are_tried_again_by_the_next_agent() {
        let (folder, spool) = spool(100);
        let segment = folder.path().join("1.perf.data");
        fs::write(&segment, [0; 10]).unwrap();
        refuse(&segment).unwrap();
        assert_eq!(spool.complete().unwrap(), []);
        assert_eq!(spool.recover().unwrap(), Recovered::default());
        assert_eq!(spool.complete().unwrap().len(), 1);
    }

    #[test]
    fn one_agent_uses_a_spool() {
        let (folder, first) = spool(1);
        let error = Spool::open(folder.path(), 1).unwrap_err();
        assert!(error.to_string().contains("another agent"), "{error}");
        drop(first);
        Spool::open(folder.path(), 1).unwrap();
    }

    #[test]
    fn rubbish_of_a_killed_agent_is_deleted() {
        let (_folder, spool) = spool(1 << 20);
        fs::write(spool.unfinished("1"), "no recording").unwrap();
        fs::write(spool.unfinished("2"), "").unwrap();
        let recovered = spool.recover().unwrap();
        let wanted = Recovered {
            complete: 0,
            deleted: 2,
        };
        assert_eq!(recovered, wanted);
        assert_eq!(spool.complete().unwrap(), []);
    }
}
