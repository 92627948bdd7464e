//! The terminal: taken over, and given back whatever happens.

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

/// Whether the terminal is ours now.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the terminal over: no echo, keys at once, a screen of its own.
fn take() -> io::Result<()> {
    // If we were stopped without notice, what is known of the terminal's state is old.
    disable_raw_mode()?;
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Gives the terminal back as it was, if it is ours.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Nobody is left to hear of failures.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

type Drawn = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

fn terminal() -> io::Result<Drawn> {
    Terminal::new(CrosstermBackend::new(BufWriter::new(io::stdout())))
}

/// The terminal while it is ours.
pub struct Screen {
    pub terminal: Drawn,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// If there is no terminal that can be.
    pub fn new() -> anyhow::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        take().context("taking the terminal over; `dioptra trace graph` and `report` need none")?;
        // From the first question for events on, changes of the size are noted: none is to be missed.
        let terminal = event::poll(Duration::ZERO).and_then(|_| terminal());
        if terminal.is_err() {
            give_back();
        }
        Ok(Screen {
            terminal: terminal.context("asking for the terminal's size")?,
        })
    }

    /// Does something for which the terminal has to be as it was, then takes it over again.
    pub fn without<T>(&mut self, act: impl FnOnce() -> T) -> io::Result<T> {
        give_back();
        let result = act();
        self.again()?;
        Ok(result)
    }

    /// Takes the terminal over again: others may have changed it.
    pub fn again(&mut self) -> io::Result<()> {
        take()?;
        execute!(io::stdout(), Clear(ClearType::All))?;
        // A new one knows nothing of what was on the screen. `Terminal::clear` would ask the terminal where its cursor is,
        // and not all answer.
        self.terminal = terminal()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Signals that came. They only leave a note, so that the terminal is given back before they have their effect.
pub struct Signals {
    ending: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    went_on: Arc<AtomicBool>,
}

impl Signals {
    /// From now on.
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

    /// The signal that asks to end, if one came.
    pub fn ending(&self) -> Option<i32> {
        match self.ending.load(Ordering::SeqCst) {
            0 => None,
            signal => Some(signal as i32),
        }
    }

    /// Whether we shall stop.
    pub fn take_stop(&self) -> bool {
        self.stop.swap(false, Ordering::SeqCst)
    }

    /// Whether we were stopped and go on.
    pub fn take_went_on(&self) -> bool {
        self.went_on.swap(false, Ordering::SeqCst)
    }

    /// Forgets what came: while another program had the terminal, signals from its keys were for that one.
    pub fn forget(&self) {
        self.ending.store(0, Ordering::SeqCst);
        self.take_stop();
        self.take_went_on();
    }
}

/// Stops as SIGTSTP does, until someone lets us go on.
pub fn stop() -> io::Result<()> {
    signal_hook::low_level::emulate_default_handler(SIGTSTP)
}

/// Ends as a signal does. Returns only if that fails.
pub fn end_by(signal: i32) -> io::Result<()> {
    give_back();
    signal_hook::low_level::emulate_default_handler(signal)
}

/// The number of the signal of Ctrl-C.
pub const INTERRUPT: i32 = SIGINT;
