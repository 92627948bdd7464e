//! The grammar behind `@`: modules and actions.

use super::error::{OptionText, SyntaxError, TextPart};
use super::nearest::nearest_word;
use super::units::{SIZE_FORM, TIME_FORM, UnitError, parse_size, parse_time};
use super::values::{ValuePlace, ValueRequest, is_value, value_request};
use crate::random::Pace;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// The colours of `color=`, in the order of their numbers.
pub const COLORS: [&str; 8] = [
    "red", "green", "blue", "yellow", "magenta", "cyan", "bold", "gray",
];

/// Every action, written without its value.
pub(crate) const ACTIONS: [&str; 16] = [
    "filter",
    "notrace",
    "hide",
    "caller",
    "depth",
    "time",
    "size",
    "trace",
    "trace_on",
    "trace_off",
    "finish",
    "backtrace",
    "color",
    "recover",
    "sample",
    "if",
];

/// The two modes of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterMode {
    Filter,
    Notrace,
}

/// The choice among the executions of a function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SampleRule {
    /// `sample=N`: the N-th, the 2N-th and so on; at least 1.
    Every(u64),
    /// `sample=1/N`, `sample=P%`: each with this probability, above 0 and at most 1.
    Random(f64),
    /// `sample=N/s`: at most this many in a second of each thread; above 0.
    Rate(f64),
    /// `sample=auto`: as many as a budget allows.
    Auto,
    /// `sample=pNN`: those slower than this percentile of those before, in hundredths of a percent.
    Percentile(u16),
}

impl SampleRule {
    /// Returns true if executions are judged at their ends.
    #[must_use]
    pub fn judges(&self) -> bool {
        matches!(self, SampleRule::Percentile(_))
    }
}

/// A condition `if:argN<op>V`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgumentCondition {
    /// The argument's number, from 1.
    pub argument: u32,
    /// The comparison: `==`, `!=`, `>`, `>=`, `<`, `<=` or `&`.
    pub operator: &'static str,
    /// The value that the argument is compared with.
    pub value: i64,
}

/// The changes that a rule asks for at its functions.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Changes {
    pub mode: Option<FilterMode>,
    pub hide: bool,
    pub caller: bool,
    pub trace: bool,
    pub switch: Option<bool>,
    pub finish: bool,
    pub backtrace: bool,
    /// The colour, an index into [`COLORS`].
    pub color: Option<u8>,
    pub depth: Option<u32>,
    /// The minimum duration in nanoseconds.
    pub time: Option<u64>,
    pub size: Option<u64>,
    pub sample: Option<SampleRule>,
    pub condition: Option<ArgumentCondition>,
    pub recover: bool,
    /// The arguments to record, each once, in the order in which they are passed.
    pub arguments: Vec<ValueRequest>,
    /// The return value to record.
    pub returned: Option<ValueRequest>,
}

impl Changes {
    /// Takes over the changes of a later rule for the same function.
    pub fn merge(&mut self, later: &Self) {
        self.mode = later.mode.or(self.mode);
        self.hide |= later.hide;
        self.caller |= later.caller;
        self.trace |= later.trace;
        self.switch = later.switch.or(self.switch);
        self.finish |= later.finish;
        self.backtrace |= later.backtrace;
        self.color = later.color.or(self.color);
        self.depth = later.depth.or(self.depth);
        self.time = later.time.or(self.time);
        self.size = later.size.or(self.size);
        self.sample = later.sample.or(self.sample);
        for request in &later.arguments {
            self.ask_for(*request);
        }
        self.returned = later.returned.or(self.returned);
    }

    /// Asks for a value, in place of an earlier request for the same one.
    pub fn ask_for(&mut self, request: ValueRequest) {
        if request.place == ValuePlace::Returned {
            self.returned = Some(request);
            return;
        }
        match self
            .arguments
            .binary_search_by_key(&request.place, |known| known.place)
        {
            Ok(at) => self.arguments[at] = request,
            Err(at) => self.arguments.insert(at, request),
        }
    }

    /// Returns true if the rule asks for values of calls.
    pub fn asks_for_values(&self) -> bool {
        !self.arguments.is_empty() || self.returned.is_some()
    }

    /// Returns true if the rule switches tracing on or off, or ends it.
    pub fn switches(&self) -> bool {
        self.switch.is_some() || self.finish
    }

    /// Returns true if the rule asks for anything but the mode and a condition.
    fn is_more_than_a_mode(&self) -> bool {
        let rest = Self {
            mode: None,
            condition: None,
            recover: false,
            ..self.clone()
        };
        rest != Self::default()
    }
}

/// The text behind a function's name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suffix {
    pub module: Option<String>,
    /// True if the module may be a mistyped action: the word does not look like a file's name.
    pub doubtful: bool,
    pub changes: Changes,
}

/// Parses the words after the first `@`; `implied` are the changes that the option itself asks for.
pub(crate) fn parse_suffix(
    source: OptionText<'_>,
    words: TextPart<'_>,
    implied: &Changes,
) -> Result<Suffix, SyntaxError> {
    let mut suffix = Suffix {
        changes: implied.clone(),
        ..Suffix::default()
    };
    let mut given: Vec<&str> = Vec::new();
    for (index, word) in words.split(&[',', '@']).enumerate() {
        let word = word.trim();
        let (name, value) = match word.split_once('=') {
            // `if:arg1==2` has a syntax of its own.
            _ if word.text.starts_with("if:") => (word.cut(0..2), Some(word.from(3))),
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (word, None),
        };
        if is_value(word.text) {
            let request = value_request(source, word)?;
            let same = |known: &ValueRequest| known.place == request.place;
            let mut known = suffix
                .changes
                .arguments
                .iter()
                .chain(&suffix.changes.returned);
            if known.any(same) {
                let problem = format!("`{}` is given twice", word.text);
                return Err(source.error(word.place(), problem, "leave one of them out"));
            }
            suffix.changes.ask_for(request);
            continue;
        }
        let known = canonical(name.text);
        if known.is_none() && index == 0 && value.is_none() && is_module(source, word)? {
            suffix.module = Some(word.text.to_string());
            suffix.doubtful = !looks_like_a_module(word.text);
            continue;
        }
        let Some(known) = known else {
            return Err(unknown(source, name));
        };
        let kind = if known == "trace_off" {
            "trace_on"
        } else {
            known
        };
        if given.contains(&kind) {
            let problem = format!(
                "`{}` is given twice or contradicts another action",
                name.text
            );
            return Err(source.error(word.place(), problem, "leave one of them out"));
        }
        given.push(kind);
        apply(source, &mut suffix.changes, known, word, value)?;
    }
    contradictions(source, words, &suffix.changes)?;
    Ok(suffix)
}

/// Returns the action that a word names, in one spelling.
fn canonical(word: &str) -> Option<&'static str> {
    let word = match word {
        "traceon" | "trace-on" => "trace_on",
        "traceoff" | "trace-off" => "trace_off",
        "colour" => "color",
        word => word,
    };
    ACTIONS.into_iter().find(|action| *action == word)
}

fn apply(
    source: OptionText<'_>,
    changes: &mut Changes,
    action: &str,
    word: TextPart<'_>,
    value: Option<TextPart<'_>>,
) -> Result<(), SyntaxError> {
    let end = word.place().end;
    let with_value = matches!(
        action,
        "depth" | "time" | "size" | "color" | "sample" | "if"
    );
    let value = match (with_value, value) {
        (true, Some(value)) if !value.text.is_empty() => value,
        (true, _) => {
            let remedy = match action {
                "depth" => "write `depth=N`, N at least 1",
                "time" => TIME_FORM,
                "size" => SIZE_FORM,
                "color" => {
                    "write `color=` and one of red, green, blue, yellow, magenta, cyan, bold, gray"
                }
                "if" => CONDITION_FORM,
                _ => SAMPLE_FORM,
            };
            return Err(source.error(end..end, format!("`{action}` needs a value"), remedy));
        }
        (false, Some(value)) => {
            let problem = format!("`{action}` has no value");
            return Err(source.error(value.place(), problem, format!("write `{action}` alone")));
        }
        // The word is not used.
        (false, None) => word,
    };
    match action {
        "filter" | "notrace" => {
            let mode = if action == "filter" {
                FilterMode::Filter
            } else {
                FilterMode::Notrace
            };
            if changes.mode.is_some_and(|implied| implied != mode) {
                let problem = format!("`{action}` contradicts what comes with it");
                let remedy = "`filter` (-F) shows a subtree, `notrace` (-N) hides it; keep one";
                return Err(source.error(word.place(), problem, remedy));
            }
            changes.mode = Some(mode);
        }
        "hide" => changes.hide = true,
        "caller" => changes.caller = true,
        "trace" => changes.trace = true,
        "trace_on" => changes.switch = Some(true),
        "trace_off" => changes.switch = Some(false),
        "finish" => changes.finish = true,
        "backtrace" => changes.backtrace = true,
        "recover" => changes.recover = true,
        "color" => {
            let color = COLORS.iter().position(|color| *color == value.text);
            let Some(color) = color else {
                let problem = format!("there is no colour `{}`", value.text);
                let remedy = format!("colours are {}", COLORS.join(", "));
                return Err(source.error(value.place(), problem, remedy));
            };
            changes.color = Some(color as u8);
        }
        "depth" => changes.depth = Some(depth(source, value)?),
        "time" => changes.time = Some(time(source, value)?),
        "size" => changes.size = Some(size(source, value)?),
        "sample" => changes.sample = Some(sample(source, value)?),
        _ => changes.condition = Some(condition(source, value)?),
    }
    Ok(())
}

fn contradictions(
    source: OptionText<'_>,
    words: TextPart<'_>,
    changes: &Changes,
) -> Result<(), SyntaxError> {
    if changes.mode == Some(FilterMode::Notrace) && changes.is_more_than_a_mode() {
        let problem = "nothing happens inside what `notrace` (-N) hides, so other actions have no meaning there";
        return Err(source.error(
            words.place(),
            problem,
            "leave them out, or use `hide` (-H), which hides the call alone",
        ));
    }
    if changes.hide && changes.sample.is_some() && changes.mode.is_none() {
        let problem = "`sample` chooses which calls are shown, `hide` shows none of them";
        return Err(source.error(words.place(), problem, "leave one of them out"));
    }
    Ok(())
}

/// Returns true if a word that is no action is meant as a module.
fn is_module(source: OptionText<'_>, word: TextPart<'_>) -> Result<bool, SyntaxError> {
    if word.text.is_empty() {
        let problem = "an action or a module is missing after `@`";
        let remedy = format!("actions are {}", ACTIONS.join(", "));
        return Err(source.error(word.place(), problem, remedy));
    }
    if looks_like_a_module(word.text) && !is_of_arguments(word.text) {
        return Ok(true);
    }
    let mistyped = word.text.contains(':')
        || is_of_arguments(word.text)
        || nearest_word(word.text, ACTIONS).is_some();
    Ok(!mistyped)
}

fn looks_like_a_module(word: &str) -> bool {
    word.contains(['.', '/'])
        || word.starts_with("lib")
        || word.eq_ignore_ascii_case("plt")
        || matches!(word, "kernel" | "kern")
}

/// Returns true for actions of uftrace that record values.
fn is_of_arguments(word: &str) -> bool {
    is_value(word) || matches!(word, "auto-args" | "read" | "callsite" | "clear")
}

fn unknown(source: OptionText<'_>, word: TextPart<'_>) -> SyntaxError {
    let text = word.text;
    if is_of_arguments(text) {
        let problem = format!("`{text}` records values, which dioptra does not do");
        return source.error(word.place(), problem, "leave it out");
    }
    let remedy = match nearest_word(text, ACTIONS) {
        Some(nearest) => format!(
            "did you mean `{nearest}`? (a module is the first word and written with a dot or a slash, such as `{text}.so`)"
        ),
        None => format!("actions are {}", ACTIONS.join(", ")),
    };
    let problem = if text.is_empty() {
        "an action is missing".to_string()
    } else {
        format!("there is no action `{text}`")
    };
    source.error(word.place(), problem, remedy)
}

/// Parses a limit of nesting, at least 1.
pub(crate) fn depth(source: OptionText<'_>, value: TextPart<'_>) -> Result<u32, SyntaxError> {
    match value.text.parse::<u32>() {
        Ok(0) => Err(source.error(
            value.place(),
            "a depth of 0 would show nothing",
            "a depth is at least 1; `notrace` (-N) hides a subtree",
        )),
        Ok(depth) => Ok(depth),
        Err(_) => Err(source.error(
            value.place(),
            format!("`{}` is no depth", value.text),
            format!("a depth is a whole number from 1 to {}", u32::MAX),
        )),
    }
}

/// Parses a time in nanoseconds.
pub(crate) fn time(source: OptionText<'_>, value: TextPart<'_>) -> Result<u64, SyntaxError> {
    parse_time(value.text).map_err(|error| unit(source, value, error, TIME_FORM))
}

/// Parses a size in bytes.
pub(crate) fn size(source: OptionText<'_>, value: TextPart<'_>) -> Result<u64, SyntaxError> {
    parse_size(value.text).map_err(|error| unit(source, value, error, SIZE_FORM))
}

fn unit(source: OptionText<'_>, value: TextPart<'_>, error: UnitError, form: &str) -> SyntaxError {
    let problem = format!("`{}`: {error}", value.text);
    source.error(value.place(), problem, form)
}

const SAMPLE_FORM: &str = "`sample=` takes N (every N-th), 1/N or P% (random), N/s (a rate), auto (a budget) or pNN (those \
                           slower than a percentile)";

fn sample(source: OptionText<'_>, value: TextPart<'_>) -> Result<SampleRule, SyntaxError> {
    let text = value.text;
    let wrong = |problem: String| source.error(value.place(), problem, SAMPLE_FORM);
    let number = |text: &str| {
        let digits = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.');
        let number = text
            .trim()
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite());
        number
            .filter(|_| digits)
            .ok_or_else(|| wrong(format!("`{text}` is no number")))
    };
    let probability = |p: f64| {
        if p > 1.0 {
            Err(wrong(format!("`{text}` is more than every execution")))
        } else if p * Pace::MAX_INTERVAL < 1.0 {
            Err(wrong(format!("`{text}` would show (nearly) no execution")))
        } else {
            Ok(SampleRule::Random(p))
        }
    };
    if text == "auto" {
        Ok(SampleRule::Auto)
    } else if let Some(percent) = text.strip_suffix('%') {
        probability(number(percent.trim_end())? / 100.0)
    } else if let Some(rate) = text.strip_suffix("/s") {
        let rate = number(rate)?;
        if !(1e-9..=1e9).contains(&rate) {
            return Err(wrong(format!("`{text}` is out of range")));
        }
        Ok(SampleRule::Rate(rate))
    } else if let Some((part, whole)) = text.split_once('/') {
        let whole = number(whole)?;
        if whole == 0.0 {
            return Err(wrong(format!("`{text}` divides by 0")));
        }
        probability(number(part)? / whole)
    } else if let Some(percentile) = text.strip_prefix('p') {
        let hundredths = (number(percentile)? * 100.0).round();
        if !(1.0..=9_999.0).contains(&hundredths) {
            return Err(wrong(format!(
                "`{text}` is no percentile between 0 and 100"
            )));
        }
        Ok(SampleRule::Percentile(hundredths as u16))
    } else {
        match text.parse::<u64>() {
            Ok(0) => Err(wrong("`sample=0` would show no execution".to_string())),
            Ok(interval) => Ok(SampleRule::Every(interval)),
            Err(_) => Err(wrong(format!("`{text}` is no way to sample"))),
        }
    }
}

const CONDITION_FORM: &str = "a condition is `if:argN`, one of == != >= <= > < &, and a number";

fn condition(
    source: OptionText<'_>,
    value: TextPart<'_>,
) -> Result<ArgumentCondition, SyntaxError> {
    let wrong = |problem: &str| source.error(value.place(), problem, CONDITION_FORM);
    let found = ["==", "!=", ">=", "<=", ">", "<", "&"]
        .into_iter()
        .filter_map(|operator| Some((value.text.find(operator)?, operator)))
        .min_by_key(|(at, operator)| (*at, core::cmp::Reverse(operator.len())));
    let Some((at, operator)) = found else {
        return Err(wrong("the condition does not compare"));
    };
    let left = value.text[..at].trim();
    let right = value.text[at + operator.len()..].trim();
    let argument = left
        .strip_prefix("arg")
        .map(|rest| rest.split('/').next().unwrap_or(""));
    let argument = argument
        .and_then(|number| number.parse().ok())
        .filter(|number| *number > 0);
    Ok(ArgumentCondition {
        argument: argument.ok_or_else(|| wrong("the condition is not about an argument"))?,
        operator,
        value: integer(right).ok_or_else(|| wrong("the condition compares with no number"))?,
    })
}

/// Parses a number in C's notation: decimal, `0x…` or `0…`.
fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (digits, base) = if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X"))
    {
        (hex, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (&digits[1..], 8)
    } else {
        (digits, 10)
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i128::from_str_radix(digits, base).ok()?;
    i64::try_from(if negative { -number } else { number }).ok()
}
