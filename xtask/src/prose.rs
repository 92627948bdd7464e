//! A small check of the project's English: openings that make riddles, and names that had several meanings.
//!
//! `cargo xtask test` runs it over the Rust files of the project. It finds only what a pattern can find; ARCHITECTURE.md's
//! glossary is the vocabulary.

use std::path::{Path, PathBuf};
use std::{fmt, fs};

use anyhow::{Context, Result};

use crate::root;

/// The folders that hold the project's Rust files.
const FOLDERS: &[&str] = &["crates", "tests", "xtask"];

/// The words with which no line of documentation or comment begins, since such sentences hide their subject.
const OPENINGS: &[&str] = &[
    "What",
    "Of",
    "It",
    "One that",
    "How",
    "Those",
    "Whether what",
];

/// The type names that once stood for several things each.
const RETIRED_TYPES: &[&str] = &["Place", "Wanted", "Shape", "Fate", "Gate"];

/// The words of documentation that have been replaced, each with its replacement.
const RETIRED_WORDS: &[(&str, &str)] = &[
    ("is told ", "is reported, printed or recorded"),
    ("is told.", "is reported, printed or recorded"),
    ("are told.", "are reported, printed or recorded"),
    ("to settle", "warm-up"),
    ("take from an address", "load bias"),
];

/// A line that breaks a rule.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    /// The number of the line, from 1.
    line: usize,
    rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.rule)
    }
}

/// Checks the project's Rust files. Returns true if none of them breaks a rule, and prints the lines that do.
pub fn check() -> Result<bool> {
    let mut files = Vec::new();
    for folder in FOLDERS {
        collect(&root().join(folder), &mut files)?;
    }
    files.sort();
    let mut findings = Vec::new();
    for path in files.iter().filter(|path| !is_this_file(path)) {
        let name = path.strip_prefix(root()).unwrap_or(path);
        let name = name.display().to_string();
        let text = fs::read_to_string(path).with_context(|| name.clone())?;
        findings.extend(of_file(&name, &text));
    }
    for finding in &findings {
        println!("{finding}");
    }
    Ok(findings.is_empty())
}

/// Adds the Rust files of a folder and of the folders in it, except build outputs.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        if path.is_dir() {
            if !path.ends_with("target") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns true for the file that lists the forbidden words.
fn is_this_file(path: &Path) -> bool {
    path.ends_with("xtask/src/prose.rs")
}

/// Returns the findings of one file's text.
fn of_file(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let rules = comment(line)
            .into_iter()
            .flat_map(rules_of_comment)
            .chain(rule_of_type(line));
        findings.extend(rules.map(|rule| Finding {
            file: file.into(),
            line: index + 1,
            rule,
        }));
    }
    findings
}

/// Returns the text of a line that is nothing but a comment or documentation.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    let text = text.strip_prefix(['/', '!']).unwrap_or(text);
    Some(text.trim_start())
}

fn rules_of_comment(text: &str) -> Vec<String> {
    let begins = |opening: &&&str| {
        text.strip_prefix(**opening)
            .is_some_and(|rest| rest.starts_with([' ', ',']))
    };
    let opening = OPENINGS.iter().find(begins);
    let opening = opening.map(|word| format!("the line begins with \"{word}\": name its subject"));
    let retired = RETIRED_WORDS
        .iter()
        .filter(|(old, _)| text.replace(" told apart", "").contains(old));
    let retired = retired.map(|(old, new)| format!("\"{old}\" is out of use: write {new}"));
    opening.into_iter().chain(retired).collect()
}

fn rule_of_type(line: &str) -> Option<String> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    if !["struct", "enum", "trait", "type", "union"].contains(&keyword) {
        return None;
    }
    let name = words.next()?.split(|c: char| !c.is_alphanumeric()).next()?;
    let retired = RETIRED_TYPES.contains(&name);
    retired.then(|| format!("a type can't be called {name}: the name stood for several things"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Vec<(usize, String)> {
        let findings = of_file("a.rs", text);
        findings
            .into_iter()
            .map(|found| (found.line, found.rule))
            .collect()
    }

    #[test]
    fn openings_are_found_in_every_kind_of_comment() {
        let text = "//! What is not known.\n    /// Of these, two.\n// It, however.\n/// One that is.\n//// How\n";
        let lines: Vec<_> = rules(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2, 3, 4]);
    }

    #[test]
    fn words_that_only_begin_alike_and_code_pass() {
        let text = "/// Whatever comes.\n/// Offsets.\n/// Items.\nlet text = \"// What\";\n/// One thread.\n";
        assert_eq!(rules(text), []);
    }

    #[test]
    fn retired_types_are_found_where_they_are_declared() {
        let text =
            "pub(crate) struct Place<'a> {\nenum Shape {\nuse x::Place;\nstruct Placement;\n";
        let lines: Vec<_> = rules(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [1, 2]);
    }

    #[test]
    fn retired_words_are_named_with_their_replacement() {
        let found = rules("/// The warm-up windows are to settle.\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].1.contains("warm-up"), "{found:?}");
    }
}
