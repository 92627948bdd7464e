//! C++ and Rust names as the programmer wrote them.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions};

/// Longer mangled names stay as they are: they cost more than they tell.
const LONGEST_MANGLED: usize = 64 * 1024;
/// Some short names describe enormous ones (each substitution may double the length).
const LONGEST_DEMANGLED: usize = 256 * 1024;
/// Deep enough for real templates, shallow enough for a 2 MiB thread stack.
const DEEPEST: u32 = 160;

/// The name as the programmer wrote it: C++ (Itanium mangling) with parameters, Rust (v0 and legacy)
/// without the hash. Anything else comes back as it is.
///
/// The text behind the mangled part is kept: symbol versions (`@@GLIBCXX_3.4`), `@plt`, and the
/// compiler's suffixes.
///
/// ```
/// use dioptra_symbols::demangle;
/// assert_eq!(demangle("_ZN3foo3barEi"), "foo::bar(int)");
/// assert_eq!(demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"), "core::fmt::Write::write_fmt");
/// assert_eq!(demangle("main"), "main");
/// ```
#[must_use]
pub fn demangle(name: &str) -> Cow<'_, str> {
    if name.len() > LONGEST_MANGLED {
        return Cow::Borrowed(name);
    }
    // `@` occurs in no mangled name; it starts a version or `@plt`.
    let (mangled, suffix) = name.split_at(name.find('@').unwrap_or(name.len()));
    let demangled = if mangled.starts_with("_R") {
        rust(mangled)
    } else if mangled.starts_with("_Z") || mangled.starts_with("__Z") {
        // A legacy Rust name is also a valid C++ one; only its hash tells them apart.
        rust(mangled).or_else(|| cpp(mangled))
    } else {
        None
    };
    match demangled {
        Some(text) => Cow::Owned(text + suffix),
        None => Cow::Borrowed(name),
    }
}

fn rust(mangled: &str) -> Option<String> {
    let parsed = rustc_demangle::try_demangle(mangled).ok()?;
    let mut out = Bounded(String::with_capacity(mangled.len()));
    // The alternate form leaves the hash out.
    write!(out, "{parsed:#}").ok()?;
    Some(out.0)
}

fn cpp(mangled: &str) -> Option<String> {
    let parse = ParseOptions::default().recursion_limit(DEEPEST);
    let symbol = cpp_demangle::BorrowedSymbol::new_with_options(mangled.as_bytes(), &parse).ok()?;
    let mut out = Bounded(String::with_capacity(mangled.len() * 2));
    let show = DemangleOptions::new().recursion_limit(DEEPEST);
    symbol.structured_demangle(&mut out, &show).ok()?;
    Some(out.0)
}

/// Text that refuses to grow past [`LONGEST_DEMANGLED`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_stay() {
        assert_eq!(demangle("_Znwm@plt"), "operator new(unsigned long)@plt");
        assert_eq!(
            demangle("_ZNSo5flushEv@@GLIBCXX_3.4"),
            "std::ostream::flush()@@GLIBCXX_3.4"
        );
        assert_eq!(demangle("memcpy@@GLIBC_2.14"), "memcpy@@GLIBC_2.14");
    }

    #[test]
    fn rust_names_lose_their_hash() {
        assert_eq!(demangle("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        assert_eq!(
            demangle("_ZN3std2rt10lang_start17h0123456789abcdefE"),
            "std::rt::lang_start"
        );
        // A plain C++ name with no hash is C++.
        assert_eq!(
            demangle("_ZN3std2rt10lang_startEv"),
            "std::rt::lang_start()"
        );
    }

    #[test]
    fn broken_and_exploding_names_come_back_unchanged() {
        for name in ["_Z", "_ZN", "_R", "_ZNZZZZZ", "_Z1fIL_Z", "", "@", "_Zé"] {
            assert_eq!(demangle(name), name);
        }
        let mut bomb = String::from("_Z1fSt4pairIiiE");
        for _ in 0..200 {
            bomb.push_str("S_IS_S_E");
        }
        assert!(demangle(&bomb).len() <= LONGEST_DEMANGLED + bomb.len());
        let deep = format!("_Z1f{}i", "P".repeat(60_000));
        assert_eq!(demangle(&deep), deep);
    }
}
