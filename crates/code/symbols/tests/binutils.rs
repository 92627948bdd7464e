//! Names, debug files and build ids as binutils tell them.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use dioptra_symbols::{
    DebugFileRefusal, ModuleKind, ModuleRequest, ModuleSymbols, Note, RelativeAddress,
    SymbolOptions, Symbolizer, build_id,
};
use support::{compile, output_of};

const CALLS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
__attribute__((noinline, section(".text.far"))) int far_away(int x) { return x * 3 + (int)strlen(getenv("HOME")); }
__attribute__((noinline)) int near(double x) { return (int)(sin(x) + cos(x)); }
static int (*volatile chosen)(const char *, const char *) = strcmp;
int main(int n, char **v) { printf("%d %d %d\n", far_away(n), near(n), chosen(v[0], "x")); return atexit(0); }
"#;

fn load(path: &Path, options: SymbolOptions, recorded: Option<&[u8]>) -> ModuleSymbols {
    let options = SymbolOptions {
        demangle: false,
        ..options
    };
    Symbolizer::new(options).load(&ModuleRequest {
        kind: ModuleKind::File,
        path,
        build_id: recorded,
    })
}

fn without_debug_dirs() -> SymbolOptions {
    SymbolOptions {
        debug_dirs: Vec::new(),
        ..SymbolOptions::default()
    }
}

fn name(symbols: &ModuleSymbols, offset: RelativeAddress) -> Option<&str> {
    symbols.function(offset).map(|function| function.raw_name)
}

/// Section start addresses and file offsets, from readelf: name, address, offset, size.
fn sections(file: &Path) -> Option<Vec<(String, u64, u64, u64)>> {
    let text = output_of(Command::new("readelf").args(["-SW"]).arg(file))?;
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let parse = |line: &str| {
        // `  [13] .plt   PROGBITS   0000000000001020 001020 000060 10 AX 0 0 16`
        let fields: Vec<&str> = line.split_once(']')?.1.split_whitespace().collect();
        Some((
            fields.first()?.to_string(),
            hex(fields.get(2)?)?,
            hex(fields.get(3)?)?,
            hex(fields.get(4)?)?,
        ))
    };
    Some(text.lines().filter_map(parse).collect())
}

fn file_offset(sections: &[(String, u64, u64, u64)], address: u64) -> u64 {
    let (_, start, offset, _) = sections
        .iter()
        .find(|(_, start, _, size)| *start != 0 && (*start..start + size).contains(&address))
        .unwrap();
    address - start + offset
}

/// Every `name@plt` that objdump finds must be ours.
fn check_plt(objdump: &str, file: &Path) -> Option<usize> {
    let sections = sections(file)?;
    let text = output_of(
        Command::new(objdump)
            .arg("-d")
            .args(["-j.plt", "-j.plt.sec", "-j.plt.got"])
            .arg(file),
    )?;
    let relocations = output_of(Command::new("readelf").arg("-rW").arg(file))?;
    // Not called through the table; objdump counts them as entries and names the code behind the last.
    let is_thread_local = |label: &str| {
        let mut descriptors = relocations.lines().filter(|line| line.contains("TLSDESC"));
        descriptors.any(|line| line.contains(label))
    };
    let symbols = load(file, without_debug_dirs(), None);
    let mut checked = 0;
    for line in text.lines() {
        // `0000000000001030 <getenv@plt>:`
        let Some((address, label)) = line.split_once(" <") else {
            continue;
        };
        let Some(label) = label.strip_suffix("@plt>:") else {
            continue;
        };
        let offset = file_offset(&sections, u64::from_str_radix(address, 16).unwrap());
        let ours = name(&symbols, RelativeAddress(offset));
        // binutils don't name what is chosen at load time; we do where we can.
        if is_thread_local(label) {
            assert_eq!(ours, None);
        } else if label.starts_with("*ABS*") {
            assert!(
                ours.is_some_and(|name| name.ends_with("@plt")),
                "{offset:#x}: {ours:?}, objdump says {label}"
            );
        } else {
            let expected = format!("{label}@plt");
            assert_eq!(
                ours.map(|name| name.replace("@@", "@")),
                Some(expected),
                "{} at {offset:#x}",
                file.display()
            );
        }
        checked += 1;
    }
    Some(checked)
}

#[test]
fn linkage_tables_are_named_as_objdump_names_them() {
    let dir = tempfile::tempdir().unwrap();
    for (file, flags) in [
        ("now", &["-O1", "-lm", "-Wl,-z,now"][..]),
        ("lazy", &["-O1", "-lm", "-Wl,-z,lazy"]),
        (
            "ibt_lazy",
            &[
                "-O1",
                "-lm",
                "-fcf-protection",
                "-Wl,-z,lazy",
                "-Wl,-z,ibtplt",
            ],
        ),
        (
            "ibt_now",
            &[
                "-O1",
                "-lm",
                "-fcf-protection",
                "-Wl,-z,now",
                "-Wl,-z,ibtplt",
            ],
        ),
        ("fixed", &["-O1", "-lm", "-no-pie", "-Wl,-z,lazy"]),
        ("library", &["-O1", "-lm", "-shared", "-fPIC"]),
        ("gold", &["-O1", "-lm", "-fuse-ld=gold"]),
    ] {
        let Some(path) = compile(dir.path(), file, CALLS, flags) else {
            continue;
        };
        let Some(checked) = check_plt("objdump", &path) else {
            return;
        };
        // One entry a called function, unless the linker was told to bind all of them early.
        assert!(checked >= 4, "{file}: objdump names only {checked} entries");
    }
    for library in ["libc.so.6", "libm.so.6", "libstdc++.so.6"] {
        for (folder, objdump) in [
            ("/usr/lib/x86_64-linux-gnu", "objdump"),
            ("/usr/aarch64-linux-gnu/lib", "aarch64-linux-gnu-objdump"),
        ] {
            let path = Path::new(folder).join(library);
            if path.exists() {
                check_plt(objdump, &path);
            } else {
                dioptra_testprograms::skip(format!("{} is not there", path.display()));
            }
        }
    }
}

#[test]
fn a_function_chosen_at_load_time_is_named_in_the_linkage_table() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "static", CALLS, &["-O1", "-static", "-lm"]) else {
        return;
    };
    let symbols = load(&path, without_debug_dirs(), None);
    let Some(text) = output_of(Command::new("nm").arg(&path)) else {
        return;
    };
    let chosen: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once(" i "))
        .map(|(_, name)| name)
        .collect();
    let entries: Vec<&str> = symbols
        .functions()
        .filter_map(|f| f.raw_name.strip_suffix("@plt"))
        .collect();
    assert!(!entries.is_empty());
    for name in entries {
        assert!(
            chosen.contains(&name),
            "{name}@plt, but nm knows no indirect function of that name"
        );
    }
}

/// Every function of `nm`, at the file offset that its section gives.
fn check_functions(file: &Path) -> Option<usize> {
    let sections = sections(file)?;
    let text = output_of(Command::new("nm").args(["-S", "--defined-only"]).arg(file))?;
    let mut at: HashMap<u64, Vec<(&str, u64)>> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, size, kind, name] = fields[..] else {
            continue;
        };
        if matches!(kind, "t" | "T" | "w" | "W" | "i") {
            let parse = |digits| u64::from_str_radix(digits, 16).unwrap();
            at.entry(parse(address))
                .or_default()
                .push((name, parse(size)));
        }
    }
    let symbols = load(file, without_debug_dirs(), None);
    for (&address, names) in &at {
        let offset = RelativeAddress(file_offset(&sections, address));
        let function = symbols.function(offset).unwrap();
        assert_eq!(function.start, offset, "{names:?}");
        assert!(
            names.contains(&(function.raw_name, function.size)),
            "{function:?} is none of {names:?}"
        );
        let last = symbols.function(offset + function.size - 1).unwrap();
        assert!(last.start >= offset);
    }
    Some(at.len())
}

#[test]
fn file_offsets_lead_to_functions_in_every_layout() {
    let dir = tempfile::tempdir().unwrap();
    let mut checked = 0;
    for (file, flags) in [
        ("pie", &["-lm"][..]),
        ("fixed", &["-lm", "-no-pie"]),
        ("one_segment", &["-lm", "-Wl,-z,noseparate-code"]),
        ("elsewhere", &["-lm", "-no-pie", "-Wl,-Ttext=0x700000"]),
        (
            "two_code_segments",
            &[
                "-lm",
                "-no-pie",
                "-Wl,--section-start=.text.far=0x900000",
                "-Wl,--unique=.text.far",
            ],
        ),
        ("static", &["-lm", "-static"]),
    ] {
        let Some(path) = compile(dir.path(), file, CALLS, flags) else {
            continue;
        };
        let Some(count) = check_functions(&path) else {
            return;
        };
        checked += count;
    }
    const FREESTANDING: &str = "int f(int x) { return x; }\nvoid _start(void) { for (;;) f(1); }\n";
    if let Some(path) = compile(
        dir.path(),
        "of_32_bits",
        FREESTANDING,
        &["-m32", "-nostdlib", "-static"],
    ) {
        checked += check_functions(&path).unwrap_or(0);
    }
    assert!(checked == 0 || checked > 100);
}

struct Stripped {
    _dir: tempfile::TempDir,
    program: PathBuf,
    debug: PathBuf,
    /// File offset of `near`, which only `.symtab` names.
    near: RelativeAddress,
}

/// A program without symbols and the debug file taken from it.
fn stripped(flags: &[&str]) -> Option<Stripped> {
    let dir = tempfile::tempdir().unwrap();
    let flags = [&["-O1", "-lm"], flags].concat();
    let program = compile(dir.path(), "program", CALLS, &flags)?;
    let debug = dir.path().join("program.debug");
    let whole = load(&program, without_debug_dirs(), None);
    let near = whole
        .functions()
        .find(|f| f.raw_name == "near")
        .unwrap()
        .start;
    output_of(
        Command::new("objcopy")
            .arg("--only-keep-debug")
            .arg(&program)
            .arg(&debug),
    )?;
    output_of(Command::new("strip").arg(&program))?;
    Some(Stripped {
        _dir: dir,
        program,
        debug,
        near,
    })
}

#[test]
fn a_debug_file_is_found_by_build_id() {
    let Some(stripped) = stripped(&["-Wl,--build-id"]) else {
        return;
    };
    let id = build_id(&stripped.program).unwrap().unwrap();
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let told = output_of(Command::new("readelf").arg("-n").arg(&stripped.program)).unwrap();
    assert!(told.contains(&hex), "{hex} is not in {told}");

    let symbols = load(&stripped.program, without_debug_dirs(), Some(&id));
    assert_eq!(name(&symbols, stripped.near), None);
    assert!(
        matches!(symbols.notes(), [Note::NoSymbols { .. }]),
        "{:?}",
        symbols.notes()
    );

    let debug_dir = tempfile::tempdir().unwrap();
    let place = debug_dir.path().join(".build-id").join(&hex[..2]);
    std::fs::create_dir_all(&place).unwrap();
    let place = place.join(format!("{}.debug", &hex[2..]));
    std::fs::copy(&stripped.debug, &place).unwrap();
    let options = || SymbolOptions {
        debug_dirs: vec![debug_dir.path().to_path_buf()],
        ..SymbolOptions::default()
    };
    let symbols = load(&stripped.program, options(), Some(&id));
    assert_eq!(name(&symbols, stripped.near), Some("near"));
    assert_eq!(
        symbols.notes(),
        [Note::DebugFile {
            path: place.clone()
        }]
    );

    // Another build's file in its place is refused.
    let other = compile(
        debug_dir.path(),
        "other",
        "int main(void) { return 7; }",
        &["-Wl,--build-id"],
    )
    .unwrap();
    std::fs::copy(other, &place).unwrap();
    let symbols = load(&stripped.program, options(), Some(&id));
    assert_eq!(name(&symbols, stripped.near), None);
    let refused = |note: &Note| {
        let Note::DebugFileRefused { path, why } = note else {
            return false;
        };
        *path == place
            && matches!(why, DebugFileRefusal::OtherBuild { found, wanted } if *wanted == id && found != wanted)
    };
    assert!(symbols.notes().iter().any(refused), "{:?}", symbols.notes());
}

#[test]
fn a_debug_file_is_found_by_link_and_checksum() {
    let Some(stripped) = stripped(&["-Wl,--build-id=none"]) else {
        return;
    };
    let mut link = Command::new("objcopy");
    link.current_dir(stripped.debug.parent().unwrap())
        .arg("--add-gnu-debuglink=program.debug")
        .arg("program");
    if output_of(&mut link).is_none() {
        return;
    }
    let symbols = load(&stripped.program, without_debug_dirs(), None);
    assert_eq!(name(&symbols, stripped.near), Some("near"));
    assert!(symbols.notes().contains(&Note::DebugFile {
        path: stripped.debug.clone()
    }));

    let mut bytes = std::fs::read(&stripped.debug).unwrap();
    bytes.push(0);
    std::fs::write(&stripped.debug, bytes).unwrap();
    let symbols = load(&stripped.program, without_debug_dirs(), None);
    assert_eq!(name(&symbols, stripped.near), None);
    let refused = |note: &Note| {
        let Note::DebugFileRefused { why, .. } = note else {
            return false;
        };
        matches!(why, DebugFileRefusal::OtherChecksum { found, wanted } if found != wanted)
    };
    assert!(symbols.notes().iter().any(refused), "{:?}", symbols.notes());
}

#[test]
fn names_are_found_in_packed_symbols() {
    let Some(stripped) = stripped(&[]) else {
        return;
    };
    let dir = stripped.debug.parent().unwrap();
    let mini = dir.join("mini");
    // As distributions make it: no debug sections, symbols only.
    if output_of(
        Command::new("strip")
            .arg("--strip-debug")
            .arg("-o")
            .arg(&mini)
            .arg(&stripped.debug),
    )
    .is_none()
        || output_of(Command::new("xz").arg(&mini)).is_none()
    {
        return;
    }
    let packed = dir.join("mini.xz");
    let add = |from: &Path| {
        let section = format!(".gnu_debugdata={}", from.display());
        let with = dir.join("with");
        let mut objcopy = Command::new("objcopy");
        output_of(
            objcopy
                .arg("--add-section")
                .arg(section)
                .arg(&stripped.program)
                .arg(&with),
        )
        .map(|_| with)
    };
    let Some(program) = add(&packed) else { return };
    let symbols = load(&program, without_debug_dirs(), None);
    assert_eq!(
        name(&symbols, stripped.near),
        Some("near"),
        "{:?}",
        symbols.notes()
    );
    assert!(symbols.notes().is_empty());
    // A damaged section is noted, and the rest is used.
    let mut bytes = std::fs::read(&packed).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&packed, bytes).unwrap();
    let symbols = load(&add(&packed).unwrap(), without_debug_dirs(), None);
    assert_eq!(name(&symbols, stripped.near), None);
    assert!(
        symbols
            .notes()
            .iter()
            .any(|note| matches!(note, Note::Damaged { .. }))
    );
    assert!(!symbols.is_empty());
}

#[test]
fn functions_of_a_stripped_file_have_extents() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compile(dir.path(), "program", CALLS, &["-O1", "-lm"]) else {
        return;
    };
    let whole = load(&program, without_debug_dirs(), None);
    if output_of(Command::new("strip").arg(&program)).is_none() {
        return;
    }
    let stripped = load(&program, without_debug_dirs(), None);
    for wanted in ["near", "far_away", "main"] {
        let function = whole
            .functions()
            .find(|function| function.raw_name == wanted)
            .unwrap();
        let range = function.addresses();
        for offset in [range.start, range.start + 1, range.end - 1] {
            assert_eq!(stripped.function(offset), None);
            assert_eq!(stripped.extent(offset), Some(range.clone()), "{wanted}");
        }
    }
}

#[test]
fn a_symbolizer_serves_many_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Symbolizer>();
    shared::<ModuleSymbols>();
}

#[test]
fn another_build_gives_no_names() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", CALLS, &["-lm", "-Wl,--build-id"]) else {
        return;
    };
    let symbols = load(&path, without_debug_dirs(), Some(&[0xaa; 20]));
    assert!(symbols.is_empty());
    assert!(matches!(
        symbols.notes(),
        [Note::BuildIdMismatch { found: Some(_), .. }]
    ));
    let none = compile(dir.path(), "none", CALLS, &["-lm", "-Wl,--build-id=none"]).unwrap();
    let symbols = load(&none, without_debug_dirs(), Some(&[0xaa; 20]));
    assert!(symbols.is_empty());
    assert!(matches!(
        symbols.notes(),
        [Note::BuildIdMismatch { found: None, .. }]
    ));
}

#[test]
fn files_are_looked_for_below_symfs() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("opt/app")).unwrap();
    if compile(&root.path().join("opt/app"), "program", CALLS, &["-lm"]).is_none() {
        return;
    }
    let options = || SymbolOptions {
        symfs: Some(root.path().to_path_buf()),
        ..without_debug_dirs()
    };
    let symbols = load(Path::new("/opt/app/program"), options(), None);
    assert!(symbols.functions().any(|f| f.raw_name == "near"));
    let missing = load(Path::new("/bin/sh"), options(), None);
    let expected = root.path().join("bin/sh");
    assert!(matches!(missing.notes(), [Note::NoFile { path, .. }] if *path == expected));
    // A replaced file is only trusted by its build id.
    let id = build_id(&root.path().join("opt/app/program")).unwrap();
    if let Some(id) = id {
        let deleted = Path::new("/opt/app/program (deleted)");
        assert!(!load(deleted, options(), Some(&id)).is_empty());
        assert!(load(deleted, options(), None).is_empty());
    }
}

#[test]
fn damaged_files_neither_panic_nor_hang() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", CALLS, &["-lm"]) else {
        return;
    };
    damage(dir.path(), &path);
    if output_of(Command::new("strip").arg(&path)).is_some() {
        damage(dir.path(), &path);
    }
}

/// Reads copies of a file that are cut short or have bytes changed.
fn damage(dir: &Path, path: &Path) {
    let whole = std::fs::read(path).unwrap();
    let damaged = dir.join("damaged");
    for len in (0..whole.len()).step_by(whole.len() / 60) {
        std::fs::write(&damaged, &whole[..len]).unwrap();
        let symbols = load(&damaged, without_debug_dirs(), None);
        assert!(
            !symbols.notes().is_empty(),
            "cut to {len} bytes without a note"
        );
    }
    // The same noise in every run; most of it in the headers, where it hurts.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let headers = whole.len() - 64 * 32;
    let rounds = 250;
    for round in 0..rounds {
        let mut bytes = whole.clone();
        for _ in 0..1 + random() % 8 {
            let at = match round % 3 {
                0 => random() % 1024,
                1 => headers + random() % (whole.len() - headers),
                _ => random() % whole.len(),
            };
            bytes[at] = random() as u8;
        }
        std::fs::write(&damaged, bytes).unwrap();
        let symbols = load(&damaged, without_debug_dirs(), None);
        for function in symbols.functions() {
            assert!(function.size > 0 && !function.raw_name.is_empty());
        }
        let _ = (symbols.extent(RelativeAddress(0x1100)), build_id(&damaged));
    }
}
