//! The stacks and sample keys of a profile, as entries of a request's tables.

use super::requests::Descriptions;
use super::tables::{Attribute, MappingEntry, Tables};
use crate::labels::Labels;
use crate::mappings::{Mappings, file_name};
use crate::source::Source;
use crate::stack_calls::StackFrame;
use dioptra_profile::{FunctionId, ModuleId, SampleKeyId, StackId};
use dioptra_symbols::ModuleKind;

/// The entries of a profile's stacks and sample keys.
pub(super) struct Dictionary<'a> {
    source: &'a Source<'a>,
    labels: Labels,
    places: Mappings,
    /// By stack: its number.
    known_stacks: Vec<Option<u64>>,
    /// By frame, for frames that executed and for frames that called: the location's number, or 0.
    known_locations: [Vec<u64>; 2],
    /// By module: its mapping's number.
    known_mappings: Vec<Option<u64>>,
    /// By sample key: the numbers of its attributes.
    known_keys: Vec<Option<Vec<u64>>>,
}

impl<'a> Dictionary<'a> {
    pub(super) fn new(source: &'a Source<'a>) -> Self {
        let profile = source.profile;
        let locations = vec![0; profile.frames().len()];
        Dictionary {
            source,
            labels: Labels::new(source),
            places: Mappings::of(source),
            known_stacks: vec![None; profile.stacks().len()],
            known_locations: [locations.clone(), locations],
            known_mappings: vec![None; profile.modules().len()],
            known_keys: Vec::new(),
        }
    }

    fn location(&mut self, tables: &mut Tables, frame: &StackFrame<'_>) -> u64 {
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
            lines.push((self.function(tables, *function, file), number));
        }
        let place = source.profile.frames().get(frame.frame);
        let mapping = self.mapping(tables, place.module);
        let kind = match source.profile.modules().get(place.module).kind {
            ModuleKind::Kernel => Some("kernel"),
            ModuleKind::File | ModuleKind::Vdso => Some("native"),
            ModuleKind::NotAFile => None,
        };
        let kind = kind.map(|kind| tables.attribute("profile.frame.type", Attribute::Text(kind)));
        let (_, address) = self.places.address(place);
        let id = tables.location(mapping, address, &lines, kind);
        self.known_locations[role][frame.frame as usize] = id;
        id
    }

    fn function(&mut self, tables: &mut Tables, function: FunctionId, file: &str) -> u64 {
        tables.function(self.labels.of(self.source, function), file)
    }

    fn mapping(&mut self, tables: &mut Tables, module: ModuleId) -> u64 {
        if let Some(known) = self.known_mappings[module as usize] {
            return known;
        }
        let id = self.new_mapping(tables, module).unwrap_or(0);
        self.known_mappings[module as usize] = Some(id);
        id
    }

    fn new_mapping(&mut self, tables: &mut Tables, module: ModuleId) -> Option<u64> {
        let mapping = self.places.of_module(module)?;
        let module = self.source.profile.modules().get(module);
        let build_id: Option<String> = module
            .build_id
            .as_ref()
            .map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        Some(tables.mapping(&MappingEntry {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            file: file_name(module),
            build_id: build_id.as_deref(),
        }))
    }

    fn new_attributes(&self, tables: &mut Tables, sample_key: SampleKeyId) -> Vec<u64> {
        let source = self.source;
        let key = source.profile.sample_keys().get(sample_key);
        let mut attributes = Vec::new();
        if let Some(thread) = key.thread {
            let tasks = source.profile.tasks();
            let thread = &tasks.threads()[thread as usize];
            let process = &tasks.processes()[thread.process as usize];
            if process.pid != u32::MAX {
                attributes.push(tables.attribute("process.pid", Attribute::Number(process.pid)));
            }
            attributes.push(tables.attribute("thread.id", Attribute::Number(thread.tid)));
            let comm = tasks.comm_of(key);
            attributes.push(tables.attribute("thread.name", Attribute::Text(&comm)));
        }
        if let Some(cpu) = key.cpu {
            attributes.push(tables.attribute("cpu.logical_number", Attribute::Number(cpu)));
        }
        attributes
    }
}

impl Descriptions for Dictionary<'_> {
    fn stack(&mut self, tables: &mut Tables, stack: usize) -> u64 {
        if let Some(known) = self.known_stacks[stack] {
            return known;
        }
        let source = self.source;
        let mut locations = Vec::new();
        // Stacks have 32-bit numbers.
        for frame in source.stack_frames(stack as StackId) {
            locations.push(self.location(tables, &frame));
        }
        let id = tables.stack(locations);
        self.known_stacks[stack] = Some(id);
        id
    }

    /// Returns the numbers of a sample key's attributes: process, thread and CPU.
    fn attributes(&mut self, tables: &mut Tables, key: usize) -> Vec<u64> {
        if let Some(Some(known)) = self.known_keys.get(key) {
            return known.clone();
        }
        let attributes = self.new_attributes(tables, key as SampleKeyId);
        if self.known_keys.len() <= key {
            self.known_keys.resize(key + 1, None);
        }
        self.known_keys[key] = Some(attributes.clone());
        attributes
    }

    fn forget(&mut self) {
        self.known_stacks.fill(None);
        for known in &mut self.known_locations {
            known.fill(0);
        }
        self.known_mappings.fill(None);
        self.known_keys.clear();
    }
}
