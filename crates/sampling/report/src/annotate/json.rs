//! An annotation as JSON, everything in full precision.

use super::model::{AddressCount, AddressFrame, AnnotatedAddress, AnnotatedEvent, Annotation};
use dioptra_instructions::{EdgeEnd, EdgeKind, InstructionKind};
use dioptra_profile::branches::{BranchEdge, Cycles, Executions, Share, TripCounts};
use dioptra_profile::memory::MemoryPlace;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Writes an annotation as one JSON object: `schema`, `facts`, `function`, `events`, `instructions` (or `addresses`
/// without code), `blocks`, `edges`, `loops`, `lines`, and `branches` and `memory` where recorded. Instructions,
/// blocks and loops are referred to by their indices in these lists; `counts` have the order of `events`.
///
/// # Errors
/// The errors of the writer.
pub fn write_annotation_json(annotation: &Annotation, out: impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    serde_json::to_writer(&mut out, &value(annotation))?;
    writeln!(out)?;
    out.flush()
}

/// Writes an annotation as lines of JSON. The first line is the object of [`write_annotation_json`] without its
/// instructions or addresses; each of these follows on a line of its own.
///
/// # Errors
/// The errors of the writer.
pub fn write_annotation_ndjson(annotation: &Annotation, out: impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    let mut object = value(annotation);
    let places = object
        .as_object_mut()
        .and_then(|object| object.remove(what(annotation)));
    serde_json::to_writer(&mut out, &object)?;
    writeln!(out)?;
    for place in places.iter().filter_map(Value::as_array).flatten() {
        serde_json::to_writer(&mut out, place)?;
        writeln!(out)?;
    }
    out.flush()
}

/// Returns the key under which the places are written.
fn what(annotation: &Annotation) -> &'static str {
    if annotation.has_code {
        "instructions"
    } else {
        "addresses"
    }
}

fn value(annotation: &Annotation) -> Value {
    let places: Vec<Value> = annotation.places.iter().map(place).collect();
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
    put("schema", json!(1));
    put(
        "facts",
        serde_json::to_value(&annotation.facts).unwrap_or_default(),
    );
    put("function", function(annotation));
    put("events", annotation.events.iter().map(event).collect());
    put(what(annotation), places.into());
    put("blocks", blocks(annotation));
    put("edges", edges(annotation));
    put("loops", loops(annotation));
    put("unresolved_jumps", json!(annotation.unresolved_jumps));
    let line = |line: &super::model::AnnotatedLine| {
        json!({
            "file": line.file.as_deref(),
            "line": line.line,
            "has_code": line.has_code,
            "counts": counts(&line.innermost),
            "outermost_counts": counts(&line.outermost),
        })
    };
    put("lines", annotation.lines.iter().map(line).collect());
    if let Some(branches) = &annotation.branches {
        put(
            "branches",
            json!({"event": branches.event, "exact": branches.is_exact, "sites": sites(annotation)}),
        );
    }
    if let Some(memory) = &annotation.memory {
        let places = memory.places.iter().enumerate();
        let places = places.filter_map(|(at, place)| {
            let mut object = memory_place(place.as_ref()?);
            object["place"] = at.into();
            Some(object)
        });
        put(
            "memory",
            json!({
                "event": memory.event,
                "function": memory_place(&memory.function),
                "places": places.collect::<Vec<Value>>(),
            }),
        );
    }
    Value::Object(object)
}

fn function(annotation: &Annotation) -> Value {
    json!({
        "name": annotation.name,
        "raw_name": annotation.raw_name,
        "module": annotation.module,
        "module_path": annotation.module_path,
        "start": annotation.addresses.as_ref().map(|range| range.start),
        "end": annotation.addresses.as_ref().map(|range| range.end),
        "virtual_start": annotation.virtual_start,
    })
}

fn event(event: &AnnotatedEvent) -> Value {
    json!({
        "name": event.name,
        "unit": event.unit.as_ref().map(dioptra_tables::Unit::id),
        "scaled": event.is_scaled,
        "total": count(&event.all),
        "function": count(&event.function),
    })
}

fn count(count: &AddressCount) -> Value {
    json!({
        "samples": count.count.samples,
        "weight": count.count.weight,
        "estimate": count.estimate.value,
        "standard_error": count.estimate.error(),
    })
}

fn counts(list: &[AddressCount]) -> Value {
    list.iter().map(count).collect()
}

fn frame(frame: &AddressFrame) -> Value {
    json!({
        "function": frame.function.as_deref(),
        "file": frame.file.as_deref(),
        "line": frame.line,
        "column": frame.column,
        "inlined": frame.is_inlined,
    })
}

/// Returns the kind of an instruction as JSON has it.
pub fn instruction_kind_word(kind: InstructionKind) -> &'static str {
    match kind {
        InstructionKind::Sequential => "sequential",
        InstructionKind::ConditionalJump => "conditional_jump",
        InstructionKind::Jump => "jump",
        InstructionKind::IndirectJump => "indirect_jump",
        InstructionKind::Call => "call",
        InstructionKind::IndirectCall => "indirect_call",
        InstructionKind::Return => "return",
        InstructionKind::SystemCall => "system_call",
        InstructionKind::Trap => "trap",
        _ => "invalid",
    }
}

/// Returns the name of an edge's kind in JSON and graphs.
pub fn edge_kind_word(kind: EdgeKind) -> &'static str {
    match kind {
        EdgeKind::FallThrough => "fall_through",
        EdgeKind::Taken => "taken",
        EdgeKind::Jump => "jump",
        EdgeKind::CallReturn => "call_return",
        EdgeKind::Table => "table",
        EdgeKind::Indirect => "indirect",
        _ => "leave",
    }
}

fn place(place: &AnnotatedAddress) -> Value {
    let mut object = json!({
        "address": place.address,
        "virtual_address": place.virtual_address,
        "counts": counts(&place.counts),
        "frames": place.frames.iter().map(frame).collect::<Vec<Value>>(),
    });
    if let (Some(of_kind), Value::Object(object)) = (place.kind, &mut object) {
        let mut bytes = String::with_capacity(2 * place.bytes.len());
        for byte in &place.bytes {
            // Writing to a String cannot fail.
            let _ = write!(bytes, "{byte:02x}");
        }
        object.insert("bytes".to_owned(), bytes.into());
        object.insert("text".to_owned(), place.text.clone().into());
        object.insert("kind".to_owned(), instruction_kind_word(of_kind).into());
        object.insert("block".to_owned(), place.block.into());
        if let Some(target) = &place.target {
            let function = target.function.as_ref();
            object.insert(
                "target".to_owned(),
                json!({
                    "virtual_address": target.virtual_address,
                    "instruction": target.place,
                    "function": function.map(|(name, _)| name),
                    "offset": function.map(|(_, offset)| offset),
                }),
            );
        }
    }
    object
}

fn executions(runs: &Executions) -> Value {
    json!({
        "seen": runs.seen,
        "standard_error": runs.error,
        "estimated": runs.estimated,
        "estimated_standard_error": runs.estimated_error(),
    })
}

fn share(share: &Share) -> Value {
    json!({"part": share.part, "whole": share.whole, "standard_error": share.error})
}

fn cycles(cycles: Cycles) -> Value {
    let mean = cycles.mean();
    json!({
        "samples": cycles.samples,
        "sum": cycles.sum,
        "mean": mean.map(|(mean, _)| mean),
        "standard_error": mean.map(|(_, error)| error),
        "saturated": cycles.saturated,
    })
}

fn blocks(annotation: &Annotation) -> Value {
    let blocks = annotation.blocks.iter().enumerate().map(|(number, block)| {
        let mut object = json!({
            "first_instruction": block.places.start,
            "instructions": block.places.len(),
            "loop": block.innermost_loop,
            "depth": block.depth,
            "counts": counts(&block.counts),
        });
        if let (Some(branches), Value::Object(object)) = (&annotation.branches, &mut object) {
            let of_block = &branches.counts.blocks[number];
            object.insert("executions".to_owned(), executions(&of_block.executions));
            object.insert("cycles".to_owned(), cycles(of_block.cycles));
        }
        object
    });
    blocks.collect()
}

fn edges(annotation: &Annotation) -> Value {
    let edges = annotation.edges.iter().map(|edge| {
        let (block, address) = match edge.to {
            EdgeEnd::Block(block) => (Some(block), None),
            EdgeEnd::Outside(address) => (None, address),
        };
        json!({
            "from": edge.from,
            "to": block,
            "outside": address,
            "function": edge.function,
            "kind": edge_kind_word(edge.kind),
            "executions": edge.executions.as_ref().map(executions),
        })
    });
    edges.collect()
}

fn trips(trips: &TripCounts) -> Value {
    let list = trips.trips.iter();
    let list = list.map(|one| json!({"trips": one.trips, "seen": one.seen, "share": one.share}));
    json!({
        "complete": trips.complete,
        "cut": trips.cut,
        "mean": trips.mean(),
        "distribution": list.collect::<Vec<Value>>(),
    })
}

fn loops(annotation: &Annotation) -> Value {
    let loops = annotation.loops.iter().enumerate().map(|(number, one)| {
        let mut object = json!({
            "header": one.natural.header,
            "latches": one.natural.latches,
            "parent": one.natural.parent,
            "depth": one.natural.depth,
            "blocks": one.blocks,
            "counts": counts(&one.counts),
        });
        if let (Some(branches), Value::Object(object)) = (&annotation.branches, &mut object) {
            if let Some(of_loop) = branches.counts.loops.get(number) {
                let mean = of_loop.mean_trips();
                object.insert("entries".to_owned(), executions(&of_loop.entries));
                object.insert("back_edges".to_owned(), executions(&of_loop.back_edges));
                object.insert(
                    "mean_trips".to_owned(),
                    json!(
                        mean.map(|(mean, error)| json!({"value": mean, "standard_error": error}))
                    ),
                );
            }
            let of_trips = branches.trips.get(number).and_then(Option::as_ref);
            object.insert("trips".to_owned(), json!(of_trips.map(trips)));
        }
        object
    });
    loops.collect()
}

fn sites(annotation: &Annotation) -> Value {
    let Some(branches) = &annotation.branches else {
        return Value::Null;
    };
    let target = |edge: &BranchEdge| {
        json!({
            "function": branches.functions.get(&edge.to),
            "taken": executions(&edge.taken),
            "mispredicted": edge.mispredicted.as_ref().map(share),
            "cycles": cycles(edge.cycles),
            "kind": format!("{:?}", edge.kind),
        })
    };
    let sites = branches.counts.sites.iter().map(|site| {
        json!({
            "instruction": site.instruction,
            "taken": executions(&site.taken),
            "not_taken": site.not_taken.as_ref().map(executions),
            "mispredicted": site.mispredicted.as_ref().map(share),
            "targets": site.targets.iter().map(target).collect::<Vec<Value>>(),
        })
    });
    sites.collect()
}

fn memory_place(place: &MemoryPlace) -> Value {
    let sources = place.sources();
    let sources = sources.iter().map(|(source, latency)| {
        json!({
            "source": source.to_string(),
            "word": source.0,
            "samples": latency.samples,
            "mean_latency": latency.mean(),
        })
    });
    let latency = place.latency();
    json!({
        "samples": place.samples(),
        "latency": {
            "samples": latency.count,
            "sum": latency.sum,
            "min": latency.min,
            "max": latency.max,
            "mean": latency.mean(),
            "log2": latency.log2,
        },
        "cache_lines": place.lines().count,
        "pages": place.pages().count,
        "sources": sources.collect::<Vec<Value>>(),
    })
}
