//! The function's machine code, and the targets of its instructions.

use super::find::{FoundFunction, request};
use super::model::{AddressCount, AddressFrame, AnnotateOptions, AnnotatedAddress, JumpTarget};
use crate::profile_facts::remedy;
use dioptra_instructions::{
    CallBlocks, ControlFlow, FunctionCode, Instruction, InstructionText, Syntax,
};
use dioptra_profile::Module;
use dioptra_symbols::{
    CodeError, CodeMachine, FileAddress, ModuleCode, ModuleKind, ModuleSymbols, Note,
    RelativeAddress, Symbolizer, demangle,
};
use dioptra_tables::Remedy;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Linker names of functions that do not return, sorted for binary search. Code after their calls is not reached from
/// there.
const NO_RETURN: &[&str] = &[
    "_Exit",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "__assert",
    "__assert_fail",
    "__assert_perror_fail",
    "__chk_fail",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_pure_virtual",
    "__cxa_rethrow",
    "__cxa_throw",
    "__cxa_throw_bad_array_new_length",
    "__fortify_fail",
    "__libc_fatal",
    "__longjmp_chk",
    "__rust_start_panic",
    "__stack_chk_fail",
    "_exit",
    "abort",
    "exit",
    "longjmp",
    "pthread_exit",
    "quick_exit",
    "rust_panic",
    "siglongjmp",
];

/// The reason why a function's instructions can't be shown.
#[derive(Debug, Error)]
pub(super) enum NoInstructions {
    #[error("the code had no file, and nothing is left of it")]
    Gone,
    #[error("nothing tells where this function begins and ends")]
    NoExtent,
    #[error("it belongs to {0}; code of loadable kernel modules is not read")]
    OfKernelModule(String),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Unread(Vec<Note>),
    #[error(transparent)]
    Code(#[from] CodeError),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{}: is no file", .0.display())]
    NotAFile(PathBuf),
    #[error("{}: instructions of machine {machine}, neither x86's nor 64-bit Arm's", path.display())]
    Machine { path: PathBuf, machine: u32 },
    #[error("{}: {length} bytes are no function", path.display())]
    TooLong { path: PathBuf, length: u64 },
}

impl NoInstructions {
    pub(super) fn remedy(&self) -> Option<Remedy> {
        match self {
            NoInstructions::Unread(notes) => notes.iter().find_map(remedy),
            _ => None,
        }
    }
}

/// Beginnings of the linker names of Rust's panicking functions, which do not return either.
const NO_RETURN_BEGINNINGS: &[&str] = &[
    "_ZN4core9panicking",
    "_ZN3std9panicking",
    "_ZN4core6option13unwrap_failed",
    "_ZN4core6option13expect_failed",
    "_ZN4core6result13unwrap_failed",
    "_ZN4core5slice5index24slice_end_index_len_fail",
    "_ZN4core5slice5index26slice_start_index_len_fail",
    "_ZN5alloc7raw_vec12handle_error",
    "_ZN5alloc7raw_vec17capacity_overflow",
    "_ZN5alloc5alloc18handle_alloc_error",
];

fn returns(raw_name: &str) -> bool {
    let name = raw_name.strip_suffix("@plt").unwrap_or(raw_name);
    // `std::__throw_length_error` and its kin.
    let throws = name.strip_prefix("_ZSt").is_some_and(|name| {
        name.trim_start_matches(|letter: char| letter.is_ascii_digit())
            .starts_with("__throw_")
    });
    let panics = NO_RETURN_BEGINNINGS
        .iter()
        .any(|beginning| name.starts_with(beginning));
    !throws && !panics && NO_RETURN.binary_search(&name).is_err()
}

/// A function's code.
pub(super) struct Decoded {
    pub code: FunctionCode,
    /// The symbols outside of the function to which its instructions lead.
    symbols: ModuleSymbols,
    /// The module's code, which turns virtual addresses into relative ones; `None` for code without a file.
    module: Option<ModuleCode>,
    text: InstructionText,
    syntax: Syntax,
    demangle: bool,
}

/// Decodes a function.
///
/// # Errors
/// The reason why there is no code.
pub(super) fn decode(
    symbolizer: &Symbolizer,
    found: &FoundFunction,
    module: &Module,
    options: &AnnotateOptions,
) -> Result<Decoded, NoInstructions> {
    // The notes of the module's code say more than the failure that follows from them.
    let explained = |code: &ModuleCode, otherwise: NoInstructions| match code.notes() {
        [] => otherwise,
        notes => NoInstructions::Unread(notes.to_vec()),
    };
    if module.kind == ModuleKind::NotAFile {
        let addresses = found.addresses.clone();
        let addresses = addresses.ok_or(NoInstructions::Gone)?;
        return Ok(Decoded {
            code: decode_jit(module, addresses, options)?,
            symbols: ModuleSymbols::default(),
            module: None,
            text: InstructionText::new(options.syntax),
            syntax: options.syntax,
            demangle: options.demangle,
        });
    }
    let of_module = symbolizer.code(&request(module));
    let Some(addresses) = found.addresses.clone() else {
        return Err(explained(&of_module, NoInstructions::NoExtent));
    };
    let addresses = RelativeAddress::range(addresses);
    let start = addresses.start;
    let code = FunctionCode::of_module(&of_module, addresses).map_err(|error| {
        let symbols = symbolizer.load_for(&request(module), [start]);
        let owner = symbols.function(start).and_then(|found| found.module);
        match owner {
            Some(owner) => NoInstructions::OfKernelModule(owner.to_owned()),
            None => explained(&of_module, error.into()),
        }
    })?;
    let text = InstructionText::new(options.syntax);
    let mut wanted = Vec::new();
    for instruction in code.instructions() {
        let to = leads_to(&code, &instruction, &text, &of_module);
        wanted.extend(to.map(|(address, _)| RelativeAddress(address)));
    }
    Ok(Decoded {
        symbols: symbolizer.load_for(&request(module), wanted),
        code,
        module: Some(of_module),
        text,
        syntax: options.syntax,
        demangle: options.demangle,
    })
}

/// Decodes a function of a JIT compiler, whose code lies in its jitdump file.
fn decode_jit(
    module: &Module,
    addresses: Range<u64>,
    options: &AnnotateOptions,
) -> Result<FunctionCode, NoInstructions> {
    use std::os::unix::fs::FileExt;
    let path: PathBuf = match &options.sources.symfs {
        Some(root) => root.join(module.path().strip_prefix("/").unwrap_or(module.path())),
        None => module.path().to_path_buf(),
    };
    let failed = |error: io::Error| NoInstructions::Io {
        path: path.clone(),
        error,
    };
    let is_file = std::fs::metadata(&path).map_err(failed)?.is_file();
    if !is_file {
        return Err(NoInstructions::NotAFile(path));
    }
    let file = std::fs::File::open(&path).map_err(failed)?;
    /// The offset of the machine's number in the file's header; the number is that of ELF files.
    const MACHINE: u64 = 12;
    let mut machine = [0; 4];
    file.read_exact_at(&mut machine, MACHINE).map_err(failed)?;
    let machine = match u32::from_ne_bytes(machine) {
        62 => CodeMachine::X86_64,
        3 => CodeMachine::I386,
        183 => CodeMachine::Aarch64,
        other => {
            return Err(NoInstructions::Machine {
                path,
                machine: other,
            });
        }
    };
    let length = addresses.end - addresses.start;
    /// The size in bytes of the longest function that is read.
    const MOST: u64 = 4 << 20;
    if length > MOST {
        return Err(NoInstructions::TooLong { path, length });
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, addresses.start)
        .map_err(failed)?;
    let (start, code) = (addresses.start, &());
    Ok(FunctionCode::decode(machine, bytes, start, start, code)?)
}

/// Returns the relative and the virtual address to which an instruction leads: its target, else the code whose
/// address it takes.
fn leads_to(
    code: &FunctionCode,
    instruction: &Instruction<'_>,
    text: &InstructionText,
    module: &ModuleCode,
) -> Option<(u64, u64)> {
    if let Some(target) = instruction.target {
        return Some((target.address?, target.virtual_address));
    }
    let data = text.data_address(code, instruction)?;
    Some((module.relative(FileAddress(data))?.0, data))
}

impl Decoded {
    /// Returns the control flow. A call ends a block if it does not return.
    pub fn control_flow(&self) -> ControlFlow {
        let calls = |instruction: &Instruction<'_>| {
            let target = instruction.target.and_then(|target| target.address);
            let target = target.map(RelativeAddress);
            let callee = target.and_then(|address| self.symbols.function(address));
            callee.is_none_or(|callee| returns(callee.raw_name))
        };
        self.code.control_flow_where(CallBlocks::Continue, calls)
    }

    /// Returns the kernel's file if the code is the kernel's.
    pub fn kernel_file(&self) -> Option<&Path> {
        self.module.as_ref()?.kernel_file()
    }

    /// Returns the name of the function at a relative address outside of this one, and the address's distance from
    /// its start.
    pub fn function_at(&self, address: u64) -> Option<(String, u64)> {
        if self.code.addresses().contains(&address) {
            return None;
        }
        let address = RelativeAddress(address);
        let function = self.symbols.function(address)?;
        let name = if self.demangle {
            demangle(function.raw_name).into_owned()
        } else {
            function.raw_name.to_owned()
        };
        Some((name, address - function.start))
    }

    fn target(&self, instruction: &Instruction<'_>) -> Option<JumpTarget> {
        if let Some(target) = instruction.target {
            let place = target
                .address
                .and_then(|address| self.code.index_of(address));
            return Some(JumpTarget {
                virtual_address: target.virtual_address,
                place,
                function: target.address.and_then(|address| self.function_at(address)),
            });
        }
        let module = self.module.as_ref()?;
        let (address, virtual_address) = leads_to(&self.code, instruction, &self.text, module)?;
        Some(JumpTarget {
            virtual_address,
            place: None,
            function: Some(self.function_at(address)?),
        })
    }

    /// Returns all instructions as places; `frames` returns the functions that execute at an instruction.
    pub fn places(
        &self,
        events: usize,
        mut frames: impl FnMut(&Instruction<'_>) -> Vec<AddressFrame>,
    ) -> Vec<AnnotatedAddress> {
        let mut text = InstructionText::new(self.syntax);
        let mut places: Vec<AnnotatedAddress> = Vec::with_capacity(self.code.len());
        for instruction in self.code.instructions() {
            let frames = frames(&instruction);
            let frames = match places.last() {
                Some(before) if before.frames[..] == frames[..] => before.frames.clone(),
                _ => frames.into(),
            };
            let mut written = String::new();
            text.write(&self.code, &instruction, &mut written);
            places.push(AnnotatedAddress {
                address: instruction.address,
                virtual_address: instruction.virtual_address,
                bytes: instruction.bytes.to_vec(),
                text: written,
                kind: Some(instruction.kind),
                target: self.target(&instruction),
                block: None,
                counts: vec![AddressCount::default(); events],
                frames,
            });
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_do_not_return_are_known() {
        assert!(NO_RETURN.is_sorted());
        assert!(!returns("abort@plt") && !returns("__stack_chk_fail"));
        assert!(!returns("_ZSt20__throw_length_errorPKc"));
        assert!(returns("abortion") && returns("memcpy@plt"));
    }
}
