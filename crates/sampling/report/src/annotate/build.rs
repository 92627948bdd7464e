//! Builds an annotation from a function and its samples.

use super::code::{Decoded, decode};
use super::counts::{FrameCounts, add, events_of};
use super::details;
use super::find::{FoundFunction, request};
use super::lines::lines;
use super::model::{
    AddressCount, AddressFrame, AnnotateOptions, AnnotatedAddress, AnnotatedBlock, AnnotatedEdge,
    AnnotatedLoop, Annotation,
};
use crate::profile_facts::profile_facts;
use dioptra_instructions::{ControlFlow, EdgeEnd, LoopNest, SourceMap};
use dioptra_profile::{FrameId, Module, Names, Profile};
use dioptra_symbols::{
    FileOffset, ModuleKind, Note, RelativeAddress, Symbolizer, demangle, is_jit_dump,
};
use dioptra_tables::{Remedy, Severity, escape};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// The number of missing source files that text names one by one.
const FILES_TOLD: usize = 3;

/// The largest product of loops and blocks for which loops are shown; compilers stay far below it.
const MOST_IN_LOOPS: usize = 1 << 26;

/// A frame, its address, and its counts.
pub(super) type Counted<'a> = (FrameId, u64, &'a [AddressCount]);

/// Annotates a function. `names` must be the names with which `found` was found.
pub fn annotate(
    profile: &Profile,
    names: &Names,
    symbolizer: &Symbolizer,
    found: &FoundFunction,
    options: &AnnotateOptions,
) -> Annotation {
    let events: Vec<usize> = match &options.events {
        Some(events) => events.clone(),
        None => profile.sampled_events(),
    };
    let known = |index: &usize| *index < profile.events().len();
    let events: Vec<usize> = events.into_iter().filter(known).collect();
    let module = profile.modules().get(found.module);
    let name = if options.demangle {
        demangle(&found.raw_name).into_owned()
    } else {
        found.raw_name.clone()
    };
    let mut annotation = Annotation {
        name,
        raw_name: found.raw_name.clone(),
        module: module.label.clone(),
        module_path: module.path().to_string_lossy().into_owned(),
        addresses: found.addresses.clone(),
        virtual_start: None,
        events: events_of(profile, &events),
        places: Vec::new(),
        has_code: false,
        blocks: Vec::new(),
        edges: Vec::new(),
        loops: Vec::new(),
        unresolved_jumps: 0,
        lines: Vec::new(),
        branches: None,
        memory: None,
        sources: BTreeMap::new(),
        facts: profile_facts(profile, &Names::default(), &events),
    };
    annotation.facts.append(found.facts.clone());
    let counts = FrameCounts::within(profile, &events, &found.frames);
    let counts: Vec<Counted<'_>> = counts
        .iter()
        .map(|(frame, counts)| (frame, profile.frames().get(frame).address, counts))
        .collect();
    let decoded = match decode(symbolizer, found, module, options) {
        Ok(decoded) => Some(decoded),
        Err(why) => {
            let cause = why.to_string();
            let text = format!(
                "no instructions, only the addresses of samples: {}",
                escape(&cause)
            );
            let facts = &mut annotation.facts;
            facts.add(Severity::Fallback, "no_code", text, cause);
            if let Some(remedy) = why.remedy() {
                facts.propose(remedy);
            }
            None
        }
    };
    let notes = put_places(
        &mut annotation,
        symbolizer,
        module,
        decoded.as_ref(),
        &counts,
    );
    put_counts(&mut annotation, &counts);
    if let Some(decoded) = &decoded {
        annotation.has_code = true;
        tell_kernel(&mut annotation, decoded);
        annotation.virtual_start = Some(decoded.code.virtual_start());
        let flow = decoded.control_flow();
        let nest = flow.loops();
        put_blocks(&mut annotation, decoded, &flow, &nest);
        let of = details::Sources {
            profile,
            names,
            symbolizer,
            demangle: options.demangle,
        };
        details::add_branches(&mut annotation, &of, found.module);
    }
    details::add_memory(&mut annotation, profile, &counts);
    annotation.lines = lines(&annotation.places, events.len());
    tell_lines(&mut annotation, &notes);
    let kernel = decoded.as_ref().and_then(Decoded::kernel_file);
    let file = kernel.map_or_else(|| module_file(module, options), Path::to_path_buf);
    read_sources(&mut annotation, options, &file);
    annotation
}

/// Adds the instructions to the annotation, or the addresses of samples where there is no code. Returns the notes of
/// the debug information's reader.
fn put_places(
    annotation: &mut Annotation,
    symbolizer: &Symbolizer,
    module: &Module,
    decoded: Option<&Decoded>,
    counts: &[Counted<'_>],
) -> Vec<Note> {
    let events = annotation.events.len();
    if module.kind == ModuleKind::NotAFile {
        let symbols = is_jit_dump(module.path()).then(|| symbolizer.jit_dump(module.path()));
        let mut files: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let mut frames = |address: u64| -> Vec<AddressFrame> {
            let line = symbols
                .as_ref()
                .and_then(|known| known.line_in_file(FileOffset(address)));
            let frame = line.map(|(file, line)| AddressFrame {
                function: None,
                file: Some(
                    files
                        .entry(file.to_owned())
                        .or_insert_with(|| file.into())
                        .clone(),
                ),
                line: Some(line),
                column: None,
                is_inlined: false,
            });
            frame.into_iter().collect()
        };
        annotation.places = match decoded {
            Some(decoded) => decoded.places(events, |instruction| frames(instruction.address)),
            None => addresses(counts, events, frames),
        };
        return Vec::new();
    }
    let lines = symbolizer.lines(&request(module));
    let reader = lines.reader();
    annotation.places = match decoded {
        Some(decoded) => {
            let map = SourceMap::of(&decoded.code, &reader);
            decoded.places(events, |instruction| {
                let frames = map.frames(instruction.index).iter().cloned();
                frames.map(AddressFrame::from).collect()
            })
        }
        None => addresses(counts, events, |address| {
            let frames = reader.frames(RelativeAddress(address)).into_iter();
            frames.map(AddressFrame::from).collect()
        }),
    };
    lines.notes()
}

/// Returns a place for each address that has samples.
fn addresses(
    counts: &[Counted<'_>],
    events: usize,
    mut frames: impl FnMut(u64) -> Vec<AddressFrame>,
) -> Vec<AnnotatedAddress> {
    let addresses: BTreeSet<u64> = counts.iter().map(|(_, address, _)| *address).collect();
    let place = |address: u64| AnnotatedAddress {
        address,
        virtual_address: address,
        bytes: Vec::new(),
        text: String::new(),
        kind: None,
        target: None,
        block: None,
        counts: vec![AddressCount::default(); events],
        frames: frames(address).into(),
    };
    addresses.into_iter().map(place).collect()
}

/// Returns the index of the place to which an address belongs.
pub(super) fn place_at(places: &[AnnotatedAddress], address: u64) -> Option<usize> {
    let after = places.partition_point(|place| place.address <= address);
    after.checked_sub(1)
}

/// Adds each frame's counts to its place and to the function.
fn put_counts(annotation: &mut Annotation, counts: &[Counted<'_>]) {
    let mut inside = 0;
    for (_, address, counts) in counts {
        let index = place_at(&annotation.places, *address).unwrap_or(0);
        let Some(place) = annotation.places.get_mut(index) else {
            continue;
        };
        if place.address != *address {
            inside += counts.iter().map(|count| count.count.samples).sum::<u64>();
        }
        add(&mut place.counts, counts);
        for (event, count) in annotation.events.iter_mut().zip(*counts) {
            event.function.add(*count);
        }
    }
    if inside > 0 {
        annotation.facts.add(
            Severity::Loss,
            "inside_instructions",
            format!(
                "{inside} samples lie inside of instructions and count for these; the file is probably not the one that ran"
            ),
            inside,
        );
    }
}

/// Adds blocks, edges and loops with their counts.
fn put_blocks(annotation: &mut Annotation, decoded: &Decoded, flow: &ControlFlow, nest: &LoopNest) {
    let nothing = vec![AddressCount::default(); annotation.events.len()];
    for (number, block) in flow.blocks().iter().enumerate() {
        let mut counts = nothing.clone();
        for place in &mut annotation.places[block.instructions.clone()] {
            place.block = Some(number);
            add(&mut counts, &place.counts);
        }
        annotation.blocks.push(AnnotatedBlock {
            places: block.instructions.clone(),
            counts,
            innermost_loop: nest.innermost(number),
            depth: nest.depth(number),
        });
    }
    let edges = flow.edges().iter().map(|edge| AnnotatedEdge {
        from: edge.from,
        to: edge.to,
        kind: edge.kind,
        function: match edge.to {
            EdgeEnd::Outside(Some(address)) => decoded.function_at(address).map(|(name, _)| name),
            _ => None,
        },
        executions: None,
    });
    annotation.edges = edges.collect();
    let mut loops = nest.loops();
    if loops.len().saturating_mul(flow.blocks().len()) > MOST_IN_LOOPS {
        annotation.facts.add(
            Severity::Loss,
            "loops_left_out",
            format!("{} loops are too many to show", loops.len()),
            loops.len(),
        );
        loops = &[];
        for block in &mut annotation.blocks {
            (block.innermost_loop, block.depth) = (None, 0);
        }
    }
    for (number, natural) in loops.iter().enumerate() {
        let blocks: Vec<usize> = nest.blocks_of(number).collect();
        let mut counts = nothing.clone();
        for block in &blocks {
            add(&mut counts, &annotation.blocks[*block].counts);
        }
        annotation.loops.push(AnnotatedLoop {
            natural: natural.clone(),
            blocks,
            counts,
        });
    }
    annotation.unresolved_jumps = flow.unresolved_jumps();
    if annotation.unresolved_jumps > 0 {
        annotation.facts.add(
            Severity::Info,
            "unresolved_jumps",
            format!(
                "{} indirect jump{} to unknown places: blocks and loops may be connected by ways that are not shown",
                annotation.unresolved_jumps,
                if annotation.unresolved_jumps == 1 { " leads" } else { "s lead" }
            ),
            annotation.unresolved_jumps,
        );
    }
    let irreducible = nest.irreducible().len();
    if irreducible > 0 {
        annotation.facts.add(
            Severity::Info,
            "irreducible",
            format!(
                "{irreducible} cycles of blocks have several entries and are not shown as loops"
            ),
            irreducible,
        );
    }
}

/// Adds a fact on the samples whose source line is unknown, and why.
fn tell_lines(annotation: &mut Annotation, notes: &[Note]) {
    let unknown = annotation.lines.iter().find(|line| line.file.is_none());
    let Some(unknown) = unknown else {
        return;
    };
    let samples: u64 = unknown
        .innermost
        .iter()
        .map(|count| count.count.samples)
        .sum();
    let why: Vec<String> = notes
        .iter()
        .filter(|note| note.is_problem())
        .map(ToString::to_string)
        .collect();
    let reasons = if why.is_empty() {
        String::new()
    } else {
        format!(": {}", escape(&why.join("; ")))
    };
    if annotation.lines.len() == 1 {
        let text = if why.is_empty() {
            "no source: nothing tells the lines of this function".to_owned()
        } else {
            format!("no source{reasons}")
        };
        annotation
            .facts
            .add(Severity::Fallback, "no_lines", text, why);
    } else if samples > 0 {
        annotation.facts.add(
            Severity::Loss,
            "samples_without_line",
            format!("{samples} samples lie in instructions without a source line{reasons}"),
            samples,
        );
    }
}

/// Adds the fact that the running kernel may have other instructions than its file.
fn tell_kernel(annotation: &mut Annotation, decoded: &Decoded) {
    let Some(path) = decoded.kernel_file() else {
        return;
    };
    let path = path.to_string_lossy();
    annotation.facts.add(
        Severity::Info,
        "kernel_file",
        format!(
            "instructions of {}; the running kernel replaces some of them in place: for its processor, for static keys and for tracing",
            escape(&path)
        ),
        &*path,
    );
}

/// Returns the path of the module's file on this machine.
fn module_file(module: &Module, options: &AnnotateOptions) -> PathBuf {
    match &options.sources.symfs {
        Some(root) => root.join(module.path().strip_prefix("/").unwrap_or(module.path())),
        None => module.path().to_path_buf(),
    }
}

/// Reads the source files, and adds facts on files that are missing or newer than the program.
fn read_sources(annotation: &mut Annotation, options: &AnnotateOptions, program: &Path) {
    let mut files: BTreeSet<Arc<str>> = BTreeSet::new();
    for line in &annotation.lines {
        files.extend(line.file.clone());
    }
    let mut missing = Vec::new();
    for file in files {
        match options.sources.read(&file) {
            Ok(text) => {
                annotation.sources.insert(file, text);
            }
            Err(why) => missing.push((file, why)),
        }
    }
    for (file, why) in missing.iter().take(FILES_TOLD) {
        annotation.facts.add(
            Severity::Fallback,
            "no_source",
            format!("no source file {}", escape(&why.to_string())),
            &**file,
        );
        annotation.facts.propose(Remedy::GiveSources);
    }
    if missing.len() > FILES_TOLD {
        let more = missing.len() - FILES_TOLD;
        let list: Vec<&str> = missing.iter().map(|(file, _)| &**file).collect();
        annotation.facts.add(
            Severity::Fallback,
            "no_sources",
            format!("{more} more source files were not found"),
            list,
        );
    }
    let built: Option<SystemTime> = std::fs::metadata(program)
        .and_then(|data| data.modified())
        .ok();
    for (file, text) in &annotation.sources {
        if let (Some(built), Some(changed)) = (built, text.modified)
            && changed > built
        {
            annotation.facts.add(
                Severity::Info,
                "newer_source",
                format!(
                    "{} was changed after the program was built, so its lines may have moved",
                    escape(&text.path.to_string_lossy())
                ),
                &**file,
            );
        }
    }
}
