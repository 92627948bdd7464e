//! The shapes of JSON that docs/json.md describes.

use crate::{dioptra, recorded};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A folder with a profile and a trace under the names that commands expect.
fn made() -> Result<TempDir, Skip> {
    programs::need_tool("jq")?;
    let program = programs::cpp("templates", &["-O1"])?;
    let options = ["-g", "-e", "cpu-clock,page-faults", "-F", "2000"];
    let (folder, _) = recorded(&options, &program, &["10"])?;
    let traced = programs::c("shares", &["-pg"])?;
    let status = dioptra(&["trace", "record"])
        .arg(traced)
        .arg("1")
        .current_dir(&folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("it runs");
    assert!(status.success());
    Ok(folder)
}

/// The output of a pipeline.
fn output(line: &str, folder: &Path) -> String {
    let path = Path::new(env!("CARGO_BIN_EXE_dioptra"))
        .parent()
        .expect("a folder");
    let paths = format!(
        "{}:{}",
        path.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("/bin/bash")
        .args(["-o", "pipefail", "-c", line])
        .env("PATH", paths)
        .current_dir(folder)
        .output()
        .expect("a shell");
    // `head` ends before who writes to it does.
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() || line.starts_with("dioptra doctor"),
        "{line}: {errors}"
    );
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The values at a path such as `.rows[].id`; `[]` goes through lists, and through objects whose keys are ids.
fn at<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![value];
    for step in path.split('.').skip(1) {
        let (key, lists) = step.split_once('[').map_or((step, 0), |(key, rest)| {
            (key, 1 + rest.matches('[').count())
        });
        found = found
            .into_iter()
            .filter_map(|value| value.get(key))
            .collect();
        for _ in 0..lists {
            let each = found.into_iter().flat_map(|value| match value {
                Value::Array(list) => list.iter().collect::<Vec<_>>(),
                Value::Object(object) => object.values().collect(),
                _ => Vec::new(),
            });
            found = each.collect();
        }
    }
    found
}

#[test]
fn serial_the_documented_shapes_are_those_of_real_output() {
    let folder = or_skip!(made());
    let text =
        std::fs::read_to_string(programs::repository_root().join("docs/json.md")).expect("docs");
    let (mut lines, mut keys) = (0, 0);
    for section in text.split("\n## ").skip(1) {
        let title = section.lines().next().expect("a title");
        let commands: Vec<&str> = section
            .lines()
            .filter(|line| line.starts_with("dioptra "))
            .collect();
        assert!(!commands.is_empty(), "{title} has no line of jq");
        for line in &commands {
            let output = output(line, folder.path());
            let is_something = !matches!(output.trim(), "" | "null" | "[]" | "{}");
            assert!(
                is_something || line.contains("doctor"),
                "{line}: {output:?}"
            );
            lines += 1;
        }
        // Keys are of the output of the section's first command, all its objects together.
        let (command, _) = commands[0].split_once(" | ").expect("a pipe");
        let command = match title.starts_with("Tables") {
            true => format!("{command} --errors --metric faults_per_ms"),
            false => command.to_owned(),
        };
        let written = output(&command, folder.path());
        let objects: Vec<Value> = serde_json::Deserializer::from_str(&written)
            .into_iter()
            .collect::<Result<_, _>>()
            .expect("JSON");
        let mut seen = BTreeSet::new();
        for line in section.lines().filter_map(|line| line.strip_prefix("- `")) {
            let (key, _) = line.split_once('`').expect("a key");
            assert!(seen.insert(key), "{title}: {key} twice");
            let (path, is_optional) = match key.strip_suffix('?') {
                Some(path) => (path, true),
                None => (key, false),
            };
            let has = |object: &Value| !at(object, path).is_empty();
            match is_optional {
                // Which need other events, or hardware.
                true if matches!(path, ".branches" | ".memory") => {}
                true => assert!(objects.iter().any(has), "{title}: no object has {path}"),
                false if path == ".damaged" => assert!(objects[0].get("damaged").is_some()),
                false => assert!(objects.iter().all(has), "{title}: an object lacks {path}"),
            }
            keys += 1;
        }
        // All keys at the top are documented; of rows and records only the common ones.
        let is_whole = !title.contains("ndjson") && !title.starts_with("Records");
        for object in objects.iter().filter(|_| is_whole && !seen.is_empty()) {
            for key in object.as_object().expect("an object").keys() {
                let is_it = |known: &&&str| {
                    let rest = known
                        .strip_prefix('.')
                        .and_then(|known| known.strip_prefix(key.as_str()));
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '?']))
                };
                assert!(
                    seen.iter().any(|known| is_it(&known)),
                    "{title}: `{key}` is not documented"
                );
            }
        }
    }
    assert!(lines >= 20 && keys >= 100, "{lines} lines, {keys} keys");
}

#[test]
fn serial_lines_of_json_are_the_rows_of_json() {
    let program = or_skip!(programs::c("shares", &[]));
    let (_folder, file) = or_skip!(recorded(&["-g", "-F", "1000"], &program, &["100"]));
    let file = file.to_str().expect("a path");
    for arguments in [
        &["report", "-i", file][..],
        &["report", "-i", file, "--by", "module,function"],
        &["diff", file, file],
        &["sum", file, file],
    ] {
        let run = |format: &str| -> Vec<Value> {
            let mut arguments = arguments.to_vec();
            arguments.extend(["--format", format]);
            let output = dioptra(&arguments).output().expect("it runs");
            assert!(
                output.status.success(),
                "{}",
                String::from_utf8_lossy(&output.stderr)
            );
            let text = String::from_utf8(output.stdout).expect("UTF-8");
            match format {
                "json" => vec![serde_json::from_str(&text).expect("JSON")],
                _ => {
                    let lines = text.lines().map(serde_json::from_str);
                    lines.collect::<Result<_, _>>().expect("JSON")
                }
            }
        };
        let json = run("json").remove(0);
        let lines = run("ndjson");
        assert_eq!(lines[0]["facts"], json["facts"]);
        assert_eq!(lines[0]["columns"], json["columns"]);
        let ids = json["columns"].as_array().expect("columns").iter();
        let ids: Vec<&str> = ids
            .map(|column| column["id"].as_str().expect("an id"))
            .collect();
        let rows = json["rows"].as_array().expect("rows");
        assert!(rows.len() > 1 && rows.len() + 1 == lines.len());
        for (row, line) in rows.iter().zip(&lines[1..]) {
            assert_eq!(row["id"], line["row_id"]);
            if arguments.contains(&"--by") {
                assert_eq!(row["parent"], line["parent_row_id"]);
            }
            for (id, cell) in ids.iter().zip(row["cells"].as_array().expect("cells")) {
                assert_eq!(*cell, line[id], "{id}");
                let error = &row["standard_errors"][id];
                assert_eq!(*error, line[format!("{id}_standard_error")], "{id}");
                assert_eq!(row["notes"][id], line[format!("{id}_note")], "{id}");
            }
        }
    }
}
