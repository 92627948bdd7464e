//! `dioptra record`.

mod arguments;
mod progress;
mod summary;

pub use arguments::Arguments;

use crate::commands::record::progress::Terminal;
use dioptra_recorder::record;
use std::process::ExitCode;

/// The status for arguments that ask for nothing that can be done.
const WRONG_ARGUMENTS: u8 = 2;

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut terminal = Terminal::new(&arguments);
    let spec = match arguments.to_spec() {
        Ok(spec) => spec,
        Err(error) => {
            terminal.say(&error.to_string());
            return Ok(ExitCode::from(WRONG_ARGUMENTS));
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
    if !arguments.quiet {
        summary::write(&outcome);
    }
    Ok(ExitCode::from(outcome.exit_code()))
}
