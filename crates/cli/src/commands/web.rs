//! `dioptra web`.

use super::derived::Derived;
use super::profiles::{check_stdin, is_stdin, open};
use crate::exit::Exit;
use crate::metric_sets::MetricSets;
use crate::output::say;
use crate::symbol_sources::ProfileSource;
use anyhow::Context;
use dioptra_tracedata::Trace;
use dioptra_web::{Server, StaticReport, StaticReportOptions, WebOptions};
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Arguments of `dioptra web`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  dioptra web                                look at perf.data in a browser
  dioptra web before.data after.data         look at two profiles
  dioptra web --metric ipc                   with a derived column in its tables
  dioptra web dioptra.trace                  look at the calls of a trace
  dioptra web perf.data dioptra.trace        samples and calls on one axis of time
  dioptra web --port 8000 --no-open          for a tunnel: ssh -L 8000:127.0.0.1:8000 THIS_MACHINE
  dioptra web --export report.html           write a page that opens without a server, to attach to a ticket
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
    /// Write a report into this file instead of serving a page; `-` is standard output. The report is the page with the
    /// answers that it needs most, in one file of less than 5 MB that a browser opens from disk. It contains the names, the
    /// source and the assembly of the hottest functions
    #[arg(long, value_name = "FILE.html", value_parser = report_path, conflicts_with_all = ["port", "listen", "no_open", "metric", "pmu_data"])]
    export: Option<PathBuf>,
    /// Leave source text out of the report
    #[arg(long, requires = "export")]
    no_source: bool,
    #[command(flatten)]
    derived: Derived,
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
            false => {
                let recording = open(path)?;
                arguments.derived.check_names(path, &recording.data)?;
            }
        }
    }
    let published = MetricSets::open_published(arguments.derived.folder())?;
    if let Some(report) = &arguments.export {
        let options = StaticReportOptions {
            sources: arguments.origin.files(),
            files: arguments.files,
            symbols,
            has_source: !arguments.no_source,
            ..StaticReportOptions::default()
        };
        return export(report, &options);
    }
    let options = WebOptions {
        files: arguments.files,
        listen: arguments.listen,
        port: arguments.port,
        symbols,
        sources: arguments.origin.files(),
        metrics: arguments.derived.into_names(),
        published_metrics: published,
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

/// Writes a static report.
fn export(path: &Path, options: &StaticReportOptions) -> anyhow::Result<Exit> {
    let is_stdout = path == Path::new("-");
    let report = StaticReport::make(options)?;
    if is_stdout {
        let mut out = io::stdout().lock();
        out.write_all(&report.html)
            .and_then(|()| out.flush())
            .context("writing the report")?;
    } else {
        std::fs::write(path, &report.html)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let megabytes = report.html.len() as f64 / 1e6;
    say!("{}: {megabytes:.1} MB", path.display());
    for text in &report.holds {
        say!("  in it: {text}");
    }
    for text in &report.lacks {
        say!("  not in it: {text}");
    }
    Ok(Exit::Done)
}

/// Takes only names that a report may have: with `--export perf.data` a recording would be lost.
fn report_path(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let has_ending = path.extension().is_some_and(|ending| {
        ending.eq_ignore_ascii_case("html") || ending.eq_ignore_ascii_case("htm")
    });
    match has_ending || text == "-" {
        true => Ok(path),
        false => Err("the report's file has a name that ends in .html".to_owned()),
    }
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
