//! `-P` and `-U`: which functions are patched, by patterns of their names.
//!
//! The patterns are matched by the code that matches filters: a pattern of `-P` is written as a filter, one of `-U` as
//! its opposite. Where two contradict each other, the later one holds.

use super::selector::ModuleIdentity;
use super::warnings::{SelectionWarning, UnpatchedFunction};
use dioptra_filters::{
    CompileError, Compiler, FunctionDescription, FunctionOrigin, MatchStyle, PlanOptions, Probe,
    RuleOption, Rules, SyntaxError, Warning,
};
use thiserror::Error;

/// The reason why a text is no pattern of `-P` or `-U`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PatchError {
    /// The text is not understood. (Filters are named in the message, because the grammar is theirs.)
    #[error("-{letter}: {error}")]
    Syntax {
        /// `P` or `U`.
        letter: char,
        /// The error.
        error: SyntaxError,
    },
    /// The text has an action.
    #[error(
        "-{letter} {text}: takes FUNCTION or FUNCTION@MODULE, and no actions; use -F, -N or -T"
    )]
    Action {
        /// `P` or `U`.
        letter: char,
        /// The pattern.
        text: String,
    },
}

/// Patterns of functions that are patched, or are not.
#[derive(Clone, Debug)]
pub struct PatchPatterns {
    style: MatchStyle,
    rules: Rules,
    /// The patterns of `-P`.
    wanted: Vec<PatchPattern>,
    /// Whether each pattern of `-P` names all functions.
    everything: bool,
    any_unpatched: bool,
}

/// A pattern of `-P`.
#[derive(Clone, Debug)]
struct PatchPattern {
    text: String,
    /// The module that the pattern names; `None` for the program.
    module: Option<String>,
}

impl PatchPattern {
    fn may_want(&self, module: &ModuleIdentity) -> bool {
        let path = module.path.to_string_lossy();
        let file = path.rsplit('/').next().unwrap_or(&path);
        match &self.module {
            None => module.is_program,
            Some(wanted) if wanted.contains('/') => *path == **wanted,
            Some(wanted) => file.starts_with(wanted.as_str()),
        }
    }
}

/// The patterns' answer about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patching {
    /// No pattern matches the function.
    Unnamed,
    /// The function is to be patched.
    Wanted,
    /// The function is not to be patched.
    Unwanted,
}

impl PatchPatterns {
    /// Makes an empty set of patterns.
    pub fn new(style: MatchStyle) -> PatchPatterns {
        PatchPatterns {
            style,
            rules: Rules::new(style),
            wanted: Vec::new(),
            everything: true,
            any_unpatched: false,
        }
    }

    /// Adds patterns (`FUNCTION[@MODULE]`, joined by `;`) of functions to patch.
    ///
    /// # Errors
    /// [`PatchError`]
    pub fn patch(&mut self, text: &str) -> Result<(), PatchError> {
        self.add('P', RuleOption::Filter, text)?;
        for part in text
            .split(';')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let (name, module) = match part.split_once('@') {
                Some((name, module)) => (name.trim(), Some(module.trim().to_owned())),
                None => (part, None),
            };
            self.everything &= match self.style {
                MatchStyle::Glob => name == "*",
                _ => matches!(name, "." | ".*"),
            };
            self.wanted.push(PatchPattern {
                text: part.to_owned(),
                module,
            });
        }
        Ok(())
    }

    /// Adds patterns of functions that are not to be patched.
    ///
    /// # Errors
    /// [`PatchError`]
    pub fn unpatch(&mut self, text: &str) -> Result<(), PatchError> {
        self.any_unpatched = true;
        self.add('U', RuleOption::Notrace, text)
    }

    fn add(&mut self, letter: char, option: RuleOption, text: &str) -> Result<(), PatchError> {
        // A text that is accepted as a trigger has an action.
        if Rules::new(self.style)
            .add(RuleOption::Trigger, text)
            .is_ok()
        {
            let text = text.to_owned();
            return Err(PatchError::Action { letter, text });
        }
        let added = self.rules.add(option, text);
        added.map_err(|error| PatchError::Syntax { letter, error })
    }

    /// Returns whether `-P` was given at all.
    pub fn any_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Returns whether names have to be known to decide what is patched.
    pub fn needs_names(&self) -> bool {
        self.any_unpatched || !self.everything
    }

    /// Returns whether functions of the module may be patched for `-P`.
    pub fn may_want(&self, module: &ModuleIdentity) -> bool {
        self.wanted.iter().any(|wanted| wanted.may_want(module))
    }

    /// Makes a matcher for functions.
    ///
    /// # Errors
    /// [`CompileError`]; none of the texts that were accepted causes one.
    pub fn matcher(&self) -> Result<PatchMatcher, CompileError> {
        Ok(PatchMatcher {
            compiler: Compiler::new(self.rules.clone(), PlanOptions::default())?,
        })
    }
}

/// A matcher of functions with patterns.
#[derive(Clone, Debug)]
pub struct PatchMatcher {
    compiler: Compiler,
}

impl PatchMatcher {
    /// Returns the patterns' answer about each of the functions.
    pub fn answer<'a>(
        &mut self,
        functions: impl IntoIterator<Item = FunctionDescription<'a>>,
    ) -> Vec<Patching> {
        let actions: Vec<u32> = functions
            .into_iter()
            .map(|function| self.compiler.add(&function))
            .collect();
        let plan = self.compiler.plan();
        actions
            .into_iter()
            .map(|action| match plan.probe(action) {
                Probe::Mute => Patching::Unwanted,
                Probe::Filter => Patching::Wanted,
                _ => Patching::Unnamed,
            })
            .collect()
    }

    /// Returns the patterns that match nothing, each with a warning. `names` are the functions that were seen.
    fn warnings(&self, names: &[String]) -> Vec<(String, Warning)> {
        let rename = |rule: String| match rule.split_at_checked(2) {
            Some(("-F", rest)) => format!("-P{rest}"),
            Some(("-N", rest)) => format!("-U{rest}"),
            _ => rule,
        };
        self.compiler
            .warnings(names.iter().map(String::as_str))
            .into_iter()
            .map(|warning| match warning {
                Warning::NoFunction { rule, nearest, .. } => Warning::NoFunction {
                    rule: rename(rule),
                    nearest,
                    filter: false,
                },
                Warning::NoModule {
                    rule,
                    module,
                    nearest,
                    doubtful,
                } => Warning::NoModule {
                    rule: rename(rule),
                    module,
                    nearest,
                    doubtful,
                },
                other => other,
            })
            .map(|warning| {
                let rule = match &warning {
                    Warning::NoFunction { rule, .. } | Warning::NoModule { rule, .. } => rule,
                    _ => &String::new(),
                };
                (rule.clone(), warning)
            })
            .collect()
    }
}

/// The reasons why patterns of `-P` patch nothing.
#[derive(Clone, Debug, Default)]
pub struct Unpatched {
    /// The modules that were seen.
    seen: Vec<ModuleIdentity>,
    /// The modules whose functions are left alone.
    alone: Vec<ModuleIdentity>,
    /// Functions that can't be patched.
    refused: Vec<RefusedFunction>,
}

/// A function that can't be patched.
#[derive(Clone, Debug)]
pub struct RefusedFunction {
    /// Its name, as users see it.
    pub name: String,
    /// Its name as linkers see it, if that is another one.
    pub linkage: Option<String>,
    /// Its module.
    pub module: ModuleIdentity,
    /// The reason.
    pub reason: &'static str,
}

impl Unpatched {
    /// Notes that a module was seen.
    pub fn see(&mut self, module: &ModuleIdentity) {
        self.seen.push(module.clone());
    }

    /// Notes that the functions of a module are left alone. The recorder gives the user the reason.
    pub fn leave_alone(&mut self, module: &ModuleIdentity) {
        self.alone.push(module.clone());
    }

    /// Notes that a function can't be patched.
    pub fn refuse(&mut self, function: RefusedFunction) {
        self.refused.push(function);
    }

    /// Returns the warnings at the end about patterns that patch nothing. `names` are the functions that could be
    /// patched.
    pub fn warnings(
        &self,
        patterns: &PatchPatterns,
        matcher: &PatchMatcher,
        names: &[String],
    ) -> Vec<SelectionWarning> {
        // Without names nothing was matched.
        let unmatched = match patterns.needs_names() {
            true => matcher.warnings(names),
            false => Vec::new(),
        };
        let mut told: Vec<SelectionWarning> = patterns
            .wanted
            .iter()
            .filter(|_| !patterns.needs_names())
            .filter(|wanted| !self.seen.iter().any(|module| wanted.may_want(module)))
            .filter_map(|wanted| {
                let (text, module) = (&wanted.text, wanted.module.as_ref()?);
                Some(SelectionWarning::Rule(Warning::NoModule {
                    rule: format!("-P {text}"),
                    module: module.clone(),
                    nearest: None,
                    doubtful: false,
                }))
            })
            .collect();
        for (rule, warning) in unmatched {
            let wanted = patterns
                .wanted
                .iter()
                .find(|wanted| rule.strip_prefix("-P ") == Some(&wanted.text));
            // A note has already given the reason why these modules are left alone.
            if wanted.is_some_and(|wanted| self.alone.iter().any(|module| wanted.may_want(module)))
            {
                continue;
            }
            let functions = wanted.map_or_else(Vec::new, |wanted| self.refused(patterns, wanted));
            told.push(match functions.is_empty() {
                true => SelectionWarning::Rule(warning),
                false => SelectionWarning::OnlyRefused { rule, functions },
            });
        }
        told
    }

    /// Returns the first functions that a pattern matches and that can't be patched, with their reasons.
    fn refused(&self, patterns: &PatchPatterns, wanted: &PatchPattern) -> Vec<UnpatchedFunction> {
        const MOST: usize = 5;
        let mut alone = PatchPatterns::new(patterns.style);
        if alone.patch(&wanted.text).is_err() {
            return Vec::new();
        }
        let Ok(mut matcher) = alone.matcher() else {
            return Vec::new();
        };
        let functions: Vec<&RefusedFunction> = self
            .refused
            .iter()
            .filter(|function| wanted.may_want(&function.module))
            .collect();
        let paths: Vec<_> = functions
            .iter()
            .map(|function| function.module.path.to_string_lossy())
            .collect();
        let questions = functions
            .iter()
            .zip(&paths)
            .map(|(function, path)| FunctionDescription {
                name: &function.name,
                linkage: function.linkage.as_deref(),
                module: path,
                kind: FunctionOrigin::Code,
                size: None,
                source: None,
                is_chosen: false,
            });
        let answers = matcher.answer(questions);
        functions
            .iter()
            .zip(answers)
            .filter(|(_, answer)| *answer == Patching::Wanted)
            .map(|(function, _)| UnpatchedFunction {
                name: function.name.clone(),
                reason: function.reason,
            })
            .take(MOST)
            .collect()
    }
}
