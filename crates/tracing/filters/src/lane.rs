//! A thread's calls in order of time, filtered: the reader's side of the state machine.

use crate::answer::{Effects, Frame, Judgement, Scope, Show, Switch, Verdict};
use crate::plan::Plan;
use crate::sampler::Sampler;
use crate::state::{Store, ThreadState};
use crate::tail::Tail;
use std::sync::Arc;
use std::vec::Vec;

/// A part of a call that is shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<T> {
    /// A call begins.
    Enter {
        /// What [`Lane::enter`] was given.
        call: T,
        /// When.
        time: u64,
        /// How many shown calls are around it.
        depth: u32,
        /// How many calls it stands for: the product of what the sampled calls around it and itself stand for.
        weight: f64,
        /// Whether its backtrace is wanted, and what it switched.
        effects: Effects,
    },
    /// A call ends.
    Exit {
        /// What [`Lane::enter`] was given.
        call: T,
        /// When it began.
        start: u64,
        /// When it ends.
        time: u64,
        /// How many shown calls are around it.
        depth: u32,
    },
}

/// An open call.
#[derive(Debug, Clone, Copy)]
struct Open<T> {
    frame: Frame,
    call: T,
    fate: Fate,
    /// Its entry is known to whom it is told, or is among the held items.
    is_told: bool,
    effects: Effects,
    /// Its entry among the held items if it began within a held call or is one, else how many there were.
    item: usize,
    /// How many calls it stands for.
    own_weight: f64,
    /// The weight of what is below it.
    weight: f64,
    /// A call below it is shown.
    leads: bool,
    /// [`Lane::led`] when it began.
    led: usize,
}

/// What is known of an open call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Hidden,
    Shown,
    Lazy,
    Held(Scope),
}

/// Something that may be told later.
#[derive(Debug, Clone, Copy)]
struct Item<T> {
    event: Event<T>,
    live: bool,
}

/// One thread's filtered calls.
///
/// Calls go in by [`Lane::enter`] and [`Lane::exit`], strictly nested; those that are shown come out as [`Event`]s in
/// the same order. What depends on a call's end is kept back until it is known: with rules about durations and callers
/// the open calls alone, with tail capture what lies within a held call.
#[derive(Debug)]
pub struct Lane<T> {
    state: ThreadState,
    samplers: Vec<Sampler>,
    tails: Vec<Tail>,
    open: Vec<Open<T>>,
    /// What happened within the outermost held call.
    held: Vec<Item<T>>,
    /// Open calls that are held.
    holding: usize,
    /// So many of the open calls, from the outermost on, need no second look when another call is shown: so deep
    /// recursion of hidden calls costs nothing.
    led: usize,
    /// Open calls that are lazy or held.
    undecided: usize,
    /// Shown calls that are open in what was told.
    depth: u32,
    /// By [`Sampling::slot`](crate::Sampling::slot): how many executions a chosen one stands for, if that is known.
    scales: Option<Arc<[f64]>>,
}

impl<T: Copy> Lane<T> {
    /// A thread without open calls; see [`ThreadState::new`].
    #[must_use]
    pub fn new(plan: &Plan<'_>, thread: u64) -> Self {
        let mut samplers = Vec::new();
        samplers.resize_with(plan.sampler_count(), Sampler::default);
        let mut tails = Vec::new();
        tails.resize_with(plan.tail_count(), Tail::default);
        Self {
            state: ThreadState::new(plan, thread),
            samplers,
            tails,
            open: Vec::new(),
            held: Vec::new(),
            holding: 0,
            led: 0,
            undecided: 0,
            depth: 0,
            scales: None,
        }
    }

    /// Sets for how many executions each chosen one stands, by [`Sampling::slot`](crate::Sampling::slot). Without, it
    /// stands for those since the chosen one before it, so that nothing stands for those behind the last one.
    #[must_use]
    pub fn scaled(mut self, scales: Option<Arc<[f64]>>) -> Self {
        self.scales = scales;
        self
    }

    /// The counters of sampled functions, by [`Sampling::slot`](crate::Sampling::slot).
    #[must_use]
    pub fn samplers(&self) -> &[Sampler] {
        &self.samplers
    }

    /// Goes on with the counters of a lane of the same thread, which takes this one's: counters belong to threads, not
    /// to the call stacks that a thread exchanges.
    pub fn exchange_counters(&mut self, other: &mut Self) {
        core::mem::swap(&mut self.samplers, &mut other.samplers);
        core::mem::swap(&mut self.tails, &mut other.tails);
    }

    /// How many calls are open, shown or not.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// Whether anything is kept back until more is known.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        !self.held.is_empty()
    }

    /// The innermost open call, as [`Lane::enter`] was given it.
    #[must_use]
    pub fn innermost(&self) -> Option<T> {
        self.open.last().map(|open| open.call)
    }

    /// The same, for what is known only when it ends: its [`Event::Exit`] has it as it is then.
    #[inline]
    pub fn innermost_mut(&mut self) -> Option<&mut T> {
        self.open.last_mut().map(|open| &mut open.call)
    }

    /// A call begins; see [`ThreadState::enter`]. Returns what it does, the process's
    /// [`Switch`] included.
    pub fn enter(
        &mut self,
        plan: &Plan<'_>,
        action: u32,
        switch: Switch,
        call: T,
        time: u64,
        tell: &mut impl FnMut(Event<T>),
    ) -> Effects {
        let mut store = Store {
            samplers: &mut self.samplers,
            tails: &mut self.tails,
        };
        let entry = self.state.enter(plan, &mut store, action, switch, || time);
        let around = self.open.last().map_or(1.0, |open| open.weight);
        let weight = match &self.scales {
            None => around * entry.stands_for as f64,
            Some(scales) => match plan.sampling(action) {
                Some(sampling)
                    if entry.frame.is_chosen_subtree() || plan.is_sampled_alone(action) =>
                {
                    around * scales.get(sampling.slot as usize).copied().unwrap_or(1.0)
                }
                _ => around,
            },
        };
        let fate = match entry.show {
            Show::Hidden => Fate::Hidden,
            Show::Now => Fate::Shown,
            Show::Lazy => Fate::Lazy,
            Show::Held(scope) => Fate::Held(scope),
        };
        if fate == Fate::Shown {
            self.lead(tell);
        }
        let item = self.held.len();
        self.undecided += usize::from(matches!(fate, Fate::Lazy | Fate::Held(_)));
        self.holding += usize::from(matches!(fate, Fate::Held(_)));
        let is_told = fate == Fate::Shown || self.holding > 0;
        if is_told && fate != Fate::Hidden {
            let event = Event::Enter {
                call,
                time,
                depth: 0,
                weight,
                effects: entry.effects,
            };
            self.push(event, fate == Fate::Shown, tell);
        }
        self.open.push(Open {
            frame: entry.frame,
            call,
            fate,
            is_told,
            effects: entry.effects,
            item,
            own_weight: weight,
            // A trigger samples the call itself, a filter what it calls, too.
            weight: if entry.frame.is_chosen_subtree() {
                weight
            } else {
                around
            },
            leads: false,
            led: self.led,
        });
        entry.effects
    }

    /// The innermost call ends; nothing happens if none is open.
    pub fn exit(&mut self, plan: &Plan<'_>, time: u64, tell: &mut impl FnMut(Event<T>)) {
        self.close(plan, time, (true, Judgement::Open), tell);
    }

    /// The same, of a call that was judged when it was recorded, and is not to be shown; only if it is one of those that a
    /// tail judges.
    pub fn discard(&mut self, plan: &Plan<'_>, time: u64, tell: &mut impl FnMut(Event<T>)) {
        self.close(plan, time, (true, Judgement::Discarded), tell);
    }

    /// The innermost call did not end before the trace did: a tail can't judge it, and it is kept.
    pub fn cut(&mut self, plan: &Plan<'_>, time: u64, tell: &mut impl FnMut(Event<T>)) {
        self.close(plan, time, (true, Judgement::Kept), tell);
    }

    /// The trace ends here: open calls are judged by how long they took so far, and those that are shown stay open.
    pub fn finish(&mut self, plan: &Plan<'_>, time: u64, tell: &mut impl FnMut(Event<T>)) {
        while !self.open.is_empty() {
            self.close(plan, time, (false, Judgement::Open), tell);
        }
    }

    fn close(
        &mut self,
        plan: &Plan<'_>,
        time: u64,
        (returns, judgement): (bool, Judgement),
        tell: &mut impl FnMut(Event<T>),
    ) {
        let Some(open) = self.open.pop() else {
            return;
        };
        // Beyond a held subtree nobody has looked yet.
        let led = match open.fate {
            Fate::Held(Scope::Tree | Scope::Below) => open.led,
            _ => self.led,
        };
        self.led = led.min(self.open.len());
        let mut store = Store {
            samplers: &mut self.samplers,
            tails: &mut self.tails,
        };
        let (state, frame) = (&mut self.state, &open.frame);
        let exit = state.end(plan, &mut store, frame, judgement, || time);
        if open.fate == Fate::Hidden {
            return;
        }
        let decides = matches!(open.fate, Fate::Lazy | Fate::Held(_));
        self.undecided -= usize::from(decides);
        self.holding -= usize::from(matches!(open.fate, Fate::Held(_)));
        let kept = match exit.verdict {
            Verdict::Hidden => false,
            Verdict::Keep => true,
            Verdict::KeepForDescendants => open.leads || open.fate == Fate::Shown,
            Verdict::Discard(_) => false,
        };
        if !kept {
            if self.held.is_empty() {
                return;
            }
            if exit.verdict == Verdict::Discard(Scope::Call) {
                self.drop_item(open.item);
            } else {
                self.held.truncate(open.item);
            }
            return self.flush(tell);
        }
        let below = open.fate == Fate::Held(Scope::Below);
        if below {
            // Only what it leads to can be shown.
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
                start: exit.start,
                time,
                depth: 0,
            };
            self.push(event, true, tell);
        }
        self.flush(tell);
    }

    /// A call is shown within all open ones: the lazy ones among them are shown, too, within the innermost held part.
    fn lead(&mut self, tell: &mut impl FnMut(Event<T>)) {
        if self.undecided == 0 {
            return;
        }
        for open in self.open.iter_mut().skip(self.led).rev() {
            match open.fate {
                Fate::Hidden => {}
                Fate::Shown => break,
                Fate::Lazy => {
                    open.fate = Fate::Shown;
                    self.undecided -= 1;
                    if open.is_told
                        && let Some(item) = self.held.get_mut(open.item)
                    {
                        item.live = true;
                    }
                }
                Fate::Held(scope) => {
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

    /// Tells the entries of shown calls that are not told yet. They are the innermost ones, or held calls are within them.
    fn tell_entries(&mut self, tell: &mut impl FnMut(Event<T>)) {
        let is_told = |open: &Open<T>| open.is_told && open.fate == Fate::Shown;
        let first = self.open.iter().rposition(is_told).map_or(0, |at| at + 1);
        for place in first..self.open.len() {
            let open = &mut self.open[place];
            if open.fate == Fate::Shown {
                open.is_told = true;
                let open = *open;
                self.tell_entry(&open, tell);
            }
        }
    }

    fn tell_entry(&mut self, open: &Open<T>, tell: &mut impl FnMut(Event<T>)) {
        tell(Event::Enter {
            call: open.call,
            time: open.frame.start,
            depth: self.depth,
            weight: open.own_weight,
            effects: open.effects,
        });
        self.depth += 1;
    }

    /// An entry that is not shown; what follows it stays.
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
        self.held.push(Item { event, live });
        self.flush(tell);
    }

    /// Tells what was held, once no call is.
    fn flush(&mut self, tell: &mut impl FnMut(Event<T>)) {
        if self.holding > 0 {
            return;
        }
        self.tell_entries(tell);
        for item in self.held.drain(..).filter(|item| item.live) {
            tell(Self::placed(item.event, &mut self.depth));
        }
    }

    /// An event with the number of shown calls around it, which it changes.
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
