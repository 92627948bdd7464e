//! The kinds of a table's rows, and the windows that go with them.

use crate::commands::derived::Derived;
use clap::ValueEnum;
use dioptra_profile::Dimension;
use dioptra_windows::display::WindowRows;

/// The kind of a table's rows.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// A program: all processes of one executable, each while it ran that
    Program,
    /// A process
    Process,
    /// A thread
    Thread,
    /// A name of threads, as it was when they were sampled
    Comm,
    /// A CPU
    Cpu,
    /// A socket
    Socket,
    /// A program, library, kernel or kernel module, over all processes
    Module,
    /// A function of a module, over all processes
    Function,
    /// A line of a source file; of inlined code its own
    Line,
    /// A line of a source file; of inlined code that of the call which it replaced
    OuterLine,
    /// A basic block of a function
    Block,
    /// An instruction, by its address relative to its module; `address` is the same
    #[value(name = "instruction", alias = "address")]
    Address,
    /// A slice of time
    Time,
}

impl From<By> for Dimension {
    fn from(by: By) -> Self {
        match by {
            By::Program => Dimension::Program,
            By::Process => Dimension::Process,
            By::Thread => Dimension::Thread,
            By::Comm => Dimension::Comm,
            By::Cpu => Dimension::Cpu,
            By::Socket => Dimension::Socket,
            By::Module => Dimension::Module,
            By::Function => Dimension::Function,
            By::Line => Dimension::Line,
            By::OuterLine => Dimension::OutermostLine,
            By::Block => Dimension::Block,
            By::Address => Dimension::Address,
            By::Time => Dimension::Time,
        }
    }
}

impl By {
    /// Returns whether rows say who ran a sample (process, thread, CPU, …) rather than where.
    fn is_of_part(self) -> bool {
        self.is_of_task() || matches!(self, By::Cpu | By::Socket)
    }

    /// Returns whether rows say which program, process or thread ran a sample.
    pub(super) fn is_of_task(self) -> bool {
        matches!(self, By::Program | By::Process | By::Thread | By::Comm)
    }

    /// Returns whether rows say where a sample was taken.
    pub fn is_place(self) -> bool {
        !self.is_of_part() && self != By::Time
    }
}

/// The windows that a command loads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantedWindows {
    /// Loads no windows.
    #[default]
    None,
    /// Loads the windows of profiles that were recorded with `--windows`.
    Recorded,
    /// Loads all windows between samples that read groups of counters.
    All,
}

impl WantedWindows {
    /// Returns the windows that derived columns beside other columns need.
    pub fn for_metrics(derived: &Derived) -> WantedWindows {
        match derived.is_empty() {
            true => WantedWindows::None,
            false => WantedWindows::Recorded,
        }
    }
}

/// Returns the kind of rows for which windows have metrics, if `by` is one of them.
pub fn window_rows(by: &[By]) -> Option<WindowRows> {
    match by {
        [By::Function] => Some(WindowRows::Function),
        [By::Line] => Some(WindowRows::Line),
        [By::Module] => Some(WindowRows::Module),
        [By::Thread] => Some(WindowRows::Thread),
        [By::Process] => Some(WindowRows::Process),
        _ => None,
    }
}

/// Returns the reason why metrics of windows do not go with these rows.
pub fn no_windows_here(by: &[By], inlined: bool) -> Option<&'static str> {
    match window_rows(by) {
        None => Some(
            "--metric: this recording has windows, whose metrics go with one of --by function, line, module, thread and process",
        ),
        Some(_) if inlined => Some(
            "--metric: this recording has windows, which are of whole functions: leave --inline out, or use --by line",
        ),
        Some(_) => None,
    }
}
