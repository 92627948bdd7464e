//! The kernel's own file, made here: functions, lines and code of a kernel that is not the running one.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use dioptra_instructions::{FunctionCode, Target};
use dioptra_symbols::{
    CodeError, FileAddress, MemoryAddress, ModuleKind, ModuleRequest, Note, RecordedKernel,
    RelativeAddress, SymbolOptions, Symbolizer, build_id,
};
use dioptra_testprograms::{KERNEL_LINKED as LINKED, kernel, or_skip};
use support::output_of;

const RECORDED: u64 = 0xffff_ffff_a2e0_0000;
const RELEASE: &str = "2.4.0-made-here";

fn options(build_id: Option<Vec<u8>>) -> SymbolOptions {
    SymbolOptions {
        debug_dirs: Vec::new(),
        recorded_kernel: Some(RecordedKernel {
            release: Some(RELEASE.to_owned()),
            build_id,
            reference_symbol: Some(("_text".to_owned(), MemoryAddress(RECORDED))),
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

/// The instructions are objdump's, and speak of recorded addresses.
fn check_code(symbolizer: &Symbolizer, path: &Path) {
    let code = symbolizer.code(&request());
    assert_eq!(code.kernel_file(), Some(path), "{:?}", code.notes());
    let listing = output_of(Command::new("objdump").args(["-d", "-w"]).arg(path)).unwrap();
    let lines = listing.lines().filter_map(|line| line.split_once(":\t"));
    let listed_code: Vec<(u64, String)> = lines
        .map(|(address, rest)| {
            let bytes = rest.split('\t').next().unwrap().replace(' ', "");
            (u64::from_str_radix(address.trim(), 16).unwrap(), bytes)
        })
        .collect();
    let functions = listed(path);
    let start_of = |name: &str| {
        let found = functions.iter().find(|(known, ..)| known == name).unwrap();
        found.1 - LINKED + RECORDED
    };
    for (name, start, size) in &functions {
        let range = start - LINKED + RECORDED..start + size - LINKED + RECORDED;
        let relative = RelativeAddress::range(range.clone());
        let function = FunctionCode::of_module(&code, relative.clone()).unwrap();
        assert_eq!(
            code.virtual_address(relative.start),
            Some(FileAddress(*start))
        );
        let found = function.instructions().map(|one| {
            let hex = |byte: &u8| format!("{byte:02x}");
            assert_eq!(one.address - RECORDED, one.virtual_address - LINKED);
            let bytes: String = one.bytes.iter().map(hex).collect();
            (one.virtual_address, bytes)
        });
        let inside = |(address, _): &&(u64, String)| (*start..start + size).contains(address);
        let expected = listed_code.iter().filter(inside).cloned();
        assert_eq!(
            found.collect::<Vec<_>>(),
            expected.collect::<Vec<_>>(),
            "{name}"
        );
        let called = function.calls().map(|call| call.target.unwrap().address);
        let called: Vec<_> = called.collect();
        match name.as_str() {
            "more" => assert!(called.contains(&Some(start_of("work"))), "{called:?}"),
            "pick" => {
                let [table] = function.tables() else {
                    panic!("one jump table");
                };
                let inside = |target: &Target| range.contains(&target.address.unwrap());
                assert_eq!(table.targets.len(), 6);
                assert!(table.targets.iter().all(inside));
            }
            _ => {}
        }
    }
    let beyond = FunctionCode::of_module(&code, RelativeAddress::range(LINKED..LINKED + 16));
    assert!(matches!(beyond, Err(CodeError::NotCode(_))), "{beyond:?}");
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
            let recorded = RelativeAddress::of_kernel(MemoryAddress(address - LINKED + RECORDED));
            let found = symbols.function(recorded).map(|function| {
                (
                    function.raw_name.to_owned(),
                    function.start.0,
                    function.size,
                )
            });
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
    check_code(symbolizer, path);
    // Where the file was linked for is not where the kernel lay.
    assert!(symbols.function(RelativeAddress(LINKED)).is_none());
    assert!(reader.frames(RelativeAddress(LINKED)).is_empty());
}

#[test]
fn a_given_file_names_another_kernel() {
    let path = or_skip!(kernel(&[]));
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
    let notes = other.code(&request()).notes().to_vec();
    assert!(notes.iter().any(is_mismatch), "{notes:?}");
}

/// A kernel without code says so: no file, a loadable module, debug information without code.
#[test]
fn a_kernel_without_code_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = or_skip!(kernel(&[]));
    let why = |options: SymbolOptions, name: &str| {
        let asked = ModuleRequest {
            path: Path::new(name),
            ..request()
        };
        let code = Symbolizer::new(options).code(&asked);
        assert!(code.is_empty() && code.kernel_file().is_none());
        let notes = code.notes().iter().map(Note::to_string);
        notes.collect::<Vec<_>>().join("; ")
    };
    let given = |path: &Path| SymbolOptions {
        vmlinux: Some(path.to_path_buf()),
        ..options(None)
    };
    let none = why(options(Some(vec![7; 20])), "[kernel.kallsyms]");
    assert!(none.contains("Give its vmlinux"), "{none}");
    let loadable = why(given(&path), "[ext4]");
    assert!(loadable.contains("loadable"), "{loadable}");
    let debug_only = dir.path().join("debug");
    let mut objcopy = Command::new("objcopy");
    objcopy.arg("--only-keep-debug").arg(&path).arg(&debug_only);
    if output_of(&mut objcopy).is_some() {
        let told = why(given(&debug_only), "[kernel.kallsyms]");
        assert!(told.contains("debug information only"), "{told}");
    }
}

#[test]
fn the_file_is_found_by_release_and_build_id() {
    let dir = tempfile::tempdir().unwrap();
    let path = or_skip!(kernel(&[]));
    let decoy = or_skip!(kernel(&["-DFACTOR=9"]));
    let id = build_id(&path).unwrap();
    let root = dir.path().join("root");
    let below = |name: &str| root.join(name.replace("RELEASE", RELEASE));
    // The first candidate is another build of the same release.
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
        check(&with_root(vec!["/usr/lib/debug".into()]), &place);
        std::fs::remove_file(place).unwrap();
    }
    // Without a build id no file is taken for the kernel's.
    let mut unknown = options(None);
    unknown.symfs = Some(root.clone());
    assert!(Symbolizer::new(unknown).load(&request()).is_empty());
}

#[test]
fn a_kernel_without_a_known_place_has_no_names() {
    let path = or_skip!(kernel(&[]));
    for reference in [
        None,
        Some(("_text".to_owned(), MemoryAddress(0))),
        Some(("no_such_symbol".to_owned(), MemoryAddress(RECORDED))),
    ] {
        let is_unknown = matches!(&reference, Some((_, address)) if address.0 != 0);
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
