//! Arguments that are defined only when their sub-command is used: there are hundreds, and a run needs a few.

use clap::builder::Resettable;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// Arguments `A`, defined when they are needed.
pub struct Later<A>(pub A);

impl<A: FromArgMatches> FromArgMatches for Later<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        A::from_arg_matches(matches).map(Later)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<A: Args> Args for Later<A> {
    fn augment_args(command: Command) -> Command {
        command.defer(define::<A>)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Defines the arguments. The command keeps its own description: that of the arguments would replace it.
fn define<A: Args>(command: Command) -> Command {
    let about = command.get_about().cloned();
    let long = command.get_long_about().cloned();
    let command = A::augment_args(command);
    let command = match about {
        Some(about) => command.about(about),
        None => command,
    };
    command.long_about(long.map_or(Resettable::Reset, Resettable::Value))
}
