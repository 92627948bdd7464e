//! Stacks, frames, functions and mappings, which a sequence describes once and refers to by number.

use super::packets::sequence_of;
use crate::labels::Labels;
use crate::mappings::{Mapping, Mappings, file_name};
use crate::protobuf::Message;
use crate::source::Source;
use crate::strings::Strings;
use dioptra_profile::{FunctionId, ModuleId, StackId, Stacks};
use dioptra_symbols::ModuleKind;

/// The fields of `InternedData`.
mod interned_field {
    pub const FUNCTION_NAMES: u64 = 5;
    pub const FRAMES: u64 = 6;
    pub const CALLSTACKS: u64 = 7;
    pub const BUILD_IDS: u64 = 16;
    pub const MAPPING_PATHS: u64 = 17;
    pub const SOURCE_PATHS: u64 = 18;
    pub const MAPPINGS: u64 = 19;
}

/// `Frame.Kind`.
const KIND_NATIVE: u64 = 1;
const KIND_KERNEL: u64 = 2;

/// The things that a sequence has described, by their numbers.
pub(super) struct Sequence {
    /// The sequence's number.
    pub id: u32,
    functions: Vec<bool>,
    files: Vec<bool>,
    modules: Vec<bool>,
    /// By frame, for frames that executed and for frames that called.
    frames: [Vec<bool>; 2],
    stacks: Vec<bool>,
}

impl Sequence {
    /// Returns the sequence of an exported event, which has described nothing.
    pub(super) fn new(event: usize, interner: &Interner<'_>) -> Sequence {
        let profile = interner.source.profile;
        let frames = vec![false; profile.frames().len()];
        Sequence {
            id: sequence_of(event),
            functions: vec![false; interner.source.names.functions().len()],
            files: Vec::new(),
            modules: vec![false; profile.modules().len()],
            frames: [frames.clone(), frames],
            stacks: vec![false; profile.stacks().len()],
        }
    }
}

/// The numbers of all things that sequences describe.
pub(super) struct Interner<'a> {
    source: &'a Source<'a>,
    labels: Labels,
    mappings: Mappings,
    files: Strings,
    /// By frame, for frames that executed and for frames that called: the number of the innermost function's frame, or
    /// 0. The frames of the functions around it follow.
    frames: [Vec<u64>; 2],
    next_frame: u64,
    /// Messages that are used again and again.
    stack: Message,
    item: Message,
}

/// Marks a thing as described, and returns whether it was not.
fn is_new(described: &mut Vec<bool>, place: usize) -> bool {
    if described.len() <= place {
        described.resize(place + 1, false);
    }
    !std::mem::replace(&mut described[place], true)
}

impl<'a> Interner<'a> {
    pub(super) fn new(source: &'a Source<'a>) -> Self {
        let frames = vec![0; source.profile.frames().len()];
        Interner {
            source,
            labels: Labels::new(source),
            mappings: Mappings::of(source),
            files: Strings::default(),
            frames: [frames.clone(), frames],
            next_frame: 1,
            stack: Message::default(),
            item: Message::default(),
        }
    }

    /// Returns whether the innermost frame of a stack lies in the kernel; `None` for the empty stack.
    pub(super) fn is_in_kernel(&self, stack: StackId) -> Option<bool> {
        let profile = self.source.profile;
        if stack == Stacks::ROOT {
            return None;
        }
        let frame = profile.stacks().get(stack).frame;
        let module = profile.frames().get(frame).module;
        Some(profile.modules().get(module).kind == ModuleKind::Kernel)
    }

    /// Makes `into` the description of a stack and of all that it refers to, as far as the sequence lacks them.
    /// Returns whether it lacked anything.
    pub(super) fn describe(
        &mut self,
        sequence: &mut Sequence,
        stack: StackId,
        into: &mut Message,
    ) -> bool {
        into.clear();
        if stack == Stacks::ROOT || !is_new(&mut sequence.stacks, stack as usize) {
            return false;
        }
        let source = self.source;
        let mut frames = Vec::new();
        for frame in source.stack_frames(stack) {
            let role = usize::from(frame.is_caller);
            let place = frame.frame as usize;
            let number = frame.functions.len() as u64;
            if self.frames[role][place] == 0 {
                self.frames[role][place] = self.next_frame;
                self.next_frame += number;
            }
            let first = self.frames[role][place];
            frames.extend(first..first + number);
            if !is_new(&mut sequence.frames[role], place) {
                continue;
            }
            let location = source.profile.frames().get(frame.frame);
            let mapping = self.mapping(sequence, location.module, into);
            for (at, function) in frame.functions.iter().enumerate() {
                self.function(sequence, *function, into);
                let line = frame.line(source, at);
                let file = line.map(|(file, _)| self.file(sequence, file, into));
                let item = &mut self.item;
                item.clear();
                item.number(1, first + at as u64);
                item.number(2, u64::from(*function) + 1);
                item.number(3, mapping);
                item.stated(4, location.address);
                if let Some(file) = file {
                    item.number(5, file);
                }
                if let Some((_, Some(line))) = line {
                    item.number(6, u64::from(line));
                }
                match source.profile.modules().get(location.module).kind {
                    ModuleKind::File | ModuleKind::Vdso => item.number(7, KIND_NATIVE),
                    ModuleKind::Kernel => item.number(7, KIND_KERNEL),
                    ModuleKind::NotAFile => {}
                }
                into.message(interned_field::FRAMES, item);
            }
        }
        self.stack.clear();
        self.stack.number(1, u64::from(stack));
        // The outermost frame is first. Perfetto's reader takes no packed lists here.
        for frame in frames.into_iter().rev() {
            self.stack.number(2, frame);
        }
        into.message(interned_field::CALLSTACKS, &self.stack);
        true
    }

    /// Adds a numbered text.
    fn text(&mut self, field: u64, number: u64, text: &[u8], into: &mut Message) {
        self.item.clear();
        self.item.number(1, number);
        self.item.text(2, text);
        into.message(field, &self.item);
    }

    fn function(&mut self, sequence: &mut Sequence, function: FunctionId, into: &mut Message) {
        if is_new(&mut sequence.functions, function as usize) {
            let name = self.labels.of(self.source, function).to_owned();
            let number = u64::from(function) + 1;
            self.text(
                interned_field::FUNCTION_NAMES,
                number,
                name.as_bytes(),
                into,
            );
        }
    }

    /// Returns a source file's number.
    fn file(&mut self, sequence: &mut Sequence, file: &str, into: &mut Message) -> u64 {
        let number = self.files.id(file.as_bytes());
        if number != 0 && is_new(&mut sequence.files, number as usize) {
            self.text(interned_field::SOURCE_PATHS, number, file.as_bytes(), into);
        }
        number
    }

    /// Returns the number of a module's mapping; 0 if it has none.
    fn mapping(&mut self, sequence: &mut Sequence, module: ModuleId, into: &mut Message) -> u64 {
        let Some(mapping) = self.mappings.of_module(module) else {
            return 0;
        };
        let Mapping {
            id,
            start,
            end,
            offset,
            ..
        } = mapping;
        if !is_new(&mut sequence.modules, module as usize) {
            return id;
        }
        let module = self.source.profile.modules().get(module);
        self.text(interned_field::MAPPING_PATHS, id, file_name(module), into);
        if let Some(build_id) = &module.build_id {
            self.text(interned_field::BUILD_IDS, id, build_id, into);
        }
        let item = &mut self.item;
        item.clear();
        item.number(1, id);
        if module.build_id.is_some() {
            item.number(2, id);
        }
        item.stated(4, start);
        item.stated(5, end);
        item.number(7, id);
        item.stated(8, offset);
        into.message(interned_field::MAPPINGS, item);
        id
    }
}
