//! Modules whose functions are left alone, and modules that can't be read.

use std::fmt;

/// The reason why the functions of a module are not patched, although calls of them can be traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftAlone {
    /// The dynamic linker loads the tracer.
    Linker,
    /// The tracer calls the C library while it works, and threads begin and end in it.
    TracersOwn,
    /// A garbage collector finds generated code by return addresses.
    GarbageCollector,
    /// The library is a sanitizer's, which runs where no hook may.
    Sanitizer,
    /// A sanitizer is linked into the module, which has no symbols that tell its functions.
    HiddenSanitizer,
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LeftAlone::Linker => "it loads the tracer",
            LeftAlone::TracersOwn => "the tracer itself uses them",
            LeftAlone::GarbageCollector => {
                "its garbage collector finds generated code by return addresses"
            }
            LeftAlone::Sanitizer => "they belong to a sanitizer, which runs where no hook may",
            LeftAlone::HiddenSanitizer => {
                "a sanitizer is linked into it, and without symbols its functions look like others"
            }
        })
    }
}

/// The reason why the file of a module could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unread {
    /// Reading the file failed.
    Failed {
        /// The error.
        because: String,
    },
    /// The file was truncated while it was read.
    Truncated,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::Failed { because } => write!(f, "its file can't be read: {because}"),
            Unread::Truncated => f.write_str("its file was truncated while it was read"),
        }
    }
}
