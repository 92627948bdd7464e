//! The tables of all profiles. Entries of a table differ from each other, and the first one is empty.

use crate::labels::Labels;
use crate::mappings::{Mappings, file_name};
use crate::protobuf::Message;
use crate::source::Source;
use crate::stack_calls::StackFrame;
use crate::strings::{Distinct, Strings};
use dioptra_profile::{FunctionId, ModuleId, SampleKeyId, StackId};
use dioptra_symbols::ModuleKind;

/// The fields of `ProfilesDictionary`.
mod table_field {
    pub const MAPPINGS: u64 = 1;
    pub const LOCATIONS: u64 = 2;
    pub const FUNCTIONS: u64 = 3;
    pub const LINKS: u64 = 4;
    pub const STRINGS: u64 = 5;
    pub const ATTRIBUTES: u64 = 6;
    pub const STACKS: u64 = 7;
}

/// The value of an attribute.
enum Attribute<'a> {
    Text(&'a str),
    Number(u32),
}

/// The tables, filled while profiles refer to entries.
///
/// The format's references have 31 bits. Entries take more than one byte each, and a message has less than 2 GiB.
pub(super) struct Dictionary<'a> {
    source: &'a Source<'a>,
    labels: Labels,
    places: Mappings,
    strings: Strings,
    mappings: Distinct,
    locations: Distinct,
    functions: Distinct,
    attributes: Distinct,
    stacks: Distinct,
    /// By stack: its number.
    known_stacks: Vec<Option<u64>>,
    /// By frame, for frames that executed and for frames that called: the location's number, or 0.
    known_locations: [Vec<u64>; 2],
    /// By module: its mapping's number.
    known_mappings: Vec<Option<u64>>,
    /// By sample key: the numbers of its attributes.
    known_keys: Vec<Option<Vec<u64>>>,
    /// Messages that are used again and again.
    item: Message,
    inner: Message,
    room: Message,
}

/// Returns a value of the type `AnyValue`.
pub(super) fn any_text(text: &str) -> Message {
    let mut value = Message::default();
    value.text(1, text.as_bytes());
    value
}

impl<'a> Dictionary<'a> {
    pub(super) fn new(source: &'a Source<'a>) -> Self {
        let profile = source.profile;
        let locations = vec![0; profile.frames().len()];
        Dictionary {
            source,
            labels: Labels::new(source),
            places: Mappings::of(source),
            strings: Strings::default(),
            mappings: Distinct::default(),
            locations: Distinct::default(),
            functions: Distinct::default(),
            attributes: Distinct::default(),
            stacks: Distinct::default(),
            known_stacks: vec![None; profile.stacks().len()],
            known_locations: [locations.clone(), locations],
            known_mappings: vec![None; profile.modules().len()],
            known_keys: Vec::new(),
            item: Message::default(),
            inner: Message::default(),
            room: Message::default(),
        }
    }

    /// Returns the number of a string.
    pub(super) fn string(&mut self, text: &str) -> u64 {
        self.strings.id(text.as_bytes())
    }

    fn attribute(&mut self, key: &str, value: &Attribute<'_>) -> u64 {
        let key = self.string(key);
        self.inner.clear();
        match value {
            Attribute::Text(text) => self.inner.text(1, text.as_bytes()),
            Attribute::Number(number) => self.inner.stated(3, u64::from(*number)),
        }
        self.item.clear();
        self.item.number(1, key);
        self.item.message(2, &self.inner);
        self.attributes.id(self.item.bytes())
    }

    /// Returns the numbers of a sample key's attributes: process, thread and CPU.
    pub(super) fn sample_key(&mut self, sample_key: SampleKeyId) -> Vec<u64> {
        let place = sample_key as usize;
        if let Some(Some(known)) = self.known_keys.get(place) {
            return known.clone();
        }
        let source = self.source;
        let key = source.profile.sample_keys().get(sample_key);
        let mut attributes = Vec::new();
        if let Some(thread) = key.thread {
            let tasks = source.profile.tasks();
            let thread = &tasks.threads()[thread as usize];
            let process = &tasks.processes()[thread.process as usize];
            if process.pid != u32::MAX {
                attributes.push(self.attribute("process.pid", &Attribute::Number(process.pid)));
            }
            attributes.push(self.attribute("thread.id", &Attribute::Number(thread.tid)));
            let comm = tasks.comm_of(key);
            attributes.push(self.attribute("thread.name", &Attribute::Text(&comm)));
        }
        if let Some(cpu) = key.cpu {
            attributes.push(self.attribute("cpu.logical_number", &Attribute::Number(cpu)));
        }
        if self.known_keys.len() <= place {
            self.known_keys.resize(place + 1, None);
        }
        self.known_keys[place] = Some(attributes.clone());
        attributes
    }

    /// Returns the number of a stack.
    pub(super) fn stack(&mut self, stack: StackId) -> u64 {
        if let Some(known) = self.known_stacks[stack as usize] {
            return known;
        }
        let source = self.source;
        let mut locations = Vec::new();
        for frame in source.stack_frames(stack) {
            locations.push(self.location(&frame));
        }
        self.item.clear();
        // The innermost location is first.
        self.item.packed(1, locations, &mut self.room);
        let id = self.stacks.id(self.item.bytes());
        self.known_stacks[stack as usize] = Some(id);
        id
    }

    fn location(&mut self, frame: &StackFrame<'_>) -> u64 {
        let role = usize::from(frame.is_caller);
        let known = self.known_locations[role][frame.frame as usize];
        if known != 0 {
            return known;
        }
        let source = self.source;
        let mut lines = Vec::with_capacity(frame.functions.len());
        for (place, function) in frame.functions.iter().enumerate() {
            let line = frame.line(source, place);
            let file = line.map_or("", |(file, _)| file);
            let number = line.and_then(|(_, number)| number).unwrap_or(0);
            lines.push((self.function(*function, file), number));
        }
        let place = source.profile.frames().get(frame.frame);
        let mapping = self.mapping(place.module);
        let kind = match source.profile.modules().get(place.module).kind {
            ModuleKind::Kernel => Some("kernel"),
            ModuleKind::File | ModuleKind::Vdso => Some("native"),
            ModuleKind::NotAFile => None,
        };
        let kind = kind.map(|kind| self.attribute("profile.frame.type", &Attribute::Text(kind)));
        let (_, address) = self.places.address(place);
        self.item.clear();
        self.item.number(1, mapping);
        self.item.number(2, address);
        for (function, line) in lines {
            self.inner.clear();
            self.inner.number(1, function);
            self.inner.number(2, u64::from(line));
            self.item.message(3, &self.inner);
        }
        self.item.packed(4, kind, &mut self.room);
        let id = self.locations.id(self.item.bytes());
        self.known_locations[role][frame.frame as usize] = id;
        id
    }

    fn function(&mut self, function: FunctionId, file: &str) -> u64 {
        let name = self.labels.of(self.source, function);
        let name = self.strings.id(name.as_bytes());
        let file = self.string(file);
        self.inner.clear();
        self.inner.number(1, name);
        self.inner.number(3, file);
        self.functions.id(self.inner.bytes())
    }

    fn mapping(&mut self, module: ModuleId) -> u64 {
        if let Some(known) = self.known_mappings[module as usize] {
            return known;
        }
        let id = self.new_mapping(module).unwrap_or(0);
        self.known_mappings[module as usize] = Some(id);
        id
    }

    fn new_mapping(&mut self, module: ModuleId) -> Option<u64> {
        let mapping = self.places.of_module(module)?;
        let module = self.source.profile.modules().get(module);
        let build_id = module.build_id.as_ref().map(|bytes| {
            let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let key = "process.executable.build_id.gnu";
            self.attribute(key, &Attribute::Text(&text))
        });
        let name = self.strings.id(file_name(module));
        self.item.clear();
        self.item.number(1, mapping.start);
        self.item.number(2, mapping.end);
        self.item.number(3, mapping.offset);
        self.item.number(4, name);
        self.item.packed(5, build_id, &mut self.room);
        Some(self.mappings.id(self.item.bytes()))
    }

    /// Returns the message of all tables.
    pub(super) fn encode(self) -> Message {
        let mut dictionary = Message::default();
        // Each table begins with an empty entry, that of links, too.
        dictionary.text(table_field::LINKS, b"");
        let tables = [
            (table_field::MAPPINGS, self.mappings.in_order()),
            (table_field::LOCATIONS, self.locations.in_order()),
            (table_field::FUNCTIONS, self.functions.in_order()),
            (table_field::STRINGS, self.strings.in_order()),
            (table_field::ATTRIBUTES, self.attributes.in_order()),
            (table_field::STACKS, self.stacks.in_order()),
        ];
        for (field, entries) in tables {
            for entry in entries {
                dictionary.text(field, &entry);
            }
        }
        dictionary
    }
}
