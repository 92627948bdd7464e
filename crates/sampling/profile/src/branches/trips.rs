//! How often loops go round each time they are entered: a distribution, from whole stacks.
//!
//! Each kept stack is followed branch by branch, with the calls that it opens and closes. A stay in a loop counts when
//! its entry and its end are both within the stack, or within stacks that follow on each other.

use super::analysis::{BranchAnalysis, BranchClass};
use super::calls::FunctionAt;
use super::code::{CodeOutline, Flow};
use super::sequences::{Sequence, Sequences};
use crate::hash::FxBuildHasher;
use crate::stacks::frames::Frame;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Calls that may be open at once while a stack is followed.
const DEEPEST: usize = 1 << 12;

/// A loop of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoopAt {
    /// The function.
    pub function: FunctionAt,
    /// The number of the loop in its [`CodeOutline`].
    pub number: usize,
}

/// How often a loop's header ran for each entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TripCounts {
    /// By number of trips, rising.
    pub trips: Vec<TripCount>,
    /// Stays that were seen whole.
    pub complete: u64,
    /// Stays whose start was seen and whose end was not: longer ones are more likely to be cut.
    pub cut: u64,
}

/// Stays in a loop of one number of trips.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TripCount {
    /// How often the header ran.
    pub trips: u64,
    /// Stays that were seen whole.
    pub seen: u64,
    /// Their share of all stays that fit in a stack, 0 to 1: long stays are seen whole less often, which is undone
    /// here. Stays that fit in no stack are in no share.
    pub share: f64,
}

impl TripCounts {
    /// Mean trips of those that were seen whole, weighted as in [`TripCount::share`].
    pub fn mean(&self) -> Option<f64> {
        let sum = |of: fn(&TripCount) -> f64| self.trips.iter().map(of).sum::<f64>();
        (self.complete > 0).then(|| sum(|one| one.share * one.trips as f64))
    }
}

impl BranchAnalysis<'_> {
    /// The trips of all loops that the kept stacks tell of. At most 16,384 stacks of an event are kept, each as likely
    /// as any other: [`BranchAnalysis::kept_stacks`].
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

    /// How many stacks [`BranchAnalysis::trips`] looks at, and how many there were.
    pub fn kept_stacks(&self) -> (u64, u64) {
        let sequences = self.branches.sequences();
        (sequences.list().len() as u64, sequences.seen())
    }

    /// Where the edges start and end in the code.
    fn ends(&self) -> Vec<Ends> {
        let mut outlines: HashMap<(u32, u64), Arc<CodeOutline>, FxBuildHasher> = HashMap::default();
        let mut place = |frame| {
            let Frame { module, address } = self.profile.frames().get(frame);
            let outline = self.code.function(module, address)?;
            let start = outline.addresses().start;
            let instruction = outline.instruction_at(address)?;
            // One copy of each, whatever the provider does.
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

/// A function that is open.
struct Open {
    /// `None` while it is not known where it is.
    function: Option<FunctionAt>,
    block: Option<usize>,
    /// Whether it was entered in this stack, at its start.
    entered: bool,
    /// Whether the kernel was entered here, not a function called.
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

/// A stay in a loop that goes on.
struct Stay {
    number: usize,
    trips: u64,
    /// The first branch that has to be in the stack for the stay to be seen.
    since: usize,
}

/// Stays of one loop.
#[derive(Default)]
struct Stays {
    /// By trips: how many, and the sum of their weights.
    complete: BTreeMap<u64, (u64, f64)>,
    cut: u64,
}

struct Walk {
    edges: Vec<Ends>,
    stack: Vec<Open>,
    stays: HashMap<LoopAt, Stays, FxBuildHasher>,
    /// Branches in the stack that is followed.
    length: usize,
    /// Whether it is a sample by itself, of which a stay may have been cut by chance.
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

    /// Nothing is known any more of what is open.
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

    /// A stay has ended at a branch.
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

    /// Closes a function: all of its stays have ended.
    fn close(&mut self, open: &Open, position: usize) {
        if let Some(function) = open.function {
            for stay in &open.stays {
                self.complete(function, stay, position);
            }
        }
    }

    /// A branch is taken.
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
                // Leaves its function for good.
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

    /// Execution goes on in a function: if that is not the one that is open, something was missed.
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

    /// Code runs straight from one branch to the next.
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
        // Where the program was diverted, the instruction did not run (yet).
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
            // The run is seen only with the branch that ends it.
            self.arrive(&spot, position + 1);
            block += 1;
        }
    }

    /// Execution comes to an instruction of the open function.
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
                    // Its start was not seen.
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
