//! Source lines and inline frames as binutils' addr2line tells them.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use dioptra_symbols::{
    Frame, LineReader, ModuleKind, ModuleLines, ModuleRequest, Note, RelativeAddress,
    SymbolOptions, Symbolizer,
};
use support::output_of;

const CPP: &str = r#"
#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <vector>
namespace shapes {
template <typename T> struct Box { T value; inline T twice() const { return value + value; } };
static inline int deep(int x) { return x * 3 + 1; }
static inline int deeper(int x) { int s = 0; for (int i = 0; i < x; i++) s += deep(i) ^ s; return s; }
__attribute__((noinline)) int outer(int n) { Box<int> b{deeper(n)}; return b.twice(); }
}
int main(int argc, char **argv) {
  std::map<std::string, std::vector<int>> table;
  for (int i = 0; i < argc * 100; i++) table[std::to_string(i % 7)].push_back(shapes::outer(i));
  long sum = 0;
  for (auto &e : table) { std::sort(e.second.begin(), e.second.end()); for (int v : e.second) sum += v; }
  printf("%ld\n", sum);
}
"#;

const C: &str = r#"
#include <stdio.h>
static inline __attribute__((always_inline)) int innermost(int x) { return x * 7 ^ x >> 3; }
static inline __attribute__((always_inline)) int middle(int x) {
    int s = 0;
    for (int i = 0; i < x; i++)
        s += innermost(i + s);
    return s;
}
__attribute__((noinline)) int plain(int x) { return middle(x) + innermost(x); }
int main(int n, char **v) { printf("%d\n", plain(n) + middle(n * 3)); return 0; }
"#;

const RUST: &str = r#"
use std::collections::BTreeMap;
#[inline(never)]
fn count(words: &[String]) -> BTreeMap<usize, Vec<&str>> {
    let mut map: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for word in words { map.entry(word.len()).or_default().push(word.trim()); }
    map.values_mut().for_each(|list| list.sort_by_key(|word| word.chars().rev().collect::<String>()));
    map
}
fn main() {
    let words: Vec<String> = std::env::args().collect();
    for (len, list) in count(&words) { println!("{len} {}", list.join(" ")); }
}
"#;

/// Compiles; nothing without a compiler.
fn build(compiler: &str, dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let extension = match compiler {
        "g++" => "cc",
        "rustc" => "rs",
        _ => "c",
    };
    let input = dir.join(format!("{name}.{extension}"));
    std::fs::write(&input, source).unwrap();
    let mut command = Command::new(compiler);
    command.arg(&input).arg("-o").arg(name).args(flags);
    output_of(command.current_dir(dir))?;
    Some(dir.join(name))
}

fn options() -> SymbolOptions {
    SymbolOptions {
        debug_dirs: Vec::new(),
        ..SymbolOptions::default()
    }
}

fn lines_with(path: &Path, options: SymbolOptions) -> ModuleLines {
    Symbolizer::new(options).lines(&ModuleRequest {
        kind: ModuleKind::File,
        path,
        build_id: None,
    })
}

/// Addresses all over the functions of a file, as file offsets.
fn offsets(path: &Path, most: usize) -> Vec<u64> {
    let symbols = Symbolizer::new(options()).load(&ModuleRequest {
        kind: ModuleKind::File,
        path,
        build_id: None,
    });
    let all: Vec<u64> = symbols
        .functions()
        .flat_map(|function| RelativeAddress::numbers(&function.addresses()).step_by(5))
        .collect();
    let every = all.len().div_ceil(most).max(1);
    all.into_iter().step_by(every).collect()
}

/// The address that binutils want for a file offset of code.
fn address_of(path: &Path) -> Option<impl Fn(u64) -> u64> {
    let text = output_of(Command::new("readelf").args(["-lW"]).arg(path))?;
    let hex = |field: &str| u64::from_str_radix(field.trim_start_matches("0x"), 16).unwrap();
    // `  LOAD   0x001000 0x0000000000401000 0x0000000000401000 0x000175 0x000175 R E 0x1000`
    let segments: Vec<(u64, u64, u64)> = text
        .lines()
        .filter(|line| line.contains("LOAD") && line.contains(" R E "))
        .map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            (hex(fields[1]), hex(fields[2]), hex(fields[4]))
        })
        .collect();
    Some(move |offset| {
        let holds = |&&(start, _, size): &&(u64, u64, u64)| (start..start + size).contains(&offset);
        let (start, address, _) = segments.iter().find(holds).unwrap();
        offset - start + address
    })
}

/// Function, file and line; empty and 0 for unknown.
type SourcePosition = (String, String, u32);

/// A path without detours, which both sides take in other places.
fn tidy(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// addr2line's answers, in the order of the questions.
fn addr2line(program: &str, path: &Path, addresses: &[u64]) -> Option<Vec<Vec<SourcePosition>>> {
    let mut answers: Vec<Vec<SourcePosition>> = Vec::new();
    for some in addresses.chunks(1000) {
        let mut command = Command::new(program);
        command.args(["-a", "-i", "-f", "-e"]).arg(path);
        command.args(some.iter().map(|address| format!("{address:#x}")));
        let text = output_of(&mut command)?;
        let mut lines = text.lines().peekable();
        while let Some(function) = lines.next() {
            if function.starts_with("0x") {
                answers.push(Vec::new());
                continue;
            }
            let place = lines.next().unwrap();
            let place = place.split(" (discriminator").next().unwrap();
            let (file, line) = place.rsplit_once(':').unwrap();
            let known = |text: &str| {
                if text == "??" {
                    String::new()
                } else {
                    text.to_owned()
                }
            };
            answers.last_mut().unwrap().push((
                known(function),
                tidy(&known(file)),
                line.parse().unwrap_or(0),
            ));
        }
    }
    assert_eq!(answers.len(), addresses.len());
    Some(answers)
}

fn places(frames: &[Frame]) -> Vec<SourcePosition> {
    for (at, frame) in frames.iter().enumerate() {
        assert_eq!(frame.is_inlined, at + 1 < frames.len());
    }
    frames
        .iter()
        .map(|frame| {
            (
                frame.function.as_deref().unwrap_or_default().to_owned(),
                tidy(frame.file.as_deref().unwrap_or_default()),
                frame.line.unwrap_or(0),
            )
        })
        .collect()
}

/// Whether both tell the same. Binutils give an inlined function without a linkage name that of the
/// function it was inlined into; LLVM takes the name from the symbol table, with suffixes like
/// `.isra.0`.
fn agree(ours: &[SourcePosition], truth: &[SourcePosition]) -> bool {
    let plain = |name: &str| name.split('.').next().unwrap().to_owned();
    let outermost = truth.last().map(|(name, ..)| name);
    ours.len() == truth.len()
        && ours.iter().zip(truth).all(|(ours, truth)| {
            same_file(&ours.1, &truth.1)
                && ours.2 == truth.2
                && (plain(&ours.0) == plain(&truth.0) || Some(&truth.0) == outermost)
        })
}

/// Debian builds with a relative directory, which binutils and LLVM put before names that have it
/// already: `stdlib/stdlib/abort.c`.
fn same_file(ours: &str, truth: &str) -> bool {
    let doubled = truth
        .split_once('/')
        .is_some_and(|(first, rest)| rest == ours && rest.split('/').next() == Some(first));
    ours == truth || doubled
}

/// Compares all frames of many addresses with binutils' answers; `code` is what binutils read, `path`
/// what we read.
fn compare(path: &Path, options: &SymbolOptions, code: &Path) {
    let offsets = offsets(code, 6000);
    let Some(address_of) = address_of(code) else {
        return;
    };
    let addresses: Vec<u64> = offsets.iter().map(|&offset| address_of(offset)).collect();
    let Some(truth) = addr2line("addr2line", code, &addresses) else {
        return;
    };
    // Binutils 2.40 take files of DWARF 5 for others: what they say must hold by one of the two.
    let second = addr2line("llvm-addr2line", code, &addresses);
    let lines = lines_with(
        path,
        SymbolOptions {
            demangle: false,
            ..options.clone()
        },
    );
    let reader = lines.reader();
    let (mut asked, mut inlined, mut differ) = (0, 0, Vec::new());
    for (at, (&offset, truth)) in offsets.iter().zip(&truth).enumerate() {
        // binutils fall back to the symbol table, and so name code without debug information.
        if truth
            .iter()
            .any(|(_, file, line)| file.is_empty() || *line == 0)
        {
            continue;
        }
        let ours = places(&reader.frames(RelativeAddress(offset)));
        asked += 1;
        inlined += usize::from(truth.len() > 1);
        let others = second.as_ref().map(|second| &second[at]);
        let is_same = match others {
            _ if agree(&ours, truth) => true,
            Some(truth) => agree(&ours, truth),
            // Nor do they know all inline frames of clang's DWARF 5; the innermost line holds.
            None => ours.first().map(|at| at.2) == truth.first().map(|at| at.2),
        };
        if !is_same {
            differ.push(format!(
                "{offset:#x}: {ours:?}
   binutils: {truth:?}
   LLVM: {others:?}"
            ));
        }
    }
    eprintln!(
        "{}: {asked} addresses, {inlined} inlined, {} differ",
        path.display(),
        differ.len()
    );
    assert!(
        asked > 10 && inlined > 0,
        "{} {inlined}: {:?}",
        asked,
        lines.notes()
    );
    assert!(differ.len() * 100 <= asked, "{}", differ.join("\n"));
}

#[test]
fn c_programs() {
    let dir = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("v5", &["-O2", "-g"][..]),
        ("v4", &["-O2", "-gdwarf-4"]),
        ("fixed", &["-O2", "-g", "-no-pie"]),
        (
            "elsewhere",
            &["-O2", "-g", "-no-pie", "-Wl,-Ttext=0x700000"],
        ),
        ("zlib", &["-O2", "-g", "-gz=zlib"]),
        ("types", &["-O2", "-g", "-fdebug-types-section"]),
        ("lto", &["-O2", "-g", "-flto"]),
    ] {
        if let Some(program) = build("gcc", dir.path(), name, C, flags) {
            compare(&program, &options(), &program);
        }
    }
    if let Some(program) = build("clang", dir.path(), "clang", C, &["-O2", "-g"]) {
        compare(&program, &options(), &program);
    }
}

#[test]
fn packed_sections() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build("gcc", dir.path(), "plain", C, &["-O2", "-g"]) else {
        return;
    };
    let packed = dir.path().join("packed");
    for method in [
        "--compress-debug-sections=zstd",
        "--compress-debug-sections=zlib",
        "--compress-debug-sections=zlib-gnu",
    ] {
        let mut objcopy = Command::new("objcopy");
        objcopy.arg(method).arg(&program).arg(&packed);
        if output_of(&mut objcopy).is_none() {
            // Older binutils know no zstd; LLVM's may.
            let mut objcopy = Command::new("llvm-objcopy");
            objcopy.arg(method).arg(&program).arg(&packed);
            if output_of(&mut objcopy).is_none() {
                continue;
            }
        }
        same_answers(&program, &packed);
    }
}

/// Both files must tell the same of the same code.
fn same_answers(one: &Path, other: &Path) -> (ModuleLines, ModuleLines) {
    let (one_lines, other_lines) = (lines_with(one, options()), lines_with(other, options()));
    let offsets = offsets(one, 3000);
    let (first, second) = (one_lines.reader(), other_lines.reader());
    let mut inlined = 0;
    for offset in offsets.into_iter().map(RelativeAddress) {
        let (first, second) = (first.frames(offset), second.frames(offset));
        assert_eq!(first, second, "{offset:#x}: {:?}", other_lines.notes());
        inlined += usize::from(first.len() > 1);
    }
    assert!(inlined > 5, "{:?}", one_lines.notes());
    drop((first, second));
    (one_lines, other_lines)
}

#[test]
fn an_optimised_cpp_program() {
    let dir = tempfile::tempdir().unwrap();
    for (name, flags) in [("v5", &["-O2", "-g"][..]), ("v4", &["-O2", "-gdwarf-4"])] {
        if let Some(program) = build("g++", dir.path(), name, CPP, flags) {
            compare(&program, &options(), &program);
        }
    }
}

#[test]
fn a_rust_program() {
    let dir = tempfile::tempdir().unwrap();
    if let Some(program) = build("rustc", dir.path(), "rust", RUST, &["-O", "-g"]) {
        compare(&program, &options(), &program);
    }
}

#[test]
fn a_separate_debug_file() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(
        "gcc",
        dir.path(),
        "program",
        C,
        &["-O2", "-g", "-Wl,--build-id"],
    ) else {
        return;
    };
    let (debug, stripped) = (
        dir.path().join("program.debug"),
        dir.path().join("stripped"),
    );
    let keep = output_of(
        Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(&program)
            .arg(&debug),
    );
    let strip = output_of(
        Command::new("objcopy")
            .arg("--strip-all")
            .arg(format!("--add-gnu-debuglink={}", debug.display()))
            .arg(&program)
            .arg(&stripped),
    );
    if keep.is_none() || strip.is_none() {
        return;
    }
    let (_, lines) = same_answers(&program, &stripped);
    let is_named = |note: &Note| matches!(note, Note::DebugFile { path } if *path == debug);
    assert!(lines.notes().iter().any(is_named), "{:?}", lines.notes());

    std::fs::remove_file(&debug).unwrap();
    let lines = lines_with(&stripped, options());
    assert!(lines.is_empty() && lines.reader().frames(RelativeAddress(0x1139)).is_empty());
    let is_told = |note: &Note| {
        matches!(
            note,
            Note::NoLines {
                build_id: Some(_),
                ..
            }
        )
    };
    assert!(lines.notes().iter().any(is_told), "{:?}", lines.notes());
}

#[test]
fn split_debug_files() {
    let dir = tempfile::tempdir().unwrap();
    for version in ["-gdwarf-5", "-gdwarf-4"] {
        let sub = dir.path().join(version);
        std::fs::create_dir(&sub).unwrap();
        let Some(whole) = build("g++", &sub, "whole", CPP, &["-O2", version]) else {
            return;
        };
        // The same source path, so that the answers are the same to the letter.
        let source = sub.join("whole.cc");
        let mut compiler = Command::new("g++");
        compiler
            .args(["-O2", version, "-gsplit-dwarf", "-c", "-o", "split.o"])
            .arg(&source);
        let linked = output_of(compiler.current_dir(&sub)).and_then(|_| {
            let mut linker = Command::new("g++");
            output_of(linker.args(["-o", "split", "split.o"]).current_dir(&sub))
        });
        if linked.is_none() {
            return;
        }
        let split = sub.join("split");
        same_answers(&whole, &split);

        // Packed.
        let mut packer = Command::new("llvm-dwp");
        packer
            .args(["-e", "split", "-o", "split.dwp"])
            .current_dir(&sub);
        let is_packed = output_of(&mut packer).is_some();
        let dwo = sub.join("split.dwo");
        assert!(dwo.exists());
        let elsewhere = sub.join("elsewhere.dwo");
        std::fs::rename(&dwo, &elsewhere).unwrap();
        if is_packed {
            same_answers(&whole, &split);
            std::fs::remove_file(sub.join("split.dwp")).unwrap();
        }

        // Gone: lines remain, and a note tells of the file. Another build's file is not used.
        let other = build("g++", &sub, "other", C, &["-O2", version, "-gsplit-dwarf"]);
        if other.is_some() && sub.join("other-other.dwo").exists() {
            std::fs::rename(sub.join("other-other.dwo"), &dwo).unwrap();
        }
        let lines = lines_with(&split, options());
        let reader = lines.reader();
        let frames: Vec<Frame> = offsets(&split, 500)
            .into_iter()
            .flat_map(|offset| reader.frames(RelativeAddress(offset)))
            .collect();
        assert!(frames.iter().any(|frame| frame.line.is_some()));
        assert!(frames.iter().all(|frame| frame.function.is_none()));
        let is_told = |note: &Note| matches!(note, Note::NoSplitFiles { missing: 1, .. });
        assert!(lines.notes().iter().any(is_told), "{:?}", lines.notes());
    }
}

#[test]
fn names_are_demangled_and_many_threads_agree() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build(
        "g++",
        dir.path(),
        "threads",
        CPP,
        &["-O2", "-g", "-gsplit-dwarf"],
    ) else {
        return;
    };
    let lines = lines_with(&program, options());
    let offsets = offsets(&program, 2000);
    let ask = |reader: &LineReader<'_>| -> Vec<Vec<Frame>> {
        offsets
            .iter()
            .map(|&offset| reader.frames(RelativeAddress(offset)))
            .collect()
    };
    let all: Vec<Vec<Vec<Frame>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| ask(&lines.reader())))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(all.iter().all(|answers| *answers == all[0]));
    let is_deeper = |frame: &Frame| frame.function.as_deref() == Some("deeper");
    let found = all[0]
        .iter()
        .find(|frames| frames.iter().any(is_deeper))
        .unwrap();
    let last = found.last().unwrap();
    assert_eq!(
        last.function.as_deref(),
        Some("shapes::outer(int)"),
        "{found:?}"
    );
}

#[test]
fn lines_of_a_range_are_those_of_its_addresses() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build("gcc", dir.path(), "ranges", C, &["-O2", "-g", "-no-pie"]) else {
        return;
    };
    let symbols = Symbolizer::new(options()).load(&ModuleRequest {
        kind: ModuleKind::File,
        path: &program,
        build_id: None,
    });
    let plain = symbols
        .functions()
        .find(|function| function.name == "plain")
        .unwrap();
    let lines = lines_with(&program, options());
    let reader = lines.reader();
    let ranges = reader.lines(plain.addresses());
    assert!(ranges.len() > 2, "{ranges:?}");
    assert_eq!(ranges[0].addresses.start, plain.start);
    assert_eq!(
        ranges.last().unwrap().addresses.end,
        plain.start + plain.size
    );
    for range in &ranges {
        for offset in RelativeAddress::numbers(&range.addresses) {
            let frames = reader.frames(RelativeAddress(offset));
            assert_eq!(frames[0].line, range.line, "{offset:#x}");
            assert_eq!(frames[0].file, range.file);
        }
    }
}

#[test]
fn damaged_debug_information_ends_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = build("gcc", dir.path(), "whole", C, &["-O2", "-g"]) else {
        return;
    };
    let bytes = std::fs::read(&program).unwrap();
    let offsets = offsets(&program, 40);
    let damaged = dir.path().join("damaged");
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..200 {
        let mut copy = bytes.clone();
        for _ in 0..12 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Behind the code: debug sections and section headers.
            let at = copy.len() / 3 + (state >> 8) as usize % (copy.len() * 2 / 3);
            copy[at] = state as u8;
        }
        copy.truncate(copy.len() - (state % 3) as usize * 100);
        std::fs::write(&damaged, &copy).unwrap();
        let lines = lines_with(&damaged, options());
        let reader = lines.reader();
        for &offset in &offsets {
            let _ = reader.frames(RelativeAddress(offset));
            let _ = reader.lines(RelativeAddress::range(offset..offset + 100));
        }
    }
}

/// Debug information by hand: one function whose name lies at an offset of another file's strings.
const SHARING: &str = r#"
    .file 1 "shared.c"
    .text
    .globl main
    .type main, @function
main:
    .loc 1 10
    nop
    .loc 1 11
    xorl %eax, %eax
    ret
.Lend:
    .size main, .-main
    .section .debug_line,"",@progbits
.Lline:
    .section .debug_abbrev,"",@progbits
    .byte 1, 0x11, 1, 0x03, 0xa1, 0x3e, 0x11, 1, 0x12, 7, 0x10, 0x17, 0, 0
    .byte 2, 0x2e, 0, 0x03, 0xa1, 0x3e, 0x11, 1, 0x12, 7, 0, 0, 0
    .section .debug_info,"",@progbits
    .long .Linfo_end - .Linfo
.Linfo:
    .value 4
    .long 0
    .byte 8
    .byte 1
    .long 0
    .quad main
    .quad .Lend - main
    .long .Lline
    .byte 2
    .long 9
    .quad main
    .quad .Lend - main
    .byte 0
.Linfo_end:
    .section .note.GNU-stack,"",@progbits
"#;

/// `the_file` fills the first nine bytes.
const SHARED: &str = r#"
    .section .debug_str,"MS",@progbits,1
    .string "the_file"
    .string "shared_name"
    .section .note.GNU-stack,"",@progbits
"#;

fn assemble(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (input, output) = (dir.join(format!("{name}.s")), dir.join(name));
    std::fs::write(&input, source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.arg("-o").arg(&output).arg(&input).args(flags);
    output_of(&mut gcc).map(|_| output)
}

#[test]
fn what_debug_files_share_is_found() {
    if dioptra_testprograms::Limit::NotX86.holds() {
        return dioptra_testprograms::skip(dioptra_testprograms::Limit::NotX86);
    }
    let dir = tempfile::tempdir().unwrap();
    let shared_flags = ["-shared", "-nostdlib", "-Wl,--build-id"];
    let Some(shared) = assemble(dir.path(), "shared.debug", SHARED, &shared_flags) else {
        return;
    };
    let Some(program) = assemble(dir.path(), "sharing", SHARING, &[]) else {
        return;
    };
    let build_id = dioptra_symbols::build_id(&shared).unwrap().unwrap();
    let link = [b"shared.debug\0", &build_id[..]].concat();
    let link_file = dir.path().join("link");
    std::fs::write(&link_file, link).unwrap();
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--add-section");
    objcopy.arg(format!(".gnu_debugaltlink={}", link_file.display()));
    if output_of(objcopy.arg(&program)).is_none() {
        return;
    }
    let symbols = Symbolizer::new(options()).load(&ModuleRequest {
        kind: ModuleKind::File,
        path: &program,
        build_id: None,
    });
    let main = symbols
        .functions()
        .find(|function| function.name == "main")
        .unwrap();
    let lines = lines_with(&program, options());
    assert!(lines.notes().is_empty(), "{:?}", lines.notes());
    let frames = lines.reader().frames(main.start + 1);
    assert_eq!(
        frames[0].function.as_deref(),
        Some("shared_name"),
        "{frames:?}"
    );
    assert_eq!(frames[0].line, Some(11));

    // Another build's file is refused, and its absence told.
    let other = ["-shared", "-nostdlib", "-Wl,--build-id=0x1234567890abcdef"];
    assemble(dir.path(), "shared.debug", SHARED, &other).unwrap();
    let lines = lines_with(&program, options());
    let is_told = |note: &Note| matches!(note, Note::NoSupplementaryFile { build_id: wanted, .. } if *wanted == build_id);
    assert!(lines.notes().iter().any(is_told), "{:?}", lines.notes());
    let frames = lines.reader().frames(main.start + 1);
    assert_eq!(
        frames.last().and_then(|frame| frame.line),
        Some(11),
        "{frames:?}"
    );
}

#[test]
fn the_c_library_with_its_debug_package() {
    let library = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let lines = if library.exists() {
        lines_with(library, SymbolOptions::default())
    } else {
        ModuleLines::default()
    };
    if lines.is_empty() {
        return dioptra_testprograms::skip("no C library with debug information");
    }
    compare(library, &SymbolOptions::default(), library);
}
