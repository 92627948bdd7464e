//! `dioptra record`.

pub mod arguments;
mod flight;
mod groups;
pub mod metrics;
mod off_cpu;
mod progress;
mod summary;
mod together;
mod windows;

pub use arguments::Arguments;
pub use progress::bytes;

use crate::commands::record::flight::Flight;
use crate::commands::record::progress::{SharedTerminal, Terminal};
use crate::exit::Exit;
use crate::remedies;
use dioptra_recorder::{RecordError, RecordExtension, record_with};
use dioptra_windows::record::WindowsRecorder;
use std::cell::RefCell;

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    if let Some(options) = &arguments.trace {
        return together::run(&arguments, options);
    }
    let mut terminal = Terminal::new(&arguments);
    let asked = arguments.flight().and_then(|flight| {
        let (spec, settings) = arguments.to_spec(&mut |note| terminal.say(note))?;
        Ok((flight, spec, settings))
    });
    let (flight, mut spec, settings) = match asked {
        Ok(asked) => asked,
        Err(error) => {
            terminal.say(&error.to_string());
            return Ok(error.exit());
        }
    };
    let flight = flight.map(|settings| Flight::start(settings, &mut spec));
    let flight = flight.transpose()?;
    // The recorder and the source of windows take turns writing to the terminal.
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
        // The recorder that starts the command says why it did not start.
        Err(RecordError::Unwanted) => return Ok(Exit::Done),
        Err(error) => {
            terminal.say(&remedies::with_remedy(&error));
            return Ok((&error).into());
        }
    };
    terminal.clear();
    // The pipe of a flight recorder ends when its last writer is gone.
    drop(spec);
    if let Some(flight) = flight {
        flight.finish()?;
        if let Some(warning) = summary::losses(&outcome) {
            terminal.say(&warning);
        }
        return Ok(Exit::of_recording(&outcome));
    }
    if arguments.quiet {
        if let Some(warning) = summary::losses(&outcome) {
            terminal.say(&warning);
        }
    } else {
        summary::write(&outcome, windows.as_ref());
    }
    Ok(Exit::of_recording(&outcome))
}
