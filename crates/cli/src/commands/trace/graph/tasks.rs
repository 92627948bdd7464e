//! Processes and threads as a tree of parents and children.

use super::super::fields;
use super::super::render::{Output, Style, push_duration, title};
use super::super::selected::facts;
use super::Arguments;
use crate::exit::Exit;
use dioptra_calls::statistics;
use dioptra_tables::escape;
use dioptra_trace_report::{ThreadTimes, threads};
use std::io;

/// Writes the processes and their threads.
pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
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
    let threads = threads(&view, &sums);
    let mut pids: Vec<u32> = Vec::new();
    for thread in &threads {
        if !pids.contains(&thread.pid) {
            pids.push(thread.pid);
        }
    }
    let parents: Vec<Option<usize>> = pids
        .iter()
        .map(|pid| {
            let parent = view.parent(*pid)?;
            pids.iter().position(|pid| *pid == parent)
        })
        .collect();
    let mut out = Output::page(&title(&trace), arguments.format == Style::Html)?;
    out.line("========== TASK GRAPH ==========");
    let headings = fields.iter().map(|field| match *field {
        "total" => "  TOTAL TIME",
        "self" => "   SELF TIME",
        _ => "     TID  ",
    });
    let headings: String = headings.collect();
    if !fields.is_empty() {
        out.line(&format!("#{}   TASK NAME", headings.get(1..).unwrap_or("")));
    }
    let mut graph = Graph {
        fields: &fields,
        threads: &threads,
        pids: &pids,
        parents: &parents,
        shown: vec![false; pids.len()],
        out: &mut out,
    };
    for root in (0..pids.len()).filter(|place| parents[*place].is_none()) {
        graph.below(root);
    }
    // Reused process numbers can make a process its own ancestor, so some processes have no root.
    while let Some(rest) = graph.shown.iter().position(|shown| !shown) {
        graph.below(rest);
    }
    out.line("");
    out.finish()?;
    facts(&trace, &names, &sums.losses).write_text(&mut io::stderr().lock())?;
    Ok(Exit::Done)
}

/// The state of drawing. Processes are indices into `pids`.
struct Graph<'a> {
    fields: &'a [&'static str],
    threads: &'a [ThreadTimes<'a>],
    pids: &'a [u32],
    parents: &'a [Option<usize>],
    shown: Vec<bool>,
    out: &'a mut Output,
}

impl Graph<'_> {
    /// Draws a process with its threads, and the processes that it started.
    fn below(&mut self, root: usize) {
        // Processes still to be drawn, the next one last, each with the text before its line and the indentation below
        // it.
        let mut open: Vec<(usize, Option<String>, String)> = vec![(root, None, String::new())];
        while let Some((process, gap, indent)) = open.pop() {
            if std::mem::replace(&mut self.shown[process], true) {
                continue;
            }
            let pid = self.pids[process];
            let branch = if gap.is_some() { " +----" } else { "" };
            if let Some(gap) = &gap {
                self.line(None, gap, " |    ");
            }
            let around: String = gap.unwrap_or_default();
            // The main thread's line is the process's line.
            let threads = self.threads.iter().filter(|thread| thread.pid == pid);
            let mut threads: Vec<&ThreadTimes<'_>> = threads.collect();
            threads.sort_by_key(|thread| thread.tid != pid);
            for (index, thread) in threads.into_iter().enumerate() {
                match index {
                    0 => self.line(Some(thread), &around, branch),
                    _ => self.line(Some(thread), &indent, " +-"),
                }
            }
            let children =
                (0..self.pids.len()).filter(|child| self.parents[*child] == Some(process));
            let children: Vec<usize> = children.filter(|child| !self.shown[*child]).collect();
            for (index, child) in children.iter().enumerate().rev() {
                let last = index + 1 == children.len();
                let below = format!("{indent}{}", if last { "      " } else { " |    " });
                open.push((*child, Some(indent.clone()), below));
            }
        }
    }

    fn line(&mut self, thread: Option<&ThreadTimes<'_>>, indent: &str, branch: &str) {
        for field in self.fields {
            let text = &mut self.out.text;
            text.extend_from_slice(b"  ");
            match (*field, thread) {
                ("tid", Some(thread)) => {
                    text.extend_from_slice(format!("[{:>6}]", thread.tid).as_bytes());
                }
                ("tid", None) => text.extend_from_slice(b"        "),
                (_, None) => text.extend_from_slice(b"          "),
                ("self", Some(thread)) => push_duration(text, thread.self_time),
                (_, Some(thread)) => push_duration(text, thread.total),
            }
        }
        let before = if self.fields.is_empty() { "" } else { " : " };
        let name = thread.map_or_else(String::new, |thread| escape(thread.name));
        self.out.line(&format!("{before}{indent}{branch}{name}"));
    }
}
