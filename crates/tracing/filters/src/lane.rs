//! The reader's side of the state machine: a thread's calls in order of time, filtered.

use crate::effects::{Effects, TraceSwitch};
use crate::plan::Plan;
use crate::sampler::Sampler;
use crate::state::{CallFrame, ExitVerdict, Judgement, OpenState, Scope, ThreadState};
use std::sync::Arc;
use std::vec::Vec;

/// The beginning or the end of a shown call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<T> {
    /// A call begins.
    Enter {
        /// The value that [`Lane::enter`] was given.
        call: T,
        /// The time of the entry.
        time: u64,
        /// The number of shown calls around it.
        depth: u32,
        /// The number of calls that it stands for: the product over the sampled calls around it and itself.
        weight: f64,
        /// The effects of the call: whether its backtrace is shown, and what it switches.
        effects: Effects,
    },
    /// A call ends.
    Exit {
        /// The value that [`Lane::enter`] was given.
        call: T,
        /// The time of the entry.
        start: u64,
        /// The time of the exit.
        time: u64,
        /// The number of shown calls around it.
        depth: u32,
    },
}

/// An open call.
#[derive(Debug, Clone, Copy)]
struct OpenCall<T> {
    frame: CallFrame,
    call: T,
    fate: OpenState,
    /// True if the call's entry was given out, or is among the held events.
    is_told: bool,
    effects: Effects,
    /// The index of the call's entry among the held events if the call is held or began within a held call; else
    /// their number then.
    item: usize,
    /// The number of calls that this one stands for.
    own_weight: f64,
    /// The number of calls that each call below it stands for.
    weight: f64,
    /// True if a call below it is shown.
    leads: bool,
    /// [`Lane::led`] when the call began.
    led: usize,
}

/// An event that waits for a decision.
#[derive(Debug, Clone, Copy)]
struct HeldEvent<T> {
    event: Event<T>,
    live: bool,
}

/// A filter for one thread's calls.
///
/// Calls go in by [`Lane::enter`] and [`Lane::exit`], strictly nested. The shown ones come out as [`Event`]s in the
/// same order. Calls whose showing depends on an end are kept back until it is known: with rules about durations and
/// callers only the open calls, with `sample=pNN` everything within a held call.
#[derive(Debug)]
pub struct Lane<T> {
    state: ThreadState,
    open: Vec<OpenCall<T>>,
    /// The events within the outermost held call.
    held: Vec<HeldEvent<T>>,
    /// The number of open calls that are held.
    holding: usize,
    /// The number of outermost open calls that need no second look when another call is shown. So deep recursion of
    /// hidden calls costs nothing.
    led: usize,
    /// The number of open calls that are lazy or held.
    undecided: usize,
    /// The number of shown calls that are open in the events given out.
    depth: u32,
    /// The number of executions that a chosen one stands for, by [`Sampling::slot`](crate::Sampling::slot), if known.
    scales: Option<Arc<[f64]>>,
}

impl<T: Copy> Lane<T> {
    /// Returns the lane of a thread without open calls. `thread` distinguishes threads: each chooses other random
    /// executions.
    #[must_use]
    pub fn new(plan: &Plan, thread: u64) -> Self {
        Self {
            state: ThreadState::new(plan, thread),
            open: Vec::new(),
            held: Vec::new(),
            holding: 0,
            led: 0,
            undecided: 0,
            depth: 0,
            scales: None,
        }
    }

    /// Sets the number of executions for which a chosen one stands, by [`Sampling::slot`](crate::Sampling::slot).
    /// Without these numbers a chosen execution stands for those since the chosen one before it, so that the
    /// executions after the last chosen one are not represented.
    #[must_use]
    pub fn scaled(mut self, scales: Option<Arc<[f64]>>) -> Self {
        self.scales = scales;
        self
    }

    /// Returns the counters of sampled functions, by [`Sampling::slot`](crate::Sampling::slot).
    #[must_use]
    pub fn samplers(&self) -> &[Sampler] {
        self.state.samplers()
    }

    /// Exchanges the counters with a lane of the same thread: counters belong to threads, not to the call stacks that
    /// a thread exchanges.
    pub fn exchange_counters(&mut self, other: &mut Self) {
        self.state.exchange_counters(&mut other.state);
    }

    /// Returns the number of open calls, shown or not.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// Returns the innermost open call for changes. Its [`Event::Exit`] has the value at the end of the call.
    #[inline]
    pub fn innermost_mut(&mut self) -> Option<&mut T> {
        self.open.last_mut().map(|open| &mut open.call)
    }

    /// Handles the beginning of a call. `action` is [`Plan::action_of`] its function, `switch` the process's. Returns
    /// the call's effects, on the process's [`TraceSwitch`] too.
    pub fn enter(
        &mut self,
        plan: &Plan,
        action: u32,
        switch: TraceSwitch,
        call: T,
        time: u64,
        tell: &mut impl FnMut(Event<T>),
    ) -> Effects {
        let entry = self.state.enter(plan, action, switch, time);
        let around = self.open.last().map_or(1.0, |open| open.weight);
        let weight = match &self.scales {
            None => around * entry.stands_for as f64,
            Some(scales) => match plan.sampling(action) {
                Some(sampling)
                    if entry.frame.is_chosen_subtree || plan.is_sampled_alone(action) =>
                {
                    around * scales.get(sampling.slot as usize).copied().unwrap_or(1.0)
                }
                _ => around,
            },
        };
        let fate = entry.state;
        if fate == OpenState::Shown {
            self.lead(tell);
        }
        let item = self.held.len();
        self.undecided += usize::from(matches!(fate, OpenState::Lazy | OpenState::Held(_)));
        self.holding += usize::from(matches!(fate, OpenState::Held(_)));
        let is_told = fate == OpenState::Shown || self.holding > 0;
        if is_told && fate != OpenState::Hidden {
            let event = Event::Enter {
                call,
                time,
                depth: 0,
                weight,
                effects: entry.effects,
            };
            self.push(event, fate == OpenState::Shown, tell);
        }
        self.open.push(OpenCall {
            frame: entry.frame,
            call,
            fate,
            is_told,
            effects: entry.effects,
            item,
            own_weight: weight,
            // A trigger samples the call itself; a filter samples the calls below it, too.
            weight: if entry.frame.is_chosen_subtree {
                weight
            } else {
                around
            },
            leads: false,
            led: self.led,
        });
        entry.effects
    }

    /// Handles the end of the innermost call. Does nothing if no call is open.
    pub fn exit(&mut self, plan: &Plan, time: u64, tell: &mut impl FnMut(Event<T>)) {
        self.close(plan, time, (true, Judgement::Open), tell);
    }

    /// Handles the end of a call that was judged at recording and is not shown. Has this effect only for calls that a
    /// [`Tail`] judges.
    pub fn discard(&mut self, plan: &Plan, time: u64, tell: &mut impl FnMut(Event<T>)) {
        self.close(plan, time, (true, Judgement::Discarded), tell);
    }

    /// Handles a call that did not end before the trace did: a [`Tail`] can't judge it, and it is kept.
    pub fn cut(&mut self, plan: &Plan, time: u64, tell: &mut impl FnMut(Event<T>)) {
        self.close(plan, time, (true, Judgement::Kept), tell);
    }

    /// Ends the trace: open calls are judged by their durations so far, and those that are shown stay open.
    pub fn finish(&mut self, plan: &Plan, time: u64, tell: &mut impl FnMut(Event<T>)) {
        while !self.open.is_empty() {
            self.close(plan, time, (false, Judgement::Open), tell);
        }
    }

    fn close(
        &mut self,
        plan: &Plan,
        time: u64,
        (returns, judgement): (bool, Judgement),
        tell: &mut impl FnMut(Event<T>),
    ) {
        let Some(open) = self.open.pop() else {
            return;
        };
        // Calls beyond a held subtree have not been examined yet.
        let led = match open.fate {
            OpenState::Held(Scope::Tree | Scope::Below) => open.led,
            _ => self.led,
        };
        self.led = led.min(self.open.len());
        let verdict = self.state.exit(plan, &open.frame, judgement, time);
        if open.fate == OpenState::Hidden {
            return;
        }
        let decides = matches!(open.fate, OpenState::Lazy | OpenState::Held(_));
        self.undecided -= usize::from(decides);
        self.holding -= usize::from(matches!(open.fate, OpenState::Held(_)));
        let kept = match verdict {
            ExitVerdict::Keep => true,
            ExitVerdict::KeepForDescendants => open.leads || open.fate == OpenState::Shown,
            ExitVerdict::Discard => false,
        };
        if !kept {
            if self.held.is_empty() {
                return;
            }
            if verdict == ExitVerdict::Discard && open.fate == OpenState::Held(Scope::Call) {
                self.drop_item(open.item);
            } else {
                self.held.truncate(open.item);
            }
            return self.flush(tell);
        }
        let below = open.fate == OpenState::Held(Scope::Below);
        if below {
            // The call can be shown only because of the shown calls below it.
            if open.leads {
                self.lead(tell);
            }
        } else if decides {
            self.lead(tell);
            if open.is_told {
                if let Some(item) = self.held.get_mut(open.item) {
                    item.live = true;
                }
            } else {
                self.tell_entry(&open, tell);
            }
        }
        if !below && returns {
            let event = Event::Exit {
                call: open.call,
                start: open.frame.start,
                time,
                depth: 0,
            };
            self.push(event, true, tell);
        }
        self.flush(tell);
    }

    /// Shows the lazy calls among the open ones because of a shown call within them, up to the innermost held call.
    fn lead(&mut self, tell: &mut impl FnMut(Event<T>)) {
        if self.undecided == 0 {
            return;
        }
        for open in self.open.iter_mut().skip(self.led).rev() {
            match open.fate {
                OpenState::Hidden => {}
                OpenState::Shown => break,
                OpenState::Lazy => {
                    open.fate = OpenState::Shown;
                    self.undecided -= 1;
                    if open.is_told
                        && let Some(item) = self.held.get_mut(open.item)
                    {
                        item.live = true;
                    }
                }
                OpenState::Held(scope) => {
                    open.leads = true;
                    if scope != Scope::Call {
                        break;
                    }
                }
            }
        }
        if self.holding == 0 {
            self.tell_entries(tell);
        }
        self.led = self.open.len();
    }

    /// Gives out the entries of shown calls that were not given out yet. They are the innermost ones, or held calls
    /// are within them.
    fn tell_entries(&mut self, tell: &mut impl FnMut(Event<T>)) {
        let is_told = |open: &OpenCall<T>| open.is_told && open.fate == OpenState::Shown;
        let first = self.open.iter().rposition(is_told).map_or(0, |at| at + 1);
        for place in first..self.open.len() {
            let open = &mut self.open[place];
            if open.fate == OpenState::Shown {
                open.is_told = true;
                let open = *open;
                self.tell_entry(&open, tell);
            }
        }
    }

    fn tell_entry(&mut self, open: &OpenCall<T>, tell: &mut impl FnMut(Event<T>)) {
        tell(Event::Enter {
            call: open.call,
            time: open.frame.start,
            depth: self.depth,
            weight: open.own_weight,
            effects: open.effects,
        });
        self.depth += 1;
    }

    /// Drops an entry that is not shown; the events after it stay.
    fn drop_item(&mut self, item: usize) {
        if item + 1 == self.held.len() {
            self.held.truncate(item);
        } else if let Some(item) = self.held.get_mut(item) {
            item.live = false;
        }
    }

    #[inline]
    fn push(&mut self, event: Event<T>, live: bool, tell: &mut impl FnMut(Event<T>)) {
        if self.holding == 0 && self.held.is_empty() {
            return tell(Self::placed(event, &mut self.depth));
        }
        self.held.push(HeldEvent { event, live });
        self.flush(tell);
    }

    /// Gives out the held events once no call is held.
    fn flush(&mut self, tell: &mut impl FnMut(Event<T>)) {
        if self.holding > 0 {
            return;
        }
        self.tell_entries(tell);
        for item in self.held.drain(..).filter(|item| item.live) {
            tell(Self::placed(item.event, &mut self.depth));
        }
    }

    /// Returns an event with the number of shown calls around it, and changes that number.
    #[inline]
    fn placed(mut event: Event<T>, around: &mut u32) -> Event<T> {
        match &mut event {
            Event::Enter { depth, .. } => {
                *depth = *around;
                *around += 1;
            }
            Event::Exit { depth, .. } => {
                *around = around.saturating_sub(1);
                *depth = *around;
            }
        }
        event
    }
}
