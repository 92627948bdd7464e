//! The terminal as a screen to draw on: taken over, and given back whatever happens.

mod lines;

pub use lines::{put, shortened, shrunk};

use anyhow::Context;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::cursor::Show;
use ratatui_crossterm::crossterm::event;
use ratatui_crossterm::crossterm::execute;
use ratatui_crossterm::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use signal_hook::consts::{SIGCONT, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use std::io::{self, BufWriter, Stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Whether we have the terminal now.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the terminal over: no echo, each key at once, a screen of its own.
fn take() -> io::Result<()> {
    // If we were stopped without notice, the known state of the terminal is out of date.
    disable_raw_mode()?;
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Gives the terminal back as it was, if we have it.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // There is nobody left to report a failure to.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

type Drawn = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

fn terminal() -> io::Result<Drawn> {
    Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))
}

/// The terminal while we have it.
pub struct Screen {
    pub terminal: Drawn,
}

impl Screen {
    /// Takes the terminal over. `without` says what shows the same without a terminal.
    ///
    /// # Errors
    /// There is no terminal, or it can't be taken over.
    pub fn new(without: &str) -> anyhow::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        take().with_context(|| format!("taking the terminal over; {without} need none"))?;
        // The first poll starts the watch for changes of the size; none may be missed.
        let terminal = event::poll(Duration::ZERO).and_then(|_| terminal());
        if terminal.is_err() {
            give_back();
        }
        Ok(Screen {
            terminal: terminal.context("asking for the terminal's size")?,
        })
    }

    /// Gives the terminal back, calls `act`, then takes the terminal over again.
    pub fn without<T>(&mut self, act: impl FnOnce() -> T) -> io::Result<T> {
        give_back();
        let result = act();
        self.again()?;
        Ok(result)
    }

    /// Takes the terminal over again, and clears it: other programs may have changed it.
    pub fn again(&mut self) -> io::Result<()> {
        take()?;
        execute!(io::stdout(), Clear(ClearType::All))?;
        // A new `Terminal` has no memory of the screen. `Terminal::clear` would ask the terminal for its cursor's
        // position, and not all terminals answer.
        self.terminal = terminal()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// The signals that came. The handlers only leave a note, so that the terminal is given back before a signal has its
/// effect.
pub struct Signals {
    ending: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    went_on: Arc<AtomicBool>,
}

impl Signals {
    /// Starts to note signals.
    pub fn new() -> io::Result<Signals> {
        let signals = Signals {
            ending: Arc::default(),
            stop: Arc::default(),
            went_on: Arc::default(),
        };
        for signal in [SIGINT, SIGQUIT, SIGTERM] {
            let number = signal as usize;
            signal_hook::flag::register_usize(signal, Arc::clone(&signals.ending), number)?;
        }
        signal_hook::flag::register(SIGTSTP, Arc::clone(&signals.stop))?;
        signal_hook::flag::register(SIGCONT, Arc::clone(&signals.went_on))?;
        Ok(signals)
    }

    /// Returns the signal that asks us to end, if one came.
    pub fn ending(&self) -> Option<i32> {
        match self.ending.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal as i32),
        }
    }

    /// Returns whether we were asked to stop, and forgets it.
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::SeqCst)
    }

    /// Returns whether we go on after a stop, and forgets it.
    pub fn take_went_on(&self) -> bool {
        self.went_on.swap(false, Ordering::SeqCst)
    }

    /// Forgets all signals that came: while another program had the terminal, its keys' signals were for that program.
    pub fn forget(&self) {
        self.ending.store(0, Ordering::SeqCst);
        self.take_stop();
        self.take_went_on();
    }
}

/// Stops the process as SIGTSTP does, until a signal continues it.
pub fn stop() -> io::Result<()> {
    signal_hook::low_level::emulate_default_handler(SIGTSTP)
}

/// Ends the process as a signal does. Returns only if that fails.
pub fn end_by(signal: i32) -> io::Result<()> {
    give_back();
    signal_hook::low_level::emulate_default_handler(signal)
}

/// The number of the signal of Ctrl-C.
pub const INTERRUPT: i32 = SIGINT;
