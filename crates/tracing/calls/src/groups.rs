//! Sums by groups of calls: the rows of tables whose levels are programs, processes, threads, modules and functions.

use crate::estimate::ClusterEstimator;
use crate::frames::OpenCalls;
use crate::statistics::FunctionTimes;
use crate::{CallEnding, ShownStep, View, ViewLosses, workers};
use rustc_hash::FxHashMap;

/// The most levels of groups.
pub const MOST_LEVELS: usize = 15;

/// A level of groups: the key of the calls of a function (by id) in a stream (by its index in [`View::streams`]). Calls
/// with one key, in one group of the level above, are one group.
pub type GroupKey<'k> = &'k (dyn Fn(usize, u32) -> u32 + Sync);

/// A group of calls.
#[derive(Clone, Debug, PartialEq)]
pub struct CallGroup {
    /// The index of the group that this one is a part of. The group 0 has all calls, and is a part of itself.
    pub parent: u32,
    /// The index of the group's level; 0 for the group of all calls.
    pub level: usize,
    /// The key in that level.
    pub key: u32,
    /// The sums. The total is the time within the group's calls: calls within calls of the same group are counted
    /// once. The function is the smallest id among those of the calls.
    pub times: FunctionTimes,
}

/// The sums of a view by groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallGroups {
    /// The groups; each stands behind the one that it is a part of.
    pub groups: Vec<CallGroup>,
    /// The losses.
    pub losses: ViewLosses,
}

/// Sums the shown calls of a view by groups, streams in parallel. `levels` are the keys of the outermost level first; those
/// beyond [`MOST_LEVELS`] are ignored. Of calls that lie in the view's time in part, that part is summed.
///
/// The groups are in no particular order, except that each stands behind its parent.
pub fn call_groups(view: &View<'_>, levels: &[GroupKey<'_>]) -> CallGroups {
    let levels = &levels[..levels.len().min(MOST_LEVELS)];
    let sampled = view.is_sampled();
    // Estimates are sums of fractions: their last digit must not depend on the speed of the workers.
    let most = if sampled { 1 } else { usize::MAX };
    let new = || Worker::new(levels, view.trace().function_count(), sampled);
    let count = view.streams().len();
    let mut workers = workers::each(count, most, new, |worker, place| worker.sum(view, place));
    let mut first = workers.pop().unwrap_or_else(new);
    for worker in workers {
        first.merge(worker);
    }
    if let Some(clusters) = &first.clusters {
        for (number, group) in first.groups.iter_mut().enumerate() {
            let own = (group.functions == 1).then_some(group.sums.times.function);
            group.sums.times.sampled = clusters.estimate(number as u32, own);
        }
    }
    first.finish()
}

/// A group, and the number of functions whose calls it has, up to two.
struct Counted {
    sums: CallGroup,
    functions: u8,
}

/// An open call.
#[derive(Clone, Copy, Debug)]
struct OpenGrouped {
    /// The index in `paths` of the call's groups.
    path: usize,
    /// A bit for each level: set if no call around this one is of the same group.
    outermost: u16,
    entered: bool,
    start: u64,
}

struct Worker<'k> {
    levels: &'k [GroupKey<'k>],
    groups: Vec<Counted>,
    by_key: FxHashMap<(u32, u32), u32>,
    /// The number of open calls in the current call stack, by group.
    open: Vec<u32>,
    /// The groups of the functions of the current stream: one group a level, the group 0 first.
    paths: Vec<u32>,
    /// By function: the stream in which its path was made, and the path's place.
    known: Vec<(usize, usize)>,
    clusters: Option<ClusterEstimator>,
    losses: ViewLosses,
}

impl<'k> Worker<'k> {
    fn new(levels: &'k [GroupKey<'k>], functions: usize, sampled: bool) -> Worker<'k> {
        let mut worker = Worker {
            levels,
            groups: Vec::new(),
            by_key: FxHashMap::default(),
            open: Vec::new(),
            paths: Vec::new(),
            // A damaged record may name any id; those beyond the table are one function, 0.
            known: vec![(usize::MAX, 0); functions.max(1)],
            clusters: sampled.then(ClusterEstimator::default),
            losses: ViewLosses::default(),
        };
        worker.push(0, 0, 0);
        worker
    }

    fn push(&mut self, parent: u32, level: usize, key: u32) -> u32 {
        self.groups.push(Counted {
            sums: CallGroup {
                parent,
                level,
                key,
                times: FunctionTimes::new(u32::MAX),
            },
            functions: 0,
        });
        self.open.push(0);
        self.groups.len() as u32 - 1
    }

    fn child(&mut self, parent: u32, level: usize, key: u32) -> u32 {
        if let Some(known) = self.by_key.get(&(parent, key)) {
            return *known;
        }
        let group = self.push(parent, level, key);
        self.by_key.insert((parent, key), group);
        group
    }

    /// Returns the place in `paths` of the groups of a function's calls in a stream.
    #[inline]
    fn path(&mut self, place: usize, function: u32) -> usize {
        let function = match (function as usize) < self.known.len() {
            true => function,
            false => 0,
        };
        match self.known[function as usize] {
            (stream, path) if stream == place => path,
            _ => self.new_path(place, function),
        }
    }

    #[cold]
    fn new_path(&mut self, place: usize, function: u32) -> usize {
        let path = self.paths.len();
        self.known[function as usize] = (place, path);
        self.paths.push(0);
        let mut parent = 0;
        self.count_function(0, function);
        for (index, key) in self.levels.iter().enumerate() {
            parent = self.child(parent, index, key(place, function));
            self.count_function(parent, function);
            self.paths.push(parent);
        }
        path
    }

    /// Notes that a group has calls of a function.
    fn count_function(&mut self, group: u32, function: u32) {
        let group = &mut self.groups[group as usize];
        let known = &mut group.sums.times.function;
        group.functions = match group.functions {
            0 => 1,
            1 if *known == function => 1,
            _ => 2,
        };
        *known = function.min(*known);
    }

    fn sum(&mut self, view: &View<'_>, place: usize) {
        let from = view.range().start.unwrap_or(0);
        let width = self.levels.len() + 1;
        let mut frames: OpenCalls<OpenGrouped> = OpenCalls::default();
        self.paths.clear();
        let mut calls = match self.clusters {
            Some(_) => view.scaled_calls(place),
            None => view.calls(place),
        };
        calls.each(|shown| match shown {
            ShownStep::Enter {
                time, call, weight, ..
            } => {
                let path = self.path(place, call.function);
                let mut outermost = 0;
                for (level, group) in self.paths[path..path + width].iter().enumerate() {
                    let open = &mut self.open[*group as usize];
                    *open += 1;
                    outermost |= u16::from(*open == 1) << level;
                }
                frames.push(OpenGrouped {
                    path,
                    outermost,
                    entered: call.entered.is_some(),
                    start: time.max(from),
                });
                if let Some(clusters) = &mut self.clusters {
                    clusters.enter(call.function, weight, view, place);
                }
            }
            ShownStep::Leave {
                time, ending, own, ..
            } => self.leave(&mut frames, time, own, from, ending == CallEnding::Open),
            ShownStep::Lost { .. } => {}
            ShownStep::Switch { stack, .. } => self.switch(&mut frames, stack),
        });
        self.losses += calls.losses();
        // Calls that a damaged stream leaves open do not reach into the next one.
        for group in &self.paths {
            self.open[*group as usize] = 0;
        }
    }

    fn leave(
        &mut self,
        frames: &mut OpenCalls<OpenGrouped>,
        time: u64,
        own: u64,
        from: u64,
        is_open: bool,
    ) {
        let Some(frame) = frames.pop() else {
            return;
        };
        let path = &self.paths[frame.path..=frame.path + self.levels.len()];
        let is_seen = time >= from;
        let duration = time.saturating_sub(frame.start);
        if let Some(clusters) = &mut self.clusters {
            let groups = path.iter().enumerate();
            let groups = groups.map(|(level, group)| (*group, frame.outermost & 1 << level != 0));
            clusters.leave((duration, own), groups, frame.entered, is_seen);
        }
        for (level, group) in path.iter().enumerate() {
            self.open[*group as usize] -= 1;
            if !is_seen {
                continue;
            }
            let times = &mut self.groups[*group as usize].sums.times;
            times.open += u64::from(is_open);
            if frame.outermost & 1 << level != 0 {
                times.total = times.total.saturating_add(duration);
            }
            times.self_time = times.self_time.saturating_add(own);
            times.calls += u64::from(frame.entered);
        }
    }

    fn switch(&mut self, frames: &mut OpenCalls<OpenGrouped>, stack: u32) {
        let width = self.levels.len() + 1;
        for frame in frames.current() {
            for group in &self.paths[frame.path..frame.path + width] {
                self.open[*group as usize] -= 1;
            }
        }
        frames.switch(stack);
        for frame in frames.current() {
            for group in &self.paths[frame.path..frame.path + width] {
                self.open[*group as usize] += 1;
            }
        }
        if let Some(clusters) = &mut self.clusters {
            clusters.switch(stack);
        }
    }

    fn merge(&mut self, other: Worker<'_>) {
        // The groups of the other worker in this one; parents come first.
        let mut places: Vec<u32> = Vec::with_capacity(other.groups.len());
        for (number, group) in other.groups.iter().enumerate() {
            let parent = places.get(group.sums.parent as usize).copied();
            let place = match number {
                0 => 0,
                _ => self.child(parent.unwrap_or(0), group.sums.level, group.sums.key),
            };
            let here = &mut self.groups[place as usize].sums.times;
            here.function = here.function.min(group.sums.times.function);
            here.merge(&group.sums.times);
            places.push(place);
        }
        self.losses += other.losses;
    }

    /// Returns the groups without those whose calls ended before the view's time.
    fn finish(self) -> CallGroups {
        let mut places: Vec<Option<u32>> = Vec::with_capacity(self.groups.len());
        let mut groups: Vec<CallGroup> = Vec::new();
        for (number, group) in self.groups.into_iter().enumerate() {
            let times = &group.sums.times;
            let is_seen = times.calls > 0 || times.total > 0 || times.open > 0;
            let parent = places.get(group.sums.parent as usize).copied().flatten();
            if number > 0 && (!is_seen || parent.is_none()) {
                places.push(None);
                continue;
            }
            places.push(Some(groups.len() as u32));
            groups.push(CallGroup {
                parent: parent.unwrap_or(0),
                ..group.sums
            });
        }
        CallGroups {
            groups,
            losses: self.losses,
        }
    }
}
