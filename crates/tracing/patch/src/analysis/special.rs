//! Functions that must be left alone, by their names.

use super::refusal::Refused;
use super::sanitizers;
use memchr::memmem::Finder;
use std::sync::LazyLock;

/// Functions that return twice, that depend on their caller's address, or that are not entered by an ordinary call.
const SPECIAL: &[&str] = &[
    "setjmp",
    "_setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "savectx",
    "vfork",
    "__vfork",
    "getcontext",
    "setcontext",
    "swapcontext",
    "__getcontext",
    "__setcontext",
    "__swapcontext",
    "__start_context",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
    "__libc_start_main",
    "__tls_get_addr",
    "__gmon_start__",
    "mcount",
    "_mcount",
    "__fentry__",
    "__cyg_profile_func_enter",
    "__cyg_profile_func_exit",
    "__xray_CustomEvent",
    "_start",
    "_init",
    "_fini",
    "__libc_csu_init",
    "__restore_rt",
    "rust_eh_personality",
    "_dl_runtime_resolve",
];

/// Returns whether a function's name says that it must be left alone.
pub fn is_special(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    SPECIAL.contains(&name)
        || name.starts_with("_Unwind_")
        || name.starts_with("uw_")
        || name.starts_with("__gcc_personality")
        || name.starts_with("__x86_indirect_thunk")
        || name.starts_with("_dl_tlsdesc")
        || name.starts_with("_dl_runtime_")
        || sanitizers::is_name(name)
}

/// Library functions that return twice or look at their caller. Their thunks report a call to the runtime and keep the
/// caller's own return address, so that only the call's beginning is known.
const TOLD: &[&str] = &[
    "setjmp",
    "_setjmp",
    "sigsetjmp",
    "__sigsetjmp",
    "vfork",
    "__vfork",
    "getcontext",
    "__getcontext",
    "dlopen",
    "dlmopen",
    "dlsym",
    "dlvsym",
];

/// Returns whether only the beginnings of a library function's calls are recorded.
pub fn is_told(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    TOLD.contains(&name)
}

/// Returns whether calls of a library function are not recorded: the function is special, or compilers and linkers make
/// the calls when a program ends.
pub fn is_silent(name: &str) -> bool {
    let bare = name.split('@').next().unwrap_or(name);
    bare == "__cxa_finalize" || is_special(name) && !is_told(name)
}

/// Returns the reason why a function must be left alone, if its name gives one.
pub fn left_alone(name: &str) -> Option<Refused> {
    match name {
        name if sanitizers::is_name(name) => Some(Refused::Sanitizer),
        name if is_special(name) => Some(Refused::Special),
        name if is_called_by_generated_code(name) => Some(Refused::Sought),
        name if is_of_llvms_unwinder(name) => Some(Refused::Unwinder),
        _ => None,
    }
}

/// Returns whether a function's name is one of LLVM's unwinder, as it is linked into programs.
fn is_of_llvms_unwinder(name: &str) -> bool {
    [
        "_ZN9libunwind",
        "_ZNK9libunwind",
        "__libunwind_",
        "__unw_",
        "unw_",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
}

/// The text that both kinds of arguments contain. Most names of programs in C++ and Rust are searched for this text
/// only.
static CALLBACK: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("CallbackInfoI"));

/// Returns whether a function's name is one of those of V8 that generated code calls. While such a call lasts, the
/// garbage collector reads its return address, to know whose frame is next.
fn is_called_by_generated_code(name: &str) -> bool {
    // Callbacks of the program that embeds V8 have these arguments.
    const ARGUMENTS: [&str; 2] = ["20FunctionCallbackInfoI", "20PropertyCallbackInfoI"];
    const PARTS: [&str; 3] = ["Runtime_", "Builtin_", "CheckStackGuardState"];
    name.starts_with("_ZN2v88internal") && PARTS.iter().any(|part| name.contains(part))
        || name.starts_with("_Z")
            && CALLBACK.find(name.as_bytes()).is_some()
            && ARGUMENTS.iter().any(|word| name.contains(word))
}

/// Returns whether a file's functions must be left alone because its garbage collector tells generated code from other
/// code by return addresses: the Java machine's. Nothing in the functions' names says which of them generated code
/// calls.
pub fn seeks_generated_code(file_name: &str) -> bool {
    file_name.starts_with("libjvm.so")
}

/// Returns whether a function's name is one of an unwinder's.
pub fn is_unwinder(name: &str) -> bool {
    name.starts_with("_Unwind_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_that_generated_code_calls_are_known_by_their_names() {
        for name in [
            "_ZN2v88internal33Runtime_AllocateInYoungGenerationEiPmPNS0_7IsolateE",
            "_ZN2v88internal20Builtin_ArrayConcatEiPmPNS0_7IsolateE",
            "_ZN2v88internal26NativeRegExpMacroAssembler20CheckStackGuardStateEPNS0_7IsolateEiNS1_10CallOriginEPmNS0_17InstructionStreamEPNS0_7AddressE",
            "_ZN4node2fs4OpenERKN2v820FunctionCallbackInfoINS1_5ValueEEE",
            "_ZN4node10contextify16ContextifyContext22PropertyGetterCallbackEN2v85LocalINS2_4NameEEERKNS2_20PropertyCallbackInfoINS2_5ValueEEE",
        ] {
            assert!(is_called_by_generated_code(name), "{name}");
        }
        for name in [
            "_ZN2v88internal4Heap8ScavengeEv",
            "_ZN4node13MultiIsolate12Runtime_DrawEv",
            "Builtin_it",
        ] {
            assert!(!is_called_by_generated_code(name), "{name}");
        }
        assert!(seeks_generated_code("libjvm.so") && !seeks_generated_code("libjava.so"));
    }
}
