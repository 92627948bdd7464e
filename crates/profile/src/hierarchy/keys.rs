//! What a sample's key is on each level.
//!
//! Some levels depend on who ran the sample, one on its time; the others on its place. Places that have the same keys on
//! all levels of places are one *branch*; branches form a tree by those levels alone, in which recursion is found.

use super::{Group, HierarchyOptions};
use crate::aggregate::Dimension;
use crate::frames::FrameId;
use crate::hash::FxBuildHasher;
use crate::names::Names;
use crate::parts::{Part, PartId};
use crate::profile::Profile;
use crate::select::SelectError;
use hashbrown::HashMap;

/// A level's key by what it depends on.
type KeyOf<'a, T> = Box<dyn Fn(T) -> u32 + 'a>;

/// What a level's key depends on.
enum Source {
    /// By what parts have in common: the key.
    Part(Vec<u32>),
    Time,
    /// The place level with this number.
    Place(usize),
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
    /// By level: how many levels of places there are up to it.
    depths: Vec<u8>,
    /// By part: what it has in common with others.
    kinds: Vec<u32>,
    /// The tree of places; node 0 is its root.
    pub branches: Vec<Branch>,
    /// By frame: its branch, on the last level of places.
    of_frame: Vec<u32>,
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
            of_frame: Vec::new(),
            of_time: false,
            places: 0,
        };
        let mut part_levels = Vec::new();
        let mut place_levels: Vec<KeyOf<'_, FrameId>> = Vec::new();
        for dimension in levels {
            let source = match of_part(profile, *dimension)? {
                Some(key) => {
                    part_levels.push(key);
                    Source::Part(Vec::new())
                }
                None if *dimension == Dimension::Time => {
                    if !profile.has_times() {
                        return Err(SelectError::NoTimes);
                    }
                    keys.of_time = true;
                    Source::Time
                }
                None => {
                    place_levels.push(of_place(profile, names, *dimension, options)?);
                    keys.places += 1;
                    Source::Place(keys.places - 1)
                }
            };
            keys.sources.push(source);
            // At most sixteen.
            keys.depths.push(keys.places as u8);
        }
        keys.find_kinds(profile, &part_levels);
        keys.find_branches(profile, &place_levels);
        Ok(keys)
    }

    /// Parts with the same keys on all their levels are of one kind.
    fn find_kinds(&mut self, profile: &Profile, levels: &[KeyOf<'_, Part>]) {
        let mut ids: HashMap<Vec<u32>, u32, FxBuildHasher> = HashMap::default();
        let mut columns = vec![Vec::new(); levels.len()];
        for part in profile.parts().iter() {
            let keys: Vec<u32> = levels.iter().map(|key| key(part)).collect();
            // No more kinds than parts.
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
            if let Source::Part(keys) = source {
                *keys = columns.next().unwrap_or_default();
            }
        }
    }

    fn find_branches(&mut self, profile: &Profile, levels: &[KeyOf<'_, FrameId>]) {
        let mut ids: HashMap<(u32, u32), u32, FxBuildHasher> = HashMap::default();
        for frame in (0_u32..).take(profile.frames().len()) {
            let mut branch = 0;
            for key in levels {
                let key = key(frame);
                branch = *ids.entry((branch, key)).or_insert_with(|| {
                    self.branches.push(Branch {
                        parent: branch,
                        key,
                    });
                    // No more than frames and levels.
                    u32::try_from(self.branches.len() - 1).unwrap_or(u32::MAX)
                });
            }
            self.of_frame.push(branch);
        }
    }

    /// How many levels of places there are.
    pub(super) fn places(&self) -> usize {
        self.places
    }

    /// How many levels of places there are up to `level`.
    #[inline]
    pub(super) fn depth(&self, level: usize) -> u8 {
        self.depths[level]
    }

    /// Whether there is a level of time.
    pub(super) fn of_time(&self) -> bool {
        self.of_time
    }

    /// What a part has in common with others.
    #[inline]
    pub(super) fn part(&self, part: PartId) -> u32 {
        self.kinds[part as usize]
    }

    /// The branch of a frame's innermost function.
    #[inline]
    pub(super) fn innermost(&self, frame: FrameId) -> u32 {
        self.of_frame.get(frame as usize).copied().unwrap_or(0)
    }

    /// The key on `level` of a group's samples at a branch of places.
    pub(super) fn key(&self, level: usize, group: Group, branch: u32) -> u32 {
        match &self.sources[level] {
            Source::Part(keys) => keys[group.part as usize],
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

/// The key of a part on a level that depends on it.
fn of_part<'a>(
    profile: &'a Profile,
    dimension: Dimension,
) -> Result<Option<KeyOf<'a, Part>>, SelectError> {
    const NONE: u32 = u32::MAX;
    let tasks = profile.tasks();
    let key: KeyOf<'a, Part> = match dimension {
        Dimension::Program => Box::new(|part| {
            part.image
                .map_or(NONE, |image| tasks.images()[image as usize].program)
        }),
        Dimension::Process => Box::new(|part| {
            part.thread
                .map_or(NONE, |thread| tasks.threads()[thread as usize].process)
        }),
        Dimension::Thread => Box::new(|part| part.thread.unwrap_or(NONE)),
        Dimension::Comm => Box::new(|part| part.comm.unwrap_or(NONE)),
        Dimension::Cpu => Box::new(|part| part.cpu.unwrap_or(NONE)),
        Dimension::Socket => {
            Box::new(|part| part.cpu.and_then(|cpu| profile.socket(cpu)).unwrap_or(NONE))
        }
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

/// The key of a frame on a level that depends on it.
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
