//! `dioptra web`.

use super::profiles::{check_stdin, is_stdin, open};
use crate::exit::Exit;
use crate::output::say;
use crate::symbol_sources::ProfileSource;
use anyhow::Context;
use dioptra_tracedata::Trace;
use dioptra_web::{Server, WebOptions};
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Arguments of `dioptra web`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra web                                look at perf.data in a browser
  dioptra web before.data after.data         look at two profiles
  dioptra web dioptra.trace                  look at the calls of a trace
  dioptra web perf.data dioptra.trace        samples and calls on one axis of time
  dioptra web --port 8000 --no-open          for a tunnel: ssh -L 8000:127.0.0.1:8000 THIS_MACHINE
  dioptra web --source-path /build=$HOME/src")]
pub struct Arguments {
    /// Profiles, and directories of traces; `-` is standard input
    #[arg(value_name = "FILE", default_value = "perf.data")]
    files: Vec<PathBuf>,
    /// Listen on this port [default: one that is free]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Listen on this address of the machine, so that others can look, too: everybody who has the printed address reads the
    /// profiles and the source files that they name, without encryption
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// Print the page's address, but open no browser
    #[arg(long)]
    no_open: bool,
    #[command(flatten)]
    origin: ProfileSource,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let symbols = arguments.origin.symbols.options()?;
    check_stdin(&arguments.files)?;
    // A file that is neither profile nor trace is an error here, where its name was given, rather than on a page.
    for path in arguments.files.iter().filter(|path| !is_stdin(path)) {
        match path.is_dir() {
            true => drop(Trace::open(path)?),
            false => drop(open(path)?),
        }
    }
    let options = WebOptions {
        files: arguments.files,
        listen: arguments.listen,
        port: arguments.port,
        symbols,
        sources: arguments.origin.files(),
    };
    let mut server = Server::bind(&options).with_context(|| match options.port {
        Some(port) => format!("--port {port}: give another one, or none to take one that is free"),
        None => format!(
            "--listen {}: give an address of this machine",
            options.listen
        ),
    })?;
    server.obey_signals()?;
    let url = server.url();
    let mut out = io::stdout().lock();
    writeln!(out, "{url}").context("writing the page's address")?;
    out.flush().context("writing the page's address")?;
    let is_seen = out.is_terminal();
    drop(out);
    if !options.listen.is_loopback() {
        say!(
            "warning: other machines can reach this page under this machine's addresses: whoever has the token reads the \
             profiles and the source files that they name, and whoever listens to the network reads along; `ssh -L` is safer"
        );
    }
    if !arguments.no_open && is_seen && has_display() {
        open_browser(&url);
    }
    if is_seen {
        say!("Ctrl-C ends the page");
    }
    server.run()?;
    Ok(Exit::Done)
}

/// Whether a browser could open a window.
fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}

/// Opens the page in the user's browser, if the desktop knows one.
fn open_browser(url: &str) {
    let opener = Command::new("xdg-open")
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match opener {
        // xdg-open ends when the browser was told, or with the browser. A thread collects its status.
        Ok(mut opener) => {
            std::thread::spawn(move || opener.wait());
        }
        Err(error) => say!("no browser was opened (xdg-open: {error}); open the address above"),
    }
}
