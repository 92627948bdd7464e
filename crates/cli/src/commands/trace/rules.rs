//! Arguments that are rules about functions.

use clap::{Arg, ArgAction, ArgMatches, Command};
use dioptra_filters::{MatchStyle, RuleOption, Rules, SyntaxError};

/// Filters, triggers and limits, in the order in which they are given. The later one of two contradicting rules wins.
#[derive(Clone, Debug, Default)]
pub struct RuleTexts(Vec<(RuleOption, String)>);

const OPTIONS: [(RuleOption, &str, char, &str, &str); 9] = [
    (
        RuleOption::Filter,
        "filter",
        'F',
        "FUNC",
        "Show these functions with what they call, and nothing else: NAME or a pattern, with @MODULE and @ACTION,…",
    ),
    (
        RuleOption::Notrace,
        "notrace",
        'N',
        "FUNC",
        "Hide these functions with what they call",
    ),
    (
        RuleOption::Caller,
        "caller-filter",
        'C',
        "FUNC",
        "Show only calls that lead to these functions",
    ),
    (
        RuleOption::Hide,
        "hide",
        'H',
        "FUNC",
        "Hide these functions alone; what they call moves up",
    ),
    (
        RuleOption::Trigger,
        "trigger",
        'T',
        "FUNC@ACTION",
        "Do something at these functions: depth=N, time=T, size=N, trace, trace_on, trace_off, finish, backtrace, color=C, sample=S, filter, notrace, hide, caller. sample= chooses calls: sample=N every N-th, sample=1/N or sample=P% at random, sample=N/s so many a second, sample=auto within a budget (record only), sample=pNN those slower than a percentile; with -F calls come and go with what they call, with -T alone",
    ),
    (RuleOption::Depth, "depth", 'D', "N", "Show so many levels"),
    (
        RuleOption::Time,
        "time-filter",
        't',
        "TIME",
        "Hide calls that are shorter, such as 10us",
    ),
    (
        RuleOption::Size,
        "size-filter",
        'Z',
        "BYTES",
        "Hide functions that are smaller",
    ),
    (
        RuleOption::Location,
        "loc-filter",
        'L',
        "SOURCE",
        "Show functions of these source files or folders; with @hide, hide them",
    ),
];

impl RuleTexts {
    /// Parses the rules, with patterns in the given style.
    pub fn parse(&self, style: MatchStyle) -> Result<Rules, SyntaxError> {
        let mut rules = Rules::new(style);
        for (option, text) in &self.0 {
            rules.add(*option, text)?;
        }
        Ok(rules)
    }

    /// Returns the options and their texts, in the order in which they are given.
    pub fn texts(&self) -> &[(RuleOption, String)] {
        &self.0
    }

    /// Returns whether any rule is about source files.
    pub fn have_locations(&self) -> bool {
        self.0
            .iter()
            .any(|(option, _)| *option == RuleOption::Location)
    }
}

impl clap::FromArgMatches for RuleTexts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut texts = RuleTexts::default();
        texts.update_from_arg_matches(matches)?;
        Ok(texts)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mut found = Vec::new();
        for (option, name, ..) in OPTIONS {
            let (Some(places), Some(texts)) =
                (matches.indices_of(name), matches.get_many::<String>(name))
            else {
                continue;
            };
            found.extend(places.zip(texts).map(|(place, text)| (place, option, text)));
        }
        found.sort_by_key(|(place, ..)| *place);
        let texts = found.into_iter();
        self.0
            .extend(texts.map(|(_, option, text)| (option, text.clone())));
        Ok(())
    }
}

impl clap::Args for RuleTexts {
    fn augment_args(mut command: Command) -> Command {
        for (_, name, letter, value, help) in OPTIONS {
            let argument = Arg::new(name)
                .short(letter)
                .long(name)
                .value_name(value)
                .help(help)
                .action(ArgAction::Append)
                .allow_hyphen_values(true);
            command = command.arg(argument);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
