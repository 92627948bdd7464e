//! The tests by `cargo test`, where cargo-nextest is not installed: one at a time, and with the same second tries.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result};
use dioptra_testprograms::SKIPS_FILE;

use crate::{root, test::cargo};

/// The tries that `.config/nextest.toml` gives a test that a busy machine can spoil.
const TRIES: u32 = 3;

/// A test that failed.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Failed {
    /// The name of the test binary, without its hash.
    binary: String,
    name: String,
}

/// Runs all tests, and those again that failed and that a busy machine can spoil. Returns the status of the last run.
pub fn run(skips: &Path) -> Result<ExitStatus> {
    let configuration = root().join(".config/nextest.toml");
    let configuration =
        fs::read_to_string(&configuration).with_context(|| configuration.display().to_string())?;
    let machine = binaries_of_the_machine(&configuration)
        .context(".config/nextest.toml names no binaries whose tests may be tried again")?;
    // Tests run the examples; `cargo test` builds them as tests only.
    let status = Command::new(cargo())
        .args(["build", "--workspace", "--examples"])
        .current_dir(root())
        .stdin(Stdio::null())
        .status()
        .context("running cargo build")?;
    if !status.success() {
        return Ok(status);
    }
    let mut names = Vec::new();
    for left in (0..TRIES).rev() {
        let mut failed = BTreeSet::new();
        let status = run_once(&names, skips, &mut failed)?;
        let may_be_spoilt = |test: &Failed| {
            test.name.contains("serial_") || machine.iter().any(|name| *name == test.binary)
        };
        // A binary that does not build or that a signal ends names no tests.
        if status.success() || failed.is_empty() || !failed.iter().all(may_be_spoilt) || left == 0 {
            return Ok(status);
        }
        names = failed.into_iter().map(|test| test.name).collect();
        println!("trying again: {}", names.join(", "));
    }
    unreachable!("the last try returns")
}

fn run_once(names: &[String], skips: &Path, failed: &mut BTreeSet<Failed>) -> Result<ExitStatus> {
    let (reader, writer) = std::io::pipe().context("making a pipe")?;
    let mut command = Command::new(cargo());
    command
        .args(["test", "--workspace", "--all-targets", "--no-fail-fast"])
        .args(["--", "--test-threads=1"]);
    if !names.is_empty() {
        command.arg("--exact").args(names);
    }
    command
        .current_dir(root())
        .env(SKIPS_FILE, skips)
        .stdin(Stdio::null())
        .stdout(writer.try_clone().context("making a pipe")?)
        .stderr(writer);
    let mut child = command.spawn().context("running cargo test")?;
    // The command holds the pipe's writing ends, and reading would not end.
    drop(command);
    let mut parser = Parser::default();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader
            .read_until(b'\n', &mut line)
            .context("reading the output of cargo test")?;
        if length == 0 {
            break;
        }
        // A closed stdout must not end the tests.
        let _ = std::io::stdout().write_all(&line);
        let _ = std::io::stdout().flush();
        parser.line(String::from_utf8_lossy(&line).trim_end(), failed);
    }
    child.wait().context("waiting for cargo test")
}

/// Finds the failed tests in the output of `cargo test`.
#[derive(Default)]
struct Parser {
    binary: String,
    listed: Vec<String>,
}

impl Parser {
    fn line(&mut self, line: &str, failed: &mut BTreeSet<Failed>) {
        // `     Running tests/truth.rs (target/debug/deps/truth-0123456789abcdef)`
        if let Some(running) = line.trim_start().strip_prefix("Running ")
            && let Some((_, path)) = running.trim_end_matches(')').rsplit_once('(')
            && let Some(file) = Path::new(path).file_name()
        {
            let file = file.to_string_lossy();
            let name = file.rsplit_once('-').map_or(&*file, |(name, _)| name);
            name.clone_into(&mut self.binary);
        } else if line == "failures:" {
            // The first one heads the tests' output, the second one their names.
            self.listed.clear();
        } else if let Some(name) = line.strip_prefix("    ")
            && !name.is_empty()
            && !name.contains(' ')
        {
            self.listed.push(name.to_owned());
        } else if line.starts_with("test result: ") {
            let names = std::mem::take(&mut self.listed);
            if line.starts_with("test result: FAILED") {
                failed.extend(names.into_iter().map(|name| Failed {
                    binary: self.binary.clone(),
                    name,
                }));
            }
        }
    }
}

/// Returns the binaries that nextest's configuration names: `binary(/^(one|two)$/)`.
fn binaries_of_the_machine(configuration: &str) -> Option<Vec<&str>> {
    let (_, names) = configuration.split_once("binary(/^(")?;
    let (names, _) = names.split_once(")$/)")?;
    Some(names.split('|').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_found_in_the_output() {
        let output = "
     Running unittests src/lib.rs (target/debug/deps/dioptra_calls-00ff)
running 2 tests
test good ... ok
test bad ... FAILED

failures:

---- bad stdout ----
    looks_like_a_name

failures:
    bad

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

     Running tests/truth.rs (target/debug/deps/truth-00aa)
test result: ok. 3 passed; 0 failed
     Running tests/trace/main.rs (target/debug/deps/trace-00bb)
failures:
    a::serial_one
    a::two
test result: FAILED. 0 passed; 2 failed
";
        let mut failed = BTreeSet::new();
        let mut parser = Parser::default();
        for line in output.lines() {
            parser.line(line, &mut failed);
        }
        let found: Vec<_> = failed
            .iter()
            .map(|test| (test.binary.as_str(), test.name.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("dioptra_calls", "bad"),
                ("trace", "a::serial_one"),
                ("trace", "a::two"),
            ]
        );
    }

    #[test]
    fn nextests_configuration_names_the_binaries() {
        let text = fs::read_to_string(root().join(".config/nextest.toml")).unwrap();
        let binaries = binaries_of_the_machine(&text).unwrap();
        assert!(binaries.contains(&"truth") && binaries.contains(&"scenarios"));
        assert_eq!(binaries_of_the_machine("nothing"), None);
    }
}
