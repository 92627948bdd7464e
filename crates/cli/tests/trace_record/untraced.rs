//! Programs that a traced one executes and into which the tracer can't be loaded: they run as without it.

use super::{DIOPTRA, five, text};
use dioptra_testprograms::{self as programs, Language, Program, Skip, or_skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Traces a program that executes another one. Returns its standard output, its standard error, and the output of
/// `info`.
fn said(program: &Path) -> [String; 3] {
    let spawns = Program::new(Language::C, "trace-spawns")
        .no_flags()
        .flags(["-O1", "-g", "-pg", "-mfentry"])
        .build();
    let spawns = spawns.expect("a compiler was there before");
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("timeout")
        .args(["120", DIOPTRA, "trace", "record", "--no-libcall"])
        .args([spawns.as_path(), program])
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let info = Command::new(DIOPTRA)
        .args(["trace", "info"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    [output.stdout, output.stderr, info.stdout].map(|bytes| text(&bytes))
}

/// Builds a program that prints nothing and succeeds.
fn nothing(compiler: &str, flags: &[&str], folder: &Path) -> Result<PathBuf, Skip> {
    programs::need_tool(compiler)?;
    let path = folder.join("nothing");
    let source = folder.join("nothing.c");
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let output = Command::new(compiler)
        .args(flags)
        .arg("-o")
        .args([&path, &source])
        .output()
        .unwrap();
    if output.status.success() {
        Ok(path)
    } else {
        Err(Skip::new(format!(
            "{compiler} {flags:?} builds nothing here: {}",
            text(&output.stderr)
        )))
    }
}

/// Checks that seven processes of the program ran untraced for this reason, and that no other note is about it.
fn check(program: &Path, why: &str) {
    let [output, told, info] = said(program);
    assert_eq!(output, "7\n", "{told}");
    let expected = format!("7 processes of {} ran untraced: {why}", program.display());
    assert_eq!(told.matches(" ran untraced: ").count(), 1, "{told}");
    assert!(told.contains(&expected), "{told}");
    assert!(info.contains(&expected), "{info}");
    assert!(!told.contains("ld.so"), "{told}");
    assert!(!told.contains("/etc/passwd"), "{told}");
}

#[test]
fn children_that_are_traced_are_not_told_of() {
    let program = or_skip!(five(&["-pg", "-mfentry"]));
    let [output, told, _] = said(&program);
    assert_eq!(output, "7\n");
    assert!(!told.contains("untraced"), "{told}");
}

#[test]
fn static_children_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(nothing("gcc", &["-static"], folder.path()));
    check(&program, "it is linked statically; link it dynamically");
}

#[test]
fn children_of_another_c_library_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(nothing("musl-gcc", &[], folder.path()));
    check(&program, "it is for another C library (musl)");
}

#[test]
fn a_program_of_another_c_library_does_what_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(nothing("musl-gcc", &[], folder.path()));
    let recorded = super::dioptra(&["record", program.to_str().unwrap()], folder.path());
    let told = text(&recorded.stderr);
    assert_eq!(recorded.status.code(), Some(0), "{told}");
    assert!(
        told.contains("it is for another C library (musl)"),
        "{told}"
    );
}

#[test]
fn children_in_go_are_told_of() {
    or_skip!(programs::need_tool("go"));
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("nothing.go"),
        "package main\nfunc main() {}\n",
    )
    .unwrap();
    let built = Command::new("go")
        .args(["build", "-o", "nothing", "nothing.go"])
        .current_dir(folder.path())
        .env("GOCACHE", folder.path().join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("HOME", folder.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built.stderr));
    check(&folder.path().join("nothing"), "it is a Go program");
}

/// Builds a 32-bit program that prints nothing and succeeds, linked with these options.
fn nothing_of_32_bits(options: &str, folder: &Path) -> Result<PathBuf, Skip> {
    programs::need_tool("as")?;
    programs::need_tool("ld")?;
    let source = ".globl _start\n_start: mov $1, %eax\n xor %ebx, %ebx\n int $0x80\n";
    fs::write(folder.join("nothing.s"), source).unwrap();
    let script =
        format!("as --32 -o nothing.o nothing.s && ld -m elf_i386 {options} -o nothing nothing.o");
    let built = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder)
        .status();
    assert!(built.unwrap().success());
    let program = folder.join("nothing");
    let runs = Command::new(&program)
        .status()
        .is_ok_and(|status| status.success());
    match runs {
        true => Ok(program),
        false => Err(Skip::new(
            "32-bit programs do not run here: the kernel has no support for them, or there is no /lib/ld-linux.so.2",
        )),
    }
}

#[test]
fn children_of_32_bits_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(nothing_of_32_bits("", folder.path()));
    check(&program, "it is a 32-bit program");
}

#[test]
fn the_linker_of_32_bit_children_complains_of_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let linker = "-pie -dynamic-linker /lib/ld-linux.so.2";
    let program = or_skip!(nothing_of_32_bits(linker, folder.path()));
    check(&program, "it is a 32-bit program");
    let recorded = super::dioptra(&["record", program.to_str().unwrap()], folder.path());
    let told = text(&recorded.stderr);
    assert!(
        recorded.status.success() && !told.contains("ld.so"),
        "{told}"
    );
    assert!(told.contains("it is a 32-bit program"), "{told}");
    // The dynamic linker does complain of an object that it can't load.
    let complaint = Command::new(&program)
        .env("LD_PRELOAD", "/no/such/object.so")
        .output()
        .unwrap();
    assert!(text(&complaint.stderr).contains("ld.so"));
}

#[test]
fn children_of_other_users_are_told_of() {
    or_skip!(programs::need_root());
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(nothing("gcc", &[], folder.path()));
    chown(&program, Some(65534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    check(&program, "it runs as another user or group (set-uid)");
}

#[test]
fn scripts_are_told_of_by_their_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    let interpreter = or_skip!(nothing("gcc", &["-static"], folder.path()));
    let script = folder.path().join("script");
    fs::write(&script, format!("#!{}\n", interpreter.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    check(&script, "it is linked statically");
}

#[test]
fn what_an_untraced_child_executes_is_told_of_too() {
    or_skip!(programs::need_sampling());
    let folder = tempfile::tempdir().unwrap();
    let program = or_skip!(nothing("gcc", &["-static"], folder.path()));
    let spawns = Program::new(Language::C, "trace-spawns")
        .no_flags()
        .flags(["-O1", "-static"])
        .build();
    let spawns = or_skip!(spawns);
    let script = "\"$0\" \"$1\"; exit $?";
    let recorded = Command::new("timeout")
        .args(["120", DIOPTRA, "trace", "record", "sh", "-c", script])
        .args([&spawns, &program])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let told = text(&recorded.stderr);
    assert_eq!(text(&recorded.stdout), "7\n", "{told}");
    // Processes that are gone before they can be looked at are known by their names only.
    let counts = told.lines().filter_map(|line| {
        let (count, rest) = line.strip_prefix("dioptra: ")?.split_once(" process")?;
        let is_it = rest.contains("/nothing ran untraced: it is linked statically")
            || rest.contains(" nothing (whose path is not known) ran untraced: ");
        is_it.then(|| count.parse::<u32>().unwrap())
    });
    assert_eq!(counts.sum::<u32>(), 7, "{told}");
    let expected = format!(
        "1 process of {} ran untraced: it is linked statically",
        spawns.display()
    );
    assert!(told.contains(&expected), "{told}");
}
