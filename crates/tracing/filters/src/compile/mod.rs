//! The compiler: rules and functions in, a plan out.

mod warning;

pub use warning::Warning;

use crate::plan::{ANY_SIZE, Action, NO_LIMIT, Plan, PlanHeader, fact, flag};
use crate::random::Pace;
use crate::rules::{
    Changes, FilterMode, NameForms, Pattern, Rules, SampleRule, ValueRequest, module_matches,
    nearest_names, nearest_word,
};
use crate::sampler::{SampleKind, Sampling, TOLD};
use std::collections::{BTreeMap, BTreeSet};
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;
use thiserror::Error;

/// The facts about a function that rules may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionDescription<'a> {
    /// The demangled name, with or without parameters.
    pub name: &'a str,
    /// The name in the symbol table, if that is another one.
    pub linkage: Option<&'a str>,
    /// The path or name of the module.
    pub module: &'a str,
    /// The origin of the function.
    pub kind: FunctionOrigin,
    /// The size in bytes, if known.
    pub size: Option<u64>,
    /// The path of the source file, if known.
    pub source: Option<&'a str>,
    /// True if the function's executions were chosen when they were recorded: `sample=` does not choose among them
    /// again. Executions of `sample=pNN` that were rejected, and are there all the same, are marked
    /// ([`Lane::discard`](crate::Lane::discard)).
    pub is_chosen: bool,
}

/// The origin of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FunctionOrigin {
    /// Code of its module.
    #[default]
    Code,
    /// A library call of its module, which `@PLT` names.
    LibraryCall,
    /// A function of the kernel, which `@kernel` names.
    Kernel,
}

/// The options of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// The units of the clock in a second. Durations are rounded up to these units.
    pub units_per_second: u64,
    /// The seed of random choices: the same seed gives the same choices.
    pub seed: u64,
    /// True if the plan is for a finished trace, where no overhead must be kept low.
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

/// The reason why rules cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CompileError {
    /// A condition concerns something that is not recorded.
    #[error(
        "{rule}: `{what}` is not recorded, so a condition on it cannot be checked; leave out the condition"
    )]
    NotRecorded {
        /// The rule.
        rule: String,
        /// The quantity that the condition asks for.
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
    /// The rules have more different sizes than a plan has room for.
    #[error("there are more than {limit} different sizes in -Z and `size=`; use fewer")]
    TooManySizes {
        /// The largest number of sizes.
        limit: usize,
    },
}

/// A compiler that matches functions against rules, one at a time, and makes the plan.
///
/// Functions get their numbers in the order in which they are added, from 0. More may be added after a plan was made,
/// as modules are loaded: numbers of functions, actions and samplers do not change.
#[derive(Debug, Clone)]
pub struct Compiler {
    rules: Rules,
    options: PlanOptions,
    /// The rules for an exact name, by that name. The others are tried one by one.
    exact: BTreeMap<String, Vec<usize>>,
    patterns: Vec<usize>,
    /// The sizes that rules ask for, in rising order.
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
    /// The values that rules ask for at the function that was added last.
    values: Vec<ValueRequest>,
}

impl Compiler {
    /// Returns a compiler without functions.
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
            if options.replay && rule.changes.sample == Some(SampleRule::Auto) {
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
            values: Vec::new(),
            rules,
            options,
        })
    }

    /// Adds a function. Returns its action, which a plan made afterwards knows.
    pub fn add(&mut self, function: &FunctionDescription<'_>) -> u32 {
        if !self.modules.contains(function.module) {
            self.modules.insert(function.module.to_string());
        }
        let changes = self.changes(function);
        self.values.clear();
        self.values.extend(&changes.arguments);
        self.values.extend(changes.returned);
        let hidden_place = self.is_hidden_by_location(function);
        let mut action = self.action(&changes, function);
        if hidden_place && !action.has(flag::NOTRACE) {
            action.flags |= flag::HIDE;
        }
        let chooses = |sample: &SampleRule| !function.is_chosen || sample.judges();
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

    /// Returns the values that rules ask for at the function that was added last: arguments in the order in which they
    /// are passed, then the return value.
    #[must_use]
    pub fn values(&self) -> &[ValueRequest] {
        &self.values
    }

    /// Returns the merged changes of all rules that match the function.
    fn changes(&mut self, function: &FunctionDescription<'_>) -> Changes {
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

    fn action(&mut self, changes: &Changes, function: &FunctionDescription<'_>) -> Action {
        let mut action = Action::ORDINARY;
        if changes.mode == Some(FilterMode::Notrace) {
            action.flags = flag::NOTRACE;
            return action;
        }
        for (asked, flag) in [
            (changes.mode == Some(FilterMode::Filter), flag::FILTER),
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

    /// Returns the rank of a function of exactly this size.
    fn rank_of_threshold(&self, size: u64) -> u8 {
        self.sizes.partition_point(|threshold| *threshold <= size) as u8
    }

    fn is_hidden_by_location(&mut self, function: &FunctionDescription<'_>) -> bool {
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

    /// Returns a function's sampling, with a sampler of its own.
    fn sampling(&mut self, sample: SampleRule) -> Sampling {
        let (kind, parameter) = match sample {
            SampleRule::Every(interval) => (SampleKind::Every, interval),
            SampleRule::Random(p) => (SampleKind::Random, Pace::from_interval(1.0 / p).0),
            SampleRule::Rate(rate) => {
                let period = (self.options.units_per_second as f64 / rate).round();
                (SampleKind::Rate, (period as u64).max(1))
            }
            SampleRule::Auto => (SampleKind::Auto, 0),
            SampleRule::Percentile(hundredths) => (SampleKind::Tail, u64::from(hundredths)),
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

    /// Returns nanoseconds in units of the clock, rounded up.
    fn clock_units(&self, nanoseconds: u64) -> u64 {
        let units = u128::from(nanoseconds) * u128::from(self.options.units_per_second);
        u64::try_from(units.div_ceil(1_000_000_000)).unwrap_or(u64::MAX)
    }

    /// Returns the plan for the functions added so far.
    #[must_use]
    pub fn plan(&self) -> Plan {
        Plan::new(self.header(), self.actions.clone(), self.functions.clone())
    }

    /// Returns the plan's header. Its facts come from the rules, not from the functions that match so far: a module
    /// that is loaded later must not change the meaning of sites that were patched before.
    fn header(&self) -> PlanHeader {
        let rules = &self.rules.rules;
        let any = |asks: fn(&Changes) -> bool| rules.iter().any(|rule| asks(&rule.changes));
        let samples_a_subtree = any(|changes| {
            changes
                .sample
                .is_some_and(|sample| !matches!(sample, SampleRule::Percentile(_)))
        }) && any(|changes| changes.mode == Some(FilterMode::Filter));
        let mut facts = 0;
        for (holds, fact) in [
            (
                any(|changes| changes.mode == Some(FilterMode::Filter)),
                fact::OPT_IN,
            ),
            (
                any(|changes| changes.mode == Some(FilterMode::Notrace)) || samples_a_subtree,
                fact::MUTES,
            ),
            (any(|changes| changes.caller), fact::CALLER),
            (
                self.rules.time.is_some_and(|time| time > 0)
                    || any(|changes| changes.time.is_some_and(|time| time > 0)),
                fact::TIMED,
            ),
            (any(|changes| changes.time.is_some()), fact::TIME_VARIES),
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
        PlanHeader {
            facts,
            depth: self.rules.depth.unwrap_or(NO_LIMIT),
            time: self.clock_units(self.rules.time.unwrap_or(0)),
            seed: self.options.seed,
            samplers: self.samplers,
            tails: self.tails,
            min_rank,
            lowest_rank,
        }
    }

    /// Returns warnings about rules that match nothing so far, and about functions of which too little is known.
    /// `names` are the functions that were added; they are looked at only if a rule matches none of them.
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
                filter: rule.changes.mode == Some(FilterMode::Filter),
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

/// Returns the origin of functions that a module's word stands for.
fn is_kind(word: &str) -> Option<FunctionOrigin> {
    match word {
        _ if word.eq_ignore_ascii_case("plt") => Some(FunctionOrigin::LibraryCall),
        "kernel" | "kern" => Some(FunctionOrigin::Kernel),
        _ => None,
    }
}

fn is_of_module(function: &FunctionDescription<'_>, wanted: &str) -> bool {
    match is_kind(wanted) {
        Some(kind) => function.kind == kind,
        None => module_matches(wanted, function.module),
    }
}
