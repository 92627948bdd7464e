//! The state machine: one thread's position in the rules, asked at a call's entry and at its exit.

use crate::effects::{Effects, TraceSwitch};
use crate::plan::{Action, Plan, fact, flag};
use crate::random::thread_seed;
use crate::sampler::{Draw, SampleKind, Sampler, TOLD};
use crate::tail::Tail;
use std::vec::Vec;

/// The calls that a held call's exit decides about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The call alone. The calls below it are shown either way.
    Call,
    /// The call and everything below it.
    Tree,
    /// Everything below the call. The call itself is not shown in any case.
    Below,
}

/// The decision about an open call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenState {
    /// The call is not shown.
    Hidden,
    /// The call is shown. So are the lazy calls around it, up to the innermost held subtree.
    Shown,
    /// The call is shown if a call below it is, or if its exit decides so.
    Lazy,
    /// The calls of the scope are provisional until the exit decides.
    Held(Scope),
}

/// The decision at a call's exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitVerdict {
    /// The call is shown. For [`Scope::Below`]: the calls below it are shown, if there are any.
    Keep,
    /// The call is shown if a call below it is.
    KeepForDescendants,
    /// The call was held and is not shown: the calls of the scope are dropped.
    Discard,
}

/// The judgement of a call of `sample=pNN` that is known at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// None yet: the call's duration decides.
    Open,
    /// The call is shown.
    Kept,
    /// The call is not shown.
    Discarded,
}

/// A position in the rules, which a call changes for the calls below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Position {
    /// True inside a call that hides its subtree.
    is_muted: bool,
    /// True outside of every call that a filter lets in.
    is_outside: bool,
    min_rank: u8,
    depth: u32,
    max_depth: u32,
    /// The minimum duration.
    time: u64,
}

/// One thread's position in the rules, and its counters of sampled functions.
///
/// Each context with a stack of its own (a thread, a coroutine) has one. Calls are reported by [`ThreadState::enter`]
/// and [`ThreadState::exit`], strictly nested.
#[derive(Debug)]
pub struct ThreadState {
    position: Position,
    seed: u64,
    samplers: Vec<Sampler>,
    tails: Vec<Tail>,
}

/// The state of a call between its entry and its exit.
#[derive(Debug, Clone, Copy)]
pub struct CallFrame {
    /// The time of the entry.
    pub start: u64,
    /// True if the call is a chosen execution of a sampled filter, which also stands for executions of its subtree.
    pub is_chosen_subtree: bool,
    before: Position,
    action: u32,
    held: Option<Scope>,
    /// True if the duration decides whether the call is shown.
    by_time: bool,
    /// True if the call is shown only if a call below it is.
    by_descendants: bool,
}

/// The answer at a call's entry.
#[derive(Debug, Clone, Copy)]
pub struct EntryAnswer {
    /// The decision about the call.
    pub state: OpenState,
    /// The other effects of the call.
    pub effects: Effects,
    /// The number of executions that a chosen execution of a sampled function stands for, itself included; else 1.
    pub stands_for: u64,
    /// The state to pass to [`ThreadState::exit`] when the call ends.
    pub frame: CallFrame,
}

impl EntryAnswer {
    fn new(state: OpenState, frame: CallFrame) -> Self {
        Self {
            state,
            effects: Effects::NONE,
            stands_for: 1,
            frame,
        }
    }
}

impl ThreadState {
    /// Returns the state of a thread with no open calls. `thread` distinguishes threads: each chooses other random
    /// executions.
    pub fn new(plan: &Plan, thread: u64) -> Self {
        let mut samplers = Vec::new();
        samplers.resize_with(plan.sampler_count(), Sampler::default);
        let mut tails = Vec::new();
        tails.resize_with(plan.tail_count(), Tail::default);
        Self {
            position: Position {
                is_muted: false,
                is_outside: plan.lets_in(),
                min_rank: plan.header.min_rank,
                depth: 0,
                max_depth: plan.header.depth,
                time: plan.header.time,
            },
            seed: thread_seed(plan.header.seed, thread),
            samplers,
            tails,
        }
    }

    /// Returns the counters of sampled functions, by [`Sampling::slot`](crate::Sampling::slot).
    pub fn samplers(&self) -> &[Sampler] {
        &self.samplers
    }

    /// Exchanges the counters with a state of the same thread.
    pub fn exchange_counters(&mut self, other: &mut Self) {
        core::mem::swap(&mut self.samplers, &mut other.samplers);
        core::mem::swap(&mut self.tails, &mut other.tails);
    }

    /// Handles the beginning of a call. `action` is [`Plan::action_of`] its function, `switch` the process's.
    #[inline]
    pub fn enter(
        &mut self,
        plan: &Plan,
        action: u32,
        switch: TraceSwitch,
        time: u64,
    ) -> EntryAnswer {
        let mut frame = CallFrame {
            start: time,
            is_chosen_subtree: false,
            before: self.position,
            action,
            held: None,
            by_time: false,
            by_descendants: false,
        };
        let position = &mut self.position;
        if position.is_muted {
            return EntryAnswer::new(OpenState::Hidden, frame);
        }
        if action == 0 {
            let is_deep = position.depth >= position.max_depth;
            if position.is_outside || is_deep || switch != TraceSwitch::On {
                return EntryAnswer::new(OpenState::Hidden, frame);
            }
            position.depth = position.depth.saturating_add(1);
            let state = self.judged_at_exit(plan, &Action::ORDINARY, &mut frame);
            return EntryAnswer::new(state, frame);
        }
        let rules = plan.action(action);
        if rules.has(flag::NOTRACE) {
            position.is_muted = true;
            return EntryAnswer::new(OpenState::Hidden, frame);
        }
        if position.is_outside && !rules.has(flag::FILTER) {
            return EntryAnswer::new(OpenState::Hidden, frame);
        }
        self.enter_let_in(plan, &rules, frame, switch)
    }

    /// Notes what the call's exit decides about, and returns the decision until then.
    #[inline]
    fn judged_at_exit(&self, plan: &Plan, rules: &Action, frame: &mut CallFrame) -> OpenState {
        if !rules.has(flag::TRACE) {
            frame.by_descendants = plan.fact(fact::CALLER) && !rules.has(flag::CALLER);
            frame.by_time = !frame.by_descendants && self.position.time > 0;
        }
        match frame.by_descendants || frame.by_time {
            true => OpenState::Lazy,
            false => OpenState::Shown,
        }
    }

    /// Does the rest of [`ThreadState::enter`] for a call with rules that the filters let in.
    fn enter_let_in(
        &mut self,
        plan: &Plan,
        rules: &Action,
        mut frame: CallFrame,
        switch: TraceSwitch,
    ) -> EntryAnswer {
        let filter = rules.has(flag::FILTER);
        let mut below = self.position;
        if filter {
            (below.depth, below.is_outside) = (0, false);
        }
        if rules.depth > 0 {
            (below.depth, below.max_depth) = (0, rules.depth);
        }
        if rules.has(flag::SIZE) {
            below.min_rank = rules.min_rank;
        }
        if rules.has(flag::TIME) {
            below.time = rules.time;
        }
        let on = switch == TraceSwitch::On || switch == TraceSwitch::Off && rules.has(flag::ON);
        let stays_on = on && !rules.has(flag::OFF | flag::FINISH);
        let in_view = !rules.has(flag::HIDE)
            && rules.size_rank >= below.min_rank
            && below.depth < below.max_depth;
        let visible = stays_on && in_view;

        let mut held = false;
        let mut stands_for = 1;
        let sampler = match rules.sampling.kind {
            SampleKind::All => None,
            _ => self.samplers.get_mut(rules.sampling.slot as usize),
        };
        if let Some(sampler) = sampler {
            // Calls that would be shown without sampling are counted, and all calls of a filter, for the sake of
            // their subtrees.
            let counted = on && (filter || in_view);
            // Recursion within a chosen execution belongs to its subtree.
            let within = filter && sampler.open > 0;
            if counted && !within {
                match sampler.draw(rules.sampling, self.seed, || frame.start) {
                    Draw::Skip => {
                        self.position.is_muted = filter;
                        return EntryAnswer::new(OpenState::Hidden, frame);
                    }
                    Draw::Show(executions) => stands_for = executions,
                }
                held = rules.sampling.kind == SampleKind::Tail;
                if filter {
                    sampler.open = sampler.open.saturating_add(1);
                    frame.is_chosen_subtree = true;
                }
            } else if !filter {
                // Not chosen: a trigger's other actions belong to its chosen executions.
                return EntryAnswer::new(OpenState::Hidden, frame);
            }
        }

        below.depth = below.depth.saturating_add(u32::from(visible));
        self.position = below;
        let mut effects = switches(rules);
        let mut state = OpenState::Hidden;
        if visible || held && filter {
            if visible && rules.has(flag::BACKTRACE) {
                effects |= Effects::BACKTRACE;
            }
            state = self.judged_at_exit(plan, rules, &mut frame);
            if held {
                let scope = match (filter, visible) {
                    (false, _) => Scope::Call,
                    (true, true) => Scope::Tree,
                    (true, false) => Scope::Below,
                };
                frame.held = Some(scope);
                state = OpenState::Held(scope);
            }
        }
        EntryAnswer {
            state,
            effects,
            stands_for,
            frame,
        }
    }

    /// Handles the end of the call of `frame`: it returns, is unwound or jumped over. The verdict has no meaning for
    /// hidden calls.
    #[inline]
    pub fn exit(
        &mut self,
        plan: &Plan,
        frame: &CallFrame,
        judgement: Judgement,
        time: u64,
    ) -> ExitVerdict {
        // The threshold of the call itself, which the call's own trigger may have set.
        let at_least = self.position.time;
        self.position = frame.before;
        let duration = time.saturating_sub(frame.start);
        if (frame.is_chosen_subtree || frame.held.is_some())
            && !self.is_kept(plan, frame, judgement, duration)
        {
            return ExitVerdict::Discard;
        }
        let is_short = frame.by_time && duration < at_least;
        if frame.held != Some(Scope::Below) && (is_short || frame.by_descendants) {
            return ExitVerdict::KeepForDescendants;
        }
        ExitVerdict::Keep
    }

    /// Ends a chosen execution of a sampled function. Returns false if it was held and is not shown.
    fn is_kept(
        &mut self,
        plan: &Plan,
        frame: &CallFrame,
        judgement: Judgement,
        duration: u64,
    ) -> bool {
        let sampling = plan.action(frame.action).sampling;
        let Some(sampler) = self.samplers.get_mut(sampling.slot as usize) else {
            return true;
        };
        if frame.is_chosen_subtree {
            sampler.open = sampler.open.saturating_sub(1);
        }
        if frame.held.is_none() {
            return true;
        }
        let slow = match judgement {
            Judgement::Discarded => false,
            Judgement::Kept => true,
            Judgement::Open if sampling.parameter == TOLD => true,
            Judgement::Open => self
                .tails
                .get_mut(sampling.tail as usize)
                .is_none_or(|tail| tail.observe(duration, sampling.parameter)),
        };
        sampler.judged(slow);
        slow
    }
}

/// Returns the effects of a trigger on the process's switch.
fn switches(rules: &Action) -> Effects {
    let mut effects = Effects::NONE;
    for (flag, effect) in [
        (flag::ON, Effects::TRACE_ON),
        (flag::OFF, Effects::TRACE_OFF),
        (flag::FINISH, Effects::FINISH),
    ] {
        if rules.has(flag) {
            effects |= effect;
        }
    }
    effects
}
