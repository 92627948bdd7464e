//! Processes and threads, who started whom.

use super::super::fields;
use super::super::render::{Output, Style, push_duration, title};
use super::super::selected::facts;
use super::Arguments;
use dioptra_calls::{StreamTimes, statistics};
use dioptra_report::escape;
use std::collections::BTreeMap;
use std::io;
use std::process::ExitCode;

/// Processes and their threads.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let known = ["total", "self", "tid"];
    let fields = fields::parse(
        arguments.output_fields.as_deref(),
        &known,
        known.map(|name| (name, name)),
    )?;
    let trace = arguments.data.open()?;
    let names = arguments.naming.names(&trace)?;
    let view = arguments.selected.view(&names)?;
    let sums = statistics(&view);
    let mut processes: BTreeMap<u32, Vec<StreamTimes>> = BTreeMap::new();
    for sum in &sums.streams {
        let stream = view.streams()[sum.place];
        processes.entry(stream.pid).or_default().push(*sum);
    }
    let parent = |pid: u32| {
        let known = view
            .trace()
            .processes()
            .iter()
            .find(|process| process.pid == pid);
        known
            .map(|process| process.parent)
            .filter(|parent| processes.contains_key(parent) && *parent != pid)
    };
    let mut out = Output::page(&title(&trace), arguments.format == Style::Html)?;
    out.line("========== TASK GRAPH ==========");
    let headings = fields.iter().map(|field| match *field {
        "total" => "  TOTAL TIME",
        "self" => "   SELF TIME",
        _ => "     TID  ",
    });
    let headings: String = headings.collect();
    out.line(&format!("#{}   TASK NAME", headings.get(1..).unwrap_or("")));
    // Processes still to be shown, the next one last, and how deep.
    let mut open: Vec<(u32, usize)> = processes
        .keys()
        .rev()
        .filter(|pid| parent(**pid).is_none())
        .map(|pid| (*pid, 0))
        .collect();
    while let Some((pid, depth)) = open.pop() {
        let Some(threads) = processes.get(&pid) else {
            continue;
        };
        // The main thread stands for the process.
        let mut threads = threads.clone();
        threads.sort_by_key(|sum| view.streams()[sum.place].tid != pid);
        for (index, sum) in threads.into_iter().enumerate() {
            let stream = view.streams()[sum.place];
            for field in &fields {
                out.text.extend_from_slice(b"  ");
                match *field {
                    "tid" => {
                        let tid = format!("[{:>6}]", stream.tid);
                        out.text.extend_from_slice(tid.as_bytes());
                    }
                    "self" => {
                        push_duration(&mut out.text, sum.total.saturating_sub(sum.scheduled));
                    }
                    _ => push_duration(&mut out.text, sum.total),
                }
            }
            let depth = depth + usize::from(index > 0);
            let branch = match depth {
                0 => " ".to_owned(),
                depth => format!(" {}+-", " | ".repeat(depth - 1) + " "),
            };
            let line = format!(" :{branch}{}", escape(view.task_name(sum.place)));
            out.line(&line);
        }
        let children = processes
            .keys()
            .rev()
            .filter(|child| parent(**child) == Some(pid));
        // A pid that was used again may be its own ancestor.
        if depth < processes.len() {
            open.extend(children.map(|child| (*child, depth + 1)));
        }
    }
    out.finish()?;
    facts(&trace, &names, &sums.losses).write_text(&mut io::stderr().lock())?;
    Ok(ExitCode::SUCCESS)
}
