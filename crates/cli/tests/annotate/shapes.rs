//! The parts of an annotation: lines, views, graphs, choices of functions, and messages where something is missing.

use super::{Recorded, annotated, dioptra, list, number, record, shown};
use dioptra_testprograms::{self as programs, Skip, or_skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

fn shares() -> Result<Recorded, Skip> {
    let program = programs::c("shares", &[])?;
    record(
        &["-e", "cpu-clock,page-faults"],
        &[program.as_os_str(), "100".as_ref()],
    )
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Copies a program, so that a test may change the file.
fn copy(name: &str) -> Result<(tempfile::TempDir, PathBuf), Skip> {
    let program = programs::c(name, &[])?;
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join(name);
    fs::copy(program, &copy).expect("a copy");
    Ok((folder, copy))
}

#[test]
fn lines_are_those_of_the_report() {
    let program = or_skip!(programs::c("inline", &[]));
    let command = [program.as_os_str(), "60".as_ref()];
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &command));
    let json = annotated("outer", &recorded.file);
    let arguments = ["--by", "line", "--symbol", "outer", "--format", "json"];
    let report: Value =
        serde_json::from_str(&shown("report", &arguments, &recorded.file)).expect("JSON");
    let columns: Vec<&str> = list(&report, "columns")
        .iter()
        .filter_map(|column| column["id"].as_str())
        .collect();
    let at = |id: &str| {
        columns
            .iter()
            .position(|column| *column == id)
            .expect("a column")
    };
    let reported: BTreeMap<(String, u64), (u64, u64)> = list(&report, "rows")
        .iter()
        .map(|row| {
            let cell = |id| row["cells"][at(id)].clone();
            let file = cell("file").as_str().unwrap_or_default().to_owned();
            let key = (file, cell("line").as_u64().unwrap_or(0));
            (key, (number(&cell("samples")), number(&cell("weight"))))
        })
        .collect();
    let ours: BTreeMap<(String, u64), (u64, u64)> = list(&json, "lines")
        .iter()
        .filter(|line| number(&line["counts"][0]["samples"]) > 0)
        .map(|line| {
            let file = line["file"].as_str().unwrap_or("[unknown]").to_owned();
            let count = &line["counts"][0];
            let key = (file, line["line"].as_u64().unwrap_or(0));
            (key, (number(&count["samples"]), number(&count["weight"])))
        })
        .collect();
    assert_eq!(ours, reported);
    // The inline chain stands beside each instruction, and in the text.
    let chain = |place: &Value| list(place, "frames").len();
    assert!(
        list(&json, "instructions")
            .iter()
            .any(|place| chain(place) == 3)
    );
    let listing = shown("annotate", &["outer"], &recorded.file);
    assert!(listing.contains("step inlined at inline.c:"), "{listing}");
    // By outermost lines, the two calls in `outer` have all samples, three to one.
    let calls = shown(
        "annotate",
        &["outer", "--source", "--credit", "outermost"],
        &recorded.file,
    );
    let hottest = calls
        .lines()
        .find(|line| line.contains("* │"))
        .expect("a hottest line");
    assert!(hottest.contains("/* MIXER */"), "{calls}");
}

#[test]
fn views_and_drawings() {
    let recorded = or_skip!(shares());
    let file = &recorded.file;
    let mixed = shown("annotate", &["sixty"], file);
    assert!(
        mixed.contains("STEP(x);") && mixed.contains("header of loop 0"),
        "{mixed}"
    );
    assert!(mixed.contains('┌') && mixed.contains('►'), "{mixed}");
    assert!(!mixed.contains('\u{1b}'), "no colours but on a terminal");
    assert!(
        mixed.contains("cpu-clock") && mixed.contains("page-faults"),
        "{mixed}"
    );
    assert_eq!(
        mixed
            .lines()
            .filter(|line| line.contains(":  ") && line.contains("* │"))
            .count(),
        1
    );
    // Without a name, the command shows the hottest function.
    assert_eq!(shown("annotate", &[], file), mixed);
    let assembly = shown("annotate", &["sixty", "--asm", "--arrows", "ascii"], file);
    assert!(
        !assembly.contains("STEP(x);") && assembly.is_ascii(),
        "{assembly}"
    );
    assert!(assembly.contains("'--"), "{assembly}");
    let source = shown("annotate", &["sixty", "--source"], file);
    assert!(
        source.contains("STEP(x);") && !source.contains("%r"),
        "{source}"
    );
    let one = shown(
        "annotate",
        &["sixty", "--event", "cpu-clock", "--limit", "1"],
        file,
    );
    assert!(
        one.contains("left out") && !one.contains("page-faults"),
        "{one}"
    );
    // Calls are named.
    let main = shown("annotate", &["main", "--asm"], file);
    assert!(
        main.contains("<rounds>") && main.contains("<printf@plt>"),
        "{main}"
    );
    assert!(
        main.contains("no sample lies in main") || main.contains("main in shares"),
        "{main}"
    );
    let intel = shown("annotate", &["sixty", "--asm", "--syntax", "intel"], file);
    assert!(
        intel.contains("mov r") && !intel.contains('%'.to_string().repeat(2).as_str()),
        "{intel}"
    );
}

#[test]
fn graphs_have_all_blocks_and_edges() {
    let recorded = or_skip!(shares());
    let json = annotated("sixty", &recorded.file);
    let graph = shown("annotate", &["sixty", "--format", "dot"], &recorded.file);
    let count = |part: &str| graph.matches(part).count();
    assert_eq!(
        count("fillcolor=\"0.000"),
        list(&json, "blocks").len(),
        "{graph}"
    );
    assert_eq!(count(" -> "), list(&json, "edges").len(), "{graph}");
    assert_eq!(
        count("subgraph cluster_loop"),
        list(&json, "loops").len(),
        "{graph}"
    );
    assert_eq!(count("{"), count("}"), "{graph}");
    for edge in list(&json, "edges") {
        assert!(
            graph.contains(edge["kind"].as_str().expect("a kind")),
            "{graph}"
        );
    }
}

#[test]
fn functions_are_found_by_name_module_and_address() {
    let recorded = or_skip!(shares());
    let file = &recorded.file;
    let json = annotated("sixty", file);
    let address = number(&json["function"]["virtual_start"]) + 3;
    for wanted in [
        "shares:sixty",
        // These patterns match a part of one name only, and the same in other letters.
        "sixt",
        "shares:IXTY",
        &format!("shares:{address:#x}"),
        &format!("{address:#x}"),
    ] {
        let found = annotated(wanted, file);
        assert_eq!(found["function"], json["function"], "{wanted}");
        assert_eq!(found["instructions"], json["instructions"], "{wanted}");
    }
    for (wanted, told) in [
        ("sixtz", "did you mean sixty?"),
        // These patterns match parts of several names: sixty, thirty.
        ("ty", "shares:sixty ("),
        ("shares:TY", "shares:thirty ("),
        ("libc.so.6:sixty", "no function"),
        ("shares:0xfffffff0", "neither a function nor samples"),
        ("nothing_like_it", "dioptra report"),
    ] {
        let output = dioptra("annotate", &[wanted], file);
        assert_eq!(output.status.code(), Some(1), "{wanted}");
        let message = text(&output.stderr);
        assert!(
            message.contains(told) && message.lines().count() == 1,
            "{message}"
        );
    }
    let none = dioptra("annotate", &["--tid", "1", "--cpu", "4000"], file);
    assert_eq!(none.status.code(), Some(1));
    let wrong = dioptra("annotate", &["--source-path", "x"], file);
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn filters_are_those_of_the_report() {
    let recorded = or_skip!(shares());
    let all = annotated("sixty", &recorded.file);
    let half = |range: &str| {
        let arguments = ["sixty", "--time", range, "--format", "json"];
        let json: Value =
            serde_json::from_str(&shown("annotate", &arguments, &recorded.file)).expect("JSON");
        super::check_sums(&json);
        number(&json["events"][0]["function"]["samples"])
    };
    let whole = number(&all["events"][0]["function"]["samples"]);
    assert_eq!(half("..0.03") + half("0.03.."), whole);
}

#[test]
fn without_debug_information_there_are_instructions() {
    let (folder, program) = or_skip!(copy("shares"));
    let status = Command::new("strip").arg("-g").arg(&program).status();
    if !status.is_ok_and(|status| status.success()) {
        return programs::skip("strip does not run");
    }
    let command = [program.as_os_str(), "100".as_ref()];
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &command));
    let listing = shown("annotate", &["sixty"], &recorded.file);
    assert!(
        listing.contains("no source: ") && listing.contains("fallback"),
        "{listing}"
    );
    assert!(
        listing.contains("shl") && !listing.contains("STEP"),
        "{listing}"
    );
    annotated("sixty", &recorded.file);
    drop(folder);
}

#[test]
fn stripped_programs_are_divided_by_their_unwind_tables() {
    let (_folder, program) = or_skip!(copy("shares"));
    let status = Command::new("strip").arg(&program).status();
    if !status.is_ok_and(|status| status.success()) {
        return programs::skip("strip does not run");
    }
    let command = [program.as_os_str(), "100".as_ref()];
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &command));
    let json = annotated("", &recorded.file);
    assert_eq!(json["function"]["module"], "shares");
    let function = &json["events"][0]["function"]["samples"];
    let all = &json["events"][0]["total"]["samples"];
    let share = number(function) as f64 / number(all) as f64;
    // The hottest is `sixty`, which has no name now.
    assert!((0.4..0.8).contains(&share), "{share}");
    assert!(list(&json, "loops").len() == 1, "{json}");
}

#[test]
fn without_the_program_there_are_addresses() {
    let (_folder, program) = or_skip!(copy("shares"));
    let command = [program.as_os_str(), "100".as_ref()];
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &command));
    // perf's cache of recorded files is not searched.
    fs::remove_file(&program).expect("removed");
    let json = annotated("", &recorded.file);
    assert!(json.get("instructions").is_none() && !list(&json, "addresses").is_empty());
    assert_eq!(json["facts"]["no_code"]["severity"], "fallback");
    let listing = shown("annotate", &[], &recorded.file);
    assert!(
        listing.contains("no instructions, only the addresses of samples"),
        "{listing}"
    );
    let graph = dioptra("annotate", &["--format", "dot"], &recorded.file);
    assert_eq!(graph.status.code(), Some(1));
}

#[test]
fn sources_are_looked_for_where_they_are_said_to_be() {
    let source = programs::repository_root().join("tests/programs/shares.c");
    let folder = tempfile::tempdir().expect("a folder");
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    fs::create_dir(&before).expect("a folder");
    fs::copy(source, before.join("moved.c")).expect("a copy");
    let program = folder.path().join("moved");
    let built = Command::new("gcc")
        .args(["-O1", "-g", "-o"])
        .arg(&program)
        .arg(before.join("moved.c"))
        .status();
    if !built.is_ok_and(|status| status.success()) {
        return programs::skip("gcc does not run");
    }
    fs::rename(&before, &after).expect("renamed");
    let command = [program.as_os_str(), "100".as_ref()];
    let recorded = or_skip!(record(&["-e", "cpu-clock"], &command));
    let missing = shown("annotate", &["sixty"], &recorded.file);
    assert!(
        missing.contains("no source file") && missing.contains("moved.c:"),
        "{missing}"
    );
    let renamed = format!("{}={}", before.display(), after.display());
    let found = shown(
        "annotate",
        &["sixty", "--source-path", &renamed],
        &recorded.file,
    );
    assert!(
        found.contains("STEP(x);") && !found.contains("no source file"),
        "{found}"
    );
}

#[test]
fn code_of_compilers_that_run_is_read_from_their_dumps() {
    let program = or_skip!(programs::c("jitcode", &[]));
    let run = |mode: &str| {
        let command = [program.as_os_str(), mode.as_ref(), "200".as_ref()];
        record(&["-e", "cpu-clock", "-k", "mono"], &command)
    };
    let dumped = or_skip!(run("dump"));
    for (function, line) in [("made_first", 10), ("made_second", 20)] {
        let json = annotated(function, &dumped.file);
        assert_eq!(list(&json, "loops").len(), 1, "{function}");
        assert_eq!(list(&json, "instructions").len(), 3, "{function}");
        let lines = list(&json, "lines");
        assert_eq!((lines.len(), &lines[0]["line"]), (1, &line.into()));
    }
    // A list of names contains no code.
    let listed = or_skip!(run("map"));
    let json = annotated("made_first", &listed.file);
    assert!(!list(&json, "addresses").is_empty());
    assert_eq!(json["facts"]["no_code"]["severity"], "fallback");
}

/// Colours add nothing but themselves, and only on terminals that want them.
#[test]
fn colours_are_for_terminals() {
    or_skip!(programs::need_tool("script"));
    let recorded = or_skip!(shares());
    let plain = shown("annotate", &["sixty"], &recorded.file);
    let on_terminal = |variables: &[(&str, &str)]| {
        let command = format!(
            "{} annotate sixty -i {}",
            env!("CARGO_BIN_EXE_dioptra"),
            recorded.file.display()
        );
        let output = Command::new("script")
            .args(["-qec", &command, "/dev/null"])
            .env("LC_ALL", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .envs(variables.iter().copied())
            .stdin(std::process::Stdio::null())
            .output()
            .expect("script runs");
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout).replace("\r\n", "\n")
    };
    let colored = on_terminal(&[]);
    let mut stripped = String::new();
    for line in colored.lines() {
        let mut is_painted = false;
        for (number, part) in line.split("\u{1b}[").enumerate() {
            let rest = match number {
                0 => part,
                _ => {
                    let (code, rest) = part.split_once('m').expect("a colour");
                    assert_eq!(code == "0", is_painted, "{line:?}");
                    is_painted = !is_painted;
                    rest
                }
            };
            stripped.push_str(rest);
        }
        assert!(!is_painted, "{line:?}");
        stripped.push('\n');
    }
    assert_eq!(stripped, plain);
    assert!(colored.contains("\u{1b}[1;31m"), "the hottest stands out");
    for variable in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        assert_eq!(on_terminal(&[variable]), plain, "{variable:?}");
    }
}
