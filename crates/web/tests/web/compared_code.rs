//! A function's lines and instructions in another recording, of the same build and of others.

use crate::client::{Running, column};
use crate::records::{ID, Records, attr, event};
use dioptra_perfrecords::SampleType;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

const BASE: u64 = 0x5555_0000_0000;

/// A build of a program, and the address of its function `work`.
struct Build {
    file: PathBuf,
    id: [u8; 20],
    work: u64,
}

/// Compiles the program; `flags` change its code. The folder's name is part of the source's path.
fn build(folder: &Path, id: u8, flags: &[&str]) -> Build {
    std::fs::create_dir_all(folder).expect("a folder");
    let source = folder.join("program.c");
    let text = "int work(int x) {\n    int sum = 0;\n    for (int i = 0; i < x; i++)\n        sum += i ^ (sum >> SHIFT);\n    return sum;\n}\nint main(int c, char **v) { return work(c); }\n";
    std::fs::write(&source, text).expect("the source");
    let file = folder.join("program");
    let status = Command::new("gcc")
        .args(["-O1", "-g", "-fno-inline"])
        .arg(format!(
            "-Wl,--build-id=0x{}",
            format!("{id:02x}").repeat(20)
        ))
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&file)
        .status()
        .expect("gcc");
    assert!(status.success());
    let symbols = Command::new("nm").arg(&file).output().expect("nm");
    let symbols = String::from_utf8_lossy(&symbols.stdout).into_owned();
    let line = symbols
        .lines()
        .find(|line| line.ends_with(" T work"))
        .expect("work");
    let address = line.split(' ').next().expect("an address");
    Build {
        file,
        id: [id; 20],
        work: u64::from_str_radix(address, 16).expect("a number"),
    }
}

/// A recording of a build: so many samples at distances from the start of `work`.
fn record(build: &Build, name: &str, samples: &[(u64, usize)]) -> PathBuf {
    let mut records = Records::default();
    records.comm(5, 5, true, "program");
    let path = build.file.to_str().expect("a path");
    records.map_build_id(5, BASE, 0x10000, 0, path, Some(&build.id));
    for (distance, number) in samples {
        for _ in 0..*number {
            records.sample(ID, (5, 5), BASE + build.work + distance, 10, &[]);
        }
    }
    let file = build.file.with_file_name(name);
    let events = [event("cpu-clock", attr(SampleType::empty()), &[ID])];
    std::fs::write(&file, records.file(&events)).expect("the recording");
    file
}

/// The answer about `work`, compared with a profile.
fn work(web: &Running, with: Option<usize>) -> Value {
    let hits = web.ask("/api/search?text=work");
    let key = hits["hits"][0]["key"]["function"].as_str();
    let key = key.unwrap_or_else(|| panic!("no function: {}", web.ask("/api/table?by=function")));
    let with = with.map_or(String::new(), |with| format!("&with={with}"));
    web.ask(&format!("/api/function?function={key}{with}"))
}

/// Sums of a list of samples by event.
fn sum(list: &Value) -> u64 {
    let first = list[0].as_array().expect("an event");
    first.iter().filter_map(Value::as_u64).sum()
}

#[test]
fn instructions_are_compared_where_the_code_is_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = build(&folder.path().join("a"), 0xaa, &["-DSHIFT=3"]);
    // The same code with another build id, in another folder; and other code.
    let same = build(&folder.path().join("b"), 0xbb, &["-DSHIFT=3"]);
    let other = build(&folder.path().join("c"), 0xcc, &["-DSHIFT=3", "-O0"]);
    let files = [
        record(&one, "one.data", &[(0, 3), (4, 7)]),
        record(&one, "again.data", &[(0, 2), (4, 20)]),
        record(&same, "same.data", &[(4, 5)]),
        record(&other, "other.data", &[(0, 1), (8, 6)]),
    ];
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let web = Running::start(&files, None);
    let alone = work(&web, None);
    assert!(alone.get("other").is_none() && alone["has_code"] == true);
    let samples = alone["instructions"]["samples"][0]
        .as_array()
        .expect("a list")
        .clone();
    let place = samples
        .iter()
        .position(|count| *count == 7)
        .expect("the second place");

    let again = work(&web, Some(1));
    let there = &again["other"];
    assert_eq!(
        (&there["functions"], &there["instructions_why"]),
        (&json!(1), &Value::Null)
    );
    assert_eq!(there["instructions"]["samples"][0][place], 20);
    assert_eq!(sum(&there["instructions"]["samples"]), 22);
    assert_eq!(sum(&there["lines"]["samples"]), 22);
    assert_eq!(there["lines"]["only_there_samples"], json!([0]));
    assert_eq!(there["events"][0]["own"]["samples"], 22);
    // The counts are those of the other profile's own answer, line by line.
    let own = web.ask(&format!(
        "/api/function?profile=1&function={}",
        web.ask("/api/search?profile=1&text=work")["hits"][0]["key"]["function"]
            .as_str()
            .expect("work")
    ));
    let lines = again["lines"].as_array().expect("lines");
    for line in own["lines"].as_array().expect("lines") {
        let at = lines
            .iter()
            .position(|known| (&known["file"], &known["line"]) == (&line["file"], &line["line"]));
        let at = at.expect("the line");
        assert_eq!(there["lines"]["samples"][0][at], line["samples"][0]);
        assert_eq!(
            there["lines"]["outer_weight"][0][at],
            line["outer_weight"][0]
        );
    }
    let has_fact = |answer: &Value, id: &str| {
        let facts = answer["facts"].as_array().expect("facts");
        facts.iter().any(|fact| fact["id"] == id)
    };
    assert!(!has_fact(&again, "lines_matched_by_number"));

    // Another build with the same bytes: instructions are compared, and files by their own names.
    let same = work(&web, Some(2));
    assert_eq!(same["other"]["instructions"]["samples"][0][place], 5);
    assert_eq!(sum(&same["other"]["lines"]["samples"]), 5);
    assert!(has_fact(&same, "lines_matched_by_number"));

    // Other code: lines only, with the reason.
    let changed = work(&web, Some(3));
    let there = &changed["other"];
    assert_eq!(there["instructions"], Value::Null);
    let why = there["instructions_why"].as_str().expect("a reason");
    assert!(why.contains("instructions instead of"), "{why}");
    let only: u64 = there["lines"]["only_there_samples"][0]
        .as_u64()
        .expect("a number");
    assert_eq!(sum(&there["lines"]["samples"]) + only, 7);
}

#[test]
fn a_function_without_samples_there_says_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = build(&folder.path().join("a"), 0xaa, &["-DSHIFT=3"]);
    let files = [
        record(&one, "one.data", &[(0, 3)]),
        record(&one, "none.data", &[(0x200, 4)]),
    ];
    let web = Running::start(&[&files[0], &files[1]], None);
    let answer = work(&web, Some(1));
    assert_eq!(answer["other"]["functions"], 0);
    assert_eq!(answer["other"]["instructions"], Value::Null);
    let facts = answer["facts"].as_array().expect("facts");
    assert!(
        facts
            .iter()
            .any(|fact| fact["id"] == "function_not_in_other"),
        "{facts:?}"
    );
    assert_eq!(sum(&answer["other"]["lines"]["samples"]), 0);
}

#[test]
fn blocks_are_rows_with_the_counts_of_the_functions_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = build(&folder.path().join("a"), 0xaa, &["-DSHIFT=3"]);
    let files = [
        record(&one, "one.data", &[(0, 3), (4, 7), (0x10, 5)]),
        record(&one, "again.data", &[(0, 2), (0x10, 20)]),
    ];
    let web = Running::start(&[&files[0], &files[1]], None);
    let function = work(&web, None);
    let blocks = function["blocks"].as_array().expect("blocks");
    let starts: Vec<(Value, Value)> = blocks
        .iter()
        .map(|block| {
            let first = block["first"].as_u64().expect("a number") as usize;
            let address = function["instructions"]["address"][first].clone();
            (address, block["samples"][0].clone())
        })
        .collect();
    let table = web.ask("/api/table?by=block");
    let rows = column(&table, "address")
        .into_iter()
        .zip(column(&table, "samples"));
    let rows: Vec<(Value, Value)> = rows.collect();
    assert!(rows.len() == 3, "{table}");
    assert!(
        rows.iter().all(|row| starts.contains(row)),
        "{rows:?} {starts:?}"
    );
    assert!(column(&table, "line").iter().all(|line| !line.is_null()));
    assert_eq!(
        table["rows"][0]["key"]["function"],
        function["function"]["key"]
    );
    // Beside another recording, and of a selection.
    let beside = web.ask("/api/table?by=block&with=1&sort=b_samples");
    assert_eq!(column(&beside, "b_samples"), [20, 2, 0]);
    assert_eq!(column(&beside, "samples"), [5, 3, 7]);
    let key = function["function"]["key"].as_str().expect("a key");
    let selected = web.ask(&format!(
        "/api/table?by=module,block&function={key}&time=0..4"
    ));
    assert_eq!(column(&selected, "samples"), [4, 3, 1]);
    let none = web.ask("/api/table?by=block&profile=1");
    assert_eq!(column(&none, "samples"), [20, 2]);
}
