//! Sums by call path for other programs: folded stacks, DOT, Mermaid.

use super::super::render::{Labels, Output, escape_html};
use dioptra_calls::{CallNode, CallPathTree, FunctionNames, View, ViewLosses, call_tree};
use std::collections::BTreeMap;
use std::io;

/// The number of samples from which on most viewers fail.
const MOST_SAMPLES: u64 = 1_000_000;

/// Writes a line for each path: its functions, and its self time in samples of `sample_time`.
pub fn flame_graph(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    sample_time: Option<u64>,
    out: &mut Output,
) -> io::Result<ViewLosses> {
    let tree = call_tree(view);
    let own = widths(&tree, view.is_sampled());
    let total: u64 = own.iter().copied().fold(0, u64::saturating_add);
    let sample_time = sample_time.unwrap_or_else(|| {
        let mut time = 1_000;
        while total / time >= MOST_SAMPLES {
            time *= 10;
        }
        time
    });
    let mut labels = Labels::new(names, false);
    let children = tree.children();
    // Depth first with one line that grows and shrinks, so that a deep path's line is not made anew for each node.
    let mut line = String::new();
    let mut open: Vec<(u32, usize)> = children[0].iter().rev().map(|node| (*node, 0)).collect();
    let mut dropped = 0_u64;
    while let Some((index, length)) = open.pop() {
        let node = &tree.nodes()[index as usize];
        line.truncate(length);
        if length > 0 {
            line.push(';');
        }
        // Semicolons separate functions, and the last blank separates the number.
        line.push_str(&labels.get(node.function).replace(';', ":"));
        let samples = (own[index as usize] + sample_time / 2) / sample_time;
        if samples > 0 {
            out.text.extend_from_slice(line.as_bytes());
            out.line(&format!(" {samples}"));
        } else {
            dropped = dropped.saturating_add(own[index as usize]);
        }
        let length = line.len();
        open.extend(
            children[index as usize]
                .iter()
                .rev()
                .map(|node| (*node, length)),
        );
        out.flush_some()?;
    }
    if dropped > 0 {
        eprintln!(
            "# {dropped} ns of {total} are in paths of less than half a sample ({sample_time} ns) and not shown; --sample-time 1ns shows all"
        );
    }
    Ok(tree.losses)
}

/// Returns each node's time outside of the nodes below it. Time in calls that are not shown counts for their callers.
fn widths(tree: &CallPathTree, sampled: bool) -> Vec<u64> {
    let total = |node: &CallNode| match sampled {
        true => node.weighted_total.max(0.0).round() as u64,
        false => node.total,
    };
    let mut own: Vec<u64> = tree.nodes().iter().map(total).collect();
    for node in tree.nodes().iter().skip(1) {
        let around = &mut own[node.parent as usize];
        *around = around.saturating_sub(total(node));
    }
    own
}

/// Returns the number of calls from each function to each other one, over all paths. Function 0 is the program itself.
fn edges(tree: &CallPathTree, sampled: bool) -> Vec<((u32, u32), u64)> {
    let mut edges: BTreeMap<(u32, u32), (usize, f64)> = BTreeMap::new();
    for (index, node) in tree.nodes().iter().enumerate().skip(1) {
        let parent = tree.nodes()[node.parent as usize].function;
        let edge = edges.entry((parent, node.function)).or_insert((index, 0.0));
        edge.1 += if sampled {
            node.weighted_calls
        } else {
            node.calls as f64
        };
    }
    let mut edges: Vec<_> = edges.into_iter().collect();
    edges.sort_by_key(|(_, (index, _))| *index);
    let edges = edges.into_iter();
    edges
        .map(|(edge, (_, calls))| (edge, calls.round() as u64))
        .collect()
}

fn program(view: &View<'_>) -> String {
    let command = view.trace().info().command.first();
    let command = command.map_or("program", String::as_str);
    command.rsplit('/').next().unwrap_or(command).to_owned()
}

/// Writes a digraph for Graphviz.
pub fn graphviz(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    out: &mut Output,
) -> io::Result<ViewLosses> {
    let tree = call_tree(view);
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let program = quoted(&program(view));
    let mut labels = Labels::new(names, false);
    out.line(&format!(
        "# command_line {}",
        dioptra_tables::escape(&view.trace().info().command.join(" "))
    ));
    out.line("");
    out.line(&format!("digraph {program} {{"));
    for ((from, to), calls) in edges(&tree, view.is_sampled()) {
        let from = if from == 0 {
            program.clone()
        } else {
            quoted(labels.get(from))
        };
        let to = quoted(labels.get(to));
        out.line(&format!("    {from} -> {to} [xlabel = \"{calls}\"]"));
        out.flush_some()?;
    }
    out.line("}");
    Ok(tree.losses)
}

/// Writes a flowchart in Mermaid's language, alone or in a page for a browser.
pub fn mermaid(
    view: &View<'_>,
    names: &FunctionNames<'_>,
    as_page: bool,
    out: &mut Output,
) -> io::Result<ViewLosses> {
    let tree = call_tree(view);
    let mut labels = Labels::new(names, false);
    let mut known = std::collections::BTreeSet::new();
    let program = program(view);
    if as_page {
        let mut title = Vec::new();
        escape_html(program.as_bytes(), &mut title);
        let title = String::from_utf8_lossy(&title);
        out.line(&format!(
            "<!doctype html>\n<html>\n<head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body>\n<h2>Function Call Graph for {title}</h2>\n<pre class=\"mermaid\">"
        ));
    }
    let line = |text: String, out: &mut Output| {
        if as_page {
            escape_html(text.as_bytes(), &mut out.text);
            out.text.push(b'\n');
        } else {
            out.line(&text);
        }
    };
    // A label is HTML in Mermaid.
    let quoted = |text: &str| {
        let mut label = Vec::new();
        escape_html(text.as_bytes(), &mut label);
        format!("\"{}\"", String::from_utf8_lossy(&label))
    };
    line("flowchart TB".to_owned(), out);
    line(format!("    f0[{}]", quoted(&program)), out);
    for ((from, to), calls) in edges(&tree, view.is_sampled()) {
        for function in [from, to] {
            if function != 0 && known.insert(function) {
                let name = quoted(labels.get(function));
                line(format!("    f{function}[{name}]"), out);
            }
        }
        line(format!("    f{from} -->|{calls}| f{to}"), out);
        out.flush_some()?;
    }
    if as_page {
        // Without a network the page shows the diagram's text.
        out.line(
            "</pre>\n<script type=\"module\">\nimport mermaid from \"https://cdn.jsdelivr.net/npm/mermaid@11/dist/mermaid.esm.min.mjs\";\nmermaid.initialize({ startOnLoad: true, maxTextSize: 99999999, maxEdges: 999999 });\n</script>\n</body>\n</html>",
        );
    }
    Ok(tree.losses)
}
