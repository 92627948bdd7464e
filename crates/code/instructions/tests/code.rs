//! Instructions and blocks as objdump tells them, loops as their definition does, lines as addr2line does.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use dioptra_instructions::{
    CallBlocks, ControlFlow, Credit, EdgeEnd, EdgeKind, FunctionCode, InstructionKind,
    InstructionText, SourceMap, Syntax,
};
use dioptra_symbols::{
    FileAddress, ModuleCode, ModuleKind, ModuleRequest, RelativeAddress, SymbolOptions, Symbolizer,
};
use dioptra_testprograms::{Language, Program, need_tool, or_skip, output_of, skip};

fn request(path: &Path) -> ModuleRequest<'_> {
    ModuleRequest {
        kind: ModuleKind::File,
        path,
        build_id: None,
    }
}

fn symbolizer() -> Symbolizer {
    Symbolizer::new(SymbolOptions {
        debug_dirs: Vec::new(),
        ..SymbolOptions::default()
    })
}

/// Ranges to decode: the functions, and for a stripped file the whole of `.text`.
fn ranges(path: &Path) -> Vec<Range<u64>> {
    let symbols = symbolizer().load(&request(path));
    let text = text_section(path);
    let mut ranges: Vec<Range<u64>> = symbols
        .functions()
        .map(|function| RelativeAddress::numbers(&function.addresses()))
        .filter(|range| text.contains(&range.start) && !range.is_empty() && range.end <= text.end)
        .collect();
    if ranges.len() < 3000 {
        // In pieces that begin where instructions do, at functions.
        let mut at = text.start;
        for range in ranges.clone() {
            if range.start - at.min(range.start) > 1 << 20 {
                ranges.push(at..range.start);
                at = range.start;
            }
        }
        ranges.push(at..text.end.min(at + (4 << 20)));
    }
    ranges
}

/// File offsets of `.text`, as readelf tells them.
fn text_section(path: &Path) -> Range<u64> {
    let text = output_of(Command::new("readelf").arg("-SW").arg(path)).unwrap();
    // `  [15] .text   PROGBITS  0000000000004040 004040 012d62 00  AX  0   0 64`
    let line = text.lines().find(|line| line.contains(" .text ")).unwrap();
    let fields: Vec<&str> = line.split(']').nth(1).unwrap().split_whitespace().collect();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    hex(fields[3])..hex(fields[3]) + hex(fields[4])
}

/// An instruction as objdump tells it.
struct Line {
    length: u64,
    text: String,
}

fn objdump(objdump: &str, path: &Path) -> Option<HashMap<u64, Line>> {
    let mut command = Command::new(objdump);
    command.arg("-d").arg(path);
    if objdump == "objdump" {
        command.arg("-w");
    }
    let text = output_of(&mut command)?;
    let mut lines = HashMap::new();
    for line in text.lines() {
        let Some((address, rest)) = line.split_once(':') else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else {
            continue;
        };
        // llvm-objdump of Arm: ` 10998: 1f 24 00 71  	cmp	w0, #9`
        let rest = rest.trim_start();
        let (bytes, text) = rest.split_once('\t').unwrap_or((rest, ""));
        let length = bytes.split_whitespace().count() as u64;
        let text = text.replace('\t', " ");
        lines.insert(address, Line { length, text });
    }
    Some(lines)
}

const PREFIXES: [&str; 22] = [
    "lock", "rep", "repz", "repnz", "notrack", "bnd", "data16", "data32", "cs", "ds", "es", "ss",
    "fs", "gs", "addr32", "addr16", "rex.W", "rex", "rex.WB", "repe", "repne", "xacquire",
];

/// The mnemonic, without prefixes.
fn mnemonic(text: &str) -> &str {
    let mut words = text.split_whitespace();
    let word = words.find(|word| !PREFIXES.contains(word) && !word.starts_with("rex"));
    word.unwrap_or("")
        .trim_end_matches(",pt")
        .trim_end_matches(",pn")
}

/// Whether two mnemonics mean the same: with or without the operands' size, or a second name.
fn same_mnemonic(one: &str, other: &str) -> bool {
    let bare = |name: &str| name.trim_end_matches(['b', 'w', 'l', 'q']).to_owned();
    one == other || bare(one) == bare(other)
}

#[test]
fn mnemonics_are_told_apart() {
    assert!(same_mnemonic("mov", "movq") && same_mnemonic("ret", "retq"));
    assert!(!same_mnemonic("je", "jne") && !same_mnemonic("sub", "sbb"));
    assert!(!same_mnemonic("or", "je") && !same_mnemonic("movzbl", "movsbl"));
    assert_eq!(mnemonic("rep stos %al,%es:(%rdi)"), "stos");
}

/// The first instruction of each block, from objdump's text alone.
fn leaders(lines: &[(u64, &Line)], range: &Range<u64>) -> BTreeSet<u64> {
    let covering = |target: u64| {
        let at = lines.partition_point(|(address, _)| *address <= target);
        lines[at - 1].0
    };
    let mut leaders = BTreeSet::from([range.start]);
    for &(address, line) in lines {
        let name = mnemonic(&line.text);
        let is_jump = name.starts_with('j') || name.starts_with("loop") || name == "xbegin";
        if is_jump && !line.text.contains('*') {
            let operand = line
                .text
                .split_whitespace()
                .find_map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
            if let Some(target) = operand.filter(|target| range.contains(target)) {
                leaders.insert(covering(target));
            }
        }
        let ends = is_jump
            || name.starts_with("ret")
            || name.starts_with("lret")
            || name.starts_with("iret")
            || name.starts_with("ljmp")
            || matches!(name, "ud2" | "ud1" | "ud0" | "int3" | "int1" | "(bad)")
            || name.starts_with("sysret")
            || name.starts_with("sysexit");
        if ends && address + line.length < range.end {
            leaders.insert(address + line.length);
        }
    }
    leaders
}

#[derive(Default)]
struct Compared {
    functions: usize,
    instructions: usize,
    blocks: usize,
    tables: usize,
    unresolved: usize,
    names: HashSet<String>,
    other_names: HashMap<(String, String), usize>,
    wrong_blocks: Vec<String>,
}

fn compare(path: &Path, with: &str) -> Option<Compared> {
    let truth = objdump(with, path)?;
    let code = symbolizer().code(&request(path));
    assert!(!code.is_empty(), "{:?}", code.notes());
    let mut compared = Compared::default();
    let mut text = InstructionText::new(Syntax::AtAndT);
    for range in ranges(path) {
        compare_range(&code, range, &truth, &mut text, &mut compared);
    }
    let others: usize = compared.other_names.values().sum();
    let mut names: Vec<_> = compared.other_names.iter().collect();
    names.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    eprintln!(
        "{}: {} functions, {} instructions, {} blocks, {} tables, {} jumps without; {others} of {} names differ: {:?}",
        path.display(),
        compared.functions,
        compared.instructions,
        compared.blocks,
        compared.tables,
        compared.unresolved,
        compared.names.len(),
        &names[..names.len().min(30)]
    );
    assert!(compared.instructions > 50);
    assert!(
        compared.wrong_blocks.is_empty(),
        "{}",
        compared.wrong_blocks.join("\n")
    );
    assert!(others * 100 <= compared.instructions, "{names:?}");
    Some(compared)
}

fn compare_range(
    code: &ModuleCode,
    range: Range<u64>,
    truth: &HashMap<u64, Line>,
    text: &mut InstructionText,
    compared: &mut Compared,
) {
    let relative = RelativeAddress::range(range.clone());
    let function = FunctionCode::of_module(code, relative).unwrap();
    assert_eq!(function.addresses(), range);
    let mut written = String::new();
    let mut lines: Vec<(u64, &Line)> = Vec::new();
    for instruction in function.instructions() {
        let address = instruction.virtual_address;
        let relative = RelativeAddress(instruction.address);
        assert_eq!(code.virtual_address(relative), Some(FileAddress(address)));
        assert_eq!(code.relative(FileAddress(address)), Some(relative));
        written.clear();
        text.write(&function, &instruction, &mut written);
        let Some(line) = truth.get(&address) else {
            panic!("{address:#x} {written}: objdump has no instruction here");
        };
        assert_eq!(
            instruction.bytes.len() as u64,
            line.length,
            "{address:#x} {written} / {}",
            line.text
        );
        let (mine, theirs) = (mnemonic(&written), mnemonic(&line.text));
        if !compared.names.contains(theirs) {
            compared.names.insert(theirs.to_owned());
        }
        if !same_mnemonic(mine, theirs) {
            let names = (mine.to_owned(), theirs.to_owned());
            *compared.other_names.entry(names).or_default() += 1;
        }
        lines.push((address, line));
    }
    compared.functions += 1;
    compared.instructions += function.len();
    let flow = function.control_flow(CallBlocks::Continue);
    check_shape(&function, &flow);
    compared.blocks += flow.blocks().len();
    compared.tables += function.tables().len();
    compared.unresolved += flow.unresolved_jumps();
    if function.machine() == dioptra_symbols::CodeMachine::Aarch64 {
        return;
    }
    let first = function.virtual_start();
    let mut wanted = leaders(&lines, &(first..first + (range.end - range.start)));
    for target in function.tables().iter().flat_map(|table| &table.targets) {
        if target
            .address
            .is_some_and(|address| range.contains(&address))
        {
            wanted.insert(target.virtual_address);
        }
    }
    let found: BTreeSet<u64> = flow
        .blocks()
        .iter()
        .map(|block| {
            function
                .get(block.instructions.start)
                .unwrap()
                .virtual_address
        })
        .collect();
    for at in found.symmetric_difference(&wanted) {
        compared.wrong_blocks.push(format!(
            "{at:#x}: {}",
            if found.contains(at) {
                "only ours"
            } else {
                "only objdump's"
            }
        ));
    }
}

/// Checks the properties of any blocks and edges.
fn check_shape(function: &FunctionCode, flow: &ControlFlow) {
    let mut next = 0;
    let mut address = function.addresses().start;
    for (number, block) in flow.blocks().iter().enumerate() {
        assert_eq!(block.instructions.start, next);
        assert_eq!(block.addresses.start, address);
        assert!(!block.instructions.is_empty());
        (next, address) = (block.instructions.end, block.addresses.end);
        assert_eq!(flow.block_at(block.addresses.start), Some(number));
        assert_eq!(flow.block_of(block.instructions.end - 1), Some(number));
        for edge in flow.successors(number) {
            assert_eq!(edge.from, number);
            if let EdgeEnd::Block(to) = edge.to {
                assert!(flow.predecessors(to).any(|other| other == edge));
            }
        }
    }
    assert_eq!((next, address), (function.len(), function.addresses().end));
}

/// Returns a file that the system brings. Says so and returns `None` where it lies elsewhere or is missing.
#[track_caller]
fn there(path: &str) -> Option<&Path> {
    let path = Path::new(path);
    if path.exists() {
        return Some(path);
    }
    skip(format!("{} is not there", path.display()));
    None
}

#[test]
fn system_files_as_objdump() {
    for path in ["/bin/ls", "/lib/x86_64-linux-gnu/libc.so.6"] {
        if let Some(path) = there(path) {
            compare(path, "objdump");
        }
    }
}

#[test]
fn an_interpreter_as_objdump() {
    if let Some(path) = there("/usr/bin/python3").and_then(|path| path.canonicalize().ok())
        && let Some(compared) = compare(&path, "objdump")
    {
        assert!(compared.tables > 20, "{}", compared.tables);
        assert!(compared.names.len() > 100 && !compared.names.contains(""));
    }
}

#[test]
fn built_by_clang_and_lld_as_objdump() {
    or_skip!(need_tool("ld.lld"));
    let program = Program::new(Language::Cpp, "exceptions")
        .compiler("clang++")
        .flags(["-O2", "-fuse-ld=lld"]);
    let path = or_skip!(program.build());
    let code = symbolizer().code(&request(&path));
    let text = text_section(&path);
    let start = code.virtual_address(RelativeAddress(text.start));
    assert!(
        start.is_some_and(|start| start.0 != text.start),
        "{start:?}"
    );
    compare(&path, "objdump");
}

#[test]
fn built_by_rustc_as_objdump() {
    let program = Program::new(Language::Rust, "threaded").flags(["-Copt-level=2"]);
    let path = or_skip!(program.build());
    compare(&path, "objdump");
}

fn freestanding(compiler: &str, output: &str, flags: &[&str]) -> Program {
    Program::new(Language::C, "switches")
        .no_flags()
        .compiler(compiler)
        .output(output)
        .flags(["-nostdlib", "-ffreestanding", "-fno-stack-protector", "-g"])
        .flags(flags.iter().copied())
}

#[test]
fn other_machines_as_objdump() {
    let flags = ["-m32", "-O2", "-static", "-fno-pie", "-no-pie"];
    let i386 = or_skip!(freestanding("gcc", "switches-32", &flags).build());
    compare(&i386, "objdump");
    or_skip!(need_tool("ld.lld"));
    or_skip!(need_tool("llvm-objdump"));
    let aarch64 = or_skip!(for_aarch64("-O2").build());
    compare(&aarch64, "llvm-objdump");
}

fn for_aarch64(level: &str) -> Program {
    let target = "--target=aarch64-linux-gnu";
    let flags = [target, "-fuse-ld=lld", "-shared", "-fPIC", level];
    freestanding("clang", "switches-aarch64", &flags)
}

/// Where each case of `switches.c` lies: function, value, virtual address.
fn cases(path: &Path) -> Vec<(usize, i64, u64)> {
    use object::{Object, ObjectSection};
    let bytes = std::fs::read(path).unwrap();
    let file = object::File::parse(&bytes[..]).unwrap();
    let section = file.section_by_name("cases").unwrap();
    let words = section.data().unwrap().chunks_exact(4);
    let words: Vec<i32> = words
        .map(|word| i32::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let case = |(number, words): (usize, &[i32])| {
        let here = section.address() + number as u64 * 12 + 8;
        (
            words[0] as usize,
            words[1].into(),
            here.wrapping_add_signed(words[2].into()),
        )
    };
    words.chunks_exact(3).enumerate().map(case).collect()
}

const SWITCHES: [&str; 7] = [
    "dense",
    "shifted",
    "masked",
    "interpret",
    "holes",
    "member",
    "twice",
];

fn check_switches(path: &Path) {
    let module = symbolizer().code(&request(path));
    let symbols = symbolizer().load(&request(path));
    let cases = cases(path);
    assert!(cases.len() > 60);
    for (number, name) in SWITCHES.iter().enumerate() {
        let function = symbols.functions().find(|f| f.name == *name).unwrap();
        let code = FunctionCode::of_module(&module, function.addresses()).unwrap();
        let flow = code.control_flow(CallBlocks::Continue);
        assert_eq!(flow.unresolved_jumps(), 0, "{} {name}", path.display());
        let jumps = code
            .instructions()
            .filter(|i| i.kind == InstructionKind::IndirectJump);
        assert_eq!(jumps.count(), code.tables().len());
        assert!(!code.tables().is_empty(), "{} {name}", path.display());
        let block_of = |address: u64| {
            flow.block_at(address - code.virtual_start() + code.addresses().start)
                .unwrap()
        };
        let mine: Vec<(i64, usize)> = cases
            .iter()
            .filter(|case| case.0 == number)
            .map(|&(_, value, address)| (value, block_of(address)))
            .collect();
        let mut found = HashSet::new();
        for table in code.tables() {
            let blocks: Vec<usize> = table
                .targets
                .iter()
                .map(|target| block_of(target.virtual_address))
                .collect();
            // Entries lie as far apart as the values they stand for.
            let first = mine.iter().find(|(_, block)| blocks.contains(block));
            let Some(&(value, block)) = first else {
                panic!("{name}: a table leads to no case");
            };
            let low = value - blocks.iter().position(|&each| each == block).unwrap() as i64;
            for &(value, block) in &mine {
                let entry = usize::try_from(value - low)
                    .ok()
                    .and_then(|at| blocks.get(at));
                if entry == Some(&block) {
                    found.insert(block);
                }
            }
        }
        // A compiler may let the comparison before the table jump to one of the cases.
        let others: Vec<_> = mine
            .iter()
            .filter(|(_, block)| !found.contains(block))
            .collect();
        assert!(
            others.len() <= code.tables().len(),
            "{} {name}: {others:?}",
            path.display()
        );
        for (value, block) in others {
            let is_jumped_to = flow
                .predecessors(*block)
                .any(|edge| edge.kind == EdgeKind::Taken);
            assert!(is_jumped_to, "{} {name}: case {value}", path.display());
            eprintln!("{name}: case {value} is left out of the table");
        }
    }
}

#[test]
fn cases_of_switches_are_found() {
    let mut built = 0;
    for compiler in ["gcc", "clang"] {
        for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
            for (kind, flags) in [
                ("pic", ["-fPIE", "-pie"]),
                ("fixed", ["-fno-pie", "-static"]),
            ] {
                let output = format!("switches-{kind}");
                let program = freestanding(compiler, &output, &flags).flags([level]);
                let path = or_skip!(program.build());
                eprintln!("{compiler} {level} {kind}");
                check_switches(&path);
                built += 1;
            }
        }
    }
    assert_eq!(built, 20);
    let flags = ["-m32", "-O2", "-static", "-fno-pie", "-no-pie"];
    check_switches(&or_skip!(
        freestanding("gcc", "switches-32", &flags).build()
    ));
    or_skip!(need_tool("ld.lld"));
    for level in ["-O1", "-O2", "-O3", "-Os"] {
        check_switches(&or_skip!(for_aarch64(level).build()));
    }
}

/// An interpreter that jumps to labels by a byte, without comparing it: its table has 256 entries, as the file has
/// them, and some lead to the function's cold part.
#[test]
fn labels_of_an_interpreter_are_found() {
    let labels = |each: fn(usize) -> String| (0..256).map(each).collect::<String>();
    let source = format!(
        "__attribute__((noinline, noclone, cold, noreturn)) void stop(long x) {{
            for (;;) *(volatile long *)0 = x;
        }}
        __attribute__((noinline, noclone)) long interpret(const unsigned char *pc, long x) {{
            static const void *const steps[256] = {{ {} }};
            long sum = x;
            goto *steps[*pc++];
            {}
        }}
        int main(int count, char **words) {{ return (int)interpret((unsigned char *)words[0], count); }}",
        labels(|label| format!("&&L{label},")),
        labels(|label| match label {
            0 => "L0: return sum;".to_owned(),
            // Two cold ones, among others to which conditions lead.
            7 | 200 => format!("L{label}: stop(sum / {label} ^ x);"),
            1..=255 if label % 6 == 3 => format!(
                "L{label}: if (sum == {label}) stop(x + {label}); sum++; goto *steps[*pc++];"
            ),
            _ => format!("L{label}: sum = sum * {label} + (x ^ {label}); goto *steps[*pc++];"),
        })
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("interpret.c");
    std::fs::write(&file, source).unwrap();
    let program = Program::from_source(Language::C, &file);
    let path = or_skip!(program.flags(["-O2", "-no-pie", "-fno-pie"]).build());
    let names = output_of(Command::new("nm").arg(&path)).unwrap();
    let table = names.lines().find(|line| line.contains(" steps"));
    let table = u64::from_str_radix(table.unwrap().split(' ').next().unwrap(), 16).unwrap();
    let range = [
        format!("--start-address={table:#x}"),
        format!("--stop-address={:#x}", table + 2048),
    ];
    let dump = output_of(Command::new("objdump").arg("-s").args(range).arg(&path)).unwrap();
    // ` 403080 5b114000 00000000 72114000 00000000  [.@.....r.@.....`
    let digits: String = dump
        .lines()
        .filter(|line| line.starts_with(' '))
        .flat_map(|line| {
            let words = line.trim_start().split(' ').skip(1).take(4);
            words.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let expected: Vec<u64> = digits
        .as_bytes()
        .chunks_exact(16)
        .map(|entry| {
            let entry = u64::from_str_radix(std::str::from_utf8(entry).unwrap(), 16);
            entry.unwrap().swap_bytes()
        })
        .collect();
    assert_eq!(expected.len(), 256);

    let symbols = symbolizer().load(&request(&path));
    let function = symbols.functions().find(|f| f.name == "interpret").unwrap();
    let extent = function.addresses();
    let code = FunctionCode::of_module(&symbolizer().code(&request(&path)), extent).unwrap();
    let flow = code.control_flow(CallBlocks::Continue);
    assert_eq!(flow.unresolved_jumps(), 0);
    assert!(!code.tables().is_empty());
    for table in code.tables() {
        let targets = table.targets.iter().map(|target| target.virtual_address);
        assert_eq!(targets.collect::<Vec<_>>(), expected);
    }
    let start = code.virtual_start();
    let inside = start..start + function.size;
    let is_cold = |label: usize| !inside.contains(&expected[label]);
    assert!(is_cold(7) && is_cold(200) && !is_cold(8));
}

/// Blocks that can be reached from some, without one, by edges between blocks.
fn reached(flow: &ControlFlow, from: &[usize], without: Option<usize>) -> Vec<bool> {
    let mut seen = vec![false; flow.blocks().len()];
    let mut work: Vec<usize> = from
        .iter()
        .copied()
        .filter(|&block| Some(block) != without)
        .collect();
    while let Some(block) = work.pop() {
        if std::mem::replace(&mut seen[block], true) {
            continue;
        }
        work.extend(
            flow.successors(block)
                .iter()
                .filter_map(|edge| match edge.to {
                    EdgeEnd::Block(to) if Some(to) != without => Some(to),
                    _ => None,
                }),
        );
    }
    seen
}

/// Compares with dominators and loops by their definition; how many loops there were.
fn check_loops(flow: &ControlFlow) -> (usize, usize) {
    let count = flow.blocks().len();
    let nest = flow.loops();
    let mut roots: Vec<usize> = (0..count)
        .filter(|&b| b == 0 || flow.predecessors(b).len() == 0)
        .collect();
    for block in 0..count {
        if !reached(flow, &roots, None)[block] {
            roots.push(block);
        }
    }
    let dominated: Vec<Vec<bool>> = (0..count)
        .map(|above| {
            let mut below = reached(flow, &roots, Some(above));
            below.iter_mut().for_each(|reached| *reached = !*reached);
            below
        })
        .collect();
    for block in 0..count {
        let above: Vec<usize> = (0..count)
            .filter(|&a| a != block && dominated[a][block])
            .collect();
        // The closest one is dominated by all others.
        let closest = above
            .iter()
            .copied()
            .find(|&a| above.iter().all(|&b| dominated[b][a]));
        assert_eq!(nest.dominator(block), closest, "block {block}");
    }
    let is_back = |from: usize, to: usize| dominated[to][from];
    let mut bodies: Vec<(usize, BTreeSet<usize>)> = Vec::new();
    for header in 0..count {
        let latches = flow
            .predecessors(header)
            .map(|e| e.from)
            .filter(|&f| is_back(f, header));
        let mut work: Vec<usize> = latches.collect();
        if work.is_empty() {
            continue;
        }
        let mut body = BTreeSet::from([header]);
        while let Some(block) = work.pop() {
            if body.insert(block) {
                work.extend(flow.predecessors(block).map(|edge| edge.from));
            }
        }
        bodies.push((header, body));
    }
    assert_eq!(nest.loops().len(), bodies.len());
    for (number, found) in nest.loops().iter().enumerate() {
        let (_, body) = bodies
            .iter()
            .find(|(header, _)| *header == found.header)
            .unwrap();
        assert_eq!(&nest.blocks_of(number).collect::<BTreeSet<_>>(), body);
        assert!(
            found
                .latches
                .iter()
                .all(|&latch| is_back(latch, found.header))
        );
        let around = bodies
            .iter()
            .filter(|(h, b)| *h != found.header && b.is_superset(body));
        assert_eq!(found.depth, around.count() + 1);
        assert!(found.parent.is_none_or(|parent| parent < number));
    }
    for block in 0..count {
        assert_eq!(
            nest.depth(block),
            bodies.iter().filter(|(_, b)| b.contains(&block)).count()
        );
    }
    // Two blocks that lead to each other without back edges.
    let forward = |from: usize| {
        let mut seen = vec![false; count];
        let mut work = vec![from];
        while let Some(block) = work.pop() {
            for edge in flow.successors(block) {
                if let EdgeEnd::Block(to) = edge.to
                    && !is_back(block, to)
                    && !std::mem::replace(&mut seen[to], true)
                {
                    work.push(to);
                }
            }
        }
        seen
    };
    let reach: Vec<Vec<bool>> = (0..count).map(forward).collect();
    for (block, reached) in reach.iter().enumerate() {
        assert_eq!(
            nest.irreducible_region(block).is_some(),
            reached[block],
            "block {block}"
        );
    }
    for region in nest.irreducible() {
        assert!(region.entries.len() > 1 || roots.contains(&region.entries[0]));
        for (&one, &other) in region.blocks.iter().zip(&region.blocks[1..]) {
            assert!(reach[one][other] && reach[other][one]);
        }
    }
    (bodies.len(), nest.irreducible().len())
}

#[test]
fn loops_are_what_their_definition_says() {
    let (mut functions, mut loops, mut irreducible) = (0, 0, 0);
    for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/bin/python3"] {
        let Some(path) = there(path) else {
            continue;
        };
        let symbols = symbolizer().load(&request(path));
        let code = symbolizer().code(&request(path));
        for function in symbols.functions().filter(|function| function.size < 6000) {
            let Ok(function) = FunctionCode::of_module(&code, function.addresses()) else {
                continue;
            };
            let flow = function.control_flow(CallBlocks::Continue);
            if flow.blocks().len() > 80 || flow.blocks().is_empty() {
                continue;
            }
            let (found, odd) = check_loops(&flow);
            functions += 1;
            loops += found;
            irreducible += odd;
        }
    }
    eprintln!("{functions} functions, {loops} loops, {irreducible} irreducible regions");
    if functions > 0 {
        assert!(loops > 100);
    }
}

/// The lines of an address by `addr2line -i`, innermost first.
fn addr2line(tool: &str, path: &Path, addresses: &[u64]) -> Option<Vec<Vec<String>>> {
    let mut command = Command::new(tool);
    command.args(["-a", "-i", "-e"]).arg(path);
    command.args(addresses.iter().map(|address| format!("{address:#x}")));
    let text = output_of(&mut command)?;
    let mut answers: Vec<Vec<String>> = Vec::new();
    for line in text.lines() {
        if line.starts_with("0x") {
            answers.push(Vec::new());
            continue;
        }
        let place = line.split(" (discriminator").next().unwrap();
        answers.last_mut().unwrap().push(tidy(place));
    }
    Some(answers)
}

/// `/a/b/../c/./d:7` and `/a/c/d:7` are the same place.
fn tidy(place: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in place.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn lines_as_addr2line() {
    let built: [Program; 2] = [
        Program::new(Language::Cpp, "exceptions").flags(["-O2"]),
        Program::new(Language::C, "inline").flags(["-O2"]),
    ];
    for program in built {
        let path: PathBuf = or_skip!(program.build());
        let symbols = symbolizer().load(&request(&path));
        let module = symbolizer().code(&request(&path));
        let lines = symbolizer().lines(&request(&path));
        let reader = lines.reader();
        let (mut asked, mut inlined, mut by_binutils, mut differ) = (0, 0, 0, Vec::new());
        for function in symbols
            .functions()
            .filter(|function| function.size > 0)
            .take(60)
        {
            let Ok(code) = FunctionCode::of_module(&module, function.addresses()) else {
                continue;
            };
            let map = SourceMap::of(&code, &reader);
            let known: Vec<usize> = (0..code.len())
                .filter(|&i| !map.frames(i).is_empty())
                .collect();
            assert!(map.unknown() >= code.len() - known.len());
            let addresses: Vec<u64> = known
                .iter()
                .map(|&i| code.get(i).unwrap().virtual_address)
                .collect();
            if addresses.is_empty() {
                continue;
            }
            let Some(truth) = addr2line("addr2line", &path, &addresses) else {
                return;
            };
            // binutils 2.40 takes some lines of a header for lines of the source file, beyond its end.
            or_skip!(need_tool("llvm-addr2line"));
            let second = addr2line("llvm-addr2line", &path, &addresses).unwrap();
            let place = |index, credit| match map.line(index, credit) {
                Some((file, line)) => tidy(&format!("{file}:{line}")),
                None => "??:?".into(),
            };
            for (at, &index) in known.iter().enumerate() {
                asked += 1;
                inlined += usize::from(truth[at].len() > 1);
                let mine = [
                    place(index, Credit::Innermost),
                    place(index, Credit::Outermost),
                ];
                let ends =
                    |answer: &Vec<String>| [answer[0].clone(), answer[answer.len() - 1].clone()];
                let theirs = ends(&truth[at]);
                by_binutils += usize::from(mine == theirs);
                if mine != theirs && mine != ends(&second[at]) {
                    differ.push(format!("{:?} {mine:?} {theirs:?}", code.get(index)));
                }
            }
            check_lines(&code, &map);
        }
        eprintln!(
            "{}: {asked} asked, {inlined} inlined, {} differ",
            path.display(),
            differ.len()
        );
        assert!(asked > 10);
        assert!(differ.len() * 100 <= asked, "{}", differ.join("\n"));
        assert!(by_binutils * 10 >= asked * 9, "{by_binutils} of {asked}");
    }
}

/// Every instruction with a line lies in exactly that line's addresses.
fn check_lines(code: &FunctionCode, map: &SourceMap) {
    for credit in [Credit::Innermost, Credit::Outermost] {
        let lines = map.lines(code, credit);
        let mut bytes = 0;
        for line in &lines {
            for pair in line.addresses.windows(2) {
                assert!(pair[0].end < pair[1].start);
            }
            bytes += line
                .addresses
                .iter()
                .map(|range| range.end - range.start)
                .sum::<u64>();
        }
        let mut wanted = 0;
        for instruction in code.instructions() {
            let Some((file, number)) = map.line(instruction.index, credit) else {
                continue;
            };
            wanted += instruction.bytes.len() as u64;
            let line = lines
                .iter()
                .find(|line| line.file == *file && line.line == number);
            let addresses = &line.unwrap().addresses;
            assert!(
                addresses
                    .iter()
                    .any(|range| range.contains(&instruction.address))
            );
        }
        assert_eq!(bytes, wanted);
    }
}
