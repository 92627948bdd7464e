//! The basic blocks in which a profile's addresses lie, found for the functions that have any.

use dioptra_instructions::{CallBlocks, ControlFlow, FunctionCode};
use dioptra_profile::{
    Dimension, FrameId, FunctionId, LineId, ModuleId, Names, Profile, aggregate,
};
use dioptra_symbols::{
    CodeError, ModuleCode, ModuleRequest, RelativeAddress, SymbolOptions, Symbolizer,
};
use std::collections::HashMap;
use std::ops::Range;

/// A basic block, or the part of a function that lies in no block because its code could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Its module.
    pub module: ModuleId,
    /// Its addresses in the module; `None` where the code could not be read.
    pub addresses: Option<Range<u64>>,
    /// The function whose code it is.
    pub function: FunctionId,
    /// The source line of most of its samples, where lines were asked for.
    pub line: Option<LineId>,
}

/// The blocks of all addresses of a profile.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    list: Vec<BlockPlace>,
    /// The number of each frame's block.
    of_frame: Vec<u32>,
    /// Modules or functions whose code could not be read, and why.
    notes: Vec<(ModuleId, String)>,
    /// The number of samples in no block, by module.
    without: Vec<(ModuleId, u64)>,
}

/// A function's control flow. Code is read function by function, and only the last one is kept.
struct Function {
    range: Range<u64>,
    flow: Option<ControlFlow>,
}

impl Blocks {
    /// Finds the block of every address of `profile`. A call does not end a block.
    pub fn find(profile: &Profile, names: &Names, options: SymbolOptions) -> Blocks {
        let options = SymbolOptions {
            demangle: false,
            recorded_kernel: Some(profile.recorded_kernel().clone()),
            ..options
        };
        let symbolizer = Symbolizer::new(options);
        let mut blocks = Blocks {
            of_frame: vec![0; profile.frames().len()],
            ..Blocks::default()
        };
        let mut by_module: HashMap<ModuleId, Vec<(u64, FrameId)>> = HashMap::new();
        for (id, frame) in (0..).zip(profile.frames().iter()) {
            let places = by_module.entry(frame.module).or_default();
            places.push((frame.address, id));
        }
        let mut modules: Vec<_> = by_module.into_iter().collect();
        modules.sort_unstable();
        for (module, mut places) in modules {
            places.sort_unstable();
            blocks.find_in(profile, names, module, &places, &symbolizer);
        }
        blocks.count(profile, names);
        blocks
    }

    /// Returns the same blocks for a selection of the profile's samples: each block's line, and the samples in no block,
    /// are those of the selection.
    pub fn of_selection(&self, selection: &Profile, names: &Names) -> Blocks {
        let mut blocks = self.clone();
        blocks.list.iter_mut().for_each(|block| block.line = None);
        blocks.without.clear();
        blocks.count(selection, names);
        blocks
    }

    fn find_in(
        &mut self,
        profile: &Profile,
        names: &Names,
        id: ModuleId,
        places: &[(u64, FrameId)],
        symbolizer: &Symbolizer,
    ) {
        let module = profile.modules().get(id);
        let request = ModuleRequest {
            kind: module.kind,
            path: module.path(),
            build_id: module.build_id.as_deref(),
        };
        let code = symbolizer.code(&request);
        let addresses = places.iter().map(|(address, _)| RelativeAddress(*address));
        let symbols = (!code.is_empty()).then(|| symbolizer.load_for(&request, addresses));
        self.notes
            .extend(code.notes().iter().map(|note| (id, note.to_string())));
        let mut known: HashMap<(FunctionId, Option<u64>), u32> = HashMap::new();
        let mut last: Option<Function> = None;
        for (address, frame) in places {
            let function = names.of_frame(*frame);
            if !last
                .as_ref()
                .is_some_and(|last| last.range.contains(address))
            {
                let range = symbols
                    .as_ref()
                    .and_then(|symbols| symbols.extent(RelativeAddress(*address)));
                last = range.map(|range| self.decode(id, &code, range));
            }
            let block = last.as_ref().and_then(|last| {
                let flow = last.flow.as_ref()?;
                Some(flow.blocks()[flow.block_at(*address)?].addresses.clone())
            });
            let key = (function, block.as_ref().map(|block| block.start));
            let list = &mut self.list;
            let place = *known.entry(key).or_insert_with(|| {
                list.push(BlockPlace {
                    module: id,
                    addresses: block,
                    function,
                    line: None,
                });
                // There are no more blocks than frames, whose number fits.
                u32::try_from(list.len() - 1).unwrap_or(u32::MAX)
            });
            self.of_frame[*frame as usize] = place;
        }
    }

    fn decode(
        &mut self,
        module: ModuleId,
        code: &ModuleCode,
        range: Range<RelativeAddress>,
    ) -> Function {
        let flow = match FunctionCode::of_module(code, range.clone()) {
            Ok(function) => Some(function.control_flow(CallBlocks::Continue)),
            Err(error) => {
                // The module's own notes say so already.
                if error != CodeError::NoCode {
                    self.notes.push((module, error.to_string()));
                }
                None
            }
        };
        Function {
            range: RelativeAddress::numbers(&range),
            flow,
        }
    }

    /// Finds the line with most samples of each block, and the number of samples in no block.
    fn count(&mut self, profile: &Profile, names: &Names) {
        let events = profile.sampled_events();
        let mut lines: HashMap<(u32, LineId), u64> = HashMap::new();
        let mut without: HashMap<ModuleId, u64> = HashMap::new();
        for row in aggregate(profile, names, Dimension::Address, &events) {
            let samples: u64 = row.counts.iter().map(|count| count.own.samples).sum();
            let block = self.of_frame[row.key as usize];
            if names.has_lines() {
                *lines.entry((block, names.line_of(row.key))).or_default() += samples;
            }
            let place = &self.list[block as usize];
            if place.addresses.is_none() && samples > 0 {
                *without.entry(place.module).or_default() += samples;
            }
        }
        self.without = without.into_iter().collect();
        self.without
            .sort_unstable_by_key(|(module, samples)| (std::cmp::Reverse(*samples), *module));
        let mut most = vec![0; self.list.len()];
        let mut lines: Vec<_> = lines.into_iter().collect();
        lines.sort_unstable();
        for ((block, line), samples) in lines {
            let index = block as usize;
            let is_known = names.lines()[line as usize].file.is_some();
            if is_known && samples > most[index] {
                most[index] = samples;
                self.list[index].line = Some(line);
            }
        }
    }

    /// Returns the number of a frame's block.
    #[inline]
    pub(crate) fn of(&self, frame: FrameId) -> u32 {
        self.of_frame.get(frame as usize).copied().unwrap_or(0)
    }

    /// Returns the block with this number.
    pub(crate) fn get(&self, block: u32) -> Option<&BlockPlace> {
        self.list.get(block as usize)
    }

    /// Returns the block with the number that is the key of its row.
    pub fn place(&self, block: u32) -> Option<&BlockPlace> {
        self.get(block)
    }

    /// Returns the number of samples in no block by module, the module with most first.
    pub fn without(&self) -> &[(ModuleId, u64)] {
        &self.without
    }

    /// Returns the modules whose code, or a function's code, could not be read, and why.
    pub fn notes(&self) -> &[(ModuleId, String)] {
        &self.notes
    }
}
