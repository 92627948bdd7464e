//! Code of the modules that are on this machine.

use super::code::{Code, CodeOutline, Flow, OutlineInstruction, OutlineLoop};
use crate::hash::FxBuildHasher;
use crate::processes::modules::{ModuleId, Modules};
use dioptra_instructions::{CallBlocks, FunctionCode, InstructionKind};
use dioptra_symbols::{ModuleCode, ModuleRequest, ModuleSymbols, RelativeAddress, Symbolizer};
use hashbrown::HashMap;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The code of a profile's modules, read from their files on demand and cached.
pub struct SymbolCode<'a> {
    modules: &'a Modules,
    symbolizer: &'a Symbolizer,
    known: RefCell<HashMap<ModuleId, Rc<KnownModule>, FxBuildHasher>>,
}

/// A module whose code was asked for.
struct KnownModule {
    symbols: ModuleSymbols,
    code: ModuleCode,
    /// By first address.
    functions: RefCell<HashMap<RelativeAddress, Option<Arc<CodeOutline>>, FxBuildHasher>>,
}

impl<'a> SymbolCode<'a> {
    /// Makes a provider of the code of `modules`, found as `symbolizer` finds files. Modules that are not on this
    /// machine and code of JIT compilers have none.
    pub fn new(modules: &'a Modules, symbolizer: &'a Symbolizer) -> Self {
        SymbolCode {
            modules,
            symbolizer,
            known: RefCell::default(),
        }
    }

    fn module(&self, id: ModuleId) -> Rc<KnownModule> {
        let mut known = self.known.borrow_mut();
        let module = known.entry(id).or_insert_with(|| {
            let module = self.modules.get(id);
            let request = ModuleRequest {
                kind: module.kind,
                path: module.path(),
                build_id: module.build_id.as_deref(),
            };
            Rc::new(KnownModule {
                symbols: self.symbolizer.load(&request),
                code: self.symbolizer.code(&request),
                functions: RefCell::default(),
            })
        });
        Rc::clone(module)
    }
}

impl Code for SymbolCode<'_> {
    fn function(&self, module: ModuleId, address: u64) -> Option<Arc<CodeOutline>> {
        let module = self.module(module);
        if module.code.is_empty() {
            return None;
        }
        let extent = module.symbols.extent(RelativeAddress(address))?;
        let mut functions = module.functions.borrow_mut();
        let outline = functions.entry(extent.start).or_insert_with(|| {
            let code = FunctionCode::of_module(&module.code, extent).ok()?;
            Some(Arc::new(CodeOutline::of(&code)))
        });
        outline.clone()
    }
}

impl CodeOutline {
    /// Returns the outline of decoded code. Blocks go on after a call.
    pub fn of(code: &FunctionCode) -> Self {
        let instructions = code.instructions().map(|instruction| OutlineInstruction {
            address: instruction.address,
            flow: instruction.kind.into(),
        });
        let flow = code.control_flow(CallBlocks::Continue);
        let nest = flow.loops();
        let loops = nest.loops().iter().enumerate();
        CodeOutline::new(
            code.addresses(),
            instructions.collect(),
            flow.blocks()
                .iter()
                .map(|block| block.instructions.clone())
                .collect(),
            loops
                .map(|(number, natural)| OutlineLoop {
                    header: natural.header,
                    blocks: nest.blocks_of(number).collect(),
                    parent: natural.parent,
                })
                .collect(),
        )
    }
}

impl From<InstructionKind> for Flow {
    fn from(kind: InstructionKind) -> Self {
        match kind {
            InstructionKind::Sequential => Flow::Sequential,
            InstructionKind::ConditionalJump => Flow::Conditional,
            InstructionKind::Jump => Flow::Jump,
            InstructionKind::IndirectJump => Flow::IndirectJump,
            InstructionKind::Call => Flow::Call,
            InstructionKind::IndirectCall => Flow::IndirectCall,
            InstructionKind::Return => Flow::Return,
            InstructionKind::SystemCall => Flow::SystemCall,
            // Traps, and bytes that are no instruction.
            _ => Flow::Stop,
        }
    }
}
