//! `dioptra trace dump`: the records as text, or for other programs.

mod graphs;
mod raw;

use super::render::Output;
use super::selected::{Data, Naming, Selected, facts};
use super::usage;
use crate::exit::Exit;
use crate::output::say;
use dioptra_export::{TraceSource, write_trace_chrome};
use dioptra_filters::parse_time;
use std::io;

/// Arguments of `dioptra trace dump`.
#[derive(clap::Args)]
#[command(after_help = "\
Formats: raw (each entry and exit), chrome (for chrome://tracing and Perfetto), flame-graph (folded stacks), graphviz (DOT), mermaid (a page with a flowchart, which a script from cdn.jsdelivr.net draws), mermaid-text (the flowchart alone, for Markdown).

Examples:
  dioptra trace dump --format chrome > trace.json
  dioptra trace dump --format flame-graph | flamegraph.pl > flames.svg")]
pub struct Arguments {
    #[command(flatten)]
    data: Data,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    naming: Naming,
    /// For whom
    #[arg(long, value_name = "FORMAT", default_value = "raw")]
    format: String,
    /// As --format chrome
    #[arg(long, hide = true)]
    chrome: bool,
    /// As --format flame-graph
    #[arg(long, hide = true)]
    flame_graph: bool,
    /// As --format graphviz
    #[arg(long, hide = true)]
    graphviz: bool,
    /// As --format mermaid
    #[arg(long, hide = true)]
    mermaid: bool,
    /// With flame-graph: the time that counts as one sample, such as 1us; 1ns gives exact times [default: so that there
    /// are fewer than a million]
    #[arg(long, value_name = "TIME")]
    sample_time: Option<String>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let old = [
        (arguments.chrome, "chrome"),
        (arguments.flame_graph, "flame-graph"),
        (arguments.graphviz, "graphviz"),
        (arguments.mermaid, "mermaid"),
    ];
    let mut old = old.into_iter().filter(|(given, _)| *given);
    let format = old
        .next()
        .map_or(arguments.format.as_str(), |(_, format)| format);
    for (_, other) in old {
        say!("--{other} does nothing beside --{format}");
    }
    let sample_time = match &arguments.sample_time {
        Some(text) => {
            let time = parse_time(text)
                .map_err(|error| usage(format_args!("--sample-time {text}: {error}")))?;
            // As in uftrace, 0 means the default.
            Some(time).filter(|time| *time > 0)
        }
        None => None,
    };
    let known = [
        "raw",
        "normal",
        "chrome",
        "flame-graph",
        "graphviz",
        "mermaid",
        "mermaid-text",
    ];
    if !known.contains(&format) {
        return Err(usage(format_args!(
            "--format: `{format}` is none of raw, chrome, flame-graph, graphviz, mermaid and mermaid-text"
        )));
    }
    let trace = arguments.data.open()?;
    let names = arguments.naming.names(&trace)?;
    let view = match format {
        "raw" | "normal" | "chrome" => arguments.selected.view_with_tasks(&names)?,
        _ => arguments.selected.view(&names)?,
    };
    let mut out = Output::new();
    let losses = match format {
        "chrome" => {
            let source = TraceSource {
                view: &view,
                names: &names,
            };
            write_trace_chrome(&source, &mut out)?.losses
        }
        "flame-graph" => graphs::flame_graph(&view, &names, sample_time, &mut out)?,
        "graphviz" => graphs::graphviz(&view, &names, &mut out)?,
        "mermaid" => graphs::mermaid(&view, &names, true, &mut out)?,
        "mermaid-text" => graphs::mermaid(&view, &names, false, &mut out)?,
        _ => raw::write(&view, &names, &mut out)?,
    };
    out.flush()?;
    facts(&trace, &names, &losses).write_text(&mut io::stderr().lock())?;
    Ok(Exit::Done)
}
