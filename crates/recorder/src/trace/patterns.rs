//! `-P` and `-U`: which functions are patched, by patterns of their names.
//!
//! They are matched by the machine that matches filters: a pattern of `-P` is written as a filter, one of `-U` as its
//! opposite, and where two contradict each other, the later one holds.

use super::select::ModuleIdentity;
use dioptra_filters::{
    CompileError, Compiler, Function, MatchStyle, Plan, PlanOptions, RuleOption, Rules, SiteNeed,
    SyntaxError, Warning,
};
use thiserror::Error;

/// Why a pattern of `-P` or `-U` is none.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PatchError {
    /// Its text is not understood. (Filters are named in the message: the grammar is theirs.)
    #[error("-{letter}: {error}")]
    Syntax {
        /// `P` or `U`.
        letter: char,
        /// Why.
        error: SyntaxError,
    },
    /// It has an action.
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
    /// The modules that `-P` names; none is the program.
    modules: Vec<Option<String>>,
    /// All functions that `-P` names are all functions.
    everything: bool,
    any_unpatched: bool,
}

/// What the patterns say of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patching {
    /// Nothing.
    Unnamed,
    /// It is to be patched.
    Wanted,
    /// It is not.
    Unwanted,
}

impl PatchPatterns {
    /// None.
    pub fn new(style: MatchStyle) -> PatchPatterns {
        PatchPatterns {
            style,
            rules: Rules::new(style),
            modules: Vec::new(),
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
            self.modules.push(module);
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
        // What is a trigger has an action.
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

    /// Whether `-P` was given at all.
    pub fn any_wanted(&self) -> bool {
        !self.modules.is_empty()
    }

    /// Whether names have to be known to tell what is patched.
    pub fn needs_names(&self) -> bool {
        self.any_unpatched || !self.everything
    }

    /// Whether functions of the module may be patched for `-P`.
    pub fn may_want(&self, module: &ModuleIdentity) -> bool {
        let path = module.path.to_string_lossy();
        let file = path.rsplit('/').next().unwrap_or(&path);
        self.modules.iter().any(|wanted| match wanted {
            None => module.is_program,
            Some(wanted) if wanted.contains('/') => *path == **wanted,
            Some(wanted) => file.starts_with(wanted.as_str()),
        })
    }

    /// Begins to match functions.
    ///
    /// # Errors
    /// [`CompileError`]; none of the texts that were accepted causes one.
    pub fn matcher(&self) -> Result<PatchMatcher, CompileError> {
        Ok(PatchMatcher {
            compiler: Compiler::new(self.rules.clone(), PlanOptions::default())?,
        })
    }
}

/// Matches functions with patterns.
#[derive(Clone, Debug)]
pub struct PatchMatcher {
    compiler: Compiler,
}

impl PatchMatcher {
    /// What the patterns say of each of the functions.
    pub fn answer<'a>(
        &mut self,
        functions: impl IntoIterator<Item = Function<'a>>,
    ) -> Vec<Patching> {
        let actions: Vec<u32> = functions
            .into_iter()
            .map(|function| self.compiler.add(&function))
            .collect();
        let words = self.compiler.plan();
        let Ok(plan) = Plan::from_words(&words) else {
            return vec![Patching::Unnamed; actions.len()];
        };
        actions
            .into_iter()
            .map(|action| match plan.site_need(action) {
                SiteNeed::Mute { .. } => Patching::Unwanted,
                SiteNeed::Evaluate { .. } => Patching::Wanted,
                _ => Patching::Unnamed,
            })
            .collect()
    }

    /// Patterns that match nothing; `names` are the functions that were seen.
    pub fn warnings(&self, names: &[String]) -> Vec<String> {
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
            .map(|warning| warning.to_string())
            .collect()
    }
}
