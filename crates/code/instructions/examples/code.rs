//! Prints a function's blocks, loops, instructions and lines: `code FILE FUNCTION`; or, without a function, how
//! long that takes for the 500 longest ones.

use std::path::Path;
use std::time::Instant;

use dioptra_instructions::{CallBlocks, Credit, FunctionCode, InstructionText, SourceMap, Syntax};
use dioptra_symbols::{LineReader, ModuleKind, ModuleRequest, SymbolOptions, Symbolizer};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(path) = arguments.first() else {
        eprintln!("usage: code FILE [FUNCTION]");
        return;
    };
    let symbolizer = Symbolizer::new(SymbolOptions::default());
    let request = ModuleRequest {
        kind: ModuleKind::File,
        path: Path::new(path),
        build_id: None,
    };
    let symbols = symbolizer.load(&request);
    let module = symbolizer.code(&request);
    let lines = symbolizer.lines(&request);
    for note in symbols.notes().iter().chain(module.notes()) {
        eprintln!("{note}");
    }
    let reader = lines.reader();
    let mut functions: Vec<_> = symbols.functions().collect();
    if let Some(name) = arguments.get(1) {
        for function in functions.iter().filter(|function| function.name == *name) {
            match FunctionCode::of_module(&module, function.addresses()) {
                Ok(code) => print(&code, &reader),
                Err(error) => eprintln!("{name}: {error}"),
            }
        }
        return;
    }
    functions.sort_by_key(|function| std::cmp::Reverse(function.size));
    functions.truncate(500);
    let began = Instant::now();
    let codes: Vec<FunctionCode> = functions
        .iter()
        .filter_map(|function| FunctionCode::of_module(&module, function.addresses()).ok())
        .collect();
    let decoded = began.elapsed();
    let instructions: usize = codes.iter().map(FunctionCode::len).sum();
    let tables: usize = codes.iter().map(|code| code.tables().len()).sum();
    let bytes: usize = codes.iter().map(FunctionCode::heap_bytes).sum();
    let began = Instant::now();
    let mut loops = 0;
    for code in &codes {
        loops += code
            .control_flow(CallBlocks::Continue)
            .loops()
            .loops()
            .len();
    }
    let graphs = began.elapsed();
    let began = Instant::now();
    let mut unknown = 0;
    for code in &codes {
        unknown += SourceMap::of(code, &reader).unknown();
    }
    let mapped = began.elapsed();
    let began = Instant::now();
    let (mut text, mut written) = (InstructionText::new(Syntax::AtAndT), String::new());
    for code in &codes {
        for instruction in code.instructions() {
            written.clear();
            text.write(code, &instruction, &mut written);
        }
    }
    let texts = began.elapsed();
    println!(
        "{} functions, {instructions} instructions ({unknown} without a line), {tables} tables, {loops} loops, \
         {bytes} bytes",
        codes.len()
    );
    println!("decoding {decoded:?}, blocks and loops {graphs:?}, lines {mapped:?}, text {texts:?}");
}

fn print(code: &FunctionCode, reader: &LineReader<'_>) {
    let flow = code.control_flow(CallBlocks::Continue);
    let loops = flow.loops();
    let map = SourceMap::of(code, reader);
    let mut text = InstructionText::new(Syntax::AtAndT);
    for (number, block) in flow.blocks().iter().enumerate() {
        println!("block {number}, in {} loops", loops.depth(number));
        for index in block.instructions.clone() {
            let Some(instruction) = code.get(index) else {
                continue;
            };
            let mut written = String::new();
            text.write(code, &instruction, &mut written);
            let line = match map.line(index, Credit::Innermost) {
                Some((file, line)) => format!("{file}:{line}"),
                None => String::new(),
            };
            println!("{:8x}  {written:50} {line}", instruction.virtual_address);
        }
        for edge in flow.successors(number) {
            println!("    {:?} to {:?}", edge.kind, edge.to);
        }
    }
}
