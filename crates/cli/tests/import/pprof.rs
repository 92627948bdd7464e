//! pprof's profiles: those of `dioptra export`, and those of Go programs, read by `go tool pprof` before and after.

use crate::support::{by_function, done, inlined, report, threads};
use dioptra_testprograms::{self as programs, or_skip};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

fn go(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("go")
        .args(arguments)
        .current_dir(folder)
        .env("HOME", folder)
        .env("PPROF_TMPDIR", folder)
        .env("GOCACHE", folder.join("cache"))
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off")
        .output()
        .expect("go runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the types, the samples and the mappings of a profile. A sample is its values, its labels and its locations
/// with their addresses, functions and lines, since the numbers of locations follow the order of samples.
fn content(folder: &Path, file: &str) -> (String, Vec<String>, String) {
    let text = go(folder, &["tool", "pprof", "-symbolize=none", "-raw", file]);
    let (_, text) = text.split_once("Samples:\n").expect("samples");
    let (samples, text) = text.split_once("Locations\n").expect("locations");
    let (locations, mappings) = text.split_once("Mappings\n").expect("mappings");
    let mut by_id: BTreeMap<&str, String> = BTreeMap::new();
    let mut last = "";
    for line in locations.lines() {
        // "     3: 0x5581 M=1 main a.c:7 s=0", and a line for each function that it is inlined into.
        match line.trim().split_once(": 0x") {
            Some((id, rest)) => {
                last = id;
                by_id.insert(id, format!("0x{rest}"));
            }
            None => by_id
                .get_mut(last)
                .expect("a location")
                .push_str(line.trim()),
        }
    }
    let (types, samples) = samples.split_once('\n').expect("types");
    let mut found: Vec<String> = Vec::new();
    for line in samples.lines() {
        match line
            .split_once(": ")
            .filter(|(values, _)| !values.contains("["))
        {
            Some((values, ids)) => {
                let locations = ids.split_whitespace().map(|id| by_id[id].as_str());
                let locations: Vec<&str> = locations.collect();
                let values: Vec<&str> = values.split_whitespace().collect();
                found.push(format!("{values:?} {locations:#?}"));
            }
            // The labels of the sample before.
            None => found.last_mut().expect("a sample").push_str(line),
        }
    }
    found.sort();
    (types.to_owned(), found, mappings.to_owned())
}

#[test]
fn exports_come_back_as_they_were() {
    or_skip!(programs::need_tool("go"));
    for recorded in [or_skip!(inlined()), or_skip!(threads())] {
        let folder = recorded.folder.path();
        done(folder, &["export", "--to", "pprof", "-o", "one.pb.gz"]);
        let (_, said) = done(folder, &["import", "one.pb.gz", "-o", "in.data"]);
        assert!(said.contains("from pprof"), "{said}");
        assert!(!said.contains("addresses"), "{said}");
        done(
            folder,
            &[
                "export",
                "--to",
                "pprof",
                "-i",
                "in.data",
                "-o",
                "two.pb.gz",
            ],
        );
        let (before, after) = (content(folder, "one.pb.gz"), content(folder, "two.pb.gz"));
        assert!(before.1.len() > 2, "{before:?}");
        assert_eq!(after, before);
        // The tables' numbers are the recording's.
        for event in ["1", "2"]
            .iter()
            .take(if said.contains("page-faults") { 2 } else { 1 })
        {
            for column in ["weight", "samples"] {
                let rows = report(folder, &["--inline", "-e", event]);
                let imported = report(folder, &["--inline", "-e", event, "-i", "in.data"]);
                assert_eq!(
                    by_function(&imported, column),
                    by_function(&rows, column),
                    "{event} {column}"
                );
            }
        }
        let (lines, _) = done(
            folder,
            &["report", "--by", "line", "--format", "csv", "-e", "1"],
        );
        let (imported, _) = done(
            folder,
            &[
                "report", "--by", "line", "--format", "csv", "-e", "1", "-i", "in.data",
            ],
        );
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&imported), sorted(&lines));
    }
}

/// A program that profiles its CPU time and its memory.
const PROGRAM: &str = r#"package main

import (
	"context"
	"os"
	"runtime"
	"runtime/pprof"
	"time"
)

var kept [][]byte
var sum int

//go:noinline
func work(until time.Time) {
	for time.Now().Before(until) {
		for i := 0; i < 100000; i++ {
			sum += i * i
		}
	}
}

func allocate() {
	for i := 0; i < 64; i++ {
		kept = append(kept, make([]byte, 1<<20))
	}
}

func main() {
	runtime.MemProfileRate = 1 << 16
	cpu, _ := os.Create("cpu.pprof")
	pprof.StartCPUProfile(cpu)
	pprof.Do(context.Background(), pprof.Labels("request", "one"), func(_ context.Context) { work(time.Now().Add(300 * time.Millisecond)) })
	work(time.Now().Add(300 * time.Millisecond))
	pprof.StopCPUProfile()
	cpu.Close()
	allocate()
	heap, _ := os.Create("heap.pprof")
	pprof.Lookup("heap").WriteTo(heap, 0)
	heap.Close()
}
"#;

/// Returns pprof's own values by function.
fn top(folder: &Path, file: &str, index: &str) -> BTreeMap<String, u64> {
    let text = go(
        folder,
        &[
            "tool",
            "pprof",
            "-symbolize=none",
            "-top",
            "-nodefraction=0",
            "-nodecount=100000",
            "-unit=minimum",
            &format!("-sample_index={index}"),
            file,
        ],
    );
    let rows = text
        .lines()
        .skip_while(|line| !line.contains("flat%"))
        .skip(1);
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for row in rows {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let digits: String = fields[0].chars().take_while(char::is_ascii_digit).collect();
        let name = fields[5..].join(" ");
        let name = name
            .trim_end_matches(" (inline)")
            .trim_end_matches(" (partial-inline)");
        *own.entry(name.to_owned()).or_default() += digits.parse::<u64>().expect("a number");
    }
    own.retain(|_, value| *value > 0);
    own
}

#[test]
fn profiles_of_go_programs() {
    or_skip!(programs::need_tool("go"));
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("main.go"), PROGRAM).expect("a file");
    go(folder, &["run", "main.go"]);
    let (_, said) = done(folder, &["import", "cpu.pprof", "-o", "cpu.data"]);
    assert!(said.contains("of cpu"), "{said}");
    assert!(said.contains("the label \"request\" of"), "{said}");
    let cpu = top(folder, "cpu.pprof", "cpu");
    assert!(cpu.contains_key("main.work"), "{cpu:?}");
    let rows = report(folder, &["-i", "cpu.data", "--inline"]);
    let milliseconds = |sums: BTreeMap<String, u64>| -> BTreeMap<String, u64> {
        // pprof shows the smallest unit that is not a fraction: 10ms are 10.
        sums.into_iter()
            .map(|(name, value)| (name, value / 1_000_000))
            .collect()
    };
    assert_eq!(milliseconds(by_function(&rows, "weight")), cpu);
    assert_eq!(
        by_function(&rows, "samples"),
        top(folder, "cpu.pprof", "samples")
    );
    // Back again: pprof finds the same functions and values.
    done(
        folder,
        &[
            "export",
            "--to",
            "pprof",
            "-i",
            "cpu.data",
            "-o",
            "again.pb.gz",
        ],
    );
    assert_eq!(top(folder, "again.pb.gz", "cpu"), cpu);
    // Memory: four events.
    let (_, said) = done(folder, &["import", "heap.pprof", "-o", "heap.data"]);
    assert!(said.contains("the unit of inuse_space, bytes"), "{said}");
    for event in ["alloc_objects", "inuse_space"] {
        let rows = report(folder, &["-i", "heap.data", "--inline", "-e", event]);
        let own = by_function(&rows, "weight");
        let text = go(
            folder,
            &[
                "tool",
                "pprof",
                "-symbolize=none",
                "-raw",
                &format!("-sample_index={event}"),
                "heap.pprof",
            ],
        );
        let (head, samples) = text.split_once("Samples:\n").expect("samples");
        assert!(head.contains("PeriodType: space bytes"), "{head}");
        // alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]
        let types: Vec<&str> = samples.lines().next().expect("types").split(' ').collect();
        let place = types
            .iter()
            .position(|kind| kind.starts_with(event))
            .expect("the type");
        let rows = samples
            .lines()
            .skip(1)
            .take_while(|line| *line != "Locations");
        let values = rows.filter_map(|line| line.split_once(':'));
        let expected: u64 = values
            .filter_map(|(values, _)| values.split_whitespace().nth(place)?.parse::<u64>().ok())
            .sum();
        assert_eq!(own.values().sum::<u64>(), expected, "{event}");
        assert!(own.contains_key("main.allocate"), "{own:?}");
    }
}
