//! A flame graph: an SVG file that stands alone.
//!
//! A browser that runs its script can zoom, search and show what a frame is. Without the script the picture is still
//! readable: labels are cut to their frames, and titles hold the whole text.

use crate::comm_paths::CommPaths;
use crate::error::ExportError;
use crate::exported::{EventTotal, Exported};
use crate::labels::Labels;
use crate::lost::{Lost, LostKind, lost};
use crate::source::{Source, Value};
use hashbrown::HashMap;
use std::io::Write;

/// The kinds of data that the format has no place for, beside either samples or weights.
const NO_PLACE: &[LostKind] = &[
    LostKind::Events,
    LostKind::Modules,
    LostKind::BuildIds,
    LostKind::Addresses,
    LostKind::Lines,
    LostKind::InlinedMarks,
    LostKind::Threads,
    LostKind::Cpus,
    LostKind::Times,
    LostKind::Branches,
];

/// The picture's width without a script, in pixels.
const WIDTH: f64 = 1200.0;
/// The height of a row, in pixels.
const ROW: u32 = 17;
/// The room above and below the frames, in pixels.
const MARGIN: u32 = 40;
/// The width of a character, in pixels.
const CHARACTER: f64 = 7.0;
/// The least width of a drawn frame, in pixels.
const NARROW: f64 = 0.1;

/// The script, which is part of the file.
const SCRIPT: &str = include_str!("flamegraph.js");

/// The name of a frame, as an index of [`Picture::labels`].
type LabelId = u32;

/// A frame: a name below its callers.
struct Node {
    label: LabelId,
    total: u64,
    below: Vec<usize>,
}

/// Writes the first event as a flame graph. The rows at the bottom are the names of threads.
///
/// # Errors
/// There is no event, the profile has no stacks, or writing failed.
pub fn write_flamegraph(
    source: &Source<'_>,
    value: Value,
    out: &mut dyn Write,
) -> Result<Exported, ExportError> {
    let event = source.first_event()?;
    let counted = CommPaths::of(source, event);
    let mut picture = Picture::new(unit(source, event, value));
    let mut labels = Labels::new(source);
    let comms: Vec<LabelId> = counted
        .comms
        .iter()
        .map(|comm| picture.label(comm))
        .collect();
    let mut of_function: Vec<Option<LabelId>> = vec![None; source.names.functions().len()];
    let mut functions = Vec::new();
    for line in &counted.list {
        counted.functions(line.path, &mut functions);
        let mut at = picture.below(0, comms[line.comm as usize]);
        for function in &functions {
            let label = of_function[*function as usize]
                .get_or_insert_with(|| picture.label(labels.of(source, *function)));
            at = picture.below(at, *label);
        }
        picture.add(at, value.of(line.count));
    }
    let (whole, narrow) = picture.write(source.event(event).name(), out)?;
    let mut kinds = NO_PLACE.to_vec();
    kinds.insert(
        1,
        match value {
            Value::Weight => LostKind::Samples,
            Value::Samples => LostKind::Weights,
        },
    );
    let mut lost = lost(source, &[event], &kinds);
    if narrow > 0 {
        lost.push(Lost {
            kind: LostKind::NarrowFrames,
            count: narrow,
        });
    }
    let mut total = EventTotal {
        event,
        ..EventTotal::default()
    };
    match value {
        Value::Weight => total.add_weight(whole),
        Value::Samples => total.add_samples(whole),
    }
    Ok(Exported {
        totals: vec![total],
        lost,
    })
}

/// Writes stacks that are no profile's as a flame graph: the names of each, outermost first, and its value. Returns the
/// sum of all values, and the number of frames that are too narrow to draw.
///
/// # Errors
/// Writing failed.
pub fn write_stacks_flamegraph<'s>(
    name: &str,
    unit: &'static str,
    stacks: impl IntoIterator<Item = (&'s [String], u64)>,
    out: &mut dyn Write,
) -> Result<(u64, u64), ExportError> {
    let mut picture = Picture::new(unit);
    let mut labels: HashMap<&str, LabelId> = HashMap::new();
    for (names, value) in stacks {
        let mut at = 0;
        for name in names {
            let label = match labels.get(&**name) {
                Some(label) => *label,
                None => {
                    let label = picture.label(name);
                    labels.insert(name, label);
                    label
                }
            };
            at = picture.below(at, label);
        }
        picture.add(at, value);
    }
    picture.write(name, out)
}

/// Returns the unit of the values.
fn unit(source: &Source<'_>, event: usize, value: Value) -> &'static str {
    match value {
        Value::Samples => "samples",
        Value::Weight if source.is_clock(event) => "ns",
        Value::Weight if source.event(event).weighs_events() => "events",
        Value::Weight => "samples",
    }
}

/// A frame with its place: the left edge and the width as values, and the row from below.
struct Drawn {
    node: usize,
    left: u64,
    depth: u32,
}

/// A flame graph that is filled stack by stack, then drawn.
pub(crate) struct Picture {
    labels: Vec<String>,
    unit: &'static str,
    nodes: Vec<Node>,
    ids: HashMap<(usize, LabelId), usize>,
    /// The values of the nodes themselves.
    own: Vec<u64>,
    drawn: Vec<Drawn>,
    /// The number of frames that are too narrow to draw.
    narrow: u64,
}

impl Picture {
    /// Returns an empty picture of values with a unit.
    pub(crate) fn new(unit: &'static str) -> Picture {
        let mut picture = Picture {
            labels: Vec::new(),
            unit,
            nodes: Vec::new(),
            ids: HashMap::new(),
            own: vec![0],
            drawn: Vec::new(),
            narrow: 0,
        };
        let label = picture.label("all");
        picture.nodes.push(Node {
            label,
            total: 0,
            below: Vec::new(),
        });
        picture
    }

    /// Returns a number for a name. Equal names of two functions stay apart.
    pub(crate) fn label(&mut self, text: &str) -> LabelId {
        self.labels.push(text.to_owned());
        // There are at most as many names as functions and threads, whose ids have 32 bits.
        LabelId::try_from(self.labels.len() - 1).unwrap_or(LabelId::MAX)
    }

    /// Returns the frame with a name above another frame; frame 0 is the whole.
    pub(crate) fn below(&mut self, caller: usize, label: LabelId) -> usize {
        let next = self.nodes.len();
        let at = *self.ids.entry((caller, label)).or_insert(next);
        if at == next {
            self.nodes.push(Node {
                label,
                total: 0,
                below: Vec::new(),
            });
            self.own.push(0);
            self.nodes[caller].below.push(at);
        }
        at
    }

    /// Adds to the value of a frame itself.
    pub(crate) fn add(&mut self, frame: usize, value: u64) {
        self.own[frame] = self.own[frame].saturating_add(value);
    }

    /// Sums the values of frames and of those above them.
    fn sum(&mut self) {
        // A frame is made after its caller.
        for at in (0..self.nodes.len()).rev() {
            let above = self.nodes[at].below.iter();
            let above = above.map(|above| self.nodes[*above].total);
            self.nodes[at].total = above.fold(self.own[at], u64::saturating_add);
        }
    }

    /// Gives each frame its place. Frames with the same caller are ordered by name.
    fn place(&mut self) {
        let mut waiting = vec![Drawn {
            node: 0,
            left: 0,
            depth: 0,
        }];
        while let Some(next) = waiting.pop() {
            let total = self.nodes[next.node].total;
            let mut below = std::mem::take(&mut self.nodes[next.node].below);
            if self.share(total) * WIDTH < NARROW {
                self.narrow += 1;
                // Whatever it called is narrow, too.
                let mut inside = below;
                while let Some(node) = inside.pop() {
                    self.narrow += 1;
                    inside.append(&mut self.nodes[node].below);
                }
                continue;
            }
            below.sort_by_key(|node| &self.labels[self.nodes[*node].label as usize]);
            let mut left = next.left;
            for node in below {
                waiting.push(Drawn {
                    node,
                    left,
                    depth: next.depth + 1,
                });
                left = left.saturating_add(self.nodes[node].total);
            }
            self.drawn.push(next);
        }
    }

    /// Returns a value's share of the whole, from 0 to 1.
    fn share(&self, value: u64) -> f64 {
        match self.nodes[0].total {
            0 => 0.0,
            whole => value as f64 / whole as f64,
        }
    }

    /// Writes the picture. Returns the sum of all values, and the number of frames that are too narrow to draw.
    pub(crate) fn write(
        mut self,
        name: &str,
        out: &mut dyn Write,
    ) -> Result<(u64, u64), ExportError> {
        self.sum();
        self.place();
        let whole = self.nodes[0].total;
        let depth = self
            .drawn
            .iter()
            .map(|drawn| drawn.depth)
            .max()
            .unwrap_or(0);
        let height = (depth + 1).saturating_mul(ROW).saturating_add(2 * MARGIN);
        let title = escaped(&format!("{name}: {whole} {}", self.unit));
        writeln!(
            out,
            r##"<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" data-unit="{unit}" data-whole="{whole}" font-family="monospace" font-size="12">
<title>{title}</title>
<style>
  rect.back {{ fill: #fff }} .frame rect {{ stroke: #fff; stroke-width: 0.5 }} .frame {{ cursor: pointer }}
  .frame:hover rect {{ stroke: #000 }} .frame text {{ pointer-events: none }} .found rect {{ fill: #c6f }}
  .faded {{ opacity: 0.5 }} .hidden {{ display: none }} #search, #reset {{ cursor: pointer; fill: #33c }}
</style>
<rect class="back" width="100%" height="100%"/>
<text x="8" y="22" id="heading">{title}</text>
<text x="8" y="{bottom}" id="details"> </text>
<text x="75%" y="22" id="reset" class="hidden">reset zoom</text>
<text x="88%" y="22" id="search" class="hidden">search</text>
<text x="75%" y="{bottom}" id="matched"> </text>
<g id="frames">"##,
            unit = self.unit,
            bottom = height - 14,
        )?;
        for drawn in std::mem::take(&mut self.drawn) {
            let Node { label, total, .. } = self.nodes[drawn.node];
            let text = &self.labels[label as usize];
            let top = height - MARGIN - (drawn.depth + 1) * ROW;
            let width = self.share(total);
            let left = self.share(drawn.left);
            writeln!(
                out,
                r#"<g class="frame" data-d="{depth}" data-l="{left_value}" data-v="{total}"><title>{full} ({total} {unit}, {percent:.2} %)</title><rect x="{left:.4}%" y="{top}" width="{width:.4}%" height="{row}" fill="{color}"/><text x="{left:.4}%" dx="3" y="{base}">{cut}</text></g>"#,
                depth = drawn.depth,
                left_value = drawn.left,
                full = escaped(text),
                unit = self.unit,
                percent = width * 100.0,
                left = left * 100.0,
                width = width * 100.0,
                row = ROW - 1,
                color = color(drawn.depth, text),
                base = top + 12,
                cut = escaped(&cut(text, width * WIDTH)),
            )?;
        }
        writeln!(out, "</g>\n<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>")?;
        Ok((whole, self.narrow))
    }
}

/// Returns as much of a name as fits into a width in pixels.
fn cut(name: &str, width: f64) -> String {
    let room = ((width - 6.0) / CHARACTER).max(0.0) as usize;
    if room < 3 {
        return String::new();
    }
    if name.chars().count() <= room {
        return name.to_owned();
    }
    let kept = name.chars().take(room - 2);
    kept.chain("..".chars()).collect()
}

/// Returns a warm colour that belongs to a function's name: the same in every picture.
fn color(depth: u32, text: &str) -> String {
    // The whole and the threads.
    if depth < 2 {
        return "#ddd".to_owned();
    }
    // FNV-1a.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let green = 90 + (hash >> 8) % 140;
    let blue = (hash >> 24) % 60;
    let red = 205 + (hash >> 40) % 50;
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Returns a text in which nothing is markup. XML has no place for control characters.
fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => result.push_str("&amp;"),
            '<' => result.push_str("&lt;"),
            '>' => result.push_str("&gt;"),
            '"' => result.push_str("&quot;"),
            '\'' => result.push_str("&#39;"),
            control if control.is_control() => result.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => result.push('\u{fffd}'),
            other => result.push(other),
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        assert_eq!(
            escaped("a<b>(\"c\" & 'd')\u{1b}"),
            "a&lt;b&gt;(&quot;c&quot; &amp; &#39;d&#39;)\u{fffd}"
        );
        assert!(!SCRIPT.contains("]]>"));
    }

    #[test]
    fn names_are_cut_to_their_frames() {
        assert_eq!(cut("function", 100.0), "function");
        assert_eq!(cut("function", 42.0), "fun..");
        assert_eq!(cut("function", 20.0), "");
        assert_eq!(cut("ééééé", 34.0), "éé..");
    }
}
