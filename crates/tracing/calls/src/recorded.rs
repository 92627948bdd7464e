//! The sampling of a recording: the sampled functions, and the number of calls for which each recorded one stands.

use crate::choices::Choices;
use dioptra_filters::SampleKind;
use dioptra_tracedata::Trace;
use rustc_hash::FxHashMap;

/// The way in which executions of a function were chosen at recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedSampling {
    /// The kind of sampling.
    pub kind: SampleKind,
    /// True if executions came and went together with the calls below them.
    pub tree: bool,
    /// The number of executions for which each chosen one stands if they were not counted; 1 if that can't be known.
    nominal: f64,
}

/// All sampled functions of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecordedFunctions {
    /// The sampling of each function; empty if none is sampled.
    functions: Vec<Option<RecordedSampling>>,
}

impl RecordedFunctions {
    pub fn of(trace: &Trace) -> RecordedFunctions {
        let mut recorded = RecordedFunctions::default();
        for group in trace.sampled() {
            let (kind, nominal) = kind(&group.how);
            for function in &group.functions {
                if *function as usize >= trace.function_count() {
                    continue;
                }
                recorded.functions.resize(trace.function_count(), None);
                if let Some(place) = recorded.functions.get_mut(*function as usize) {
                    *place = Some(RecordedSampling {
                        kind,
                        tree: group.tree,
                        nominal,
                    });
                }
            }
        }
        recorded
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    #[inline]
    pub fn get(&self, function: u32) -> Option<&RecordedSampling> {
        self.functions.get(function as usize)?.as_ref()
    }
}

impl RecordedSampling {
    /// Returns the number of executions for which each chosen one of a stream stands.
    pub(crate) fn weight(&self, choices: &Choices, place: usize, function: u32) -> f64 {
        match self.kind {
            // The slowest executions stand for themselves.
            SampleKind::Tail => 1.0,
            _ => choices.weight(place, function).unwrap_or(self.nominal),
        }
    }

    /// Returns true if the kind of sampling determines the weight of executions that were not counted.
    pub(crate) fn has_nominal_weight(&self) -> bool {
        matches!(self.kind, SampleKind::Every | SampleKind::Random)
    }
}

/// The weights of the recorded calls of a stream.
pub(crate) struct RecordedWeights<'v> {
    recorded: &'v RecordedFunctions,
    choices: &'v Choices,
    place: usize,
    /// The number of open chosen executions by function: recursion within one belongs to it.
    open: FxHashMap<u32, u32>,
}

impl<'v> RecordedWeights<'v> {
    pub fn new(
        recorded: &'v RecordedFunctions,
        choices: &'v Choices,
        place: usize,
    ) -> RecordedWeights<'v> {
        RecordedWeights {
            recorded,
            choices,
            place,
            open: FxHashMap::default(),
        }
    }

    /// Handles the beginning of a call. Returns its own weight, the weight of the calls below it, and whether it is a
    /// chosen execution together with the calls below it.
    #[inline]
    pub fn begin(&mut self, function: u32, around: f64) -> (f64, f64, bool) {
        let Some(sampling) = self.recorded.get(function) else {
            return (around, around, false);
        };
        let own = around * sampling.weight(self.choices, self.place, function);
        if !sampling.tree {
            return (own, around, false);
        }
        let open = self.open.entry(function).or_default();
        if *open > 0 {
            return (around, around, false);
        }
        *open += 1;
        (own, own, true)
    }

    pub fn end(&mut self, function: u32) {
        if let Some(open) = self.open.get_mut(&function) {
            *open = open.saturating_sub(1);
        }
    }
}

/// Parses the text behind `sample=`.
fn kind(how: &str) -> (SampleKind, f64) {
    let number = |text: &str| {
        text.parse()
            .ok()
            .filter(|n: &f64| n.is_finite() && *n >= 1.0)
    };
    if how == "auto" {
        (SampleKind::Auto, 1.0)
    } else if how.starts_with('p') {
        (SampleKind::Tail, 1.0)
    } else if how.ends_with("/s") {
        (SampleKind::Rate, 1.0)
    } else if let Some(interval) = how.strip_prefix("1/") {
        (SampleKind::Random, number(interval).unwrap_or(1.0))
    } else {
        (SampleKind::Every, number(how).unwrap_or(1.0))
    }
}
