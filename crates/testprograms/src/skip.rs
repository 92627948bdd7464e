//! Why a test does not run here.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;

/// The variable that makes a skip a failure.
pub const NO_SKIP: &str = "DIOPTRA_NO_SKIP";

/// The variable that names the file to which every skip appends a line: place, test and reason, with tabs between.
///
/// Test runners show the output of failed tests only, so the reasons would be lost without it.
pub const SKIPS_FILE: &str = "DIOPTRA_SKIPS_FILE";

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

    /// Prints the reason and the caller's place in the source to stderr, and appends them to the file that
    /// [`SKIPS_FILE`] names.
    ///
    /// # Panics
    /// If `DIOPTRA_NO_SKIP` is set, not empty and not `0`: then nothing may be skipped.
    #[track_caller]
    pub fn print(&self) {
        let place = Location::caller();
        let forbidden = std::env::var_os(NO_SKIP).is_some_and(|v| !v.is_empty() && v != "0");
        assert!(!forbidden, "skipped in spite of {NO_SKIP}: {}", self.reason);
        eprintln!("SKIP {}:{}: {}", place.file(), place.line(), self.reason);
        self.note(place);
    }

    /// Appends the skip to the file that [`SKIPS_FILE`] names. A test that has dropped its privileges may be unable to
    /// write there; its reason is then in its output alone.
    fn note(&self, place: &Location) {
        let Some(path) = std::env::var_os(SKIPS_FILE) else {
            return;
        };
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("?");
        let reason = self.reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let line = format!("{}:{}\t{test}\t{reason}\n", place.file(), place.line());
        // One write at the end of the file, which tests in other processes write to as well.
        let written = OpenOptions::new()
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            eprintln!("this skip is not in the list of skips: {error}");
        }
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
    }
}
