//! The key of a sample on each level.
//!
//! A level's key depends on the key of the sample, on its time, or on its place. Places with the same keys on all levels of
//! places form one *branch*. Branches form a tree by these levels alone, and recursion is found in this tree.

use super::{Group, HierarchyOptions};
use crate::counts::sample_keys::{SampleKey, SampleKeyId};
use crate::hash::FxBuildHasher;
use crate::naming::names::Names;
use crate::profile::Profile;
use crate::rows::aggregate::Dimension;
use crate::selecting::selection::SelectError;
use crate::stacks::frames::FrameId;
use hashbrown::HashMap;

/// A function that returns a level's key.
type KeyOf<'a, T> = Box<dyn Fn(T) -> u32 + 'a>;

/// The property of a sample that decides a level's key.
enum Source {
    /// The key of the sample; holds the level's key for each kind of them.
    SampleKey(Vec<u32>),
    Time,
    /// The sample's place; holds the number of the level among the levels of places.
    Place(usize),
}

/// The property of a place that decides the key on a level of places.
enum PlaceKey<'a> {
    Frame(KeyOf<'a, FrameId>),
    /// The frame itself.
    Address,
    /// The functions at the frame, including inlined functions.
    Function,
    /// The lines of these functions.
    Line,
}

/// The branches of frames, innermost function first.
#[derive(Default)]
struct Branches {
    /// By frame: the end of its list. Empty where each frame has one branch.
    ends: Vec<usize>,
    list: Vec<u32>,
}

impl Branches {
    #[inline]
    fn of(&self, frame: FrameId) -> &[u32] {
        let index = frame as usize;
        if self.ends.is_empty() {
            return self.list.get(index).map_or(&[], std::slice::from_ref);
        }
        let Some(end) = self.ends.get(index) else {
            return &[];
        };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.list[start..*end]
    }
}

/// A node of the tree of places.
#[derive(Clone, Copy)]
pub(super) struct Branch {
    pub parent: u32,
    pub key: u32,
}

/// The keys of all levels.
pub(super) struct Keys {
    sources: Vec<Source>,
    /// By level: the number of levels of places up to and including it.
    depths: Vec<u8>,
    /// By sample key: its kind. Sample keys of one kind have the same keys on all levels.
    kinds: Vec<u32>,
    /// The tree of places; node 0 is its root.
    pub branches: Vec<Branch>,
    /// The branches of samples at a frame, on the last level of places.
    leaves: Branches,
    /// The branches of a frame that has made a call, where they differ from the branches of samples at the frame.
    callers: Option<Branches>,
    of_time: bool,
    places: usize,
}

impl Keys {
    pub(super) fn new(
        profile: &Profile,
        names: &Names,
        levels: &[Dimension],
        options: &HierarchyOptions<'_>,
    ) -> Result<Keys, SelectError> {
        let mut keys = Keys {
            sources: Vec::new(),
            depths: Vec::new(),
            kinds: Vec::new(),
            branches: vec![Branch { parent: 0, key: 0 }],
            leaves: Branches::default(),
            callers: None,
            of_time: false,
            places: 0,
        };
        let mut part_levels = Vec::new();
        let mut place_levels: Vec<PlaceKey<'_>> = Vec::new();
        let inlined = levels.contains(&Dimension::Function) && names.has_inlined();
        for dimension in levels {
            let source = match of_part(profile, *dimension)? {
                Some(key) => {
                    part_levels.push(key);
                    Source::SampleKey(Vec::new())
                }
                None if *dimension == Dimension::Time => {
                    if !profile.has_times() {
                        return Err(SelectError::NoTimes);
                    }
                    keys.of_time = true;
                    Source::Time
                }
                None => {
                    place_levels.push(match dimension {
                        Dimension::Function if inlined => PlaceKey::Function,
                        Dimension::Line if inlined => PlaceKey::Line,
                        Dimension::Address => PlaceKey::Address,
                        _ => PlaceKey::Frame(of_place(profile, names, *dimension, options)?),
                    });
                    keys.places += 1;
                    Source::Place(keys.places - 1)
                }
            };
            keys.sources.push(source);
            // There are at most sixteen levels.
            keys.depths.push(keys.places as u8);
        }
        keys.find_kinds(profile, &part_levels);
        let mut ids = HashMap::default();
        let length = profile.frames().len();
        keys.leaves = keys.find_branches(length, names, &place_levels, &mut ids, None);
        if inlined {
            let called = Some(());
            let callers = keys.find_branches(length, names, &place_levels, &mut ids, called);
            keys.callers = Some(callers);
        }
        Ok(keys)
    }

    /// Assigns each sample key a kind. Sample keys with the same keys on all levels are of one kind.
    fn find_kinds(&mut self, profile: &Profile, levels: &[KeyOf<'_, SampleKey>]) {
        let mut ids: HashMap<Vec<u32>, u32, FxBuildHasher> = HashMap::default();
        let mut columns = vec![Vec::new(); levels.len()];
        for sample_key in profile.sample_keys().iter() {
            let keys: Vec<u32> = levels.iter().map(|key| key(sample_key)).collect();
            // The number of kinds is at most the number of sample keys.
            let next = u32::try_from(ids.len()).unwrap_or(u32::MAX);
            let kind = *ids.entry(keys).or_insert_with_key(|keys| {
                for (column, key) in columns.iter_mut().zip(keys) {
                    column.push(*key);
                }
                next
            });
            self.kinds.push(kind);
        }
        let mut columns = columns.into_iter();
        for source in &mut self.sources {
            if let Source::SampleKey(keys) = source {
                *keys = columns.next().unwrap_or_default();
            }
        }
    }

    /// Finds the branches of all frames: for samples taken there, or for frames that have `called` others.
    fn find_branches(
        &mut self,
        frames: usize,
        names: &Names,
        levels: &[PlaceKey<'_>],
        ids: &mut HashMap<(u32, u32), u32, FxBuildHasher>,
        called: Option<()>,
    ) -> Branches {
        let chains =
            (levels.iter()).any(|level| !matches!(level, PlaceKey::Frame(_) | PlaceKey::Address));
        let mut found = Branches {
            ends: Vec::with_capacity(if chains { frames } else { 0 }),
            list: Vec::with_capacity(frames),
        };
        for frame in (0_u32..).take(frames) {
            // A frame as its own callee stands for any call, since no frame interrupts itself.
            let callee = called.map(|()| frame);
            let (functions, lines): (&[_], &[_]) = if chains {
                (
                    names.chain_of(frame, callee),
                    names.chain_lines(frame, callee),
                )
            } else {
                (&[0], &[])
            };
            for (index, function) in functions.iter().enumerate() {
                let mut branch = 0;
                // Whether no other frame has the branch, so that the branch needs no entry in `ids`.
                let mut alone = false;
                for level in levels {
                    let key = match level {
                        PlaceKey::Function => *function,
                        PlaceKey::Line => match lines.get(index) {
                            Some(line) => *line,
                            None => names.line_of(frame),
                        },
                        PlaceKey::Frame(key) => key(frame),
                        PlaceKey::Address => {
                            alone |= !chains;
                            frame
                        }
                    };
                    let mut add = || {
                        self.branches.push(Branch {
                            parent: branch,
                            key,
                        });
                        // The number of branches is at most the number of frames, times their functions and levels.
                        u32::try_from(self.branches.len() - 1).unwrap_or(u32::MAX)
                    };
                    branch = match alone {
                        true => add(),
                        false => *ids.entry((branch, key)).or_insert_with(add),
                    };
                }
                found.list.push(branch);
            }
            if chains {
                found.ends.push(found.list.len());
            }
        }
        found
    }

    /// Returns the number of levels of places.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    /// Returns the number of levels of places up to and including `level`.
    #[inline]
    pub(super) fn depth(&self, level: usize) -> u8 {
        self.depths[level]
    }

    /// Returns whether the last level is a level of places.
    pub(super) fn ends_in_place(&self) -> bool {
        matches!(self.sources.last(), Some(Source::Place(_)))
    }

    /// Returns whether there is a level of time.
    pub(super) fn of_time(&self) -> bool {
        self.of_time
    }

    /// Returns the kind of a sample key, which is shared by all sample keys with the same keys.
    #[inline]
    pub(super) fn sample_key(&self, sample_key: SampleKeyId) -> u32 {
        self.kinds[sample_key as usize]
    }

    /// Returns the branch of samples at a frame, which is that of the innermost function there.
    #[inline]
    pub(super) fn innermost(&self, frame: FrameId) -> u32 {
        self.leaf(frame).first().copied().unwrap_or(0)
    }

    /// Returns the branches of samples at a frame, innermost function first.
    #[inline]
    pub(super) fn leaf(&self, frame: FrameId) -> &[u32] {
        self.leaves.of(frame)
    }

    /// Returns whether a frame's branches depend on the function that it called.
    pub(super) fn of_context(&self) -> bool {
        self.callers.is_some()
    }

    /// Returns the branches of a frame that has called `callee`, innermost function first.
    #[inline]
    pub(super) fn caller(&self, names: &Names, frame: FrameId, callee: FrameId) -> &[u32] {
        match &self.callers {
            Some(callers) if !names.is_interrupted(frame, callee) => callers.of(frame),
            _ => self.leaf(frame),
        }
    }

    /// Returns the key on `level` of a group's samples at a branch of places.
    pub(super) fn key(&self, level: usize, group: Group, branch: u32) -> u32 {
        match &self.sources[level] {
            Source::SampleKey(keys) => keys[group.sample_key as usize],
            Source::Time => group.slice,
            Source::Place(place) => {
                let mut at = self.branches[branch as usize];
                for _ in place + 1..self.places {
                    at = self.branches[at.parent as usize];
                }
                at.key
            }
        }
    }
}

/// Returns the function from a sample key to a level's key; `None` for dimensions that do not depend on sample keys.
fn of_part<'a>(
    profile: &'a Profile,
    dimension: Dimension,
) -> Result<Option<KeyOf<'a, SampleKey>>, SelectError> {
    const NONE: u32 = u32::MAX;
    let tasks = profile.tasks();
    let key: KeyOf<'a, SampleKey> = match dimension {
        Dimension::Program => Box::new(|sample_key| {
            sample_key
                .image
                .map_or(NONE, |image| tasks.images()[image as usize].program)
        }),
        Dimension::Process => Box::new(|sample_key| {
            sample_key
                .thread
                .map_or(NONE, |thread| tasks.threads()[thread as usize].process)
        }),
        Dimension::Thread => Box::new(|sample_key| sample_key.thread.unwrap_or(NONE)),
        Dimension::Comm => Box::new(|sample_key| sample_key.comm.unwrap_or(NONE)),
        Dimension::Cpu => Box::new(|sample_key| sample_key.cpu.unwrap_or(NONE)),
        Dimension::Socket => Box::new(|sample_key| {
            sample_key
                .cpu
                .and_then(|cpu| profile.socket(cpu))
                .unwrap_or(NONE)
        }),
        _ => return Ok(None),
    };
    match dimension {
        Dimension::Cpu | Dimension::Socket if !profile.by_cpu => Err(SelectError::NoCpus),
        Dimension::Program | Dimension::Process | Dimension::Thread | Dimension::Comm
            if !profile.options().threads =>
        {
            Err(SelectError::NoThreads)
        }
        _ => Ok(Some(key)),
    }
}

/// Returns the function from frames to keys for a dimension of places.
fn of_place<'a>(
    profile: &'a Profile,
    names: &'a Names,
    dimension: Dimension,
    options: &HierarchyOptions<'a>,
) -> Result<KeyOf<'a, FrameId>, SelectError> {
    Ok(match dimension {
        Dimension::Module => Box::new(|frame| profile.frames().get(frame).module),
        Dimension::Function => Box::new(|frame| names.of_frame(frame)),
        Dimension::Line => Box::new(|frame| names.line_of(frame)),
        Dimension::OutermostLine => Box::new(|frame| names.outermost_line_of(frame)),
        Dimension::Block => match options.blocks {
            Some(blocks) => Box::new(blocks),
            None => return Err(SelectError::NoBlocks),
        },
        _ => Box::new(|frame| frame),
    })
}
