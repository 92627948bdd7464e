//! The distribution of loop iterations per entry, found from whole stacks.
//!
//! The walk follows each kept stack branch by branch, with the calls that it opens and closes. A stay in a loop counts
//! when its entry and its end both lie within the stack, or within stacks that continue each other.

use super::analysis::{BranchAnalysis, BranchClass};
use super::calls::FunctionAt;
use super::code::{CodeOutline, Flow};
use super::sequences::{Sequence, Sequences};
use crate::hash::FxBuildHasher;
use crate::stacks::frames::Frame;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The largest number of open calls while a stack is followed.
const DEEPEST: usize = 1 << 12;

/// A loop of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopAt {
    /// The function.
    pub function: FunctionAt,
    /// The number of the loop in its [`CodeOutline`].
    pub number: usize,
}

/// The distribution of header executions per entry of a loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TripCounts {
    /// By number of trips, rising.
    pub trips: Vec<TripCount>,
    /// Stays that were seen whole.
    pub complete: u64,
    /// Stays whose start was seen and whose end was not. Long stays are more likely to be cut.
    pub cut: u64,
}

/// The stays in a loop with one number of trips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripCount {
    /// The number of header executions per stay.
    pub trips: u64,
    /// Stays that were seen whole.
    pub seen: u64,
    /// Their share of all stays that fit in a stack, 0 to 1. Long stays are seen whole less often, and the share
    /// corrects for that. Stays that fit in no stack are in no share.
    pub share: f64,
}

impl TripCounts {
    /// Returns the mean trips of complete stays, weighted as in [`TripCount::share`].
    pub fn mean(&self) -> Option<f64> {
        let sum = |of: fn(&TripCount) -> f64| self.trips.iter().map(of).sum::<f64>();
        (self.complete > 0).then(|| sum(|one| one.share * one.trips as f64))
    }
}

impl BranchAnalysis<'_> {
    /// Returns the trips of all loops that occur in the kept stacks. At most 16,384 stacks of an event are kept, each
    /// with the same chance; see [`BranchAnalysis::kept_stacks`].
    pub fn trips(&self) -> BTreeMap<LoopAt, TripCounts> {
        let mut walk = Walk {
            edges: self.ends(),
            stack: Vec::new(),
            stays: HashMap::default(),
            length: 0,
            sampled: true,
        };
        let sequences = self.branches.sequences().list();
        let joined = |before: &Sequence, after: &Sequence| {
            after.stitched
                && before.place.0 == after.place.0
                && before.place.1.checked_add(1) == Some(after.place.1)
        };
        for chain in sequences.chunk_by(joined) {
            let edges = chain.iter().flat_map(|sequence| sequence.edges.iter());
            let edges: Vec<u32> = edges.copied().collect();
            walk.sampled = chain.len() == 1 && !self.branches.is_exact();
            for part in edges.split(|edge| *edge == Sequences::GAP) {
                walk.follow(part);
            }
        }
        walk.finish()
    }

    /// Returns the number of stacks that [`BranchAnalysis::trips`] looks at, and the number of all stacks.
    pub fn kept_stacks(&self) -> (u64, u64) {
        let sequences = self.branches.sequences();
        (sequences.list().len() as u64, sequences.seen())
    }

    /// Returns the places in the code where the edges start and end.
    fn ends(&self) -> Vec<Ends> {
        let mut outlines: HashMap<(u32, u64), Arc<CodeOutline>, FxBuildHasher> = HashMap::default();
        let mut place = |frame| {
            let Frame { module, address } = self.profile.frames().get(frame);
            let outline = self.code.function(module, address)?;
            let start = outline.addresses().start;
            let instruction = outline.instruction_at(address)?;
            // Keeps one copy of each outline, even if the provider makes several.
            let outline = outlines.entry((module, start)).or_insert(outline);
            Some(Spot {
                function: FunctionAt { module, start },
                outline: Arc::clone(outline),
                instruction,
            })
        };
        self.edges()
            .iter()
            .map(|edge| Ends {
                class: self.kind_of(edge),
                from: place(edge.from),
                to: place(edge.to),
            })
            .collect()
    }
}

/// A place in the code.
#[derive(Clone)]
struct Spot {
    function: FunctionAt,
    outline: Arc<CodeOutline>,
    instruction: usize,
}

/// Both ends of an edge.
struct Ends {
    class: Option<BranchClass>,
    from: Option<Spot>,
    to: Option<Spot>,
}

/// A function whose call is open.
struct Open {
    /// `None` while the function is not known.
    function: Option<FunctionAt>,
    block: Option<usize>,
    /// Whether the stack holds the entry of the function at its start.
    entered: bool,
    /// Whether control entered the kernel here rather than a function.
    is_kernel: bool,
    stays: Vec<Stay>,
}

impl Open {
    fn new(function: Option<FunctionAt>, entered: bool, is_kernel: bool) -> Self {
        Open {
            function,
            block: None,
            entered,
            is_kernel,
            stays: Vec::new(),
        }
    }
}

/// A stay in a loop that has not ended.
struct Stay {
    number: usize,
    trips: u64,
    /// The position of the first branch that the stack must hold for the stay to be seen.
    since: usize,
}

/// Stays of one loop.
#[derive(Default)]
struct Stays {
    /// By number of trips: the number of stays, and the sum of their weights.
    complete: BTreeMap<u64, (u64, f64)>,
    cut: u64,
}

struct Walk {
    edges: Vec<Ends>,
    stack: Vec<Open>,
    stays: HashMap<LoopAt, Stays, FxBuildHasher>,
    /// The number of branches in the stack that is followed.
    length: usize,
    /// Whether the stack is a sample by itself, whose borders may cut stays by chance.
    sampled: bool,
}

impl Walk {
    fn follow(&mut self, chain: &[u32]) {
        self.length = chain.len();
        self.stack.clear();
        for (position, number) in chain.iter().enumerate() {
            self.branch(position, *number as usize);
            if let Some(next) = chain.get(position + 1) {
                self.run(position, *number as usize, *next as usize);
            }
        }
        self.lose();
    }

    /// Gives up all open functions and counts their stays as cut.
    fn lose(&mut self) {
        while let Some(open) = self.stack.pop() {
            self.cut(open);
        }
    }

    fn cut(&mut self, open: Open) {
        let Some(function) = open.function else {
            return;
        };
        for Stay { number, .. } in open.stays {
            self.stays
                .entry(LoopAt { function, number })
                .or_default()
                .cut += 1;
        }
    }

    /// Counts a stay that ended at a branch.
    fn complete(&mut self, function: FunctionAt, stay: &Stay, position: usize) {
        let Stay {
            number,
            trips,
            since,
        } = *stay;
        let needed = position - since + 1;
        let weight = if self.sampled {
            1.0 / (self.length + 1).saturating_sub(needed).max(1) as f64
        } else {
            1.0
        };
        let stays = self.stays.entry(LoopAt { function, number }).or_default();
        let (seen, sum) = stays.complete.entry(trips).or_default();
        *seen += 1;
        *sum += weight;
    }

    /// Closes a function and completes all its stays.
    fn close(&mut self, open: &Open, position: usize) {
        if let Some(function) = open.function {
            for stay in &open.stays {
                self.complete(function, stay, position);
            }
        }
    }

    /// Follows a taken branch.
    fn branch(&mut self, position: usize, number: usize) {
        let Ends { class, from, to } = &self.edges[number];
        let (class, to) = (*class, to.clone());
        let target = to.as_ref().map(|to| to.function);
        let stays = from.as_ref().map(|from| from.function) == target && target.is_some();
        match class {
            Some(BranchClass::Call) => {
                let at_start = to.as_ref().is_some_and(|to| to.instruction == 0);
                self.push(Open::new(target, at_start, false));
            }
            Some(BranchClass::Diversion) => self.push(Open::new(target, false, true)),
            Some(BranchClass::Return) => {
                if let Some(open) = self.stack.pop() {
                    if open.is_kernel {
                        self.cut(open);
                        self.lose();
                    } else {
                        self.close(&open, position);
                    }
                }
                self.expect(target);
            }
            Some(BranchClass::Resumption) => {
                let mut found = false;
                while let Some(open) = self.stack.pop() {
                    found = open.is_kernel;
                    self.cut(open);
                    if found {
                        break;
                    }
                }
                if !found {
                    self.lose();
                }
                self.expect(target);
            }
            Some(BranchClass::Jump) if stays => {}
            Some(BranchClass::Jump) => {
                // A jump to another function leaves its own function for good.
                if let Some(open) = self.stack.pop() {
                    self.close(&open, position);
                }
                let at_start = to.as_ref().is_some_and(|to| to.instruction == 0);
                self.push(Open::new(target, at_start, false));
            }
            None => self.lose(),
        }
        if let Some(to) = to {
            self.expect(target);
            self.arrive(&to, position);
        }
    }

    fn push(&mut self, open: Open) {
        if self.stack.len() >= DEEPEST {
            self.lose();
        }
        self.stack.push(open);
    }

    /// Checks that execution goes on in the innermost open function; gives up all open functions if it does not.
    fn expect(&mut self, function: Option<FunctionAt>) {
        if self
            .stack
            .last()
            .is_some_and(|open| open.function != function)
        {
            self.lose();
        }
        if self.stack.is_empty() {
            self.stack.push(Open::new(function, false, false));
        }
    }

    /// Follows the straight run from one branch to the next.
    fn run(&mut self, position: usize, before: usize, after: usize) {
        let (Some(start), Some(end)) = (&self.edges[before].to, &self.edges[after].from) else {
            return;
        };
        let outline = Arc::clone(&start.outline);
        if start.function != end.function
            || !outline.runs_straight(start.instruction, end.instruction)
        {
            self.lose();
            return;
        }
        // An interrupt or fault left from the last instruction before that instruction ran.
        let diverted = outline.instructions()[end.instruction].flow == Flow::Sequential;
        let (function, first) = (start.function, start.instruction);
        let end = end.instruction + usize::from(!diverted);
        let Some(mut block) = outline.block_of(first) else {
            return;
        };
        while let Some(next) = outline
            .blocks()
            .get(block + 1)
            .filter(|next| next.start < end)
        {
            let spot = Spot {
                function,
                outline: Arc::clone(&outline),
                instruction: next.start,
            };
            // The stack shows the run only once it holds the branch that ends the run.
            self.arrive(&spot, position + 1);
            block += 1;
        }
    }

    /// Follows execution to an instruction of the open function.
    fn arrive(&mut self, spot: &Spot, position: usize) {
        let outline = &spot.outline;
        let Some(block) = outline.block_of(spot.instruction) else {
            return;
        };
        let Some(mut open) = self.stack.pop() else {
            return;
        };
        let at_start = outline.blocks()[block].start == spot.instruction;
        if at_start {
            let before = open.block;
            let known = before.is_some() || open.entered;
            let holds =
                |number: usize, block| outline.loops()[number].blocks.binary_search(&block).is_ok();
            let (inside, ended) = open
                .stays
                .drain(..)
                .partition::<Vec<_>, _>(|stay| holds(stay.number, block));
            open.stays = inside;
            for stay in &ended {
                self.complete(spot.function, stay, position);
            }
            if let Some(number) = outline.headed_by(block) {
                let from_inside = before.is_some_and(|before| holds(number, before));
                let stay = open.stays.iter_mut().find(|stay| stay.number == number);
                match stay {
                    Some(stay) if from_inside => stay.trips += 1,
                    // The start of this stay was not seen.
                    None if from_inside || !known => {}
                    _ => open.stays.push(Stay {
                        number,
                        trips: 1,
                        since: position,
                    }),
                }
            }
        }
        open.entered = false;
        open.block = Some(block);
        self.stack.push(open);
    }

    fn finish(self) -> BTreeMap<LoopAt, TripCounts> {
        let counts = |stays: Stays| {
            let complete = stays.complete.values().map(|(seen, _)| seen).sum();
            let weights: f64 = stays.complete.values().map(|(_, weight)| weight).sum();
            let trips = stays
                .complete
                .iter()
                .map(|(trips, (seen, weight))| TripCount {
                    trips: *trips,
                    seen: *seen,
                    share: weight / weights,
                });
            TripCounts {
                trips: trips.collect(),
                complete,
                cut: stays.cut,
            }
        };
        let stays = self.stays.into_iter();
        stays.map(|(at, stays)| (at, counts(stays))).collect()
    }
}
