//! Names as perf gives them: for every function of real modules, of the vdso and of the kernel.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use dioptra_symbols::{
    ModuleKind, ModuleRequest, ModuleSymbols, Note, RelativeAddress, SymbolOptions, Symbolizer,
};
use support::{Recording, Truth};

fn load(kind: ModuleKind, path: &Path) -> ModuleSymbols {
    let options = SymbolOptions {
        demangle: false,
        ..SymbolOptions::default()
    };
    Symbolizer::new(options).load(&ModuleRequest {
        kind,
        path,
        build_id: None,
    })
}

/// Returns addresses of every `every`th function: its first byte, one inside, its last, and the one behind it.
fn probes(symbols: &ModuleSymbols, every: usize) -> BTreeSet<u64> {
    let ends = |start: u64, size: u64| [start, start + size / 2, start + size - 1, start + size];
    symbols
        .functions()
        .step_by(every)
        .flat_map(|f| ends(f.start.0, f.size))
        .collect()
}

/// Whether both names stand for one address, or perf is known to be wrong.
fn agree(ours: Option<&str>, perf: Option<&str>, truth: &Truth) -> bool {
    if ours == perf {
        return true;
    }
    // perf 6.1 names entries of the linkage table by their order, which is not the relocations' order
    // in many files; `binutils.rs` checks these names against objdump.
    if [ours, perf]
        .into_iter()
        .flatten()
        .any(|name| name.ends_with("@plt"))
    {
        return true;
    }
    match (ours, perf) {
        (Some(ours), Some(perf)) => truth.same_address(ours, perf),
        // perf lets a symbol without a size reach into the next section.
        (None, Some(perf)) => truth.has_no_size(perf),
        _ => false,
    }
}

fn compare(recording: &Recording, module: &str, kind: ModuleKind) {
    let symbols = load(kind, Path::new(module));
    let mut files = vec![PathBuf::from(module)];
    files.extend(symbols.notes().iter().filter_map(|note| match note {
        Note::DebugFile { path } => Some(path.clone()),
        _ => None,
    }));
    let truth = if kind == ModuleKind::File {
        Truth::of(&files)
    } else {
        Some(Truth::default())
    };
    let Some(truth) = truth else { return };
    let probes: Vec<(u64, u64)> = probes(&symbols, 1 + symbols.len() / 2000)
        .into_iter()
        .filter_map(|offset| Some((offset, recording.address(module, offset)?)))
        .collect();
    let addresses: Vec<u64> = probes.iter().map(|&(_, address)| address).collect();
    let Some(perf) = recording.perf_names(&addresses) else {
        return;
    };
    let mut named = 0;
    for (offset, address) in &probes {
        let function = symbols.function(RelativeAddress(*offset));
        let ours = function.as_ref().map(|function| function.raw_name);
        let theirs = perf.get(address).map(String::as_str);
        assert!(
            agree(ours, theirs, &truth),
            "{module} at {offset:#x}: {ours:?}, perf says {theirs:?}"
        );
        named += usize::from(ours.is_some());
    }
    assert!(named > 0 || symbols.is_empty(), "{module}: no name at all");
    eprintln!("{module}: {} addresses, {named} with names", probes.len());
}

fn compare_all(recording: &Recording) {
    let modules: BTreeSet<&str> = recording
        .mappings
        .iter()
        .map(|(.., name)| name.as_str())
        .collect();
    for module in modules {
        let kind = ModuleKind::of_mapping(Path::new(module));
        if matches!(kind, ModuleKind::File | ModuleKind::Vdso) {
            compare(recording, module, kind);
        }
    }
}

const BUSY: &str = r#"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
static volatile double sum;
__attribute__((noinline)) static void inner(int n) { for (int i = 0; i < n; i++) sum += sqrt(i) * sin(i); }
__attribute__((noinline)) void outer(int n) { inner(n); sum += 1; }
__asm__(".text\n.globl plain_label\nplain_label: nop\nnop\nret\n.type typed, @function\ntyped: nop\nret\n.size typed, .-typed\n");
int main(void) { outer(1000000); printf("%f %s\n", sum, getenv("HOME")); free(malloc(10)); return 0; }
"#;

#[test]
fn a_c_program_and_its_libraries() {
    let dir = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("pie", &["-O1", "-pie", "-fPIE", "-lm"][..]),
        ("fixed", &["-O1", "-no-pie", "-lm"]),
        ("one_segment", &["-O1", "-Wl,-z,noseparate-code", "-lm"]),
        (
            "elsewhere",
            &["-O1", "-no-pie", "-Wl,-Ttext=0x700000", "-lm"],
        ),
        ("stripped", &["-O1", "-rdynamic", "-s", "-lm"]),
    ] {
        let Some(program) = support::compile(dir.path(), name, BUSY, flags) else {
            return;
        };
        let Some(recording) = Recording::of(&[program.to_str().unwrap()]) else {
            return;
        };
        if name == "pie" {
            compare_all(&recording);
        } else {
            compare(&recording, program.to_str().unwrap(), ModuleKind::File);
        }
    }
}

#[test]
fn python_and_its_libraries() {
    let Some(recording) = Recording::of(&[
        "/usr/bin/python3",
        "-c",
        "sum(i * i for i in range(100000))",
    ]) else {
        return;
    };
    compare_all(&recording);
}

#[test]
fn the_kernel() {
    let symbols = load(ModuleKind::Kernel, Path::new("[kernel.kallsyms]"));
    if symbols.is_empty() {
        return dioptra_testprograms::skip(format!("{:?}", symbols.notes()));
    }
    let Some(recording) = Recording::of(&[
        "sh",
        "-c",
        "for i in 1 2 3 4 5 6 7 8 9; do cat /proc/self/maps; done",
    ]) else {
        return;
    };
    let kallsyms = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let mut at: HashMap<u64, HashSet<&str>> = HashMap::new();
    for line in kallsyms.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        at.entry(u64::from_str_radix(fields[0], 16).unwrap())
            .or_default()
            .insert(fields[2]);
    }
    // Not the byte behind a function: whether the last one reaches over unnamed memory is taste.
    let every = symbols
        .functions()
        .step_by(61)
        .filter(|function| function.module.is_none());
    let asked: Vec<u64> = every
        .flat_map(|f| [f.start, f.start + f.size / 2, f.start + (f.size - 1)])
        .map(|address| address.0)
        .collect();
    let Some(perf) = recording.perf_names(&asked) else {
        return;
    };
    if perf.is_empty() {
        return dioptra_testprograms::skip("perf names no kernel address");
    }
    for address in asked {
        let function = symbols.function(RelativeAddress(address)).unwrap();
        let theirs = perf.get(&address).map(String::as_str);
        let same = theirs.is_some_and(|name| at[&function.start.0].contains(name));
        assert!(
            same,
            "{address:#x}: {}, perf says {theirs:?}",
            function.raw_name
        );
    }
}
