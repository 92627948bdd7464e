//! The user's rules, parsed from the texts of the options.

mod action;
mod error;
mod nearest;
mod pattern;
mod simple_name;
mod units;
mod values;

pub use action::{ArgumentCondition, COLORS, SampleRule};
pub use error::SyntaxError;
pub use pattern::MatchStyle;
pub use simple_name::{NameForms, is_cpp, qualified_name, simple_name};
pub use units::{UnitError, parse_bool, parse_share, parse_size, parse_time};
pub use values::{MOST_ARGUMENTS, ValueFormat, ValuePlace, ValueRequest};

pub(crate) use action::{ACTIONS, Changes, FilterMode};
pub(crate) use nearest::{nearest_names, nearest_word};
pub(crate) use pattern::{Location, Pattern, module_matches};

use crate::compile::Warning;
use action::{Suffix, parse_suffix};
use error::{OptionText, TextPart};
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// An option that takes rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOption {
    /// `-F`: show these functions and the calls below them, and nothing else.
    Filter,
    /// `-N`: hide these functions and the calls below them.
    Notrace,
    /// `-T`: actions at these functions.
    Trigger,
    /// `-C`: show only calls that lead to these functions.
    Caller,
    /// `-H`: hide these functions alone.
    Hide,
    /// `-D`: the limit of nesting.
    Depth,
    /// `-t`: the shortest duration that is shown.
    Time,
    /// `-Z`: the size of the smallest function that is shown.
    Size,
    /// `-L`: show functions of these source files alone, or hide them.
    Location,
    /// `-A`: record arguments of these functions.
    Argument,
    /// `-R`: record the return values of these functions.
    Retval,
}

impl RuleOption {
    /// Returns the option as it is written on the command line.
    #[must_use]
    pub fn letter(self) -> &'static str {
        match self {
            Self::Filter => "-F",
            Self::Notrace => "-N",
            Self::Trigger => "-T",
            Self::Caller => "-C",
            Self::Hide => "-H",
            Self::Depth => "-D",
            Self::Time => "-t",
            Self::Size => "-Z",
            Self::Location => "-L",
            Self::Argument => "-A",
            Self::Retval => "-R",
        }
    }

    /// Returns the changes that the option asks for at its functions without further actions.
    fn implied(self) -> Changes {
        let mut changes = Changes::default();
        match self {
            Self::Filter => changes.mode = Some(FilterMode::Filter),
            Self::Notrace => changes.mode = Some(FilterMode::Notrace),
            Self::Caller => changes.caller = true,
            Self::Hide => changes.hide = true,
            _ => {}
        }
        changes
    }
}

/// One function pattern and the changes at the functions that it matches.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub option: RuleOption,
    /// The text of the rule, as the user wrote it.
    pub text: String,
    pub pattern: Pattern,
    pub module: Option<String>,
    pub doubtful: bool,
    pub changes: Changes,
}

/// A source location, shown or hidden.
#[derive(Debug, Clone)]
pub(crate) struct LocationRule {
    pub text: String,
    pub location: Location,
    pub hide: bool,
}

/// All rules that were asked for, in their order.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    style: MatchStyle,
    pub(crate) rules: Vec<Rule>,
    pub(crate) locations: Vec<LocationRule>,
    pub(crate) depth: Option<u32>,
    pub(crate) time: Option<u64>,
    pub(crate) size: Option<u64>,
}

impl Rules {
    /// Returns no rules: everything is shown.
    #[must_use]
    pub fn new(style: MatchStyle) -> Self {
        Self {
            style,
            ..Self::default()
        }
    }

    /// Adds the rules of an option's text; several texts may be joined with `;`. A later limit replaces an earlier
    /// one.
    ///
    /// # Errors
    /// [`SyntaxError`] shows the text and the position; then nothing has been added.
    pub fn add(&mut self, option: RuleOption, text: &str) -> Result<(), SyntaxError> {
        let source = OptionText {
            option: option.letter(),
            text,
        };
        let (rules, locations) = (self.rules.len(), self.locations.len());
        let limits = (self.depth, self.time, self.size);
        let result = TextPart { text, start: 0 }
            .split(&[';'])
            .map(TextPart::trim)
            // `a;` and `a;;b` come from joined options.
            .filter(|part| !part.text.is_empty() || text.trim().is_empty())
            .try_for_each(|part| self.add_one(option, source, part));
        if result.is_err() {
            self.rules.truncate(rules);
            self.locations.truncate(locations);
            (self.depth, self.time, self.size) = limits;
        }
        result
    }

    fn add_one(
        &mut self,
        option: RuleOption,
        source: OptionText<'_>,
        part: TextPart<'_>,
    ) -> Result<(), SyntaxError> {
        match option {
            RuleOption::Depth => self.depth = Some(action::depth(source, part)?),
            RuleOption::Time => self.time = Some(action::time(source, part)?),
            RuleOption::Size => self.size = Some(action::size(source, part)?),
            RuleOption::Location => self.locations.push(self.location(source, part)?),
            _ => self.rules.push(self.rule(option, source, part)?),
        }
        Ok(())
    }

    fn rule(
        &self,
        option: RuleOption,
        source: OptionText<'_>,
        part: TextPart<'_>,
    ) -> Result<Rule, SyntaxError> {
        let mut implied = option.implied();
        let (name, words) = match part.split_once('@') {
            Some((name, words)) => (name.trim(), Some(words)),
            None => (part, None),
        };
        let name = match name.text.strip_prefix('!') {
            Some(_) if option == RuleOption::Filter => {
                implied = RuleOption::Notrace.implied();
                name.from(1).trim()
            }
            Some(_) => {
                let remedy = "`!` belongs to -F (hide the subtree) and -L (hide)";
                return Err(source.error(
                    name.cut(0..1).place(),
                    "`!` has no meaning here",
                    remedy,
                ));
            }
            None => name,
        };
        if name.text.is_empty() {
            let form = "write FUNCTION, FUNCTION@MODULE or FUNCTION@ACTION,…";
            return Err(source.error(name.place(), "a function's name is missing", form));
        }
        let mut suffix = match words {
            Some(words) => parse_suffix(source, words, &implied)?,
            None if option == RuleOption::Trigger => {
                let end = part.place().end;
                let remedy = format!("add `@` and one of {}", ACTIONS.join(", "));
                return Err(source.error(end..end, "a trigger needs an action", remedy));
            }
            None => Suffix {
                changes: implied,
                ..Suffix::default()
            },
        };
        values::complete(option, source, part, &mut suffix.changes)?;
        if suffix.changes == Changes::default() {
            let end = part.place().end;
            let remedy = format!("add one of {}", ACTIONS.join(", "));
            return Err(source.error(end..end, "a trigger needs an action", remedy));
        }
        Ok(Rule {
            option,
            text: part.text.to_string(),
            pattern: self.pattern(source, name)?,
            module: suffix.module,
            doubtful: suffix.doubtful,
            changes: suffix.changes,
        })
    }

    fn pattern(&self, source: OptionText<'_>, name: TextPart<'_>) -> Result<Pattern, SyntaxError> {
        Pattern::new(name.text, self.style).map_err(|reason| self.no_pattern(source, name, &reason))
    }

    fn no_pattern(&self, source: OptionText<'_>, part: TextPart<'_>, reason: &str) -> SyntaxError {
        let kind = match self.style {
            MatchStyle::Glob => "glob pattern",
            _ => "regular expression",
        };
        source.error(
            part.place(),
            format!("`{}` is no {kind}: {reason}", part.text),
            "mend it, or match names as they are (match style simple)",
        )
    }

    fn location(
        &self,
        source: OptionText<'_>,
        part: TextPart<'_>,
    ) -> Result<LocationRule, SyntaxError> {
        let (path, words) = match part.split_once('@') {
            Some((path, words)) => (path.trim(), Some(words.trim())),
            None => (part, None),
        };
        if let Some(word) = words.filter(|words| words.text != "hide") {
            let remedy = "`@hide` is the only action of a location";
            return Err(source.error(
                word.place(),
                format!("`{}` has no meaning here", word.text),
                remedy,
            ));
        }
        let excluded = path.text.starts_with('!');
        let path = if excluded { path.from(1).trim() } else { path };
        if path.text.trim_matches('/').is_empty() {
            let form = "write a file, a folder or a pattern for paths";
            return Err(source.error(path.place(), "a source location is missing", form));
        }
        Ok(LocationRule {
            text: part.text.to_string(),
            location: Location::new(path.text, self.style)
                .map_err(|reason| self.no_pattern(source, path, &reason))?,
            hide: excluded || words.is_some(),
        })
    }

    /// Returns true if there are no rules: every call is shown.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
            && self.locations.is_empty()
            && self.depth.is_none()
            && self.time.is_none()
            && self.size.is_none()
    }

    /// Returns true if any rule samples.
    #[must_use]
    pub fn sample(&self) -> bool {
        self.rules.iter().any(|rule| rule.changes.sample.is_some())
    }

    /// Returns true if rules about functions set a minimum duration.
    #[must_use]
    pub fn set_durations(&self) -> bool {
        self.rules.iter().any(|rule| rule.changes.time.is_some())
    }

    /// Returns the words that forbid probe sites to count executions of sampled functions as readers would, while the
    /// program runs; `None` if the sites can count.
    #[must_use]
    pub fn beyond_counting(&self) -> Option<&'static str> {
        let mut samples = self.rules.iter().filter(|r| r.changes.sample.is_some());
        let any_switches = self.rules.iter().any(|rule| rule.changes.switches());
        // Executions of filters count in any depth and of any size: all other rules hide calls below them.
        let are_filters = samples.all(|rule| rule.changes.mode == Some(FilterMode::Filter));
        self.beyond_places()
            .filter(|_| any_switches || !are_filters)
    }

    /// Returns the words that make more than a call's position decide whether it is shown; `None` if only the
    /// position decides: among calls of filters, hidden functions and recorded ones. Durations and callers (`-C`) are
    /// left out of this question.
    ///
    /// If it is `None`, probe sites can limit levels while the program runs, as readers would.
    #[must_use]
    pub fn beyond_places(&self) -> Option<&'static str> {
        let any = |asks: fn(&Changes) -> bool| self.rules.iter().any(|rule| asks(&rule.changes));
        let hides = any(|changes| changes.hide)
            || !self.locations.is_empty()
            || self.size.is_some_and(|size| size > 0);
        // Such rules need hooks in functions that are hidden themselves.
        let hooks: fn(&Changes) -> bool =
            |changes| changes.mode == Some(FilterMode::Filter) || changes.time.is_some();
        if any(Changes::switches) {
            Some("trace_on, trace_off and finish")
        } else if any(|changes| changes.depth.is_some()) {
            Some("depth=")
        } else if any(|changes| changes.size.is_some()) {
            Some("size=")
        } else if self.depth.is_some() && hides && any(hooks) {
            // A function that is hidden and has no hook takes no level, as it should be.
            Some("-D with -H, -L or -Z, and filters or time=")
        } else {
            None
        }
    }

    /// Returns true if any rule asks for values of calls: arguments or return values.
    #[must_use]
    pub fn ask_for_values(&self) -> bool {
        self.rules.iter().any(|rule| rule.changes.asks_for_values())
    }

    /// Returns true if there is a rule that does not only ask for values of calls.
    #[must_use]
    pub fn do_more_than_ask_for_values(&self) -> bool {
        let more = |rule: &Rule| {
            let rest = Changes {
                arguments: Vec::new(),
                returned: None,
                ..rule.changes.clone()
            };
            rest != Changes::default()
        };
        self.locations.len() + self.rules.iter().filter(|rule| more(rule)).count() > 0
            || self.depth.is_some()
            || self.time.is_some()
            || self.size.is_some()
    }

    /// Returns warnings about actions that have no effect.
    #[must_use]
    pub fn notes(&self) -> Vec<Warning> {
        self.rules
            .iter()
            .filter(|rule| rule.changes.recover)
            .map(|rule| Warning::NothingToRecover {
                rule: format!("{} {}", rule.option.letter(), rule.text),
            })
            .collect()
    }
}
