//! The check of the object that is preloaded into traced programs, on objects with defects and on the real one.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

#[path = "../build/preload_object.rs"]
mod preload_object;

use dioptra_testprograms::{Language, Program, Skip, or_skip, repository_root};
use preload_object::{Defect, defects};
use std::fs;

/// Returns a shared object made of C.
fn object(source: &str) -> Result<Vec<u8>, Skip> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("object.c");
    fs::write(&path, source).unwrap();
    let object = Program::from_source(Language::C, path)
        .no_flags()
        .shared_library()
        .flags(["-O1", "-nostdlib", "-ffreestanding"])
        .build()?;
    Ok(fs::read(object).unwrap())
}

#[test]
fn an_allocator_is_refused() {
    let source = "void *malloc(unsigned long); void *get(void) { return malloc(1); } \
                  unsigned long strlen(const char *); unsigned long of(void) { return strlen(\"x\"); }";
    let object = or_skip!(object(source));
    let undefined = |names: &[&str]| Defect::Undefined(names.iter().map(|n| (*n).into()).collect());
    assert_eq!(
        defects(&object, "# comment\nstrlen  lengths\n"),
        [undefined(&["malloc"])]
    );
    assert_eq!(defects(&object, ""), [undefined(&["malloc", "strlen"])]);
    assert_eq!(defects(&object, "strlen\nmalloc\n"), []);
}

#[test]
fn functions_that_can_panic_are_named() {
    let source = "extern char dioptra_can_panic __attribute__((weak)); \
                  __attribute__((noinline)) static void panic_(void) __asm__(\"_ZN4core9panicking5panic17h0E\"); \
                  static void panic_(void) { for (;;) __asm__ volatile(\"\" : : \"r\"(&dioptra_can_panic)); } \
                  void may(int n) { if (n) panic_(); } \
                  int may_not(int n) { return n + 1; }";
    let object = or_skip!(object(source));
    assert_eq!(defects(&object, ""), [Defect::Panics(vec!["may".into()])]);
}

#[test]
fn what_is_no_object_is_refused() {
    assert!(matches!(defects(b"text", "")[..], [Defect::Unreadable(_)]));
}

#[test]
fn the_runtime_has_no_defects() {
    let list = repository_root().join("crates/tracing/runtime/undefined-symbols.txt");
    let object = fs::read(env!("DIOPTRA_TRACE_RUNTIME_FILE")).unwrap();
    assert_eq!(defects(&object, &fs::read_to_string(list).unwrap()), []);
}
