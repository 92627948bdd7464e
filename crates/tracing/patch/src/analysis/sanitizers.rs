//! The parts of sanitizers (AddressSanitizer, ThreadSanitizer, …) that are linked into programs or loaded with them.
//!
//! A sanitizer's functions are called before the program's constructors, inside `malloc`, and at the end by a task that
//! shares another task's thread-local memory. No hook may run there.

use super::image::Image;
use memchr::memmem::Finder;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::HashSet;
use std::sync::LazyLock;

/// The beginnings of the names of sanitizers' C functions.
const PREFIXES: [&str; 12] = [
    "__asan_",
    "__lsan_",
    "__tsan_",
    "__ubsan_",
    "__msan_",
    "__hwasan_",
    "__dfsan_",
    "__sanitizer_",
    "__sancov",
    "__interceptor_",
    "___interceptor_",
    "__interception",
];

/// The namespaces of sanitizers, in mangled names.
const NAMESPACES: [&str; 8] = [
    "6__asan",
    "6__lsan",
    "6__tsan",
    "7__ubsan",
    "6__msan",
    "8__hwasan",
    "11__sanitizer",
    "8__sancov",
];

/// The beginnings of the names of sanitizers' object files, which end in `.o`.
const FILES: [&str; 8] = [
    "asan_",
    "lsan_",
    "tsan_",
    "ubsan_",
    "msan_",
    "hwasan_",
    "sanitizer_",
    "interception_",
];

/// The beginnings of the names of sanitizers' libraries.
const LIBRARIES: [&str; 7] = [
    "libasan.so",
    "libtsan.so",
    "liblsan.so",
    "libubsan.so",
    "libhwasan.so",
    "libclang_rt.",
    "libmsan.so",
];

/// The text that all the namespaces but `__interception` contain. Most mangled names are searched for this text only.
static SANITIZER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("san"));

/// Returns whether a function's name is one of a sanitizer's.
pub fn is_name(name: &str) -> bool {
    if name.starts_with("_Z") {
        return name.starts_with("_ZN14__interception")
            || SANITIZER.find(name.as_bytes()).is_some()
                && NAMESPACES.iter().any(|namespace| name.contains(namespace));
    }
    name.starts_with("__") && PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns whether a file is a sanitizer's library.
pub fn is_library(file_name: &str) -> bool {
    LIBRARIES.iter().any(|name| file_name.starts_with(name))
}

/// Returns the addresses of the functions that are local to a sanitizer's object file. Their names do not tell that
/// they belong to a sanitizer.
pub fn local_functions(image: &Image<'_>) -> HashSet<u64> {
    let mut found = HashSet::new();
    let mut is_theirs = false;
    for symbol in image.elf.symbols() {
        if symbol.kind() == SymbolKind::File {
            is_theirs = symbol.name().is_ok_and(|name| {
                name.ends_with(".o") && FILES.iter().any(|prefix| name.starts_with(prefix))
            });
        } else if is_theirs && symbol.is_local() && symbol.kind() == SymbolKind::Text {
            found.insert(symbol.address());
        }
    }
    found
}

/// Returns whether a sanitizer is linked into a module without symbols, where its functions look like the program's.
pub fn is_hidden<'d>(file: &impl Object<'d>) -> bool {
    let is_init = |name: &str| {
        matches!(
            name,
            "__asan_init" | "__tsan_init" | "__msan_init" | "__lsan_init" | "__hwasan_init"
        )
    };
    file.symbols().next().is_none()
        && file
            .dynamic_symbols()
            .any(|symbol| !symbol.is_undefined() && symbol.name().is_ok_and(is_init))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sanitizers_are_known() {
        for name in [
            "__asan_report_load4",
            "__interceptor_malloc",
            "___interceptor_malloc",
            "_ZN11__sanitizer13internal_openEPKcij",
            "_ZNK6__lsan13ThreadContextE",
            "_ZL11read_msghdrPvPN11__sanitizer18__sanitizer_msghdrEl",
            "_ZN14__interception17InterceptFunctionEPKcPmmm",
            "__sancov_default_options",
        ] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "main",
            "__libc_csu_init",
            "_ZN4sane5beginEv",
            "_ZN9sanitizer5countEi",
            "__mangled_san",
            "asan_of_the_program",
        ] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_library("libasan.so.8") && is_library("libclang_rt.asan-x86_64.so"));
        assert!(!is_library("libsane.so.1"));
    }
}
