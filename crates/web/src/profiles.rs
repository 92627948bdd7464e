//! The server's profiles and traces: who loads them, how far that is, and what answers meanwhile.

use crate::api::{ErrorBody, FileKind, ProfileStatus, Progress, State, Status};
use crate::failure::Failure;
use crate::loaded::{Finding, Loaded, Watching};
use crate::traces::LoadedTrace;
use dioptra_profile::LoadProgress;
use dioptra_tracelayout::directory::{INFO, JOURNAL, RECORDS};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The time between two looks at the files.
const LOOKS: Duration = Duration::from_millis(500);

/// One file of the command line.
#[derive(Clone, Debug)]
pub(crate) struct FileState {
    pub index: usize,
    pub path: PathBuf,
    pub label: String,
    pub kind: FileKind,
}

/// The content of a loaded file.
#[derive(Clone)]
enum Content {
    Profile(Arc<Loaded>),
    Trace(Arc<LoadedTrace>),
}

/// The properties of a file that differ once the file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Stamp> {
        if path.is_dir() {
            return Stamp::of_trace(path);
        }
        let data = std::fs::metadata(path).ok()?;
        Some(Stamp {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
        })
    }
}

impl Stamp {
    /// The properties of a trace's files: a recording that goes on changes their sizes.
    fn of_trace(folder: &Path) -> Option<Stamp> {
        let mut stamp = Stamp::of(&folder.join(INFO))?;
        for file in [JOURNAL, RECORDS] {
            if let Some(data) = Stamp::of(&folder.join(file)) {
                stamp.size = stamp.size.wrapping_add(data.size);
                stamp.modified = stamp.modified.max(data.modified);
            }
        }
        Some(stamp)
    }
}

/// The work on a profile at the moment.
#[derive(Clone, Debug, Default)]
enum Work {
    /// Others are loaded first.
    #[default]
    Waiting,
    /// Its records are read.
    Reading {
        size: u64,
        progress: Arc<LoadProgress>,
    },
    /// Its functions are named.
    Naming,
    /// Nothing.
    Nothing,
}

struct Slot {
    file: FileState,
    loaded: Option<Content>,
    generation: u64,
    work: Work,
    began: Option<Instant>,
    elapsed: Duration,
    error: Option<ErrorBody>,
}

/// All profiles of a server.
pub(crate) struct Profiles {
    slots: Vec<Mutex<Slot>>,
    revision: watch::Sender<u64>,
    finding: Finding,
    /// Set when the server ends.
    is_over: AtomicBool,
}

/// A panic while the lock was held leaves nothing half done.
fn locked(slot: &Mutex<Slot>) -> MutexGuard<'_, Slot> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Profiles {
    pub(crate) fn new(files: &[PathBuf], finding: Finding) -> Profiles {
        let slots = files.iter().enumerate().map(|(index, path)| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            let file = FileState {
                index,
                path: path.clone(),
                label: name.to_string_lossy().into_owned(),
                kind: match path.is_dir() {
                    true => FileKind::Trace,
                    false => FileKind::Profile,
                },
            };
            Mutex::new(Slot {
                file,
                loaded: None,
                generation: 0,
                work: Work::Waiting,
                began: None,
                elapsed: Duration::ZERO,
                error: None,
            })
        });
        Profiles {
            slots: slots.collect(),
            revision: watch::Sender::new(1),
            finding,
            is_over: AtomicBool::new(false),
        }
    }

    /// Loads all files and then those that change, until the server ends. `forget` is called with each profile that was
    /// loaded anew.
    pub(crate) fn keep_loaded(&self, forget: impl Fn(usize)) {
        let mut stamps: Vec<Option<Stamp>> = Vec::new();
        for slot in &self.slots {
            stamps.push(Stamp::of(&locked(slot).file.path));
            self.load(slot);
        }
        // Files that are being written are left alone until they rest.
        let mut seen = stamps.clone();
        while !self.is_over() {
            std::thread::sleep(LOOKS);
            for (index, slot) in self.slots.iter().enumerate() {
                let path = locked(slot).file.path.clone();
                let now = Stamp::of(&path);
                let rests = now == seen[index];
                seen[index] = now;
                if path != Path::new("-") && now.is_some() && rests && now != stamps[index] {
                    stamps[index] = now;
                    self.load(slot);
                    forget(index);
                }
            }
        }
    }

    /// Loads all files and returns.
    pub(crate) fn load_once(&self) {
        for slot in &self.slots {
            self.load(slot);
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Ends loading as soon as possible.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        for slot in &self.slots {
            if let Work::Reading { progress, .. } = &locked(slot).work {
                progress.cancel();
            }
        }
    }

    fn change(&self, slot: &Mutex<Slot>, change: impl FnOnce(&mut Slot)) {
        change(&mut locked(slot));
        self.revision.send_modify(|revision| *revision += 1);
    }

    fn load(&self, slot: &Mutex<Slot>) {
        let began = Instant::now();
        let (file, generation) = {
            let slot = locked(slot);
            (slot.file.clone(), slot.generation + 1)
        };
        self.change(slot, |slot| slot.began = Some(began));
        let watching = WatchedSlot { all: self, slot };
        let load = || match file.kind {
            FileKind::Profile => {
                let loaded = Loaded::load(&file, generation, &self.finding, &watching)?;
                Ok(Content::Profile(Arc::new(loaded)))
            }
            FileKind::Trace => {
                let loaded = LoadedTrace::load(&file, generation, &self.finding)?;
                Ok(Content::Trace(Arc::new(loaded)))
            }
        };
        // A fault of ours costs this profile only.
        let loaded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(load));
        let loaded = loaded.unwrap_or_else(|_| Err("the server failed while loading".to_owned()));
        self.change(slot, |slot| {
            slot.work = Work::Nothing;
            slot.began = None;
            slot.elapsed = began.elapsed();
            match loaded {
                Ok(loaded) => {
                    slot.loaded = Some(loaded);
                    slot.generation = generation;
                    slot.error = None;
                }
                Err(why) => slot.error = Some(Failure::LoadFailed(why).body()),
            }
        });
    }

    /// A profile that answers.
    pub(crate) fn get(
        &self,
        index: Option<usize>,
        generation: Option<u64>,
    ) -> Result<Arc<Loaded>, Failure> {
        match self.content(index.unwrap_or(0), generation)? {
            Content::Profile(loaded) => Ok(loaded),
            Content::Trace(_) => Err(Failure::WrongKind {
                is: "trace",
                wanted: "profile",
            }),
        }
    }

    /// A trace that answers; without an index the first one.
    pub(crate) fn trace(
        &self,
        index: Option<usize>,
        generation: Option<u64>,
    ) -> Result<Arc<LoadedTrace>, Failure> {
        let is_trace = |slot: &Mutex<Slot>| locked(slot).file.kind == FileKind::Trace;
        let first = || self.slots.iter().position(is_trace);
        let index = index.or_else(first).unwrap_or(0);
        match self.content(index, generation)? {
            Content::Trace(loaded) => Ok(loaded),
            Content::Profile(_) => Err(Failure::WrongKind {
                is: "profile",
                wanted: "trace",
            }),
        }
    }

    /// The generation that answers; none before a file is loaded.
    pub(crate) fn generation(&self, index: usize) -> Option<u64> {
        let slot = locked(self.slots.get(index)?);
        slot.loaded.as_ref().map(|_| slot.generation)
    }

    fn content(&self, index: usize, generation: Option<u64>) -> Result<Content, Failure> {
        let slot = self.slots.get(index);
        let slot = slot.ok_or_else(|| Failure::no_key("profile", &index.to_string()))?;
        let slot = locked(slot);
        let Some(loaded) = &slot.loaded else {
            return Err(match &slot.error {
                Some(error) => Failure::LoadFailed(error.text.clone()),
                None => Failure::NotReady,
            });
        };
        match generation {
            Some(generation) if generation != slot.generation => Err(Failure::Stale),
            _ => Ok(loaded.clone()),
        }
    }

    /// The state of all profiles.
    pub(crate) fn status(&self) -> Status {
        let profiles = self.slots.iter().map(|slot| status(&locked(slot)));
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: *self.revision.borrow(),
            profiles: profiles.collect(),
        }
    }

    /// The state of all profiles, once its revision is another than `known`, or after a while.
    pub(crate) async fn wait(&self, known: Option<u64>) -> Status {
        /// Longer than this nobody waits.
        const LONGEST: Duration = Duration::from_secs(20);
        /// The interval at which the progress of loading is reported.
        const TOLD: Duration = Duration::from_millis(200);
        let mut revisions = self.revision.subscribe();
        let Some(known) = known else {
            return self.status();
        };
        let reads = |slot: &Mutex<Slot>| matches!(locked(slot).work, Work::Reading { .. });
        let longest = match self.slots.iter().any(reads) {
            true => TOLD,
            false => LONGEST,
        };
        let changed = revisions.wait_for(|revision| *revision != known);
        // The state is reported whether it has changed or not.
        let _ = tokio::time::timeout(longest, changed).await;
        self.status()
    }
}

struct WatchedSlot<'a> {
    all: &'a Profiles,
    slot: &'a Mutex<Slot>,
}

impl Watching for WatchedSlot<'_> {
    fn reads(&self, size: u64, progress: Arc<LoadProgress>) {
        if self.all.is_over() {
            progress.cancel();
        }
        self.all.change(self.slot, |slot| {
            slot.work = Work::Reading { size, progress }
        });
    }

    fn names(&self) {
        self.all.change(self.slot, |slot| slot.work = Work::Naming);
    }
}

fn status(slot: &Slot) -> ProfileStatus {
    let is_working = slot.began.is_some();
    let state = match (&slot.loaded, &slot.work) {
        (Some(_), _) => State::Ready,
        (None, Work::Waiting) if is_working => State::Reading,
        (None, Work::Waiting) => State::Waiting,
        (None, Work::Reading { .. }) => State::Reading,
        (None, Work::Naming) => State::Naming,
        (None, Work::Nothing) => State::Failed,
    };
    let progress = match &slot.work {
        Work::Reading { size, progress } => Some(Progress {
            done: progress.bytes_read().min(*size),
            total: *size,
            unit: "bytes".to_owned(),
        }),
        _ => None,
    };
    let elapsed = slot.began.map_or(slot.elapsed, |began| began.elapsed());
    ProfileStatus {
        index: slot.file.index,
        label: slot.file.label.clone(),
        path: slot.file.path.display().to_string(),
        kind: slot.file.kind,
        generation: slot.generation,
        state,
        reloading: slot.loaded.is_some() && is_working,
        progress,
        elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        error: slot.error.clone(),
    }
}
