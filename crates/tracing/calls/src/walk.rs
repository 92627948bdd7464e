//! From a stream's records to calls that begin and end.

use crate::past::{Past, is_one_stack};
use dioptra_tracedata::{ClockCursor, Stream, Trace};
use dioptra_tracelayout::chunk::Chunk;
use dioptra_tracelayout::record::UnwindCause;
use dioptra_tracelayout::{Decoder, Record};
use rustc_hash::FxHashMap;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// It returned.
    Returned,
    /// It ended without returning.
    Unwound(UnwindCause),
    /// It returned, and was judged not to be shown when it was recorded, nor what it called.
    Discarded,
    /// Its exit is among records that are missing; the time is that of the first record behind the gap.
    Missing,
    /// It had not ended when its stream's records did, or the time that is looked at. Only a [`View`](crate::View) tells.
    Open,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function's id.
    pub function: u32,
    /// How many calls of the stream were open when it began, itself not counted.
    pub depth: u32,
    /// When it began, `CLOCK_MONOTONIC` in nanoseconds; none if that is not in the trace: the call was open already
    /// when the stream's records begin (a forked child's inherited calls, a ring's oldest), or its entry is missing.
    pub entered: Option<u64>,
}

/// What happens in a stream. Times are `CLOCK_MONOTONIC` in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A call begins.
    Enter {
        /// When.
        time: u64,
        /// Which; `entered` is `time`.
        call: Call,
    },
    /// The innermost open call ends.
    Leave {
        /// When.
        time: u64,
        /// Which.
        call: Call,
        /// How.
        ending: Ending,
    },
    /// Records are missing here. Open calls whose exits are among them end right behind, as [`Ending::Missing`].
    Lost {
        /// When the gap was noticed.
        time: u64,
        /// How many; 0 if that is not known (a chunk is damaged).
        records: u64,
    },
    /// The thread goes on, on another call stack (coroutines): the calls that are open from now on are that one's.
    Switch {
        /// When.
        time: u64,
        /// Its number.
        stack: u32,
    },
}

impl Step {
    /// When it happens.
    pub fn time(&self) -> u64 {
        match *self {
            Step::Enter { time, .. }
            | Step::Leave { time, .. }
            | Step::Lost { time, .. }
            | Step::Switch { time, .. } => time,
        }
    }
}

/// What a walk could not make sense of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkLosses {
    /// Records that are missing, as far as they are counted.
    pub records: u64,
    /// Gaps of unknown size.
    pub gaps: u64,
    /// Exits without an open call.
    pub stray_exits: u64,
    /// Chunks whose records end in bytes that are none.
    pub malformed: u64,
    /// Periods in which the thread had no CPU that overlap recorded calls by more than the clocks' error: a child that
    /// shares its parent's memory made these calls, or context switches are missing. They are shown up to or from them.
    pub overlaps: u64,
}

impl std::ops::AddAssign for WalkLosses {
    fn add_assign(&mut self, other: WalkLosses) {
        self.records = self.records.saturating_add(other.records);
        self.gaps += other.gaps;
        self.stray_exits = self.stray_exits.saturating_add(other.stray_exits);
        self.malformed += other.malformed;
        self.overlaps += other.overlaps;
    }
}

#[derive(Clone, Copy, Debug)]
struct Open {
    function: u32,
    /// Unknown: [`NO_TIME`]; not asked for yet: [`BEFORE`].
    entered: u64,
}

const NO_TIME: u64 = u64::MAX;
/// It began before the walk did, and nobody has asked when.
const BEFORE: u64 = u64::MAX - 1;

/// How many calls of unknown functions are taken to be open, whatever a stream's size.
const FEW_UNKNOWN: usize = 1024;

impl Open {
    fn call(self, depth: usize) -> Call {
        Call {
            function: self.function,
            depth: depth as u32,
            entered: (self.entered != NO_TIME).then_some(self.entered),
        }
    }
}

/// Calls that end without an exit of their own, innermost first, until so many are open.
#[derive(Clone, Copy, Debug)]
struct Unwinding {
    until: usize,
    time: u64,
    ending: Ending,
}

/// Goes through one stream. An iterator over its [steps](Step), in order; calls that are open at the end stay open
/// ([`Walk::open`]).
pub struct Walk<'t> {
    chunks: Box<dyn Iterator<Item = Chunk<'t>> + Send + 't>,
    decoder: Decoder<'t>,
    shift: u8,
    clock: ClockCursor<'t>,
    last: u64,
    sequence: Option<u32>,
    /// Calls that are open, the outermost first.
    open: Vec<Open>,
    /// The open calls of the other stacks, by number.
    elsewhere: FxHashMap<u32, Vec<Open>>,
    stack: u32,
    unwinding: Option<Unwinding>,
    /// Calls that are open when the unwinding is done.
    reopened: Vec<Open>,
    /// The chunk whose beginning has to be fitted to the open calls, once its gap was told.
    beginning: Option<Chunk<'t>>,
    losses: WalkLosses,
    /// How many more calls of unknown functions are taken to be open: a chunk may claim any depth, but each exit takes
    /// two bytes.
    unknown: usize,
    /// If the walk begins in the middle: what was before, and how many calls that are open there are still to be given.
    past: Option<Box<Past<'t>>>,
    ungiven: usize,
}

impl<'t> Walk<'t> {
    /// Through `stream` of `trace`.
    pub fn new(trace: &'t Trace, stream: &'t Stream) -> Walk<'t> {
        Walk::through(trace, stream, Box::new(trace.chunks(stream)))
    }

    /// Through the chunks before number `end`.
    pub(crate) fn before(trace: &'t Trace, stream: &'t Stream, end: usize) -> Walk<'t> {
        Walk::through(trace, stream, Box::new(trace.chunks(stream).take(end)))
    }

    /// From the chunk number `first` on, which nothing is missing before, for those who look at what happens up to `until`:
    /// the calls that are open there begin at its beginning, and have their own times when they end; or, if `exactly`, they
    /// begin when they did. None if the records have to be walked through from the start.
    pub(crate) fn from_chunk(
        trace: &'t Trace,
        stream: &'t Stream,
        first: usize,
        until: u64,
        exactly: bool,
    ) -> Option<Walk<'t>> {
        let chunk = trace.chunk(stream, first)?;
        let header = chunk.header;
        // Of very deep stacks a part is listed.
        if header.depth != header.open || !is_one_stack(trace, stream, first, until) {
            return None;
        }
        let mut walk = Walk::through(trace, stream, Box::new(trace.chunks_from(stream, first)));
        walk.shift = header.shift;
        walk.sequence = Some(header.sequence.wrapping_sub(1));
        let mut past = Past::new(trace, stream, first, header.depth as usize);
        for (depth, function) in chunk.open().enumerate() {
            let entered = match exactly {
                true => past.entered(depth)?,
                false => BEFORE,
            };
            walk.open.push(Open { function, entered });
        }
        walk.ungiven = walk.open.len();
        walk.past = Some(Box::new(past));
        if !exactly || walk.open.is_empty() {
            walk.time_of(header.base);
        }
        Some(walk)
    }

    fn through(
        trace: &'t Trace,
        stream: &'t Stream,
        chunks: Box<dyn Iterator<Item = Chunk<'t>> + Send + 't>,
    ) -> Walk<'t> {
        Walk {
            chunks,
            past: None,
            ungiven: 0,
            decoder: Decoder::new(&[], 0),
            shift: 0,
            clock: trace.clock().cursor(),
            last: 0,
            sequence: None,
            open: Vec::new(),
            elsewhere: FxHashMap::default(),
            stack: 0,
            unwinding: None,
            reopened: Vec::new(),
            beginning: None,
            losses: WalkLosses::default(),
            unknown: usize::try_from(stream.bytes / 2)
                .unwrap_or(usize::MAX)
                .max(FEW_UNKNOWN),
        }
    }

    /// The calls that are open now, the outermost first.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = Call> + ExactSizeIterator {
        self.open
            .iter()
            .enumerate()
            .map(|(depth, open)| open.call(depth))
    }

    /// What could not be made sense of so far.
    pub fn losses(&self) -> WalkLosses {
        self.losses
    }

    /// The time of the last step.
    pub fn time(&self) -> u64 {
        self.last
    }

    /// To nanoseconds; never earlier than the step before, whatever a damaged record says.
    #[inline]
    fn time_of(&mut self, tick: u64) -> u64 {
        let time = self.clock.monotonic(tick << self.shift);
        self.last = self.last.max(time);
        self.last
    }

    /// Gives one of the calls that are open where the walk begins.
    #[cold]
    fn begun_before(&mut self) -> Option<Step> {
        let depth = self.open.len() - self.ungiven;
        self.ungiven -= 1;
        let open = *self.open.get(depth)?;
        let time = match open.entered {
            BEFORE => self.last,
            time => time.max(self.last),
        };
        self.last = time;
        let open = Open {
            entered: time,
            ..open
        };
        let call = open.call(depth);
        Some(Step::Enter { time, call })
    }

    /// A call that was open and has ended, with the time when it began.
    #[inline]
    fn ended(&mut self, open: Open) -> Call {
        let depth = self.open.len();
        if open.entered == BEFORE {
            return self.ended_from_before(open, depth);
        }
        open.call(depth)
    }

    #[cold]
    fn ended_from_before(&mut self, open: Open, depth: usize) -> Call {
        let entered = self.past.as_mut().and_then(|past| past.entered(depth));
        let entered = entered.unwrap_or(NO_TIME);
        Open { entered, ..open }.call(depth)
    }

    /// The next call that ends without an exit of its own; none if there are no more.
    fn unwind(&mut self, unwinding: Unwinding) -> Option<Step> {
        if self.open.len() > unwinding.until
            && let Some(open) = self.open.pop()
        {
            return Some(Step::Leave {
                time: unwinding.time,
                call: self.ended(open),
                ending: unwinding.ending,
            });
        }
        self.unwinding = None;
        self.open.append(&mut self.reopened);
        None
    }

    /// Goes to the next chunk, and returns the gap in front of it if there is one; none at the end.
    fn next_chunk(&mut self) -> Option<Option<Step>> {
        let chunk = self.chunks.next()?;
        let header = chunk.header;
        self.shift = header.shift;
        let gap = self
            .sequence
            .is_some_and(|last| header.sequence != last.wrapping_add(1));
        self.sequence = Some(header.sequence);
        self.beginning = Some(chunk);
        if header.lost == 0 && !gap {
            return Some(None);
        }
        let lost = u64::from(header.lost);
        self.losses.records = self.losses.records.saturating_add(lost);
        self.losses.gaps += u64::from(gap);
        Some(Some(Step::Lost {
            time: self.time_of(header.base),
            records: if gap { 0 } else { lost },
        }))
    }

    /// Begins a chunk: makes the open calls those that it says were open then. Without losses they are.
    ///
    /// The list is that of the stack that is named first (none: 0). As long as that is not the current one, the switch comes
    /// first, and the list is fitted to what was open there.
    fn begin(&mut self, chunk: Chunk<'t>) -> Option<Step> {
        let base = chunk.header.base;
        self.decoder = Decoder::new(chunk.records, base);
        let stack = match self.decoder.clone().next() {
            Some(Ok(Record::Stack { stack, .. })) => stack,
            _ => 0,
        };
        let switched = (stack != self.stack).then(|| {
            self.switch(stack);
            Step::Switch {
                time: self.time_of(base),
                stack,
            }
        });
        let depth = chunk.header.depth as usize;
        let listed = chunk.open();
        let unlisted = depth - listed.len();
        // The calls below the list are taken to be the same ones, as far as there are any.
        let mut common = self.open.len().min(unlisted);
        if common == unlisted {
            common += listed
                .clone()
                .zip(&self.open[unlisted..])
                .take_while(|(function, open)| *function == open.function)
                .count();
        }
        let missing = |function| Open {
            function,
            entered: NO_TIME,
        };
        let unknown = unlisted.saturating_sub(common).min(self.unknown);
        self.unknown -= unknown;
        self.reopened
            .extend(std::iter::repeat_n(missing(0), unknown));
        let known = common.saturating_sub(unlisted);
        self.reopened.extend(listed.skip(known).map(missing));
        self.unwinding = Some(Unwinding {
            until: common,
            time: self.time_of(base),
            ending: Ending::Missing,
        });
        switched
    }

    /// Goes on with the calls that are open on another stack.
    fn switch(&mut self, stack: u32) {
        let next = self.elsewhere.remove(&stack).unwrap_or_default();
        let left = std::mem::replace(&mut self.open, next);
        // Of a stack without open calls there is nothing to know.
        if !left.is_empty() {
            self.elsewhere.insert(self.stack, left);
        }
        self.stack = stack;
    }

    /// Gives what comes next as long as it is ordinary (calls that begin and calls that return), not behind `limit`, and
    /// `take` wants more. The quick way through most of a stream; what stops it is left to [`Walk::next`].
    #[inline]
    pub(crate) fn run(&mut self, limit: u64, mut take: impl FnMut(Step) -> bool) {
        if self.unwinding.is_some() || self.ungiven > 0 {
            return;
        }
        // In variables of their own they stay in registers.
        let (mut decoder, mut last) = (self.decoder.clone(), self.last);
        while let Some(plain) = decoder.plain() {
            let time = self.clock.monotonic(plain.time << self.shift).max(last);
            if time > limit {
                break;
            }
            let depth = self.open.len();
            let step = if plain.function != 0 {
                let open = Open {
                    function: plain.function,
                    entered: time,
                };
                self.open.push(open);
                let call = open.call(depth);
                Step::Enter { time, call }
            } else if let Some(open) = self.open.pop_if(|open| open.entered != BEFORE) {
                let call = open.call(depth - 1);
                let ending = Ending::Returned;
                Step::Leave { time, call, ending }
            } else {
                break;
            };
            decoder.accept(plain);
            last = time;
            if !take(step) {
                break;
            }
        }
        (self.decoder, self.last) = (decoder, last);
    }

    #[cold]
    fn rare(&mut self, record: Record<'t>) -> Option<Step> {
        match record {
            Record::Unwound { time, cause, calls } => {
                let stray = (calls as usize).saturating_sub(self.open.len());
                self.losses.stray_exits = self.losses.stray_exits.saturating_add(stray as u64);
                self.unwinding = Some(Unwinding {
                    until: self.open.len().saturating_sub(calls as usize),
                    time: self.time_of(time),
                    ending: Ending::Unwound(cause),
                });
                None
            }
            Record::Discarded { time } => {
                let time = self.time_of(time);
                let Some(open) = self.open.pop() else {
                    self.losses.stray_exits += 1;
                    return None;
                };
                Some(Step::Leave {
                    time,
                    call: self.ended(open),
                    ending: Ending::Discarded,
                })
            }
            Record::Lost { records } => {
                self.losses.records = self.losses.records.saturating_add(records);
                Some(Step::Lost {
                    time: self.last,
                    records,
                })
            }
            Record::Stack { time, stack } => {
                let time = self.time_of(time);
                if stack == self.stack {
                    // Chunks say again where they begin.
                    return None;
                }
                self.switch(stack);
                Some(Step::Switch { time, stack })
            }
            Record::Entry { .. } | Record::Exit { .. } | Record::Other { .. } => None,
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Step;

    #[inline]
    fn next(&mut self) -> Option<Step> {
        if self.ungiven > 0 {
            return self.begun_before();
        }
        loop {
            if let Some(unwinding) = self.unwinding
                && let Some(step) = self.unwind(unwinding)
            {
                return Some(step);
            }
            match self.decoder.next() {
                Some(Ok(Record::Entry { time, function })) => {
                    let time = self.time_of(time);
                    let open = Open {
                        function,
                        entered: time,
                    };
                    let call = open.call(self.open.len());
                    self.open.push(open);
                    return Some(Step::Enter { time, call });
                }
                Some(Ok(Record::Exit { time })) => {
                    let time = self.time_of(time);
                    let Some(open) = self.open.pop() else {
                        self.losses.stray_exits += 1;
                        continue;
                    };
                    return Some(Step::Leave {
                        time,
                        call: self.ended(open),
                        ending: Ending::Returned,
                    });
                }
                Some(Ok(record)) => {
                    if let Some(step) = self.rare(record) {
                        return Some(step);
                    }
                }
                Some(Err(_)) => {
                    self.losses.malformed += 1;
                    return Some(Step::Lost {
                        time: self.last,
                        records: 0,
                    });
                }
                None => {
                    if let Some(chunk) = self.beginning.take() {
                        if let Some(step) = self.begin(chunk) {
                            return Some(step);
                        }
                    } else if let Some(lost) = self.next_chunk()? {
                        return Some(lost);
                    }
                }
            }
        }
    }
}
