//! Standard output as people see it: its width, its colours, and the pager before it.

use crate::output::is_broken_pipe;
use anyhow::Context;
use clap::ValueEnum;
use dioptra_tables::Harmless;
use signal_hook::consts::SIGINT;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Arguments of commands whose text is made for a terminal.
#[derive(clap::Args)]
pub struct ScreenArguments {
    /// Colour shares by their heat, and diagnostics; `auto`: at a terminal, unless NO_COLOR is set or TERM is `dumb`
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = When::Auto)]
    color: When,
    /// Write to the terminal itself, not through DIOPTRA_PAGER, PAGER or `less -FRX`
    #[arg(long)]
    no_pager: bool,
}

/// The choice of when to use colours.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// At a terminal
    Auto,
    /// In files and pipes, too
    Always,
    /// Nowhere
    Never,
}

/// The number of cells in a line if the terminal does not report its width.
const USUAL_WIDTH: usize = 80;

/// Standard output.
pub struct Screen {
    /// The number of cells in a line.
    pub width: usize,
    /// Whether to use colours.
    pub color: bool,
    /// Whether standard output is a terminal.
    pub is_terminal: bool,
    /// Whether standard output is a terminal of known width. Other output is not cut, and has no pager.
    pub is_sized: bool,
    pager: Option<OsString>,
}

impl ScreenArguments {
    /// Looks at standard output and the environment.
    pub fn screen(&self) -> Screen {
        let is_terminal = io::stdout().is_terminal();
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let told = terminal_width().filter(|_| is_terminal);
        let pages = told.is_some() && !is_dumb && !self.no_pager;
        Screen {
            width: match is_terminal {
                true => told.unwrap_or(USUAL_WIDTH),
                false => usize::MAX,
            },
            color: match self.color {
                When::Auto => is_terminal && !is_dumb && !is_set("NO_COLOR"),
                When::Always => true,
                When::Never => false,
            },
            is_terminal,
            is_sized: told.is_some(),
            pager: if pages { pager() } else { None },
        }
    }
}

/// Returns the width that the terminal reports, else that of COLUMNS.
fn terminal_width() -> Option<usize> {
    let told = rustix::termios::tcgetwinsize(io::stdout());
    let told = told.ok().map(|size| usize::from(size.ws_col));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    let width = told.filter(|width| *width > 0).or_else(columns);
    width.filter(|width| *width > 0)
}

/// Returns the shell command of the pager; `None` if the user wants none.
fn pager() -> Option<OsString> {
    let of = |name| std::env::var_os(name);
    let pager = of("DIOPTRA_PAGER").or_else(|| of("PAGER"));
    let pager = pager.unwrap_or_else(|| "less -FRX".into());
    (!pager.is_empty() && pager != "cat").then_some(pager)
}

/// Returns whether the locale's characters are Unicode's; the first of these variables that is set decides.
pub fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(std::env::var_os)
        .find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_string_lossy().to_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// The spelling of control characters in a format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spelling {
    /// The writer has already spelled them out.
    Done,
    /// Control characters are written as `\x1b`.
    Text,
    /// Control characters are written as `\u001b`.
    Json,
}

/// Returns the standard output of commands that have no pager; see [`Screen::show`].
pub fn stdout(spelling: Spelling) -> Box<dyn Write> {
    let is_terminal = io::stdout().is_terminal();
    let out = io::stdout().lock();
    match spelling {
        Spelling::Text | Spelling::Json if is_terminal => {
            Box::new(Harmless::new(out, spelling == Spelling::Json))
        }
        _ => Box::new(out),
    }
}

impl Screen {
    /// Lets `write` write to standard output, through the pager if there is one. Control characters are spelled out at
    /// a terminal; files and pipes get them as they are.
    ///
    /// # Errors
    /// The errors of `write`. A user who leaves the pager early causes no error.
    pub fn show(
        &self,
        spelling: Spelling,
        write: impl Fn(&mut dyn Write) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let write = |out: &mut dyn Write| match spelling {
            Spelling::Text | Spelling::Json if self.is_terminal => {
                let mut harmless = Harmless::new(out, spelling == Spelling::Json);
                write(&mut harmless)?;
                Ok(harmless.finish()?)
            }
            _ => write(out),
        };
        if let Some(pager) = &self.pager
            && let Some(result) = page(pager, &write)?
        {
            return result;
        }
        write(&mut io::stdout().lock())
    }
}

/// Pipes the output of `write` through a pager; `None` if there is no such pager.
fn page(
    pager: &OsString,
    write: &impl Fn(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<Option<anyhow::Result<()>>> {
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(pager).stdin(Stdio::piped());
    // Other programs set the same options: colours stay colours, and a text that fits on the screen needs no key.
    for (name, value) in [("LESS", "FRX"), ("LV", "-c")] {
        if std::env::var_os(name).is_none() {
            command.env(name, value);
        }
    }
    // A missing shell or pager is no reason to show nothing.
    let Ok(mut child) = command.spawn() else {
        return Ok(None);
    };
    // The pager decides what Ctrl-C means.
    let interrupted = Arc::new(AtomicBool::new(false));
    let ignoring = signal_hook::flag::register(SIGINT, interrupted);
    let result = write_to(&mut child, write);
    let status = child.wait().context("waiting for the pager");
    if let Ok(ignoring) = ignoring {
        signal_hook::low_level::unregister(ignoring);
    }
    /// A shell's exit codes for commands that it cannot find or run.
    const NOT_RUN: [i32; 2] = [126, 127];
    if status?.code().is_some_and(|code| NOT_RUN.contains(&code)) {
        return Ok(None);
    }
    Ok(Some(match result {
        // A user who leaves the pager has seen enough.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        result => result,
    }))
}

fn write_to(
    child: &mut Child,
    write: &impl Fn(&mut dyn Write) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut pipe = child.stdin.take().context("the pager has no input")?;
    write(&mut pipe)
}
