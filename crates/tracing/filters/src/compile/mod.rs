//! From rules and functions to a plan.

mod warning;

pub use warning::Warning;

use crate::plan::{
    ANY_SIZE, Action, HEADER_WORDS, Header, NO_LIMIT, Plan, SampleKind, Sampling, TOLD, fact, flag,
};
use crate::random::Pace;
use crate::rules::{
    Changes, Mode, NameForms, Pattern, Rules, Sample, module_matches, nearest_names, nearest_word,
};
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;
use thiserror::Error;

/// What the rules may ask about a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Function<'a> {
    /// Its demangled name, with or without parameters.
    pub name: &'a str,
    /// Its name in the symbol table, if that is another one.
    pub linkage: Option<&'a str>,
    /// The path or name of its module.
    pub module: &'a str,
    /// What sort of function it is.
    pub kind: FunctionKind,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// The path of its source file, if known.
    pub source: Option<&'a str>,
    /// Its executions were chosen when they were recorded: `sample=` does not choose among them again. Those of `sample=pNN`
    /// that were judged, and are there all the same, are marked ([`Lane::discard`](crate::Lane::discard)).
    pub is_chosen: bool,
}

/// What sort of function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FunctionKind {
    /// Code of its module.
    #[default]
    Code,
    /// A library call of its module, which `@PLT` names.
    LibraryCall,
    /// A function of the kernel, which `@kernel` names.
    Kernel,
}

/// How a plan is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// The clock that the plan's user reads: units in a second. Durations are rounded up to its units.
    pub units_per_second: u64,
    /// Chooses the random executions; the same seed, the same ones.
    pub seed: u64,
    /// The plan is for a finished trace, not for a recording: there is no overhead to keep low.
    pub replay: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            units_per_second: 1_000_000_000,
            seed: 0,
            replay: false,
        }
    }
}

/// Why rules cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A condition is about something that is not recorded.
    #[error(
        "{rule}: `{what}` is not recorded, so a condition on it cannot be checked; leave out the condition"
    )]
    NotRecorded {
        /// The rule.
        rule: String,
        /// What it asks about.
        what: String,
    },
    /// `sample=auto` on a finished trace.
    #[error(
        "{rule}: `sample=auto` keeps the cost of recording low, a finished trace costs nothing; use `sample=1/N`"
    )]
    AutoAtReplay {
        /// The rule.
        rule: String,
    },
    /// More different sizes than a plan has room for.
    #[error("there are more than {limit} different sizes in -Z and `size=`; use fewer")]
    TooManySizes {
        /// The largest number of sizes.
        limit: usize,
    },
}

/// Matches functions against rules, a function at a time, and makes the plan.
///
/// Functions get their numbers in the order in which they are added, from 0. More may be added after a plan was made,
/// as modules are loaded: numbers of functions, actions and samplers stay what they are.
#[derive(Debug, Clone)]
pub struct Compiler {
    rules: Rules,
    options: PlanOptions,
    /// Rules by the exact name that they ask for; the others are tried one by one.
    exact: BTreeMap<String, Vec<usize>>,
    patterns: Vec<usize>,
    /// The sizes that are asked for, in rising order.
    sizes: Vec<u64>,
    actions: Vec<Action>,
    numbers: BTreeMap<Action, u32>,
    functions: Vec<u32>,
    samplers: u32,
    tails: u32,
    matched: Vec<u64>,
    located: Vec<u64>,
    modules: BTreeSet<String>,
    sizeless: u64,
    placeless: u64,
}

impl Compiler {
    /// A compiler without functions.
    ///
    /// # Errors
    /// [`CompileError`] for rules that no plan can follow.
    pub fn new(rules: Rules, options: PlanOptions) -> Result<Self, CompileError> {
        let mut exact: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut patterns = Vec::new();
        let mut sizes: BTreeSet<u64> = rules.size.into_iter().collect();
        for (index, rule) in rules.rules.iter().enumerate() {
            let text = format!("{} {}", rule.option.letter(), rule.text);
            if let Some(condition) = &rule.changes.condition {
                return Err(CompileError::NotRecorded {
                    rule: text,
                    what: format!("arg{}", condition.argument),
                });
            }
            if options.replay && rule.changes.sample == Some(Sample::Auto) {
                return Err(CompileError::AutoAtReplay { rule: text });
            }
            sizes.extend(rule.changes.size);
            match &rule.pattern {
                Pattern::Exact(name) => exact.entry(name.clone()).or_default().push(index),
                Pattern::Regex(..) => patterns.push(index),
            }
        }
        let limit = usize::from(ANY_SIZE) - 1;
        if sizes.len() > limit {
            return Err(CompileError::TooManySizes { limit });
        }
        Ok(Self {
            exact,
            patterns,
            sizes: sizes.into_iter().collect(),
            actions: [Action::ORDINARY].into(),
            numbers: [(Action::ORDINARY, 0)].into(),
            functions: Vec::new(),
            samplers: 0,
            tails: 0,
            matched: [0].repeat(rules.rules.len()),
            located: [0].repeat(rules.locations.len()),
            modules: BTreeSet::new(),
            sizeless: 0,
            placeless: 0,
            rules,
            options,
        })
    }

    /// Adds a function; returns its action, which a plan made afterwards knows.
    pub fn add(&mut self, function: &Function<'_>) -> u32 {
        if !self.modules.contains(function.module) {
            self.modules.insert(function.module.to_string());
        }
        let changes = self.changes(function);
        let hidden_place = self.is_hidden_by_location(function);
        let mut action = self.action(&changes, function);
        if hidden_place && !action.has(flag::NOTRACE) {
            action.flags |= flag::HIDE;
        }
        let chooses = |sample: &Sample| !function.is_chosen || sample.judges();
        if let Some(sample) = changes.sample.filter(chooses)
            && !action.has(flag::NOTRACE)
        {
            action.sampling = self.sampling(sample);
            if function.is_chosen {
                action.sampling.parameter = TOLD;
            }
        }
        let next = self.actions.len() as u32;
        let number = *self.numbers.entry(action).or_insert(next);
        if number == next {
            self.actions.push(action);
        }
        self.functions.push(number);
        number
    }

    /// What all rules that match the function ask for together.
    fn changes(&mut self, function: &Function<'_>) -> Changes {
        if self.rules.rules.is_empty() {
            return Changes::default();
        }
        let names = NameForms::new(function.name, function.linkage);
        let mut matching: Vec<usize> = names
            .all()
            .filter_map(|name| self.exact.get(name))
            .flatten()
            .copied()
            .collect();
        let patterns = self.patterns.iter().copied();
        matching.extend(patterns.filter(|index| self.rules.rules[*index].pattern.matches(&names)));
        matching.sort_unstable();
        matching.dedup();
        let mut changes = Changes::default();
        for index in matching {
            let rule = &self.rules.rules[index];
            if rule
                .module
                .as_deref()
                .is_none_or(|module| is_of_module(function, module))
            {
                self.matched[index] += 1;
                changes.merge(&rule.changes);
            }
        }
        changes
    }

    fn action(&mut self, changes: &Changes, function: &Function<'_>) -> Action {
        let mut action = Action::ORDINARY;
        if changes.mode == Some(Mode::Notrace) {
            action.flags = flag::NOTRACE;
            return action;
        }
        for (asked, flag) in [
            (changes.mode == Some(Mode::Filter), flag::FILTER),
            (changes.hide, flag::HIDE),
            (changes.caller, flag::CALLER),
            (changes.trace, flag::TRACE),
            (changes.switch == Some(true), flag::ON),
            (changes.switch == Some(false), flag::OFF),
            (changes.finish, flag::FINISH),
            (changes.backtrace, flag::BACKTRACE),
            (changes.time.is_some(), flag::TIME),
            (changes.size.is_some(), flag::SIZE),
        ] {
            if asked {
                action.flags |= flag;
            }
        }
        action.depth = changes.depth.unwrap_or(0);
        action.time = self.clock_units(changes.time.unwrap_or(0));
        action.color = changes.color.map_or(0, |color| color + 1);
        action.min_rank = changes.size.map_or(0, |size| self.rank_of_threshold(size));
        if !self.sizes.is_empty() {
            match function.size {
                Some(size) => {
                    let reached = self.sizes.partition_point(|threshold| *threshold <= size);
                    if reached < self.sizes.len() {
                        action.size_rank = reached as u8;
                    }
                }
                None => self.sizeless += 1,
            }
        }
        action
    }

    /// The rank that a function of exactly this size has.
    fn rank_of_threshold(&self, size: u64) -> u8 {
        self.sizes.partition_point(|threshold| *threshold <= size) as u8
    }

    fn is_hidden_by_location(&mut self, function: &Function<'_>) -> bool {
        if self.rules.locations.is_empty() {
            return false;
        }
        let chosen = self.rules.locations.iter().any(|rule| !rule.hide);
        let Some(path) = function.source else {
            self.placeless += u64::from(chosen);
            return chosen;
        };
        // The last location that matches decides.
        let mut hidden = chosen;
        for (rule, matched) in self.rules.locations.iter().zip(&mut self.located) {
            if rule.location.matches(path) {
                *matched += 1;
                hidden = rule.hide;
            }
        }
        hidden
    }

    /// A function's own sampler.
    fn sampling(&mut self, sample: Sample) -> Sampling {
        let (kind, parameter) = match sample {
            Sample::Every(interval) => (SampleKind::Every, interval),
            Sample::Random(p) => (SampleKind::Random, Pace::from_interval(1.0 / p).0),
            Sample::Rate(rate) => {
                let period = (self.options.units_per_second as f64 / rate).round();
                (SampleKind::Rate, (period as u64).max(1))
            }
            Sample::Auto => (SampleKind::Auto, 0),
            Sample::Percentile(hundredths) => (SampleKind::Tail, u64::from(hundredths)),
        };
        let slot = self.samplers;
        self.samplers += 1;
        let mut tail = 0;
        if kind == SampleKind::Tail {
            tail = self.tails;
            self.tails += 1;
        }
        Sampling {
            kind,
            parameter,
            slot,
            tail,
        }
    }

    /// Nanoseconds in units of the clock, rounded up.
    fn clock_units(&self, nanoseconds: u64) -> u64 {
        let units = u128::from(nanoseconds) * u128::from(self.options.units_per_second);
        u64::try_from(units.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }

    /// The plan for the functions added so far, as the words that [`Plan::from_words`] reads.
    #[must_use]
    pub fn plan(&self) -> Vec<u64> {
        let header = self.header();
        let mut words = Vec::with_capacity(
            HEADER_WORDS + self.actions.len() * 5 + self.functions.len().div_ceil(2),
        );
        words.extend(header.encode());
        for action in &self.actions {
            words.extend(action.encode());
        }
        for pair in self.functions.chunks(2) {
            let second = pair.get(1).copied().unwrap_or(0);
            words.push(u64::from(pair[0]) | u64::from(second) << 32);
        }
        debug_assert!(Plan::from_words(&words).is_ok());
        words
    }

    /// The facts come from the rules, not from the functions that they match so far: a module that is loaded later
    /// must not change the meaning of what was patched before.
    fn header(&self) -> Header {
        let rules = &self.rules.rules;
        let any = |asks: fn(&Changes) -> bool| rules.iter().any(|rule| asks(&rule.changes));
        let samples_a_subtree = any(|changes| {
            changes
                .sample
                .is_some_and(|sample| !matches!(sample, Sample::Percentile(_)))
        }) && any(|changes| changes.mode == Some(Mode::Filter));
        let mut facts = 0;
        for (holds, fact) in [
            (
                any(|changes| changes.mode == Some(Mode::Filter)),
                fact::OPT_IN,
            ),
            (
                any(|changes| changes.mode == Some(Mode::Notrace)) || samples_a_subtree,
                fact::MUTES,
            ),
            (any(|changes| changes.caller), fact::CALLER),
            (
                self.rules.time.is_some_and(|time| time > 0)
                    || any(|changes| changes.time.is_some_and(|time| time > 0)),
                fact::TIMED,
            ),
            (any(|changes| changes.time.is_some()), fact::TIME_VARIES),
            (
                self.rules.depth.is_some() || any(|changes| changes.depth.is_some()),
                fact::DEPTH_LIMITED,
            ),
            (any(|changes| changes.size.is_some()), fact::SIZE_VARIES),
        ] {
            if holds {
                facts |= fact;
            }
        }
        let min_rank = self
            .rules
            .size
            .map_or(0, |size| self.rank_of_threshold(size));
        let lowest_rank = rules
            .iter()
            .filter_map(|rule| rule.changes.size)
            .map(|size| self.rank_of_threshold(size))
            .fold(min_rank, u8::min);
        Header {
            facts,
            depth: self.rules.depth.unwrap_or(NO_LIMIT),
            time: self.clock_units(self.rules.time.unwrap_or(0)),
            seed: self.options.seed,
            actions: self.actions.len() as u32,
            samplers: self.samplers,
            tails: self.tails,
            functions: self.functions.len() as u32,
            min_rank,
            lowest_rank,
        }
    }

    /// Rules that match nothing so far, and functions about which too little is known. `names` are the functions that
    /// were added; they are looked at only if a rule matches none of them.
    pub fn warnings<'a, N>(&self, names: N) -> Vec<Warning>
    where
        N: IntoIterator<Item = &'a str> + Clone,
    {
        let mut warnings = Vec::new();
        for (rule, matched) in self.rules.rules.iter().zip(&self.matched) {
            if *matched > 0 {
                continue;
            }
            let text = format!("{} {}", rule.option.letter(), rule.text);
            if let Some(module) = rule
                .module
                .as_ref()
                .filter(|module| !self.has_module(module))
            {
                let files = self
                    .modules
                    .iter()
                    .map(|path| path.rsplit('/').next().unwrap_or(path));
                warnings.push(Warning::NoModule {
                    rule: text,
                    module: module.clone(),
                    nearest: nearest_word(module, files).map(str::to_string),
                    doubtful: rule.doubtful,
                });
                continue;
            }
            warnings.push(Warning::NoFunction {
                rule: text,
                nearest: nearest_names(rule.pattern.literal(), names.clone(), 3),
                filter: rule.changes.mode == Some(Mode::Filter),
            });
        }
        for (rule, matched) in self.rules.locations.iter().zip(&self.located) {
            if *matched == 0 {
                warnings.push(Warning::NoLocation {
                    rule: format!("-L {}", rule.text),
                });
            }
        }
        if self.sizeless > 0 {
            warnings.push(Warning::UnknownSizes(self.sizeless));
        }
        if self.placeless > 0 {
            warnings.push(Warning::UnknownLocations(self.placeless));
        }
        warnings
    }

    fn has_module(&self, wanted: &str) -> bool {
        is_kind(wanted).is_some()
            || self
                .modules
                .iter()
                .any(|module| module_matches(wanted, module))
    }
}

/// The sort of functions that a module's word stands for.
fn is_kind(word: &str) -> Option<FunctionKind> {
    match word {
        _ if word.eq_ignore_ascii_case("plt") => Some(FunctionKind::LibraryCall),
        "kernel" | "kern" => Some(FunctionKind::Kernel),
        _ => None,
    }
}

fn is_of_module(function: &Function<'_>, wanted: &str) -> bool {
    match is_kind(wanted) {
        Some(kind) => function.kind == kind,
        None => module_matches(wanted, function.module),
    }
}
