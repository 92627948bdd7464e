//! Hashes of the code of functions without names, by which they are known again after they moved.

use dioptra_instructions::{FunctionCode, InstructionText, Syntax};
use dioptra_profile::{FunctionId, Names, Profile};
use dioptra_symbols::{ModuleRequest, RelativeAddress, SymbolOptions, Symbolizer};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The least number of instructions of a function with a shape. Shorter functions are too much alike.
const LEAST: usize = 8;

/// The shapes of functions without names: hashes of their code that do not depend on where it lies. A function has
/// none if another one has the same shape, or if its code is short or cannot be read.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    of: HashMap<FunctionId, u64>,
}

impl Shapes {
    /// Reads the code of all functions without names.
    pub fn find(profile: &Profile, names: &Names, options: SymbolOptions) -> Shapes {
        let options = SymbolOptions {
            demangle: false,
            recorded_kernel: Some(profile.recorded_kernel().clone()),
            ..options
        };
        let symbolizer = Symbolizer::new(options);
        let text = InstructionText::new(Syntax::AtAndT);
        // For each module, the nameless functions and an address in each.
        let mut nameless: HashMap<u32, HashMap<FunctionId, u64>> = HashMap::new();
        for (id, frame) in (0..).zip(profile.frames().iter()) {
            let function = names.of_frame(id);
            let named = names.functions().get(function as usize);
            if named.is_some_and(|known| known.is_nameless() && !known.is_unknown()) {
                let of_module = nameless.entry(frame.module).or_default();
                of_module.insert(function, frame.address);
            }
        }
        let mut of = HashMap::new();
        for (module, functions) in nameless {
            let module = profile.modules().get(module);
            let request = ModuleRequest {
                kind: module.kind,
                path: module.path(),
                build_id: module.build_id.as_deref(),
            };
            let code = symbolizer.code(&request);
            if code.is_empty() {
                continue;
            }
            let addresses = functions.values().copied().map(RelativeAddress);
            let symbols = symbolizer.load_for(&request, addresses);
            // A shape that several functions share is no function's.
            let mut by_shape: HashMap<u64, Option<FunctionId>> = HashMap::new();
            for (function, address) in functions {
                let range = symbols.extent(RelativeAddress(address));
                let decoded = range.and_then(|range| FunctionCode::of_module(&code, range).ok());
                if let Some(shape) = decoded.and_then(|decoded| shape(&decoded, &text)) {
                    let only = by_shape.entry(shape).or_insert(Some(function));
                    if *only != Some(function) {
                        *only = None;
                    }
                }
            }
            let known = by_shape.into_iter();
            of.extend(known.filter_map(|(shape, function)| Some((function?, shape))));
        }
        Shapes { of }
    }

    /// Returns the shape of a function.
    pub(crate) fn of(&self, function: FunctionId) -> Option<u64> {
        self.of.get(&function).copied()
    }
}

/// Hashes the instructions without the parts that name a place outside of the function.
fn shape(code: &FunctionCode, text: &InstructionText) -> Option<u64> {
    if code.len() < LEAST {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    let range = code.addresses();
    for instruction in code.instructions() {
        let inside = instruction
            .target
            .and_then(|target| target.address)
            .filter(|address| range.contains(address));
        if let Some(address) = inside {
            (instruction.bytes.len(), address - range.start).hash(&mut hasher);
        } else if instruction.target.is_some() || text.data_address(code, &instruction).is_some() {
            // The first byte stands for the opcode; the distance that follows depends on where the code lies.
            (instruction.bytes.len(), instruction.bytes.first()).hash(&mut hasher);
        } else {
            instruction.bytes.hash(&mut hasher);
        }
    }
    Some(hasher.finish())
}
