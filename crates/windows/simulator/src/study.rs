//! Studies: the same program is recorded many times, and what the analysis says is held against the truth.

mod scenarios;

use dioptra_metrics::{Bound, Count, Environment, MetricSet, Mode, RecordedEvent};
use dioptra_windows::estimate::{
    Analysis, Artefact, ArtefactNote, Estimate, EstimatorOptions, Rules, Shares, Totals, Trust,
};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;
use serde::Serialize;

use crate::{Program, Recorded, Recording};

pub use scenarios::scenarios;

/// Of two-sided 95 % in the normal distribution.
const NORMAL: f64 = 1.96;

/// The formulas that are studied. Event 1 is a flow, event 2 single events.
const SET: &str = r#"
schema = 1
name = "study"
title = "study"
event = [{ name = "cycles" }, { name = "instructions" }, { name = "misses" }]

[[column]]
name = "ipc"
formula = "instructions / cycles"

[[column]]
name = "mpkc"
formula = "1000 * misses / cycles"

[[column]]
name = "mpki"
formula = "1000 * misses / instructions"

[[column]]
name = "bent"
formula = "max(instructions / cycles, 2 * instructions / cycles - 1)"
"#;

/// What a run of a scenario is asked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Question {
    /// Does the interval of a column hold the truth?
    Interval {
        /// The function.
        function: u32,
        /// The column.
        column: &'static str,
        /// The best value, instead of the raw one.
        best: bool,
    },
    /// Is a function's trust less than high?
    Doubted {
        /// The function.
        function: u32,
    },
    /// Does the closure interval of an event hold its total?
    Closure {
        /// The event, 1 for the program's first.
        event: u32,
    },
    /// Does the interval of what interrupts take of a clock's windows hold the truth?
    Interrupts,
    /// Is it said that rows do not have in common what borders add to an event?
    Disagreement {
        /// The event, 1 for the program's first.
        event: u32,
    },
    /// Does the drift detector raise its hand, at one in twenty?
    Drift {
        /// The function.
        function: u32,
    },
    /// Are two runs of the same program told apart, at one in twenty?
    Difference {
        /// The function.
        function: u32,
        /// The column.
        column: &'static str,
    },
}

/// What must come out; nothing, for what is only to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Bar {
    /// The least and the greatest share of runs with a yes.
    pub yes: Option<(f64, f64)>,
    /// The greatest mean of |estimate ÷ truth − 1|, that is of the bias, over all runs.
    pub bias: Option<f64>,
}

/// A question with its name and its bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Names it.
    pub name: String,
    /// What each run is asked.
    pub question: Question,
    /// What must come out.
    pub bar: Bar,
}

/// A program, how it is recorded, and what is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// The program.
    pub program: Program,
    /// How it is recorded.
    pub recording: Recording,
    /// The questions.
    pub asked: Vec<Asked>,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The question's name.
    pub name: String,
    /// Runs that had an answer.
    pub runs: u32,
    /// The share of them that said yes.
    pub yes: f64,
    /// Mean estimate ÷ truth − 1, for questions about an interval.
    pub bias: Option<f64>,
    /// Its standard error.
    pub bias_error: Option<f64>,
    /// Mean half width ÷ truth.
    pub half_width: Option<f64>,
    /// What must come out.
    pub bar: Bar,
    /// Whether it did.
    pub met: bool,
}

/// One run's answer: yes or no, estimate ÷ truth, half width ÷ truth.
type Answer = Option<(bool, f64, f64)>;

impl Scenario {
    /// Asks `runs` recordings the questions whose names contain `text`. Seeds count up from `seed`.
    pub fn study(&self, text: &str, runs: u32, seed: u64) -> Vec<Outcome> {
        let asked: Vec<&Asked> = self
            .asked
            .iter()
            .filter(|a| a.name.contains(text))
            .collect();
        if asked.is_empty() {
            return Vec::new();
        }
        let bound = bound();
        let shares = self.program.shares();
        let twice = asked
            .iter()
            .any(|a| matches!(a.question, Question::Difference { .. }));
        let answers: Vec<Vec<Answer>> = (0..runs)
            .into_par_iter()
            .map(|run| {
                let mut random = Pcg64Mcg::seed_from_u64(seed + u64::from(run));
                let mut record = || self.recording.run_with(&self.program, &shares, &mut random);
                let first = record();
                let second = twice.then(record);
                let analysis = analyze(&first);
                let run = Run {
                    scenario: self,
                    bound: &bound,
                    artefacts: analysis.artefacts(),
                    analysis,
                    recorded: &first,
                    second: second.as_ref().map(analyze),
                };
                asked.iter().map(|a| run.ask(a.question)).collect()
            })
            .collect();
        let outcome = |(i, asked): (usize, &&Asked)| {
            asked.outcome(answers.iter().filter_map(|run| run[i]).collect())
        };
        asked.iter().enumerate().map(outcome).collect()
    }
}

impl Asked {
    fn outcome(&self, answers: Vec<(bool, f64, f64)>) -> Outcome {
        let number = answers.len() as f64;
        let mean = |of: fn(&(bool, f64, f64)) -> f64| answers.iter().map(of).sum::<f64>() / number;
        let yes = mean(|a| f64::from(u8::from(a.0)));
        let value = mean(|a| a.1);
        let spread = answers.iter().map(|a| (a.1 - value).powi(2)).sum::<f64>();
        let about_values = matches!(
            self.question,
            Question::Interval { .. } | Question::Closure { .. } | Question::Interrupts
        );
        let met = self
            .bar
            .yes
            .is_none_or(|(low, high)| low <= yes && yes <= high)
            && self.bar.bias.is_none_or(|bias| (value - 1.0).abs() <= bias)
            && !answers.is_empty();
        Outcome {
            name: self.name.clone(),
            runs: answers.len() as u32,
            yes,
            bias: about_values.then_some(value - 1.0),
            bias_error: about_values.then(|| (spread / (number - 1.0) / number).sqrt()),
            half_width: about_values.then(|| mean(|a| a.2)),
            bar: self.bar,
            met,
        }
    }
}

/// One recording, and what is known of it.
struct Run<'r> {
    scenario: &'r Scenario,
    bound: &'r Bound,
    artefacts: Vec<Artefact>,
    analysis: Analysis<'r>,
    recorded: &'r Recorded,
    second: Option<Analysis<'r>>,
}

impl Run<'_> {
    fn ask(&self, question: Question) -> Answer {
        match question {
            Question::Interval {
                function,
                column,
                best,
            } => {
                let estimate = self.estimate(&self.analysis, &self.artefacts, function, column)?;
                let interval = if best { *estimate.best() } else { estimate.raw };
                let truth = self.truth(function, column);
                Some((
                    interval.holds(truth),
                    interval.value / truth,
                    interval.half_width() / truth,
                ))
            }
            Question::Doubted { function } => {
                let trust = self.analysis.trust(self.analysis.row(function)?)?;
                Some((trust != Trust::High, f64::NAN, f64::NAN))
            }
            Question::Closure { event } => {
                let samples = self.recorded.samples.iter().enumerate();
                let shares = Shares::new(samples.map(|(f, n)| (f as u32, *n, *n)));
                let totals = &self.recorded.totals;
                let (cycles, counted) = (totals[0], totals[event as usize]);
                let totals = Totals {
                    leader: cycles,
                    interrupts: self.recorded.interrupts,
                    counted,
                };
                // Borders are no matter here, but what interrupts take is.
                let clocks: Vec<Artefact> = self
                    .artefacts
                    .iter()
                    .filter(|a| a.event == 0)
                    .copied()
                    .collect();
                let closure = self.analysis.closure(&shares, &clocks, event, 0, &totals)?;
                let half = (closure.high - closure.low) / 2.0 / counted;
                Some((closure.holds(), closure.error() + 1.0, half))
            }
            Question::Interrupts => {
                let found = self.artefacts.iter().find(|a| a.of_interrupts)?;
                let truth = self.scenario.recording.interrupt;
                let half = NORMAL * found.error;
                let holds = (found.per_window - truth).abs() <= half;
                Some((holds, found.per_window / truth, half / truth))
            }
            Question::Disagreement { event } => {
                let artefact = self.artefacts.iter().find(|a| a.event == event)?;
                let told = artefact.note == ArtefactNote::RowsDisagree;
                Some((told, f64::NAN, f64::NAN))
            }
            Question::Drift { function } => {
                let options = EstimatorOptions::default();
                let mut estimator = self.analysis.estimator(self.bound, &[], options);
                let drift = estimator.drift(self.analysis.row(function)?, column_of("ipc"))?;
                Some((drift.probability < 0.05, f64::NAN, f64::NAN))
            }
            Question::Difference { function, column } => {
                let one = self.estimate(&self.analysis, &[], function, column)?;
                let two = self.estimate(self.second.as_ref()?, &[], function, column)?;
                let difference = one.difference(&two);
                Some((difference.probability < 0.05, f64::NAN, f64::NAN))
            }
        }
    }

    fn estimate(
        &self,
        analysis: &Analysis<'_>,
        artefacts: &[Artefact],
        function: u32,
        column: &str,
    ) -> Option<Estimate> {
        let options = EstimatorOptions::default();
        let mut estimator = analysis.estimator(self.bound, artefacts, options);
        let figure = estimator.estimate(analysis.row(function)?, column_of(column));
        figure.estimate().cloned()
    }

    /// A column's true value in a function.
    fn truth(&self, function: u32, column: &str) -> f64 {
        let program = &self.scenario.program;
        let rates = (0..program.events.len()).map(|e| program.truth(function as usize, e));
        let counts: Vec<Count> = std::iter::once(1.0)
            .chain(rates)
            .map(Count::exact)
            .collect();
        let mut evaluator = self.bound.evaluator(&counts, Mode::Exact);
        let value = evaluator.value(column_of(column), &counts);
        value.unwrap_or(f64::NAN)
    }
}

fn analyze(recorded: &Recorded) -> Analysis<'_> {
    recorded
        .windows
        .analyze(&Rules::default(), |window| window.end.function)
}

fn set() -> &'static MetricSet {
    static KEPT: std::sync::LazyLock<MetricSet> =
        std::sync::LazyLock::new(|| MetricSet::from_toml("study", SET).unwrap_or_default());
    &KEPT
}

fn bound() -> Bound {
    let events = ["cycles", "instructions", "misses"].map(RecordedEvent::named);
    set().bind(&events, &Environment::new())
}

fn column_of(name: &str) -> usize {
    set().column(name).unwrap_or(usize::MAX)
}
