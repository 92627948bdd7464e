//! Why a test does not run here.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::Location;

use crate::limit::Limit;

/// The variable that makes a skip a failure.
pub const NO_SKIP: &str = "DIOPTRA_NO_SKIP";

/// The variable that names the file to which every skip appends a line: place, test and reason, with tabs between.
///
/// Test runners show the output of failed tests only, so the reasons would be lost without it.
pub const SKIPS_FILE: &str = "DIOPTRA_SKIPS_FILE";

/// The thing that this machine lacks for a test; not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "print it, so that the skipped test says why"]
pub struct Skip {
    reason: String,
    limit: Option<Limit>,
}

impl Skip {
    /// A skip for the given reason, a phrase such as "perf is not installed".
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            limit: None,
        }
    }

    /// Returns a skip for a limit of the machine, which is allowed even where nothing may be skipped, if the machine
    /// has the limit indeed.
    pub fn for_limit(limit: Limit) -> Self {
        Self {
            reason: limit.to_string(),
            limit: Some(limit),
        }
    }

    /// Prints the reason and the caller's place in the source to stderr, and appends them to the file that
    /// [`SKIPS_FILE`] names.
    ///
    /// # Panics
    /// If `DIOPTRA_NO_SKIP` is set, not empty and not `0`: then nothing may be skipped but for a [`Limit`] that holds.
    #[track_caller]
    pub fn print(&self) {
        let place = Location::caller();
        let allowed = self.limit.is_some_and(Limit::holds);
        assert!(
            allowed || !skips_are_forbidden(),
            "skipped in spite of {NO_SKIP}: {}",
            self.reason
        );
        eprintln!("SKIP {}:{}: {}", place.file(), place.line(), self.reason);
        self.note(place);
    }

    /// Appends the skip to the file that [`SKIPS_FILE`] names. A test that has dropped its privileges may be unable to
    /// write there; its reason is then in its output alone.
    fn note(&self, place: &Location) {
        let Some(path) = std::env::var_os(SKIPS_FILE) else {
            return;
        };
        let test = test_name().unwrap_or_else(|| "?".into());
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

/// Returns whether a skip is a failure: [`NO_SKIP`] is set, not empty and not `0`.
pub fn skips_are_forbidden() -> bool {
    std::env::var_os(NO_SKIP).is_some_and(|value| !value.is_empty() && value != "0")
}

/// Returns the name of the test that runs on this thread.
fn test_name() -> Option<String> {
    let thread = std::thread::current();
    match thread.name() {
        // A test that is the only one to run has the main thread, and its name stands on the command line.
        Some("main") | None => {
            let mut arguments: Vec<String> = std::env::args().skip(1).collect();
            arguments
                .iter()
                .any(|argument| argument == "--exact")
                .then(|| arguments.retain(|argument| !argument.starts_with('-')))?;
            arguments.into_iter().next()
        }
        Some(name) => Some(name.into()),
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for Skip {}

impl From<Limit> for Skip {
    fn from(limit: Limit) -> Self {
        Self::for_limit(limit)
    }
}

impl From<String> for Skip {
    fn from(reason: String) -> Self {
        Self::new(reason)
    }
}

impl From<&str> for Skip {
    fn from(reason: &str) -> Self {
        Self::new(reason)
    }
}

/// Prints why the calling test is skipped; see [`Skip::print`].
#[track_caller]
pub fn skip(reason: impl Into<Skip>) {
    reason.into().print();
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

/// Runs a command and returns its standard output; where the command fails, skips the test with the reason and returns
/// `None`.
#[track_caller]
pub fn output_of(command: &mut std::process::Command) -> Option<String> {
    match command.output() {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            skip(format!(
                "{command:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            ));
            None
        }
        Err(error) => {
            skip(format!("{command:?}: {error}"));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Runs the test `name` of this program as nextest does, under variables that decide about skips.
    fn again(name: &str, no_skip: &str, file: &std::path::Path) -> bool {
        let program = std::env::current_exe().unwrap();
        let status = Command::new(program)
            .args([name, "--exact", "--ignored", "--nocapture"])
            .env(NO_SKIP, no_skip)
            .env(SKIPS_FILE, file)
            .env_remove("PERFEVENTS_TEST_HOTPLUG")
            .status();
        status.unwrap().success()
    }

    #[test]
    #[ignore = "run by skips_are_listed_and_forbidden"]
    fn skips_for_a_tool() {
        or_skip!(crate::need_tool("no-such-tool-anywhere").map(drop));
    }

    #[test]
    #[ignore = "run by skips_are_listed_and_forbidden"]
    fn skips_for_a_limit_that_holds() {
        skip(Limit::HotplugNotAsked);
    }

    #[test]
    #[ignore = "run by skips_are_listed_and_forbidden"]
    fn skips_for_a_limit_that_does_not_hold() {
        let limits = [Limit::CycleCounter, Limit::NoCycleCounter];
        skip(limits.into_iter().find(|limit| !limit.holds()).unwrap());
    }

    #[test]
    fn skips_are_listed_and_forbidden() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        std::fs::write(&file, "").unwrap();
        let for_a_tool = "skip::tests::skips_for_a_tool";
        assert!(again(for_a_tool, "0", &file));
        assert!(!again(for_a_tool, "1", &file));
        let for_a_limit = "skip::tests::skips_for_a_limit_that_holds";
        assert!(again(for_a_limit, "1", &file));
        assert!(!again(
            "skip::tests::skips_for_a_limit_that_does_not_hold",
            "1",
            &file
        ));
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split('\t').collect())
            .collect();
        let [tool, limit] = &lines[..] else {
            panic!("{text}");
        };
        assert!(tool[0].contains("src/skip.rs:"), "{text}");
        assert_eq!(
            tool[1..],
            [for_a_tool, "no-such-tool-anywhere is not installed"]
        );
        assert_eq!(
            limit[1..],
            [for_a_limit, "PERFEVENTS_TEST_HOTPLUG=1 is not set"]
        );
    }

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
