//! `/api/function` and `/api/source`: one function with its code, and the text of its source files.

use crate::api::{
    CodeBlock, CodeEdge, CodeFrames, CodeInstructions, CodeLine, CodeLoop, CodeTarget, Counted,
    FunctionAnswer, FunctionEvent, FunctionInfo, FunctionModule, FunctionRequest, SourceAnswer,
    SourceFile, SourceRequest, Syntax,
};
use crate::cache::MemorySize;
use crate::failure::Failure;
use crate::function_changes::First;
use crate::jobs::Ticket;
use crate::loaded::{Loaded, Named};
use crate::other::Other;
use crate::selected::{Selected, SelectionKey};
use crate::server::Shared;
use crate::texts;
use dioptra_instructions::EdgeEnd;
use dioptra_profile::{FunctionId, ModuleId};
use dioptra_report::{
    AddressCount, AddressFrame, AnnotateOptions, AnnotatedEvent, Annotation, SourceError,
    SourceText, annotate, edge_kind_word, function_with_id, instruction_kind_word,
};
use hashbrown::HashMap;
use std::sync::Arc;

/// The largest number of source lines in an answer.
const MOST_LINES: usize = 20_000;

/// Which annotated function: the key of annotations that are kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AnnotationKey {
    pub selection: SelectionKey,
    events: Vec<usize>,
    function: FunctionId,
    intel: bool,
    /// The selection of the profile that is compared.
    with: Option<SelectionKey>,
}

impl AnnotationKey {
    /// Whether all profiles of the answer pass.
    pub(crate) fn passes(&self, passes: impl Fn(&SelectionKey) -> bool) -> bool {
        self.with.as_ref().is_none_or(&passes) && passes(&self.selection)
    }
}

impl MemorySize for FunctionAnswer {
    fn bytes(&self) -> usize {
        let places = self.instructions.address.len();
        1 + places * (160 + 32 * self.events.len()) + 100 * self.lines.len()
    }
}

/// Answers `/api/function`.
pub(crate) fn answer(
    shared: &Shared,
    request: &FunctionRequest,
    ticket: &Ticket,
) -> Result<Arc<FunctionAnswer>, Failure> {
    let mut selection = request.selection.clone();
    let [function] = &std::mem::take(&mut selection.function)[..] else {
        return Err(Failure::parameter("function", "is given once, as a key"));
    };
    let selected = Selected::of(shared, &selection, false)?;
    ticket.check()?;
    let named = selected.named();
    let id = named.find_function(&selected.loaded.keys, function)?;
    let syntax = request.syntax.unwrap_or_default();
    let other = request
        .with
        .map(|with| Other::of(shared, &selected, &selection, with, false));
    let other = other.transpose()?;
    let key = AnnotationKey {
        selection: selected.key.clone(),
        events: selected.events.clone(),
        function: id,
        intel: syntax == Syntax::Intel,
        with: other.as_ref().map(|other| other.selected.key.clone()),
    };
    shared.functions.get(key, || {
        ticket.check()?;
        let loaded = &selected.loaded;
        let symbolizer = &loaded.symbolizer;
        let found = function_with_id(&selected.profile, &named.names, symbolizer, id);
        let found = found.ok_or_else(|| Failure::NotRecorded {
            text: "the function is code inside of other functions".to_owned(),
            remedy: "open the function that contains it",
        })?;
        let module = found.module;
        let options = AnnotateOptions {
            events: Some(selected.events.clone()),
            syntax: match syntax {
                Syntax::Att => dioptra_instructions::Syntax::AtAndT,
                Syntax::Intel => dioptra_instructions::Syntax::Intel,
            },
            demangle: true,
            sources: loaded.sources.clone(),
        };
        let annotation = annotate(
            &selected.profile,
            &named.names,
            symbolizer,
            &found,
            &options,
        );
        ticket.check()?;
        let mut answer = converted(&selected, function, module, &annotation);
        if let Some(other) = &other {
            let first = First {
                selected: &selected,
                function: id,
                module,
                annotation: &annotation,
                options: &options,
            };
            let (compared, facts) = first.compare(other, ticket)?;
            answer.other = Some(compared);
            answer.facts.extend(texts::facts(&facts));
        }
        Ok(answer)
    })
}

fn converted(
    selected: &Selected,
    key: &str,
    module: ModuleId,
    annotation: &Annotation,
) -> FunctionAnswer {
    let mut texts = Texts::default();
    let mut frames = Frames::default();
    let instructions = instructions(annotation, &mut texts, &mut frames);
    let lines = lines(annotation, &mut frames);
    let files = frames.files.iter();
    let files = files.map(|file| source_file(&selected.loaded, annotation, file));
    let files = files.collect();
    let mut code_frames = CodeFrames::default();
    for frame in &frames.list {
        let function = frame.function.as_deref().map(|name| texts.id(name));
        code_frames.function.push(function.unwrap_or(-1));
        let file = frame
            .file
            .as_ref()
            .and_then(|file| frames.file_ids.get(file));
        code_frames.file.push(file.copied().unwrap_or(-1));
        code_frames.line.push(frame.line.unwrap_or(0));
        code_frames.column.push(frame.column.unwrap_or(0));
        code_frames.inlined.push(frame.is_inlined.into());
    }
    FunctionAnswer {
        profile: selected.loaded.index,
        generation: selected.loaded.generation,
        function: FunctionInfo {
            key: key.to_owned(),
            name: crate::texts::name(&annotation.name),
            raw_name: crate::texts::name(&annotation.raw_name),
            module: FunctionModule {
                key: selected.loaded.keys.module(module),
                name: crate::texts::name(&annotation.module),
                path: crate::texts::name(&annotation.module_path),
            },
            start: annotation.addresses.as_ref().map(|range| hex(range.start)),
            end: annotation.addresses.as_ref().map(|range| hex(range.end)),
            virtual_start: annotation.virtual_start.map(hex),
        },
        events: annotation
            .events
            .iter()
            .map(|event| self::event(&selected.loaded, event))
            .collect(),
        has_code: annotation.has_code,
        targets: targets(selected, module, annotation),
        blocks: blocks(annotation),
        edges: edges(annotation),
        loops: loops(annotation),
        unresolved_jumps: annotation.unresolved_jumps,
        other: None,
        facts: crate::texts::facts(&annotation.facts),
        strings: texts.list,
        frames: code_frames,
        stacks: frames.stacks,
        instructions,
        files,
        lines,
    }
}

/// Texts, each once.
#[derive(Default)]
struct Texts {
    list: Vec<String>,
    ids: HashMap<String, i32>,
}

impl Texts {
    fn id(&mut self, text: &str) -> i32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        // No more texts than frames and kinds of instructions.
        let id = i32::try_from(self.list.len()).unwrap_or(-1);
        self.list.push(crate::texts::name(text));
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// Frames, stacks of frames and files, each once.
#[derive(Default)]
struct Frames {
    list: Vec<AddressFrame>,
    ids: HashMap<AddressFrameKey, u32>,
    stacks: Vec<Vec<u32>>,
    stack_ids: HashMap<Vec<u32>, i32>,
    files: Vec<Arc<str>>,
    file_ids: HashMap<Arc<str>, i32>,
}

/// The fields that distinguish frames.
type AddressFrameKey = (
    Option<Arc<str>>,
    Option<Arc<str>>,
    Option<u32>,
    Option<u32>,
    bool,
);

impl Frames {
    fn file(&mut self, file: &Arc<str>) -> i32 {
        if let Some(id) = self.file_ids.get(file) {
            return *id;
        }
        let id = i32::try_from(self.files.len()).unwrap_or(-1);
        self.files.push(Arc::clone(file));
        self.file_ids.insert(Arc::clone(file), id);
        id
    }

    fn frame(&mut self, frame: &AddressFrame) -> u32 {
        let key = (
            frame.function.clone(),
            frame.file.clone(),
            frame.line,
            frame.column,
            frame.is_inlined,
        );
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        if let Some(file) = &frame.file {
            self.file(file);
        }
        let id = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(frame.clone());
        self.ids.insert(key, id);
        id
    }

    fn stack(&mut self, frames: &[AddressFrame]) -> i32 {
        if frames.is_empty() {
            return -1;
        }
        let stack: Vec<u32> = frames.iter().map(|frame| self.frame(frame)).collect();
        if let Some(id) = self.stack_ids.get(&stack) {
            return *id;
        }
        let id = i32::try_from(self.stacks.len()).unwrap_or(-1);
        self.stacks.push(stack.clone());
        self.stack_ids.insert(stack, id);
        id
    }
}

fn instructions(
    annotation: &Annotation,
    texts: &mut Texts,
    frames: &mut Frames,
) -> CodeInstructions {
    let events = annotation.events.len();
    let places = annotation.places.len();
    let mut code = CodeInstructions {
        samples: vec![Vec::with_capacity(places); events],
        weight: vec![Vec::with_capacity(places); events],
        estimate: vec![Vec::with_capacity(places); events],
        error: vec![Vec::with_capacity(places); events],
        ..CodeInstructions::default()
    };
    for place in &annotation.places {
        code.address.push(hex(place.address));
        code.virtual_address.push(hex(place.virtual_address));
        let mut bytes = String::with_capacity(2 * place.bytes.len());
        for byte in &place.bytes {
            // Writing to a String cannot fail.
            let _ = std::fmt::Write::write_fmt(&mut bytes, format_args!("{byte:02x}"));
        }
        code.bytes.push(bytes);
        code.text.push(place.text.clone());
        let kind = place.kind.map(|kind| texts.id(instruction_kind_word(kind)));
        code.kind.push(kind.unwrap_or(-1));
        let block = place.block.and_then(|block| i32::try_from(block).ok());
        code.block.push(block.unwrap_or(-1));
        code.stack.push(frames.stack(&place.frames));
        for (event, count) in place.counts.iter().enumerate() {
            code.samples[event].push(count.count.samples);
            code.weight[event].push(count.count.weight);
            code.estimate[event].push(count.estimate.value);
            code.error[event].push(count.estimate.error());
        }
    }
    code
}

/// A number of a list as an answer has it: such lists have far fewer than 2^32 elements.
fn index(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// An address as answers have it.
fn hex(address: u64) -> String {
    format!("{address:#x}")
}

/// Where instructions lead.
fn targets(selected: &Selected, module: ModuleId, annotation: &Annotation) -> Vec<CodeTarget> {
    let named: &Named = selected.named();
    // The difference of objdump's addresses and relative ones in this module.
    let start = annotation.addresses.as_ref().map(|range| range.start);
    let bias = start.zip(annotation.virtual_start);
    let bias = bias.map(|(start, shown)| shown.wrapping_sub(start));
    let starts: HashMap<u64, FunctionId> = named
        .names
        .functions()
        .iter()
        .zip(0_u32..)
        .filter(|(function, _)| function.module == module && !function.is_inlined)
        .filter_map(|(function, id)| Some((function.start?, id)))
        .collect();
    let places = annotation.places.iter().enumerate();
    let targets = places.filter_map(|(place, of)| {
        let target = of.target.as_ref()?;
        let (name, offset) = match &target.function {
            Some((name, offset)) => (Some(name), Some(*offset)),
            None => (None, None),
        };
        let known = bias.zip(offset).and_then(|(bias, offset)| {
            let start = target
                .virtual_address
                .wrapping_sub(bias)
                .wrapping_sub(offset);
            starts.get(&start)
        });
        Some(CodeTarget {
            instruction: index(place),
            to: target.place.map(index),
            virtual_address: hex(target.virtual_address),
            function: name.map(|name| texts::name(name)),
            offset,
            key: known.map(|id| named.function_key(&selected.loaded.keys, *id)),
        })
    });
    targets.collect()
}

fn samples(counts: &[AddressCount]) -> Vec<u64> {
    counts.iter().map(|count| count.count.samples).collect()
}

fn weights(counts: &[AddressCount]) -> Vec<u64> {
    counts.iter().map(|count| count.count.weight).collect()
}

fn blocks(annotation: &Annotation) -> Vec<CodeBlock> {
    let blocks = annotation.blocks.iter().map(|block| CodeBlock {
        first: index(block.places.start),
        count: index(block.places.len()),
        innermost_loop: block.innermost_loop.map(index),
        depth: index(block.depth),
        samples: samples(&block.counts),
        weight: weights(&block.counts),
        estimate: block
            .counts
            .iter()
            .map(|count| count.estimate.value)
            .collect(),
    });
    blocks.collect()
}

fn edges(annotation: &Annotation) -> Vec<CodeEdge> {
    let edges = annotation.edges.iter().map(|edge| {
        let (to, outside) = match edge.to {
            EdgeEnd::Block(block) => (Some(index(block)), None),
            EdgeEnd::Outside(address) => (None, address),
        };
        let executions = edge.executions.as_ref();
        CodeEdge {
            from: index(edge.from),
            to,
            outside: outside.map(hex),
            function: edge.function.as_deref().map(texts::name),
            kind: edge_kind_word(edge.kind).to_owned(),
            executions: executions.map(|runs| runs.estimated.unwrap_or(runs.seen as f64)),
        }
    });
    edges.collect()
}

fn loops(annotation: &Annotation) -> Vec<CodeLoop> {
    let loops = annotation.loops.iter().enumerate().map(|(number, one)| {
        let branches = annotation.branches.as_ref();
        let runs = branches.and_then(|branches| branches.counts.loops.get(number));
        let trips = runs.and_then(|runs| runs.mean_trips());
        CodeLoop {
            header: index(one.natural.header),
            parent: one.natural.parent.map(index),
            depth: index(one.natural.depth),
            blocks: one.blocks.iter().map(|block| index(*block)).collect(),
            samples: samples(&one.counts),
            weight: weights(&one.counts),
            trips: trips.map(|(mean, _)| mean),
            trips_error: trips.map(|(_, error)| error),
        }
    });
    loops.collect()
}

fn lines(annotation: &Annotation, frames: &mut Frames) -> Vec<CodeLine> {
    let lines = annotation.lines.iter().map(|line| CodeLine {
        file: line.file.as_ref().map_or(-1, |file| frames.file(file)),
        line: line.line.unwrap_or(0),
        has_code: line.has_code,
        samples: samples(&line.innermost),
        weight: weights(&line.innermost),
        outer_samples: samples(&line.outermost),
        outer_weight: weights(&line.outermost),
    });
    lines.collect()
}

pub(crate) fn counted(count: AddressCount) -> Counted {
    Counted {
        samples: count.count.samples,
        weight: count.count.weight,
        estimate: count.estimate.value,
        error: count.estimate.error(),
    }
}

fn event(loaded: &Loaded, event: &AnnotatedEvent) -> FunctionEvent {
    let unit = event.unit.as_ref().and_then(|unit| unit.id());
    FunctionEvent {
        key: loaded.keys.event(event.index),
        name: texts::name(&event.name),
        unit: unit.map(str::to_owned),
        scaled: event.is_scaled,
        total: counted(event.all),
        own: counted(event.function),
    }
}

fn source_file(loaded: &Loaded, annotation: &Annotation, file: &Arc<str>) -> SourceFile {
    let text = annotation.sources.get(file);
    // Where it was looked for: the annotation tells this of the first files only.
    let why = match text {
        Some(_) => None,
        None => loaded.sources.read(file).err(),
    };
    let is_newer = annotation.facts.iter().any(|fact| {
        fact.id.starts_with("newer_source") && fact.value.as_str() == Some(file.as_ref())
    });
    described(loaded, file, text, is_newer, why)
}

fn described(
    loaded: &Loaded,
    file: &Arc<str>,
    text: Option<&SourceText>,
    is_newer: bool,
    why: Option<SourceError>,
) -> SourceFile {
    let found_at = text.map(|text| text.path.to_string_lossy());
    SourceFile {
        id: loaded.name_source(file),
        path: texts::name(file),
        found: text.is_some(),
        found_at: found_at.map(|path| texts::name(&path)),
        lines: text.map_or(0, |text| text.lines.len()),
        newer: is_newer,
        why: why.map(|why| texts::name(&why.to_string())),
    }
}

/// Answers `/api/source`. Only files that an answer named are read.
pub(crate) fn source(shared: &Shared, request: &SourceRequest) -> Result<SourceAnswer, Failure> {
    let loaded = shared.profiles.get(request.profile, None)?;
    let no_file = || Failure::no_key("file", &request.file);
    let file = loaded.source(&request.file).ok_or_else(no_file)?;
    let text = loaded.sources.read(&file);
    let text = text.map_err(|why| Failure::NotRecorded {
        text: format!("the source file is not here: {why}"),
        remedy: "give its place with dioptra web --source-path OLD=NEW or --symfs DIR",
    })?;
    let from = request.from.unwrap_or(1).max(1);
    let count = request.count.unwrap_or(MOST_LINES).min(MOST_LINES);
    let lines = text.lines.iter().skip(from - 1).take(count);
    Ok(SourceAnswer {
        lines: lines.map(|line| texts::name(line)).collect(),
        from,
        total_lines: text.lines.len(),
        file: described(&loaded, &file, Some(&text), false, None),
    })
}
