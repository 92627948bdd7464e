//! Reads branch stacks into edges and the straight runs between them.

use super::flags::{BranchFlags, Speculation};
use super::profile::{BranchProfile, EdgeCounts, RunCounts};
use super::{BranchKind, Counted};
use crate::hash::{FxBuildHasher, mix};
use crate::processes::modules::Modules;
use crate::stacks::frames::{FrameId, Frames};
use dioptra_perfrecords::ByteOrder;
use dioptra_perfrecords::record::BranchStack;
use hashbrown::HashMap;

/// The longest straight run that is believed, in bytes. No compiler emits this many bytes without a taken branch, but
/// two separate mappings may be this far apart.
const LONGEST_RUN: u64 = 256 << 10;
/// The number of recently seen edges that are kept by address; a power of two.
const RECENT: usize = 1 << 11;

/// The owner and the time of a branch stack, which decide the meaning of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub thread: u32,
    pub process: u32,
    /// Versions of the process's and the kernel's mappings.
    pub versions: (u64, u64),
}

/// A branch of the stack that is being read.
#[derive(Clone, Copy, Debug)]
struct Entry {
    from: u64,
    to: u64,
    flags: BranchFlags,
    /// Whether branches are missing before it.
    gap: bool,
}

/// An edge and the addresses that its branch had in the recording.
#[derive(Clone, Copy, Debug)]
struct Recent {
    event: usize,
    process: u32,
    versions: (u64, u64),
    from: u64,
    to: u64,
    edge: u32,
}

/// The edges of all events that were seen last.
#[derive(Debug)]
pub(super) struct RecentEdges(Vec<Option<Recent>>);

impl Default for RecentEdges {
    fn default() -> Self {
        RecentEdges(vec![None; RECENT])
    }
}

/// A branch that may be the start of a run.
#[derive(Clone, Copy, Debug)]
struct Landing {
    to: u64,
    edge: u32,
}

/// The last stack of a thread, which its next stack may continue.
#[derive(Clone, Debug)]
struct Window {
    /// Sources and targets, the oldest first.
    branches: Vec<(u64, u64)>,
    newest: Landing,
    hw_index: Option<u64>,
    /// The number of the series of stacks it belongs to, and its index in that series.
    place: (u32, u32),
}

/// One event's branches while they are read.
#[derive(Debug)]
pub(super) struct Collector {
    pub profile: BranchProfile,
    event: usize,
    order: ByteOrder,
    /// By thread; only where stacks can follow on each other.
    windows: HashMap<u32, Window, FxBuildHasher>,
    entries: Vec<Entry>,
    sequence: Vec<u32>,
    /// The number of stacks read, in the range of a tally's stack numbers: from 1, and back to 1 after 2^32 - 1.
    stack: u32,
    /// The number of series of stacks that follow each other. A single stack is a series too.
    chains: u32,
    /// The largest number of branches in a stack.
    depth: u64,
    /// Whether the hardware's index has ever changed.
    index_moves: bool,
}

impl Collector {
    pub fn new(event: usize, order: ByteOrder, profile: BranchProfile) -> Self {
        Collector {
            profile,
            event,
            order,
            windows: HashMap::default(),
            entries: Vec::new(),
            sequence: Vec::new(),
            stack: 0,
            chains: 0,
            depth: 0,
            index_moves: false,
        }
    }

    /// Forgets all threads' last stacks, because records are missing and no later stack continues one.
    pub fn forget_windows(&mut self) {
        self.profile.facts.gaps += self.windows.len() as u64;
        self.windows.clear();
    }

    /// Adds the stack of a sample that stands for `period` events.
    pub fn add(
        &mut self,
        stack: &BranchStack<'_>,
        period: u64,
        owner: Owner,
        recent: &mut RecentEdges,
        frames: &mut Frames,
        mut resolve: impl FnMut(u64, &mut Frames) -> FrameId,
    ) {
        self.profile.facts.stacks += 1;
        self.stack = self.stack.checked_add(1).unwrap_or(1);
        self.read(stack);
        if self.entries.is_empty() {
            self.profile.facts.empty_stacks += 1;
            if self.windows.remove(&owner.thread).is_some() {
                self.profile.facts.gaps += 1;
            }
            return;
        }
        let plan = self.plan(stack, period, owner.thread);
        let mut before = plan.before;
        self.sequence.clear();
        for index in plan.first..self.entries.len() {
            let entry = self.entries[index];
            let edge = self.edge(&entry, owner, recent, frames, &mut resolve);
            self.count_edge(edge, entry.flags, plan.branch_weight);
            if entry.gap {
                before = None;
                self.sequence.push(super::Sequences::GAP);
            }
            if let Some(landing) = before
                && self.profile.filter.is_complete()
            {
                self.run(landing, &entry, edge, frames, plan.run_weight);
            }
            self.sequence.push(edge);
            before = Some(Landing { to: entry.to, edge });
        }
        let place = match self.windows.get(&owner.thread) {
            Some(window) if plan.stitched => (window.place.0, window.place.1.wrapping_add(1)),
            _ => {
                self.chains = self.chains.wrapping_add(1);
                (self.chains, 0)
            }
        };
        if let (true, Some(newest)) = (plan.follows_up, before) {
            let branches = self.entries.iter().map(|entry| (entry.from, entry.to));
            let window = Window {
                branches: branches.collect(),
                newest,
                hw_index: stack.hw_index,
                place,
            };
            self.windows.insert(owner.thread, window);
        }
        self.profile
            .sequences
            .add(place, plan.stitched, &self.sequence);
    }

    /// Reads a stack into `entries`, the oldest first, without branches on wrong paths.
    fn read(&mut self, stack: &BranchStack<'_>) {
        let facts = &mut self.profile.facts;
        self.entries.clear();
        // The stack goes from the newest to the oldest, so a missing record lies before the branch that was read last.
        for branch in stack.iter() {
            facts.records += 1;
            let flags = BranchFlags::new(branch.flags, self.order);
            let mut missing = false;
            match (branch.from, branch.to) {
                (0, 0) => {
                    facts.empty += 1;
                    missing = true;
                }
                _ if flags.speculation() == Speculation::WrongPath => facts.wrong_path += 1,
                (0, _) | (_, 0) => {
                    facts.incomplete += 1;
                    missing = true;
                }
                (from, to) => self.entries.push(Entry {
                    from,
                    to,
                    flags,
                    gap: false,
                }),
            }
            if let (true, Some(newer)) = (missing, self.entries.last_mut()) {
                newer.gap = true;
            }
        }
        self.entries.reverse();
        if let Some(oldest) = self.entries.first_mut() {
            oldest.gap = false;
        }
        facts.branches += self.entries.len() as u64;
        self.depth = self.depth.max(self.entries.len() as u64);
    }

    /// Decides which entries count, and with which weight.
    fn plan(&mut self, stack: &BranchStack<'_>, period: u64, thread: u32) -> Plan {
        let length = self.entries.len();
        let gaps = self.entries.iter().filter(|entry| entry.gap).count();
        let fresh = usize::try_from(period).unwrap_or(usize::MAX);
        let counted = self.profile.counted;
        if counted == Counted::TakenBranches && gaps == 0 && (1..=length).contains(&fresh) {
            // The sample's branches are all branches since the sample before; older entries were counted with that
            // sample.
            let first = length - fresh;
            let window = self.windows.get(&thread);
            if let (Some(window), Some(index)) = (window, stack.hw_index) {
                self.index_moves |= window.hw_index.is_some_and(|before| before != index);
            }
            let joined = window.map(|window| {
                let known = window.branches.len();
                let overlap = known.checked_sub(first).is_some_and(|from| {
                    let old = self.entries[..first].iter();
                    old.map(|entry| (entry.from, entry.to))
                        .eq(window.branches[from..].iter().copied())
                });
                overlap && self.index_fits(window.hw_index, stack.hw_index, period)
            });
            if joined != Some(false) {
                let before = match (joined, window) {
                    (Some(true), Some(window)) => Some(window.newest),
                    _ => None,
                };
                return Plan {
                    first,
                    before,
                    stitched: before.is_some(),
                    follows_up: true,
                    branch_weight: 1.0,
                    run_weight: 1.0,
                };
            }
            self.profile.facts.gaps += 1;
        }
        self.windows.remove(&thread);
        self.profile.facts.sampled += 1;
        let runs = length - 1 - gaps;
        let cycles = |from: usize| -> u64 {
            let entries = self.entries[from..].iter();
            entries.map(|entry| u64::from(entry.flags.cycles())).sum()
        };
        let (branches, runs) = match counted {
            Counted::TakenBranches => (length as u64, runs as u64),
            Counted::Cycles => (cycles(0), cycles(1)),
            Counted::Other => (0, 0),
        };
        if branches == 0 && counted != Counted::Other {
            self.profile.facts.unscaled += 1;
        }
        let weight = |parts: u64| match parts {
            0 => 0.0,
            parts => period as f64 / parts as f64,
        };
        Plan {
            first: 0,
            before: None,
            stitched: false,
            follows_up: false,
            branch_weight: weight(branches),
            run_weight: weight(runs),
        }
    }

    /// Returns whether the hardware's index of the newest branch has moved by the number of branches. On some CPUs the
    /// index never changes and shows nothing.
    fn index_fits(&self, before: Option<u64>, now: Option<u64>, branches: u64) -> bool {
        match (before, now) {
            (Some(before), Some(now)) if self.index_moves && before.max(now) < self.depth => {
                (before + branches) % self.depth == now
            }
            _ => true,
        }
    }

    /// Returns the edge of an entry.
    fn edge(
        &mut self,
        entry: &Entry,
        owner: Owner,
        recent: &mut RecentEdges,
        frames: &mut Frames,
        resolve: &mut impl FnMut(u64, &mut Frames) -> FrameId,
    ) -> u32 {
        let slot = mix(entry.from, entry.to) as usize & (RECENT - 1);
        if let Some(recent) = recent.0[slot]
            && recent.event == self.event
            && (recent.from, recent.to) == (entry.from, entry.to)
            && (recent.process, recent.versions) == (owner.process, owner.versions)
        {
            return recent.edge;
        }
        let pair = (resolve(entry.from, frames), resolve(entry.to, frames));
        let edge = self
            .profile
            .edges
            .intern(pair, || EdgeCounts::new(pair.0, pair.1));
        recent.0[slot] = Some(Recent {
            event: self.event,
            process: owner.process,
            versions: owner.versions,
            from: entry.from,
            to: entry.to,
            edge,
        });
        edge
    }

    fn count_edge(&mut self, edge: u32, flags: BranchFlags, weight: f64) {
        let counts = &mut self.profile.edges.list[edge as usize];
        counts.add(self.stack, flags, weight);
        let kind = flags.kind();
        if kind != BranchKind::Unknown {
            counts.kind = kind;
        }
    }

    /// Counts the code that ran between a branch and the next branch.
    fn run(&mut self, landing: Landing, entry: &Entry, edge: u32, frames: &Frames, weight: f64) {
        let start = self.profile.edges.list[landing.edge as usize].to;
        let end = self.profile.edges.list[edge as usize].from;
        let (first, last) = (frames.get(start), frames.get(end));
        let length = entry.from.checked_sub(landing.to);
        let straight = length.is_some_and(|length| length <= LONGEST_RUN)
            && first.module == last.module
            && last.address.checked_sub(first.address) == length;
        if !straight {
            self.profile.facts.broken_runs += 1;
            return;
        }
        if first.module == Modules::UNKNOWN {
            self.profile.facts.unmapped_runs += 1;
            return;
        }
        self.profile.facts.runs += 1;
        let run = self
            .profile
            .runs
            .intern((start, end), || RunCounts::new(start, end));
        let run = &mut self.profile.runs.list[run as usize];
        run.tally.add(self.stack, weight);
        run.cycles.add(entry.flags.cycles());
    }
}

/// The way in which a stack is counted.
struct Plan {
    /// The oldest entry that counts.
    first: usize,
    /// The branch before the oldest counted entry, where it is known.
    before: Option<Landing>,
    /// Whether the stack continues the thread's stack before.
    stitched: bool,
    /// Whether the thread's next stack may continue this one.
    follows_up: bool,
    /// The number of executions that each branch (`branch_weight`) and each run (`run_weight`) stands for; 0 where it
    /// is not known.
    branch_weight: f64,
    run_weight: f64,
}
