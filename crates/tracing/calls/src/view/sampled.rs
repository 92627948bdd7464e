//! The sampled functions of a view.

use super::View;
use crate::choices::{Choices, FunctionTotals, ThreadCounts, has_counts, tallies};
use crate::{RecordedSampling, ShownCalls, workers};
use dioptra_filters::{Plan, SampleKind};
use dioptra_tracedata::Trace;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The way in which executions of a function are chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChoiceKind {
    pub kind: SampleKind,
    /// True if executions come and go alone: the calls below them are shown either way.
    pub alone: bool,
}

/// The executions and the chosen ones of each function; see [`View::counted`].
type CountsByFunction = BTreeMap<u32, (u64, u64)>;

impl<'t> View<'t> {
    /// Finds the sampled functions, by id; empty if there is none.
    pub(super) fn find_sampled(&self) -> Vec<Option<ChoiceKind>> {
        let plans: Vec<&Plan> = self.plans().filter(|p| p.sampler_count() > 0).collect();
        if self.recorded.is_empty() && plans.is_empty() {
            return Vec::new();
        }
        let by_rules = |plan: &Plan, function| {
            let action = plan.action_of(function);
            Some(ChoiceKind {
                kind: plan.sampling(action)?.kind,
                alone: plan.is_sampled_alone(action),
            })
        };
        let chosen = |function| {
            let recorded = self.recorded.get(function).map(|recorded| ChoiceKind {
                kind: recorded.kind,
                alone: !recorded.tree,
            });
            recorded.or_else(|| plans.iter().find_map(|plan| by_rules(plan, function)))
        };
        (0..self.trace.function_count() as u32)
            .map(chosen)
            .collect()
    }

    pub(crate) fn chosen(&self, function: u32) -> Option<ChoiceKind> {
        *self.sampled.get(function as usize)?
    }

    /// Returns the way in which a function's executions are chosen, at recording or by the rules; `None` if all are
    /// shown.
    pub fn sampling(&self, function: u32) -> Option<SampleKind> {
        self.chosen(function).map(|chosen| chosen.kind)
    }

    /// Returns true if any function is sampled, at recording or by the rules.
    pub fn is_sampled(&self) -> bool {
        !self.sampled.is_empty()
    }

    /// Returns the sampling of a function at recording; `None` if all of its calls were recorded.
    pub fn recorded_sampling(&self, function: u32) -> Option<&RecordedSampling> {
        self.recorded.get(function)
    }

    /// Returns the counts of the recording, for the chosen threads. A thread without records has no id to choose it
    /// by.
    fn counted_then(
        trace: &'t Trace,
        tids: &[u32],
    ) -> impl Iterator<Item = ((u32, u32), (u64, u64))> {
        let streams = trace.streams().iter();
        let is_chosen = |tid| tids.is_empty() || tids.contains(tid);
        let known: BTreeMap<u32, bool> = streams
            .map(|stream| (stream.stream, is_chosen(&stream.tid)))
            .collect();
        let all = tids.is_empty();
        let counted = trace.counted().iter();
        counted
            .filter(move |((stream, _), _)| known.get(stream).copied().unwrap_or(all))
            .map(|(key, counts)| (*key, *counts))
    }

    /// Returns the counts of functions that were sampled at recording, in the chosen threads: by function, the
    /// executions that would have been recorded without sampling, and those that were recorded.
    pub fn counted(&self) -> CountsByFunction {
        let mut counted = CountsByFunction::new();
        for ((_, function), (seen, shown)) in Self::counted_then(self.trace, &self.tids) {
            let sum = counted.entry(function).or_default();
            *sum = (sum.0.saturating_add(seen), sum.1.saturating_add(shown));
        }
        counted
    }

    /// Returns the counts of functions that the rules sample, in the time up to the view's end.
    pub fn counted_by_rules(&self) -> CountsByFunction {
        let wholes = self.read_choices().iter().flat_map(Choices::functions);
        wholes
            .map(|(id, whole)| (id, (whole.seen.round() as u64, whole.chosen)))
            .collect()
    }

    /// Finds the choices of the recording.
    pub(super) fn find_recorded_choices(&self) -> Choices {
        let place = |number: u32| self.streams.iter().position(|s| s.stream == number);
        let counted = Self::counted_then(self.trace, &self.tids);
        let by_count =
            |function| matches!(self.recorded.get(function), Some(r) if r.kind != SampleKind::Tail);
        let tallies: Vec<ThreadCounts> = counted
            .filter(|((_, function), (seen, _))| *seen > 0 && by_count(*function))
            .map(|((stream, function), (seen, shown))| ThreadCounts {
                place: place(stream),
                function,
                seen,
                shown,
                before: 1.0,
            })
            .collect();
        Choices::new(&tallies)
    }

    /// Returns the choices of one set of rules after the other. The first call counts them in a pass over all
    /// threads.
    pub(super) fn read_choices(&self) -> &[Choices] {
        self.choices.get_or_init(|| {
            let functions = self.trace.function_count() as u32;
            if !self.plans().any(|plan| has_counts(plan, functions)) {
                return Vec::new();
            }
            let plans: Vec<Option<&Plan>> =
                self.filterings.iter().map(|f| f.plan.as_ref()).collect();
            let count = |counted: &mut Vec<Vec<ThreadCounts>>, place: usize| {
                let mut calls = self.calls(place);
                calls.each(|_| {});
                for ((tally, plan), samplers) in
                    counted.iter_mut().zip(&plans).zip(calls.samplers())
                {
                    let before = |function| match self.recorded.get(function) {
                        Some(recorded) => recorded.weight(&self.recorded_choices, place, function),
                        None => 1.0,
                    };
                    if let Some(plan) = plan {
                        tally.extend(tallies(plan, samplers, place, functions, before));
                    }
                }
            };
            let new = || vec![Vec::new(); plans.len()];
            let mut tallies: Vec<Vec<ThreadCounts>> = new();
            for worker in workers::each(self.streams.len(), usize::MAX, new, count) {
                for (all, counted) in tallies.iter_mut().zip(worker) {
                    all.extend(counted);
                }
            }
            // Sums of fractions must not depend on the speed of the workers.
            for counted in &mut tallies {
                counted.sort_by_key(|tally| (tally.place, tally.function));
            }
            tallies
                .iter()
                .map(|counted| Choices::new(counted))
                .collect()
        })
    }

    /// Returns the sums over all executions of a sampled function; `None` if they were not counted.
    pub(crate) fn whole(&self, function: u32) -> Option<&FunctionTotals> {
        let by_rules = self.read_choices().iter().rev();
        by_rules
            .chain([&self.recorded_choices])
            .find_map(|choices| choices.whole(function))
    }

    /// Returns true if executions of a sampled function were counted in the stream with index `place`.
    pub(crate) fn is_counted(&self, place: usize, function: u32) -> bool {
        let choices = self.read_choices().iter().chain([&self.recorded_choices]);
        choices
            .into_iter()
            .any(|choices| choices.weight(place, function).is_some())
    }

    /// Returns the shown calls of a stream, as [`View::calls`] does, with weights that scale them to all executions
    /// that were counted: the calls of a sampled function add up to these.
    pub fn scaled_calls(&self, place: usize) -> ShownCalls<'_> {
        let functions = self.trace.function_count() as u32;
        let choices = self.read_choices();
        self.calls_with(place, |number, plan| {
            let choices = choices.get(number)?;
            Some(Arc::from(choices.by_slot(plan, place, functions)))
        })
    }
}
