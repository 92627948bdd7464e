//! `-P` and `-U`, in the order in which they are given: the later one wins.

use clap::{Arg, ArgAction, ArgMatches, Command};
use dioptra_filters::MatchStyle;
use dioptra_trace_recorder::{PatchError, PatchPatterns};

/// The texts of the patterns; the flag is true for `-P`.
#[derive(Clone, Debug, Default)]
pub struct PatchTexts(Vec<(bool, String)>);

const OPTIONS: [(bool, &str, char, &str); 2] = [
    (
        true,
        "patch",
        'P',
        "Trace these functions, also if no compiler has prepared them: NAME or a pattern, . for all, with @MODULE those of a library. Functions that call mcount or __cyg_profile_func_enter are traced besides",
    ),
    (
        false,
        "unpatch",
        'U',
        "Leave these functions as they are: their calls cost nothing",
    ),
];

impl PatchTexts {
    /// Parses the patterns in the given style.
    pub fn parse(&self, style: MatchStyle) -> Result<PatchPatterns, PatchError> {
        let mut patterns = PatchPatterns::new(style);
        for (is_wanted, text) in &self.0 {
            match is_wanted {
                true => patterns.patch(text)?,
                false => patterns.unpatch(text)?,
            }
        }
        Ok(patterns)
    }
}

impl clap::FromArgMatches for PatchTexts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut texts = PatchTexts::default();
        texts.update_from_arg_matches(matches)?;
        Ok(texts)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mut found = Vec::new();
        for (is_wanted, name, ..) in OPTIONS {
            if let (Some(places), Some(texts)) =
                (matches.indices_of(name), matches.get_many::<String>(name))
            {
                found.extend(places.zip(texts.map(|text| (is_wanted, text.clone()))));
            }
        }
        found.sort_by_key(|(place, _)| *place);
        self.0.extend(found.into_iter().map(|(_, text)| text));
        Ok(())
    }
}

impl clap::Args for PatchTexts {
    fn augment_args(command: Command) -> Command {
        command.args(OPTIONS.map(|(_, name, letter, help)| {
            Arg::new(name)
                .short(letter)
                .long(name)
                .value_name("FUNC")
                .help(help)
                .action(ArgAction::Append)
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
