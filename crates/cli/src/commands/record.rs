//! `dioptra record`.

mod arguments;
mod groups;
pub mod metrics;
mod progress;
mod summary;
mod windows;

pub use arguments::Arguments;
pub use progress::bytes;

use crate::commands::record::progress::Terminal;
use dioptra_recorder::record;
use std::process::ExitCode;

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut terminal = Terminal::new(&arguments);
    let spec = match arguments.to_spec(&mut |note| terminal.say(note)) {
        Ok(spec) => spec,
        Err(error) => {
            terminal.say(&error.to_string());
            return Ok(ExitCode::from(error.exit_code()));
        }
    };
    let outcome = match record(&spec, &mut terminal) {
        Ok(outcome) => outcome,
        Err(error) => {
            terminal.say(&error.to_string());
            return Ok(ExitCode::from(error.exit_code()));
        }
    };
    terminal.clear();
    if arguments.quiet {
        if let Some(warning) = summary::losses(&outcome) {
            terminal.say(&warning);
        }
    } else {
        summary::write(&outcome);
    }
    Ok(ExitCode::from(outcome.exit_code()))
}
