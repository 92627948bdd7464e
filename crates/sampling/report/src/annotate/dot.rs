//! A function's control flow graph for Graphviz.

use super::json::edge_kind_word;
use super::model::Annotation;
use super::text::{base_name, executions};
use dioptra_instructions::{EdgeEnd, EdgeKind};
use dioptra_tables::escape;
use std::fmt::Write as _;
use std::io::{self, Write};

/// The most instructions that are shown of a block: its first and its last ones.
const MOST_LINES: usize = 12;

/// The depth of the innermost loops that have a frame of their own.
const DEEPEST: usize = 64;

/// Writes the blocks and edges as a graph in the DOT language: hot blocks are red, loops are frames around their
/// blocks, and each kind of edge has its own line: fall-through solid, taken green, jumps blue, tables dashed,
/// computed and leaving ones dotted.
///
/// # Errors
/// The errors of the writer.
pub fn write_annotation_dot(annotation: &Annotation, out: impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    writeln!(out, "digraph {} {{", quoted(&annotation.name))?;
    for fact in &annotation.facts {
        writeln!(out, "  // {}: {}", fact.severity.word(), escape(&fact.text))?;
    }
    writeln!(
        out,
        "  graph [label={}, labelloc=t, fontname=monospace];",
        quoted(&format!("{} in {}", annotation.name, annotation.module))
    )?;
    writeln!(
        out,
        "  node [shape=box, style=filled, fillcolor=white, fontname=monospace];\n  edge [fontname=monospace];"
    )?;
    // Each loop holds its own blocks and the loops inside it.
    let outermost =
        (0..annotation.loops.len()).filter(|at| annotation.loops[*at].natural.parent.is_none());
    for at in outermost {
        write_loop(annotation, at, 1, &mut out)?;
    }
    for number in 0..annotation.blocks.len() {
        if annotation.blocks[number].innermost_loop.is_none() {
            write_block(annotation, number, 1, &mut out)?;
        }
    }
    let mut outside = 0;
    for edge in &annotation.edges {
        let to = match edge.to {
            EdgeEnd::Block(block) => format!("b{block}"),
            EdgeEnd::Outside(address) => {
                let label = match (&edge.function, address) {
                    (Some(name), _) => name.clone(),
                    (None, Some(address)) => format!("{address:#x}"),
                    (None, None) => "?".to_owned(),
                };
                outside += 1;
                writeln!(
                    out,
                    "  x{outside} [shape=ellipse, label={}];",
                    quoted(&label)
                )?;
                format!("x{outside}")
            }
        };
        let look = match edge.kind {
            EdgeKind::FallThrough => "color=black",
            EdgeKind::Taken => "color=darkgreen",
            EdgeKind::Jump => "color=blue",
            EdgeKind::CallReturn => "color=gray",
            EdgeKind::Table => "color=purple, style=dashed",
            _ => "color=black, style=dotted",
        };
        let label = edge.executions.map_or(String::new(), executions);
        writeln!(
            out,
            "  b{} -> {to} [{look}, class={}, label={}];",
            edge.from,
            quoted(edge_kind_word(edge.kind)),
            quoted(&label)
        )?;
    }
    writeln!(out, "}}")?;
    out.flush()
}

fn write_loop(
    annotation: &Annotation,
    at: usize,
    depth: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let one = &annotation.loops[at];
    let indent = "  ".repeat(depth);
    writeln!(out, "{indent}subgraph cluster_loop{at} {{")?;
    let mut label = format!("loop {at}, depth {}", one.natural.depth);
    let trips = annotation.branches.as_ref();
    let trips = trips.and_then(|branches| branches.counts.loops.get(at)?.mean_trips());
    if let Some((mean, error)) = trips {
        let _ = write!(label, ", {mean:.1} ±{error:.1} trips");
    }
    writeln!(out, "{indent}  label={}; style=rounded;", quoted(&label))?;
    // Deeper loops have no frame: nobody sees through so many. Their blocks are drawn in this one.
    let is_deepest = depth == DEEPEST;
    if !is_deepest {
        // The range `nested` begins with this loop's own number.
        for inner in one.natural.nested.clone().skip(1) {
            if annotation.loops[inner].natural.parent == Some(at) {
                write_loop(annotation, inner, depth + 1, out)?;
            }
        }
    }
    for number in &one.blocks {
        if is_deepest || annotation.blocks[*number].innermost_loop == Some(at) {
            write_block(annotation, *number, depth + 1, out)?;
        }
    }
    writeln!(out, "{indent}}}")
}

fn write_block(
    annotation: &Annotation,
    number: usize,
    depth: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let block = &annotation.blocks[number];
    let mut label = format!("block {number}");
    let mut share = 0.0;
    for (place, (event, count)) in annotation.events.iter().zip(&block.counts).enumerate() {
        let percent = event.percent(*count, event.function).unwrap_or(0.0);
        if place == 0 {
            share = percent;
        }
        if count.count.samples > 0 {
            let _ = write!(
                label,
                "\n{}: {percent:.2}% ({})",
                event.name, count.count.samples
            );
        }
    }
    if let Some(branches) = &annotation.branches {
        let of_block = &branches.counts.blocks[number];
        let _ = write!(label, "\nruns {}", executions(of_block.executions));
        if let Some((mean, error)) = of_block.cycles.mean() {
            let _ = write!(label, ", {mean:.1} ±{error:.1} cycles");
        }
    }
    label.push('\n');
    let count = block.places.len();
    for (index, place) in annotation.places[block.places.clone()].iter().enumerate() {
        if count > MOST_LINES && index == MOST_LINES / 2 {
            let _ = write!(label, "\n({} more)", count - MOST_LINES);
        }
        if count > MOST_LINES && (MOST_LINES / 2..count - MOST_LINES / 2).contains(&index) {
            continue;
        }
        let _ = write!(label, "\n{:x}: {}", place.virtual_address, place.text);
        let function = place
            .target
            .as_ref()
            .and_then(|target| target.function.as_ref());
        if let Some((name, _)) = function {
            let _ = write!(label, " <{name}>");
        }
    }
    let first = &annotation.places[block.places.start];
    let line = first
        .frames
        .first()
        .and_then(|frame| Some((frame.file.as_ref()?, frame.line?)));
    if let Some((file, line)) = line {
        let _ = write!(label, "\n\n{}:{line}", base_name(file));
    }
    // The colour goes from white to red with the block's share of the function.
    let heat = (share.clamp(0.0, 100.0) / 100.0).sqrt();
    writeln!(
        out,
        "{}b{number} [fillcolor=\"0.000 {heat:.3} 1.000\", label={}];",
        "  ".repeat(depth),
        lines(&label)
    )
}

/// Quotes a text for the DOT language.
fn quoted(text: &str) -> String {
    let text = escape(text);
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Quotes several lines for the DOT language, each left-aligned.
fn lines(text: &str) -> String {
    let mut result = String::from("\"");
    for line in text.lines() {
        let line = quoted(line);
        result.push_str(&line[1..line.len() - 1]);
        result.push_str("\\l");
    }
    result.push('"');
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_stay_inside() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\\\n\"");
        assert_eq!(lines("a\n\nb\""), "\"a\\l\\lb\\\"\\l\"");
    }
}
