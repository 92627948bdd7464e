//! Names of code that JIT compilers made.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use dioptra_symbols::{
    FileDamage, FileOffset, JitSymbols, MemoryAddress, Note, SymbolOptions, Symbolizer,
};
use support::output_of;

/// Builds a jitdump file as the specification has it.
struct DumpFile {
    bytes: Vec<u8>,
    is_big: bool,
}

impl DumpFile {
    fn new(is_big: bool, flags: u64) -> Self {
        let mut this = Self {
            bytes: Vec::new(),
            is_big,
        };
        let (pid, machine) = (77, 62);
        this.words32(&[0x4a69_5444, 1, 40, machine, 0, pid]);
        this.words64(&[1000, flags]);
        this
    }

    fn words32(&mut self, words: &[u32]) {
        for word in words {
            let bytes = if self.is_big {
                word.to_be_bytes()
            } else {
                word.to_le_bytes()
            };
            self.bytes.extend(bytes);
        }
    }

    fn words64(&mut self, words: &[u64]) {
        for word in words {
            let bytes = if self.is_big {
                word.to_be_bytes()
            } else {
                word.to_le_bytes()
            };
            self.bytes.extend(bytes);
        }
    }

    fn record(&mut self, kind: u32, time: u64, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.words32(&[kind, 0]);
        self.words64(&[time]);
        body(self);
        let size = (self.bytes.len() - start) as u32;
        let size = if self.is_big {
            size.to_be_bytes()
        } else {
            size.to_le_bytes()
        };
        self.bytes[start + 4..start + 8].copy_from_slice(&size);
    }

    fn load(&mut self, time: u64, start: u64, size: u64, name: &str) {
        self.record(0, time, |this| {
            this.words32(&[77, 77]);
            this.words64(&[start, start, size, 1]);
            this.bytes.extend(name.as_bytes());
            this.bytes.push(0);
            this.bytes.extend(vec![0x90; size as usize]);
        });
    }

    fn write(&self, dir: &Path) -> PathBuf {
        let path = dir.join("jit-77.dump");
        std::fs::write(&path, &self.bytes).unwrap();
        path
    }
}

/// An example with everything that is understood, and a record that is not.
fn example(is_big: bool, flags: u64) -> DumpFile {
    let mut dump = DumpFile::new(is_big, flags);
    dump.record(2, 1999, |this| {
        this.words64(&[0x1000, 3]);
        for (address, line, name) in [
            (0x1000, 10, &b"a.js\0"[..]),
            (0x1008, 12, b"\xff\0"),
            (0x1004, 7, b"b.js\0"),
        ] {
            this.words64(&[address]);
            this.words32(&[line, 0]);
            this.bytes.extend(name);
        }
    });
    dump.load(2000, 0x1000, 0x40, "first");
    dump.record(99, 2001, |this| this.words64(&[1, 2, 3]));
    dump.load(2500, 0x2000, 0x10, "_ZN3foo3barEi");
    dump.load(3000, 0x1000, 0x20, "second");
    dump.record(1, 4000, |this| {
        this.words32(&[77, 77]);
        this.words64(&[0x2000, 0x2000, 0x3000, 0x10, 2]);
    });
    // The specification's order: address written at, old address, new address, size, index.
    dump.record(3, 5000, |_| {});
    dump
}

fn options_in(dir: &Path) -> SymbolOptions {
    SymbolOptions {
        symfs: Some(dir.to_path_buf()),
        ..SymbolOptions::default()
    }
}

fn load(dir: &Path, dumps: &[&Path]) -> JitSymbols {
    Symbolizer::new(options_in(dir)).jit(77, dumps)
}

fn name(symbols: &JitSymbols, address: u64, time: u64) -> Option<String> {
    let function = symbols.function(MemoryAddress(address), Some(time))?;
    Some(function.name.into_owned())
}

#[test]
fn a_dump_tells_functions_over_time() {
    let dir = tempfile::tempdir().unwrap();
    for is_big in [false, true] {
        let path = example(is_big, 0).write(dir.path());
        let inside = Path::new("/jit-77.dump");
        assert_eq!(path, dir.path().join("jit-77.dump"));
        let symbols = load(dir.path(), &[inside]);
        assert!(symbols.notes().is_empty(), "{:?}", symbols.notes());
        assert_eq!(name(&symbols, 0x1010, 1999), None);
        assert_eq!(name(&symbols, 0x1010, 2000).as_deref(), Some("first"));
        assert_eq!(name(&symbols, 0x1010, 3000).as_deref(), Some("second"));
        assert_eq!(name(&symbols, 0x1030, 3000), None);
        assert_eq!(
            symbols.function(MemoryAddress(0x101f), None).unwrap().name,
            "second"
        );
        assert_eq!(
            symbols.function(MemoryAddress(0x101f), None).unwrap().size,
            0x20
        );
        assert_eq!(
            name(&symbols, 0x2008, 3999).as_deref(),
            Some("foo::bar(int)")
        );
        assert_eq!(name(&symbols, 0x2008, 4000), None);
        assert_eq!(
            name(&symbols, 0x3008, 4000).as_deref(),
            Some("foo::bar(int)")
        );
        assert_eq!(
            symbols.line(MemoryAddress(0x1003), Some(2000)),
            Some(("a.js", 10))
        );
        assert_eq!(
            symbols.line(MemoryAddress(0x1007), Some(2000)),
            Some(("b.js", 7))
        );
        assert_eq!(
            symbols.line(MemoryAddress(0x103f), Some(2000)),
            Some(("a.js", 12))
        );
        assert_eq!(symbols.line(MemoryAddress(0x1003), Some(3000)), None);
        // Each function's code lies once in the file, wherever it was in memory.
        let placements = symbols.placements();
        let code = |start: u64| -> Vec<(u64, FileOffset)> {
            let start = MemoryAddress(start);
            let of = placements.iter().filter(|placed| placed.start == start);
            of.map(|placed| (placed.time, placed.offset)).collect()
        };
        let (first, second) = (code(0x1000)[0], code(0x1000)[1]);
        assert_eq!((first.0, second.0), (2000, 3000));
        assert_eq!(code(0x2000)[0].1, code(0x3000)[0].1);
        let bytes = std::fs::read(&path).unwrap();
        assert!(
            bytes[first.1.0 as usize..][..0x40]
                .iter()
                .all(|&byte| byte == 0x90)
        );
        assert_eq!(&bytes[first.1.0 as usize - 6..][..6], b"first\0");
        let in_file = |offset| Some(symbols.function_in_file(offset)?.name.into_owned());
        assert_eq!(in_file(first.1 + 0x3f).as_deref(), Some("first"));
        assert_eq!(in_file(first.1 + 0x40), None);
        assert_eq!(in_file(second.1).as_deref(), Some("second"));
        assert_eq!(symbols.line_in_file(first.1 + 7), Some(("b.js", 7)));
        let one = Symbolizer::new(options_in(dir.path())).jit_dump(inside);
        assert_eq!(one.placements(), placements);
    }
}

#[test]
fn times_of_the_cpus_counter_are_told() {
    let dir = tempfile::tempdir().unwrap();
    example(false, 1).write(dir.path());
    let symbols = load(dir.path(), &[Path::new("/jit-77.dump")]);
    assert_eq!(name(&symbols, 0x1010, 5).as_deref(), Some("second"));
    assert!(
        symbols.notes()[0].to_string().contains("counter"),
        "{:?}",
        symbols.notes()
    );
}

#[test]
fn damaged_dumps_tell_what_they_can() {
    let dir = tempfile::tempdir().unwrap();
    let whole = example(false, 0);
    for length in 0..whole.bytes.len() {
        let cut = DumpFile {
            bytes: whole.bytes[..length].to_vec(),
            is_big: false,
        };
        cut.write(dir.path());
        let symbols = load(dir.path(), &[Path::new("/jit-77.dump")]);
        assert!(symbols.len() <= 4);
        for note in symbols.notes() {
            let Note::Damaged { what, .. } = note else {
                continue;
            };
            let FileDamage::JitDumpEnd { at } = what else {
                panic!("{what}");
            };
            assert!(*at <= length as u64, "{what}");
        }
    }
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..500 {
        let mut bytes = whole.bytes.clone();
        for _ in 0..4 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = (state >> 8) as usize % bytes.len();
            bytes[at] = state as u8;
        }
        let damaged = DumpFile {
            bytes,
            is_big: false,
        };
        damaged.write(dir.path());
        let symbols = load(dir.path(), &[Path::new("/jit-77.dump")]);
        for address in (0..0x4000).step_by(0x100) {
            let _ = symbols.function(MemoryAddress(address), None);
            let _ = symbols.line(MemoryAddress(address), Some(3000));
        }
    }
}

#[test]
fn a_map_file_is_read_and_bad_lines_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let symbols = load(dir.path(), &[]);
    assert!(symbols.is_empty());
    assert!(matches!(symbols.notes(), [Note::NoJitMap { .. }]));

    std::fs::create_dir(dir.path().join("tmp")).unwrap();
    let text =
        "1000 20 old one\n1010 8 JS:*new name\n0x2000 0x10 prefixed\nrubbish\n3000 zz bad\n\n";
    std::fs::write(dir.path().join("tmp/perf-77.map"), text).unwrap();
    let symbols = load(dir.path(), &[]);
    assert_eq!(name(&symbols, 0x1017, 0).as_deref(), Some("JS:*new name"));
    let at = |address| {
        Some(
            symbols
                .function(MemoryAddress(address), None)?
                .name
                .into_owned(),
        )
    };
    assert_eq!(at(0x1017).as_deref(), Some("JS:*new name"));
    assert_eq!(at(0x200f).as_deref(), Some("prefixed"));
    assert_eq!(at(0x2010), None);
    let what = FileDamage::JitMapLines { count: 2 };
    let path = dir.path().join("tmp/perf-77.map");
    assert_eq!(symbols.notes(), [Note::Damaged { path, what }]);
}

#[test]
fn names_of_a_javascript_program_are_perfs() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("perf.data");
    let program =
        "function fib(n){return n<2?n:fib(n-1)+fib(n-2)} let s=0; for(let i=0;i<20;i++) s+=fib(23)";
    let mut perf = Command::new("perf");
    perf.args([
        "record",
        "-q",
        "-N",
        "-B",
        "-e",
        "cpu-clock",
        "-c",
        "500000",
        "-o",
    ])
    .arg(&file)
    .args(["--", "node", "--perf-basic-prof", "-e", program])
    // V8 leaves a log where it runs.
    .current_dir(dir.path())
    .env("HOME", dir.path());
    if output_of(&mut perf).is_none() {
        return;
    }
    let mut perf = Command::new("perf");
    perf.args(["script", "--no-demangle", "-F", "pid,ip,sym,dso", "-i"])
        .arg(&file)
        .env("HOME", dir.path());
    let Some(text) = output_of(&mut perf) else {
        return;
    };
    let mut known: Option<(u32, JitSymbols)> = None;
    let (mut asked, mut differ) = (0, 0);
    for line in text.lines() {
        // ` 32403      7f00900059f6 JS:^fib [eval]:1:13 (/tmp/perf-32403.map)`
        let Some((rest, dso)) = line.trim().rsplit_once(" (/tmp/perf-") else {
            continue;
        };
        let Some(pid) = dso.strip_suffix(".map)").and_then(|pid| pid.parse().ok()) else {
            continue;
        };
        let mut fields = rest.split_whitespace();
        let address = u64::from_str_radix(fields.nth(1).unwrap(), 16).unwrap();
        let theirs = fields.collect::<Vec<_>>().join(" ");
        let (_, symbols) = known.get_or_insert_with(|| {
            let symbols = Symbolizer::new(SymbolOptions {
                demangle: false,
                ..SymbolOptions::default()
            });
            (pid, symbols.jit(pid, &[]))
        });
        let ours = symbols.function(MemoryAddress(address), None);
        let ours = ours.map_or_else(
            || "[unknown]".to_owned(),
            |function| function.name.into_owned(),
        );
        let ours = ours.split_whitespace().collect::<Vec<_>>().join(" ");
        asked += 1;
        if ours != theirs {
            // Where functions were replaced, perf keeps one of them, not always the last.
            eprintln!("{address:#x}: {ours}, perf says {theirs}");
            differ += 1;
        }
    }
    match known {
        Some((pid, _)) => std::fs::remove_file(format!("/tmp/perf-{pid}.map")).unwrap(),
        None => dioptra_testprograms::skip("no sample in code of the JIT compiler"),
    }
    eprintln!("{asked} samples in JIT code, {differ} names differ");
    assert!(differ <= 2 || differ * 5 <= asked);
}
