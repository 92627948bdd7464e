//! Functions that must be left alone, by their names.

/// Functions that return twice, or do what their caller's address says, or are entered in no ordinary way.
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

/// Whether a function's name says that it must be left alone.
pub fn is_special(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    SPECIAL.contains(&name)
        || name.starts_with("_Unwind_")
        || name.starts_with("uw_")
        || name.starts_with("__gcc_personality")
        || name.starts_with("__x86_indirect_thunk")
        || name.starts_with("_dl_tlsdesc")
        || name.starts_with("_dl_runtime_")
}

/// Whether a function's name is one of an unwinder's.
pub fn is_unwinder(name: &str) -> bool {
    name.starts_with("_Unwind_")
}
