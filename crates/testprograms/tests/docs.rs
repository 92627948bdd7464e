//! The files and folders that `docs/*.md` names are there.

use dioptra_testprograms::repository_root;
use std::fs;
use std::path::{Path, PathBuf};

/// Endings of names that are files also without a folder in front.
const ENDINGS: [&str; 6] = [".rs", ".c", ".cpp", ".md", ".toml", ".lua"];
/// Folders whose files a run makes.
const MADE: [&str; 3] = ["target/", "bench-results/", "~/"];
/// Folders in which names without a folder lie.
const FOLDERS: [&str; 3] = ["", "tests/programs", "tests/pmu"];

/// Returns the paths of the repository that a text names in backticks.
fn named(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("    ")) {
        // Splitting at backticks puts the text between them at odd indices.
        // Files in a command are the reader's.
        let is_command = |span: &&str| span.starts_with("dioptra ") || span.starts_with("--");
        let spans = line.split('`').skip(1).step_by(2);
        let spans = spans.filter(|span| !is_command(span));
        for word in spans.flat_map(str::split_whitespace) {
            let word = word.trim_end_matches([',', ';']);
            let is_path = |c: char| c.is_ascii_alphanumeric() || "._-/*~".contains(c);
            let is_top = |name: &str| {
                matches!(
                    name,
                    "crates" | "docs" | "tests" | "xtask" | ".config" | ".ci"
                )
            };
            let is_ours = word.split_once('/').is_some_and(|(first, _)| is_top(first))
                || ENDINGS.iter().any(|ending| word.ends_with(ending));
            let is_placeholder = word
                .split(['/', '.'])
                .any(|part| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase()));
            let is_made = MADE.iter().any(|folder| word.starts_with(folder));
            if is_ours
                && word.chars().all(is_path)
                && !is_placeholder
                && !is_made
                && !word.starts_with('/')
            {
                paths.push(word.to_owned());
            }
        }
    }
    paths
}

/// Returns whether a path, in which `*` stands for any characters of a name, exists below a folder.
fn exists(folder: &Path, path: &str) -> bool {
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    let found: Vec<PathBuf> = match first.split_once('*') {
        None => vec![folder.join(first)],
        Some((before, after)) => {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let fits = entries.filter(|entry| {
                let name = entry.file_name();
                let name = name.to_string_lossy();
                name.starts_with(before) && name.ends_with(after)
            });
            fits.map(|entry| entry.path()).collect()
        }
    };
    found
        .iter()
        .any(|path| path.exists() && (rest.is_empty() || exists(path, rest)))
}

#[test]
fn every_path_that_the_documents_name_exists() {
    let root = repository_root();
    let (mut count, mut missing) = (0, Vec::new());
    for document in fs::read_dir(root.join("docs")).unwrap() {
        let document = document.unwrap().path();
        // The pictures have a folder of their own.
        if document.is_dir() {
            continue;
        }
        for path in named(&fs::read_to_string(&document).unwrap()) {
            count += 1;
            let folders = if path.contains('/') {
                &FOLDERS[..1]
            } else {
                &FOLDERS
            };
            if !folders
                .iter()
                .any(|folder| exists(&root.join(folder), &path))
            {
                missing.push(format!("{}: {path}", document.display()));
            }
        }
    }
    assert!(count > 40, "{count} paths were found");
    assert!(missing.is_empty(), "{missing:#?}");
}
