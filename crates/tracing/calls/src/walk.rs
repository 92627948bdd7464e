//! The walk through a stream: records in, calls that begin and end out.

use crate::past::{Past, is_one_stack};
use dioptra_tracedata::{ClockCursor, Stream, Trace};
use dioptra_tracelayout::chunk::Chunk;
use dioptra_tracelayout::record::UnwindCause;
use dioptra_tracelayout::{Decoder, Record};
use rustc_hash::FxHashMap;

/// The way in which a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallEnding {
    /// The call returned.
    Returned,
    /// The call ended without returning.
    Unwound(UnwindCause),
    /// The call returned, and the recording judged that neither it nor the calls below it are shown.
    Discarded,
    /// The call's exit is among missing records; the time is that of the first record behind the gap.
    Missing,
    /// The call had not ended when its stream's records did, or the view's time. Only a [`View`](crate::View) gives
    /// this.
    Open,
}

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The function's id.
    pub function: u32,
    /// The number of calls of the stream that were open when it began, without itself.
    pub depth: u32,
    /// The time at which it began, `CLOCK_MONOTONIC` in nanoseconds. `None` if that is not in the trace: the call was
    /// open already when the stream's records begin (a forked child's inherited calls, a ring's oldest), or its entry
    /// is missing.
    pub entered: Option<u64>,
    /// The place of the values that were recorded with the step ([`Trace::payload`]): where the call begins, of its
    /// arguments; where the call ends, of its return value. 0 if there are none.
    pub values: u64,
}

/// A step of a stream. Times are `CLOCK_MONOTONIC` in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkStep {
    /// A call begins.
    Enter {
        /// The time.
        time: u64,
        /// The call; `entered` is `time`.
        call: Call,
    },
    /// The innermost open call ends.
    Leave {
        /// The time.
        time: u64,
        /// The call.
        call: Call,
        /// The way in which it ended.
        ending: CallEnding,
    },
    /// Records are missing here. Open calls whose exits are among them end right behind, as [`CallEnding::Missing`].
    Lost {
        /// The time at which the gap was noticed.
        time: u64,
        /// The number of missing records; 0 if not known because a chunk is damaged.
        records: u64,
    },
    /// The thread goes on with another call stack (coroutines). The open calls are those of that stack from now on.
    Switch {
        /// The time.
        time: u64,
        /// The number of the call stack.
        stack: u32,
    },
}

impl WalkStep {
    /// Returns the time of the step.
    pub fn time(&self) -> u64 {
        match *self {
            WalkStep::Enter { time, .. }
            | WalkStep::Leave { time, .. }
            | WalkStep::Lost { time, .. }
            | WalkStep::Switch { time, .. } => time,
        }
    }
}

/// The losses of a walk: missing records and contradictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkLosses {
    /// The number of missing records, as far as they are counted.
    pub records: u64,
    /// The number of gaps of unknown size.
    pub gaps: u64,
    /// The number of exits without an open call.
    pub stray_exits: u64,
    /// The number of chunks whose records end in bytes that are no records.
    pub malformed: u64,
    /// The number of periods without a CPU that overlap recorded calls by more than the clocks' error. A child that
    /// shares its parent's memory made these calls, or context switches are missing. The periods are shown up to or
    /// from the calls.
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
struct OpenEntry {
    function: u32,
    /// The time of the beginning; [`NO_TIME`] if unknown, [`BEFORE`] if not asked for yet.
    entered: u64,
}

const NO_TIME: u64 = u64::MAX;
/// The mark of a call that began before the walk did, at a time that was not asked for yet.
const BEFORE: u64 = u64::MAX - 1;

/// The number of calls of unknown functions that may be open, whatever a stream's size.
const FEW_UNKNOWN: usize = 1024;

impl OpenEntry {
    fn call(self, depth: usize) -> Call {
        Call {
            function: self.function,
            depth: depth as u32,
            entered: (self.entered != NO_TIME).then_some(self.entered),
            values: 0,
        }
    }
}

/// Calls that end without an exit of their own, innermost first, until this number of calls is open.
#[derive(Clone, Copy, Debug)]
struct UnwindProgress {
    until: usize,
    time: u64,
    ending: CallEnding,
}

/// A walk through one stream: an iterator over its [steps](WalkStep), in order. Calls that are open at the end stay open
/// ([`StreamWalk::open`]).
pub struct StreamWalk<'t> {
    chunks: Box<dyn Iterator<Item = Chunk<'t>> + Send + 't>,
    decoder: Decoder<'t>,
    shift: u8,
    clock: ClockCursor<'t>,
    last: u64,
    sequence: Option<u32>,
    /// Calls that are open, the outermost first.
    open: Vec<OpenEntry>,
    /// The open calls of the other stacks, by number.
    elsewhere: FxHashMap<u32, Vec<OpenEntry>>,
    stack: u32,
    unwinding: Option<UnwindProgress>,
    /// The calls that are open when the unwinding is done.
    reopened: Vec<OpenEntry>,
    /// The chunk whose beginning must still be fitted to the open calls, after its gap was given.
    beginning: Option<Chunk<'t>>,
    losses: WalkLosses,
    trace: &'t Trace,
    /// The place of the values with which the innermost call is about to return, or 0.
    returned: u64,
    /// The number of calls of unknown functions that may still be taken to be open: a chunk may claim any depth, but
    /// each exit takes two bytes.
    unknown: usize,
    /// If the walk begins in the middle: the part of the stream before it. `ungiven` calls that are open there are
    /// still to be given.
    past: Option<Box<Past<'t>>>,
    ungiven: usize,
}

impl<'t> StreamWalk<'t> {
    /// Returns the walk through `stream` of `trace`.
    pub fn new(trace: &'t Trace, stream: &'t Stream) -> StreamWalk<'t> {
        StreamWalk::through(trace, stream, Box::new(trace.chunks(stream)))
    }

    /// Returns the walk through the chunks before number `end`.
    pub(crate) fn before(trace: &'t Trace, stream: &'t Stream, end: usize) -> StreamWalk<'t> {
        StreamWalk::through(trace, stream, Box::new(trace.chunks(stream).take(end)))
    }

    /// Returns the walk from chunk number `first` on, before which nothing is missing, for readers of what happens up
    /// to `until`. The calls that are open there begin at the chunk's beginning, and have their own times when they
    /// end; or, if `exactly`, they begin when they did. Returns `None` if the records must be walked through from the
    /// start.
    pub(crate) fn from_chunk(
        trace: &'t Trace,
        stream: &'t Stream,
        first: usize,
        until: u64,
        exactly: bool,
    ) -> Option<StreamWalk<'t>> {
        let chunk = trace.chunk(stream, first)?;
        let header = chunk.header;
        // A very deep stack is listed only in part.
        if header.depth != header.open || !is_one_stack(trace, stream, first, until) {
            return None;
        }
        let mut walk =
            StreamWalk::through(trace, stream, Box::new(trace.chunks_from(stream, first)));
        walk.shift = header.shift;
        walk.sequence = Some(header.sequence.wrapping_sub(1));
        let mut past = Past::new(trace, stream, first, header.depth as usize);
        for (depth, function) in chunk.open().enumerate() {
            let entered = match exactly {
                true => past.entered(depth)?,
                false => BEFORE,
            };
            walk.open.push(OpenEntry { function, entered });
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
    ) -> StreamWalk<'t> {
        StreamWalk {
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
            trace,
            returned: 0,
            unknown: usize::try_from(stream.bytes / 2)
                .unwrap_or(usize::MAX)
                .max(FEW_UNKNOWN),
        }
    }

    /// Returns the calls that are open now, the outermost first.
    pub fn open(&self) -> impl DoubleEndedIterator<Item = Call> + ExactSizeIterator {
        self.open
            .iter()
            .enumerate()
            .map(|(depth, open)| open.call(depth))
    }

    /// Returns the losses so far.
    pub fn losses(&self) -> WalkLosses {
        self.losses
    }

    /// Returns the time of the last step.
    pub fn time(&self) -> u64 {
        self.last
    }

    /// Returns a tick's time in nanoseconds; never earlier than the step before, whatever a damaged record says.
    #[inline]
    fn time_of(&mut self, tick: u64) -> u64 {
        let time = self.clock.monotonic(tick << self.shift);
        self.last = self.last.max(time);
        self.last
    }

    /// Gives one of the calls that are open where the walk begins.
    #[cold]
    fn begun_before(&mut self) -> Option<WalkStep> {
        let depth = self.open.len() - self.ungiven;
        self.ungiven -= 1;
        let open = *self.open.get(depth)?;
        let time = match open.entered {
            BEFORE => self.last,
            time => time.max(self.last),
        };
        self.last = time;
        let open = OpenEntry {
            entered: time,
            ..open
        };
        let call = open.call(depth);
        Some(WalkStep::Enter { time, call })
    }

    /// Returns a call that was open and has ended, with the time of its beginning.
    #[inline]
    fn ended(&mut self, open: OpenEntry) -> Call {
        let depth = self.open.len();
        if open.entered == BEFORE {
            return self.ended_from_before(open, depth);
        }
        open.call(depth)
    }

    #[cold]
    fn ended_from_before(&mut self, open: OpenEntry, depth: usize) -> Call {
        let entered = self.past.as_mut().and_then(|past| past.entered(depth));
        let entered = entered.unwrap_or(NO_TIME);
        OpenEntry { entered, ..open }.call(depth)
    }

    /// Ends the next call that ends without an exit of its own; `None` if there are no more.
    fn unwind(&mut self, unwinding: UnwindProgress) -> Option<WalkStep> {
        if self.open.len() > unwinding.until
            && let Some(open) = self.open.pop()
        {
            return Some(WalkStep::Leave {
                time: unwinding.time,
                call: self.ended(open),
                ending: unwinding.ending,
            });
        }
        self.unwinding = None;
        self.open.append(&mut self.reopened);
        None
    }

    /// Goes to the next chunk, and returns the gap in front of it if there is one; `None` at the end.
    fn next_chunk(&mut self) -> Option<Option<WalkStep>> {
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
        Some(Some(WalkStep::Lost {
            time: self.time_of(header.base),
            records: if gap { 0 } else { lost },
        }))
    }

    /// Begins a chunk: makes the open calls those that it lists. Without losses they are the same.
    ///
    /// The list is that of the stack that the chunk names first (without a name: 0). As long as that is not the
    /// current one, the switch comes first, and the list is fitted to the calls that were open there.
    fn begin(&mut self, chunk: Chunk<'t>) -> Option<WalkStep> {
        let base = chunk.header.base;
        self.decoder = Decoder::new(chunk.records, base);
        let stack = match self.decoder.clone().next() {
            Some(Ok(Record::Stack { stack, .. })) => stack,
            _ => 0,
        };
        let switched = (stack != self.stack).then(|| {
            self.switch(stack);
            WalkStep::Switch {
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
        let missing = |function| OpenEntry {
            function,
            entered: NO_TIME,
        };
        let unknown = unlisted.saturating_sub(common).min(self.unknown);
        self.unknown -= unknown;
        self.reopened
            .extend(std::iter::repeat_n(missing(0), unknown));
        let known = common.saturating_sub(unlisted);
        self.reopened.extend(listed.skip(known).map(missing));
        self.unwinding = Some(UnwindProgress {
            until: common,
            time: self.time_of(base),
            ending: CallEnding::Missing,
        });
        switched
    }

    /// Goes on with the calls that are open on another stack.
    fn switch(&mut self, stack: u32) {
        let next = self.elsewhere.remove(&stack).unwrap_or_default();
        let left = std::mem::replace(&mut self.open, next);
        // A stack without open calls needs no memory.
        if !left.is_empty() {
            self.elsewhere.insert(self.stack, left);
        }
        self.stack = stack;
    }

    /// Gives steps as long as they are ordinary (calls that begin and calls that return), not behind `limit`, and
    /// `take` wants more. This is the fast path through most of a stream; the step that stops it is left to
    /// [`StreamWalk::next`].
    #[inline]
    pub(crate) fn run(&mut self, limit: u64, mut take: impl FnMut(WalkStep) -> bool) {
        if self.unwinding.is_some() || self.ungiven > 0 || self.returned != 0 {
            return;
        }
        // In variables of their own these values stay in registers.
        let (mut decoder, mut last) = (self.decoder.clone(), self.last);
        while let Some(plain) = decoder.plain() {
            let time = self.clock.monotonic(plain.time << self.shift).max(last);
            if time > limit {
                break;
            }
            let depth = self.open.len();
            let step = if plain.function != 0 {
                if decoder.has_arguments_behind(plain) {
                    break;
                }
                let open = OpenEntry {
                    function: plain.function,
                    entered: time,
                };
                self.open.push(open);
                let call = open.call(depth);
                WalkStep::Enter { time, call }
            } else if let Some(open) = self.open.pop_if(|open| open.entered != BEFORE) {
                let call = open.call(depth - 1);
                let ending = CallEnding::Returned;
                WalkStep::Leave { time, call, ending }
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

    /// Takes the arguments of the call that begins. Returns their place, or 0.
    #[inline]
    fn arguments(&mut self) -> u64 {
        if !self.decoder.has_arguments() {
            return 0;
        }
        match self.decoder.next() {
            Some(Ok(Record::Arguments { payload })) => self.trace.place_of(payload),
            // A damaged record ends the chunk.
            Some(Err(_)) => {
                self.losses.malformed += 1;
                0
            }
            _ => 0,
        }
    }

    #[cold]
    fn rare(&mut self, record: Record<'t>) -> Option<WalkStep> {
        match record {
            Record::Unwound { time, cause, calls } => {
                let stray = (calls as usize).saturating_sub(self.open.len());
                self.losses.stray_exits = self.losses.stray_exits.saturating_add(stray as u64);
                self.returned = 0;
                self.unwinding = Some(UnwindProgress {
                    until: self.open.len().saturating_sub(calls as usize),
                    time: self.time_of(time),
                    ending: CallEnding::Unwound(cause),
                });
                None
            }
            Record::Discarded { time } => {
                self.returned = 0;
                let time = self.time_of(time);
                let Some(open) = self.open.pop() else {
                    self.losses.stray_exits += 1;
                    return None;
                };
                Some(WalkStep::Leave {
                    time,
                    call: self.ended(open),
                    ending: CallEnding::Discarded,
                })
            }
            Record::Lost { records } => {
                self.losses.records = self.losses.records.saturating_add(records);
                Some(WalkStep::Lost {
                    time: self.last,
                    records,
                })
            }
            Record::Stack { time, stack } => {
                let time = self.time_of(time);
                if stack == self.stack {
                    // Chunks repeat the call stack on which they begin.
                    return None;
                }
                self.switch(stack);
                Some(WalkStep::Switch { time, stack })
            }
            Record::Returned { payload } => {
                self.returned = self.trace.place_of(payload);
                None
            }
            Record::Entry { .. }
            | Record::Exit { .. }
            | Record::Arguments { .. }
            | Record::Other { .. } => None,
        }
    }
}

impl Iterator for StreamWalk<'_> {
    type Item = WalkStep;

    #[inline]
    fn next(&mut self) -> Option<WalkStep> {
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
                    let open = OpenEntry {
                        function,
                        entered: time,
                    };
                    let mut call = open.call(self.open.len());
                    call.values = self.arguments();
                    self.open.push(open);
                    return Some(WalkStep::Enter { time, call });
                }
                Some(Ok(Record::Exit { time })) => {
                    let time = self.time_of(time);
                    let Some(open) = self.open.pop() else {
                        self.losses.stray_exits += 1;
                        continue;
                    };
                    let mut call = self.ended(open);
                    call.values = std::mem::take(&mut self.returned);
                    return Some(WalkStep::Leave {
                        time,
                        call,
                        ending: CallEnding::Returned,
                    });
                }
                Some(Ok(record)) => {
                    if let Some(step) = self.rare(record) {
                        return Some(step);
                    }
                }
                Some(Err(_)) => {
                    self.losses.malformed += 1;
                    return Some(WalkStep::Lost {
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
