//! `dioptra record`.

mod arguments;
mod groups;
pub mod metrics;
mod progress;
mod summary;
mod windows;

pub use arguments::Arguments;
pub use progress::bytes;

use crate::commands::record::progress::{SharedTerminal, Terminal};
use dioptra_recorder::{RecordExtension, record_with};
use dioptra_windows::record::WindowsRecorder;
use std::cell::RefCell;
use std::process::ExitCode;

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut terminal = Terminal::new(&arguments);
    let (spec, settings) = match arguments.to_spec(&mut |note| terminal.say(note)) {
        Ok(asked) => asked,
        Err(error) => {
            terminal.say(&error.to_string());
            return Ok(ExitCode::from(error.exit_code()));
        }
    };
    // The recording and the windows' source both write to the terminal, in turns.
    let shared = RefCell::new(&mut terminal);
    let mut windows = settings.map(|settings| {
        WindowsRecorder::new(settings, |windows| {
            shared.borrow_mut().show_windows(windows);
        })
    });
    let extension = windows
        .as_mut()
        .map(|windows| windows as &mut dyn RecordExtension);
    let recorded = record_with(&spec, extension, &mut SharedTerminal(&shared));
    let windows = windows.and_then(|windows| windows.outcome());
    let outcome = match recorded {
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
        summary::write(&outcome, windows.as_ref());
    }
    Ok(ExitCode::from(outcome.exit_code()))
}
