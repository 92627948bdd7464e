//! Why a test does not run here.

use std::fmt;
use std::panic::Location;

/// What this machine lacks for a test; not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "print it, so that the skipped test says why"]
pub struct Skip {
    reason: String,
}

impl Skip {
    /// A skip for the given reason, a phrase such as "perf is not installed".
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
        }
    }

    /// Prints the reason and the caller's place in the source to stderr.
    ///
    /// # Panics
    /// If `DIOPTRA_NO_SKIP` is set, not empty and not `0`: then nothing may be skipped.
    #[track_caller]
    pub fn print(&self) {
        let place = Location::caller();
        let forbidden =
            std::env::var_os("DIOPTRA_NO_SKIP").is_some_and(|v| !v.is_empty() && v != "0");
        assert!(
            !forbidden,
            "skipped in spite of DIOPTRA_NO_SKIP: {}",
            self.reason
        );
        eprintln!("SKIP {}:{}: {}", place.file(), place.line(), self.reason);
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Skip {}

/// Prints why the calling test is skipped; see [`Skip::print`].
#[track_caller]
pub fn skip(reason: impl Into<String>) {
    Skip::new(reason).print();
}

/// The value of a `Result<T, Skip>`, or prints the reason and returns from the calling function.
#[macro_export]
macro_rules! or_skip {
    ($result:expr) => {
        match $result {
            Ok(value) => value,
            Err(skip) => {
                $crate::Skip::print(&skip);
                return;
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn or_skip_returns_early() {
        fn run(result: Result<u32, Skip>, reached: &mut Option<u32>) {
            *reached = Some(or_skip!(result));
        }
        let mut reached = None;
        run(Ok(3), &mut reached);
        assert_eq!(reached, Some(3));
        if std::env::var_os("DIOPTRA_NO_SKIP").is_none() {
            reached = None;
            run(Err(Skip::new("only a test of skipping")), &mut reached);
            assert_eq!(reached, None);
        }
    }
}
