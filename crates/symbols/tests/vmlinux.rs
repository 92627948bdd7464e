//! The kernel's own file, made here: functions and lines of a kernel that is not the running one.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use dioptra_symbols::{
    ModuleKind, ModuleRequest, Note, RecordedKernel, SymbolOptions, Symbolizer, build_id,
};
use support::output_of;

const KERNEL: &str = r#"
static inline __attribute__((always_inline)) int deep(int x) { return x * 7 ^ x >> 3; }
__attribute__((noinline)) int work(int x) {
    int s = 0;
    for (int i = 0; i < x; i++)
        s += deep(i + s);
    return s;
}
__attribute__((noinline)) int more(int x) { return work(x) + work(x + 1); }
void _start(void) { for (;;) more(3); }
"#;

const LINKED: u64 = 0xffff_ffff_8100_0000;
const RECORDED: u64 = 0xffff_ffff_a2e0_0000;
const RELEASE: &str = "2.4.0-made-here";

/// Links a kernel of one file for the address at which kernels are linked.
fn vmlinux(dir: &Path, name: &str, source: &str) -> Option<PathBuf> {
    let (input, output) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&input, source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-g", "-ffreestanding", "-nostdlib", "-static"]);
    gcc.args(["-fno-pie", "-no-pie", "-mcmodel=kernel"]);
    gcc.args([
        "-Wl,--build-id",
        "-Wl,-Ttext=0xffffffff81000000",
        "-Wl,--defsym=_text=0xffffffff81000000",
    ]);
    output_of(gcc.arg("-o").arg(&output).arg(&input))?;
    Some(output)
}

fn options(build_id: Option<Vec<u8>>) -> SymbolOptions {
    SymbolOptions {
        debug_dirs: Vec::new(),
        recorded_kernel: Some(RecordedKernel {
            release: Some(RELEASE.to_owned()),
            build_id,
            reference_symbol: Some(("_text".to_owned(), RECORDED)),
        }),
        ..SymbolOptions::default()
    }
}

fn request() -> ModuleRequest<'static> {
    ModuleRequest {
        kind: ModuleKind::Kernel,
        path: Path::new("[kernel.kallsyms]"),
        build_id: None,
    }
}

/// Functions as `nm -S` lists them: name, address, size.
fn listed(path: &Path) -> Vec<(String, u64, u64)> {
    let text = output_of(Command::new("nm").arg("-S").arg(path)).unwrap();
    let hex = |word: &str| u64::from_str_radix(word, 16).unwrap();
    text.lines()
        .filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
            [address, size, "T", name] => Some((name.to_owned(), hex(address), hex(size))),
            _ => None,
        })
        .collect()
}

/// Every address of every function has the name that nm tells and the innermost line that addr2line tells.
fn check(symbolizer: &Symbolizer, path: &Path) {
    let symbols = symbolizer.load(&request());
    let lines = symbolizer.lines(&request());
    let reader = lines.reader();
    let functions = listed(path);
    assert!(functions.len() >= 3, "{functions:?}");
    let mut inlined = 0;
    for (name, start, size) in functions {
        for address in start..start + size {
            let recorded = address - LINKED + RECORDED;
            let found = symbols
                .function(recorded)
                .map(|function| (function.raw_name.to_owned(), function.start, function.size));
            let expected = (name.clone(), start - LINKED + RECORDED, size);
            assert_eq!(found, Some(expected), "{:?}", symbols.notes());
            let frames = reader.frames(recorded);
            inlined += usize::from(frames.len() > 1);
            if (address - start) % 7 == 0 {
                let mut addr2line = Command::new("addr2line");
                addr2line.arg("-e").arg(path).arg(format!("{address:#x}"));
                let expected = output_of(&mut addr2line).unwrap();
                let expected = expected.split_whitespace().next().unwrap().to_owned();
                let frame = frames.first().unwrap();
                let found = format!(
                    "{}:{}",
                    frame.file.as_deref().unwrap(),
                    frame.line.unwrap_or(0)
                );
                assert_eq!(found, expected, "{address:#x}");
            }
        }
    }
    assert!(inlined > 0);
    // Where the file was linked for is not where the kernel lay.
    assert!(symbols.function(LINKED).is_none());
    assert!(reader.frames(LINKED).is_empty());
}

#[test]
fn a_given_file_names_another_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = vmlinux(dir.path(), "vmlinux", KERNEL) else {
        return;
    };
    let given = |build_id| {
        Symbolizer::new(SymbolOptions {
            vmlinux: Some(path.clone()),
            ..options(build_id)
        })
    };
    check(&given(None), &path);
    check(&given(build_id(&path).unwrap()), &path);

    let other = given(Some(vec![7; 20]));
    let symbols = other.load(&request());
    assert!(symbols.is_empty());
    let notes = symbols.notes();
    let is_mismatch = |note: &Note| matches!(note, Note::BuildIdMismatch { .. });
    assert!(notes.iter().any(is_mismatch), "{notes:?}");
    assert!(other.lines(&request()).is_empty());
}

#[test]
fn the_file_is_found_by_release_and_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = vmlinux(dir.path(), "made", KERNEL) else {
        return;
    };
    let Some(decoy) = vmlinux(dir.path(), "decoy", &KERNEL.replace("* 7", "* 9")) else {
        return;
    };
    let id = build_id(&path).unwrap();
    let root = dir.path().join("root");
    let below = |name: &str| root.join(name.replace("RELEASE", RELEASE));
    // What lies in the first place is another build of the same release.
    let first = below("boot/vmlinux-RELEASE");
    std::fs::create_dir_all(first.parent().unwrap()).unwrap();
    std::fs::copy(&decoy, first).unwrap();
    let with_root = |debug_dirs| {
        Symbolizer::new(SymbolOptions {
            symfs: Some(root.clone()),
            debug_dirs,
            ..options(id.clone())
        })
    };
    assert!(with_root(Vec::new()).load(&request()).is_empty());
    for place in [
        "lib/modules/RELEASE/build/vmlinux",
        "lib/modules/RELEASE/vmlinux",
        "usr/lib/debug/boot/vmlinux-RELEASE",
    ] {
        let place = below(place);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(&path, &place).unwrap();
        check(&with_root(vec!["/usr/lib/debug".into()]), &path);
        std::fs::remove_file(place).unwrap();
    }
    // Without a build id no file is taken for the kernel's.
    let mut unknown = options(None);
    unknown.symfs = Some(root.clone());
    assert!(Symbolizer::new(unknown).load(&request()).is_empty());
}

#[test]
fn a_kernel_without_a_known_place_has_no_names() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = vmlinux(dir.path(), "vmlinux", KERNEL) else {
        return;
    };
    for reference in [
        None,
        Some(("_text".to_owned(), 0)),
        Some(("no_such_symbol".to_owned(), RECORDED)),
    ] {
        let is_unknown = matches!(&reference, Some((_, address)) if *address != 0);
        let mut options = options(None);
        options.vmlinux = Some(path.clone());
        options.recorded_kernel.as_mut().unwrap().reference_symbol = reference;
        let symbols = Symbolizer::new(options).load(&request());
        assert!(symbols.is_empty());
        let told = symbols.notes().iter().any(|note| match note {
            Note::KernelNotPlaced { .. } => !is_unknown,
            Note::KernelReferenceMissing { .. } => is_unknown,
            _ => false,
        });
        assert!(told, "{:?}", symbols.notes());
    }
}

/// Nothing tells that a file without a recorded build id is the recorded one.
#[test]
fn names_of_files_under_another_kernel_are_doubted() {
    let file = std::env::current_exe().unwrap();
    let id = build_id(&file).unwrap();
    let doubted = |options: SymbolOptions, build_id: Option<&[u8]>| {
        let request = ModuleRequest {
            kind: ModuleKind::File,
            path: &file,
            build_id,
        };
        let symbols = Symbolizer::new(options).load(&request);
        assert!(!symbols.is_empty());
        let mut notes = symbols.notes().iter();
        notes.any(|note| matches!(note, Note::Unverified { .. }))
    };
    assert!(doubted(options(None), None));
    assert!(!doubted(SymbolOptions::default(), None), "this kernel");
    if id.is_some() {
        assert!(!doubted(options(None), id.as_deref()), "the build id tells");
    }
    let symfs = Some(PathBuf::from("/"));
    let given = SymbolOptions {
        symfs,
        ..options(None)
    };
    assert!(!doubted(given, None), "the files were given");
}
